//! The page of a calibration: the noise of the instrument by rate and size of frame.

use nilometer_report::figure::Figure;
use nilometer_report::format::{NOT_MEASURED, count, significant, time_ns};
use nilometer_report::heading::{Heading, words};
use nilometer_report::plot::axis::{Axis, Unit};
use nilometer_report::plot::scale::{ScaleKind, round_log};
use nilometer_report::plot::svg::escape;
use nilometer_report::plot::{Area, Mark, Panel};
use nilometer_report::{page, tables};

use super::calibrate::{Calibration, Point};

/// One self-contained HTML page.
pub fn render(calibration: &Calibration) -> String {
    let pair = &calibration.stamps.pair;
    let heading = Heading {
        crumb: vec!["nilometer profile calibrate".to_owned(), "bare wire".to_owned()],
        sentences: vec![words(&sentence(calibration))],
        lede: format!(
            "Stamps: sent {}; received {}. The receiver is {} with a ring of {} frames: {}.",
            pair[0],
            pair[1],
            calibration.choice.reading,
            calibration.choice.ring,
            calibration.choice.why
        ),
        sections: &[["noise", "Noise"]],
        warnings: &calibration.why,
    };
    let mut body = heading.html();
    body.push_str("<main>\n");
    let mut parts: Vec<String> = Vec::new();
    parts.extend(noise(&calibration.points).map(|figure| figure.html()));
    parts.push(table(&calibration.points));
    let about =
        "Each point is a trial of its own; those that are not valid are listed and not drawn.";
    body.push_str(&page::section("noise", "Noise", about, &parts));
    body.push_str("</main>\n");
    body.push_str(&format!("<footer>nilometer {}</footer>\n", escape(&calibration.version)));
    page::document("Calibration over the bare wire", &body)
}

/// The outcome, in one sentence; words between stars are emphasised.
pub fn sentence(calibration: &Calibration) -> String {
    let valid = || calibration.points.iter().filter(|point| point.valid);
    let noise = || valid().filter_map(|point| point.noise_ns);
    match (noise().min(), noise().max()) {
        (Some(least), Some(most)) => format!(
            "The instrument's noise is *{} to {}* (p95 − p5 of the delay) in {} of {} points.",
            time_ns(least as f64),
            time_ns(most as f64),
            valid().count(),
            calibration.points.len()
        ),
        _ => format!("*None of {} points is valid.*", calibration.points.len()),
    }
}

fn table(points: &[Point]) -> String {
    let row = |point: &Point| {
        let mut row = vec![point.frame_bytes.to_string(), significant(point.pps, 4)];
        row.extend([point.sent, point.received].map(count));
        match (point.delay_ns, point.noise_ns) {
            (Some(delay), Some(noise)) => {
                let values = [delay.p5, delay.p50, delay.p95, delay.p99, noise];
                row.extend(values.map(|ns| time_ns(ns as f64)));
            }
            _ => row.extend(std::iter::repeat_n(NOT_MEASURED.to_owned(), 5)),
        }
        row.push(if point.valid { "yes".to_owned() } else { point.why.join("; ") });
        row
    };
    let rows: Vec<Vec<String>> = points.iter().map(row).collect();
    let head = ["bytes", "fps", "sent", "received", "p5", "p50", "p95", "p99", "noise", "valid"];
    tables::table("Points", &head, &rows)
}

/// The noise of the instrument by rate, a line for each size of frame.
fn noise(points: &[Point]) -> Option<Figure> {
    let valid = || points.iter().filter(|point| point.valid && point.noise_ns.is_some());
    if valid().count() == 0 {
        return None;
    }
    let noise = |point: &Point| point.noise_ns.unwrap_or(1).max(1) as f64;
    let x = round_log(valid().map(|point| point.pps));
    let y = round_log(valid().map(noise));
    let x = Axis::new(ScaleKind::Log, x, Unit::Count, "frames a second").ticks(6);
    let y = Axis::new(ScaleKind::Log, y, Unit::Nanoseconds, "p95 − p5 of the delay").ticks(5);
    let mut panel = Panel::new(Area::between(28.0, 208.0), x, y);
    let mut sizes: Vec<u16> = valid().map(|point| point.frame_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        let of_size = valid().filter(|point| point.frame_bytes == size);
        let line: Vec<[f64; 2]> = of_size.map(|point| [point.pps, noise(point)]).collect();
        let name = format!("{size} bytes");
        panel.line(&line, Mark { class: "measured", name: &name });
        panel.dots(&line, Mark { class: "measured", name: "" });
    }
    let caption =
        "What the instrument itself adds to the spread of delays, by rate and size of frame.";
    let drawn = [panel.finish(true)];
    Figure::new(["noise", "Noise of the bare wire"], caption.to_owned(), 250.0, &drawn)
}
