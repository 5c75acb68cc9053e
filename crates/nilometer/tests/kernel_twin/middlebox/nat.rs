//! The NAT compared with nftables' masquerade.

use nilometer_wire::build;

use super::super::rig::Service;
use super::{
    ACK, FIN, LEFT, PUSH, RIGHT, RST, SYN, Step, differs, echo, play, same, spoiled, tcp, udp,
    unreachable,
};

/// Marks are left alone by both.
const SERVICE: Service = Service {
    rules: "table ip nat {\n\
            chain raw {\n type filter hook prerouting priority raw; policy accept;\n udp dport 9 notrack\n }\n\
            chain out {\n type nat hook postrouting priority srcnat; policy accept;\n \
            ip saddr 198.18.0.0/16 oifname \"p1\" masquerade\n }\n}\n",
    router: "[[plugin]]\nname = \"nat\"\nclass = \"nat\"\n\
             configuration = \"inside=198.18.0.0/16 outside=198.19.0.1 unmatched=forward\"\n\
             [[filter]]\naction = \"permit\"\nprotocol = \"udp\"\ndestination_ports = \"9\"\n\
             [[filter]]\naction = \"active\"\nplugins = [\"nat\"]\nsource = \"198.18.0.0/16\"\ninputs = [\"p0\"]\n\
             [[filter]]\naction = \"active\"\nplugins = [\"nat\"]\ndestination = \"198.19.0.1/32\"\ninputs = [\"p1\"]\n",
    inside: "198.18.64.0/24",
};

const INDEPENDENT_MAPPING: &str = "a port that one endpoint has outside is no other's (RFC 4787, REQ-1 and REQ-3); the \
     kernel uses it again for a destination that the first has not spoken to";
const INDEPENDENT_FILTERING: &str = "whoever knows a mapping may use it (RFC 4787, REQ-8); the kernel lets in those \
     alone whom the endpoint has spoken to, and answers others itself";
const HAIRPIN: &str = "hosts inside reach each other by their outside addresses (RFC 4787, REQ-9); the kernel takes \
     such a packet for its own";
const DRAWN: &str = "both draw another port for the second host: we one of the same parity (RFC 4787, REQ-4), the \
     kernel any";
const LOW_PORTS: &str =
    "ports below 1024 are not used outside unless `ports=` says so; the kernel keeps them";
const FRAGMENTS: &str = "fragments are dropped and counted; the kernel puts them together, translates \
     them, and cuts them again";
const PROTOCOLS: &str = "other protocols than TCP, UDP and ICMP are dropped and counted; the kernel changes their \
     address alone";
const INVALID: &str = "what connection tracking calls invalid (a wrong checksum, a reset of nothing) the kernel \
     sends on with its inside address; we translate it";
const WINDOWS: &str = "the kernel looks at sequence numbers: a segment outside of the window belongs to no \
     connection, so it is the kernel's own, and is answered; we translate it";

const A: &str = "198.18.64.1:4000";
const B: &str = "198.18.64.2:4000";
const FAR: &str = "198.19.0.2:5000";
const OUTSIDE: &str = "198.19.0.1:4000";

/// The first datagram as it left, for an error about it.
fn translated() -> Vec<u8> {
    udp(OUTSIDE, FAR)
}

fn datagrams() -> Vec<Step> {
    let drawn = "right udp 198.19.0.1:drawn>198.19.0.2:5000";
    vec![
        same("a first datagram keeps its port", LEFT, udp(A, FAR)),
        same("its answer comes in", RIGHT, udp(FAR, OUTSIDE)),
        same("to another host by the same port", LEFT, udp(A, "203.0.113.9:5000")),
        same("whose answer comes in", RIGHT, udp("203.0.113.9:5000", OUTSIDE)),
        differs(("a second host with that port", DRAWN), LEFT, udp(B, FAR), [drawn, drawn]),
        differs(
            ("the second host to a third, by what was drawn", DRAWN),
            LEFT,
            udp(B, "203.0.113.10:5000"),
            ["right udp 198.19.0.1:drawn>203.0.113.10:5000"; 2],
        ),
        differs(
            ("a third host with that port, to a fourth", INDEPENDENT_MAPPING),
            LEFT,
            udp("198.18.64.3:4000", "203.0.113.11:5000"),
            [
                "right udp 198.19.0.1:4000>203.0.113.11:5000",
                "right udp 198.19.0.1:drawn>203.0.113.11:5000",
            ],
        ),
        differs(
            ("a stranger to a mapping", INDEPENDENT_FILTERING),
            RIGHT,
            udp("203.0.113.77:6000", OUTSIDE),
            [
                "right icmp 3/3 198.19.0.1>203.0.113.77",
                "left udp 203.0.113.77:6000>198.18.64.1:4000",
            ],
        ),
        same("to a port without a mapping", RIGHT, udp(FAR, "198.19.0.1:4999")),
        differs(
            ("a host inside by the outside address", HAIRPIN),
            LEFT,
            udp("198.18.64.2:4300", OUTSIDE),
            ["left icmp 3/3 198.19.0.1>198.18.64.2", "left udp 198.19.0.1:4300>198.18.64.1:4000"],
        ),
        differs(
            ("a port below 1024", LOW_PORTS),
            LEFT,
            udp("198.18.64.1:700", FAR),
            ["right udp 198.19.0.1:700>198.19.0.2:5000", drawn],
        ),
        differs(
            ("a datagram with a wrong checksum", INVALID),
            LEFT,
            spoiled(udp("198.18.64.1:4400", FAR)),
            [
                "right udp 198.18.64.1:4400>198.19.0.2:5000",
                "right udp 198.19.0.1:4400>198.19.0.2:5000",
            ],
        ),
        same("what is not from inside", LEFT, udp("198.51.100.1:4000", FAR)),
    ]
}

fn errors_and_others() -> Vec<Step> {
    let answered = udp(FAR, A);
    let mut fragments = [udp("198.18.64.1:4500", FAR), udp("198.18.64.1:4500", FAR)];
    // More follow, and the rest at 24 bytes: the checksums of the headers are those of other packets.
    let whole = build::udp(
        "198.18.64.1:4500".parse().expect("an end"),
        FAR.parse().expect("an end"),
        &[7; 40],
    );
    fragments[0] = part(&whole, 0..24, true);
    fragments[1] = part(&whole, 24..48, false);
    let [first, second] = fragments;
    vec![
        same("an echo", LEFT, echo("198.18.64.1", "198.19.0.2", 8, 4_000)),
        same("its reply", RIGHT, echo("198.19.0.2", "198.19.0.1", 0, 4_000)),
        differs(
            ("an echo of a second host with that identifier", DRAWN),
            LEFT,
            echo("198.18.64.2", "198.19.0.2", 8, 4_000),
            ["right echo 8 198.19.0.1>198.19.0.2 drawn"; 2],
        ),
        same("a reply to no echo", RIGHT, echo("198.19.0.2", "198.19.0.1", 0, 4_999)),
        same(
            "an error about the first datagram",
            RIGHT,
            unreachable("198.19.0.2", "198.19.0.1", &translated()),
        ),
        same(
            "an error of another router about it",
            RIGHT,
            unreachable("203.0.113.1", "198.19.0.1", &translated()),
        ),
        same(
            "an error of the host inside about the answer",
            LEFT,
            unreachable("198.18.64.1", "198.19.0.2", &answered),
        ),
        same(
            "an error about nothing",
            RIGHT,
            unreachable("198.19.0.2", "198.19.0.1", &udp("198.19.0.1:4999", FAR)),
        ),
        same("a first fragment waits or is dropped", LEFT, first),
        differs(
            ("the other fragment", FRAGMENTS),
            LEFT,
            second,
            [
                "right fragment 198.19.0.1>198.19.0.2 + right udp 198.19.0.1:4500>198.19.0.2:5000",
                "nothing",
            ],
        ),
        differs(
            ("another protocol", PROTOCOLS),
            LEFT,
            build::ip_packet(
                "198.18.64.1".parse().expect("an address"),
                "198.19.0.2".parse().expect("an address"),
                253,
                vec![1; 30],
            ),
            ["right protocol 253 198.19.0.1>198.19.0.2", "nothing"],
        ),
    ]
}

/// A fragment: these bytes behind the header of a packet.
fn part(whole: &[u8], bytes: std::ops::Range<usize>, is_followed: bool) -> Vec<u8> {
    let mut packet = [&whole[..20], &whole[20 + bytes.start..20 + bytes.end]].concat();
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[4..6].copy_from_slice(&[0x12, 0x34]);
    let offset = (bytes.start / 8) as u16 | if is_followed { 0x2000 } else { 0 };
    packet[6..8].copy_from_slice(&offset.to_be_bytes());
    packet[10..12].fill(0);
    let sum = nilometer_wire::checksum::internet_checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn segments() -> Vec<Step> {
    let (inside, far, outside) = ("198.18.64.1:4100", "198.19.0.2:80", "198.19.0.1:4100");
    vec![
        same("a SYN", LEFT, tcp(inside, far, SYN, [1_000, 0])),
        same("its SYN and ACK", RIGHT, tcp(far, outside, SYN | ACK, [9_000, 1_001])),
        same("the ACK", LEFT, tcp(inside, far, ACK, [1_001, 9_001])),
        same("data out", LEFT, tcp(inside, far, ACK | PUSH, [1_001, 9_001])),
        same("data in", RIGHT, tcp(far, outside, ACK | PUSH, [9_001, 1_008])),
        differs(
            ("data from far beyond the window", WINDOWS),
            RIGHT,
            tcp(far, outside, ACK | PUSH, [900_000_000, 1_008]),
            [
                "right reset 198.19.0.1:4100>198.19.0.2:80",
                "left tcp 198.19.0.2:80>198.18.64.1:4100",
            ],
        ),
        differs(
            ("a stranger's SYN to that mapping", INDEPENDENT_FILTERING),
            RIGHT,
            tcp("203.0.113.77:443", outside, SYN, [5, 0]),
            [
                "right reset 198.19.0.1:4100>203.0.113.77:443",
                "left tcp 203.0.113.77:443>198.18.64.1:4100",
            ],
        ),
        same("a FIN out", LEFT, tcp(inside, far, FIN | ACK, [1_008, 9_008])),
        same("a FIN in", RIGHT, tcp(far, outside, FIN | ACK, [9_008, 1_009])),
        same("the last ACK", LEFT, tcp(inside, far, ACK, [1_009, 9_009])),
        same(
            "a segment of a connection that began earlier",
            LEFT,
            tcp("198.18.64.1:4200", far, ACK, [5, 5]),
        ),
        differs(
            ("a reset of nothing", INVALID),
            LEFT,
            tcp("198.18.64.1:4300", far, RST, [7, 0]),
            [
                "right reset 198.18.64.1:4300>198.19.0.2:80",
                "right reset 198.19.0.1:4300>198.19.0.2:80",
            ],
        ),
    ]
}

#[test]
fn the_nat_agrees_with_masquerade_but_for_listed_differences() {
    let steps: Vec<Step> =
        [datagrams(), errors_and_others(), segments()].into_iter().flatten().collect();
    play("NAT", &SERVICE, &steps);
}
