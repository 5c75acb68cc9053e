//! The mappings of a NAT: an endpoint inside and its port outside, each found by the other.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use core::net::Ipv4Addr;

use nilometer_plugin::Random;
use nilometer_plugin::headers::{ICMP, TCP};

use crate::SECOND_NS;
use crate::expiring::Expiring;

/// Ports that are drawn before it is given up.
const DRAWS: usize = 64;
/// Mappings that a message lists.
const LISTED_MAX: usize = 100;

/// An address with a port or an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) protocol: u8,
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
}

impl Endpoint {
    fn bits(&self) -> u64 {
        let address = u64::from(self.address.to_bits());
        u64::from(self.protocol) << 48 | address << 16 | u64::from(self.port)
    }
}

/// How long mappings live, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) udp_s: u64,
    pub(super) tcp_s: u64,
    pub(super) transitory_s: u64,
    pub(super) icmp_s: u64,
}

/// The ports outside that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    first: u16,
    last: u16,
}

impl Default for Ports {
    fn default() -> Ports {
        Ports { first: 1_024, last: u16::MAX }
    }
}

impl Ports {
    pub(super) fn parse(text: &str) -> Result<Ports, String> {
        let read = text.split_once('-').and_then(|(first, last)| {
            Some(Ports { first: first.parse().ok()?, last: last.parse().ok()? })
        });
        // Port 0 means none; one port has no other of its parity.
        let read = read.filter(|ports| ports.first > 0 && ports.last > ports.first);
        read.ok_or_else(|| format!("`ports={text}` is not FIRST-LAST with two ports or more"))
    }

    fn has(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    fn draw(self, random: &mut Random) -> u16 {
        self.first + random.below(u32::from(self.last - self.first) + 1) as u16
    }
}

/// What a packet does to the mapping of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TcpStep {
    /// It is neither the first nor one of the last, or not TCP.
    None,
    Syn {
        is_outbound: bool,
    },
    Fin {
        is_outbound: bool,
    },
    Reset,
}

/// The combined state of a mapping's connections: several may share it.
#[derive(Clone, Copy, Debug, Default)]
struct TcpState {
    is_open: bool,
    has_fin: [bool; 2],
}

impl TcpState {
    /// After a step: whether connections are established.
    fn take(&mut self, step: TcpStep) -> bool {
        match step {
            TcpStep::Syn { is_outbound: true } => *self = TcpState::default(),
            TcpStep::Syn { is_outbound: false } => {}
            TcpStep::Fin { is_outbound } => self.has_fin[usize::from(is_outbound)] = true,
            TcpStep::Reset => self.has_fin = [true; 2],
            TcpStep::None => self.is_open = true,
        }
        self.is_open && self.has_fin != [true; 2]
    }
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    inside: Endpoint,
    tcp: TcpState,
}

/// All mappings.
pub(super) struct Mappings {
    /// By the endpoint's bits: numbers are compared more quickly.
    by_inside: BTreeMap<u64, u16>,
    by_outside: Expiring<(u8, u16), Mapping>,
    ports: Ports,
    timeouts: Timeouts,
}

impl Mappings {
    pub(super) fn new(mappings_max: usize, ports: Ports, timeouts: Timeouts) -> Mappings {
        let by_outside = Expiring::new(mappings_max);
        Mappings { by_inside: BTreeMap::new(), by_outside, ports, timeouts }
    }

    /// How long a mapping lives from now on.
    fn span_ns(timeouts: &Timeouts, protocol: u8, is_established: bool) -> u64 {
        let seconds = match protocol {
            TCP if is_established => timeouts.tcp_s,
            TCP => timeouts.transitory_s,
            ICMP => timeouts.icmp_s,
            _ => timeouts.udp_s,
        };
        seconds.saturating_mul(SECOND_NS)
    }

    /// The outside port of an inside endpoint; its packet refreshes the mapping.
    pub(super) fn outside_of(
        &mut self,
        inside: &Endpoint,
        step: TcpStep,
        now_ns: u64,
    ) -> Option<u16> {
        let port = *self.by_inside.get(&inside.bits())?;
        let (mapping, until) = self.by_outside.get_mut(&(inside.protocol, port), now_ns)?;
        let is_established = mapping.tcp.take(step);
        *until = now_ns + Mappings::span_ns(&self.timeouts, inside.protocol, is_established);
        Some(port)
    }

    /// The inside endpoint of a port at which a packet arrives. Such packets refresh only TCP's mappings: with UDP
    /// any host could keep one alive (RFC 4787, REQ-6).
    pub(super) fn inside_of(
        &mut self,
        protocol: u8,
        port: u16,
        step: TcpStep,
        now_ns: u64,
    ) -> Option<Endpoint> {
        let (mapping, until) = self.by_outside.get_mut(&(protocol, port), now_ns)?;
        if protocol == TCP {
            let is_established = mapping.tcp.take(step);
            *until = now_ns + Mappings::span_ns(&self.timeouts, protocol, is_established);
        }
        Some(mapping.inside)
    }

    /// The port of an endpoint, if there is a mapping.
    pub(super) fn port_of(&self, inside: &Endpoint, now_ns: u64) -> Option<u16> {
        let port = *self.by_inside.get(&inside.bits())?;
        self.by_outside.get(&(inside.protocol, port), now_ns).map(|_| port)
    }

    /// The endpoint of a port, if there is a mapping.
    pub(super) fn endpoint_of(&self, protocol: u8, port: u16, now_ns: u64) -> Option<Endpoint> {
        self.by_outside.get(&(protocol, port), now_ns).map(|mapping| mapping.inside)
    }

    /// A new mapping, of an endpoint that has none: its port.
    pub(super) fn make(
        &mut self,
        inside: Endpoint,
        step: TcpStep,
        now_ns: u64,
        random: &mut Random,
    ) -> Option<u16> {
        let port = self.free_port(&inside, now_ns, random)?;
        let mut tcp = TcpState::default();
        let is_established = tcp.take(step);
        let until = now_ns + Mappings::span_ns(&self.timeouts, inside.protocol, is_established);
        let by_inside = &mut self.by_inside;
        let remove = |(protocol, port): (u8, u16), mapping: Mapping| {
            debug_assert_eq!(mapping.inside.protocol, protocol);
            if by_inside.get(&mapping.inside.bits()) == Some(&port) {
                by_inside.remove(&mapping.inside.bits());
            }
        };
        let mapping = Mapping { inside, tcp };
        if !self.by_outside.insert((inside.protocol, port), mapping, until, now_ns, remove) {
            return None;
        }
        self.by_inside.insert(inside.bits(), port);
        Some(port)
    }

    /// The endpoint's own port if it is free, else one of the same parity.
    fn free_port(&self, inside: &Endpoint, now_ns: u64, random: &mut Random) -> Option<u16> {
        let is_free = |port: u16| self.by_outside.get(&(inside.protocol, port), now_ns).is_none();
        if self.ports.has(inside.port) && is_free(inside.port) {
            return Some(inside.port);
        }
        for _ in 0..DRAWS {
            let drawn = self.ports.draw(random);
            let port = drawn & !1 | inside.port & 1;
            if self.ports.has(port) && is_free(port) {
                return Some(port);
            }
        }
        None
    }

    /// Some mappings, a line each.
    pub(super) fn listed(&self, now_ns: u64) -> String {
        let mut text = String::new();
        for ((protocol, port), mapping) in self.by_outside.iter(now_ns).take(LISTED_MAX) {
            let Endpoint { address, port: inside, .. } = mapping.inside;
            let _ = writeln!(text, "protocol {protocol} {address}:{inside} is {port} outside");
        }
        text
    }
}
