//! The objects that the API answers with and is sent, besides those that have a room of their own.

use nilometer_sim::quantity::{de_size_if, rate, span};
use nilometer_wire::{Rate, Span};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::config::{FabricSection, Queueing, RouteSection};
use crate::filter::{ClassifierName, FilterSection};
use crate::pace::{checked_burst, checked_delay};
use crate::tally::PortTally;

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortView {
    /// Its number.
    pub number: usize,
    /// Its link-layer address.
    pub mac: String,
    /// The largest IP packet of its link, in bytes.
    pub mtu_bytes: u16,
    /// Its addresses, each with the length of its network.
    pub addresses: Vec<String>,
    /// The rate that its link is held to, in bits per second.
    pub rate_bps: Option<u64>,
    /// Bytes that its link sends at once beyond that rate when it was served late, where that was said.
    pub burst_bytes: Option<u64>,
    /// By how much its link is made longer, in microseconds.
    pub delay_us: f64,
    /// All that it is set to: its section of the configuration in force, with every parameter of its
    /// discipline. None for a spare port.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub settings: Option<serde_json::Value>,
    /// Its counters.
    #[serde(flatten)]
    pub counters: PortTally,
}

/// All ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortsView {
    /// By number.
    pub ports: Vec<PortView>,
    /// What looks routes up for all of them.
    #[serde(default)]
    pub engine: EngineBody,
}

/// The queues of an output's discipline, those that have or had packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueuesView {
    /// The output's port.
    pub port: usize,
    /// The discipline.
    pub discipline: String,
    /// Packets that wait in all of them.
    pub waiting_packets: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Packets that left the discipline for the link; those of shortcuts pass it by.
    pub sent_packets: u64,
    /// Their bytes, as the link's rate counts.
    pub sent_bytes: u64,
    /// Those asked for, by number; none where the discipline has one queue for all.
    pub queues: Vec<QueueView>,
    /// Where to ask for more.
    pub next: Option<u32>,
}

/// A queue of a discipline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// Its number.
    pub queue: u32,
    /// Packets that wait in it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its share of the link against the other queues' weights.
    pub weight: u32,
    /// Whether it takes part in the round.
    pub active: bool,
    /// Bytes that left it for the link.
    pub sent_bytes: u64,
    /// The average that its discipline keeps of what it sends, in bits per second; of TDRR only.
    pub throughput_bps: Option<f64>,
}

/// A filter, and what it met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FilterView {
    /// Its number: among equal priorities the lesser goes first.
    pub id: u32,
    /// Packets that it decided.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// What it says.
    pub filter: FilterSection,
}

/// Filters, by number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FiltersView {
    /// How many there are in all.
    pub count: usize,
    /// Those asked for.
    pub filters: Vec<FilterView>,
    /// How many there are behind them.
    pub more: usize,
    /// Where to ask for more.
    pub next: Option<u32>,
}

/// The number of what was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Made {
    /// The number.
    pub id: u32,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeighbourView {
    /// The port's number.
    pub port: usize,
    /// The port's interface.
    pub interface: String,
    /// Its address.
    pub address: String,
    /// Its link-layer address, where it is known.
    pub mac: Option<String>,
    /// A state of RFC 4861, 7.3.2, or `failed`, `permanent`.
    pub state: String,
}

/// Neighbours in both families.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeighboursView {
    /// How many there are in all.
    pub count: usize,
    /// The first 4,096.
    pub neighbours: Vec<NeighbourView>,
}

/// A way of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WayView {
    /// The port that it leaves by.
    pub interface: Option<String>,
    /// The gateway; none where the destination is on the link.
    pub gateway: Option<String>,
    /// What becomes of packets that do not leave by a port.
    pub fate: Option<String>,
    /// Its share against the other ways'.
    pub weight: u16,
}

/// A route as a source told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteView {
    /// Where to.
    pub prefix: String,
    /// Who told it: `local`, `connected`, `static`, `fpm` (zebra), `kernel`.
    pub source: String,
    /// By which protocol the source has it.
    pub protocol: String,
    /// How far it is trusted, the less the better.
    pub distance: u8,
    /// The source's preference.
    pub metric: u32,
    /// Whether packets go by it.
    pub best: bool,
    /// Which way.
    pub ways: Vec<WayView>,
}

/// How many routes a source has told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceView {
    /// Who.
    pub source: String,
    /// Of IPv4.
    pub v4: usize,
    /// Of IPv6.
    pub v6: usize,
    /// Whether it is telling everything again; what it does not repeat goes at the end.
    pub replaying: bool,
    /// Whether it is there, where that can be known.
    pub connected: Option<bool>,
}

/// Which routes are asked for: of `prefix` alone, or a list by the other keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct RoutesAsked {
    /// A prefix, or an address for the longest that contains it: all that was told about it.
    pub prefix: Option<String>,
    /// A list of routes within this prefix, itself included.
    pub within: Option<String>,
    /// A list of routes of this source: `local`, `connected`, `static`, `fpm`, `kernel`.
    pub source: Option<String>,
    /// A list of routes behind this prefix, IPv4 before IPv6.
    pub after: Option<String>,
    /// A list of at most so many routes, 1 to 10,000; 1,000 where it is not said.
    pub most: Option<usize>,
}

/// Routes, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoutesView {
    /// IPv4 prefixes that have a route.
    pub prefixes_v4: usize,
    /// IPv6 prefixes that have a route.
    pub prefixes_v6: usize,
    /// How many each source has told.
    pub sources: Vec<SourceView>,
    /// All that was told about the prefix, or about the longest that contains the address, the best
    /// first; of a list those that packets go by, by prefix.
    pub routes: Vec<RouteView>,
    /// Routes of a list that are behind those.
    pub more: usize,
    /// Where to ask for them: the `after` of the next request.
    pub next: Option<String>,
    /// Routes entered by hand, where nothing was asked for, or for the beginning of the list of all.
    pub entered: Vec<RouteSection>,
}

/// The lookup engines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EngineBody {
    /// Of IPv4: `lines`, `wide_lines` or `tree_bitmap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v4: Option<String>,
    /// Of IPv6: `lines`, `wide_lines` or `tree_bitmap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6: Option<String>,
}

/// The classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassifierBody {
    /// What finds the filter of a packet.
    pub classifier: ClassifierName,
}

/// A rate for a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateBody {
    /// As `500 Mb/s` or `500mbit`; nothing lets the device alone limit it.
    pub rate: Option<String>,
    /// Bytes that the link may send at once beyond the rate when it was served late, up to 1 GiB,
    /// as a number or as `64 kB`; where absent, what it was.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "de_size_if")]
    pub burst_bytes: Option<u64>,
}

/// A delay for a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DelayBody {
    /// As `20 ms`.
    pub delay: String,
}

/// What is to be otherwise in the fabric; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FabricBody {
    /// The equations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queueing: Option<Queueing>,
    /// How many times as fast as a link the fabric is, 1 to 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<f64>,
    /// Time between broadcasts, as `500 us`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// The rate of a link into the fabric, as `10 Gb/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_rate: Option<String>,
    /// `B_min` of equations 5 and 6, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_backlog_bytes: Option<u64>,
}

impl FabricBody {
    /// The section that comes of it.
    ///
    /// # Errors
    /// One line with the field.
    pub fn over(self, old: &FabricSection) -> Result<FabricSection, String> {
        let told = |key: &'static str| move |why: String| format!("{key}: {why}");
        let mut new = old.clone();
        new.queueing = self.queueing.unwrap_or(new.queueing);
        new.speedup = self.speedup.unwrap_or(new.speedup);
        if !(1.0..=64.0).contains(&new.speedup) {
            return Err(format!("speedup is {}; give 1 to 64", new.speedup));
        }
        if let Some(text) = self.period {
            new.period = span(&text).map_err(told("period"))?;
        }
        if let Some(text) = self.link_rate {
            new.link_rate = rate(&text).map_err(told("link_rate"))?;
        }
        new.minimum_backlog_bytes = self.minimum_backlog_bytes.unwrap_or(new.minimum_backlog_bytes);
        Ok(new)
    }
}

impl RateBody {
    /// The rate.
    ///
    /// # Errors
    /// When it is none, or the burst is out of range.
    pub fn rate(&self) -> Result<Option<Rate>, String> {
        self.burst_bytes.map_or(Ok(()), checked_burst)?;
        self.rate.as_deref().map(rate).transpose()
    }
}

impl DelayBody {
    /// The delay.
    ///
    /// # Errors
    /// When it is none.
    pub fn delay(&self) -> Result<Span, String> {
        checked_delay(span(&self.delay)?)
    }
}
