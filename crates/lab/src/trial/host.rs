//! What this host cannot hold of a plan, known from the calibration before the device sees a packet.
//!
//! The calibration plays the plan's first connections over a bare wire, so that whatever is late there is the host's.
//! How late it starts connections says which gaps it cannot keep; and where the plan's busiest second has many
//! times the connections of those that were calibrated, that they were on time tells nothing of it.

use nilometer_traffic::{Plan, PlannedConnection};

use super::warnings::{LATE_NS, TOO_SHORT};
use crate::generate::{Execution, Outcome};

/// Times the connections of the calibration's busiest second, beyond which it does not speak for the plan's.
const BUSIER: u64 = 10;
/// Connections a second that any host starts on time.
const STARTS_EASY: u64 = 1_000;
const SECOND_NS: u64 = 1_000_000_000;

/// The connections that were started over the wire, and what the engine did with them, by their place among them.
pub fn told(plan: &Plan, head: &[PlannedConnection], executions: &[Execution]) -> Vec<String> {
    let mut late_ns: Vec<u64> = { executions.iter() }
        .filter(|done| !matches!(done.outcome, Outcome::NotStarted))
        .map(|done| done.started_ns.saturating_sub(head[done.index as usize].start.as_nanos()))
        .collect();
    late_ns.sort_unstable();
    let Some(last) = late_ns.len().checked_sub(1) else { return Vec::new() };
    let quantile = |share: f64| late_ns[(last as f64 * share).round() as usize];
    let (usual_ns, late_ns) = (quantile(0.5), quantile(0.99));
    let short = plan.gaps.cdf(usual_ns as f64 / 1e9);
    let busiest = [head, &plan.connections].map(busiest_second);
    let mut found = Vec::new();
    if late_ns > LATE_NS {
        found.push(format!(
            "This host started 1 connection in 100 more than {:.1} ms late over a bare wire: gaps below that \
             will not be kept. Repeat on a quieter machine, or play slower (--speed 0.5).",
            late_ns as f64 / 1e6
        ));
    } else if short > TOO_SHORT {
        found.push(format!(
            "{:.0} % of the plan's gaps are below {:.0} µs, which is how late this host starts connections: they \
             will not be kept. Play slower (--speed 0.5).",
            100.0 * short,
            usual_ns as f64 / 1e3
        ));
    }
    if busiest[1] > STARTS_EASY && busiest[1] > BUSIER * busiest[0].max(1) {
        found.push(format!(
            "The calibration started up to {} connections a second, and the plan up to {}: whether this host holds \
             that was not tried. A longer --calibration reaches busier seconds.",
            busiest[0], busiest[1]
        ));
    }
    found
}

/// Connections that start in the busiest second; they are in the order of their starts.
fn busiest_second(connections: &[PlannedConnection]) -> u64 {
    let seconds = connections.chunk_by(|one, other| {
        one.start.as_nanos() / SECOND_NS == other.start.as_nanos() / SECOND_NS
    });
    seconds.map(|second| second.len() as u64).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::planning;
    use crate::trial::source::{self, Asked};
    use nilometer_traffic::vector_plan::Draw;

    fn plan() -> Plan {
        let model = source::model(&Asked::of(Vec::new()), &mut |_| {}).expect("a model").model;
        planning::plan(&model, Draw::Seed(1), 1).expect("a plan")
    }

    fn executions(head: &[PlannedConnection], late_ns: impl Fn(u32) -> u64) -> Vec<Execution> {
        let done = |(index, one): (u32, &PlannedConnection)| Execution {
            index,
            started_ns: one.start.as_nanos() + late_ns(index),
            finished_ns: None,
            local_port: 1,
            received_bytes: 0,
            outcome: Outcome::Completed,
        };
        (0..).zip(head).map(done).collect()
    }

    #[test]
    fn what_is_late_over_the_wire_is_told_before_the_run() {
        let mut plan = plan();
        plan.gaps = plan.gaps.scaled(0.1);
        let head = &plan.connections[..400];
        let said = |late_ns: fn(u32) -> u64| told(&plan, head, &executions(head, late_ns));
        assert_eq!(said(|_| 1_000), [""; 0], "a microsecond");
        let of_hundred = said(|at| if at % 50 == 0 { 8_000_000 } else { 1_000 });
        assert!(of_hundred.len() == 1 && of_hundred[0].contains("8.0 ms late"), "{of_hundred:?}");
        let of_all = said(|_| 4_000_000);
        let share = 100.0 * plan.gaps.cdf(0.004);
        assert!(share > 100.0 * TOO_SHORT, "{share} % of the gaps are below 4 ms");
        assert!(of_all[0].contains(&format!("{share:.0} % of the plan's gaps")), "{of_all:?}");
        assert_eq!(told(&plan, head, &[]), [""; 0], "nothing was started");
    }

    #[test]
    fn seconds_far_busier_than_the_calibration_are_told() {
        let mut plan = plan();
        let head = plan.connections[..10].to_vec();
        let end = plan.connections.last().expect("connections").start;
        let busy = PlannedConnection { start: end, ..head[0] };
        plan.connections.extend(std::iter::repeat_n(busy, 5_000));
        let said = told(&plan, &head, &executions(&head, |_| 1_000));
        assert!(said.len() == 1 && said[0].contains("was not tried"), "{said:?}");
    }
}
