//! ROUTER.toml: the configuration of a router, as its operator writes it.
//!
//! Every table refuses unknown keys. An absent key has the default given at its field. Rates and times are
//! written with their units (`500 Mb/s` or `500mbit`, `20 ms`), as in a scenario; the table of a queue is
//! the same as there, but that it may leave its size out.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use nilometer_router::Engine;
use nilometer_router::classifier::Inputs;
use nilometer_router::pipeline::port::PortPlan;
use nilometer_sim::quantity::{
    de_rate, de_rate_if, de_size_if, de_span, ser_rate, ser_rate_if, ser_span,
};
use nilometer_sim::queueing::QueueSpec;
use nilometer_wire::{Rate, Span};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

pub use super::address::AddressSection;
use super::filter::{ClassifierName, FilterSection, Side};
use super::multicast::MulticastSection;
use super::plugins::{ClassSources, NewInstance, PluginSection};
use super::reservations::ReservationsSection;
use super::rfc1812::Rfc1812Section;

/// A ROUTER.toml with every key.
pub const TEMPLATE: &str = include_str!("../../../examples/router.toml");

/// Ports that a router may have, spare ones included.
pub const PORTS_MAX: usize = 128;
/// A filter can name every port that a router can have.
const _: () = assert!(PORTS_MAX <= Inputs::PORTS_MAX);

/// A ROUTER.toml.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouterConfig {
    /// Seed of random choices: equal paths, hashing, jitter.
    pub seed: u64,
    /// How long the router polls for the next frame after one was moved before it sleeps, in microseconds, 0
    /// to 10,000. That saves the wake-up; polling costs at most 60 % of a processor.
    pub spin_us: u32,
    /// Packet memory.
    pub memory: MemorySection,
    /// The fabric between inputs and outputs.
    pub fabric: FabricSection,
    /// Tables.
    pub tables: TablesSection,
    /// Host behaviour, ICMP messages and options (RFC 1812).
    #[serde(alias = "manners")]
    pub rfc1812: Rfc1812Section,
    /// Bandwidth that flows may reserve.
    pub reservations: ReservationsSection,
    /// Where the router is spoken to.
    pub control: ControlSection,
    /// Ports, numbered from 0 in this order.
    #[serde(rename = "port")]
    pub ports: Vec<PortSection>,
    /// Routes entered by hand.
    #[serde(rename = "route")]
    pub routes: Vec<RouteSection>,
    /// Neighbours entered by hand.
    #[serde(rename = "neighbour")]
    pub neighbours: Vec<NeighbourSection>,
    /// Filters; the first that matches counts.
    #[serde(rename = "filter")]
    pub filters: Vec<FilterSection>,
    /// Plugin instances, which filters name.
    #[serde(rename = "plugin", skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<PluginSection>,
}

/// `[memory]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySection {
    /// Buffers, 64 to 1,048,576.
    pub buffers: u32,
    /// Bytes of each: 2048, for an MTU of up to 1,770, or 4096, for up to 3,818.
    pub buffer_bytes: u32,
}

impl Default for MemorySection {
    fn default() -> MemorySection {
        MemorySection { buffers: 32_768, buffer_bytes: 2_048 }
    }
}

/// `[fabric]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FabricSection {
    /// `original` (equations 1 to 4), `reserved` (3 to 6), `dq_plus` (the same, and what a row leaves
    /// is reallocated), or `off`, where arrivals cross at once.
    pub queueing: Queueing,
    /// How many times as fast as a link the fabric is.
    pub speedup: f64,
    /// The rate `L` of a link into the fabric.
    #[serde(deserialize_with = "de_rate", serialize_with = "ser_rate")]
    pub link_rate: Rate,
    /// Time between broadcasts.
    #[serde(deserialize_with = "de_span", serialize_with = "ser_span")]
    pub period: Span,
    /// `B_min` of equations 5 and 6, bytes.
    pub minimum_backlog_bytes: u64,
    /// Packets that may wait at an input.
    pub input_packets: u64,
    /// Packets of those that each of its queues has for itself, whatever the others hold; half of them,
    /// divided by the ports, where absent, or less if the memory does not hold that. An output within its fair
    /// share of an input's link loses nothing while its burst, and what the share carries in two periods, is
    /// within this; with many ports or small packets the usual reserve is less than those two periods.
    pub reserve_packets: Option<u64>,
    /// How much of what is free of the rest a queue may use, a power of two from 1/128 to 128: with 2, one
    /// that is overloaded alone has two thirds of the rest, and two have two fifths each.
    pub alpha: f64,
    /// Whether packets cross in cells of 53 bytes, with an AAL5 trailer.
    pub cells: bool,
    /// Ports that are kept free for interfaces that come later.
    pub spare_ports: usize,
}

impl Default for FabricSection {
    fn default() -> FabricSection {
        FabricSection {
            queueing: Queueing::DqPlus,
            speedup: 2.0,
            link_rate: Rate::from_megabits(10_000),
            period: Span::from_nanos(500_000),
            minimum_backlog_bytes: 1_500,
            input_packets: 4_096,
            reserve_packets: None,
            alpha: 2.0,
            cells: false,
            spare_ports: 0,
        }
    }
}

/// The equations of distributed queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Queueing {
    /// No distributed queueing.
    Off,
    /// Equations 1 to 4.
    Original,
    /// Equations 3 to 6.
    Reserved,
    /// Equations 3 to 6 with reallocation.
    DqPlus,
}

/// `[tables]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TablesSection {
    /// Where IPv4 routes are looked up: `lines`, the fastest, for up to 254 next hops; `wide_lines`;
    /// `tree_bitmap`, of which updates are cheap.
    #[serde(deserialize_with = "de_engine", serialize_with = "ser_engine")]
    pub engine_v4: Engine,
    /// Where IPv6 routes are looked up, by the same names.
    #[serde(deserialize_with = "de_engine", serialize_with = "ser_engine")]
    pub engine_v6: Engine,
    /// IPv4 routes that there is room for.
    pub routes_v4: usize,
    /// IPv6 routes that there is room for.
    pub routes_v6: usize,
    /// Filters of each family that there is room for.
    pub filters: u32,
    /// What finds the filter of a packet.
    pub classifier: ClassifierName,
    /// Flows that may take a shortcut in the kernel at once, a power of two from 64 to 1,048,576; with 0,
    /// every packet passes the pipeline, as it does while [`FabricSection::queueing`] is not `off`
    /// ([`nilometer_router::pipeline::shortcut`]).
    pub shortcuts: usize,
}

impl Default for TablesSection {
    fn default() -> TablesSection {
        TablesSection {
            engine_v4: Engine::TreeBitmap,
            engine_v6: Engine::TreeBitmap,
            routes_v4: 2_000_000,
            routes_v6: 500_000,
            filters: 65_536,
            classifier: ClassifierName::Vectors,
            shortcuts: 32_768,
        }
    }
}

fn de_engine<'de, D: Deserializer<'de>>(from: D) -> Result<Engine, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

fn ser_engine<S: Serializer>(engine: &Engine, to: S) -> Result<S::Ok, S::Error> {
    engine.name().serialize(to)
}

/// `[control]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlSection {
    /// A Unix socket for `route ctl`; made with mode 0600, and removed at the end.
    pub socket: Option<PathBuf>,
    /// An address for HTTP; anything but loopback needs a token.
    pub listen: Option<SocketAddr>,
    /// A file whose first line every request over HTTP must carry.
    pub token_file: Option<PathBuf>,
    /// Where FRR's zebra brings its routes: the address at which its forwarding plane manager's protocol
    /// is listened for.
    pub fpm: Option<SocketAddr>,
    /// Where an SNMP daemon listens for AgentX: an address and a port, or the path of a socket.
    pub agentx: Option<String>,
    /// The code server from which plugin classes come that are not installed, as `http://HOST:PORT`.
    pub code_server: Option<String>,
    /// Where plugins, trusted keys and revocations are; where `nilometer plugin install` puts them if absent.
    pub plugin_directory: Option<PathBuf>,
    /// Whether the kernel's routes of this namespace, in its tables `main` and `local`, are followed.
    pub kernel_routes: bool,
}

/// `[[port]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSection {
    /// The interface, in the network namespace that the router is started in. It is to be up, and to
    /// have no addresses there: they are the router's.
    pub interface: String,
    /// How frames get in and out.
    #[serde(default)]
    pub kind: PortKind,
    /// Its addresses, each with the length of its network.
    #[serde(default)]
    pub addresses: Vec<AddressSection>,
    /// The rate to which its link is held; without one, only the device limits it.
    #[serde(default, deserialize_with = "de_rate_if", serialize_with = "ser_rate_if")]
    pub rate: Option<Rate>,
    /// Bytes that its link sends at once beyond that rate, to make up for service that came late (the
    /// committed burst size of RFC 2697), up to 1 GiB, as a number or as `64 kB`; what the rate carries in
    /// 50 ms where absent.
    #[serde(default, deserialize_with = "de_size_if")]
    pub burst_bytes: Option<u64>,
    /// By how much its link is made longer, up to a minute.
    #[serde(default = "no_span", deserialize_with = "de_span", serialize_with = "ser_span")]
    pub delay: Span,
    /// Bytes that the link adds to each frame, as the rate counts: 24 on Ethernet.
    #[serde(default)]
    pub overhead_bytes: u16,
    /// The queue before the link; `qsdrr` with 2,048 packets where absent. A queue without a size holds what
    /// the rate carries in 50 ms ([`super::queue_size`]).
    #[serde(default)]
    pub queue: Option<QueueSpec>,
    /// A TAP interface to be made, on which the kernel gets packets for the router itself.
    #[serde(default)]
    pub punt: Option<String>,
    /// Whether sources are tested by the way back (RFC 3704).
    #[serde(default)]
    pub reverse_path: ReversePath,
    /// Whether hosts get redirects to a better router on their network (RFC 1812, 5.2.7.2).
    #[serde(default = "yes")]
    pub redirects: bool,
    /// Whether packets of others are forwarded from here and to here (RFC 1812, 5.3.11).
    #[serde(default = "yes")]
    pub forwards: bool,
    /// How many probes for a duplicate are sent before an IPv6 address is used; 0 takes addresses at once.
    #[serde(default = "one_probe")]
    pub address_probes: u8,
    /// Passes checksums on that a sending kernel left to its card, as hosts behind a veth do.
    #[serde(default = "yes")]
    pub partial_checksums: bool,
    /// Whether a single processor takes what arrives at a veth, so that packets sent from several processors
    /// keep their order. Otherwise the sending processor also forwards the packet, as in the kernel, at less
    /// cost.
    #[serde(default = "yes")]
    pub keeps_order: bool,
    /// Whether the interface may be absent at the start; it is taken when it comes. One that goes and
    /// comes again is taken again in any case.
    #[serde(default)]
    pub hotplug: bool,
    /// Its multicast settings; it serves no groups where absent.
    #[serde(default)]
    pub multicast: Option<MulticastSection>,
    /// The plugin instance, of the class `mpls`, that gets labelled frames (MPLS); they are discarded where absent.
    #[serde(default)]
    pub mpls: Option<String>,
    /// Polls the driver for this many microseconds instead of waiting for its interrupt.
    #[serde(default)]
    pub busy_poll_us: Option<u32>,
}

fn no_span() -> Span {
    Span::ZERO
}

fn one_probe() -> u8 {
    1
}

fn yes() -> bool {
    true
}

/// How frames get in and out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortKind {
    /// AF_XDP; AF_PACKET, with a message, where the machine refuses it.
    #[default]
    Auto,
    /// AF_XDP or nothing.
    Xdp,
    /// AF_PACKET.
    Packet,
}

/// The reverse path test of sources. The pipeline has two more modes (RFC 3704, 2.3 and 2.5), but no source
/// of routes provides any but the best ones yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReversePath {
    /// None.
    #[default]
    Off,
    /// The best route leaves by the port of arrival.
    Strict,
    /// There is a route.
    Loose,
}

/// `[[route]]`: a prefix with one of `via`, `interface` and `fate`; `via` may list several gateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteSection {
    /// Destination prefix.
    pub prefix: String,
    /// The gateways, each reached through a port; flows are distributed over several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub via: Vec<IpAddr>,
    /// The port on whose link the prefix is; with `via`, the port of the gateways.
    #[serde(default)]
    pub interface: Option<String>,
    /// Action for the packets instead of forwarding.
    #[serde(default)]
    pub fate: Option<Fate>,
}

/// Actions for packets that are not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Dropped silently.
    Blackhole,
    /// Dropped with ICMP network unreachable (IPv6: no route to destination).
    Unreachable,
    /// Dropped with ICMP communication administratively prohibited.
    Prohibited,
}

/// `[[neighbour]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourSection {
    /// The port's interface.
    pub interface: String,
    /// The neighbour.
    pub address: IpAddr,
    /// Its link-layer address, `02:00:00:00:00:01`.
    pub mac: String,
}

impl RouterConfig {
    /// Ports of the fabric, spare ones included; it has two at least.
    pub fn fabric_ports(&self) -> usize {
        (self.ports.len() + self.fabric.spare_ports).max(2)
    }

    /// The number of the port on `interface`.
    ///
    /// # Errors
    /// When there is no such port.
    pub fn port_named(&self, interface: &str) -> Result<usize> {
        let found = self.ports.iter().position(|port| port.interface == interface);
        found.ok_or_else(|| anyhow::anyhow!("no [[port]] has the interface {interface}"))
    }

    /// Makes the instance of a plugin for this router.
    ///
    /// # Errors
    /// When there is no such class, or it refuses the configuration.
    pub fn instance_of(&self, plugin: &PluginSection) -> Result<NewInstance> {
        let sources = ClassSources {
            directory: self.control.plugin_directory.as_deref(),
            code_server: self.control.code_server.as_deref(),
        };
        plugin.make(self.seed, &sources)
    }

    /// The side of `filter` and the numbers of its ports in this router.
    ///
    /// # Errors
    /// Where one has no `[[port]]`, none is named, or both sides are.
    pub fn side_of(&self, filter: &FilterSection) -> Result<Side> {
        let ports = |names: &[String], key| {
            let numbers = names.iter().map(|name| self.port_named(name));
            let numbers = numbers.collect::<Result<Vec<usize>>>().context(key)?;
            Inputs::of(numbers).with_context(|| {
                format!("{key} names no port; leave it out for the packets of every port")
            })
        };
        match (&filter.inputs, &filter.outputs) {
            (None, None) => Ok(Side::Input(Inputs::ANY)),
            (Some(names), None) => ports(names, "filter.inputs").map(Side::Input),
            (None, Some(names)) => ports(names, "filter.outputs").map(Side::Output),
            (Some(_), Some(_)) => {
                bail!(
                    "filter: give inputs or outputs; packets pass the filters of both sides in turn"
                )
            }
        }
    }
}

impl PortSection {
    /// A port on `interface` with all else as usual.
    pub fn new(interface: &str) -> PortSection {
        PortSection {
            interface: interface.to_owned(),
            kind: PortKind::Auto,
            addresses: Vec::new(),
            rate: None,
            burst_bytes: None,
            delay: Span::ZERO,
            overhead_bytes: 0,
            queue: None,
            punt: None,
            reverse_path: ReversePath::Off,
            redirects: true,
            forwards: true,
            address_probes: 1,
            partial_checksums: true,
            keeps_order: true,
            hotplug: false,
            multicast: None,
            mpls: None,
            busy_poll_us: None,
        }
    }

    /// The port's plan for the pipeline; its device has this link-layer address and MTU.
    pub fn plan(&self, mac: [u8; 6], mtu_bytes: u16) -> PortPlan {
        use nilometer_router::forward::urpf::Mode;
        let mut plan = PortPlan { mtu_bytes, ..PortPlan::new(&self.interface, mac) };
        for &AddressSection { address, length } in &self.addresses {
            match address {
                IpAddr::V4(address) => plan.addresses4.push((address.into(), length)),
                IpAddr::V6(address) => plan.addresses6.push((address.into(), length)),
            }
        }
        plan.rate = self.rate;
        plan.burst_bytes = self.burst_bytes;
        plan.delay = self.delay;
        plan.overhead_bytes = self.overhead_bytes;
        plan.redirects = self.redirects;
        plan.forwards = self.forwards;
        plan.address_probes = self.address_probes;
        plan.is_punting = self.punt.is_some();
        plan.multicast = self.multicast.as_ref().map(MulticastSection::plan);
        plan.reverse_path = match self.reverse_path {
            ReversePath::Off => Mode::Off,
            ReversePath::Strict => Mode::Strict,
            ReversePath::Loose => Mode::Loose,
        };
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_forwards_by_default() {
        let forwards = |more: &str| {
            let section: PortSection =
                toml::from_str(&format!("interface = \"p0\"\n{more}")).expect("a port");
            section.plan([2, 0, 0, 0, 0, 1], 1_500).forwards
        };
        assert_eq!([forwards(""), forwards("forwards = false")], [true, false]);
    }
}
