//! The link layer: from a capture's link type to where IP begins in its frames.
//!
//! Numbers and layouts are those of the pcap link-layer header types
//! (<https://www.tcpdump.org/linktypes.html>).

use crate::ether::{self, ppp};
use crate::parsed::Malformed;
use crate::view::{Payload, Stop, View, word};

/// How many headers may stand before IP: tags, labels, session headers.
pub(crate) const HEADERS_MAX: u8 = 16;

const IPV4: Option<u8> = Some(4);
const IPV6: Option<u8> = Some(6);

crate::named! {
    /// The framing of a capture.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum LinkType {
        /// Ethernet (LINKTYPE 1).
        Ethernet = "Ethernet",
        /// BSD loopback: the address family in the byte order of the capturing host (0).
        Null = "BSD loopback (NULL)",
        /// OpenBSD loopback: the address family in network byte order (108).
        Loop = "OpenBSD loopback (LOOP)",
        /// An IP packet of either version (12, 14 and 101).
        RawIp = "raw IP",
        /// An IPv4 packet (228).
        Ipv4 = "raw IPv4",
        /// An IPv6 packet (229).
        Ipv6 = "raw IPv6",
        /// PPP, with or without its address and control bytes, or Cisco HDLC (9).
        Ppp = "PPP",
        /// PPP in HDLC-like framing, or Cisco HDLC (50).
        PppHdlc = "PPP in HDLC-like framing",
        /// Cisco HDLC (104).
        CHdlc = "Cisco HDLC",
        /// Linux "cooked" capture, version 1 (113).
        LinuxSll = "Linux cooked (SLL)",
        /// Linux "cooked" capture, version 2 (276).
        LinuxSll2 = "Linux cooked (SLL2)",
        /// A PPPoE session header, then PPP (51).
        Pppoe = "PPPoE session",
    }
}

impl LinkType {
    /// The link type of a pcap or pcapng link-layer number, if it is one of these.
    #[inline]
    pub fn from_dlt(number: u32) -> Option<LinkType> {
        Some(match number {
            0 => LinkType::Null,
            1 => LinkType::Ethernet,
            9 => LinkType::Ppp,
            12 | 14 | 101 => LinkType::RawIp,
            50 => LinkType::PppHdlc,
            51 => LinkType::Pppoe,
            104 => LinkType::CHdlc,
            108 => LinkType::Loop,
            113 => LinkType::LinuxSll,
            228 => LinkType::Ipv4,
            229 => LinkType::Ipv6,
            276 => LinkType::LinuxSll2,
            _ => return None,
        })
    }
}

/// Passes the link header of a frame.
pub(crate) fn open(link: LinkType, frame: View<'_>) -> Result<Payload<'_>, Stop> {
    match link {
        LinkType::Ethernet => ether::frame(frame, HEADERS_MAX),
        LinkType::Null | LinkType::Loop => loopback(frame),
        LinkType::RawIp => Ok(Payload::Ip(frame, None)),
        LinkType::Ipv4 => Ok(Payload::Ip(frame, IPV4)),
        LinkType::Ipv6 => Ok(Payload::Ip(frame, IPV6)),
        // Serial lines that speak Cisco HDLC are captured under either PPP number.
        LinkType::Ppp | LinkType::PppHdlc => match frame.need(2, Malformed::LinkHeaderShort)? {
            [0x0f | 0x8f, ..] => cisco_hdlc(frame),
            _ => ppp::frame(frame, HEADERS_MAX),
        },
        LinkType::CHdlc => cisco_hdlc(frame),
        LinkType::LinuxSll => {
            let head = frame.need(16, Malformed::LinkHeaderShort)?;
            cooked(word(head, 2), word(head, 14), frame.skip(16))
        }
        LinkType::LinuxSll2 => {
            let head = frame.need(20, Malformed::LinkHeaderShort)?;
            cooked(word(head, 8), word(head, 0), frame.skip(20))
        }
        LinkType::Pppoe => ppp::session(frame, HEADERS_MAX),
    }
}

/// The family word may stand in either byte order: captures travel between hosts, and NULL files
/// written on one kind of host are relabelled LOOP on another.
fn loopback(frame: View<'_>) -> Result<Payload<'_>, Stop> {
    let head = frame.need(4, Malformed::LinkHeaderShort)?;
    let family = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let family = if family > 0xffff { family.swap_bytes() } else { family };
    Ok(match family {
        2 => Payload::Ip(frame.skip(4), IPV4),
        10 | 24 | 28 | 30 => Payload::Ip(frame.skip(4), IPV6),
        _ => Payload::Other(None),
    })
}

fn cisco_hdlc(frame: View<'_>) -> Result<Payload<'_>, Stop> {
    let head = frame.need(4, Malformed::LinkHeaderShort)?;
    ether::typed(word(head, 2), frame.skip(4), HEADERS_MAX)
}

/// Linux says the hardware type (ARPHRD) beside the protocol; for netlink, radio and Frame Relay
/// devices the protocol field is not an ethertype.
fn cooked(hardware: u16, protocol: u16, payload: View<'_>) -> Result<Payload<'_>, Stop> {
    const NOT_AN_ETHERTYPE: [u16; 4] = [770, 801, 803, 824];
    const LLC: u16 = 4;
    match protocol {
        _ if NOT_AN_ETHERTYPE.contains(&hardware) => Ok(Payload::Other(None)),
        LLC => ether::logical_link(payload, HEADERS_MAX),
        0..0x0600 => Ok(Payload::Other(None)),
        _ => ether::typed(protocol, payload, HEADERS_MAX),
    }
}
