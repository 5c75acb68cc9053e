//! Delay by size of packet: median and 99th percentile of each class beside the wire's median.

use super::super::format::{plural, time_ns, time_ns_or};
use super::super::plot::Mark;
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::scale::{ScaleKind, extent, round_log};
use super::super::story::SizeClass;
use super::Figure;
use super::rows::Rows;

/// A row for each class.
pub fn figure(classes: &[SizeClass]) -> Option<Figure> {
    let shown: Vec<&SizeClass> = classes.iter().filter(|c| c.p50_ns.is_some()).collect();
    let values = || shown.iter().flat_map(|c| [c.p50_ns, c.p99_ns, c.wire_p50_ns]).flatten();
    extent(ScaleKind::Log, values())?;
    let x = Axis::new(ScaleKind::Log, round_log(values()), Unit::Nanoseconds, "delay").ticks(6);
    let names: Vec<String> =
        shown.iter().map(|c| format!("{}: {}", c.label, plural(c.packets, "packet"))).collect();
    let mut rows = Rows::new(&names, x);
    for (row, class) in shown.iter().enumerate() {
        let y = rows.y(row);
        if let Some((p50, p99)) = class.p50_ns.zip(class.p99_ns) {
            let mark = Mark { class: "measured fine", name: "" };
            rows.panel.line(&[[p50, y], [p99, y]], mark);
        }
        for (value, class_name, name) in [
            (class.wire_p50_ns, "wire", "bare wire, median"),
            (class.p50_ns, "measured", "median"),
            (class.p99_ns, "measured hollow", "p99"),
        ] {
            let Some(value) = value else { continue };
            let title = format!("{}, {name}: {}", class.label, time_ns(value));
            rows.panel.dot([value, y], Mark { class: class_name, name: "" }, &title);
        }
    }
    let medians = || shown.iter().filter(|c| c.p50_ns.is_some_and(f64::is_finite));
    let key = |c: &&&SizeClass| c.p50_ns.unwrap_or(0.0);
    let slowest = medians().max_by(|a, b| key(a).total_cmp(&key(b)));
    let fastest = medians().min_by(|a, b| key(a).total_cmp(&key(b)));
    let caption = match (fastest, slowest) {
        (Some(fast), Some(slow)) if fast.label != slow.label => format!(
            "At the median, packets of {} take {}, those of {} take {}.",
            fast.label,
            time_ns_or(fast.p50_ns),
            slow.label,
            time_ns_or(slow.p50_ns)
        ),
        _ => "Median and p99 of each class of sizes.".to_owned(),
    };
    let caption = format!(
        "{caption} Filled dot: median; ring: 99th percentile; grey: the bare wire's median."
    );
    let height = rows.height();
    let panels = [rows.panel.finish(true)];
    Figure::new(["by-size", "Delay by size of packet"], caption, height, &panels)
}
