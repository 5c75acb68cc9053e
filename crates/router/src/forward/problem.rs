//! The problems that ICMP reports, with their types and codes.

/// What is wrong. Each variant gives its type and code in IPv4 and in IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// 3/0; 1/0. No route to the destination.
    NoRoute,
    /// 3/1; 1/3. The last hop does not answer ARP or neighbour discovery.
    AddressUnreachable,
    /// 3/2; 4/1 with the pointer. The router does not speak this protocol.
    ProtocolUnreachable {
        /// IPv6: where the next header field stands, bytes from the IP header.
        pointer: u16,
    },
    /// 3/3; 1/4. Nothing listens on this port of the router.
    PortUnreachable,
    /// 3/4 with the MTU (RFC 1191); 2/0. The packet does not fit the next link.
    TooBig {
        /// Of the next link. IPv4 has 16 bits for it.
        mtu_bytes: u32,
    },
    /// 3/5; 1/7 (RFC 6554). The next hop of a source route cannot be reached as it demands.
    SourceRouteFailed,
    /// 3/13; 1/1. A filter forbids it.
    Prohibited,
    /// 3/13; 1/5. A filter forbids this source.
    SourcePolicy,
    /// 3/13; 1/6. The route to the destination rejects packets.
    Rejected,
    /// 3/13; 1/2. The source's scope ends at this router.
    BeyondScope,
    /// 11/0; 3/0. The time to live is used up.
    HopLimit,
    /// 11/1; 3/1. Fragments did not come together in time.
    Reassembly,
    /// 12/0; 4/0. A header field makes no sense.
    Parameter {
        /// Which octet, from the IP header. IPv4 has 8 bits for it, and needs no more than 60.
        pointer: u16,
    },
    /// 12/0; 4/2. An unknown option that demands an error message.
    Option {
        /// Where its type stands.
        pointer: u16,
    },
    /// 5/1. There is a shorter way to this host; IPv4 alone.
    Redirect {
        /// The router to ask instead.
        gateway: u32,
    },
}

/// The first word of an ICMP message without its checksum, and the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// MTU, pointer or gateway; zero otherwise.
    pub word: u32,
}

impl Problem {
    /// Type, code and second word of ICMP.
    pub fn ipv4(self) -> Numbers {
        let at = |pointer: u16| u32::from(pointer.min(255)) << 24;
        let (kind, code, word) = match self {
            Problem::NoRoute => (3, 0, 0),
            Problem::AddressUnreachable => (3, 1, 0),
            Problem::ProtocolUnreachable { .. } => (3, 2, 0),
            Problem::PortUnreachable => (3, 3, 0),
            Problem::TooBig { mtu_bytes } => (3, 4, mtu_bytes.min(u32::from(u16::MAX))),
            Problem::SourceRouteFailed => (3, 5, 0),
            Problem::Prohibited
            | Problem::SourcePolicy
            | Problem::Rejected
            | Problem::BeyondScope => (3, 13, 0),
            Problem::HopLimit => (11, 0, 0),
            Problem::Reassembly => (11, 1, 0),
            Problem::Parameter { pointer } | Problem::Option { pointer } => (12, 0, at(pointer)),
            Problem::Redirect { gateway } => (5, 1, gateway),
        };
        Numbers { kind, code, word }
    }

    /// Type, code and second word of ICMPv6; nothing for a redirect.
    pub fn ipv6(self) -> Option<Numbers> {
        let (kind, code, word) = match self {
            Problem::NoRoute => (1, 0, 0),
            Problem::Prohibited => (1, 1, 0),
            Problem::BeyondScope => (1, 2, 0),
            Problem::AddressUnreachable => (1, 3, 0),
            Problem::PortUnreachable => (1, 4, 0),
            Problem::SourcePolicy => (1, 5, 0),
            Problem::Rejected => (1, 6, 0),
            Problem::SourceRouteFailed => (1, 7, 0),
            Problem::TooBig { mtu_bytes } => (2, 0, mtu_bytes),
            Problem::HopLimit => (3, 0, 0),
            Problem::Reassembly => (3, 1, 0),
            Problem::Parameter { pointer } => (4, 0, u32::from(pointer)),
            Problem::ProtocolUnreachable { pointer } => (4, 1, u32::from(pointer)),
            Problem::Option { pointer } => (4, 2, u32::from(pointer)),
            Problem::Redirect { .. } => return None,
        };
        Some(Numbers { kind, code, word })
    }
}
