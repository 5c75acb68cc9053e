//! Judges a run: the outcome of a leg, as `result.json` and as the story of the page.

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use nilometer_profile::{Delays, Direction};
use nilometer_traffic::Plan;
use nilometer_traffic::fidelity::{Measured, judge};
use serde::Serialize;

use super::account::RunRecord;
use super::by_path::ForwardingPath;
use super::config::{Clock, HostKind};
use super::judge::{Joined, RunObservations, laws};
use super::leg::LegOutcome;
use super::meter::{Frames, Sighted};
use super::outcome::{
    DirectionOutcome, ExecutionOutcome, InterfaceOutcome, IntervalOutcome, Outcome, Packets,
    PathDelay,
};
use super::router::{RouterOutcome, RouterSeen};
use super::run_story::{self, StorySources};
use super::simulated_hosts::HostsSeen;
use super::{heading, losses, planning, source, verdict, warnings};
use crate::generate::{self, Execution};
use nilometer_files::document::results::ResultFile;
use nilometer_files::tool;
use nilometer_linux::netlink::LinkStatistics;
use nilometer_report::Story;

/// Format of `result.json`.
const FORMAT: &str = "nilometer-result/1";

/// Judges a run.
pub fn settle(account: &RunRecord<'_>) -> (Outcome, Story) {
    let seen = account.seen();
    let joined = seen.joined();
    let measured = seen.measured(&joined);
    let lateness_ns = seen.lateness_ns();
    let mut outcome = outcome(account, &seen, &joined, &measured, &lateness_ns);
    outcome.warnings = [account.early_warnings, &warnings::of(account, &outcome)].concat();
    outcome.said_before = account.early_warnings.len();
    outcome.outcome_digest = outcome.digest_of_all();
    let sources = StorySources {
        model: account.model(),
        plan: account.plan,
        measured: &measured,
        sighted: &account.made.sighted,
        wire: account.wire.map(|wire| &wire.sighted),
        router: account.made.router.as_ref(),
        lateness_ns: &lateness_ns,
    };
    let story = heading::head(run_story::compose(&outcome, &sources), account, &outcome);
    (outcome, story)
}

fn outcome(
    account: &RunRecord<'_>,
    seen: &RunObservations<'_>,
    joined: &[Joined],
    measured: &Measured,
    lateness_ns: &[u64],
) -> Outcome {
    let model = account.model();
    let (sighted, wire) = (&account.made.sighted, account.wire.map(|wire| &wire.sighted));
    let judged = verdict::of(account);
    let laws = judge(measured, &laws(model, account.plan), account.config.seed);
    let likeness = judged.as_ref().map(|judged| judged.likeness.clone()).unwrap_or_default();
    let meter_lost: u64 = sighted.rings.iter().map(|ring| ring.dropped).sum();
    let mut packets = Packets { meter_lost, ..Packets::default() };
    for counts in &sighted.counts {
        add(&mut packets, &run_story::packets(counts, 0));
    }
    Outcome {
        format: FORMAT.to_owned(),
        seed: account.config.seed,
        version: tool::version().to_owned(),
        commit: tool::commit().to_owned(),
        digest: planning::hex(&account.plan.digest()),
        dut: account.config.dut.name().to_owned(),
        clock: account.config.clock.name().to_owned(),
        hosts: hosts(account.made).name().to_owned(),
        open_max: open_max(&account.made.executions),
        late_events: account.made.simulated.as_ref().map(HostsSeen::late),
        lateness_ns: account.made.simulated.as_ref().map(|seen| (&seen.lateness_ns).into()),
        simulated: account.made.simulated.as_ref().map(Into::into),
        outcome_digest: String::new(),
        input: inputs(account),
        synthetic: model.origin.synthetic,
        time_divisor: model.generation.time_divisor,
        interrupted: account.made.interrupted_ns.is_some(),
        connections: account.plan.len() as u64,
        speed: if account.plan.scripts.is_empty() {
            model.generation.time_divisor
        } else {
            account.config.speed
        },
        part: account.original.map(|original| original.part),
        coverage: verdict::coverage(account),
        hosts_folded: account.plan.hosts_folded,
        fidelity: if likeness.is_empty() { laws.clone() } else { verdict::fidelity(&likeness) },
        inter_connection_by_pair: by_pair(account, seen, joined),
        execution: ExecutionOutcome {
            laws: if likeness.is_empty() { Vec::new() } else { laws },
            ..execution(account, seen, joined, lateness_ns, meter_lost)
        },
        likeness,
        intervals: intervals(account, seen, joined),
        packets,
        directions: Direction::ALL.map(|way| direction(sighted, wire, way)).to_vec(),
        delay_ns: sighted.delays.summary(None).map(run_story::delay),
        wire_delay_ns: wire.and_then(|wire| wire.delays.summary(None)).map(run_story::delay),
        delay_by_path: by_path(sighted),
        stamps: stamps(account.config.clock, sighted),
        scheduling: account.made.scheduling.threads.clone(),
        idle_processors: account.made.scheduling.idle_processors.clone(),
        stolen_percent: account.made.scheduling.stolen_percent(),
        others_percent: account.made.scheduling.others_percent(),
        interfaces: interfaces(account.made),
        fault: account.made.fault.as_ref().map(Into::into),
        path: account.made.path.as_ref().map(Into::into),
        rear_path: account.made.rear_path.as_ref().map(Into::into),
        round_trips: account.round_trips,
        router: account.made.router.as_ref().map(|seen| explained(seen, account.made)),
        warnings: Vec::new(),
        said_before: 0,
        report: account.page.display().to_string(),
    }
}

/// Whose TCP the hosts had.
fn hosts(made: &LegOutcome) -> HostKind {
    if made.simulated.is_some() { HostKind::Simulated } else { HostKind::Kernel }
}

/// The greatest number of connections that were open at once; of one that ends when another begins, the end is first.
fn open_max(executions: &[Execution]) -> u64 {
    let began = executions.iter().filter(|done| done.outcome != generate::Outcome::NotStarted);
    let mut changes: Vec<(u64, i64)> = began
        .flat_map(|done| {
            let ends = (done.finished_ns.unwrap_or(u64::MAX), -1);
            [(done.started_ns, 1), ends]
        })
        .collect();
    changes.sort_unstable();
    let (mut open, mut most) = (0, 0);
    for (_, change) in changes {
        open += change;
        most = most.max(open);
    }
    most as u64
}

/// Delays by the paths through our router that any packet took.
fn by_path(sighted: &Sighted) -> Vec<PathDelay> {
    let one = |(path, delays): (ForwardingPath, &Delays)| {
        Some(PathDelay {
            path: path.name().to_owned(),
            packets: delays.histogram(None).count(),
            delay_ns: run_story::delay(delays.summary(None)?),
        })
    };
    ForwardingPath::ALL.into_iter().zip(&sighted.delays_by_path).filter_map(one).collect()
}

/// How packets were stamped. TCP marks each packet with its own departure time, which keeps the
/// kernel from stamping it again where it arrives; such a frame gets its stamp a little later, when
/// the soft interrupt hands it to the packet socket.
fn stamps(clock: Clock, sighted: &Sighted) -> String {
    if clock == Clock::Virtual {
        return "times of the virtual clock at the hosts' interfaces, exact".to_owned();
    }
    let sum = |part: &dyn Fn(&Frames) -> u64| sighted.frames.iter().map(part).sum::<u64>();
    let arrivals = sum(&|frames| frames.incoming).max(1);
    let late = sum(&|frames| frames.stamped_late) as f64 / arrivals as f64;
    let when = match late {
        0.0 => "taken at the driver".to_owned(),
        late => format!(
            "departures taken at the driver, {:.0} % of arrivals at the packet socket",
            100.0 * late
        ),
    };
    format!("kernel packet-socket stamps at the hosts' ends of the veths, {when}")
}

fn inputs(account: &RunRecord<'_>) -> Vec<String> {
    let origin = &account.model().origin;
    match &account.config.model.file {
        Some(path) => vec![source::file_name(&path.to_string_lossy())],
        None if origin.synthetic => vec!["embedded".to_owned()],
        None => origin.inputs.iter().map(|input| input.name.clone()).collect(),
    }
}

fn add(sum: &mut Packets, other: &Packets) {
    sum.entered += other.entered;
    sum.left += other.left;
    sum.lost += other.lost;
    sum.originated += other.originated;
    sum.consumed += other.consumed;
    sum.reordered += other.reordered;
    sum.duplicated += other.duplicated;
    sum.corrupted += other.corrupted;
    sum.meter_lost += other.meter_lost;
}

fn by_pair(account: &RunRecord<'_>, seen: &RunObservations<'_>, joined: &[Joined]) -> Option<f64> {
    let generation = &account.model().generation;
    let bound_s = generation.inter_connection_bound_s / generation.time_divisor;
    let gaps = seen.gaps_by_pair(joined, bound_s);
    (!gaps.is_empty()).then(|| nilometer_stat::ks_of_sorted(&gaps, &account.plan.gaps))
}

fn execution(
    account: &RunRecord<'_>,
    seen: &RunObservations<'_>,
    joined: &[Joined],
    lateness_ns: &[u64],
    meter_lost: u64,
) -> ExecutionOutcome {
    use generate::Outcome::{Completed, NotStarted, Unfinished};
    let count = |wanted: &dyn Fn(generate::Outcome) -> bool| {
        account.made.executions.iter().filter(|done| wanted(done.outcome)).count() as u64
    };
    let quantile = |q: f64| match lateness_ns.len() {
        0 => 0,
        len => lateness_ns[((len - 1) as f64 * q).round() as usize],
    };
    let completed = count(&|outcome| outcome == Completed);
    let unfinished = count(&|outcome| matches!(outcome, NotStarted | Unfinished));
    ExecutionOutcome {
        sizes_exact: seen.sizes_exact(joined, meter_lost == 0),
        completed,
        failed: account.made.executions.len() as u64 - completed - unfinished,
        unfinished,
        sessions: account.plan.sessions.len() as u64,
        collisions: account.plan.collisions,
        lateness_p50_ns: quantile(0.5),
        lateness_p99_ns: quantile(0.99),
        lateness_max_ns: quantile(1.0),
        congestion: account.made.congestion.0.clone(),
        laws: Vec::new(),
    }
}

fn intervals(
    account: &RunRecord<'_>,
    seen: &RunObservations<'_>,
    joined: &[Joined],
) -> Vec<IntervalOutcome> {
    let volumes = match &account.made.sighted.observed {
        Some(observed) => verdict::volumes(observed, account.made.origin_ns, account.plan),
        None => seen.volumes(joined),
    };
    let entered = &account.made.sighted.intervals;
    let planned = account.plan.intervals.iter().zip(&account.model().intervals);
    let is_drawn = !account.plan.scripts.is_empty();
    planned
        .enumerate()
        .map(|(index, (planned, intended))| IntervalOutcome {
            start_s: planned.start.as_secs_f64(),
            end_s: planned.end.as_secs_f64(),
            bytes_target: planned.asked.bytes,
            bytes_generated: volumes[index].bytes,
            flows_target: planned.asked.connections,
            flows_generated: volumes[index].connections,
            sessions_target: if is_drawn { planned.sessions } else { intended.sessions },
            sessions_generated: planned.sessions,
            packets: entered[index].0,
            ip_bytes: entered[index].1,
            connection_packets_target: account.plan.is_joint.then_some(planned.asked.packets),
            connection_packets: volumes[index].packets,
            connection_ip_bytes_target: account.plan.is_joint.then_some(planned.asked.octets),
            connection_ip_bytes: volumes[index].octets,
        })
        .collect()
}

fn direction(sighted: &Sighted, wire: Option<&Sighted>, way: Direction) -> DirectionOutcome {
    let names = ["to_servers", "to_clients"];
    DirectionOutcome {
        name: names[way.index()].to_owned(),
        packets: run_story::packets(&sighted.counts[way.index()], 0),
        delay_ns: sighted.delays.summary(Some(way)).map(run_story::delay),
        wire_delay_ns: wire.and_then(|wire| wire.delays.summary(Some(way))).map(run_story::delay),
    }
}

/// The outcome of our router, with the losses that the meter saw explained by its counters.
fn explained(seen: &RouterSeen, made: &LegOutcome) -> RouterOutcome {
    let lost = Direction::ALL.map(|way| made.sighted.counts[way.index()].lost);
    let (losses, unexplained) = losses::explain(seen, &interfaces(made), lost);
    RouterOutcome { losses, unexplained, ..seen.outcome.clone() }
}

fn interfaces(made: &LegOutcome) -> Vec<InterfaceOutcome> {
    let one = |name: &str, kernel: &LinkStatistics, metered: &Frames| InterfaceOutcome {
        name: name.to_owned(),
        tx_packets: kernel.tx_packets,
        rx_packets: kernel.rx_packets,
        metered_tx: metered.outgoing,
        metered_rx: metered.incoming,
        tx_dropped: kernel.tx_dropped,
        rx_dropped: kernel.rx_dropped,
        not_ip: metered.not_ip,
    };
    let [client, server] = &made.sighted.frames;
    vec![
        one("client", &made.interfaces.client, client),
        one("server", &made.interfaces.server, server),
    ]
}

/// One line of `execution.ndjson`.
#[derive(Serialize)]
struct ExecutionLine {
    index: u32,
    session: u32,
    source: String,
    destination: String,
    local_port: u16,
    planned_ns: u64,
    started_ns: u64,
    finished_ns: Option<u64>,
    size_bytes: u64,
    request_bytes: u64,
    segment_bytes: u16,
    received_bytes: u64,
    outcome: String,
}

/// Writes the execution log: one line for each planned connection, with what was planned and what
/// was done.
pub fn write_execution(to: &ResultFile, plan: &Plan, made: &LegOutcome) -> Result<()> {
    let mut draft = to.draft()?;
    let mut write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(&mut draft);
        for done in &made.executions {
            let planned = &plan.connections[done.index as usize];
            let line = ExecutionLine {
                index: done.index,
                session: planned.session,
                source: planned.source.to_string(),
                destination: planned.destination.to_string(),
                local_port: done.local_port,
                planned_ns: planned.start.as_nanos(),
                started_ns: done.started_ns,
                finished_ns: done.finished_ns,
                size_bytes: planned.size_bytes,
                request_bytes: planned.request_bytes,
                segment_bytes: planned.segment_bytes,
                received_bytes: done.received_bytes,
                outcome: format!("{:?}", done.outcome),
            };
            serde_json::to_writer(&mut file, &line)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", to.path().display()))?;
    draft.publish()
}
