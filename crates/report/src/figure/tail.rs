//! The tail: how the model's file sizes thin out, on log-log axes.

use super::super::format::{self, percent};
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::scale::{ScaleKind, round_log};
use super::super::plot::{Area, Mark, Panel};
use super::super::story::Story;
use super::Figure;

/// The model's share of files larger than a size.
pub fn figure(story: &Story) -> Option<Figure> {
    let model = &story.file_size.model;
    let larger: Vec<[f64; 2]> =
        model.iter().map(|[x, share]| [*x, 1.0 - share]).filter(|[_, s]| *s > 1e-9).collect();
    if larger.is_empty() {
        return None;
    }
    let x =
        Axis::new(ScaleKind::Log, round_log(model.iter().map(|p| p[0])), Unit::Bytes, "file size");
    let floor = round_log(larger.iter().map(|p| p[1]))[0].min(0.1);
    let y = Axis::new(ScaleKind::Log, [floor, 1.0], Unit::Share, "share of files larger");
    let mut panel = Panel::new(Area::between(28.0, 194.0), x.ticks(6), y);
    panel.line(&larger, Mark { class: "model", name: "model" });
    let at = |share: f64| quantile(model, share).map(format::bytes);
    let caption = match (at(0.5), at(0.99)) {
        (Some(median), Some(high)) => format!(
            "Half of the files have at most {median}; {} have more than {high}.",
            percent(0.01)
        ),
        _ => "Tail of the model's file sizes.".to_owned(),
    };
    Figure::new(["tail", "Planned file sizes"], caption, 236.0, &[panel.finish(true)])
}

/// The first x whose cumulative share reaches `share`.
pub fn quantile(curve: &[[f64; 2]], share: f64) -> Option<f64> {
    curve.iter().find(|[_, cumulative]| *cumulative >= share).map(|[x, _]| *x)
}
