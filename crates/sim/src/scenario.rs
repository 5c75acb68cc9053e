//! A scenario as it stands in a TOML file, every parameter already in its place.
//!
//! Hosts come in groups of equals, routers one by one. A link joins two of them in both directions;
//! a link of a group is one for each host of the group. Flows and datagrams go from group to group
//! over the path with the fewest links, the first declared of those.

use alloc::string::String;
use alloc::vec::Vec;

use nilometer_wire::{Rate, Span};
use serde::Deserialize;

use crate::quantity::{de_rate, de_rate_if, de_span, de_span_if};
use crate::queueing::QueueSpec;
use crate::stack::{FlowSpec, reno};

/// The version of the format that this is.
pub const VERSION: u32 = 1;
/// Bytes that wait at most where a link has no queue of its own: enough to lose nothing.
pub const FIFO_BYTES: u64 = 15_000_000;
/// The longest packet of a link without a setting, bytes.
pub const MTU_BYTES: u32 = 1_500;

/// A scenario at one point of its sweep.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// [`VERSION`].
    pub version: u32,
    /// A word, as it is typed on the command line.
    pub name: String,
    /// One line for people.
    #[serde(default)]
    pub about: String,
    /// What kind of scenario: a network where absent.
    #[serde(default)]
    pub kind: ScenarioKind,
    /// Simulated seconds of a run.
    pub duration_s: f64,
    /// Seed of the first run.
    #[serde(default = "one")]
    pub seed: u64,
    /// Runs at each point, with seeds that follow each other.
    #[serde(default = "once")]
    pub seeds: u32,
    /// Groups of hosts.
    #[serde(default)]
    pub host: Vec<Host>,
    /// Routers: without a file they forward and take no time.
    #[serde(default)]
    pub router: Vec<Router>,
    /// Links.
    #[serde(default)]
    pub link: Vec<LinkSpec>,
    /// TCP flows.
    #[serde(default)]
    pub flow: Vec<FlowSpec>,
    /// Sources of datagrams.
    #[serde(default)]
    pub datagrams: Vec<DatagramSpec>,
    /// Traffic models.
    #[serde(default)]
    pub model: Vec<ModelSpec>,
    /// What is measured.
    pub measure: Measure,
}

/// Kinds of scenarios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScenarioKind {
    /// Hosts, routers, links and flows.
    #[default]
    Network,
    /// The stress test of distributed queueing (DER, section 8.1).
    Stress,
}

/// `[[host]]`: equal hosts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Name of the group.
    pub name: String,
    /// How many there are.
    #[serde(default = "once")]
    pub count: u32,
}

/// `[[router]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// Its name.
    pub name: String,
    /// A ROUTER.toml beside the scenario's file that describes it, with its links as ports.
    #[serde(default)]
    pub file: Option<String>,
}

/// `[[link]]`: a wire with a transmitter at each end.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// A host group or a router.
    pub from: String,
    /// Another.
    pub to: String,
    /// Rate from `from` to `to`.
    #[serde(deserialize_with = "de_rate")]
    pub rate: Rate,
    /// Rate on the way back; the same where absent.
    #[serde(default, deserialize_with = "de_rate_if")]
    pub rate_back: Option<Rate>,
    /// Propagation time, one way, in both directions.
    #[serde(default = "no_time", deserialize_with = "de_span")]
    pub delay: Span,
    /// Longest random time that either end takes before each packet of a plain FIFO: the processing
    /// of a host, which keeps flows from locking into phase.
    #[serde(default = "no_time", deserialize_with = "de_span")]
    pub overhead: Span,
    /// Longest packet, bytes.
    #[serde(default = "mtu")]
    pub mtu: u32,
    /// What waits at `from`; a plain FIFO of [`LinkSpec::fifo_bytes`] where absent.
    pub queue: Option<QueueSpec>,
    /// What waits at `to`; a plain FIFO where absent.
    pub queue_back: Option<QueueSpec>,
    /// A plain FIFO refuses a packet when more bytes than this wait before it.
    #[serde(default = "fifo_bytes")]
    pub fifo_bytes: u64,
    /// Probability that a packet is lost before the queue at `from`.
    #[serde(default)]
    pub loss: f64,
    /// Every nth packet is lost; 0 for none.
    #[serde(default)]
    pub loss_period: u64,
    /// Probability that a packet is damaged, and so dropped.
    #[serde(default)]
    pub corrupt: f64,
    /// Probability that a packet is sent twice.
    #[serde(default)]
    pub duplicate: f64,
    /// Probability that a packet is held back by [`LinkSpec::reorder_by`].
    #[serde(default)]
    pub reorder: f64,
    /// For how long.
    #[serde(default = "no_time", deserialize_with = "de_span")]
    pub reorder_by: Span,
    /// Losses in bursts.
    pub gilbert_elliott: Option<Bursts>,
}

/// The two states of Gilbert and Elliott, probabilities for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// From the good state to the bad one.
    pub worsens: f64,
    /// From the bad state to the good one.
    pub recovers: f64,
    /// Loss in the good state.
    #[serde(default)]
    pub loss_good: f64,
    /// Loss in the bad state.
    #[serde(default = "always")]
    pub loss_bad: f64,
}

/// `[[datagrams]]`: UDP that does not listen.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatagramSpec {
    /// The senders' group.
    pub from: String,
    /// The receivers' group.
    pub to: String,
    /// How many sources; the larger group's size where absent.
    pub count: Option<u32>,
    /// Mean rate of each source, headers included. This or `spacing`.
    #[serde(default, deserialize_with = "de_rate_if")]
    pub rate: Option<Rate>,
    /// Mean time from packet to packet.
    #[serde(default, deserialize_with = "de_span_if")]
    pub spacing: Option<Span>,
    /// Length of the IP packet, or its mean, bytes.
    pub size_bytes: u16,
    /// How packets are spaced.
    #[serde(default)]
    pub arrivals: Drawn,
    /// How long they are.
    #[serde(default)]
    pub sizes: Drawn,
    /// When the first may be sent, seconds.
    #[serde(default)]
    pub start_s: f64,
    /// When the last may be sent, seconds; the run's end where absent.
    pub end_s: Option<f64>,
}

/// How a number is drawn whose mean is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drawn {
    /// Always the mean.
    #[default]
    Constant,
    /// Exponential: as arrivals, a Poisson process.
    #[serde(alias = "poisson")]
    Exponential,
}

/// `[[model]]`: the plan of a traffic model, each connection a flow. With a model of whole sessions, both ends
/// replay the original's actions ([`crate::scripted`]), in its segments and with or without time stamps as it had;
/// with a model of laws alone, the server sends the file at once.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// The model's file.
    pub file: String,
    /// The servers' group, which sends the files.
    pub from: String,
    /// The clients' group.
    pub to: String,
    /// A stack by its name.
    #[serde(default = "reno")]
    pub tcp: String,
    /// Each connection of the model's sessions is played once, whatever the seed.
    #[serde(default)]
    pub exact: bool,
}

/// `[measure]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// The link whose flows, drops and load are reported.
    pub bottleneck: String,
    /// The length of the intervals for which percentiles of the datagrams' delays are reported; if
    /// absent, they are not.
    #[serde(default, deserialize_with = "de_span_if")]
    pub delays_every: Option<Span>,
}

fn one() -> u64 {
    1
}

fn once() -> u32 {
    1
}

fn always() -> f64 {
    1.0
}

fn no_time() -> Span {
    Span::ZERO
}

fn mtu() -> u32 {
    MTU_BYTES
}

fn fifo_bytes() -> u64 {
    FIFO_BYTES
}
