//! Queues of our router over time: how many packets waited before the link of each port.

use super::super::format::{count, significant};
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::scale::{ScaleKind, from_zero};
use super::super::plot::{Area, Mark, Panel};
use super::super::story::{Queue, QueueStep, Story};
use super::Figure;

/// One figure for each port, on the same axis of time; none where the device is not our router.
pub fn figures(story: &Story) -> Vec<Figure> {
    let ends = story.queues.iter().filter_map(|queue| queue.steps.last());
    let end = ends.map(|step| step.start_s + step.length_s).fold(0.0, f64::max);
    let numbered = story.queues.iter().enumerate();
    numbered.filter_map(|(index, queue)| figure(queue, index, end)).collect()
}

fn figure(queue: &Queue, index: usize, end: f64) -> Option<Figure> {
    let x = Axis::new(ScaleKind::Linear, from_zero([end]), Unit::Seconds, "seconds").ticks(6);
    let most = queue.steps.iter().map(|step| step.max_packets as f64);
    let y =
        Axis::new(ScaleKind::Linear, from_zero(most), Unit::Count, "packets that wait").ticks(4);
    let mut panel = Panel::new(Area::between(28.0, 194.0), x, y);
    let line = |of: fn(&QueueStep) -> f64| -> Vec<[f64; 2]> {
        let middle = |step: &QueueStep| step.start_s + 0.5 * step.length_s;
        queue.steps.iter().map(|step| [middle(step), of(step)]).collect()
    };
    let peaks = line(|step| step.max_packets as f64);
    panel.line(&peaks, Mark { class: "measured fine", name: "most" });
    panel.line(&line(|step| step.mean_packets), Mark { class: "measured", name: "average" });
    let title = format!("Queue at port {}: {}", queue.port, queue.discipline);
    let id = format!("queue-{index}");
    Figure::new([&id, &title], caption(queue), 236.0, &[panel.finish(true)])
}

fn caption(queue: &Queue) -> String {
    let link = match queue.link.as_str() {
        "" => "Its link has no rate limit".to_owned(),
        link => format!("Its link: {link}"),
    };
    match queue.output.max_packets {
        0 => format!("{link}; its queue was always empty."),
        most => format!(
            "{link}; {} packets were queued on average, {} at most.",
            significant(queue.output.mean_packets, 3),
            count(most)
        ),
    }
}
