//! Every link type, tag, tunnel and extension header leads to the same innermost packet.

use std::net::{IpAddr, SocketAddr};

use nilometer_wire::build::{self, Tcp};
use nilometer_wire::checksum::Checksum;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Fragment, IpPacket, Malformed, Parsed, Transport, parse};

const PAYLOAD: &[u8] = b"twenty bytes of data";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn tcp4() -> Vec<u8> {
    Tcp {
        sequence: 0x0102_0304,
        acknowledgement: 9,
        flags: 0x18,
        window: 512,
        payload: PAYLOAD,
        ..Tcp::new(address("198.18.0.1:40000"), address("198.18.1.2:80"))
    }
    .ip_packet()
}

fn tcp6() -> Vec<u8> {
    Tcp { payload: PAYLOAD, ..Tcp::new(address("[fd00::1]:40000"), address("[fd00::2]:80")) }
        .ip_packet()
}

fn ip(link: LinkType, frame: &[u8]) -> IpPacket {
    match parse(link, frame, frame.len() as u32) {
        Parsed::Ip(packet) => packet,
        other => panic!("{} gave {other:?}", link.name()),
    }
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// `packet` must be the TCP packet of `tcp4` or `tcp6`, and `ip_bytes` long on the link.
fn assert_innermost(packet: IpPacket, ip_bytes: usize, encapsulated: bool, what: &str) {
    assert_eq!(packet.ports(), (40_000, 80), "{what}");
    assert_eq!(packet.protocol, 6, "{what}");
    assert_eq!(packet.ip_bytes as usize, ip_bytes, "{what}");
    assert_eq!(packet.encapsulated, encapsulated, "{what}");
    let Transport::Tcp(segment) = packet.transport else { panic!("{what}: {packet:?}") };
    assert_eq!(segment.payload_bytes as usize, PAYLOAD.len(), "{what}");
}

#[test]
fn the_fields_are_those_that_were_sent() {
    let packet = ip(LinkType::Ethernet, &build::ethernet(&tcp4()));
    assert_eq!(packet.source, "198.18.0.1".parse::<IpAddr>().unwrap());
    assert_eq!(packet.destination, "198.18.1.2".parse::<IpAddr>().unwrap());
    assert_eq!((packet.hop_limit, packet.traffic_class), (64, 0));
    assert_eq!(packet.fragment, Fragment::Whole);
    let Transport::Tcp(segment) = packet.transport else { panic!("{packet:?}") };
    assert_eq!((segment.sequence, segment.acknowledgement), (0x0102_0304, 9));
    assert_eq!((segment.flags, segment.window, segment.payload_bytes), (0x18, 512, 20));
    let message = build::icmp(packet.source, packet.destination, 8, 3, &[0; 4]);
    let transport = ip(LinkType::RawIp, &message).transport;
    assert_eq!(transport, Transport::Icmp { kind: 8, code: 3 });
    let mut sctp = vec![0x12, 0x34, 0x56, 0x78];
    sctp.extend([0; 12]);
    let sctp = build::ip_packet(packet.source, packet.destination, 132, sctp);
    assert_eq!(ip(LinkType::RawIp, &sctp).ports(), (0x1234, 0x5678));
}

#[test]
fn padding_and_trailers_do_not_count() {
    let short = build::udp(address("198.18.0.1:1"), address("198.18.0.2:2"), b"x");
    let frame = build::ethernet(&short);
    assert_eq!(frame.len(), 60);
    let packet = ip(LinkType::Ethernet, &frame);
    assert_eq!(packet.ip_bytes, 29);
    assert!(matches!(packet.transport, Transport::Udp { payload_bytes: 1, .. }));
}

#[test]
fn every_link_type_leads_to_ip() {
    let (v4, v6) = (tcp4(), tcp6());
    let sll =
        |kind: u16| joined(&[&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], &kind.to_be_bytes()]);
    let sll2 = |kind: u16| joined(&[&kind.to_be_bytes(), &[0; 6], &[0, 1, 4, 6], &[0; 8]]);
    let cases: Vec<(LinkType, Vec<u8>, &[u8])> = vec![
        (LinkType::RawIp, vec![], &v4),
        (LinkType::RawIp, vec![], &v6),
        (LinkType::Ipv4, vec![], &v4),
        (LinkType::Ipv6, vec![], &v6),
        (LinkType::Null, vec![2, 0, 0, 0], &v4),
        (LinkType::Null, vec![0, 0, 0, 2], &v4),
        (LinkType::Null, vec![24, 0, 0, 0], &v6),
        (LinkType::Null, vec![0, 0, 0, 28], &v6),
        (LinkType::Loop, vec![0, 0, 0, 30], &v6),
        (LinkType::Loop, vec![10, 0, 0, 0], &v6),
        (LinkType::Ppp, vec![0xff, 3, 0, 0x21], &v4),
        (LinkType::Ppp, vec![0, 0x57], &v6),
        (LinkType::Ppp, vec![0x21], &v4),
        (LinkType::PppHdlc, vec![0xff, 3, 0, 0x57], &v6),
        (LinkType::PppHdlc, vec![0x0f, 0, 8, 0], &v4),
        (LinkType::Ppp, vec![0x0f, 0, 8, 0], &v4),
        (LinkType::CHdlc, vec![0x0f, 0, 0x86, 0xdd], &v6),
        (LinkType::LinuxSll, sll(0x0800), &v4),
        (LinkType::LinuxSll, sll(0x86dd), &v6),
        (LinkType::LinuxSll2, sll2(0x0800), &v4),
        (LinkType::LinuxSll2, joined(&[&sll2(0x8100), &[0, 5, 0x86, 0xdd]]), &v6),
        (LinkType::Pppoe, vec![0x11, 0, 0, 1, 0, 62, 0, 0x21], &v4),
    ];
    for (link, header, packet) in cases {
        let frame = joined(&[&header, packet]);
        let what = format!("{} after {header:02x?}", link.name());
        assert_innermost(ip(link, &frame), packet.len(), false, &what);
    }
}

#[test]
fn headers_between_ethernet_and_ip_are_passed() {
    let v4 = tcp4();
    let mac: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let inner = joined(&[&mac, &[8, 0], &v4]);
    let zero_mac = joined(&[&[0; 12], &[8, 0], &v4]);
    let length = [0, (v4.len() + 8) as u8];
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("VLAN", joined(&[&[0x81, 0, 0, 5, 8, 0], &v4])),
        ("QinQ", joined(&[&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0], &v4])),
        ("old QinQ", joined(&[&[0x91, 0, 0, 5, 0x81, 0, 0, 6, 8, 0], &v4])),
        ("PPPoE", joined(&[&[0x88, 0x64, 0x11, 0, 0, 1, 0, 62, 0, 0x21], &v4])),
        ("MPLS", joined(&[&[0x88, 0x47, 0, 1, 0, 64, 0, 1, 1, 64], &v4])),
        ("SNAP", joined(&[&length, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &v4])),
        ("LLC IP", joined(&[&[0, (v4.len() + 3) as u8], &[6, 6, 3], &v4])),
        ("FabricPath", joined(&[&[0x89, 0x03, 0, 0x60], &inner])),
        ("pseudowire", joined(&[&[0x88, 0x47, 0, 1, 1, 64, 0, 0, 0, 0], &inner])),
        ("pseudowire, no control word", joined(&[&[0x88, 0x47, 0, 1, 1, 64], &inner])),
        ("pseudowire, zeros", joined(&[&[0x88, 0x47, 0, 1, 1, 64, 0, 0, 0, 0], &zero_mac])),
    ];
    for (what, rest) in cases {
        let frame = joined(&[&mac, &rest, &[0xee; 4]]);
        assert_innermost(ip(LinkType::Ethernet, &frame), v4.len(), false, what);
    }
    let arp = build::ethernet_of(0x0806, &[0; 28]);
    assert_eq!(parse(LinkType::Ethernet, &arp, 60), Parsed::NotIp(Some(0x0806)));
    let spanning_tree = build::ethernet_of(38, &[0x42, 0x42, 3]);
    assert_eq!(parse(LinkType::Ethernet, &spanning_tree, 60), Parsed::NotIp(None));
}

/// Every way to put a packet into another, as (name, outer protocol, bytes before the inner packet).
fn tunnels(inner: &[u8]) -> Vec<(&'static str, u8, Vec<u8>)> {
    let six = inner[0] >> 4 == 6;
    let kind: [u8; 2] = if six { [0x86, 0xdd] } else { [8, 0] };
    let mac: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let gre = |flags: [u8; 2], rest: usize| joined(&[&flags, &kind, &vec![0; rest]]);
    let udp = |port: u16, header: &[u8]| {
        let length = (8 + header.len() + inner.len()) as u16;
        joined(&[&[0xc0, 0], &port.to_be_bytes(), &length.to_be_bytes(), &[0, 0], header])
    };
    let gtp_extended = [0x34, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0];
    vec![
        ("IP in IP", if six { 41 } else { 4 }, vec![]),
        ("GRE", 47, gre([0, 0], 0)),
        ("GRE checksum", 47, gre([0x80, 0], 4)),
        ("GRE key", 47, gre([0x20, 0], 4)),
        ("GRE key, sequence", 47, gre([0x30, 0], 8)),
        ("GRE all", 47, gre([0xb0, 0], 12)),
        ("GRE routing", 47, joined(&[&gre([0x40, 0], 4), &[8, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0]])),
        ("GRE Ethernet", 47, joined(&[&[0, 0, 0x65, 0x58], &mac, &kind])),
        ("PPTP", 47, {
            let protocol = if six { 0x57 } else { 0x21 };
            joined(&[&[0x30, 0x81, 0x88, 0x0b], &[0; 12], &[0xff, 3, 0, protocol]])
        }),
        ("EtherIP", 97, joined(&[&[0x30, 0], &mac, &kind])),
        ("VXLAN", 17, udp(4789, &joined(&[&[8, 0, 0, 0, 0, 0, 1, 0], &mac, &kind]))),
        ("Geneve", 17, udp(6081, &joined(&[&[1, 0], &kind, &[0; 4], &[0; 4]]))),
        ("GTP-U", 17, udp(2152, &[0x30, 0xff, 0, 0, 0, 0, 0, 1])),
        ("GTP-U sequence", 17, udp(2152, &[0x32, 0xff, 0, 0, 0, 0, 0, 1, 0, 7, 0, 0])),
        ("GTP-U extension", 17, udp(2152, &gtp_extended)),
    ]
}

#[test]
fn every_tunnel_is_opened() {
    let outer4: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    let outer6: [IpAddr; 2] = ["2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()];
    for [from, to] in [outer4, outer6] {
        for inner in [tcp4(), tcp6()] {
            for (what, protocol, before) in tunnels(&inner) {
                let packet = build::ip_packet(from, to, protocol, joined(&[&before, &inner]));
                let parsed = ip(LinkType::RawIp, &packet);
                assert_innermost(parsed, packet.len(), true, what);
                assert_eq!(parsed.source.is_ipv4(), inner[0] >> 4 == 4, "{what}");

                let mut broken = joined(&[&before, &inner]);
                broken[before.len()] = 0x00;
                let packet = build::ip_packet(from, to, protocol, broken);
                let parsed = ip(LinkType::RawIp, &packet);
                assert_eq!((parsed.protocol, parsed.encapsulated), (protocol, false), "{what}");
            }
        }
    }
}

#[test]
fn redirected_packets_are_opened_with_and_without_their_header() {
    let [from, to]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    for header in [&[][..], &[0x81, 0, 0, 0]] {
        let gre = joined(&[&[0, 0, 0x88, 0x3e], header, &tcp4()]);
        let packet = build::ip_packet(from, to, 47, gre);
        assert_innermost(ip(LinkType::Ipv4, &packet), packet.len(), true, "WCCP");
    }
}

#[test]
fn nesting_ends_at_its_limit() {
    let [from, to]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    let mut packet = tcp4();
    for _ in 0..20 {
        packet = build::ip_packet(from, to, 4, packet);
    }
    let parsed = ip(LinkType::RawIp, &packet);
    assert_eq!((parsed.protocol, parsed.ip_bytes as usize), (4, packet.len()));
    let tags = joined(&[&[0; 12], &[0x81, 0, 0, 1].repeat(20), &[8, 0], &tcp4()]);
    let parsed = parse(LinkType::Ethernet, &tags, tags.len() as u32);
    assert_eq!(parsed, Parsed::Malformed(Malformed::LinkHeadersMany));
}

/// As many headers as the limits allow are passed, and one more is not.
#[test]
fn headers_are_passed_up_to_the_limit() {
    let [from, to]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    let (inner, mut packet) = (tcp4(), tcp4());
    for depth in 1..=9 {
        packet = build::ip_packet(from, to, 4, packet);
        let protocol = ip(LinkType::RawIp, &packet).protocol;
        assert_eq!(protocol, if depth <= 8 { 6 } else { 4 }, "{depth} tunnels");
    }
    let many = Parsed::Malformed(Malformed::LinkHeadersMany);
    for count in 0..20 {
        let tags = joined(&[&[0; 12], &[0x81, 0, 0, 1].repeat(count), &[8, 0], &inner]);
        let found = parse(LinkType::Ethernet, &tags, tags.len() as u32);
        assert_eq!(found == many, count > 15, "{count} tags and a type");
        if count == 0 {
            continue;
        }
        let stack = [&[0, 1, 0, 64].repeat(count - 1)[..], &[0, 1, 1, 64], &inner].concat();
        for (headers, most) in [(&[0x88, 0x47][..], 15), (&[0x81, 0, 0, 1, 0x88, 0x47], 14)] {
            let frame = joined(&[&[0; 12], headers, &stack]);
            let found = parse(LinkType::Ethernet, &frame, frame.len() as u32);
            assert_eq!(found == many, count > most, "{count} labels of {most}");
        }
        let ppp = joined(&[&[0x02, 0x81], &stack]);
        let found = parse(LinkType::Ppp, &ppp, ppp.len() as u32);
        assert_eq!(found == many, count > 16, "{count} labels of PPP");
    }
    let mac: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for count in 0..6 {
        // The pseudowire's own type counts as one of the four headers that it may have.
        let rest = joined(&[&mac[1..], &[0x81, 0, 0, 1].repeat(count), &[8, 0], &inner]);
        // An address that begins with a nibble of zero needs the word, another does not.
        for first in [&[0x12][..], &[0, 0, 0, 0, 2]] {
            let frame = joined(&[&mac, &[0x88, 0x47, 0, 1, 1, 64], first, &rest]);
            let found = parse(LinkType::Ethernet, &frame, frame.len() as u32);
            assert_eq!(matches!(found, Parsed::Ip(_)), count <= 2, "{count} tags");
        }
    }
}

/// The numbers of the pcap link-layer header types, and no others.
#[test]
fn link_types_have_their_numbers_and_names() {
    let known = [
        (0, "BSD loopback (NULL)"),
        (1, "Ethernet"),
        (9, "PPP"),
        (12, "raw IP"),
        (14, "raw IP"),
        (50, "PPP in HDLC-like framing"),
        (51, "PPPoE session"),
        (101, "raw IP"),
        (104, "Cisco HDLC"),
        (108, "OpenBSD loopback (LOOP)"),
        (113, "Linux cooked (SLL)"),
        (228, "raw IPv4"),
        (229, "raw IPv6"),
        (276, "Linux cooked (SLL2)"),
    ];
    for number in 0..400 {
        let name = known.iter().find(|row| row.0 == number).map(|row| row.1);
        assert_eq!(LinkType::from_dlt(number).map(LinkType::name), name, "{number}");
    }
}

/// Puts extension headers, each (protocol, bytes with a next-header field to fill), before TCP.
fn extended(headers: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let inner = tcp6();
    let (mut chain, mut next) = (inner[40..].to_vec(), inner[6]);
    for (protocol, bytes) in headers.iter().rev() {
        let mut bytes = bytes.clone();
        bytes[0] = next;
        chain = joined(&[&bytes, &chain]);
        next = *protocol;
    }
    let mut packet = joined(&[&inner[..40], &chain]);
    packet[4..6].copy_from_slice(&(chain.len() as u16).to_be_bytes());
    packet[6] = next;
    packet
}

#[test]
fn extension_headers_are_passed() {
    let options = vec![0, 0, 1, 4, 0, 0, 0, 0];
    let routing = vec![0, 2, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7];
    let authentication =
        vec![0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3];
    let atomic = vec![0, 0, 0, 0, 0, 0, 0, 1];
    let all = [(0, options.clone()), (43, routing), (44, atomic), (51, authentication)];
    for count in 0..=all.len() {
        let packet = extended(&all[..count]);
        assert_innermost(ip(LinkType::Ipv6, &packet), packet.len(), false, "extensions");
    }
    let packet = extended(&[(60, options.clone()), (135, options.clone())]);
    assert_innermost(ip(LinkType::Ipv6, &packet), packet.len(), false, "mobility");
    let many = extended(&vec![(60, options); 17]);
    let parsed = parse(LinkType::Ipv6, &many, many.len() as u32);
    assert_eq!(parsed, Parsed::Malformed(Malformed::ExtensionsMany));
    let esp = extended(&[(50, vec![0; 8])]);
    assert_eq!(ip(LinkType::Ipv6, &esp).protocol, 50);
    assert_eq!(ip(LinkType::Ipv6, &esp).transport, Transport::Other);
}

/// The rest of the chain is in the fragment that follows (RFC 8200, 4.5), or beyond the snap length.
#[test]
fn a_chain_that_goes_on_elsewhere_is_no_error() {
    let mut options = vec![0; 24];
    options[1] = 2;
    let first = extended(&[(44, vec![0, 0, 0, 1, 0, 0, 0, 9]), (60, options.clone())]);
    for cut in 1..24 {
        let mut packet = first[..48 + cut].to_vec();
        packet[4..6].copy_from_slice(&(8 + cut as u16).to_be_bytes());
        let parsed = ip(LinkType::Ipv6, &packet);
        assert_eq!((parsed.fragment, parsed.transport), (Fragment::First, Transport::Cut), "{cut}");
    }
    let whole = extended(&[(60, options)]);
    for seen in 41..64 {
        let parsed = parse(LinkType::Ipv6, &whole[..seen], whole.len() as u32);
        let Parsed::Ip(packet) = parsed else { panic!("{seen} bytes gave {parsed:?}") };
        assert_eq!(
            (packet.transport, packet.fragment),
            (Transport::Cut, Fragment::Whole),
            "{seen}"
        );
        let mut short = whole[..seen].to_vec();
        short[4..6].copy_from_slice(&(seen as u16 - 40).to_be_bytes());
        let parsed = parse(LinkType::Ipv6, &short, seen as u32);
        assert_eq!(parsed, Parsed::Malformed(Malformed::ExtensionShort), "{seen} bytes in all");
    }
}

#[test]
fn fragments_keep_their_ports_only_in_the_first() {
    let first = extended(&[(44, vec![0, 0, 0, 1, 0, 0, 0, 9])]);
    let parsed = ip(LinkType::Ipv6, &first);
    assert_eq!((parsed.fragment, parsed.ports()), (Fragment::First, (40_000, 80)));
    let later = extended(&[(44, vec![0, 0, 1, 0, 0, 0, 0, 9])]);
    let parsed = ip(LinkType::Ipv6, &later);
    assert_eq!((parsed.fragment, parsed.ports(), parsed.protocol), (Fragment::Later, (0, 0), 6));

    let [from, to]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    let mut tunnelled = build::ip_packet(from, to, 4, tcp4()[..40].to_vec());
    tunnelled[6] = 0x20;
    let parsed = ip(LinkType::Ipv4, &tunnelled);
    assert_innermost(parsed, 60, true, "the first fragment of a tunnel packet");
    tunnelled[7] = 5;
    let parsed = ip(LinkType::Ipv4, &tunnelled);
    assert_eq!((parsed.protocol, parsed.encapsulated), (4, false), "later ones stay shut");
}

#[test]
fn offloaded_packets_take_the_frames_length() {
    let mut packet = tcp4();
    packet[2..4].fill(0);
    assert_innermost(ip(LinkType::RawIp, &packet), packet.len(), false, "IPv4");
    let mut packet = tcp6();
    packet[4..6].fill(0);
    assert_innermost(ip(LinkType::RawIp, &packet), packet.len(), false, "IPv6");
}

/// The payload's checksum is filled in where the whole checksum field is there, and nothing else is
/// touched.
#[test]
fn checksums_are_filled_in_from_the_first_length_that_holds_them() {
    for (from, to) in [("198.18.0.1", "198.18.1.2"), ("fd00::1", "fd00::2")] {
        let [from, to]: [IpAddr; 2] = [from, to].map(|text| text.parse().unwrap());
        let header_bytes = if from.is_ipv4() { 20 } else { 40 };
        for (protocol, at) in [(6, 16), (17, 6), (1, 2), (58, 2), (132, 100)] {
            for length in 0..40 {
                let payload: Vec<u8> = (0..length as u8).map(|n| n.wrapping_mul(37) | 1).collect();
                let packet = build::ip_packet(from, to, protocol, payload.clone());
                let built = &packet[header_bytes..];
                let mut rest = built.to_vec();
                if length >= at + 2 {
                    rest[at..at + 2].copy_from_slice(&payload[at..at + 2]);
                    let mut sum = Checksum::new();
                    if protocol != 1 {
                        sum.add_pseudo_header(from, to, protocol, length as u32);
                    }
                    sum.add(built);
                    assert_eq!(sum.finish(), 0, "{protocol}, {length}");
                }
                assert_eq!(rest, payload, "{protocol}, {length}");
            }
        }
    }
}

/// Nothing follows next header 59: what is behind is padding, and no payload of unknown length.
#[test]
fn padding_behind_no_next_header_is_none_of_the_packets() {
    let [from, to]: [IpAddr; 2] = ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()];
    let frame = build::ethernet(&build::ip_packet(from, to, 59, Vec::new()));
    let packet = ip(LinkType::Ethernet, &frame);
    assert_eq!((packet.ip_bytes, packet.protocol, packet.transport), (40, 59, Transport::Other));
}

/// An Ethernet frame is one only on Ethernet.
#[test]
fn each_link_has_its_own_header() {
    for packet in [tcp4(), tcp6()] {
        let frame = build::ethernet(&packet);
        assert_eq!(ip(LinkType::Ethernet, &frame).ports(), (40_000, 80));
        for link in (0..400).filter(|number| *number != 1).filter_map(LinkType::from_dlt) {
            let parsed = parse(link, &frame, frame.len() as u32);
            assert!(!matches!(parsed, Parsed::Ip(_)), "{}: {parsed:?}", link.name());
        }
    }
}

/// "Cooked" frames: protocol 4 is LLC, other small ones and those of some devices are no ethertypes.
#[test]
fn a_cooked_header_names_ip_only_by_an_ethertype_or_llc() {
    let v4 = tcp4();
    let snap = joined(&[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &v4]);
    let cooked = |hardware: u16, protocol: u16, rest: &[u8]| {
        let mut one = vec![0; 16];
        one[2..4].copy_from_slice(&hardware.to_be_bytes());
        one[14..16].copy_from_slice(&protocol.to_be_bytes());
        let mut two = vec![0; 20];
        two[0..2].copy_from_slice(&protocol.to_be_bytes());
        two[8..10].copy_from_slice(&hardware.to_be_bytes());
        [(LinkType::LinuxSll, one), (LinkType::LinuxSll2, two)].map(|(link, head)| {
            let frame = joined(&[&head, rest]);
            parse(link, &frame, frame.len() as u32)
        })
    };
    for hardware in [1, 6, 512, 772] {
        for parsed in cooked(hardware, 0x0800, &v4).into_iter().chain(cooked(hardware, 4, &snap)) {
            let Parsed::Ip(packet) = parsed else { panic!("{hardware}: {parsed:?}") };
            assert_innermost(packet, v4.len(), false, "cooked");
        }
    }
    for hardware in [770, 801, 803, 824] {
        assert_eq!(cooked(hardware, 0x0800, &v4), [Parsed::NotIp(None); 2], "{hardware}");
        assert_eq!(cooked(hardware, 4, &snap), [Parsed::NotIp(None); 2], "{hardware}");
    }
    for protocol in [0, 1, 3, 5, 68, 0x05dc, 0x05ff] {
        assert_eq!(cooked(1, protocol, &snap), [Parsed::NotIp(None); 2], "{protocol:#x}");
    }
    assert_eq!(cooked(1, 0x0600, &v4), [Parsed::NotIp(Some(0x0600)); 2]);
}

/// Both protocol numbers of MPLS over PPP (RFC 3032, 4.3), and others.
#[test]
fn ppp_carries_ip_and_labels() {
    let labelled = joined(&[&[0, 1, 1, 64], &tcp4()]);
    for (protocol, payload, is_ip) in [
        (0x0021_u16, &tcp4(), true),
        (0x0057, &tcp6(), true),
        (0x0281, &labelled, true),
        (0x0283, &labelled, true),
        (0x0021, &tcp6(), false),
        (0x0285, &labelled, false),
        (0x8021, &tcp4(), false),
    ] {
        let frame = joined(&[&[0xff, 3], &protocol.to_be_bytes(), payload]);
        let parsed = parse(LinkType::Ppp, &frame, frame.len() as u32);
        assert_eq!(matches!(parsed, Parsed::Ip(_)), is_ip, "{protocol:#06x}: {parsed:?}");
    }
}
