//! Information elements: what a field means for a flow, and how it is read.
//!
//! Several elements can mean the same quantity: bytes come as octetDeltaCount, as a total, as the
//! bytes that an initiator sent, or as those that left the device; times in six units. Each element
//! has the slot that it can fill and how good it is for it (its rank, 0 the best); a template is
//! compiled with the best one it has for each slot. Counters of what left the device (23 and 24) rank
//! last, because some exporters mean the other direction by them; they are used where there is no
//! other count. Where one element comes twice, the last is taken: occurrences follow the order of
//! treatment (RFC 7011, section 8), so it is that of the inner header, which our own meter reads,
//! too.
//!
//! A reverse element (RFC 5103, section 6.1: the number of the forward one, under enterprise 29305)
//! fills the same slot of the reverse half.

use super::definition::{Field, SCOPE_OF_NETFLOW9, VARIABLE};

/// The enterprise number that marks the reverse of an element (RFC 5103, section 6.1).
const REVERSE: u32 = 29_305;
/// The enterprise of CERT, whose YAF has the flags of the first packet apart from all others.
const CERT: u32 = 6_871;
/// subTemplateMultiList (RFC 6313, section 4.5.3).
const LISTS: u16 = 293;
/// The number that CERT adds to an element for its reverse.
const CERT_REVERSE: u16 = 0x4000;

/// Where a value goes. From [`Slot::Octets`] on there is one for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Slot {
    SourceV4,
    DestinationV4,
    SourceV6,
    SourceV6Low,
    DestinationV6,
    DestinationV6Low,
    SourcePort,
    DestinationPort,
    Protocol,
    EndReason,
    BiflowDirection,
    /// One in this many packets.
    Interval,
    /// This many packets in a row, then ...
    PacketInterval,
    /// ... this many are left out.
    PacketSpace,
    /// This many packets out of ...
    SampleSize,
    /// ... this many.
    SamplePopulation,
    /// With this probability, the bits of an `f64`.
    Probability,
    SamplerId,
    /// Wall clock when the exporter started, ns since 1970.
    SystemInit,
    /// How much later the reverse half began, ns.
    ReverseDelta,
    Octets,
    Packets,
    Flags,
    FirstFlags,
    Start,
    End,
    Duration,
}

/// Slots that there are once for each direction.
const PAIRED: usize = Slot::Duration as usize - Slot::Octets as usize + 1;
/// All slots, those of the reverse direction last.
pub(super) const SLOTS: usize = Slot::Duration as usize + 1 + PAIRED;

impl Slot {
    /// Its place, and that of the reverse direction's.
    pub(super) fn index(self, reverse: bool) -> usize {
        assert!(!reverse || self as usize >= Slot::Octets as usize, "{self:?} has one direction");
        self as usize + if reverse { PAIRED } else { 0 }
    }
}

/// How bytes become the value of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// An unsigned number of one to eight bytes, reduced-size encoding included (RFC 7011, 6.2).
    Number,
    /// As [`Read::Number`], for a count of transport-layer payload only.
    Payload,
    /// Sixteen bytes, the upper half in this slot, the lower in the next.
    Address,
    /// A moment or a length of time in this unit, ns a unit.
    Time(u64),
    /// Seconds and their fraction since 1900 (RFC 7011, sections 6.1.9 and 6.1.10).
    Ntp,
    /// Milliseconds of the exporter's uptime.
    Uptime,
    /// Microseconds before the export time of the message.
    Before,
    /// A floating-point number of four or eight bytes.
    Float,
}

/// The meaning of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) slot: Slot,
    pub(super) reverse: bool,
    pub(super) read: Read,
    /// How good it is for its slot, 0 the best.
    pub(super) rank: u8,
}

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
const MICRO: u64 = 1_000;

/// The meaning of `field` for a flow, a sampler or a clock; `None` for fields that are skipped.
pub(super) fn meaning(field: &Field) -> Option<Meaning> {
    let Field { element, enterprise, length } = *field;
    let (element, reverse) = match enterprise {
        SCOPE_OF_NETFLOW9 => return None,
        CERT => return of_cert(element, length),
        0 => (element, false),
        REVERSE => (element, true),
        _ => return None,
    };
    let (slot, read, rank) = of_iana(element)?;
    let (slot, other_direction) = match element {
        231 | 298 => (slot, false),
        232 | 299 => (slot, true),
        _ => (slot, false),
    };
    let reverse = reverse || other_direction;
    let is_paired = slot as usize >= Slot::Octets as usize;
    (fits(read, length) && (is_paired || !reverse)).then_some(Meaning { slot, reverse, read, rank })
}

/// Does `field` hold records of other templates?
pub(super) fn is_list(field: &Field) -> bool {
    (field.element, field.enterprise, field.length) == (LISTS, 0, VARIABLE)
}

/// Can this be read from `length` bytes?
fn fits(read: Read, length: u16) -> bool {
    match read {
        _ if length == VARIABLE => false,
        Read::Number | Read::Payload | Read::Time(_) => (1..=8).contains(&length),
        Read::Uptime => (1..=4).contains(&length),
        Read::Before => (1..=4).contains(&length),
        Read::Address => length == 16,
        Read::Ntp => length == 8,
        Read::Float => length == 4 || length == 8,
    }
}

/// IANA's registry, "IPFIX Information Elements"; those below 128 are version 9's field types.
fn of_iana(element: u16) -> Option<(Slot, Read, u8)> {
    use Read::{Address, Before, Float, Ntp, Number, Payload, Time, Uptime};
    Some(match element {
        8 => (Slot::SourceV4, Number, 0),
        12 => (Slot::DestinationV4, Number, 0),
        27 => (Slot::SourceV6, Address, 0),
        28 => (Slot::DestinationV6, Address, 0),
        7 => (Slot::SourcePort, Number, 0),
        11 => (Slot::DestinationPort, Number, 0),
        // udpSourcePort, udpDestinationPort, tcpSourcePort, tcpDestinationPort
        180 | 182 => (Slot::SourcePort, Number, 1),
        181 | 183 => (Slot::DestinationPort, Number, 1),
        4 => (Slot::Protocol, Number, 0),
        6 => (Slot::Flags, Number, 0),
        136 => (Slot::EndReason, Number, 0),
        239 => (Slot::BiflowDirection, Number, 0),

        // octetDeltaCount, octetTotalCount, initiator- and responderOctets, postOctetDeltaCount
        1 => (Slot::Octets, Number, 0),
        85 => (Slot::Octets, Number, 1),
        231 | 232 => (Slot::Octets, Payload, 2),
        23 => (Slot::Octets, Number, 3),
        2 => (Slot::Packets, Number, 0),
        86 => (Slot::Packets, Number, 1),
        298 | 299 => (Slot::Packets, Number, 2),
        24 => (Slot::Packets, Number, 3),

        156 => (Slot::Start, Ntp, 0),
        157 => (Slot::End, Ntp, 0),
        154 => (Slot::Start, Ntp, 1),
        155 => (Slot::End, Ntp, 1),
        152 => (Slot::Start, Time(MILLI), 2),
        153 => (Slot::End, Time(MILLI), 2),
        158 => (Slot::Start, Before, 3),
        159 => (Slot::End, Before, 3),
        22 => (Slot::Start, Uptime, 4),
        21 => (Slot::End, Uptime, 4),
        150 => (Slot::Start, Time(SECOND), 5),
        151 => (Slot::End, Time(SECOND), 5),
        // observationTime: the moment of an event, where a record has no other time
        325 => (Slot::End, Ntp, 6),
        324 => (Slot::End, Ntp, 7),
        323 => (Slot::End, Time(MILLI), 8),
        322 => (Slot::End, Time(SECOND), 9),
        162 => (Slot::Duration, Time(MICRO), 0),
        161 => (Slot::Duration, Time(MILLI), 1),
        160 => (Slot::SystemInit, Time(MILLI), 0),

        // samplingInterval, samplerRandomInterval, and the parameters of selectors (RFC 5477)
        34 => (Slot::Interval, Number, 0),
        50 => (Slot::Interval, Number, 1),
        305 => (Slot::PacketInterval, Number, 0),
        306 => (Slot::PacketSpace, Number, 0),
        309 => (Slot::SampleSize, Number, 0),
        310 => (Slot::SamplePopulation, Number, 0),
        311 => (Slot::Probability, Float, 0),
        302 => (Slot::SamplerId, Number, 0),
        48 => (Slot::SamplerId, Number, 1),
        _ => return None,
    })
}

/// YAF's: initialTCPFlags, unionTCPFlags and reverseFlowDeltaMilliseconds.
fn of_cert(element: u16, length: u16) -> Option<Meaning> {
    let reverse = element & CERT_REVERSE != 0;
    let (slot, read, reverse) = match element & !CERT_REVERSE {
        14 => (Slot::FirstFlags, Read::Number, reverse),
        15 => (Slot::Flags, Read::Number, reverse),
        21 => (Slot::ReverseDelta, Read::Time(MILLI), false),
        _ => return None,
    };
    fits(read, length).then_some(Meaning { slot, reverse, read, rank: 1 })
}
