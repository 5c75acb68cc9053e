//! Cut, contradictory and random bytes: no panic, no invented lengths, the right word for each.

use nilometer_stat::Rng;
use std::net::{IpAddr, SocketAddr};

use nilometer_wire::build::{self, Tcp};
use nilometer_wire::checksum::{ipv4_header_checksum_ok, transport_checksum_ok};
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Malformed, Parsed, Transport, parse};

const LINKS: [LinkType; 12] = [
    LinkType::Ethernet,
    LinkType::Null,
    LinkType::Loop,
    LinkType::RawIp,
    LinkType::Ipv4,
    LinkType::Ipv6,
    LinkType::Ppp,
    LinkType::PppHdlc,
    LinkType::CHdlc,
    LinkType::LinuxSll,
    LinkType::LinuxSll2,
    LinkType::Pppoe,
];

/// Ethernet frames whose mutations reach every parser of the crate.
fn seeds() -> Vec<Vec<u8>> {
    let (from, to): (SocketAddr, SocketAddr) =
        ("198.18.0.1:40000".parse().unwrap(), "198.18.1.2:80".parse().unwrap());
    let (from6, to6): (IpAddr, IpAddr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let tcp = Tcp { flags: 2, payload: b"some data", ..Tcp::new(from, to) }.ip_packet();
    let ethernet = build::ethernet(&tcp);
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0], &ethernet[..]].concat();
    let gtp = [&[0x34, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0], &tcp[..]].concat();
    let gre = [&[0xf0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &tcp[..]].concat();
    let transparent = [&[0, 0, 0x65, 0x58], &ethernet[..]].concat();
    let extensions = [43, 0, 1, 4, 0, 0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 1];
    let extended = [&extensions, &tcp[20..]].concat();
    let geneve = [&[1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0], &tcp[..]].concat();
    let to_port = |port| SocketAddr::new(to.ip(), port);
    vec![
        ethernet.clone(),
        build::ethernet(&build::udp(from, to_port(4789), &vxlan)),
        build::ethernet(&build::udp(from, to_port(2152), &gtp)),
        build::ethernet(&build::udp(from, to_port(6081), &geneve)),
        build::ethernet(&build::ip_packet(from.ip(), to.ip(), 47, gre)),
        build::ethernet(&build::ip_packet(from.ip(), to.ip(), 47, transparent)),
        build::ethernet(&build::ip_packet(from6, to6, 4, tcp.clone())),
        build::ethernet(&build::ip_packet(from6, to6, 0, extended)),
        build::ethernet_of(
            0x8100,
            &[&[0, 1, 0x88, 0x64, 0x11, 0, 0, 1, 0, 51, 0, 0x21], &tcp[..]].concat(),
        ),
        build::ethernet_of(0x8847, &[&[0, 1, 1, 64, 0, 0, 0, 0], &ethernet[..]].concat()),
        build::ethernet_of(57, &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &tcp[..]].concat()),
    ]
}

/// What holds for every parse, whatever the bytes.
fn check(link: LinkType, frame: &[u8], original_bytes: u32) -> Parsed {
    let parsed = parse(link, frame, original_bytes);
    if let Parsed::Ip(packet) = parsed {
        let length = original_bytes.max(frame.len() as u32);
        assert!(packet.ip_bytes <= length, "{packet:?} from {length} bytes");
        if let (Transport::Udp { payload_bytes, .. }, false) =
            (packet.transport, packet.encapsulated)
        {
            assert!(payload_bytes < packet.ip_bytes, "{packet:?}");
        }
    }
    let _ = transport_checksum_ok(frame);
    let _ = ipv4_header_checksum_ok(frame);
    parsed
}

#[test]
fn a_frame_cut_by_the_snap_length_is_not_malformed() {
    for frame in seeds() {
        let original = frame.len() as u32;
        let Parsed::Ip(whole) = check(LinkType::Ethernet, &frame, original) else {
            panic!("{frame:02x?}")
        };
        for kept in 0..frame.len() {
            match check(LinkType::Ethernet, &frame[..kept], original) {
                Parsed::Ip(packet) => {
                    assert_eq!(packet.ip_bytes, whole.ip_bytes, "{kept} bytes kept");
                    assert!(packet.ports() == whole.ports() || packet.transport != whole.transport);
                }
                // A frame cut at its pseudowire or LLC header is not known to be IP.
                Parsed::Cut | Parsed::NotIp(_) => assert!(kept < 70, "{kept} bytes kept"),
                Parsed::Malformed(why) => panic!("{why} with {kept} bytes kept of {frame:02x?}"),
            }
        }
    }
}

#[test]
fn a_packet_that_ends_too_early_is_malformed() {
    for frame in seeds() {
        let Parsed::Ip(whole) = check(LinkType::Ethernet, &frame, 0) else {
            panic!("{frame:02x?}")
        };
        for kept in 0..frame.len() {
            if let Parsed::Ip(packet) = check(LinkType::Ethernet, &frame[..kept], kept as u32) {
                assert!(kept >= packet.ip_bytes as usize && packet.ip_bytes == whole.ip_bytes);
            }
        }
    }
}

#[test]
fn each_malformation_has_its_error() {
    let frame = seeds().remove(0);
    let broken = |at: usize, value: u8| {
        let mut frame = frame.clone();
        frame[at] = value;
        check(LinkType::Ethernet, &frame, frame.len() as u32)
    };
    let cases = [
        (14, 0x65, Malformed::IpVersion),
        (14, 0x44, Malformed::Ipv4HeaderLength),
        (14, 0x4f, Malformed::IpLengthShort),
        (16, 0x10, Malformed::IpLengthBeyondFrame),
        (17, 30, Malformed::TransportShort),
        (46, 0x40, Malformed::TcpDataOffset),
        (46, 0xf0, Malformed::TcpDataOffset),
    ];
    for (at, value, expected) in cases {
        assert_eq!(broken(at, value), Parsed::Malformed(expected), "byte {at} = {value:#x}");
    }
    assert_eq!(Malformed::IpVersion.to_string(), "the IP version is not the one expected");
}

#[test]
fn random_mutations_never_panic() {
    let seeds = seeds();
    let (mut rng, mut ip, mut malformed) = (Rng::new(1, 0, 0), 0, 0);
    let mut random = move |below: usize| rng.below(below as u64) as usize;
    for round in 0..100_000 {
        let mut frame = seeds[round % seeds.len()].clone();
        for _ in 0..1 + random(4) {
            let at = random(frame.len());
            frame[at] = random(256) as u8;
        }
        if random(3) == 0 {
            frame.truncate(random(frame.len() + 1));
        }
        let original = frame.len() as u32 + random(2) as u32 * random(3_000) as u32;
        let (link, start) = match random(3) {
            0 => (LINKS[random(LINKS.len())], random(frame.len().clamp(1, 40))),
            _ => (LinkType::Ethernet, 0),
        };
        match check(link, frame.get(start..).unwrap_or_default(), original) {
            Parsed::Ip(_) => ip += 1,
            Parsed::Malformed(_) => malformed += 1,
            Parsed::NotIp(_) | Parsed::Cut => {}
        }
    }
    assert!(ip > 20_000 && malformed > 5_000, "both must be seen often: {ip}, {malformed}");
}

#[test]
fn the_deepest_nesting_ends_quickly() {
    let nested = [&[0; 12], &[0x65, 0x58][..]].concat().repeat(5_000);
    let labels = [&[0; 12], &[0x88, 0x47, 0, 0, 1, 0][..]].concat().repeat(5_000);
    for frame in [nested, labels, vec![0; 70_000], vec![0x88; 70_000]] {
        for link in LINKS {
            check(link, &frame, frame.len() as u32);
        }
    }
}
