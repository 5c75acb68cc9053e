//! What the headers of a frame say, in values: the IP packet, its place among fragments, its transport.
//!
//! [`crate::packet`] makes these values and re-exports them.

use core::fmt;
use core::net::IpAddr;

/// What a frame turned out to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// An IP packet.
    Ip(IpPacket),
    /// Something else (ARP, LLC, LLDP ...), with its ethertype where it has one.
    NotIp(Option<u16>),
    /// The snap length ended before the addresses of an IP header, so nothing is known about it.
    Cut,
    /// Headers that contradict themselves or end before they should.
    Malformed(Malformed),
}

/// An IP packet. `ip_bytes` is of the outermost IP header, everything else of the innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPacket {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IANA protocol number of what follows the IP header and its extension headers.
    pub protocol: u8,
    /// Type of service or traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// Bytes of the outermost IP packet, header included, at its original length: what crosses the
    /// link without link headers, trailers and padding.
    pub ip_bytes: u32,
    /// Is this a fragment?
    pub fragment: Fragment,
    /// The transport header.
    pub transport: Transport,
    /// Was this packet inside another IP packet?
    pub encapsulated: bool,
}

/// A packet's place among the fragments of its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// Not fragmented.
    Whole,
    /// The first fragment, which carries the transport header.
    First,
    /// A later fragment: no transport header, no ports.
    Later,
}

/// The transport header, as far as a meter needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A TCP segment (RFC 9293).
    Tcp(TcpSegment),
    /// A UDP datagram (RFC 768).
    Udp {
        /// Source port.
        source_port: u16,
        /// Destination port.
        destination_port: u16,
        /// Bytes of user data in this packet at original length.
        payload_bytes: u32,
    },
    /// An SCTP packet (RFC 9260).
    Sctp {
        /// Source port.
        source_port: u16,
        /// Destination port.
        destination_port: u16,
    },
    /// An ICMP (RFC 792) or ICMPv6 (RFC 4443) message.
    Icmp {
        /// Type of the message.
        kind: u8,
        /// Its code.
        code: u8,
    },
    /// Another protocol, or a later fragment.
    Other,
    /// The transport header was not captured: cut by the snap length or by fragmentation.
    Cut,
}

/// The fields of a TCP header that a meter needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number of the first payload byte (or of the SYN).
    pub sequence: u32,
    /// Acknowledgement number; meaningful when ACK is set.
    pub acknowledgement: u32,
    /// FIN 0x01, SYN 0x02, RST 0x04, PSH 0x08, ACK 0x10, URG 0x20, ECE 0x40, CWR 0x80.
    pub flags: u8,
    /// Receive window, unscaled.
    pub window: u16,
    /// Bytes of user data in this packet at original length.
    pub payload_bytes: u32,
    /// Its time stamps, where it has any and they were captured.
    pub time_stamps: Option<TimeStamps>,
    /// Bytes of its options as its header states them, where not all of them were captured: it is then
    /// unknown whether it has an option that was not found.
    pub cut_options_bytes: Option<u8>,
}

/// The time stamps of a segment (RFC 7323, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeStamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the value that is echoed; meaningful when ACK is set.
    pub echo: u32,
}

/// Why a packet's headers cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Malformed {
    /// The frame ends inside its link header.
    LinkHeaderShort,
    /// More than sixteen tags, labels and other headers stand before IP.
    LinkHeadersMany,
    /// The PPPoE length is beyond the frame.
    PppoeLength,
    /// The IP version is neither 4 nor 6, or not the one the link header named.
    IpVersion,
    /// The packet ends inside its IP header.
    IpHeaderShort,
    /// The IPv4 header length is below five words.
    Ipv4HeaderLength,
    /// The IP total length is shorter than the IP header.
    IpLengthShort,
    /// The IP total length is beyond the original frame.
    IpLengthBeyondFrame,
    /// The packet ends inside an extension header.
    ExtensionShort,
    /// More than sixteen extension headers.
    ExtensionsMany,
    /// The packet ends inside its transport header.
    TransportShort,
    /// The TCP data offset is below five words or beyond the segment.
    TcpDataOffset,
    /// The UDP length is shorter than its header or beyond the packet.
    UdpLength,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::LinkHeaderShort => "the frame ends inside its link header",
            Malformed::LinkHeadersMany => "more than 16 headers stand before IP",
            Malformed::PppoeLength => "the PPPoE length is beyond the frame",
            Malformed::IpVersion => "the IP version is not the one expected",
            Malformed::IpHeaderShort => "the packet ends inside its IP header",
            Malformed::Ipv4HeaderLength => "the IPv4 header length is below 20 bytes",
            Malformed::IpLengthShort => "the IP total length is shorter than the IP header",
            Malformed::IpLengthBeyondFrame => "the IP total length is beyond the frame",
            Malformed::ExtensionShort => "the packet ends inside an extension header",
            Malformed::ExtensionsMany => "more than 16 extension headers",
            Malformed::TransportShort => "the packet ends inside its transport header",
            Malformed::TcpDataOffset => "the TCP data offset contradicts the segment's length",
            Malformed::UdpLength => "the UDP length contradicts the packet's length",
        })
    }
}

impl core::error::Error for Malformed {}

impl IpPacket {
    /// Source and destination port of TCP, UDP or SCTP; zeros where there are none.
    pub fn ports(&self) -> (u16, u16) {
        match self.transport {
            Transport::Tcp(segment) => (segment.source_port, segment.destination_port),
            Transport::Udp { source_port, destination_port, .. }
            | Transport::Sctp { source_port, destination_port } => (source_port, destination_port),
            Transport::Icmp { .. } | Transport::Other | Transport::Cut => (0, 0),
        }
    }
}
