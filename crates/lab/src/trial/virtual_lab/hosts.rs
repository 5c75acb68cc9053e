//! The hosts of a virtual leg: both ends of every connection of its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Result, bail};
use nilometer_conversation::{Act, Opening, Side, Step};
use nilometer_linux::testbed::Layout;
use nilometer_sim::host::{EndReport, Host, LinkAddresses, PlannedEnd};
use nilometer_sim::scripted::Part;
use nilometer_stat::Rng;
use nilometer_tcp::bytes::Ends;
use nilometer_tcp::{Algorithm, Config};
use nilometer_traffic::PlannedConnection;
use nilometer_traffic::script::Script;
use nilometer_wire::{Span, Time};

use super::super::leg::Leg;
use crate::generate::protocol::REQUEST_BYTES;
use crate::generate::vectors::port_offset;
use crate::generate::{Execution, Outcome, ServerReport};

/// Purpose of the seed's stream of initial sequence numbers.
const PURPOSE_SEQUENCE: u32 = 0x5649_0001;
/// The first port that a client takes where the plan names none.
const PORT_FIRST: u16 = 32_768;
/// IP packets that the links carry.
const MTU_BYTES: u16 = 1_500;
/// What Linux announces at most where nobody has changed `tcp_rmem`.
const RECEIVE_BUFFER_BYTES: u32 = 3 << 20;
const WINDOW_SCALE: u8 = 7;

/// Linux's stack with this congestion control.
///
/// # Errors
/// One line, where simulated hosts have none of this name.
pub(super) fn stack(congestion: &str) -> Result<Config> {
    let algorithm = match congestion {
        "cubic" => Algorithm::LinuxCubic,
        "reno" => Algorithm::Reno,
        "bbr" => Algorithm::Bbr,
        other => bail!(
            "--clock virtual (clock): simulated hosts have no congestion control `{other}`; choose --congestion \
             cubic, reno or bbr"
        ),
    };
    Ok(Config {
        algorithm,
        receive_buffer: RECEIVE_BUFFER_BYTES,
        window_scale: Some(WINDOW_SCALE),
        ..Config::linux()
    })
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
    pub(super) fn new(leg: &Leg<'_>, layout: &Layout) -> Result<Hosts> {
        let end = end(leg);
        let stack = stack(&leg.config.traffic.congestion)?;
        let scripts: Vec<Arc<Script>> = leg.scripts.iter().cloned().map(Arc::new).collect();
        let ports = local_ports(leg.connections);
        let mut ends = [Vec::new(), Vec::new()];
        for (index, (planned, &local)) in leg.connections.iter().zip(&ports).enumerate() {
            let script = match planned.script {
                Some(script) => Arc::clone(&scripts[script as usize]),
                None => Arc::new(files(planned)),
            };
            let port = leg.config.traffic.port + port_offset(script.opening);
            let client = SocketAddr::new(planned.source, local);
            let server = SocketAddr::new(planned.destination, port);
            let mut sequences = Rng::new(leg.config.seed, PURPOSE_SEQUENCE, index as u64);
            for side in [Side::Client, Side::Server] {
                let (source, destination) = match side {
                    Side::Client => (client, server),
                    Side::Server => (server, client),
                };
                let start = planned.start;
                ends[side.index()].push(PlannedEnd {
                    ends: Ends { source, destination },
                    part: Part { script: Arc::clone(&script), side, start, end },
                    stack: Config { mss: mss(planned.source), ..stack },
                    initial_sequence: sequences.next_u64() as u32,
                });
            }
        }
        let [client, server] = ends;
        let [at_client, at_server] = layout.hosts().map(|[own, peer]| LinkAddresses { own, peer });
        let both = [Host::new(at_client, client), Host::new(at_server, server)];
        Ok(Hosts { both, end, ports })
    }

    /// What became of each connection, and what servers did.
    pub(super) fn executions(&self, leg: &Leg<'_>) -> (Vec<Execution>, ServerReport) {
        let [client, server] = &self.both;
        let made = client.reports().zip(leg.connections).zip(&self.ports).zip(0..);
        let executions = made.map(|(((report, planned), &port), index)| {
            execution(leg, planned, (index, port), &report)
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
        served.congestion = Some(leg.config.traffic.congestion.clone());
        (executions.collect(), served)
    }
}

/// When nothing more is begun: a plan of scripts says so; files may take some time after the last of them.
fn end(leg: &Leg<'_>) -> Time {
    if !leg.scripts.is_empty() {
        return Time::from_nanos(leg.end_ns);
    }
    let last = leg.connections.last().map_or(Time::ZERO, |planned| planned.start);
    last + Span::from_secs_f64(leg.config.traffic.drain_s)
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
    leg: &Leg<'_>,
    planned: &PlannedConnection,
    (index, port): (u32, u16),
    report: &EndReport,
) -> Execution {
    let Some(began) = report.began else { return Execution::not_started(index) };
    let opening = planned.script.map_or(Opening::Seen, |at| leg.scripts[at as usize].opening);
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
