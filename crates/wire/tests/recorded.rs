//! A recording: how damaged frames of every kind are parsed, kind by kind.
//!
//! These numbers were not derived; they are what the parsers returned when the table was written,
//! after each parser had been tested against its document. A line that changes on purpose is
//! written anew with `UPDATE=1 cargo test --release -p nilometer-wire`, and then read: which kinds
//! changed, and was that meant?

mod recording;

use std::fmt::Write;
use std::net::SocketAddr;

use nilometer_wire::brief::Brief;
use nilometer_wire::build::{self, Tcp, ethernet_of, ip_packet, udp};
use nilometer_wire::checksum::{ipv4_header_checksum_ok, transport_checksum_ok};
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, parse};
use recording::Digest;

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded.txt");
const FRAMES_OF_A_KIND: usize = 4_000;

/// A small generator with a seed: xorshift (Marsaglia 2003).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    /// Up to three changes in the headers, often to a value that means something there.
    fn damage(&mut self, base: &[u8]) -> Vec<u8> {
        const EDGES: [u8; 26] = [
            0, 1, 2, 3, 4, 5, 6, 7, 8, 17, 20, 40, 43, 44, 51, 58, 59, 60, 64, 97, 132, 135, 139,
            140, 0x45, 0xff,
        ];
        let mut frame = base.to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(frame.len().min(90));
            match self.below(6) {
                0 if frame.len() > 8 => frame.truncate(self.below(frame.len())),
                1 | 2 => frame[at] = EDGES[self.below(EDGES.len())],
                3 => frame[at] ^= 1 << self.below(8),
                4 => frame[at] = frame[at].wrapping_add(self.below(5) as u8).wrapping_sub(2),
                _ => frame[at] = self.below(256) as u8,
            }
            if frame.is_empty() {
                break;
            }
        }
        frame
    }
}

fn ends(version: u8) -> (SocketAddr, SocketAddr) {
    let (from, to) = match version {
        4 => ("198.18.0.1:40000", "198.18.1.2:80"),
        _ => ("[fd00::1]:40000", "[fd00::2]:80"),
    };
    (from.parse().unwrap(), to.parse().unwrap())
}

/// Packets of both versions, with what a transport header may look like.
fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let ((from, to), (from6, to6)) = (ends(4), ends(6));
    let segment = |from, to| Tcp { flags: 0x12, payload: b"data", ..Tcp::new(from, to) };
    let stamps = [2, 4, 5, 0xb4, 1, 3, 3, 7, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
    let mut stamped = segment(from, to).ip_packet()[20..40].to_vec();
    stamped[12] = 10 << 4;
    let stamped = [&stamped[..], &stamps, b"data"].concat();
    let mut options = segment(from, to).ip_packet();
    options.splice(20..20, [1, 1, 1, 0]);
    (options[0], options[3]) = (0x46, options[3] + 4);
    let chain = |headers: &[u8], first: u8| {
        let inner = segment(from6, to6).ip_packet();
        ip_packet(from6.ip(), to6.ip(), first, [headers, &inner[40..]].concat())
    };
    let many = [60, 0, 1, 4, 0, 0, 0, 0].repeat(15);
    let many = [&many[..], &[6, 0, 1, 4, 0, 0, 0, 0]].concat();
    let routing = [44, 2, 4, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7];
    let fragment = [51, 0, 0, 1, 0, 0, 0, 9];
    let authentication = [6, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9];
    let authenticated = [&authentication, &segment(from, to).ip_packet()[20..]].concat();
    let every = [&[43, 0, 0, 0, 0, 0, 0, 0], &routing[..], &fragment, &authentication].concat();
    vec![
        ("tcp", segment(from, to).ip_packet()),
        ("tcp6", segment(from6, to6).ip_packet()),
        ("tcp with time stamps", ip_packet(from.ip(), to.ip(), 6, stamped)),
        ("tcp behind ip options", options),
        ("udp", udp(from, to, b"a datagram")),
        ("udp6", udp(from6, to6, b"a datagram")),
        ("icmp", build::icmp(from.ip(), to.ip(), 8, 0, b"ping")),
        ("icmp6", build::icmp(from6.ip(), to6.ip(), 128, 0, b"ping")),
        ("sctp", ip_packet(from.ip(), to.ip(), 132, (1..30).collect())),
        ("authenticated", ip_packet(from.ip(), to.ip(), 51, authenticated)),
        ("extensions", chain(&every, 0)),
        ("mobility", chain(&[6, 0, 1, 4, 0, 0, 0, 0], 135)),
        ("host identity", chain(&[59, 0, 1, 4, 0, 0, 0, 0], 139)),
        ("sixteen options", chain(&many, 60)),
    ]
}

/// Tunnels and what stands before IP, as Ethernet frames.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let ((from, to), (from6, to6)) = (ends(4), ends(6));
    let tcp = Tcp { flags: 2, payload: b"some data", ..Tcp::new(from, to) }.ip_packet();
    let tcp6 = Tcp { flags: 2, payload: b"some data", ..Tcp::new(from6, to6) }.ip_packet();
    let ethernet = build::ethernet(&tcp);
    let over_udp = |port: u16, head: &[u8], inner: &[u8]| {
        build::ethernet(&udp(from, SocketAddr::new(to.ip(), port), &[head, inner].concat()))
    };
    let over_ip = |protocol: u8, head: &[u8], inner: &[u8]| {
        let packet = ip_packet(from.ip(), to.ip(), protocol, [head, inner].concat());
        build::ethernet(&packet)
    };
    let gre_all = [&[0xb0, 0x81, 8, 0][..], &[0; 16]].concat();
    let gre_routed = [0x40, 0, 8, 0, 0, 0, 0, 0, 8, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0];
    let gtp = [0x36, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0x40, 1, 0, 9, 0];
    let behind = |kind: u16, head: &[u8], inner: &[u8]| ethernet_of(kind, &[head, inner].concat());
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let length = snap.len() as u16 + tcp.len() as u16;
    vec![
        ("ip in ip", over_ip(4, &[], &tcp)),
        ("ip6 in ip", over_ip(41, &[], &tcp6)),
        ("ip in ip6", build::ethernet(&ip_packet(from6.ip(), to6.ip(), 4, tcp.clone()))),
        ("gre with everything", over_ip(47, &gre_all, &tcp)),
        ("gre with a source route", over_ip(47, &gre_routed, &tcp)),
        ("ethernet in gre", over_ip(47, &[0, 0, 0x65, 0x58], &ethernet)),
        ("pptp", over_ip(47, &[0x20, 1, 0x88, 0x0b, 0, 0, 0, 0, 0xff, 3, 0, 0x21], &tcp)),
        ("wccp", over_ip(47, &[0, 0, 0x88, 0x3e, 0x81, 0, 0, 0], &tcp)),
        ("etherip", over_ip(97, &[0x30, 0], &ethernet)),
        ("vxlan", over_udp(4789, &[8, 0, 0, 0, 0, 0, 1, 0], &ethernet)),
        ("geneve", over_udp(6081, &[1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0], &tcp)),
        ("gtp-u", over_udp(2152, &gtp, &tcp)),
        ("gtp-u, no options", over_udp(2152, &[0x30, 0xff, 0, 0, 0, 0, 0, 1], &tcp6)),
        ("vlan tags", behind(0x88a8, &[0, 1, 0x81, 0, 0, 2, 8, 0], &tcp)),
        ("pppoe", behind(0x8864, &[0x11, 0, 0, 1, 0, 51, 0, 0x21], &tcp)),
        ("mpls", behind(0x8847, &[0, 1, 0, 64, 0, 1, 1, 64], &tcp6)),
        ("pseudowire", behind(0x8848, &[0, 1, 1, 64, 0, 0, 0, 0], &ethernet)),
        ("pseudowire, no word", behind(0x8847, &[0, 1, 1, 64], &ethernet)),
        ("snap", behind(length, &snap, &tcp)),
        ("llc", behind(3 + tcp.len() as u16, &[6, 6, 3], &tcp)),
        ("fabric path", behind(0x8903, &[0, 7], &ethernet)),
    ]
}

/// IP behind the headers of the other link types.
fn links() -> Vec<(LinkType, Vec<u8>)> {
    let ((from, to), (from6, to6)) = (ends(4), ends(6));
    let tcp = Tcp { payload: b"data", ..Tcp::new(from, to) }.ip_packet();
    let tcp6 = Tcp { payload: b"data", ..Tcp::new(from6, to6) }.ip_packet();
    let of = |link: LinkType, head: &[u8], inner: &[u8]| (link, [head, inner].concat());
    let mut sll = vec![0; 16];
    (sll[3], sll[14]) = (1, 8);
    let mut sll2 = vec![0; 20];
    (sll2[0], sll2[9]) = (8, 1);
    vec![
        of(LinkType::Null, &[2, 0, 0, 0], &tcp),
        of(LinkType::Loop, &[0, 0, 0, 24], &tcp6),
        of(LinkType::Ipv4, &[], &tcp),
        of(LinkType::Ipv6, &[], &tcp6),
        of(LinkType::Ppp, &[0xff, 3, 0, 0x21], &tcp),
        of(LinkType::PppHdlc, &[0x57], &tcp6),
        of(LinkType::CHdlc, &[0x0f, 0, 8, 0], &tcp),
        of(LinkType::LinuxSll, &sll, &tcp),
        of(LinkType::LinuxSll2, &sll2, &tcp),
        of(LinkType::Pppoe, &[0x11, 0, 0, 1, 0, 46, 0, 0x21], &tcp),
    ]
}

/// A line: how many were IP (inside a tunnel), something else, cut, malformed; and a digest of all
/// parse results.
fn line(name: &str, link: LinkType, base: &[u8], table: &mut String) {
    let (mut chance, mut digest) = (Chance(77), Digest::new());
    let (mut ip, mut inner, mut other, mut cut, mut malformed) = (0, 0, 0, 0, 0);
    for _ in 0..FRAMES_OF_A_KIND {
        let frame = chance.damage(base);
        let original = frame.len() as u32 + [0, 0, 0, 1, 40, 3_000][chance.below(6)];
        let parsed = parse(link, &frame, original);
        write!(digest, "{parsed:?}").unwrap();
        write!(digest, "{:?}", Brief::of_usual(link, &frame, original)).unwrap();
        for from in [0, 14] {
            let packet = frame.get(from..).unwrap_or_default();
            let sums = (ipv4_header_checksum_ok(packet), transport_checksum_ok(packet));
            write!(digest, "{sums:?}").unwrap();
        }
        match parsed {
            Parsed::Ip(packet) => {
                write!(digest, "{:?}", Brief::of(&packet)).unwrap();
                inner += u32::from(packet.encapsulated);
                ip += 1;
            }
            Parsed::NotIp(_) => other += 1,
            Parsed::Cut => cut += 1,
            Parsed::Malformed(_) => malformed += 1,
        }
    }
    let is_ip = format!("ip {ip:4} ({inner:4} inside)");
    let is_not = format!("other {other:3} cut {cut:3} bad {malformed:4}");
    writeln!(table, "{name:29} {is_ip} {is_not}  {:016x}", digest.0).unwrap();
}

#[test]
fn damaged_frames_are_read_as_recorded() {
    let mut table = String::new();
    for (name, packet) in packets() {
        line(name, LinkType::RawIp, &packet, &mut table);
        let framed = format!("{name}, framed");
        line(&framed, LinkType::Ethernet, &build::ethernet(&packet), &mut table);
    }
    for (name, frame) in frames() {
        line(name, LinkType::Ethernet, &frame, &mut table);
    }
    for (link, frame) in links() {
        line(link.name(), link, &frame, &mut table);
    }
    recording::compare(RECORDING, &table);
}

/// Undamaged, every kind is IP, and so is what is inside it.
#[test]
fn the_kinds_of_the_recording_are_sound() {
    for (name, frame) in frames() {
        let parsed = parse(LinkType::Ethernet, &frame, frame.len() as u32);
        let Parsed::Ip(packet) = parsed else { panic!("{name}: {parsed:?}") };
        assert_eq!((packet.protocol, packet.ports()), (6, (40_000, 80)), "{name}");
    }
    for (link, frame) in links() {
        let parsed = parse(link, &frame, frame.len() as u32);
        let Parsed::Ip(packet) = parsed else { panic!("{link:?}: {parsed:?}") };
        assert_eq!((packet.protocol, packet.ports()), (6, (40_000, 80)), "{link:?}");
    }
    for (name, packet) in packets() {
        let parsed = parse(LinkType::RawIp, &packet, packet.len() as u32);
        assert!(matches!(parsed, Parsed::Ip(_)), "{name}: {parsed:?}");
    }
}
