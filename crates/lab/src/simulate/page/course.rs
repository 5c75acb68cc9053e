//! Delay over time: for each point and each kind of datagrams, three percentiles of each interval.

use crate::simulate::delays::{DelayCourse, DelayInterval};
use crate::simulate::result::PointResult;
use nilometer_report::figure::Figure;
use nilometer_report::format::time_ns;
use nilometer_report::plot::axis::{Axis, Unit};
use nilometer_report::plot::scale::{ScaleKind, round_log};
use nilometer_report::plot::{Area, Mark, Panel};

/// Most figures; further courses are in `result.json` alone.
pub const FIGURES_MAX: usize = 24;

const MS: f64 = 1e6;

/// Figures on the same axes, each named after its point, and the number of courses that are not
/// drawn.
pub fn figures(
    points: &[PointResult],
    name: &dyn Fn(&PointResult) -> String,
) -> (Vec<Figure>, usize) {
    let all: Vec<(&PointResult, &DelayCourse)> = points
        .iter()
        .flat_map(|point| point.datagram_delays.iter().map(move |course| (point, course)))
        .collect();
    let shown = &all[..all.len().min(FIGURES_MAX)];
    let each = shown.iter().flat_map(|(_, course)| &course.intervals);
    let y = round_log(each.flat_map(|i| [i.p50_ms, i.p99_ms]).flatten().map(|ms| ms * MS));
    let draw = |(number, (point, course)): (usize, &(&PointResult, &DelayCourse))| {
        figure(number, &name(point), course, y)
    };
    (shown.iter().enumerate().filter_map(draw).collect(), all.len() - shown.len())
}

fn figure(number: usize, point: &str, course: &DelayCourse, y: [f64; 2]) -> Option<Figure> {
    let end = course.every_s * course.intervals.len() as f64;
    let x = Axis::new(ScaleKind::Linear, [0.0, end], Unit::Seconds, "seconds").ticks(6);
    let y = Axis::new(ScaleKind::Log, y, Unit::Nanoseconds, "delay").ticks(5);
    let mut panel = Panel::new(Area::between(28.0, 194.0), x, y);
    let line = |value: fn(&DelayInterval) -> Option<f64>| -> Vec<[f64; 2]> {
        let middle = |i: &DelayInterval| i.start_s + course.every_s / 2.0;
        let at = |i: &DelayInterval| value(i).map_or(f64::NAN, |ms| ms * MS);
        course.intervals.iter().map(|i| [middle(i), at(i)]).collect()
    };
    panel.line(&line(|i| i.p99_ms), Mark { class: "loss fine", name: "p99" });
    panel.line(&line(|i| i.p95_ms), Mark { class: "model", name: "p95" });
    panel.line(&line(|i| i.p50_ms), Mark { class: "measured", name: "median" });
    let title = format!("{point}, {} to {}", course.from, course.to);
    let id = format!("course-{number}");
    Figure::new([&id, &title], caption(course), 236.0, &[panel.finish(true)])
}

/// The range of the medians, and the worst interval.
fn caption(course: &DelayCourse) -> String {
    let medians = || course.intervals.iter().filter_map(|interval| interval.p50_ms);
    let worst = course.intervals.iter().filter_map(|i| Some((i.start_s, i.p99_ms?)));
    let worst = worst.max_by(|a, b| a.1.total_cmp(&b.1));
    let range = medians().reduce(f64::min).zip(medians().reduce(f64::max));
    match (range, worst) {
        (Some((low, high)), Some((start, p99))) => format!(
            "The median stays between {} and {}; the worst p99, {}, is of what was sent from {start}\u{a0}s on.",
            time_ns(low * MS),
            time_ns(high * MS),
            time_ns(p99 * MS)
        ),
        _ => "Nothing arrived.".to_owned(),
    }
}
