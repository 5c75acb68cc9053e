//! One flow record: what was seen of one direction of one conversation (RFC 7011's Flow Record).

use core::net::{IpAddr, SocketAddr};

/// IANA protocol number of TCP.
pub const TCP: u8 = 6;
/// IANA protocol number of UDP.
pub const UDP: u8 = 17;

/// IANA protocol number of SCTP.
pub const SCTP: u8 = 132;

/// A flow whose packets average no more than this many bytes beyond the bare headers is taken to only
/// acknowledge: room for time stamps and two SACK blocks.
pub const ACK_OPTIONS_BYTES: u64 = 32;

/// Does this protocol have ports where exporters write ports? For other protocols they write an ICMP type and
/// code there, or something meaningless.
pub(crate) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP)
}

/// The bits of the TCP flags byte (RFC 9293, section 3.1).
pub mod tcp_flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// The connection begins.
    pub const SYN: u8 = 0x02;
    /// The connection is reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x10;
}

/// What makes packets one flow: the five-tuple, in the direction the packets went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Address of the sender.
    pub source: IpAddr,
    /// Address of the receiver.
    pub destination: IpAddr,
    /// Source port of TCP, UDP or SCTP; 0 where there is none (later fragments too).
    pub source_port: u16,
    /// Destination port of TCP, UDP or SCTP; 0 where there is none.
    pub destination_port: u16,
    /// IANA protocol number.
    pub protocol: u8,
}

impl FlowKey {
    /// The key of the packets that go the other way.
    pub fn reversed(self) -> FlowKey {
        FlowKey {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            protocol: self.protocol,
        }
    }

    /// Address and port of the sender.
    pub fn source_end(&self) -> SocketAddr {
        SocketAddr::new(self.source, self.source_port)
    }

    /// Address and port of the receiver.
    pub fn destination_end(&self) -> SocketAddr {
        SocketAddr::new(self.destination, self.destination_port)
    }
}

/// Why a record was made: flowEndReason (IPFIX information element 136).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EndReason {
    /// No packet for the inactive timeout.
    IdleTimeout = 1,
    /// The flow lasted the active timeout; its rest follows in another record.
    ActiveTimeout = 2,
    /// A FIN or RST was seen.
    EndOfFlow = 3,
    /// The metering ended while the flow was live.
    ForcedEnd = 4,
    /// The cache was full and this flow had to make room.
    LackOfResources = 5,
    /// The exporter did not state it.
    Unknown = 0,
}

impl EndReason {
    /// The reason with this number of flowEndReason; [`EndReason::Unknown`] for an unknown number.
    pub fn from_number(number: u8) -> EndReason {
        match number {
            1 => EndReason::IdleTimeout,
            2 => EndReason::ActiveTimeout,
            3 => EndReason::EndOfFlow,
            4 => EndReason::ForcedEnd,
            5 => EndReason::LackOfResources,
            _ => EndReason::Unknown,
        }
    }
}

/// One direction of one conversation. Times are wall-clock nanoseconds since 1970. Records are in the order
/// of their five-tuples, then of their starts and ends, then of all other fields, so that sorted records do
/// not depend on the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowRecord {
    /// The five-tuple.
    pub key: FlowKey,
    /// Stamp of the first packet, ns since 1970.
    pub start_ns: u64,
    /// Stamp of the last packet, ns since 1970; never before `start_ns`.
    pub end_ns: u64,
    /// Packets (packetDeltaCount).
    pub packets: u64,
    /// Bytes from the IP header on, at their original length (octetDeltaCount).
    pub octets: u64,
    /// All TCP flags seen, or-ed (tcpControlBits).
    pub tcp_flags: u8,
    /// Payload bytes of the file transferred. For TCP metered from packets: the sequence space that was
    /// covered, so that retransmissions count once and bytes that the capture lost are included. For UDP: the
    /// sum. From an exporter that counts only payload (initiatorOctets): that count, which is also `octets`.
    /// `None` where only an exporter's byte count is known, for other protocols, and where a packet's
    /// transport header was not captured.
    pub payload_octets: Option<u64>,
    /// Did this direction open the connection? A SYN without ACK says yes, a SYN with ACK no; `None` where
    /// neither was seen, or the flags of single packets are not known.
    pub opened: Option<bool>,
    /// Why the record ends here.
    pub end_reason: EndReason,
    /// One packet in this many was counted (samplingPacketInterval and its kin); `packets` and `octets` are
    /// what was counted, never scaled up. 0 where the exporter does not sample, or does not state it.
    pub sampling_interval: u32,
}

impl FlowRecord {
    /// A start marker, SYN, was seen (Harpoon, section 4.1).
    pub fn has_start(&self) -> bool {
        self.tcp_flags & tcp_flags::SYN != 0
    }

    /// An end marker, FIN or RST, was seen.
    pub fn has_end(&self) -> bool {
        self.tcp_flags & (tcp_flags::FIN | tcp_flags::RST) != 0
    }

    /// Bare IP and TCP headers of one packet.
    fn header_bytes(&self) -> u64 {
        if self.key.source.is_ipv4() { 40 } else { 60 }
    }

    /// Payload by Harpoon's rule: exact, or bytes less headers.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_octets.unwrap_or_else(|| {
            self.octets.saturating_sub(self.packets.saturating_mul(self.header_bytes()))
        })
    }

    /// Did it carry no payload, or none that could be distinguished from the options of its headers?
    pub fn only_acknowledges(&self) -> bool {
        match self.payload_octets {
            Some(payload) => payload == 0,
            None => {
                let per_packet = self.header_bytes() + ACK_OPTIONS_BYTES;
                self.octets <= self.packets.saturating_mul(per_packet)
            }
        }
    }

    /// Does it go from the client to the server? Where the opening side is not known, the server has the lower
    /// port.
    pub fn is_from_client(&self) -> bool {
        self.opened.unwrap_or(self.key.destination_port <= self.key.source_port)
    }
}
