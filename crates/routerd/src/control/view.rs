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
    /// MAC address.
    pub mac: String,
    /// MTU in bytes.
    pub mtu_bytes: u16,
    /// Addresses with prefix lengths.
    pub addresses: Vec<String>,
    /// Rate limit of its link, in bits per second.
    pub rate_bps: Option<u64>,
    /// Burst that its link may send above that rate after late service, in bytes, if configured.
    pub burst_bytes: Option<u64>,
    /// Added link delay in microseconds.
    pub delay_us: f64,
    /// Its section of the running configuration, with every parameter of its discipline. Absent for a spare port.
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
    /// The lookup engines of the router.
    #[serde(default)]
    pub engine: EngineBody,
}

/// The queues of an output's discipline that hold or held packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueuesView {
    /// The output's port.
    pub port: usize,
    /// The discipline.
    pub discipline: String,
    /// Packets waiting in all queues.
    pub waiting_packets: u64,
    /// Bytes waiting in all queues.
    pub waiting_bytes: u64,
    /// Packets sent by the discipline; shortcuts bypass it.
    pub sent_packets: u64,
    /// Bytes sent by the discipline, counted as for the link's rate.
    pub sent_bytes: u64,
    /// The requested queues, by number; empty if the discipline has a single queue.
    pub queues: Vec<QueueView>,
    /// First queue number of the next page.
    pub next: Option<u32>,
}

/// A queue of a discipline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// Its number.
    pub queue: u32,
    /// Packets waiting in it.
    pub packets: u64,
    /// Bytes waiting in it.
    pub bytes: u64,
    /// Weight relative to the other queues.
    pub weight: u32,
    /// Whether it takes part in the round robin.
    pub active: bool,
    /// Bytes sent from it.
    pub sent_bytes: u64,
    /// The average throughput that its discipline keeps, in bits per second; TDRR only.
    pub throughput_bps: Option<f64>,
}

/// A filter and its counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FilterView {
    /// Its number; among equal priorities the smaller is matched first.
    pub id: u32,
    /// Packets that matched.
    pub packets: u64,
    /// Bytes that matched, from the IP header on.
    pub bytes: u64,
    /// The filter itself.
    pub filter: FilterSection,
}

/// Filters, by number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FiltersView {
    /// Total number of filters.
    pub count: usize,
    /// The requested filters.
    pub filters: Vec<FilterView>,
    /// Number of filters after those listed.
    pub more: usize,
    /// First filter number of the next page.
    pub next: Option<u32>,
}

/// The number of a new object.
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
    /// IP address.
    pub address: String,
    /// MAC address, if known.
    pub mac: Option<String>,
    /// A state of RFC 4861, 7.3.2, or `failed`, `permanent`.
    pub state: String,
}

/// Neighbours in both families.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeighboursView {
    /// Total number of neighbours.
    pub count: usize,
    /// The first 4,096.
    pub neighbours: Vec<NeighbourView>,
}

/// A next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WayView {
    /// Output port.
    pub interface: Option<String>,
    /// The gateway; absent if the destination is on-link.
    pub gateway: Option<String>,
    /// Action for packets that are not forwarded to a port.
    pub fate: Option<String>,
    /// Weight relative to the other next hops.
    pub weight: u16,
}

/// A route as announced by one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteView {
    /// Destination prefix.
    pub prefix: String,
    /// Source of the route: `local`, `connected`, `static`, `fpm` (zebra), `kernel`.
    pub source: String,
    /// Protocol from which the source learned it.
    pub protocol: String,
    /// Administrative distance; lower is preferred.
    pub distance: u8,
    /// Metric of the source.
    pub metric: u32,
    /// Whether it is the best route, which packets take.
    pub best: bool,
    /// Next hops.
    pub ways: Vec<WayView>,
}

/// Number of routes by source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceView {
    /// The source.
    pub source: String,
    /// IPv4 routes.
    pub v4: usize,
    /// IPv6 routes.
    pub v6: usize,
    /// Whether it is announcing its routes again; routes not repeated are removed at the end.
    pub replaying: bool,
    /// Whether it is connected, if known.
    pub connected: Option<bool>,
}

/// Query for routes: either a single `prefix`, or a list selected by the other keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
pub struct RoutesQuery {
    /// A prefix, or an address to be matched by its longest prefix: all routes to it.
    pub prefix: Option<String>,
    /// List routes within this prefix, including itself.
    pub within: Option<String>,
    /// List routes of this source: `local`, `connected`, `static`, `fpm`, `kernel`.
    pub source: Option<String>,
    /// List routes after this prefix, IPv4 before IPv6.
    pub after: Option<String>,
    /// Page size, 1 to 10,000; default 1,000.
    pub most: Option<usize>,
}

/// Routes and their number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoutesView {
    /// Number of IPv4 prefixes with a route.
    pub prefixes_v4: usize,
    /// Number of IPv6 prefixes with a route.
    pub prefixes_v6: usize,
    /// Routes by source.
    pub sources: Vec<SourceView>,
    /// All routes to the prefix, or to the longest prefix that contains the address, best first. In a list, the best
    /// routes only, by prefix.
    pub routes: Vec<RouteView>,
    /// Number of routes after those listed.
    pub more: usize,
    /// Value of `after` for the next page.
    pub next: Option<String>,
    /// Static routes, returned without a query and on the first page of the full list.
    pub entered: Vec<RouteSection>,
}

/// The lookup engines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EngineBody {
    /// IPv4: `lines`, `wide_lines` or `tree_bitmap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v4: Option<String>,
    /// IPv6: `lines`, `wide_lines` or `tree_bitmap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6: Option<String>,
}

/// The classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassifierBody {
    /// The classification algorithm.
    pub classifier: ClassifierName,
}

/// A rate limit for a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateBody {
    /// Such as `500 Mb/s` or `500mbit`; null removes the limit.
    pub rate: Option<String>,
    /// Burst that the link may send above the rate after late service, up to 1 GiB, as a number of bytes or such as
    /// `64 kB`; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "de_size_if")]
    pub burst_bytes: Option<u64>,
}

/// A delay for a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DelayBody {
    /// Such as `20 ms`.
    pub delay: String,
}

/// Changes to the fabric; absent fields are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FabricBody {
    /// The equations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queueing: Option<Queueing>,
    /// Speedup: fabric rate relative to a link's, 1 to 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<f64>,
    /// Time between broadcasts, such as `500 us`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// Rate of a link into the fabric, such as `10 Gb/s`.
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
        let with_key = |key: &'static str| move |why: String| format!("{key}: {why}");
        let mut new = old.clone();
        new.queueing = self.queueing.unwrap_or(new.queueing);
        new.speedup = self.speedup.unwrap_or(new.speedup);
        if !(1.0..=64.0).contains(&new.speedup) {
            return Err(format!("speedup is {}; give 1 to 64", new.speedup));
        }
        if let Some(text) = self.period {
            new.period = span(&text).map_err(with_key("period"))?;
        }
        if let Some(text) = self.link_rate {
            new.link_rate = rate(&text).map_err(with_key("link_rate"))?;
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
