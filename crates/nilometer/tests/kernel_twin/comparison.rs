//! The output for one packet, in a form that allows two devices to be compared.

use std::fmt::Write;

use super::rig::Out;

/// An intended difference: it disappears when both sides are seen through this.
pub struct IntendedDifference {
    pub why: &'static str,
    through: fn(&mut [u8]),
}

/// Intended differences, each applied on top of those before it.
pub const INTENDED: [IntendedDifference; 4] = [
    IntendedDifference {
        why: "our ICMP errors have no ECN bits (RFC 3168, 5); the kernel leaves one of the original's",
        through: |packet| {
            if is_error(packet, 4) {
                packet[1] &= !3;
                packet[10..12].fill(0);
            }
        },
    },
    IntendedDifference {
        why: "our ICMPv6 errors have the class of network control, as those of IPv4 must",
        through: |packet| {
            if is_error(packet, 6) {
                packet[0] = 0x60;
                packet[1] &= 0x0f;
            }
        },
    },
    IntendedDifference {
        why: "our ICMP errors have an address of the port that they leave by (RFC 1812, 4.3.2.4); the \
              kernel's have the packet's destination if that is its own, or in IPv6 that of its own \
              which is most like the sender's (RFC 6724)",
        through: |packet| {
            if is_error(packet, 4) {
                packet[12..16].fill(0);
            } else if is_error(packet, 6) {
                packet[8..24].fill(0);
                packet[42..44].fill(0);
            }
        },
    },
    IntendedDifference {
        why: "our fragments have the reserved bit of the packet, the kernel's have not",
        through: |packet| {
            if packet[0] >> 4 == 4 {
                packet[6] &= 0x7f;
                packet[10..12].fill(0);
            }
        },
    },
];

fn is_error(packet: &[u8], version: u8) -> bool {
    let protocol = packet.get(if version == 4 { 9 } else { 6 });
    packet[0] >> 4 == version
        && is_made(packet)
        && protocol == Some(if version == 4 { &1 } else { &58 })
}

/// Whether the device made it.
fn is_made(packet: &[u8]) -> bool {
    match packet[0] >> 4 {
        4 => packet.len() >= 20 && matches!(packet[12..16], [198, 18 | 19, 0, 1]),
        _ => packet.len() >= 40 && packet[8..10] == [0xfd, 0] && packet[12..24] == OWN_END,
    }
}

/// How an IPv6 address of the device ends.
const OWN_END: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// How two outputs compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Same,
    /// Different as intended, for the reason of this number and perhaps those before it.
    IntendedDifference(usize),
    Different,
}

/// Compares without what may differ: identification, and with it the header checksum, of IPv4 packets
/// that the device made.
pub fn compare(theirs: &[Out], own: &[Out]) -> Comparison {
    let (mut theirs, mut own) = (timely(theirs), timely(own));
    if theirs == own {
        return Comparison::Same;
    }
    for (number, intended) in INTENDED.iter().enumerate() {
        for all in [&mut theirs, &mut own] {
            all.iter_mut().for_each(|(_, packet)| (intended.through)(packet));
            all.sort();
        }
        if theirs == own {
            return Comparison::IntendedDifference(number);
        }
    }
    Comparison::Different
}

fn timely(out: &[Out]) -> Vec<Out> {
    let timely = out.iter().filter(|(side, packet)| !is_late(&kind(*side, packet)));
    let mut all: Vec<Out> = timely.map(|(side, packet)| (*side, cleaned(packet))).collect();
    all.sort();
    all
}

/// That no host has an address is found out seconds after the packet, among the outputs of others.
fn is_late(kind: &str) -> bool {
    kind.ends_with(" icmp 3/1") || kind.ends_with(" icmpv6 1/3")
}

fn cleaned(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 && is_made(&packet) {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

/// In words, for classes of differences: side, and for ICMP its type and code.
pub fn canonical(out: &[Out]) -> String {
    let mut words: Vec<String> = out.iter().map(|(side, packet)| kind(*side, packet)).collect();
    words.retain(|word| !is_late(word));
    words.sort();
    words.dedup();
    if words.is_empty() { "nothing".to_owned() } else { words.join(" + ") }
}

fn kind(side: usize, packet: &[u8]) -> String {
    let mut text = ["left", "right"][side].to_owned();
    let header = usize::from(packet[0] & 15) * 4;
    if is_error(packet, 4) && packet.len() > header + 1 {
        let _ = write!(text, " icmp {}/{}", packet[header], packet[header + 1]);
    } else if is_error(packet, 6) && packet.len() > 41 {
        let _ = write!(text, " icmpv6 {}/{}", packet[40], packet[41]);
    } else if packet[0] >> 4 == 4 && u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0 {
        text += " fragment";
    } else {
        text += " packet";
    }
    text
}
