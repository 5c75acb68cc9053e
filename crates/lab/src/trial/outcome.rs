//! `result.json`: what a run came to, under names fixed for scripts.

use nilometer_likeness::{Likeness, Verdict};
use nilometer_traffic::fidelity::Fidelity;
use serde::{Deserialize, Serialize};

use super::part::Part;
use super::router::RouterOutcome;
use super::telling;
use nilometer_report::enough;
pub use nilometer_report::story::PacketCounts as Packets;

/// What of the original's TCP has to be played, for `--check`.
const COVERAGE_MIN: f64 = 0.95;
/// Within which a copy's volume has to be, for `--check`.
const VOLUME_RATIO: core::ops::RangeInclusive<f64> = 0.95..=1.05;

/// What `--check` holds a run to, beside bounds that are fixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Laws of which there is too little to tell may pass.
    pub allows_few: bool,
    /// The share of packets that the device may lose, 0 to 1.
    pub loss_max: f64,
    /// By how much the 99th percentile of the device's delay may exceed that of the bare wire (or 0, where there
    /// is none), ns.
    pub delay_max_ns: f64,
}

impl Default for Bounds {
    /// One packet in a thousand, and ten milliseconds.
    fn default() -> Bounds {
        Bounds { allows_few: false, loss_max: 0.001, delay_max_ns: 1e7 }
    }
}

/// The result of a lab run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// `nilometer-result/1`.
    pub format: String,
    /// Seed of the plan.
    pub seed: u64,
    /// Version of the tool.
    pub version: String,
    /// Commit it was built from.
    pub commit: String,
    /// SHA-256 of the plan: that of `generate plan DIR/model.json --seed SEED`.
    pub digest: String,
    /// The device under test.
    pub dut: String,
    /// What was played: `embedded` or the inputs' names.
    pub input: Vec<String>,
    /// Whether the input is synthetic.
    pub synthetic: bool,
    /// k: gaps and intervals of the original were divided by it.
    pub time_divisor: f64,
    /// Stopped by a signal before the plan's end.
    pub interrupted: bool,
    /// Connections planned.
    pub connections: u64,
    /// How often the original's speed it was played; 1 where its own clock was kept.
    #[serde(default)]
    pub speed: f64,
    /// The part of the original that was played; none where it was not known packet by packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// What of the original's part the copy performed; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<CoverageOutcome>,
    /// Hosts of the original that share an address with another.
    #[serde(default)]
    pub hosts_folded: u64,
    /// The metered copy held against the original's part, law by law; empty where that was not known packet
    /// by packet, and where a signal ended the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub likeness: Vec<Likeness>,
    /// Four distances and their sampling floors: copied from `likeness` where that is present, otherwise between
    /// the measured traffic and the model.
    pub fidelity: Vec<Fidelity>,
    /// KS distance of the gaps of each address pair, as the meter saw them; beside the per-session
    /// figure in `fidelity`.
    pub inter_connection_by_pair: Option<f64>,
    /// How exactly the plan was carried out.
    pub execution: ExecutionOutcome,
    /// Planned and generated, by interval.
    pub intervals: Vec<IntervalOutcome>,
    /// Both directions together.
    pub packets: Packets,
    /// To the servers, then to the clients.
    pub directions: Vec<DirectionOutcome>,
    /// Delay through the device, ns.
    pub delay_ns: Option<Delay>,
    /// Delay over the bare wire, ns.
    pub wire_delay_ns: Option<Delay>,
    /// How packets were stamped.
    pub stamps: String,
    /// The hosts' interfaces against the meter.
    pub interfaces: Vec<InterfaceOutcome>,
    /// What our router counted, where it was the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterOutcome>,
    /// What makes a figure suspect, in plain words.
    pub warnings: Vec<String>,
    /// How many of them, the first, were said before the traffic began.
    #[serde(skip)]
    pub said_before: usize,
    /// Absolute path of the page.
    pub report: String,
}

/// How exactly the plan was carried out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutionOutcome {
    /// Every completed connection moved exactly its planned bytes, by the client's count and, where
    /// the meter lost nothing, by the sequence numbers it saw.
    pub sizes_exact: bool,
    /// Connections that moved all their bytes and closed.
    pub completed: u64,
    /// Connections that were tried and failed.
    pub failed: u64,
    /// Connections that a signal, or the end of `drain_s`, kept from starting or ending.
    pub unfinished: u64,
    /// Sessions planned.
    pub sessions: u64,
    /// Sessions that share their pair with another active one.
    pub collisions: u64,
    /// Median lateness of connection starts, ns.
    pub lateness_p50_ns: u64,
    /// 99th percentile of lateness, ns.
    pub lateness_p99_ns: u64,
    /// The latest start, ns.
    pub lateness_max_ns: u64,
    /// Congestion control of every socket.
    pub congestion: String,
    /// Distances of what was measured to the plan's own laws, where `fidelity` is of the original.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub laws: Vec<Fidelity>,
}

/// What of the original's part a copy performed, counted from the packets of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoverageOutcome {
    /// `volume_ratio`, 1 at most.
    pub bytes: f64,
    /// TCP connections of the copy divided by those of the original, 1 at most.
    pub flows: f64,
    /// TCP packets, likewise; of the original those that its capture has.
    pub packets: f64,
    /// TCP payload of the copy divided by that of the original, each byte of sequence space once: what paths
    /// lost and had sent again is theirs and not the traffic's, and what the original's capture lost (by its
    /// sequence numbers) was sent all the same. 1 where neither has any.
    pub volume_ratio: f64,
    /// TCP bytes of the copy, from the IP header on and whatever was sent again included, divided by the original's.
    pub octets_ratio: f64,
    /// UDP's share of the bytes of the original's part, 0 to 1: it is not played.
    pub udp_share: f64,
    /// Likewise that of protocols other than TCP and UDP.
    pub others_share: f64,
    /// The copy's TCP bytes as a share of all bytes of the whole input, of any protocol, 1 at most.
    pub whole_bytes: f64,
}

/// One interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IntervalOutcome {
    /// Seconds since the traffic began.
    pub start_s: f64,
    /// Its end, likewise.
    pub end_s: f64,
    /// Payload bytes of the model.
    pub bytes_target: u64,
    /// Payload bytes of the connections whose SYN the meter saw in it.
    pub bytes_generated: u64,
    /// Flows of the model.
    pub flows_target: u64,
    /// Connections whose SYN the meter saw in it.
    pub flows_generated: u64,
    /// Mean active sessions by Figure 4's algorithm.
    pub sessions_target: f64,
    /// Mean sessions that the plan switched on.
    pub sessions_generated: f64,
    /// IP packets that entered the device, both directions.
    pub packets: u64,
    /// IP bytes of those packets.
    pub ip_bytes: u64,
    /// Packets, both directions, of the original's connections that started in it; none where the model does
    /// not know whole connections.
    #[serde(default)]
    pub connection_packets_target: Option<u64>,
    /// Packets of the connections whose SYN the meter saw in it.
    #[serde(default)]
    pub connection_packets: u64,
    /// IP bytes of the original's connections, likewise.
    #[serde(default)]
    pub connection_ip_bytes_target: Option<u64>,
    /// IP bytes of the connections whose SYN the meter saw in it.
    #[serde(default)]
    pub connection_ip_bytes: u64,
}

/// Delay in a few numbers, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// 5th percentile.
    pub p5: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectionOutcome {
    /// `to_servers` or `to_clients`.
    pub name: String,
    /// Its packets.
    pub packets: Packets,
    /// Its delay through the device.
    pub delay_ns: Option<Delay>,
    /// Its delay over the bare wire.
    pub wire_delay_ns: Option<Delay>,
}

/// One host's interface: what the kernel counted against what the meter saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterfaceOutcome {
    /// `client` or `server`.
    pub name: String,
    /// Frames sent by the kernel's count.
    pub tx_packets: u64,
    /// Frames received by the kernel's count.
    pub rx_packets: u64,
    /// Outgoing frames that the meter saw.
    pub metered_tx: u64,
    /// Incoming frames that the meter saw.
    pub metered_rx: u64,
    /// Frames that were to be sent and found no room at the other end of the link.
    #[serde(default)]
    pub tx_dropped: u64,
    /// Frames that came and found no room, before the meter could see them.
    #[serde(default)]
    pub rx_dropped: u64,
    /// Frames of either way that are not IP, or are neighbour discovery.
    pub not_ip: u64,
}

/// What of the copy is not as the original was.
fn against_the_original(outcome: &Outcome, allows_few: bool) -> Vec<String> {
    let mut found = Vec::new();
    let number = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value:.3}"));
    for law in &outcome.likeness {
        let (name, distance, floor) = (&law.name, number(law.distance), number(law.floor_p95));
        match law.verdict {
            Verdict::Differs => found.push(format!(
                "{name} differs from the original's: {distance} {}, where second samples have {floor} or less",
                law.unit
            )),
            Verdict::TooFew if !allows_few => found.push(format!(
                "of {name} there is too little to tell; play longer (--duration), or pass --allow-few"
            )),
            Verdict::TooFew | Verdict::Alike | Verdict::NotPlayed => {}
        }
    }
    if let Some(coverage) = outcome.coverage {
        let shares = [("bytes", coverage.bytes), ("connections", coverage.flows)];
        for (what, share) in shares.into_iter().filter(|(_, share)| *share < COVERAGE_MIN) {
            found.push(format!("{:.1} % of the original's TCP {what} were played", 100.0 * share));
        }
        if !VOLUME_RATIO.contains(&coverage.volume_ratio) {
            let ratio = coverage.volume_ratio;
            found.push(format!("the copy has {ratio:.3} times the original's TCP payload"));
        }
    }
    found
}

/// What the device did beyond its bounds.
fn of_the_device(outcome: &Outcome, bounds: &Bounds) -> Vec<String> {
    let mut found = Vec::new();
    let (lost, entered) = (outcome.packets.lost, outcome.packets.entered);
    if lost as f64 > bounds.loss_max * entered as f64 {
        found.push(format!(
            "the device lost {lost} of {entered} packets ({:.2} %), over {} % (--loss-max)",
            100.0 * lost as f64 / entered.max(1) as f64,
            100.0 * bounds.loss_max
        ));
    }
    let wire_ns = outcome.wire_delay_ns.as_ref().map_or(0, |wire| wire.p99);
    if let Some(delay) = &outcome.delay_ns
        && delay.p99 as f64 > wire_ns as f64 + bounds.delay_max_ns
    {
        found.push(format!(
            "p99 delay (delay_ns.p99) is {:.3} ms, the bare wire's {:.3} ms: more than {} ms above it (--delay-max)",
            delay.p99 as f64 / 1e6,
            wire_ns as f64 / 1e6,
            bounds.delay_max_ns / 1e6
        ));
    }
    found
}

/// The bounds of `--check`: what is out of them, or rests on too few samples to tell, in plain words;
/// empty when all hold.
pub fn out_of_bounds(outcome: &Outcome, bounds: &Bounds) -> Vec<String> {
    let allows_few = bounds.allows_few;
    let mut found = against_the_original(outcome, allows_few);
    found.extend(of_the_device(outcome, bounds));
    let against_the_model = if outcome.likeness.is_empty() { &outcome.fidelity[..] } else { &[] };
    for figure in against_the_model {
        match figure.ratio {
            Some(_) if enough::is_too_few(&telling::figure(figure)) && allows_few => {}
            Some(_) if enough::is_too_few(&telling::figure(figure)) => found.push(format!(
                "of {} {} samples are too few to tell; play longer (--duration), or an input with more \
                 connections",
                figure.name, figure.count
            )),
            Some(ratio) if ratio <= 2.0 => {}
            Some(ratio) => found.push(format!("{} is {ratio:.2} x its floor, over 2", figure.name)),
            None => found.push(format!("{} has no floor to stand beside", figure.name)),
        }
    }
    if !outcome.execution.sizes_exact {
        found.push("file sizes are not byte-exact".to_owned());
    }
    // What was under way when the part ended is under way when the copy does.
    let is_part = outcome.part.is_some();
    let cut = if is_part { outcome.execution.unfinished } else { 0 };
    if outcome.execution.completed + cut != outcome.connections {
        let (done, planned) = (outcome.execution.completed, outcome.connections);
        found.push(format!("{done} of {planned} connections completed"));
    }
    // Another seed is another draw, whose intervals differ; the copy's rates are laws of their own.
    for interval in outcome.intervals.iter().filter(|_| !is_part) {
        let pairs = [
            ("payload bytes", interval.bytes_target, interval.bytes_generated),
            ("connections", interval.flows_target, interval.flows_generated),
        ];
        for (what, target, generated) in pairs {
            let off = generated as f64 / target.max(1) as f64 - 1.0;
            let by = target.abs_diff(generated);
            if 20 * by > target && by > 1 {
                let (start, percent) = (interval.start_s, off * 100.0);
                found.push(format!("{what} from {start:.0} s are off by {percent:+.1} %"));
            }
        }
    }
    if outcome.packets.meter_lost > 0 {
        found.push(format!("the meter lost {} packets", outcome.packets.meter_lost));
    }
    found
}
