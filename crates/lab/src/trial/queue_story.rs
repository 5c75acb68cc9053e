//! Our router's queues and losses, prepared for the page.

use nilometer_sim::quantity::rate_text;
use nilometer_wire::Rate;

use super::lost::WAYS;
use super::router::{Backlog, QueueOutcome, RouterOutcome, RouterSeen};
use nilometer_report::format::time_ns;
use nilometer_report::story::{LossRow, LossTable, Queue, QueueStep, Waiting};
use nilometer_routerd::driver::Step;

/// Steps that the page draws of one queue.
const STEPS: usize = 600;

/// The queues with their courses.
pub fn queues(seen: &RouterSeen) -> Vec<Queue> {
    let course = |port: &str| {
        let found = seen.courses.iter().find(|it| it.port == port && it.place == "output");
        found.map_or(&[][..], |course| &course.steps)
    };
    let queue = |queue: &QueueOutcome| Queue {
        port: queue.port.clone(),
        discipline: queue.discipline.clone(),
        link: link(queue),
        output: waiting(&queue.output),
        input: waiting(&queue.input),
        steps: thin(course(&queue.port)),
    };
    seen.outcome.queues.iter().map(queue).collect()
}

fn waiting(backlog: &Backlog) -> Waiting {
    let &Backlog { mean_packets, max_packets, mean_bytes, max_bytes } = backlog;
    Waiting { mean_packets, max_packets, mean_bytes, max_bytes }
}

/// The settings of the link: its rate, its length.
fn link(queue: &QueueOutcome) -> String {
    let rate = queue.rate_bps.and_then(Rate::new).map(rate_text);
    let delay = (queue.delay_ns > 0).then(|| format!("{} longer", time_ns(queue.delay_ns as f64)));
    let parts: Vec<String> = rate.into_iter().chain(delay).collect();
    parts.join(", ")
}

/// So few steps that a page can draw them: neighbours are joined, their peak kept.
fn thin(steps: &[Step]) -> Vec<QueueStep> {
    let together = steps.len().div_ceil(STEPS).max(1);
    let joined = steps.chunks(together).map(|some| {
        let length_ns: u64 = some.iter().map(|step| step.length_ns).sum();
        let mean = |of: fn(&Step) -> f64| {
            let sum: f64 = some.iter().map(|step| of(step) * step.length_ns as f64).sum();
            sum / length_ns.max(1) as f64
        };
        QueueStep {
            start_s: some[0].start_ns as f64 / 1e9,
            length_s: length_ns as f64 / 1e9,
            mean_packets: mean(|step| step.waited.mean_packets),
            max_packets: some.iter().map(|step| step.waited.max_packets).max().unwrap_or(0),
        }
    });
    joined.collect()
}

/// The losses by reason.
pub fn losses(router: &RouterOutcome) -> LossTable {
    let mut rows: Vec<LossRow> = Vec::new();
    for loss in &router.losses {
        let what = match loss.place.as_str() {
            "waiting" => "still in the router at the end".to_owned(),
            place => format!("{} {}: {}", loss.port, place, loss.reason),
        };
        let at = rows.iter().position(|row| row.what == what).unwrap_or_else(|| {
            rows.push(LossRow { what, packets: [0; 2] });
            rows.len() - 1
        });
        rows[at].packets[usize::from(loss.direction == WAYS[1])] += loss.packets;
    }
    let filters = router.filters.iter().map(|filter| {
        (format!("{} ({})", filter.number, filter.action), filter.packets, filter.bytes)
    });
    LossTable { rows, unexplained: router.unexplained.ways(), filters: filters.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_routerd::driver::Waited;

    #[test]
    fn a_long_course_is_drawn_in_few_steps_that_keep_its_peaks() {
        let step = |number: u64| Step {
            start_ns: 10_000_000 * number,
            length_ns: 10_000_000,
            waited: Waited {
                mean_packets: (number % 7) as f64,
                max_packets: if number == 1_001 { 99 } else { number % 7 },
                ..Waited::default()
            },
        };
        let steps: Vec<Step> = (0..1_400).map(step).collect();
        let drawn = thin(&steps);
        assert_eq!(drawn.len(), 467);
        assert!((drawn[1].mean_packets - (3.0 + 4.0 + 5.0) / 3.0).abs() < 1e-12);
        assert!((drawn[1].start_s - 0.03).abs() < 1e-12);
        assert!((drawn[466].length_s - 0.02).abs() < 1e-12, "the last is short");
        assert_eq!(drawn.iter().map(|step| step.max_packets).max(), Some(99));
        assert_eq!(thin(&[]), Vec::new());
    }
}
