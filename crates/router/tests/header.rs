//! `Header::read` against `wire`'s parser, its twin: both read the same from what both accept.

use nilometer_router::header::{self, AnyKey, Fault, Header, Unusable};
use nilometer_stat::Rng;
use nilometer_wire::build;
use nilometer_wire::checksum::ipv4_header_checksum_ok;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Fragment, Parsed, Transport, parse};
use std::net::{IpAddr, SocketAddr};

/// Compares the two on `frame`; returns whether both found an IP packet.
fn agree(frame: &[u8]) -> bool {
    let read = Header::read(frame);
    let parsed = parse(LinkType::Ethernet, frame, frame.len() as u32);
    let (Ok(header), Parsed::Ip(packet)) = (read, parsed) else { return false };
    // A length of zero is segmentation offload to a meter and a header without payload to a router.
    // Behind an authentication header of IPv4 a meter looks further, a filter does not.
    let is_offloaded = frame[14] >> 4 == 6 && frame[18..20] == [0, 0];
    let is_authenticated = frame[14] >> 4 == 4 && frame[23] == header::protocol::AUTHENTICATION;
    if packet.encapsulated || is_offloaded || is_authenticated {
        return true;
    }
    let key = match header.key {
        AnyKey::V4(key) => (
            IpAddr::from(key.source.to_be_bytes()),
            IpAddr::from(key.destination.to_be_bytes()),
            (key.source_port, key.destination_port),
            key.protocol,
            key.flags,
        ),
        AnyKey::V6(key) => (
            IpAddr::from(key.source.to_be_bytes()),
            IpAddr::from(key.destination.to_be_bytes()),
            (key.source_port, key.destination_port),
            key.protocol,
            key.flags,
        ),
    };
    let flags = match packet.transport {
        Transport::Tcp(segment) => segment.flags,
        Transport::Cut => key.4,
        _ => 0,
    };
    // A transport header that a first fragment cuts short may still show its ports.
    let ports = match packet.transport {
        Transport::Cut => key.2,
        _ => packet.ports(),
    };
    // Hop-by-hop options anywhere but first end the chain here (RFC 8200, 4.1); a meter continues.
    if key.0.is_ipv6() && key.3 == header::protocol::HOP_BY_HOP {
        return true;
    }
    assert_eq!(key, (packet.source, packet.destination, ports, packet.protocol, flags));
    assert_eq!(u32::from(header.ip_bytes), packet.ip_bytes);
    assert_eq!((header.traffic_class, header.hop_limit), (packet.traffic_class, packet.hop_limit));
    assert_eq!(header.notes & header::LATER_FRAGMENT != 0, packet.fragment == Fragment::Later);
    true
}

/// TCP, UDP and ICMP of both versions, with and without an IPv6 fragment header.
fn samples() -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for (a, b) in [("198.18.0.1", "198.18.1.2"), ("fd00::1", "fd00:1::2")] {
        let [a, b] = [a, b].map(|text| text.parse::<IpAddr>().expect("an address"));
        let (from, to) = (SocketAddr::new(a, 40_000), SocketAddr::new(b, 80));
        let tcp = build::Tcp { flags: 0x18, payload: b"an odd one", ..build::Tcp::new(from, to) };
        packets.push(tcp.ip_packet());
        packets.push(build::udp(from, to, b"a datagram"));
        packets.push(build::icmp(a, b, if a.is_ipv4() { 8 } else { 128 }, 0, &[1, 2, 3, 4]));
    }
    let mut inside = vec![17, 0, 0, 1, 0, 0, 0, 9];
    inside.extend(&packets[4][40..]);
    let addresses = ["fd00::1", "fd00:1::2"].map(|text| text.parse().expect("an address"));
    packets.push(build::ip_packet(addresses[0], addresses[1], header::protocol::FRAGMENT, inside));
    packets.iter().map(|packet| build::ethernet(packet)).collect()
}

#[test]
fn sound_packets_read_as_wire_reads_them() {
    for frame in samples() {
        assert!(agree(&frame));
        for end in 0..frame.len() {
            agree(&frame[..end]);
        }
    }
}

#[test]
fn changed_bytes_never_panic_and_never_disagree() {
    let mut rng = Rng::new(7, u32::from_be_bytes(*b"hdrs"), 0);
    let (samples, mut both) = (samples(), 0);
    for round in 0..200_000 {
        let mut frame = samples[round % samples.len()].clone();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(frame.len().min(80) as u64) as usize;
            frame[at] = rng.next_u64() as u8;
        }
        if round % 2 == 0 && frame[12..14] == [8, 0] {
            frame[24..26].fill(0);
            let header_bytes = usize::from(frame[14] & 15) * 4;
            if let Some(head) = frame.get(14..14 + header_bytes) {
                let sum = nilometer_wire::checksum::internet_checksum(&[head]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
        }
        both += u32::from(agree(&frame));
    }
    assert!(both > 50_000, "only {both} were packets to both");
}

#[test]
fn each_fault_has_its_name() {
    let frame = build::ethernet(&build::udp(
        "198.18.0.1:7".parse().expect("an address"),
        "198.18.0.2:9".parse().expect("an address"),
        &[0; 20],
    ));
    let fault = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = frame.clone();
        change(&mut frame);
        match Header::read(&frame) {
            Err(Unusable::Fault(fault)) => Some(fault),
            _ => None,
        }
    };
    assert_eq!(fault(&|_| ()), None);
    assert_eq!(fault(&|frame| frame.truncate(33)), Some(Fault::Short));
    assert_eq!(fault(&|frame| frame[14] = 0x65), Some(Fault::Version));
    assert_eq!(fault(&|frame| frame[14] = 0x44), Some(Fault::HeaderLength));
    assert_eq!(fault(&|frame| frame[22] ^= 1), Some(Fault::HeaderChecksum));
    assert_eq!(fault(&|frame| frame.truncate(40)), Some(Fault::TotalLength));
    assert_eq!(ipv4_header_checksum_ok(&frame[14..]), Some(true));
}
