//! Why the router itself discarded a packet; what queues drop, they count themselves.

use crate::header::Fault;

/// Every reason there is. The order is that of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Discard {
    /// The frame ends before its headers do.
    Short,
    /// The IP version is not that of the ethertype.
    Version,
    /// The IPv4 header length is below 20 bytes.
    HeaderLength,
    /// The IPv4 header checksum is wrong.
    HeaderChecksum,
    /// The IP length contradicts the frame's.
    TotalLength,
    /// Extension headers are broken or too many.
    Extensions,
    /// A protocol that the router does not speak.
    NotSpoken,
    /// For another station's link-layer address.
    OtherStation,
    /// Came by link-layer broadcast or multicast and may not be forwarded (RFC 1812, 5.3.4).
    LinkBroadcast,
    /// A filter denies it.
    Denied,
    /// Its source address may not be there (RFC 1812, 5.3.7).
    MartianSource,
    /// Its destination address may not be forwarded to.
    MartianDestination,
    /// The way back to its source is not where it came from (RFC 3704).
    ReversePath,
    /// There is no route.
    NoRoute,
    /// Its route is a black hole.
    Blackhole,
    /// Its route rejects it.
    Rejected,
    /// Its time to live is used up.
    Expired,
    /// It is larger than the next link's MTU and may not be fragmented.
    TooBig,
    /// Its options are malformed, or forbidden here.
    Options,
    /// Its next hop's link-layer address is not known: nobody answers, or too many wait.
    Unresolved,
    /// Its port is down.
    PortDown,
    /// Too many packets wait for the slow path.
    SlowPathFull,
    /// Too many packets wait for who runs beside the forwarding plane.
    PuntFull,
    /// There is no buffer for a copy, a fragment or a message.
    NoBuffer,
    /// Nobody here belongs to its group.
    NoGroup,
    /// For all hosts of a network, and nobody here listens (RFC 1812, 5.3.5; RFC 2644).
    Broadcast,
    /// A fragment for the router that will not become part of a whole datagram, or one that hides flags
    /// of TCP from a filter.
    Fragment,
    /// Forwarding is switched off at its port (RFC 1812, 5.3.11).
    ForwardingOff,
    /// It is for the router, which has no use for it.
    NoUse,
}

impl Discard {
    /// How many reasons there are.
    pub const COUNT: usize = Discard::NoUse as usize + 1;

    /// Every reason, in the order of the counters.
    pub const ALL: [Discard; Discard::COUNT] = [
        Discard::Short,
        Discard::Version,
        Discard::HeaderLength,
        Discard::HeaderChecksum,
        Discard::TotalLength,
        Discard::Extensions,
        Discard::NotSpoken,
        Discard::OtherStation,
        Discard::LinkBroadcast,
        Discard::Denied,
        Discard::MartianSource,
        Discard::MartianDestination,
        Discard::ReversePath,
        Discard::NoRoute,
        Discard::Blackhole,
        Discard::Rejected,
        Discard::Expired,
        Discard::TooBig,
        Discard::Options,
        Discard::Unresolved,
        Discard::PortDown,
        Discard::SlowPathFull,
        Discard::PuntFull,
        Discard::NoBuffer,
        Discard::NoGroup,
        Discard::Broadcast,
        Discard::Fragment,
        Discard::ForwardingOff,
        Discard::NoUse,
    ];

    /// The name that files and scripts use.
    pub const fn name(self) -> &'static str {
        match self {
            Discard::Short => "short",
            Discard::Version => "version",
            Discard::HeaderLength => "header_length",
            Discard::HeaderChecksum => "header_checksum",
            Discard::TotalLength => "total_length",
            Discard::Extensions => "extensions",
            Discard::NotSpoken => "not_spoken",
            Discard::OtherStation => "other_station",
            Discard::LinkBroadcast => "link_broadcast",
            Discard::Denied => "denied",
            Discard::MartianSource => "martian_source",
            Discard::MartianDestination => "martian_destination",
            Discard::ReversePath => "reverse_path",
            Discard::NoRoute => "no_route",
            Discard::Blackhole => "blackhole",
            Discard::Rejected => "rejected",
            Discard::Expired => "expired",
            Discard::TooBig => "too_big",
            Discard::Options => "options",
            Discard::Unresolved => "unresolved",
            Discard::PortDown => "port_down",
            Discard::SlowPathFull => "slow_path_full",
            Discard::PuntFull => "punt_full",
            Discard::NoBuffer => "no_buffer",
            Discard::NoGroup => "no_group",
            Discard::Broadcast => "broadcast",
            Discard::Fragment => "fragment",
            Discard::ForwardingOff => "forwarding_off",
            Discard::NoUse => "no_use",
        }
    }
}

impl From<Fault> for Discard {
    fn from(fault: Fault) -> Discard {
        match fault {
            Fault::Short => Discard::Short,
            Fault::Version => Discard::Version,
            Fault::HeaderLength => Discard::HeaderLength,
            Fault::HeaderChecksum => Discard::HeaderChecksum,
            Fault::TotalLength => Discard::TotalLength,
            Fault::Extensions => Discard::Extensions,
        }
    }
}

/// Packets discarded, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards([u64; Discard::COUNT]);

impl Discards {
    /// One more for `reason`.
    #[inline]
    pub fn count(&mut self, reason: Discard) {
        self.0[reason as usize] += 1;
    }

    /// How many for `reason`.
    pub fn of(&self, reason: Discard) -> u64 {
        self.0[reason as usize]
    }

    /// How many for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
