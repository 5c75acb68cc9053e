//! Rank and frequency: how popular each address is, on log-log axes.

use super::super::format::{percent, times};
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::scale::{ScaleKind, round_log};
use super::super::plot::{Area, Mark, Panel};
use super::super::story::{Fidelity, Ranks, Story, Trait};
use super::Figure;

/// Source addresses by rank.
pub fn sources(story: &Story) -> Option<Figure> {
    let ratio = ratio(&story.fidelity, Trait::SourceRank);
    figure(&story.source_rank, ["source-rank", "Who asks", "source"], ratio)
}

/// Destination addresses by rank.
pub fn destinations(story: &Story) -> Option<Figure> {
    let ratio = ratio(&story.fidelity, Trait::DestinationRank);
    figure(&story.destination_rank, ["destination-rank", "Who answers", "destination"], ratio)
}

fn ratio(fidelity: &[Fidelity], of: Trait) -> Option<f64> {
    fidelity.iter().find(|f| f.name == of).and_then(|f| f.ratio).filter(|r| r.is_finite())
}

fn figure(ranks: &Ranks, [id, title, end]: [&str; 3], ratio: Option<f64>) -> Option<Figure> {
    if ranks.model.is_empty() && ranks.measured.is_empty() {
        return None;
    }
    let counted = if ranks.counted.is_empty() { "times drawn" } else { &ranks.counted };
    let all = || ranks.measured.iter().chain(&ranks.model);
    let x = round_log(all().map(|p| p[0]));
    let x = Axis::new(ScaleKind::Log, x, Unit::Count, &format!("rank of {end} address"));
    // Expected counts far below one are not to be seen in any sample: the picture ends at a half.
    let [low, high] = round_log(all().map(|p| p[1].max(0.5)));
    let y = Axis::new(ScaleKind::Log, [low, high], Unit::Count, counted);
    let mut panel = Panel::new(Area::between(28.0, 208.0), x, y);
    panel.dots(&ranks.measured, Mark { class: "measured", name: "measured" });
    let seen: Vec<[f64; 2]> = ranks.model.iter().copied().filter(|p| p[1] >= low).collect();
    panel.line(&seen, Mark { class: "model", name: "model" });
    let total: f64 = ranks.measured.iter().map(|p| p[1]).filter(|c| c.is_finite()).sum();
    let first = ranks.measured.iter().find(|p| p[0] == 1.0).map(|p| p[1] / total);
    let leads = first.filter(|s| s.is_finite()).map_or_else(String::new, |share| {
        format!("The most popular {end} takes {}; ", percent(share))
    });
    let follows = match ratio {
        Some(ratio) if ratio <= 2.0 => {
            format!("popularity falls with rank as in the model, {} × the floor.", times(ratio))
        }
        Some(ratio) => {
            format!("popularity falls differently than in the model, {} × the floor.", times(ratio))
        }
        None => "its likeness to the model was not measured.".to_owned(),
    };
    let caption = super::capital(&format!("{leads}{follows}"));
    Figure::new([id, title], caption, 250.0, &[panel.finish(true)])
}
