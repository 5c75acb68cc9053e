//! Lateness: how long after its planned moment each connection started.

use super::super::format::{count, time_ns};
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::bars::Bar;
use super::super::plot::scale::{ScaleKind, from_zero, round_log};
use super::super::plot::{Area, Mark, Panel};
use super::super::story::{Execution, LatenessBin};
use super::Figure;

/// The histogram of lateness, where there is one.
pub fn figure(execution: &Execution) -> Option<Figure> {
    let bins: Vec<&LatenessBin> =
        execution.lateness_histogram.iter().filter(|b| b.high_ns > 0.0).collect();
    if bins.iter().all(|b| b.count == 0) {
        return None;
    }
    // A first bin that begins at zero has no place on a logarithmic axis: it is drawn a decade wide.
    let low = |b: &LatenessBin| if b.low_ns > 0.0 { b.low_ns } else { b.high_ns / 10.0 };
    let occupied = bins.iter().filter(|b| b.count > 0);
    let domain = round_log(occupied.flat_map(|b| [low(b), b.high_ns]));
    let x = Axis::new(ScaleKind::Log, domain, Unit::Nanoseconds, "late by").ticks(6);
    let high = from_zero(bins.iter().map(|b| b.count as f64));
    let y =
        Axis::new(ScaleKind::Linear, [0.0, high[1] * 1.12], Unit::Count, "connections").ticks(5);
    let mut panel = Panel::new(Area::between(28.0, 194.0), x, y);
    let bars: Vec<Bar> = bins
        .iter()
        .map(|b| Bar {
            left: low(b),
            right: b.high_ns,
            value: b.count as f64,
            title: format!("{} to {}: {}", time_ns(b.low_ns), time_ns(b.high_ns), count(b.count)),
        })
        .collect();
    panel.bars(&bars, Mark { class: "measured", name: "" });
    let mut caption = "When connections started after their planned moment.".to_owned();
    if let Some(late) = &execution.lateness {
        panel.upright(late.p50_ns, Mark { class: "wire", name: "half" });
        panel.upright(late.p99_ns, Mark { class: "wire", name: "99\u{a0}%" });
        caption = format!(
            "Half of the connections started within {} of their moment, 99 in 100 within {}; the \
             latest {}.",
            time_ns(late.p50_ns),
            time_ns(late.p99_ns),
            time_ns(late.max_ns)
        );
    }
    Figure::new(["lateness", "Lateness"], caption, 236.0, &[panel.finish(true)])
}
