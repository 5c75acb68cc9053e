//! Messages of neighbour discovery, to and from bytes (RFC 4861, 4).
//!
//! Whatever breaks a rule of 6.1 and 7.1 is refused as a whole: a hop limit below 255 (it came through a
//! router), a wrong checksum, a target that is a group, an option without length, a fragment (RFC 6980).

use super::Mac;
use super::frame::{Ink, icmpv6_checksum};
use super::options::{OnLinkPrefix, Options, PREFIXES_MAX};
use super::states::Answer;
use crate::header::{AnyKey, ETHERNET_BYTES, FRAGMENT, Header, protocol::ICMPV6};

/// All nodes of the link (RFC 4291, 2.7.1).
pub(super) const ALL_NODES: u128 = 0xff02 << 112 | 1;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// The hop limit of a message that was not forwarded.
const HOP_LIMIT: u8 = 255;
/// Flags of an advertisement: a router, solicited, override.
const IS_ROUTER: u8 = 0x80;
const IS_SOLICITED: u8 = 0x40;
const OVERRIDES: u8 = 0x20;

/// The addresses of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The frame's destination.
    pub frame_to: Mac,
    /// The frame's source.
    pub frame_from: Mac,
    /// Source address; unspecified while the sender has none.
    pub source: u128,
    /// Destination address.
    pub destination: u128,
}

/// A router advertisement (4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterAdvertisement {
    /// The hop limit that hosts shall use; 0 if unspecified.
    pub hop_limit: u8,
    /// M: addresses are to be had by DHCPv6.
    pub is_managed: bool,
    /// O: other settings are to be had by DHCPv6.
    pub is_other: bool,
    /// For how many seconds the router is a default router; 0 if it is none.
    pub lifetime_s: u16,
    /// The reachable time for hosts in milliseconds; 0 if unspecified.
    pub reachable_ms: u32,
    /// The time between requests for hosts in milliseconds; 0 if unspecified.
    pub retransmit_ms: u32,
    /// The router's link-layer address.
    pub mac: Option<Mac>,
    /// The link's MTU in bytes.
    pub mtu: Option<u32>,
    /// Prefixes of the link.
    pub prefixes: [Option<OnLinkPrefix>; PREFIXES_MAX],
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Is there a router (4.1)?
    RouterSolicitation {
        /// The sender's link-layer address.
        mac: Option<Mac>,
    },
    /// Here is one.
    RouterAdvertisement(RouterAdvertisement),
    /// Who has an address (4.3)?
    Solicitation {
        /// The address.
        target: u128,
        /// The sender's link-layer address.
        mac: Option<Mac>,
    },
    /// The sender has it (4.4).
    Advertisement {
        /// The address.
        target: u128,
        /// The answer.
        answer: Answer,
    },
}

/// Why a frame carries no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is no sound IPv6 packet, or another protocol or a fragment.
    #[error("not a whole ICMPv6 packet")]
    Packet,
    /// Another ICMPv6 message than these four.
    #[error("not a message of neighbour discovery")]
    Kind,
    /// The hop limit is not 255.
    #[error("the hop limit is not 255")]
    HopLimit,
    /// The checksum is wrong.
    #[error("the ICMPv6 checksum is wrong")]
    Checksum,
    /// The code is not 0.
    #[error("the code is not 0")]
    Code,
    /// It is shorter than its kind.
    #[error("the message ends before its kind does")]
    Short,
    /// The target is a group.
    #[error("the target is a group")]
    Target,
    /// An option has no length, a wrong one, or is cut.
    #[error("an option has a wrong length or is cut")]
    Option,
    /// The source may not send it.
    #[error("the source may not send it")]
    Source,
    /// It may not be sent to this destination.
    #[error("it may not be sent to this destination")]
    Destination,
}

/// The group that a host listens on for questions about `address` (RFC 4291, 2.7.1).
pub(super) fn solicited_node(address: u128) -> u128 {
    0xff02 << 112 | 0x1_ff00_0000 | address & 0xff_ffff
}

/// The link-layer address of an IPv6 group (RFC 2464, 7).
pub(crate) fn group_mac(group: u128) -> Mac {
    let [a, b, c, d] = (group as u32).to_be_bytes();
    [0x33, 0x33, a, b, c, d]
}

fn is_group(address: u128) -> bool {
    address >> 120 == 0xff
}

/// The ICMPv6 message in a frame, its checksum verified, and the headers before it.
pub(crate) fn icmpv6(frame: &[u8]) -> Result<(Envelope, Header, &[u8]), Malformed> {
    let header = Header::read(frame).map_err(|_| Malformed::Packet)?;
    let AnyKey::V6(key) = header.key else { return Err(Malformed::Packet) };
    if key.protocol != ICMPV6 || header.notes & FRAGMENT != 0 {
        return Err(Malformed::Packet);
    }
    let packet = &frame[ETHERNET_BYTES..ETHERNET_BYTES + usize::from(header.ip_bytes)];
    let message = &packet[usize::from(header.transport_at)..];
    if message.len() < 4 {
        return Err(Malformed::Short);
    }
    let (source, destination) = (key.source.to_be_bytes(), key.destination.to_be_bytes());
    if icmpv6_checksum(source, destination, message) != 0 {
        return Err(Malformed::Checksum);
    }
    let envelope = Envelope {
        frame_to: core::array::from_fn(|i| frame[i]),
        frame_from: core::array::from_fn(|i| frame[6 + i]),
        source: key.source,
        destination: key.destination,
    };
    Ok((envelope, header, message))
}

impl Message {
    /// Reads a frame.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn read(frame: &[u8]) -> Result<(Envelope, Message), Malformed> {
        let (envelope, header, bytes) = icmpv6(frame)?;
        let kind = bytes[0];
        let fixed_bytes = match kind {
            ROUTER_SOLICITATION => 8,
            ROUTER_ADVERTISEMENT => 16,
            SOLICITATION | ADVERTISEMENT => 24,
            _ => return Err(Malformed::Kind),
        };
        if header.hop_limit != HOP_LIMIT {
            return Err(Malformed::HopLimit);
        }
        if bytes[1] != 0 {
            return Err(Malformed::Code);
        }
        let fixed = bytes.get(..fixed_bytes).ok_or(Malformed::Short)?;
        let options = Options::read(&bytes[fixed_bytes..]).ok_or(Malformed::Option)?;
        let message = match kind {
            ROUTER_SOLICITATION => Message::RouterSolicitation { mac: options.source_mac },
            ROUTER_ADVERTISEMENT => {
                Message::RouterAdvertisement(RouterAdvertisement::read(fixed, &options))
            }
            _ => Message::about_target(fixed, &options),
        };
        message.check(&envelope)?;
        Ok((envelope, message))
    }

    fn about_target(fixed: &[u8], options: &Options) -> Message {
        let target = u128::from_be_bytes(core::array::from_fn(|i| fixed[8 + i]));
        if fixed[0] == SOLICITATION {
            return Message::Solicitation { target, mac: options.source_mac };
        }
        let answer = Answer {
            mac: options.target_mac,
            is_solicited: fixed[4] & IS_SOLICITED != 0,
            overrides: fixed[4] & OVERRIDES != 0,
            is_router: fixed[4] & IS_ROUTER != 0,
        };
        Message::Advertisement { target, answer }
    }

    /// The rules of 6.1.1, 6.1.2, 7.1.1 and 7.1.2 that concern addresses.
    fn check(&self, envelope: &Envelope) -> Result<(), Malformed> {
        if is_group(envelope.source) {
            return Err(Malformed::Source);
        }
        match *self {
            Message::RouterSolicitation { mac } if envelope.source == 0 && mac.is_some() => {
                Err(Malformed::Source)
            }
            Message::RouterAdvertisement(_) if envelope.source >> 118 != 0xfe80 >> 6 => {
                Err(Malformed::Source)
            }
            Message::Solicitation { target, .. } | Message::Advertisement { target, .. }
                if is_group(target) =>
            {
                Err(Malformed::Target)
            }
            Message::Solicitation { target, mac } if envelope.source == 0 => {
                if envelope.destination != solicited_node(target) {
                    Err(Malformed::Destination)
                } else if mac.is_some() {
                    Err(Malformed::Source)
                } else {
                    Ok(())
                }
            }
            Message::Advertisement { answer, .. }
                if answer.is_solicited && is_group(envelope.destination) =>
            {
                Err(Malformed::Destination)
            }
            _ => Ok(()),
        }
    }

    /// Writes the frame and returns its length, at most 214 bytes.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn write(&self, envelope: &Envelope, frame: &mut [u8]) -> usize {
        let mut ink = Ink::new(frame, envelope.frame_to, envelope.frame_from, 0x86dd);
        ink.ipv6(ICMPV6, HOP_LIMIT, envelope.source, envelope.destination);
        let at = ink.at();
        match self {
            Message::RouterSolicitation { mac } => {
                ink.put(&[ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
                Options { source_mac: *mac, ..Options::default() }.write(&mut ink);
            }
            Message::RouterAdvertisement(advertisement) => advertisement.write(&mut ink),
            Message::Solicitation { target, mac } => {
                ink.put(&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
                ink.put(&target.to_be_bytes());
                Options { source_mac: *mac, ..Options::default() }.write(&mut ink);
            }
            Message::Advertisement { target, answer } => {
                let flags = (u8::from(answer.is_router) * IS_ROUTER)
                    | (u8::from(answer.is_solicited) * IS_SOLICITED)
                    | (u8::from(answer.overrides) * OVERRIDES);
                ink.put(&[ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0]);
                ink.put(&target.to_be_bytes());
                Options { target_mac: answer.mac, ..Options::default() }.write(&mut ink);
            }
        }
        ink.close_icmpv6(at);
        ink.close()
    }
}

impl RouterAdvertisement {
    fn read(fixed: &[u8], options: &Options) -> RouterAdvertisement {
        let word = |at: usize| u32::from_be_bytes(core::array::from_fn(|i| fixed[at + i]));
        RouterAdvertisement {
            hop_limit: fixed[4],
            is_managed: fixed[5] & 0x80 != 0,
            is_other: fixed[5] & 0x40 != 0,
            lifetime_s: u16::from_be_bytes([fixed[6], fixed[7]]),
            reachable_ms: word(8),
            retransmit_ms: word(12),
            mac: options.source_mac,
            mtu: options.mtu,
            prefixes: options.prefixes,
        }
    }

    fn write(&self, ink: &mut Ink<'_>) {
        let flags = (u8::from(self.is_managed) * 0x80) | (u8::from(self.is_other) * 0x40);
        ink.put(&[ROUTER_ADVERTISEMENT, 0, 0, 0, self.hop_limit, flags]);
        ink.put(&self.lifetime_s.to_be_bytes());
        ink.put(&self.reachable_ms.to_be_bytes());
        ink.put(&self.retransmit_ms.to_be_bytes());
        let (mtu, prefixes) = (self.mtu, self.prefixes);
        Options { source_mac: self.mac, target_mac: None, mtu, prefixes }.write(ink);
    }
}
