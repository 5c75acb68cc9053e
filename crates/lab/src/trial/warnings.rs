//! Which warnings a run earns: the bounds beyond which a figure is suspect.

use nilometer_traffic::Plan;

use super::account::RunRecord;
use super::lateness;
use super::losses::WAYS;
use super::outcome::{Delay, Outcome};
use super::run_story::performed_octets;
use super::warning::Warning;
use crate::device::fault::{FAULT_FILE, PATH_FILE, REAR_PATH_FILE};
use nilometer_report::verdict::COVERAGE_LOW;
use nilometer_routerd::testbed::RouterFile;

/// Lateness of starts above which a warning is given, ns.
pub(super) const LATE_NS: u64 = 5_000_000;
/// The share of events of simulated hosts that may be late without a warning.
const LATE_EVENTS: f64 = 0.01;
/// A clock that is disciplined moves by less, besides a thousandth of the time.
const CLOCK_STEP_NS: u64 = 10_000_000;
/// Times the original's speed beyond which its clock is doubted.
const TOO_FAST: f64 = 5_000.0;
/// Frames that hosts and an external device may exchange on their own between the moment at which counters are read and
/// that at which the meter opens.
const ABOUT_WIRING: u64 = 8;
/// Share of gaps too short for the generator above which a warning is given.
pub(super) const TOO_SHORT: f64 = 0.05;
/// Sessions for each rank below which the picture of popularity is coarse.
const SESSIONS_PER_RANK: f64 = 0.5;

/// All warnings of a run, the most serious first.
pub fn of(account: &RunRecord<'_>, outcome: &Outcome) -> Vec<String> {
    let mut found = Vec::new();
    interrupted(outcome, &mut found);
    found.extend(account.made.not_restored.iter().cloned().map(Warning::NotRestored));
    clocks(account, &mut found);
    wire(account, outcome, &mut found);
    meter(account, outcome, &mut found);
    router(outcome, &mut found);
    faults(outcome, &mut found);
    simulated(outcome, &mut found);
    scheduling(outcome, &mut found);
    execution(account, outcome, &mut found);
    short_gaps(account, outcome, &mut found);
    if outcome.part.is_none() {
        volumes(outcome, &mut found);
    }
    let mut texts = texts(&found);
    texts.extend(account.estimate.warnings.iter().cloned());
    let mut of_model = Vec::new();
    model(account, outcome, &mut of_model);
    texts.extend(of_model.iter().map(Warning::to_string));
    texts
}

fn texts(warnings: &[Warning]) -> Vec<String> {
    warnings.iter().map(Warning::to_string).collect()
}

/// Problems known before the first packet: links that cannot carry the plan.
pub fn before(router: &RouterFile, plan: &Plan) -> Vec<String> {
    let ends: Vec<f64> = plan.intervals.iter().map(|one| one.end.as_secs_f64()).collect();
    let mut planned = vec![[0_u64; 2]; ends.len()];
    for connection in &plan.connections {
        let at = ends.partition_point(|end| *end <= connection.start.as_secs_f64());
        if let Some(bytes) = planned.get_mut(at) {
            bytes[0] += connection.request_bytes;
            bytes[1] += connection.size_bytes;
        }
    }
    // Requests leave by the servers' port, answers by the clients'.
    let ways = [("server", "the servers", 0), ("client", "the clients", 1)];
    let warning = |(port, hosts, index): (&'static str, &'static str, usize)| {
        let rate_bps = router.rate(port)?.bits_per_second() as f64;
        let spans = plan.intervals.iter().map(|one| (one.start.as_secs_f64(), one.end));
        let planned_bytes = spans.zip(&planned).map(|((start, end), bytes)| {
            (8.0 * bytes[index] as f64 / (end.as_secs_f64() - start).max(1e-9), start)
        });
        let (planned_bps, start_s) =
            planned_bytes.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|it| it.0 > rate_bps)?;
        let file = router.path.display().to_string();
        Some(
            Warning::PlanBeyondLink { planned_bps, hosts, start_s, port, file, rate_bps }
                .to_string(),
        )
    };
    ways.into_iter().filter_map(warning).collect()
}

fn interrupted(outcome: &Outcome, found: &mut Vec<Warning>) {
    if outcome.interrupted {
        found.push(Warning::Interrupted);
    }
}

fn router(outcome: &Outcome, found: &mut Vec<Warning>) {
    let Some(router) = &outcome.router else { return };
    let notes = &router.notes;
    found.extend(notes.fallbacks.iter().cloned().map(Warning::RouterFallback));
    found.extend(notes.warnings.iter().cloned().map(Warning::RouterWarns));
    let rests = router.unexplained.ways().into_iter().zip(WAYS).filter(|(rest, _)| *rest != 0);
    found.extend(rests.map(|(rest, way)| Warning::LossesUnexplained { way, rest }));
}

fn meter(account: &RunRecord<'_>, outcome: &Outcome, found: &mut Vec<Warning>) {
    let lost = outcome.packets.meter_lost;
    if lost > 0 {
        found.push(Warning::MeterLost(lost));
    }
    for interface in &outcome.interfaces {
        let host = interface.name.clone();
        if interface.rx_dropped > 0 {
            found.push(Warning::HostDropped { host: host.clone(), frames: interface.rx_dropped });
        }
        // What finds no room at the other end of its link was seen to go.
        let kernel = [interface.tx_packets + interface.tx_dropped, interface.rx_packets];
        let metered = [interface.metered_tx, interface.metered_rx];
        let apart = kernel.iter().zip(&metered).map(|(one, other)| one.abs_diff(*other));
        let allowed = if account.config.external.is_some() { ABOUT_WIRING } else { 0 };
        if apart.max() > Some(allowed) && lost == 0 {
            found.push(Warning::MeterDisagrees { host, kernel, metered });
        }
    }
    let overflow: u64 = account.made.sighted.counts.iter().map(|counts| counts.overflow).sum();
    if overflow > 0 {
        found.push(Warning::DecidedEarly(overflow));
    }
    // (Packets that the meter lost cannot be distinguished from those that the device lost.)
    if lost == 0 && overflow == 0 {
        found.extend(account.made.sighted.device.faults().into_iter().map(Warning::Device));
    }
    let evicted = account.made.sighted.flows.evicted;
    if evicted > 0 {
        found.push(Warning::FlowsEvicted(evicted));
    }
}

/// The tester's own faults, as the bare wire shows them.
fn wire(account: &RunRecord<'_>, outcome: &Outcome, found: &mut Vec<Warning>) {
    let Some(wire) = account.wire.map(|wire| &wire.sighted) else { return };
    let lost: u64 = wire.counts.iter().map(|counts| counts.lost).sum();
    let unseen: u64 = wire.rings.iter().map(|ring| ring.dropped).sum();
    if lost > 0 {
        found.push(Warning::WireLost(lost));
    }
    if unseen > 0 {
        found.push(Warning::WireMeterLost(unseen));
    }
    found.extend(slow_wire(outcome.wire_delay_ns.as_ref(), outcome.delay_ns.as_ref()));
}

/// A wire that is slower than the device was measured in another state of the machine.
fn slow_wire(wire: Option<&Delay>, device: Option<&Delay>) -> Option<Warning> {
    let (wire_ns, device_ns) = (wire?.p50, device?.p50);
    (wire_ns > device_ns).then_some(Warning::WireSlower { wire_ns, device_ns })
}

/// Stamps are of one clock, and the plan is played by another.
fn clocks(account: &RunRecord<'_>, found: &mut Vec<Warning>) {
    let (step_ns, played) = (account.made.clock_step_ns, account.plan.end.as_nanos());
    if step_ns.unsigned_abs() > CLOCK_STEP_NS + played / 1_000 {
        found.push(Warning::ClockSet { step_ns });
    }
}

fn execution(account: &RunRecord<'_>, outcome: &Outcome, found: &mut Vec<Warning>) {
    let (done, connections) = (&outcome.execution, outcome.connections);
    if done.failed > 0 {
        found.push(Warning::ConnectionsFailed { failed: done.failed, connections });
    }
    let is_part = outcome.part.is_some();
    if done.unfinished > 0 && !outcome.interrupted && !is_part {
        let (unfinished, drain_s) = (done.unfinished, account.config.traffic.drain_s);
        found.push(Warning::ConnectionsCutOff { unfinished, connections, drain_s });
    }
    if !done.sizes_exact {
        found.push(Warning::SizesInexact);
    }
    if done.lateness_p99_ns > LATE_NS {
        let cause =
            lateness::cause(&outcome.scheduling, outcome.stolen_percent, outcome.others_percent);
        found.push(Warning::StartedLate { p99_ns: done.lateness_p99_ns, cause });
    }
    if done.collisions > 0 {
        let (collisions, sessions) = (done.collisions, done.sessions);
        found.push(Warning::PairsShared { collisions, sessions });
    }
}

/// Warns if the system refused the requested scheduling class.
fn scheduling(outcome: &Outcome, found: &mut Vec<Warning>) {
    if outcome.scheduling.iter().any(|of| !of.granted) {
        found.push(Warning::RealTimeRefused);
    }
}

/// Warnings about packets that a fault box, as the device or as the path, lost unintentionally or
/// did not report.
fn faults(outcome: &Outcome, found: &mut Vec<Warning>) {
    let boxes = [
        (&outcome.fault, "fault box", FAULT_FILE),
        (&outcome.path, "path", PATH_FILE),
        (&outcome.rear_path, "path behind the device", REAR_PATH_FILE),
    ];
    for (fault, name, file) in boxes {
        let Some(fault) = fault else { continue };
        let (unheard, unsent) = (fault.unheard, fault.unsent);
        if unheard + unsent > 0 {
            found.push(Warning::BoxFull { name, unheard, unsent });
        }
        if fault.beyond > 0 {
            found.push(Warning::BoxLogFull { file, beyond: fault.beyond });
        }
        if fault.inside > 0 && !outcome.interrupted {
            found.push(Warning::BoxNotEmpty { name, inside: fault.inside });
        }
    }
}

/// Warnings about what simulated hosts did late, had no room for, or did differently in a replay.
fn simulated(outcome: &Outcome, found: &mut Vec<Warning>) {
    let Some(hosts) = &outcome.simulated else { return };
    if let (Some(late), Some(lateness)) = (outcome.late_events, outcome.lateness_ns)
        && late as f64 > LATE_EVENTS * lateness.count as f64
    {
        let (events, p99_9_ns) = (lateness.count, lateness.p99_9);
        let bound_ns = hosts.late_bound_ns;
        found.push(Warning::HostsLate { late, events, bound_ns, p99_9_ns });
    }
    let (unheard, unsent) =
        (hosts.unheard, hosts.unsent + hosts.client.no_room + hosts.server.no_room);
    if unheard + unsent > 0 {
        found.push(Warning::HostsFull { unheard, unsent });
    }
    if let Some(replay) = hosts.replay.as_ref().filter(|replay| replay.differences > 0) {
        let first = replay.first_difference.clone().unwrap_or_default();
        found.push(Warning::ReplayDiffers { differences: replay.differences, first });
    }
}

/// Gaps shorter than a start is late cannot be kept, however well the plan has them.
fn short_gaps(account: &RunRecord<'_>, outcome: &Outcome, found: &mut Vec<Warning>) {
    let late_s = outcome.execution.lateness_p50_ns as f64 / 1e9;
    let share = account.plan.gaps.cdf(late_s);
    if share > TOO_SHORT {
        found.push(Warning::GapsTooShort { share, time_divisor: outcome.time_divisor, late_s });
    }
}

fn volumes(outcome: &Outcome, found: &mut Vec<Warning>) {
    if outcome.interrupted {
        return;
    }
    for interval in &outcome.intervals {
        let (start_s, flows) = (interval.start_s, interval.flows_generated);
        if interval.flows_target == 0 {
            if flows > 0 {
                found.push(Warning::IntervalNotEmpty { start_s, flows });
            }
            continue;
        }
        let off = |target: u64, made: u64| 100.0 * (made as f64 / target.max(1) as f64 - 1.0);
        let bytes_off = off(interval.bytes_target, interval.bytes_generated);
        let flows_off = off(interval.flows_target, flows);
        if bytes_off.abs() > 5.0 || flows_off.abs() > 5.0 {
            found.push(Warning::IntervalMissed { start_s, bytes_off, flows_off });
        }
    }
}

fn model(account: &RunRecord<'_>, outcome: &Outcome, found: &mut Vec<Warning>) {
    let model = account.model();
    if outcome.time_divisor > TOO_FAST {
        found.push(Warning::SpansDays { original_s: model.original_s() });
    }
    let coverage = &model.coverage;
    let performed = performed_octets(coverage, account.plan.is_joint);
    let share = performed as f64 / coverage.octets.max(1) as f64;
    // (A model written by hand has no input.)
    if coverage.octets > 0 && share < COVERAGE_LOW {
        found.push(Warning::CoverageLow { share });
    }
    let ranks = [
        ("sources", model.sources.counts.len(), account.plan.ranks.0),
        ("destinations", model.destinations.counts.len(), account.plan.ranks.1),
    ];
    let small = ranks.into_iter().filter(|(_, known, kept)| kept < known);
    found.extend(small.map(|(side, known, kept)| Warning::PoolSmall { side, known, kept }));
    let sessions = outcome.execution.sessions as f64;
    let addresses = account.plan.ranks.0.max(account.plan.ranks.1) as f64;
    if sessions < SESSIONS_PER_RANK * addresses {
        found.push(Warning::FewSessions { sessions, addresses });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_that_is_slower_than_the_device_is_a_warning() {
        let of = |p50| Delay { p50, ..Delay::default() };
        let line = slow_wire(Some(&of(9_800)), Some(&of(4_300))).expect("a warning").to_string();
        assert!(line.starts_with("The bare wire was slower than the device: "), "{line}");
        assert!(
            line.contains("9.8 µs over it, and 4.3 µs through") && line.contains("--calibration")
        );
        assert_eq!(slow_wire(Some(&of(4_300)), Some(&of(4_300))), None);
        assert_eq!(slow_wire(Some(&of(4_300)), Some(&of(9_800))), None);
        assert_eq!(slow_wire(None, Some(&of(9_800))), None);
    }
}
