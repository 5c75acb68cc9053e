//! Coverage: how much of the input entered the model.

use super::super::format::{self, count, percent};
use super::super::plot::Mark;
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::scale::ScaleKind;
use super::super::story::Coverage;
use super::Figure;
use super::rows::Rows;

/// Shares of flows and bytes that entered the model.
pub fn figure(coverage: &Coverage) -> Option<Figure> {
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let flows = share(coverage.flows_entered, coverage.flows_total)?;
    let bytes = share(coverage.bytes_entered, coverage.bytes_total);
    let names = [
        format!("flows: {} of {}", count(coverage.flows_entered), count(coverage.flows_total)),
        format!(
            "bytes: {} of {}",
            format::bytes(coverage.bytes_entered as f64),
            format::bytes(coverage.bytes_total as f64)
        ),
    ];
    let x = Axis::new(ScaleKind::Linear, [0.0, 1.0], Unit::Share, "of the input").ticks(5);
    let shown = if bytes.is_some() { 2 } else { 1 };
    let mut rows = Rows::new(&names[..shown], x);
    for (row, share) in [Some(flows), bytes].into_iter().flatten().enumerate() {
        let y = rows.y(row);
        let bar = |from: f64, to: f64| [[from, y - 0.14, y + 0.14], [to, y - 0.14, y + 0.14]];
        rows.panel.band(&bar(share.min(1.0), 1.0), Mark { class: "wire", name: "" });
        rows.panel.band(&bar(0.0, share.min(1.0)), Mark { class: "model full", name: "" });
    }
    let bytes = bytes.map_or_else(String::new, |b| format!(" and {} of the bytes", percent(b)));
    let largest = coverage.left_out.iter().max_by_key(|l| (l.flows, std::cmp::Reverse(&l.reason)));
    let why = largest
        .filter(|l| l.flows > 0)
        .map_or_else(String::new, |largest| format!(" Most flows left out: {}.", largest.reason));
    let caption = format!("{} of the flows{bytes} entered the model.{why}", percent(flows));
    let height = rows.height();
    let panels = [rows.panel.finish(true)];
    Figure::new(["coverage", "What the model covers"], caption, height, &panels)
}
