//! `result.json`: the outcome of a run, under names fixed for scripts.

use nilometer_likeness::Likeness;
use nilometer_linux::port::PortStatistics;
use nilometer_linux::scheduling::Granted;
use nilometer_sim::fault::FaultCounts;
use nilometer_traffic::fidelity::Fidelity;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::part::Part;
use super::planning::hex;
use super::round_trips::RoundTripsOutcome;
use super::router::RouterOutcome;
use super::simulated_outcome::{Lateness, SimulatedOutcome};
use crate::device::fault::FaultSeen;
pub use nilometer_report::story::PacketCounts as Packets;

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
    /// The clock of the run: `real` or `virtual`.
    #[serde(default)]
    pub clock: String,
    /// Whose TCP the hosts had: `kernel` or `simulated`.
    #[serde(default)]
    pub hosts: String,
    /// The greatest number of connections that were open at once, each from its beginning until its end.
    #[serde(default)]
    pub open_max: u64,
    /// Events of simulated hosts that were handled later than `simulated.late_bound_ns` after they were due;
    /// none where the hosts are the kernel's, which does not report it.
    #[serde(default)]
    pub late_events: Option<u64>,
    /// How late they were, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Lateness>,
    /// What simulated hosts did beside their connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedOutcome>,
    /// SHA-256 of this result without machine, commit, paths, scheduling and this digest: two runs in virtual
    /// time have the same one where nothing differs.
    #[serde(default)]
    pub outcome_digest: String,
    /// The input: `embedded` or the inputs' names.
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
    /// How much of the original's part the copy performed; as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<CoverageOutcome>,
    /// Hosts of the original that share an address with another.
    #[serde(default)]
    pub hosts_folded: u64,
    /// The metered copy compared with the original's part, law by law; empty where that was not known packet
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
    /// Delay by the path through our router, where it was the device: offloaded to the kernel or through the pipeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_by_path: Vec<PathDelay>,
    /// How packets were stamped.
    pub stamps: String,
    /// How timed threads were scheduled while the device was tested, by role.
    #[serde(default)]
    pub scheduling: Vec<Granted>,
    /// What processors did meanwhile that had nothing to do: `kept awake`, or `halted` and why they were not.
    #[serde(default)]
    pub idle_processors: String,
    /// Time stolen by a hypervisor meanwhile, in percent of all processors.
    #[serde(default)]
    pub stolen_percent: f64,
    /// Time used by other processes and the kernel meanwhile, in percent of all processors.
    #[serde(default)]
    pub others_percent: f64,
    /// The hosts' interfaces against the meter.
    pub interfaces: Vec<InterfaceOutcome>,
    /// What our router counted, where it was the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterOutcome>,
    /// The fault box's account, where it was the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultOutcome>,
    /// The account of the path in front of the device, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<FaultOutcome>,
    /// The account of the path behind the device, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rear_path: Option<FaultOutcome>,
    /// The original's round trips that these paths play.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<RoundTripsOutcome>,
    /// What makes a figure suspect, in plain words.
    pub warnings: Vec<String>,
    /// How many of them, from the first, were reported before the traffic began.
    #[serde(skip)]
    pub said_before: usize,
    /// Absolute path of the page.
    pub report: String,
}

/// Members of a result that are the machine's and not the run's.
const OF_THE_MACHINE: [&str; 8] = [
    "version",
    "commit",
    "outcome_digest",
    "scheduling",
    "idle_processors",
    "stolen_percent",
    "others_percent",
    "report",
];

impl Outcome {
    /// What [`Outcome::outcome_digest`] is to be: of the members in the order of their names.
    pub fn digest_of_all(&self) -> String {
        let mut value = serde_json::to_value(self).expect("a result is JSON");
        if let Some(members) = value.as_object_mut() {
            members.retain(|name, _| !OF_THE_MACHINE.contains(&name.as_str()));
        }
        let mut hash = Sha256::new();
        canonical(&value, &mut hash);
        hex(&hash.finalize())
    }
}

/// Adds a value to a digest, the members of objects in the order of their names.
fn canonical(value: &Value, hash: &mut Sha256) {
    match value {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            hash.update([b'{']);
            for name in names {
                hash.update(name.as_bytes());
                hash.update([b':']);
                canonical(&members[name], hash);
            }
            hash.update([b'}']);
        }
        Value::Array(items) => {
            hash.update([b'[']);
            items.iter().for_each(|item| canonical(item, hash));
            hash.update([b']']);
        }
        plain => {
            hash.update(plain.to_string().as_bytes());
            hash.update([b',']);
        }
    }
}

/// A fault box's account, both directions together; `fault.ndjson`, `path.ndjson` or `rear-path.ndjson` has each
/// packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultOutcome {
    /// Its specification, as it was written, and how many address pairs have paths of their own.
    pub faults: String,
    /// Packets that came in.
    pub received: u64,
    /// Packets that left, copies included.
    pub sent: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Packets that found the link's queue full.
    pub discarded: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// Packets that were still in it at the end.
    pub inside: u64,
    /// Packets that never reached it: its ports had no room.
    pub unheard: u64,
    /// Packets beyond those that its file has.
    pub beyond: u64,
    /// Packets that left it and no port took.
    pub unsent: u64,
    /// Problems of its ports.
    pub notes: Vec<String>,
}

impl From<&FaultSeen> for FaultOutcome {
    fn from(seen: &FaultSeen) -> FaultOutcome {
        let FaultCounts { received, sent, lost, corrupted, duplicated, reordered, discarded } =
            seen.counts;
        FaultOutcome {
            faults: seen.paths.description(),
            received,
            sent,
            lost,
            discarded,
            duplicated,
            reordered,
            corrupted,
            inside: seen.inside,
            unheard: seen.ports.iter().map(PortStatistics::rx_lost).sum(),
            beyond: seen.beyond,
            unsent: seen.unsent + seen.ports.iter().map(|port| port.tx_invalid).sum::<u64>(),
            notes: seen.opened.clone(),
        }
    }
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
    /// Distances of the measurements to the plan's own laws, where `fidelity` refers to the original.
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
    /// TCP packets of the copy divided by those that the original's capture has.
    pub packets: f64,
    /// TCP payload of the copy divided by that of the original, each byte of sequence space once:
    /// retransmissions are due to paths and not to the traffic, and bytes that the original's capture lost
    /// (by its sequence numbers) were sent all the same. 1 where neither has any.
    pub volume_ratio: f64,
    /// TCP bytes of the copy, from the IP header on and including retransmissions, divided by the original's.
    pub octets_ratio: f64,
    /// UDP's share of the bytes of the original's part, 0 to 1: it is not played.
    pub udp_share: f64,
    /// The share of protocols other than TCP and UDP.
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
    /// IP bytes of the original's connections, where they are known.
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

/// Delay of the packets that took one path through our router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathDelay {
    /// `offloaded`, `pipeline`, or `undetermined`, where the flow's offload began or ended while the packet was there.
    pub path: String,
    /// Packets that were forwarded.
    pub packets: u64,
    /// Their delay, ns.
    pub delay_ns: Delay,
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

/// One host's interface: the kernel's counts and the meter's.
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
