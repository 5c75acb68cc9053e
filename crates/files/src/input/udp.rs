//! The payload of a UDP datagram, located by the parser's result.
//!
//! The parser returns what a packet is, not where its parts lie. Ports and length make up the
//! datagram's header, so the frame is searched for these bytes: from its end, where only a trailer
//! of a few bytes can follow the payload, towards its beginning.

use nilometer_wire::packet::{Fragment, IpPacket, Transport};

const UDP_HEADER_BYTES: usize = 8;

/// The payload of the UDP datagram that is `packet`, when the capture holds all of it.
pub fn payload<'a>(frame: &'a [u8], packet: &IpPacket) -> Option<&'a [u8]> {
    let Transport::Udp { source_port, destination_port, payload_bytes } = packet.transport else {
        return None;
    };
    if packet.fragment != Fragment::Whole {
        return None;
    }
    let length = u16::try_from(payload_bytes as usize + UDP_HEADER_BYTES).ok()?;
    let mut header = [0; 6];
    header[..2].copy_from_slice(&source_port.to_be_bytes());
    header[2..4].copy_from_slice(&destination_port.to_be_bytes());
    header[4..].copy_from_slice(&length.to_be_bytes());
    let last = frame.len().checked_sub(usize::from(length))?;
    let at = (0..=last).rev().find(|at| frame[*at..].starts_with(&header))?;
    Some(&frame[at + UDP_HEADER_BYTES..at + usize::from(length)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_wire::build;
    use nilometer_wire::link::LinkType;
    use nilometer_wire::packet::{Parsed, parse};

    #[test]
    fn finds_the_payload_before_any_trailer() {
        for trailer in [0, 4, 60] {
            for bytes in [0, 1, 72, 1_464] {
                let sent = vec![9; bytes];
                let (from, to) = ("10.0.0.1:4000", "10.0.0.2:2055");
                let ip = build::udp(from.parse().unwrap(), to.parse().unwrap(), &sent);
                let mut frame = build::ethernet(&ip);
                frame.resize(14 + ip.len() + trailer, 0xee);
                let length = frame.len() as u32;
                let Parsed::Ip(packet) = parse(LinkType::Ethernet, &frame, length) else {
                    panic!("an IP packet")
                };
                assert_eq!(payload(&frame, &packet), Some(&sent[..]));
                let snapped = &frame[..14 + ip.len() - 1];
                let Parsed::Ip(packet) = parse(LinkType::Ethernet, snapped, length) else {
                    panic!("an IP packet")
                };
                assert_eq!(payload(snapped, &packet), None, "cut by the snap length");
            }
        }
    }
}
