//! Delay through the device beside the bare wire: its distribution, and its course.

use super::super::format::time_ns;
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::scale::{ScaleKind, round_log};
use super::super::plot::{Area, Mark, Panel};
use super::super::story::{DelaySecond, Direction, Story};
use super::{Figure, volume};

/// Shares of packets smaller than this are not drawn.
const RAREST: f64 = 1e-6;

/// One figure for each direction, on the same axes: the share of packets slower than a delay.
pub fn distributions(story: &Story) -> Vec<Figure> {
    let curves =
        story.directions.iter().flat_map(|d| [slower(&d.delay_cdf), slower(&d.wire_delay_cdf)]);
    let points: Vec<[f64; 2]> = curves.flatten().collect();
    if points.is_empty() {
        return Vec::new();
    }
    let x = round_log(points.iter().map(|p| p[0]));
    let rarest = round_log(points.iter().map(|p| p[1]))[0].clamp(RAREST, 0.01);
    let drawn = story.directions.iter().enumerate().filter(|(_, d)| !d.delay_cdf.is_empty());
    drawn
        .filter_map(|(i, direction)| distribution(story, direction, i, [x, [rarest, 1.0]]))
        .collect()
}

fn distribution(
    story: &Story,
    direction: &Direction,
    index: usize,
    [x, y]: [[f64; 2]; 2],
) -> Option<Figure> {
    let x = Axis::new(ScaleKind::Log, x, Unit::Nanoseconds, "delay").ticks(6);
    let y = Axis::new(ScaleKind::Log, y, Unit::Share, "share of packets slower").ticks(6);
    let mut panel = Panel::new(Area::between(28.0, 208.0), x, y);
    let wire = slower(&direction.wire_delay_cdf);
    panel.line(&wire, Mark { class: "wire", name: "bare wire" });
    let through = through(story);
    panel.line(&slower(&direction.delay_cdf), Mark { class: "measured", name: &through });
    let caption = match (direction.delay_ns, direction.wire_delay_ns) {
        (Some(delay), Some(wire)) if delay.p50 > wire.p50 => format!(
            "Half of the packets {} more than the bare wire; one in a hundred over {} in all.",
            time_ns(delay.p50 - wire.p50),
            time_ns(delay.p99)
        ),
        (Some(delay), Some(wire)) => format!(
            "Half of the packets at most {}, one in a hundred over {}; the bare wire was no faster ({}).",
            time_ns(delay.p50),
            time_ns(delay.p99),
            time_ns(wire.p50)
        ),
        (Some(delay), None) => format!(
            "Half of the packets at most {}, one in a hundred over {}; the bare wire was not \
             measured.",
            time_ns(delay.p50),
            time_ns(delay.p99)
        ),
        (None, _) => "Its percentiles were not measured.".to_owned(),
    };
    let title = format!("Delay {}", direction.name);
    Figure::new([&format!("delay-{index}"), &title], caption, 250.0, &[panel.finish(true)])
}

/// One figure for each direction, on the same axes: median and 99th percentile of each second.
pub fn courses(story: &Story) -> Vec<Figure> {
    let values = story.directions.iter().flat_map(|d| {
        let wire = d.wire_delay_ns.into_iter().flat_map(|w| [w.p5, w.p95]);
        let seconds = d.seconds.iter().flat_map(|s| [s.p50_ns, s.p99_ns]).flatten();
        seconds.chain(wire).collect::<Vec<f64>>()
    });
    let y = round_log(values);
    let has = |d: &Direction| d.seconds.iter().any(|s| s.p50_ns.is_some() || s.p99_ns.is_some());
    let drawn = story.directions.iter().enumerate().filter(|(_, d)| has(d));
    drawn.filter_map(|(i, direction)| course(story, direction, i, y)).collect()
}

fn course(story: &Story, direction: &Direction, index: usize, y: [f64; 2]) -> Option<Figure> {
    let x = Axis::new(ScaleKind::Linear, volume::span(story), Unit::Seconds, "seconds").ticks(6);
    let y = Axis::new(ScaleKind::Log, y, Unit::Nanoseconds, "delay").ticks(5);
    let mut panel = Panel::new(Area::between(28.0, 194.0), x, y);
    if let Some(wire) = direction.wire_delay_ns {
        panel.strip(wire.p5, wire.p95, Mark { class: "wire", name: "" });
        panel.level(wire.p50, Mark { class: "wire", name: "bare wire, p5 to p95" });
    }
    let line = |value: fn(&DelaySecond) -> Option<f64>| {
        let point = |s: &DelaySecond| [s.middle_s(), value(s).unwrap_or(f64::NAN)];
        direction.seconds.iter().map(point).collect::<Vec<[f64; 2]>>()
    };
    panel.line(&line(|s| s.p99_ns), Mark { class: "measured fine", name: "p99" });
    panel.line(&line(|s| s.p50_ns), Mark { class: "measured", name: "median" });
    let medians = || direction.seconds.iter().filter_map(|s| s.p50_ns).filter(|v| v.is_finite());
    let (low, high) = (medians().reduce(f64::min), medians().reduce(f64::max));
    let peak = direction
        .seconds
        .iter()
        .filter_map(|s| s.p99_ns.filter(|v| v.is_finite()).map(|v| (s.name(), v)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let caption = match (low, high, peak) {
        (Some(low), Some(high), Some((second, p99))) => format!(
            "The median stays between {} and {}; the worst p99, {}, is in {second}.",
            time_ns(low),
            time_ns(high),
            time_ns(p99)
        ),
        _ => "Delay in each second.".to_owned(),
    };
    let title = format!("Delay over time, {}", direction.name);
    Figure::new([&format!("course-{index}"), &title], caption, 236.0, &[panel.finish(true)])
}

/// What the measured curve is called: after the device.
pub fn through(story: &Story) -> String {
    match story.header.dut.as_str() {
        "" => "through the device".to_owned(),
        dut => format!("through {dut}"),
    }
}

/// The complement of a cumulative curve, to its rarest share.
fn slower(cdf: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let first = cdf.first().map(|p| [p[0], 1.0]);
    let rest = cdf.iter().map(|[x, share]| [*x, 1.0 - share]).filter(|[_, s]| *s >= RAREST);
    first.into_iter().chain(rest).collect()
}
