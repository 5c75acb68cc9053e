//! The story of one run: everything its page says, as the run writes it to `report.json`.
//!
//! The page is a pure function of this document, so it can be drawn again at any time. Curves are
//! lists of `[x, y]` pairs, thinned by the writer (see [`super::thin`]) to at most
//! [`POINTS_MAX`] points. What was not measured is `None` or an empty list, never a zero: the page
//! then says "not measured". A number that is not finite becomes `null` in JSON; reading it back
//! gives NaN, which the page shows as "not measured" too, and points holding one are left out.

use nilometer_likeness::Likeness;
use serde::{Deserialize, Serialize};

pub use super::inside::{LossRow, LossTable, Queue, QueueStep, Waiting};
use super::lenient;
pub use super::observed::{
    Comparison, Curve, DelaySecond, Direction, Fidelity, PacketCounts, Percentiles, Ranks,
    SizeClass, Trait,
};

/// The name and version of the document; the first member of `report.json`.
pub const FORMAT: &str = "nilometer-report 1";

/// The most points that a curve of the story should hold.
pub const POINTS_MAX: usize = 2_000;

/// Packets by the way that they took through our router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    /// Forwarded in the kernel, past the pipeline, by a shortcut.
    pub shortcut: u64,
    /// Through the pipeline, wholly or in part, and not by the slow path.
    pub pipeline: u64,
    /// By the slow path: ARP and neighbour discovery, errors, options, what is for the router itself.
    pub slow_path: u64,
}

/// Delay of the packets that took one path through our router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathDelay {
    /// The path: `offloaded`, `pipeline` or `undetermined`.
    pub path: String,
    /// Packets that were forwarded.
    pub packets: u64,
    /// Their delay, nanoseconds.
    pub delay_ns: Percentiles,
}

/// Everything one page says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Story {
    /// Always [`FORMAT`].
    pub format: Format,
    /// What was run, where and when.
    pub header: Header,
    /// What makes a figure suspect, in plain words; the first sentence of each is set in bold.
    pub warnings: Vec<String>,
    /// What this run did not measure, one plain sentence each.
    pub not_measured: Vec<String>,
    /// How much of the input the model covers.
    pub coverage: Coverage,
    /// Planned and generated volume, an entry for each interval, in order of time.
    pub intervals: Vec<Interval>,
    /// What the meter saw in each second, in order of time.
    pub seconds: Vec<Second>,
    /// How exactly the plan was carried out.
    pub execution: Execution,
    /// Distance between measured traffic and the model, beside its sampling floor.
    pub fidelity: Vec<Fidelity>,
    /// The copy compared with the original, law by law; empty where the original was not known packet by
    /// packet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub likeness: Vec<Likeness>,
    /// The copy's share of the original's TCP payload; `None` where the original was not known packet by
    /// packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub played: Option<f64>,
    /// How far active sessions are from the model's, interval by interval, as a share of the model's; `None`
    /// where the model has none, and in older reports, which do not state it. Its sampling floor is not
    /// known.
    pub sessions_off: Option<f64>,
    /// File sizes in payload bytes, measured against the model.
    pub file_size: Comparison,
    /// Inter-connection times in seconds, measured against the model.
    pub inter_connection: Comparison,
    /// How often each source address was drawn, by rank.
    pub source_rank: Ranks,
    /// How often each destination address was drawn, by rank.
    pub destination_rank: Ranks,
    /// Packets of both directions together.
    pub packets: PacketCounts,
    /// Delay through the device, both directions together.
    pub delay_ns: Option<Percentiles>,
    /// Delay over the bare wire (the calibration cable), both directions together.
    pub wire_delay_ns: Option<Percentiles>,
    /// Delay by the path through our router, where it was the device.
    pub delay_by_path: Vec<PathDelay>,
    /// Packets and delay, and the delay's course, for each direction; "to servers" first.
    pub directions: Vec<Direction>,
    /// Delay by size of packet, smallest class first.
    pub size_classes: Vec<SizeClass>,
    /// Which ways packets took through our router; `None` where the device was another, and in older
    /// reports, which do not state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<Paths>,
    /// Queues inside our router, the clients' port first; empty for other devices.
    pub queues: Vec<Queue>,
    /// Why our router did not pass on what was lost; `None` for other devices.
    pub losses: Option<LossTable>,
    /// The exact configuration used, as TOML.
    pub configuration: String,
    /// Machine, kernel, offloads, congestion control and the like, in order.
    pub machine: Vec<Fact>,
    /// The files of the result directory, each with its meaning in a line.
    pub files: Vec<FileNote>,
}

/// The document's name and version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format(pub String);

impl Default for Format {
    fn default() -> Self {
        Format(FORMAT.to_owned())
    }
}

/// What was run, where and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Name of the input, or of the embedded sample.
    pub input: String,
    /// Whether the input is synthetic.
    pub synthetic: bool,
    /// The device under test: `linux`, `wire`, ...
    pub dut: String,
    /// The seed of every chance.
    pub seed: u64,
    /// Version of the tool.
    pub version: String,
    /// Commit the tool was built from.
    pub commit: String,
    /// When the run began, as text.
    pub date: String,
    /// The machine in one line.
    pub machine: String,
    /// Whether the run was stopped before its plan ended.
    pub interrupted: bool,
    /// How long traffic was generated, in seconds.
    #[serde(deserialize_with = "lenient::number")]
    pub duration_s: f64,
    /// k: gaps and intervals of the input were divided by it; 1 leaves them alone.
    #[serde(deserialize_with = "lenient::number")]
    pub time_divisor: f64,
    /// The command that repeats the run.
    pub command: String,
    /// Digest of the traffic model.
    pub model_digest: String,
    /// Digest of the plan: every start, session, address and size.
    pub plan_digest: String,
    /// How packets were stamped and where, as a phrase.
    pub stamps: String,
}

impl Default for Header {
    fn default() -> Self {
        Header {
            input: String::new(),
            synthetic: false,
            dut: String::new(),
            seed: 0,
            version: String::new(),
            commit: String::new(),
            date: String::new(),
            machine: String::new(),
            interrupted: false,
            duration_s: 0.0,
            time_divisor: 1.0,
            command: String::new(),
            model_digest: String::new(),
            plan_digest: String::new(),
            stamps: String::new(),
        }
    }
}

/// How much of the input entered the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Coverage {
    /// Flows of the input.
    pub flows_total: u64,
    /// Flows that entered the model.
    pub flows_entered: u64,
    /// Bytes of the input.
    pub bytes_total: u64,
    /// Bytes that entered the model.
    pub bytes_entered: u64,
    /// Bytes of the input whose connections the plan performs; `None` in older reports, which do not state
    /// it.
    pub bytes_performed: Option<u64>,
    /// What was left out, by reason.
    pub left_out: Vec<LeftOut>,
}

/// Flows that did not enter the model, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// The reason, as a phrase.
    pub reason: String,
    /// How many flows.
    pub flows: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One interval of the plan, and what was generated in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// Start, seconds since the traffic began.
    #[serde(deserialize_with = "lenient::number")]
    pub start_s: f64,
    /// End, seconds since the traffic began.
    #[serde(deserialize_with = "lenient::number")]
    pub end_s: f64,
    /// Payload bytes planned.
    pub bytes_target: u64,
    /// Payload bytes of the connections whose SYN was seen here.
    pub bytes_generated: u64,
    /// Connections planned.
    pub flows_target: u64,
    /// Connections whose SYN was seen here.
    pub flows_generated: u64,
    /// Active sessions planned.
    pub sessions_target: u64,
    /// Active sessions generated.
    pub sessions_generated: u64,
    /// IP packets measured.
    pub packets: u64,
    /// IP bytes measured.
    pub ip_bytes: u64,
    /// IP packets of the same interval as captured, where the input tells.
    pub packets_captured: Option<u64>,
    /// IP bytes of the same interval as captured, where the input tells.
    pub ip_bytes_captured: Option<u64>,
}

/// What the meter saw in one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Second {
    /// Start, seconds since the traffic began.
    #[serde(deserialize_with = "lenient::number")]
    pub start_s: f64,
    /// Payload bytes, both directions.
    pub payload_bytes: u64,
    /// IP packets, both directions.
    pub packets: u64,
    /// Connections whose SYN was seen.
    pub flows: u64,
}

/// How exactly the plan was carried out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Execution {
    /// Connections planned.
    pub planned: u64,
    /// Connections that moved every byte.
    pub completed: u64,
    /// Connections that failed.
    pub failed: u64,
    /// Whether every completed connection moved its planned bytes, byte for byte.
    pub sizes_exact: Option<bool>,
    /// Sessions that had to share an address pair with another.
    pub collisions: u64,
    /// How late connections started.
    pub lateness: Option<Lateness>,
    /// How many connections started how late; may be empty.
    pub lateness_histogram: Vec<LatenessBin>,
}

/// How late connections started after their planned moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Median, nanoseconds.
    #[serde(deserialize_with = "lenient::number")]
    pub p50_ns: f64,
    /// 99th percentile, nanoseconds.
    #[serde(deserialize_with = "lenient::number")]
    pub p99_ns: f64,
    /// The latest, nanoseconds.
    #[serde(deserialize_with = "lenient::number")]
    pub max_ns: f64,
}

/// A bin of the lateness histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatenessBin {
    /// Lower bound, nanoseconds; may be zero.
    #[serde(deserialize_with = "lenient::number")]
    pub low_ns: f64,
    /// Upper bound, nanoseconds.
    #[serde(deserialize_with = "lenient::number")]
    pub high_ns: f64,
    /// Connections in it.
    pub count: u64,
}

/// A name and its value, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// A file beside the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileNote {
    /// Its name, relative to the page.
    pub name: String,
    /// What it holds, in a line.
    pub meaning: String,
}
