//! A live flow: what the meter keeps of it until it becomes a record.

use nilometer_wire::brief::{Body, Brief, Tuple};
use nilometer_wire::packet::IpPacket;

use crate::coverage::Coverage;
use crate::record::{EndReason, FlowKey, FlowRecord, tcp_flags};

/// The five-tuple of a packet.
pub(crate) fn key_of(packet: &IpPacket) -> FlowKey {
    let (source_port, destination_port) = packet.ports();
    FlowKey {
        source: packet.source,
        destination: packet.destination,
        source_port,
        destination_port,
        protocol: packet.protocol,
    }
}

/// The five-tuple of a tuple in words.
pub(crate) fn key_of_tuple(tuple: &Tuple) -> FlowKey {
    let (source, destination) = tuple.addresses();
    let (source_port, destination_port) = tuple.ports();
    FlowKey { source, destination, source_port, destination_port, protocol: tuple.protocol() }
}

/// One flow. Together with its five-tuple it fits into two cache lines, because with millions of flows every
/// packet has to fetch its flow from memory.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// The meter's clock at its last packet.
    pub(crate) seen_ns: u64,
    /// When it is over, once a FIN or RST was seen; [`OPEN`] before.
    closes_ns: u64,
    pub(crate) packets: u64,
    pub(crate) start_ns: u64,
    end_ns: u64,
    octets: u64,
    /// The payload as far as it is known: for TCP the sequence space covered, for UDP the sum.
    payload: Coverage,
    /// The sequence number of the latest SYN, once `opened` is known.
    syn_sequence: u32,
    opened: Option<bool>,
    /// The kind of the payload; unknown after a packet of another protocol, or one whose transport header
    /// was not captured.
    body: Body,
    tcp_flags: u8,
    /// What was seen of a connection, as bits of [`marks_of`]; 0 before a segment.
    marks: u8,
}

/// The closing time of a flow without an end marker: never.
const OPEN: u64 = u64::MAX;

impl Live {
    /// A flow without packets, at `now_ns` of the meter's clock; `add` must follow at once.
    pub(crate) fn new(now_ns: u64, stamp_ns: u64, packet: &Brief) -> Live {
        Live {
            seen_ns: now_ns,
            closes_ns: OPEN,
            packets: 0,
            start_ns: stamp_ns,
            end_ns: stamp_ns,
            octets: 0,
            payload: Coverage::default(),
            syn_sequence: 0,
            opened: None,
            body: packet.body,
            tcp_flags: 0,
            marks: 0,
        }
    }

    /// Adds a packet of this flow; returns whether it is the flow's first to show a TCP segment, an opening,
    /// or a FIN.
    #[inline]
    pub(crate) fn add(&mut self, now_ns: u64, stamp_ns: u64, packet: &Brief) -> bool {
        self.seen_ns = now_ns;
        self.start_ns = self.start_ns.min(stamp_ns);
        self.end_ns = self.end_ns.max(stamp_ns);
        self.packets += 1;
        self.octets += u64::from(packet.ip_bytes);
        match (packet.body, self.body) {
            (Body::Segment, Body::Segment) => cover(&mut self.payload, packet),
            (Body::Segment, _) => {}
            (Body::Datagram, Body::Datagram) => self.payload.add_bytes(packet.payload_bytes),
            _ => self.body = Body::Unknown,
        }
        self.tcp_flags |= packet.flags;
        let may_be_news = self.marks == 0 || packet.flags & (tcp_flags::SYN | tcp_flags::FIN) != 0;
        packet.body == Body::Segment && may_be_news && self.note(packet)
    }

    /// Notes what a segment shows of its connection.
    #[inline(never)]
    fn note(&mut self, packet: &Brief) -> bool {
        if packet.flags & tcp_flags::SYN != 0 {
            let opens = packet.flags & tcp_flags::ACK == 0;
            self.opened = Some(opens || self.opened == Some(true));
            self.syn_sequence = packet.sequence;
        }
        let before = self.marks;
        self.marks |= marks_of(packet.flags);
        self.marks != before
    }

    /// Does this packet open a connection after the one that is closing here? A SYN does, unless it is a
    /// late copy of the old connection's own.
    #[inline]
    pub(crate) fn is_succeeded_by(&self, packet: &Brief) -> bool {
        packet.flags & tcp_flags::SYN != 0
            && self.is_closing()
            && !(self.opened.is_some() && self.syn_sequence == packet.sequence)
    }

    /// Was an end marker seen?
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closes_ns != OPEN
    }

    /// When it is over by its end marker; [`OPEN`] without one.
    #[inline]
    pub(crate) fn closes_ns(&self) -> u64 {
        self.closes_ns
    }

    /// Notes an end marker, by which the flow is over at `closes_ns`.
    #[inline]
    pub(crate) fn close_at(&mut self, closes_ns: u64) {
        self.closes_ns = closes_ns.min(OPEN - 1);
    }

    /// The record of this flow.
    pub(crate) fn into_record(self, key: FlowKey, end_reason: EndReason) -> FlowRecord {
        FlowRecord {
            key,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            packets: self.packets,
            octets: self.octets,
            tcp_flags: self.tcp_flags,
            payload_octets: (self.body != Body::Unknown).then(|| self.payload.bytes()),
            opened: self.opened,
            end_reason,
            sampling_interval: 0,
        }
    }
}

/// Is this the end marker of its direction?
#[inline]
pub(crate) fn ends_flow(packet: &Brief) -> bool {
    packet.flags & (tcp_flags::FIN | tcp_flags::RST) != 0
}

/// What a segment shows of its connection, as bits: a segment, an opening, a FIN.
fn marks_of(flags: u8) -> u8 {
    let opens = flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN;
    1 | u8::from(opens) << 1 | u8::from(flags & tcp_flags::FIN != 0) << 2
}

/// A reset's sequence number may be anything, and its payload is a message, not the file's.
#[inline]
fn cover(coverage: &mut Coverage, segment: &Brief) {
    const MARKS: u8 = tcp_flags::SYN | tcp_flags::FIN;
    let carries = segment.payload_bytes > 0 || segment.flags & MARKS != 0;
    if segment.flags & tcp_flags::RST != 0 || !carries {
        return;
    }
    let syn = u32::from(segment.flags & tcp_flags::SYN != 0);
    coverage.add(segment.sequence.wrapping_add(syn), segment.payload_bytes);
}
