//! Why the router itself discarded a packet; what queues drop, they count themselves.

use crate::header::Fault;

nilometer_wire::named! {
    /// Every reason there is. The order is that of the counters.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Discard {
        /// The frame ends before its headers do.
        Short = "short",
        /// The IP version is not that of the ethertype.
        Version = "version",
        /// The IPv4 header length is below 20 bytes.
        HeaderLength = "header_length",
        /// The IPv4 header checksum is wrong.
        HeaderChecksum = "header_checksum",
        /// The IP length contradicts the frame's.
        TotalLength = "total_length",
        /// Extension headers are broken or too many.
        Extensions = "extensions",
        /// A protocol that the router does not speak.
        NotSpoken = "not_spoken",
        /// For another station's link-layer address.
        OtherStation = "other_station",
        /// Came by link-layer broadcast or multicast and may not be forwarded (RFC 1812, 5.3.4).
        LinkBroadcast = "link_broadcast",
        /// A filter denies it.
        Denied = "denied",
        /// Its source address may not be there (RFC 1812, 5.3.7).
        MartianSource = "martian_source",
        /// Its destination address may not be forwarded to.
        MartianDestination = "martian_destination",
        /// The reverse path to its source is not the port it came by (RFC 3704).
        ReversePath = "reverse_path",
        /// There is no route.
        NoRoute = "no_route",
        /// Its route is a black hole.
        Blackhole = "blackhole",
        /// Its route rejects it.
        Rejected = "rejected",
        /// Its time to live is used up.
        Expired = "expired",
        /// It is larger than the next link's MTU and may not be fragmented.
        TooBig = "too_big",
        /// Its options are malformed, or forbidden here.
        Options = "options",
        /// Its next hop's link-layer address is not known: no host answers, or too many packets wait.
        Unresolved = "unresolved",
        /// Its port is down.
        PortDown = "port_down",
        /// Too many packets wait for the slow path.
        SlowPathFull = "slow_path_full",
        /// Too many packets wait to be punted out of the forwarding plane.
        PuntFull = "punt_full",
        /// There is no buffer for a copy, a fragment or a message.
        NoBuffer = "no_buffer",
        /// No port has a member of its group.
        NoGroup = "no_group",
        /// A broadcast to a network, with no listener here (RFC 1812, 5.3.5; RFC 2644).
        Broadcast = "broadcast",
        /// A fragment for the router that will not become part of a whole datagram, or one that hides flags
        /// of TCP from a filter.
        Fragment = "fragment",
        /// Forwarding is switched off at its port (RFC 1812, 5.3.11).
        ForwardingOff = "forwarding_off",
        /// It is for the router, which has no use for it.
        NoUse = "no_use",
        /// A plugin dropped it.
        Plugin = "plugin",
        /// A plugin that it was to be processed by was cut off.
        PluginFault = "plugin_fault",
        /// Plugins changed it so often that it came to too many chains.
        PluginLoop = "plugin_loop",
        /// No entry for its label (RFC 3031, 3.18).
        UnknownLabel = "unknown_label",
        /// Its label stack is malformed, longer than is inspected, or contradicts its label.
        LabelStack = "label_stack",
    }
}

impl Discard {}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discards([u64; Discard::ALL.len()]);

impl Default for Discards {
    /// None.
    fn default() -> Discards {
        Discards([0; Discard::ALL.len()])
    }
}

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
