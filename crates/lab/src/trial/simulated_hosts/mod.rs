//! Simulated hosts: both ends of every connection of a leg's plan, as nodes of our own TCP.
//!
//! They are driven by the virtual clock (`virtual_lab`), or by the real one on the testbed's interfaces
//! (`live`).

pub(super) mod live;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use nilometer_conversation::{Act, Opening, Side, Step};
use nilometer_linux::port::PortStatistics;
use nilometer_linux::testbed::Layout;
use nilometer_sim::host::{EndReport, Host, HostCounts, LinkAddresses, PlannedEnd};
use nilometer_sim::scripted::Part;
use nilometer_stat::{Histogram, Rng};
use nilometer_tcp::bytes::Ends;
use nilometer_tcp::{Algorithm, Config, Recovery};
use nilometer_traffic::PlannedConnection;
use nilometer_traffic::script::Script;
use nilometer_wire::{Span, Time};

use super::config::{DutKind, LabConfig};
use super::scores::Scores;
use crate::device::recording::Replayed;
use crate::generate::protocol::REQUEST_BYTES;
use crate::generate::vectors::port_offset;
use crate::generate::{Execution, Outcome, ServerReport};

/// Purpose of the seed's stream of initial sequence numbers.
const PURPOSE_SEQUENCE: u32 = 0x5649_0001;
/// The first port that a client takes where the plan names none.
const PORT_FIRST: u16 = 32_768;
/// IP packets that the links carry.
const MTU_BYTES: u16 = 1_500;
/// What Linux announces at most with the default `tcp_rmem`.
const RECEIVE_BUFFER_BYTES: u32 = 3 << 20;
const WINDOW_SCALE: u8 = 7;

/// The names of congestion control that simulated hosts have.
const NAMES: [&str; 6] = ["cubic", "reno", "bbr", "newreno", "sack", "fulltcp"];

/// The stack of both ends by the name of its congestion control: Linux's with CUBIC, Reno or BBR; the RFCs' with
/// NewReno's recovery (RFC 6582) or that of selective acknowledgements (RFC 6675); ns-2's FullTcp.
fn stack(congestion: &str) -> Option<Config> {
    let linux = |algorithm| Config { algorithm, ..Config::linux() };
    let rfc = |recovery| Config { recovery, ..Config::rfc() };
    let stack = match congestion {
        "cubic" => linux(Algorithm::LinuxCubic),
        "reno" => linux(Algorithm::Reno),
        "bbr" => linux(Algorithm::Bbr),
        "newreno" => rfc(Recovery::NewReno),
        "sack" => rfc(Recovery::Sack),
        "fulltcp" => Config::fulltcp(),
        _ => return None,
    };
    let window_scale = Some(WINDOW_SCALE);
    Some(Config { receive_buffer: RECEIVE_BUFFER_BYTES, window_scale, ..stack })
}

fn known_stack(congestion: &str) -> Result<Config> {
    stack(congestion).with_context(|| {
        let (last, names) = NAMES.split_last().expect("names");
        format!(
            "--hosts simulated (hosts): simulated hosts have no congestion control `{congestion}`; choose \
             --congestion {} or {last}",
            names.join(", ")
        )
    })
}

/// Refuses options that simulated hosts do not support.
///
/// # Errors
/// One line that says what to do.
pub(super) fn check(config: &LabConfig) -> Result<()> {
    if !config.simulates_hosts() {
        ensure!(
            !config.replay_hosts,
            "--replay-hosts (replay_hosts) repeats what simulated hosts did: give --hosts simulated, or leave it out"
        );
        return Ok(());
    }
    ensure!(
        config.dut != DutKind::External,
        "--hosts simulated (hosts): simulated hosts do not answer ARP requests of the device external; choose --hosts \
         kernel"
    );
    known_stack(&config.traffic.congestion).map(drop)
}

/// What simulated hosts did beside their connections.
#[derive(Clone, Debug, Default)]
pub struct HostsSeen {
    /// Frames, ends and events: the clients' host, the servers'.
    pub counts: [HostCounts; 2],
    /// How long after they were due events of both were handled, ns.
    pub lateness_ns: Histogram,
    /// The counters of their ports; none in virtual time.
    pub ports: Vec<PortStatistics>,
    /// Frames that left a host and its port never took.
    pub unsent: u64,
    /// The outcome of a replay of both, where one was requested.
    pub replayed: Option<Replayed>,
}

impl HostsSeen {
    /// Events of both that were handled late.
    pub fn late(&self) -> u64 {
        self.counts.iter().map(|counts| counts.late).sum()
    }
}

/// Clients and servers.
pub(super) struct Hosts {
    /// The clients' host, the servers'.
    pub both: [Host; 2],
    /// When the plan is over.
    pub end: Time,
    /// The client's port of each connection.
    ports: Vec<u16>,
}

impl Hosts {
    /// The hosts that perform `scores`.
    ///
    /// # Errors
    /// Where they have no such congestion control.
    pub(super) fn new(config: &LabConfig, scores: Scores<'_>, layout: &Layout) -> Result<Hosts> {
        let end = end(config, scores);
        let stack = known_stack(&config.traffic.congestion)?;
        let scripts: Vec<Arc<Script>> = scores.scripts.iter().cloned().map(Arc::new).collect();
        let ports = local_ports(scores.connections);
        let mut ends = [Vec::new(), Vec::new()];
        for (index, (planned, &local)) in scores.connections.iter().zip(&ports).enumerate() {
            let script = match planned.script {
                Some(script) => Arc::clone(&scripts[script as usize]),
                None => Arc::new(files(planned)),
            };
            let port = config.traffic.port + port_offset(script.opening);
            let client = SocketAddr::new(planned.source, local);
            let server = SocketAddr::new(planned.destination, port);
            let mut sequences = Rng::new(config.seed, PURPOSE_SEQUENCE, index as u64);
            for side in [Side::Client, Side::Server] {
                let (source, destination) = match side {
                    Side::Client => (client, server),
                    Side::Server => (server, client),
                };
                let start = planned.start;
                ends[side.index()].push(PlannedEnd {
                    ends: Ends { source, destination },
                    part: Part { script: Arc::clone(&script), side, start, end },
                    stack: Config { mss: mss(planned.source).min(stack.mss), ..stack },
                    initial_sequence: sequences.next_u64() as u32,
                });
            }
        }
        let [client, server] = ends;
        let [at_client, at_server] = layout.hosts().map(|[own, peer]| LinkAddresses { own, peer });
        let both = [Host::new(at_client, client), Host::new(at_server, server)];
        Ok(Hosts { both, end, ports })
    }

    /// The hosts' counters, under either clock.
    pub(super) fn seen(&self) -> HostsSeen {
        let mut lateness_ns = Histogram::new();
        self.both.iter().for_each(|host| lateness_ns.merge(host.lateness_ns()));
        let counts = [self.both[0].counts(), self.both[1].counts()];
        HostsSeen { counts, lateness_ns, ..HostsSeen::default() }
    }

    /// What became of each connection, and what servers did.
    pub(super) fn executions(
        &self,
        config: &LabConfig,
        scores: Scores<'_>,
    ) -> (Vec<Execution>, ServerReport) {
        let [client, server] = &self.both;
        let made = client.reports().zip(scores.connections).zip(&self.ports).zip(0..);
        let executions = made.map(|(((report, planned), &port), index)| {
            execution(scores, planned, (index, port), &report)
        });
        let mut served = ServerReport::default();
        for report in server.reports().filter(|report| report.was_established) {
            served.accepted += 1;
            match (report.finished, report.closed) {
                (Some(_), _) => served.completed += 1,
                (None, Some(_)) => served.broken += 1,
                (None, None) => served.unfinished += 1,
            }
        }
        served.congestion = Some(config.traffic.congestion.clone());
        (executions.collect(), served)
    }
}

/// When no more connections begin: a plan of scripts has a length; files may take some time after the
/// last start.
fn end(config: &LabConfig, scores: Scores<'_>) -> Time {
    if scores.are_vectors() {
        return Time::from_nanos(scores.length.as_nanos() as u64);
    }
    let last = scores.connections.last().map_or(Time::ZERO, |planned| planned.start);
    last + Span::from_secs_f64(config.traffic.drain_s)
}

/// The largest segment between these addresses, before options.
fn mss(address: IpAddr) -> u16 {
    MTU_BYTES - if address.is_ipv4() { 40 } else { 60 }
}

/// The client's port of each connection: the plan's, or the next that its address pair has not used.
fn local_ports(connections: &[PlannedConnection]) -> Vec<u16> {
    let pair = |planned: &PlannedConnection| (planned.source, planned.destination);
    let given = connections.iter().filter(|planned| planned.source_port != 0);
    let mut used: BTreeSet<_> = given.map(|planned| (pair(planned), planned.source_port)).collect();
    let mut next: BTreeMap<(IpAddr, IpAddr), u16> = BTreeMap::new();
    let mut draw = |planned: &PlannedConnection| {
        let port = next.entry(pair(planned)).or_insert(PORT_FIRST);
        // (After all 64,512 a pair's ports are used again, as a kernel's are.)
        for _ in 0..=u16::MAX {
            let drawn = *port;
            *port = port.checked_add(1).unwrap_or(1_024);
            if used.insert((pair(planned), drawn)) {
                return drawn;
            }
        }
        *port
    };
    let port = |planned: &PlannedConnection| match planned.source_port {
        0 => draw(planned),
        port => port,
    };
    connections.iter().map(port).collect()
}

/// A request and its answer, as `generate` performs them: the server closes first.
fn files(planned: &PlannedConnection) -> Script {
    let request = planned.request_bytes.max(REQUEST_BYTES as u64);
    let send = |bytes| Act::Send { bytes, segments: 1, took_ns: 0 };
    let step = |by, awaits, act| Step { by, awaits, pause_ns: 0, act };
    let mut steps = vec![step(Side::Client, 0, send(request))];
    if planned.size_bytes > 0 {
        steps.push(step(Side::Server, request, send(planned.size_bytes)));
    }
    steps.push(step(Side::Server, request, Act::Fin));
    steps.push(step(Side::Client, planned.size_bytes + 1, Act::Fin));
    Script {
        opening: Opening::Seen,
        steps,
        tried_ns: 0,
        has_time_stamps: true,
        segment_bytes: planned.segment_bytes,
        acks_each: [false; 2],
    }
}

fn execution(
    scores: Scores<'_>,
    planned: &PlannedConnection,
    (index, port): (u32, u16),
    report: &EndReport,
) -> Execution {
    let Some(began) = report.began else { return Execution::not_started(index) };
    let opening = planned.script.map_or(Opening::Seen, |at| scores.scripts[at as usize].opening);
    let outcome = match (report.finished, report.closed) {
        (Some(_), _) => Outcome::Completed,
        (None, Some(_)) if opening == Opening::Refused => Outcome::Completed,
        (None, Some(_)) if report.was_established => Outcome::Reset,
        (None, Some(_)) => Outcome::TimedOut,
        (None, None) => Outcome::Unfinished,
    };
    let finished = report.finished.or(report.closed);
    Execution {
        index,
        started_ns: began.as_nanos(),
        finished_ns: finished.filter(|_| outcome != Outcome::Unfinished).map(Time::as_nanos),
        local_port: if report.was_established { port } else { 0 },
        received_bytes: report.received_bytes,
        outcome,
    }
}
