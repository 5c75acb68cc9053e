//! Sources that do not listen, and the sink that measures what they sent: UDP in virtual time.

use alloc::boxed::Box;

use nilometer_stat::Rng;
use nilometer_tcp::Segment;
use nilometer_wire::{Ecn, Node, Port, Span, Time};

use crate::course::Course;
use crate::packet::{Packet, Protocol, Route};

/// The IPv4 and UDP headers, bytes.
pub const HEADERS_BYTES: u16 = 28;

/// The purpose of the random stream that spaces packets.
const PURPOSE_GAPS: u32 = 0x5349_0001;
/// The purpose of the random stream that sizes packets.
const PURPOSE_SIZES: u32 = 0x5349_0002;

/// How long from one packet to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// Always the same.
    Constant(Span),
    /// Exponential with this mean: a Poisson process.
    Exponential(Span),
}

/// How long a packet is, headers included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizing {
    /// Always this many bytes.
    Constant(u16),
    /// Exponential with this mean in bytes, rounded, at least the headers and at most 65,535.
    Exponential(f64),
}

impl Sizing {
    /// The mean length of a packet, bytes: what is cut at both ends moves that of an exponential law.
    pub fn mean_bytes(&self) -> f64 {
        match *self {
            Sizing::Constant(bytes) => f64::from(bytes),
            Sizing::Exponential(mean) => {
                let least = f64::from(HEADERS_BYTES);
                let beyond = |bytes: f64| mean * libm::exp(-bytes / mean);
                least + beyond(least) - beyond(f64::from(u16::MAX))
            }
        }
    }
}

/// What a source sends, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pattern {
    /// The first packet's moment is one spacing after this.
    pub start: Time,
    /// No packet leaves at or after this.
    pub end: Time,
    /// From packet to packet.
    pub spacing: Spacing,
    /// How long they are.
    pub sizing: Sizing,
}

impl Pattern {
    /// About how many packets that is.
    pub fn packets(&self) -> f64 {
        let (Spacing::Constant(mean) | Spacing::Exponential(mean)) = self.spacing;
        self.end.0.saturating_sub(self.start.0) as f64 / mean.0 as f64
    }
}

/// A source of datagrams.
#[derive(Debug)]
pub struct Source {
    pattern: Pattern,
    route: Route,
    next: Time,
    sent: u32,
    gaps: Rng,
    sizes: Rng,
}

impl Source {
    /// A source on `route`; its chances are those of `seed` and the route.
    pub fn new(pattern: Pattern, route: Route, seed: u64) -> Source {
        let index = u64::from(route.0);
        let mut source = Source {
            pattern,
            route,
            next: pattern.start,
            sent: 0,
            gaps: Rng::new(seed, PURPOSE_GAPS, index),
            sizes: Rng::new(seed, PURPOSE_SIZES, index),
        };
        source.advance();
        source
    }

    fn advance(&mut self) {
        self.next += match self.pattern.spacing {
            Spacing::Constant(span) => span,
            Spacing::Exponential(mean) => {
                Span::from_secs_f64(self.gaps.exponential(mean.as_secs_f64()))
            }
        };
    }

    fn size(&mut self) -> u16 {
        match self.pattern.sizing {
            Sizing::Constant(bytes) => bytes,
            Sizing::Exponential(mean) => {
                let drawn = libm::round(self.sizes.exponential(mean));
                (drawn as u64).clamp(u64::from(HEADERS_BYTES), u64::from(u16::MAX)) as u16
            }
        }
    }

    /// Packets sent so far.
    pub fn sent(&self) -> u32 {
        self.sent
    }
}

impl Node<Packet> for Source {
    fn receive(&mut self, _now: Time, _port: Port, _packet: &Packet, _: &mut ()) {}

    fn handle_timeout(&mut self, _now: Time, _: &mut ()) {}

    fn poll_transmit(&mut self, now: Time, packet: &mut Packet, _: &mut ()) -> Option<Port> {
        if self.next > now || self.next >= self.pattern.end {
            return None;
        }
        self.advance();
        let bytes = self.size();
        let mut segment = Segment::default();
        segment.sequence = self.sent;
        segment.timestamps = [(now.0 >> 32) as u32, now.0 as u32];
        segment.length = bytes.saturating_sub(HEADERS_BYTES);
        self.sent += 1;
        let route = self.route;
        *packet = Packet { segment, route, bytes, ecn: Ecn::NotCapable, protocol: Protocol::Udp };
        Some(Port(0))
    }

    fn poll_timeout(&self) -> Option<Time> {
        (self.next < self.pattern.end).then_some(self.next)
    }
}

/// Counts and times what arrives.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    /// Packets that arrived.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// The sum of their delays, picoseconds: their own time on the links included.
    pub delay_picos: u128,
    /// The longest delay.
    pub delay_most: Span,
    /// All delays by interval, if the scenario requests them.
    pub course: Option<Box<Course>>,
}

impl Node<Packet> for Sink {
    fn receive(&mut self, now: Time, _port: Port, packet: &Packet, _: &mut ()) {
        let [high, low] = packet.segment.timestamps;
        let sent = Time(u64::from(high) << 32 | u64::from(low));
        let delay = now.since(sent);
        if let Some(course) = &mut self.course {
            course.record(sent, delay);
        }
        self.packets += 1;
        self.bytes += u64::from(packet.bytes);
        self.delay_picos += u128::from(delay.0);
        self.delay_most = self.delay_most.max(delay);
    }

    fn handle_timeout(&mut self, _now: Time, _: &mut ()) {}

    fn poll_transmit(&mut self, _now: Time, _packet: &mut Packet, _: &mut ()) -> Option<Port> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}
