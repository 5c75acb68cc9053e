//! Two nearly equal distributions: both curves, and beneath them their difference.
//!
//! Two CDFs a hundredth apart are one line to the eye, so the lower panel draws measured − model on
//! its own scale, with the band in which nine of ten second samples of the model would lie.

use super::super::format::times;
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::scale::{Scale, ScaleKind, extent, round_log};
use super::super::plot::{Area, Mark, Panel};
use super::super::story::{Comparison, Fidelity, Story, Trait};
use super::{Figure, capital};
use crate::verdict::name;

/// What one of these figures is about.
struct Subject {
    of: Trait,
    id: &'static str,
    title: &'static str,
    unit: Unit,
    x: &'static str,
    y: &'static str,
}

/// File sizes, measured against the model.
pub fn file_size(story: &Story) -> Option<Figure> {
    let subject = Subject {
        of: Trait::FileSize,
        id: "file-size",
        title: "File sizes",
        unit: Unit::Bytes,
        x: "payload of a connection",
        y: "share of files at most this large",
    };
    figure(&story.file_size, &subject, &story.fidelity)
}

/// Inter-connection times, measured against the model.
pub fn inter_connection(story: &Story) -> Option<Figure> {
    let subject = Subject {
        of: Trait::InterConnection,
        id: "inter-connection",
        title: "Inter-connection times",
        unit: Unit::Duration,
        x: "between starts of a session's connections",
        y: "share of gaps at most this long",
    };
    figure(&story.inter_connection, &subject, &story.fidelity)
}

fn figure(pair: &Comparison, subject: &Subject, fidelity: &[Fidelity]) -> Option<Figure> {
    if pair.model.is_empty() && pair.measured.is_empty() {
        return None;
    }
    let xs = pair.model.iter().chain(&pair.measured).map(|p| p[0]);
    let domain = round_log(xs);
    let x = Axis::new(ScaleKind::Log, domain, subject.unit, subject.x).ticks(6);
    let y = Axis::new(ScaleKind::Linear, [0.0, 1.0], Unit::Share, subject.y).ticks(4);
    let mut upper = Panel::new(Area::between(28.0, 158.0), x.clone(), y);
    upper.steps(&pair.measured, Mark { class: "measured", name: "measured" });
    upper.steps(&pair.model, Mark { class: "model", name: "model" });

    let apart = difference(pair);
    let values = apart.iter().map(|p| p[1]).chain(pair.band.iter().flat_map(|b| [b[1], b[2]]));
    let reach =
        extent(ScaleKind::Linear, values.map(f64::abs)).map_or(0.01, |e| e[1].max(1e-4)) * 1.25;
    let y =
        Axis::new(ScaleKind::Linear, [-reach, reach], Unit::SignedShare, "measured \u{2212} model");
    let mut lower = Panel::new(Area::between(196.0, 276.0), x, y.ticks(4));
    lower.band(&pair.band, Mark { class: "model", name: "second samples, 5–95\u{a0}%" });
    lower.level(0.0, Mark { class: "wire fine", name: "" });
    lower.steps(&apart, Mark { class: "measured", name: "" });
    let caption = caption(pair, &apart, subject, fidelity);
    let panels = [upper.finish(false), lower.finish(true)];
    Figure::new([subject.id, subject.title], caption, 318.0, &panels)
}

fn caption(
    pair: &Comparison,
    apart: &[[f64; 2]],
    subject: &Subject,
    fidelity: &[Fidelity],
) -> String {
    let ratio = fidelity.iter().find(|f| f.name == subject.of).and_then(|f| f.ratio);
    let floor = ratio.filter(|r| r.is_finite()).map_or_else(
        || "its floor was not measured".to_owned(),
        |ratio| format!("{} × the sampling floor", times(ratio)),
    );
    if apart.is_empty() {
        return format!("{} was not measured on both sides.", capital(name(subject.of)));
    }
    let farthest = apart.iter().max_by(|a, b| a[1].abs().total_cmp(&b[1].abs()));
    let Some([x, by]) = farthest.copied() else { return floor };
    let place = format!("{} at {}", Unit::SignedShare.tick(rounded(by)), subject.unit.tick(x));
    match inside(&pair.band, apart) {
        Some(share) if share >= 0.995 => {
            format!("The difference stays where second samples do: {floor}.")
        }
        Some(share) if share >= 0.85 => {
            format!("The difference stays where second samples do, but for {place}: {floor}.")
        }
        Some(_) => {
            format!("The difference goes beyond second samples, farthest {place}: {floor}.")
        }
        None => format!("The curves are farthest apart by {place}: {floor}."),
    }
}

/// Two significant digits of a share.
fn rounded(share: f64) -> f64 {
    let unit = 10_f64.powf(share.abs().max(1e-9).log10().floor() - 1.0);
    (share / unit).round() * unit
}

/// measured − model at every x where either steps, each taken as a step function.
fn difference(pair: &Comparison) -> Vec<[f64; 2]> {
    if pair.model.is_empty() || pair.measured.is_empty() {
        return Vec::new();
    }
    let mut xs: Vec<f64> = pair.model.iter().chain(&pair.measured).map(|p| p[0]).collect();
    xs.retain(|x| x.is_finite());
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let share = |curve: &[[f64; 2]], x: f64| match curve.partition_point(|p| p[0] <= x) {
        0 => 0.0,
        i => curve[i - 1][1],
    };
    xs.into_iter().map(|x| [x, share(&pair.measured, x) - share(&pair.model, x)]).collect()
}

/// The share of the curve's x axis (logarithmic) on which it lies inside the band.
fn inside(band: &[[f64; 3]], apart: &[[f64; 2]]) -> Option<f64> {
    let (first, last) = (band.first()?, band.last()?);
    let scale = Scale::new(ScaleKind::Log, [first[0], last[0]], [0.0, 1.0]);
    let (mut within, mut total) = (0.0, 0.0);
    for pair in apart.windows(2) {
        let ([x, by], wide) = (pair[0], scale.at(pair[1][0]) - scale.at(pair[0][0]));
        let at = band.partition_point(|b| b[0] <= x).clamp(1, band.len()) - 1;
        let next = band[(at + 1).min(band.len() - 1)];
        let low = band[at][1].min(next[1]);
        let high = band[at][2].max(next[2]);
        total += wide;
        if by >= low && by <= high {
            within += wide;
        }
    }
    (total > 0.0).then(|| within / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_taken_between_steps() {
        let pair = Comparison {
            model: vec![[1.0, 0.5], [4.0, 1.0]],
            measured: vec![[2.0, 0.25], [4.0, 1.0]],
            band: Vec::new(),
        };
        assert_eq!(difference(&pair), [[1.0, -0.5], [2.0, -0.25], [4.0, 0.0]]);
        assert!(difference(&Comparison::default()).is_empty());
    }

    #[test]
    fn leaving_the_band_is_noticed() {
        let band = [[1.0, -0.1, 0.1], [100.0, -0.1, 0.1]];
        assert_eq!(inside(&band, &[[1.0, 0.0], [10.0, 0.0], [100.0, 0.0]]), Some(1.0));
        assert_eq!(inside(&band, &[[1.0, 0.5], [10.0, 0.0], [100.0, 0.0]]), Some(0.5));
        assert_eq!(inside(&[], &[[1.0, 0.5], [10.0, 0.0]]), None);
    }
}
