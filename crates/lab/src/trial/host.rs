//! Which parts of a plan this host cannot keep up with, known from the calibration before the device sees a
//! packet.
//!
//! The calibration plays the plan's first connections over a bare wire, so any lateness there is the host's. How
//! late it starts connections shows which gaps it cannot keep; how much longer transfers take than in the original
//! shows which rates it cannot keep. Where the plan's busiest second has many times the connections, or the bytes,
//! of those that were calibrated, the calibration says nothing about that second.

use std::collections::BTreeMap;

use nilometer_traffic::script::Script;
use nilometer_traffic::{Plan, PlannedConnection};

use super::warnings::{LATE_NS, TOO_SHORT};
use crate::generate::{Execution, Outcome};

/// Times the connections of the calibration's busiest second, beyond which the calibration says nothing about the
/// plan's.
const BUSIER: u64 = 10;
/// Connections a second that any host starts on time.
const STARTS_EASY: u64 = 1_000;
/// Bits a second that any host carries over a bare wire.
const BITS_EASY: f64 = 1e9;
/// Transfers that take at least this long in the original show whether the host keeps their rate, ns.
const TRANSFER_NS: u64 = 50_000_000;
/// The least number of them for a verdict.
const TRANSFERS_MIN: usize = 10;
/// Times as long as in the original, beyond which it does not.
const LONGER: f64 = 1.1;
/// The most seconds over which the bytes of one step are spread.
const SPREAD_MAX_S: u64 = 3_600;
const SECOND_NS: u64 = 1_000_000_000;

/// What this host was seen not to do, or was not tried at.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum HostWarning {
    /// Connections are started late.
    #[error(
        "This host started 1 connection in 100 more than {:.1} ms late over a bare wire: gaps below that \
         will not be kept. Repeat on a quieter machine, or play slower (--speed 0.5).",
        *p99_ns as f64 / 1e6
    )]
    StartsLate {
        /// The 99th percentile of lateness.
        p99_ns: u64,
    },
    /// Gaps are shorter than starts are late.
    #[error(
        "{:.0} % of the plan's gaps are below {:.0} µs, which is how late this host starts connections: they \
         will not be kept. Play slower (--speed 0.5).",
        100.0 * share,
        *usual_ns as f64 / 1e3
    )]
    GapsTooShort {
        /// The share of such gaps.
        share: f64,
        /// The median lateness.
        usual_ns: u64,
    },
    /// Transfers took longer than in the original.
    #[error(
        "Over a bare wire this host took {median:.2} times as long for transfers as the original did (median of \
         {transfers}): their rates will not be kept. Repeat on a quieter machine."
    )]
    TransfersSlower {
        /// Times as long.
        median: f64,
        /// The number of transfers behind the median.
        transfers: usize,
    },
    /// More connections a second are planned than were tried.
    #[error(
        "The calibration started up to {tried} connections a second, and the plan up to {planned}: whether this host \
         sustains that was not tested. A longer --calibration reaches busier seconds."
    )]
    StartsUntried {
        /// In its busiest second.
        tried: u64,
        /// In the plan's busiest second.
        planned: u64,
    },
    /// Higher bit rates are planned than were tried.
    #[error(
        "The calibration offered up to {:.0} Mbit/s, and the plan offers up to {:.0}: whether this host sustains \
         that was not tested. A longer --calibration reaches busier seconds.",
        tried_bps / 1e6,
        planned_bps / 1e6
    )]
    BitsUntried {
        /// In its busiest second.
        tried_bps: f64,
        /// In the plan's busiest second.
        planned_bps: f64,
    },
}

/// Warnings about this host, from the connections that were started over the wire, by their place among them, and
/// from the plan.
pub fn host_warnings(
    plan: &Plan,
    head: &[PlannedConnection],
    executions: &[Execution],
) -> Vec<HostWarning> {
    let mut late_ns: Vec<u64> = { executions.iter() }
        .filter(|done| !matches!(done.outcome, Outcome::NotStarted))
        .map(|done| done.started_ns.saturating_sub(head[done.index as usize].start.as_nanos()))
        .collect();
    late_ns.sort_unstable();
    let Some(last) = late_ns.len().checked_sub(1) else { return Vec::new() };
    let quantile = |share: f64| late_ns[(last as f64 * share).round() as usize];
    let (usual_ns, p99_ns) = (quantile(0.5), quantile(0.99));
    let share = plan.gaps.cdf(usual_ns as f64 / 1e9);
    let mut found = Vec::new();
    if p99_ns > LATE_NS {
        found.push(HostWarning::StartsLate { p99_ns });
    } else if share > TOO_SHORT {
        found.push(HostWarning::GapsTooShort { share, usual_ns });
    }
    found.extend(slower(plan, head, executions));
    let [tried, planned] = [head, &plan.connections].map(busiest_second);
    if planned > STARTS_EASY && planned > BUSIER * tried.max(1) {
        found.push(HostWarning::StartsUntried { tried, planned });
    }
    let [tried_bps, planned_bps] =
        [head, &plan.connections].map(|list| bits_of_busiest_second(plan, list));
    if planned_bps > BITS_EASY && planned_bps > BUSIER as f64 * tried_bps {
        found.push(HostWarning::BitsUntried { tried_bps, planned_bps });
    }
    found
}

/// A warning if transfers over the wire took longer than the original's.
fn slower(
    plan: &Plan,
    head: &[PlannedConnection],
    executions: &[Execution],
) -> Option<HostWarning> {
    let longer = |done: &Execution| {
        let one = &head[done.index as usize];
        let script = plan.scripts.get(one.script? as usize)?;
        let (mut sending_ns, mut ends_ns) = (0, 0);
        for (_, [begins_ns, until_ns]) in script.course() {
            sending_ns += until_ns - begins_ns;
            ends_ns = until_ns;
        }
        let took_ns = done.finished_ns?.saturating_sub(done.started_ns);
        (2 * sending_ns > ends_ns.max(TRANSFER_NS)).then(|| took_ns as f64 / ends_ns as f64)
    };
    let mut longer: Vec<f64> = executions.iter().filter_map(longer).collect();
    longer.sort_unstable_by(f64::total_cmp);
    let (transfers, median) = (longer.len(), *longer.get(longer.len() / 2)?);
    (transfers >= TRANSFERS_MIN && median > LONGER)
        .then_some(HostWarning::TransfersSlower { median, transfers })
}

/// Bits of payload a second in the second in which most are to be sent.
fn bits_of_busiest_second(plan: &Plan, list: &[PlannedConnection]) -> f64 {
    let mut seconds: BTreeMap<u64, f64> = BTreeMap::new();
    for one in list {
        let script = one.script.and_then(|at| plan.scripts.get(at as usize));
        let sent = script.into_iter().flat_map(Script::course);
        let plain = script.is_none().then_some((one.request_bytes + one.size_bytes, [0, 0]));
        for (bytes, between_ns) in sent.chain(plain) {
            let [first, last] = between_ns.map(|ns| (one.start.as_nanos() + ns) / SECOND_NS);
            let last = last.min(first + SPREAD_MAX_S);
            let each = bytes as f64 * 8.0 / (last - first + 1) as f64;
            (first..=last).for_each(|second| *seconds.entry(second).or_default() += each);
        }
    }
    seconds.into_values().fold(0.0, f64::max)
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
    use nilometer_conversation::{Act, Side, Step};

    use crate::trial::part::Wanted;
    use crate::trial::source::{self, EstimateRequest};
    use crate::trial::{original, planning};
    use nilometer_files::input::source::EMBEDDED;
    use nilometer_traffic::vector_plan::Draw;

    fn plan() -> Plan {
        let model =
            source::model(&EstimateRequest::of(Vec::new()), &mut |_| {}).expect("a model").model;
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

    fn texts(plan: &Plan, head: &[PlannedConnection], executions: &[Execution]) -> Vec<String> {
        host_warnings(plan, head, executions).iter().map(HostWarning::to_string).collect()
    }

    #[test]
    fn late_starts_over_the_wire_are_warned_of_before_the_run() {
        let mut plan = plan();
        plan.gaps = plan.gaps.scaled(0.1);
        let head = &plan.connections[..400];
        let warned = |late_ns: fn(u32) -> u64| texts(&plan, head, &executions(head, late_ns));
        assert_eq!(warned(|_| 1_000), [""; 0], "a microsecond");
        let of_hundred = warned(|at| if at % 50 == 0 { 8_000_000 } else { 1_000 });
        assert!(of_hundred.len() == 1 && of_hundred[0].contains("8.0 ms late"), "{of_hundred:?}");
        let of_all = warned(|_| 4_000_000);
        let share = 100.0 * plan.gaps.cdf(0.004);
        assert!(share > 100.0 * TOO_SHORT, "{share} % of the gaps are below 4 ms");
        assert!(of_all[0].contains(&format!("{share:.0} % of the plan's gaps")), "{of_all:?}");
        assert_eq!(texts(&plan, head, &[]), [""; 0], "nothing was started");
    }

    #[test]
    fn seconds_far_busier_than_the_calibration_are_warned_of() {
        let mut plan = plan();
        let head = plan.connections[..10].to_vec();
        let end = plan.connections.last().expect("connections").start;
        let busy = PlannedConnection { start: end, ..head[0] };
        plan.connections.extend(std::iter::repeat_n(busy, 5_000));
        let warned = texts(&plan, &head, &executions(&head, |_| 1_000));
        assert!(warned.len() == 1 && warned[0].contains("was not tested"), "{warned:?}");
    }

    #[test]
    fn untried_rates_and_slower_transfers_are_warned_of() {
        let request = EstimateRequest::of(vec![EMBEDDED.into()]);
        let learnt = original::learn(&request, &Wanted::default(), &mut |_| {}).expect("packets");
        let (estimate, _) = learnt.expect("packets");
        let mut plan = planning::plan(&estimate.model, Draw::Exact, 1).expect("a plan");
        let head = plan.connections[..400].to_vec();
        let tried = bits_of_busiest_second(&plan, &head);
        let end = plan.connections.last().expect("connections").start;
        let bulk = PlannedConnection { start: end, script: None, size_bytes: 3 << 30, ..head[0] };
        plan.connections.push(bulk);
        let warned = texts(&plan, &head, &executions(&head, |_| 1_000));
        assert!(tried < 1e8 && warned.len() == 1);
        assert!(warned[0].contains("offers up to 257"), "{warned:?}");
        plan.connections.pop();

        let act = Act::Send { bytes: 100_000, segments: 70, took_ns: 80_000_000 };
        let transfer = Step { by: Side::Server, awaits: 0, pause_ns: 1_000_000, act };
        plan.scripts.iter_mut().for_each(|script| script.steps = vec![transfer]);
        let times = |factor: f64| {
            let mut done = executions(&head, |_| 1_000);
            for (one, planned) in done.iter_mut().zip(&head) {
                let script = &plan.scripts[planned.script.expect("of vectors") as usize];
                let ends_ns = script.course().last().map_or(0, |(_, [_, ends_ns])| ends_ns);
                one.finished_ns = Some(one.started_ns + (ends_ns as f64 * factor) as u64);
            }
            texts(&plan, &head, &done)
        };
        assert_eq!(times(1.05), [""; 0]);
        let warned = times(1.5);
        assert!(warned.len() == 1 && warned[0].contains("took 1.50 times as long"), "{warned:?}");
    }
}
