//! Warnings: what makes a figure suspect and what to do, in plain words.

use nilometer_traffic::Plan;

use super::account::RunRecord;
use super::lateness;
use super::losses::WAYS;
use super::outcome::{Delay, Outcome};
use super::telling::performed_octets;
use crate::device::fault::{FAULT_FILE, PATH_FILE};
use nilometer_report::format::{percent, plain, si, time_ns};
use nilometer_report::verdict::COVERAGE_LOW;
use nilometer_routerd::testbed::RouterFile;

/// Lateness beyond which a start is worth a word, ns.
pub(super) const LATE_NS: u64 = 5_000_000;
/// A clock that is disciplined moves by less, besides a thousandth of the time.
const CLOCK_STEP_NS: u64 = 10_000_000;
/// Times the original's speed beyond which its clock is doubted.
const TOO_FAST: f64 = 5_000.0;
/// Share of gaps too short for the generator beyond which it is worth a word.
pub(super) const TOO_SHORT: f64 = 0.05;
/// Sessions for each rank below which the picture of popularity is coarse.
const SESSIONS_PER_RANK: f64 = 0.5;

/// All warnings of a run, the most serious first.
pub fn of(account: &RunRecord<'_>, outcome: &Outcome) -> Vec<String> {
    let mut found = Vec::new();
    interrupted(outcome, &mut found);
    clocks(account, &mut found);
    wire(account, outcome, &mut found);
    meter(account, outcome, &mut found);
    router(outcome, &mut found);
    faults(outcome, &mut found);
    scheduling(outcome, &mut found);
    execution(account, outcome, &mut found);
    short_gaps(account, outcome, &mut found);
    if outcome.part.is_none() {
        volumes(outcome, &mut found);
    }
    found.extend(account.estimate.warnings.iter().cloned());
    model(account, outcome, &mut found);
    found
}

/// What is known to be wrong before the first packet: links that cannot carry what is planned.
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
    let warning = |(port, way, index): (&str, &str, usize)| {
        let rate = router.rate(port)?.bits_per_second() as f64;
        let spans = plan.intervals.iter().map(|one| (one.start.as_secs_f64(), one.end));
        let asked = spans.zip(&planned).map(|((start, end), bytes)| {
            (8.0 * bytes[index] as f64 / (end.as_secs_f64() - start).max(1e-9), start)
        });
        let (most, start) = asked.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|it| it.0 > rate)?;
        Some(format!(
            "The plan has {} of payload to {way} from {start:.0} s on, and port {port} of {} carries {}. \
             Queues will be full and connections late; raise the rate, or play fewer (--match bitrate, a \
             longer original) if that is not what is to be seen.",
            plain(&si(most, "bit/s")),
            router.path.display(),
            plain(&si(rate, "bit/s"))
        ))
    };
    ways.into_iter().filter_map(warning).collect()
}

fn interrupted(outcome: &Outcome, found: &mut Vec<String>) {
    if outcome.interrupted {
        found.push(
            "The run was interrupted. Everything here is about the traffic up to then; planned \
             volumes are those of the whole run."
                .to_owned(),
        );
    }
}

fn router(outcome: &Outcome, found: &mut Vec<String>) {
    let fallbacks = outcome.router.iter().flat_map(|router| &router.notes.fallbacks);
    found.extend(fallbacks.map(|what| format!("The router's port {what}.")));
    let warnings = outcome.router.iter().flat_map(|router| &router.notes.warnings);
    found.extend(warnings.map(|what| format!("The router warns: {what}.")));
    let Some(router) = &outcome.router else { return };
    for (rest, way) in router.unexplained.ways().into_iter().zip(WAYS) {
        if rest != 0 {
            let more = if rest > 0 { "fewer" } else { "more" };
            found.push(format!(
                "Of what was lost ({way}) the router's counters have {} packets {more} than the meter. Such \
                 packets were lost between the meter and the router, or not seen by the meter; repeat on a \
                 quieter machine.",
                rest.unsigned_abs()
            ));
        }
    }
}

fn meter(account: &RunRecord<'_>, outcome: &Outcome, found: &mut Vec<String>) {
    let lost = outcome.packets.meter_lost;
    if lost > 0 {
        found.push(format!(
            "The meter lost {lost} packets. They are in no count, and a packet lost on one side only \
             looks lost in the device; repeat with a larger --ring-mib or on a quieter machine."
        ));
    }
    for interface in &outcome.interfaces {
        let (name, dropped) = (&interface.name, interface.rx_dropped);
        if dropped > 0 {
            found.push(format!(
                "The {name}'s interface had no room for {dropped} frames, and dropped them before the meter \
                 saw them. They look lost in the device; repeat on a quieter machine."
            ));
        }
        // What finds no room at the other end of its link was seen to go.
        let kernel = (interface.tx_packets + interface.tx_dropped, interface.rx_packets);
        let metered = (interface.metered_tx, interface.metered_rx);
        if kernel != metered && lost == 0 {
            found.push(format!(
                "The {}'s interface and the meter disagree. The kernel counted {} frames sent and {} \
                 received, the meter {} and {}.",
                interface.name, kernel.0, kernel.1, metered.0, metered.1
            ));
        }
    }
    let overflow: u64 = account.made.sighted.counts.iter().map(|counts| counts.overflow).sum();
    if overflow > 0 {
        found.push(format!(
            "{overflow} packets were decided before their time because too many were under way. \
             Losses and delays are suspect."
        ));
    }
    if account.made.sighted.flows.evicted > 0 {
        found.push(format!(
            "{} flows left the meter's cache early because it was full. Their sizes are not whole.",
            account.made.sighted.flows.evicted
        ));
    }
}

/// The tester's own faults, as the bare wire shows them.
fn wire(account: &RunRecord<'_>, outcome: &Outcome, found: &mut Vec<String>) {
    let Some(wire) = account.wire.map(|wire| &wire.sighted) else { return };
    let lost: u64 = wire.counts.iter().map(|counts| counts.lost).sum();
    let unseen: u64 = wire.rings.iter().map(|ring| ring.dropped).sum();
    if lost > 0 {
        found.push(format!(
            "The bare wire lost {lost} packets, with nothing in between. So many are this machine's, and may \
             be among those lost in the device; repeat on a quieter one."
        ));
    }
    if unseen > 0 {
        found.push(format!(
            "The meter lost {unseen} packets over the bare wire. Its delays stand beside those of the device; \
             repeat with a larger --ring-mib."
        ));
    }
    found.extend(slow_wire(outcome.wire_delay_ns.as_ref(), outcome.delay_ns.as_ref()));
}

/// A wire that is slower than the device was measured in another state of the machine.
fn slow_wire(wire: Option<&Delay>, device: Option<&Delay>) -> Option<String> {
    let (wire_ns, device_ns) = (wire?.p50, device?.p50);
    (wire_ns > device_ns).then(|| {
        format!(
            "The bare wire was slower than the device: the median delay was {} over it, and {} through the device. \
             The machine was busier while it calibrated, so that nothing can be said of what the device adds; \
             repeat on a quieter machine, or calibrate longer (--calibration).",
            plain(&time_ns(wire_ns as f64)),
            plain(&time_ns(device_ns as f64))
        )
    })
}

/// Stamps are of one clock, and the plan is played by another.
fn clocks(account: &RunRecord<'_>, found: &mut Vec<String>) {
    let (step_ns, played) = (account.made.clock_step_ns, account.plan.end.as_nanos());
    if step_ns.unsigned_abs() > CLOCK_STEP_NS + played / 1_000 {
        found.push(format!(
            "The wall clock was set by {:+.3} s during the run. Packets are stamped by it: losses, delays and \
             seconds around that moment mean nothing. Repeat without.",
            step_ns as f64 / 1e9
        ));
    }
}

fn execution(account: &RunRecord<'_>, outcome: &Outcome, found: &mut Vec<String>) {
    let done = &outcome.execution;
    if done.failed > 0 {
        found.push(format!(
            "{} of {} connections failed. execution.ndjson says how each one ended.",
            done.failed, outcome.connections
        ));
    }
    let is_part = outcome.part.is_some();
    if done.unfinished > 0 && !outcome.interrupted && !is_part {
        found.push(format!(
            "{} of {} connections were cut off at the end, {} s after the last one was to start. The device \
             did not carry them in that time; raise traffic.drain_s, or play fewer.",
            done.unfinished, outcome.connections, account.config.traffic.drain_s
        ));
    }
    if !done.sizes_exact {
        found.push(
            "File sizes are not byte-exact. Some connections carried other byte counts than planned; \
             execution.ndjson says which."
                .to_owned(),
        );
    }
    if done.lateness_p99_ns > LATE_NS {
        found.push(format!(
            "The generator started 1 connection in 100 more than {:.1} ms late. {}",
            done.lateness_p99_ns as f64 / 1e6,
            lateness::cause(&outcome.scheduling, outcome.stolen_percent, outcome.others_percent)
        ));
    }
    if done.collisions > 0 {
        found.push(format!(
            "{} of {} sessions share their pair of addresses with another active one. The model has \
             fewer pairs than sessions, or the pools are too small.",
            done.collisions, done.sessions
        ));
    }
}

/// Warns if the system refused the requested scheduling class.
fn scheduling(outcome: &Outcome, found: &mut Vec<String>) {
    if outcome.scheduling.iter().any(|of| !of.granted) {
        found.push(
            "The system refused a real-time class to the router and the engines. Other threads delayed them; \
             `nilometer doctor` says what would help."
                .to_owned(),
        );
    }
}

/// What a fault box, as the device or as the path, lost without being asked to, or does not tell.
fn faults(outcome: &Outcome, found: &mut Vec<String>) {
    let boxes = [(&outcome.fault, "fault box", FAULT_FILE), (&outcome.path, "path", PATH_FILE)];
    for (fault, name, file) in boxes {
        let Some(fault) = fault else { continue };
        let lost = fault.unheard + fault.unsent;
        if lost > 0 {
            found.push(format!(
                "{} packets never reached the {name}, and {} left it by no port: its buffers or rings were full. \
                 These losses are its own; play slower, or with less delay.",
                fault.unheard, fault.unsent
            ));
        }
        if fault.beyond > 0 {
            found.push(format!(
                "{file} has the first packets only; {} later ones are counted and not listed.",
                fault.beyond
            ));
        }
        if fault.inside > 0 && !outcome.interrupted {
            found.push(format!("{} packets were still in the {name} at the end.", fault.inside));
        }
    }
}

/// Gaps shorter than a start is late cannot be kept, however well the plan has them.
fn short_gaps(account: &RunRecord<'_>, outcome: &Outcome, found: &mut Vec<String>) {
    let late_s = outcome.execution.lateness_p50_ns as f64 / 1e9;
    let share = account.plan.gaps.cdf(late_s);
    if share > TOO_SHORT {
        let divided = match outcome.time_divisor {
            k if k > 1.5 => format!("Time runs {k:.0} times as fast as in the original; b"),
            _ => "B".to_owned(),
        };
        found.push(format!(
            "{:.0} % of the gaps between connections are shorter than the generator is late. {divided}\
             elow {:.0} µs the inter-connection times are the generator's own, not the model's.",
            share * 100.0,
            late_s * 1e6
        ));
    }
}

fn volumes(outcome: &Outcome, found: &mut Vec<String>) {
    if outcome.interrupted {
        return;
    }
    for interval in &outcome.intervals {
        if interval.flows_target == 0 {
            if interval.flows_generated > 0 {
                found.push(format!(
                    "The interval from {:.0} s was to be empty. It holds {} connections of sessions \
                     that still waited when it began.",
                    interval.start_s, interval.flows_generated
                ));
            }
            continue;
        }
        let off = |target: u64, made: u64| 100.0 * (made as f64 / target.max(1) as f64 - 1.0);
        let bytes = off(interval.bytes_target, interval.bytes_generated);
        let flows = off(interval.flows_target, interval.flows_generated);
        if bytes.abs() > 5.0 || flows.abs() > 5.0 {
            found.push(format!(
                "The interval from {:.0} s misses its volume: {bytes:+.1} % of its bytes, {flows:+.1} % \
                 of its connections.",
                interval.start_s
            ));
        }
    }
}

fn model(account: &RunRecord<'_>, outcome: &Outcome, found: &mut Vec<String>) {
    if outcome.time_divisor > TOO_FAST {
        found.push(format!(
            "The original spans {:.0} days by its clock. Captures joined from several days look like \
             this; fitted into a minute its connections come in bursts. Give one of the parts, or \
             --duration to play its beginning at its own speed.",
            account.estimate.model.original_s() / 86_400.0
        ));
    }
    let coverage = &account.estimate.model.coverage;
    let performed = performed_octets(coverage, account.plan.is_joint);
    let share = performed as f64 / coverage.octets.max(1) as f64;
    // (A model by hand speaks for no input.)
    if coverage.octets > 0 && share < COVERAGE_LOW {
        found.push(format!(
            "The plan performs {} of the input's bytes. The rest is not TCP, or its start or \
             end was not captured; it is not generated.",
            plain(&percent(share))
        ));
    }
    let ranks = [
        ("sources", account.estimate.model.sources.counts.len(), account.plan.ranks.0),
        ("destinations", account.estimate.model.destinations.counts.len(), account.plan.ranks.1),
    ];
    for (side, known, kept) in ranks {
        if kept < known {
            found.push(format!(
                "The pool holds {kept} of the model's {known} {side}. The rarest are left out; give \
                 a larger prefix."
            ));
        }
    }
    let sessions = outcome.execution.sessions as f64;
    let most = account.plan.ranks.0.max(account.plan.ranks.1) as f64;
    if sessions < SESSIONS_PER_RANK * most {
        found.push(format!(
            "Only {sessions:.0} sessions drew from {most:.0} addresses. Who talks to whom is \
             sampled coarsely, though as the model says; shorter intervals (--interval) draw more \
             pairs."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_that_is_slower_than_the_device_is_a_warning() {
        let of = |p50| Delay { p50, ..Delay::default() };
        let line = slow_wire(Some(&of(9_800)), Some(&of(4_300))).expect("a warning");
        assert!(line.starts_with("The bare wire was slower than the device: "), "{line}");
        assert!(
            line.contains("9.8 µs over it, and 4.3 µs through") && line.contains("--calibration")
        );
        assert_eq!(slow_wire(Some(&of(4_300)), Some(&of(4_300))), None);
        assert_eq!(slow_wire(Some(&of(4_300)), Some(&of(9_800))), None);
        assert_eq!(slow_wire(None, Some(&of(9_800))), None);
    }
}
