//! Fidelity at a glance: each distance in units of its sampling floor.

use super::super::enough::is_too_few;
use super::super::format::{significant, times};
use super::super::plot::Mark;
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::scale::{ScaleKind, from_zero};
use super::super::story::Fidelity;
use super::super::verdict::{ALIKE_MAX, name, worst};
use super::Figure;
use super::rows::Rows;

/// One row for each distribution: its ratio as a dot, the floor's spread as a band.
pub fn figure(fidelity: &[Fidelity]) -> Option<Figure> {
    let (farthest, ratio) = worst(fidelity)?;
    let measured = |f: &&Fidelity| f.ratio.is_some_and(f64::is_finite);
    let shown: Vec<&Fidelity> = fidelity.iter().filter(measured).collect();
    let spread = |f: &Fidelity| {
        let over = |p: Option<f64>| p.map(|p| p / f.floor).filter(|p| p.is_finite());
        over(f.floor_p5).zip(over(f.floor_p95))
    };
    let values = shown.iter().flat_map(|f| [f.ratio, spread(f).map(|s| s.1), Some(2.0)]);
    let [low, high] = from_zero(values.flatten());
    let x = Axis::new(ScaleKind::Linear, [low, high * 1.04], Unit::Times, "× the sampling floor");
    let names: Vec<String> = shown.iter().map(|f| name(f.name).to_owned()).collect();
    let mut rows = Rows::new(&names, x.ticks(6));
    for (row, f) in shown.iter().enumerate() {
        let (y, first) = (rows.y(row), row == 0);
        if let Some((p5, p95)) = spread(f) {
            let band = [[p5, y - 0.13, y + 0.13], [p95, y - 0.13, y + 0.13]];
            let name = if first { "second samples, 5–95\u{a0}%" } else { "" };
            rows.panel.band(&band, Mark { class: "model", name });
        }
        let ratio = f.ratio.unwrap_or(f64::NAN);
        let distance = significant(f.distance, 3);
        let title = format!("{}: distance {distance}, {} × the floor", names[row], times(ratio));
        let name = if first { "measured" } else { "" };
        rows.panel.dot([ratio, y], Mark { class: "measured", name }, &title);
    }
    let mut caption = if ratio <= ALIKE_MAX {
        "Every distance is about that of a second sample by chance alone.".to_owned()
    } else {
        format!("Farthest beyond chance is {}, {} × the floor.", name(farthest.name), times(ratio))
    };
    let few: Vec<&str> = shown.iter().filter(|f| is_too_few(f)).map(|f| name(f.name)).collect();
    if !few.is_empty() {
        caption += &format!(
            " {}: too few samples to judge, since another distribution would be as near.",
            few.join(" and ")
        );
    }
    let height = rows.height();
    let panels = [rows.panel.finish(true)];
    Figure::new(["fidelity", "Distance from the model"], caption, height, &panels)
}
