//! Loss and reordering over time: drawn where there was any, stated where there was none.

use super::super::format::count;
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::bars::Bar;
use super::super::plot::scale::{ScaleKind, from_zero};
use super::super::plot::{Area, Mark, Panel};
use super::super::story::{DelaySecond, Story};
use super::{Figure, capital, volume};

/// Height of one direction's panel with its margins, in figure units.
const PANEL: f64 = 118.0;

/// Packets lost and out of order in each second, a panel for each direction that has any.
pub fn figure(story: &Story) -> Option<Figure> {
    let troubled = |s: &DelaySecond| s.lost > 0 || s.reordered > 0;
    let directions: Vec<_> =
        story.directions.iter().filter(|d| d.seconds.iter().any(troubled)).collect();
    if directions.is_empty() {
        return None;
    }
    let mut panels = Vec::new();
    for (i, direction) in directions.iter().enumerate() {
        let x =
            Axis::new(ScaleKind::Linear, volume::span(story), Unit::Seconds, "seconds").ticks(6);
        let all = direction.seconds.iter().flat_map(|s| [s.lost as f64, s.reordered as f64]);
        let high = from_zero(all)[1] * 1.1;
        let title = format!("packets each second, {}", direction.name);
        let y = Axis::new(ScaleKind::Linear, [0.0, high], Unit::Count, &title).ticks(3);
        let top = 28.0 + PANEL * i as f64;
        let mut panel = Panel::new(Area::between(top, top + PANEL - 36.0), x, y);
        let bars: Vec<Bar> = direction.seconds.iter().filter(|s| s.lost > 0).map(bar).collect();
        panel.bars(&bars, Mark { class: "loss", name: "lost" });
        if direction.seconds.iter().any(|s| s.reordered > 0) {
            let line: Vec<[f64; 2]> =
                direction.seconds.iter().map(|s| [s.middle_s(), s.reordered as f64]).collect();
            panel.line(&line, Mark { class: "measured", name: "out of order" });
        }
        panels.push(panel.finish(i + 1 == directions.len()));
    }
    let height = 28.0 + PANEL * directions.len() as f64 - 36.0 + 42.0;
    Figure::new(["trouble", "Loss and order over time"], caption(story), height, &panels)
}

fn bar(second: &DelaySecond) -> Bar {
    let (lost, packets) = (count(second.lost), count(second.packets));
    let title = format!("{}: {lost} of {packets} lost", capital(&second.name()));
    let (left, right) = (second.start_s, second.end_s());
    Bar { left, right, value: second.lost as f64, title }
}

fn caption(story: &Story) -> String {
    let seconds = || story.directions.iter().flat_map(|d| &d.seconds);
    let worst = seconds().max_by_key(|s| s.lost).filter(|s| s.lost > 0);
    let lost: u64 = seconds().map(|s| s.lost).sum();
    let reordered: u64 = seconds().map(|s| s.reordered).sum();
    match worst {
        Some(worst) => format!(
            "{} packets were lost and {} left out of order; most were lost in {}.",
            count(lost),
            count(reordered),
            worst.name()
        ),
        None => format!("Nothing was lost; {} packets left out of order.", count(reordered)),
    }
}

/// What the page says in place of the picture.
pub fn none(story: &Story) -> &'static str {
    match story.directions.iter().any(|d| !d.seconds.is_empty()) {
        true => "No packet was lost or out of order, so there is no figure.",
        false => "Loss and order over time: not measured.",
    }
}
