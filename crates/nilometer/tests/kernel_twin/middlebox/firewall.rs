//! The firewall compared with nftables' connection tracking.

use nilometer_stat::Rng;
use nilometer_wire::build;

use super::super::rig::Service;
use super::{
    ACK, FIN, IPV4, LEFT, PUSH, RIGHT, RST, SYN, Step, both, differs, echo, judged, play, same,
    spoiled, tcp, udp, unreachable,
};

/// Marks pass both, and belong to no connection.
const SERVICE: Service = Service {
    rules: "table ip filter {\n\
            chain raw {\n type filter hook prerouting priority raw; policy accept;\n udp dport 9 notrack\n }\n\
            chain forward {\n type filter hook forward priority filter; policy drop;\n \
            udp dport 9 accept\n ct state invalid drop\n ct state established,related accept\n \
            ip saddr 198.18.0.0/16 ct state new accept\n ip daddr 198.18.0.0/16 udp dport 443 accept\n }\n}\n",
    router: "[[plugin]]\nname = \"wall\"\nclass = \"firewall\"\n\
             configuration = \"inside=198.18.0.0/16 allow=udp:443\"\n\
             [[filter]]\naction = \"permit\"\nprotocol = \"udp\"\ndestination_ports = \"9\"\n\
             [[filter]]\naction = \"active\"\nplugins = [\"wall\"]\n",
    inside: "198.18.64.0/24",
};

const CHECKSUMS: &str = "a packet with a wrong checksum is invalid to connection tracking; we leave that to its receiver";
const WINDOWS: &str = "we do not look at sequence numbers (docs/plugins.md); the kernel holds every segment to the window";
const ECHOES: &str = "a flow of ICMP is an identifier between two hosts, and passes echoes and replies either way; the kernel \
     knows which of them began, and calls a reply to nothing invalid";
const FLAGS: &str =
    "a SYN with a FIN is invalid to the kernel; to us it begins a connection as a SYN does";
const INSIDE: &str = "198.18.64.1:4000";
const FAR: &str = "198.19.0.2:5000";

fn datagrams() -> Vec<Step> {
    let outbound = udp(INSIDE, FAR);
    let elsewhere = udp("198.18.64.1:4999", FAR);
    vec![
        same("what was not begun inside", RIGHT, udp(FAR, INSIDE)),
        same("a first datagram", LEFT, outbound.clone()),
        same("its answer", RIGHT, udp(FAR, INSIDE)),
        same("from another port", RIGHT, udp("198.19.0.2:5001", INSIDE)),
        same("from another host", RIGHT, udp("203.0.113.9:5000", INSIDE)),
        same("to another port", RIGHT, udp(FAR, "198.18.64.1:4100")),
        same("to another host", RIGHT, udp(FAR, "198.18.64.2:4000")),
        same("to a service that is allowed", RIGHT, udp(FAR, "198.18.64.2:443")),
        same("whose answer goes out", LEFT, udp("198.18.64.2:443", FAR)),
        same(
            "an error about the datagram",
            RIGHT,
            unreachable("198.19.0.2", "198.18.64.1", &outbound),
        ),
        same(
            "a router's error about it",
            RIGHT,
            unreachable("203.0.113.1", "198.18.64.1", &outbound),
        ),
        same("an error about nothing", RIGHT, unreachable("198.19.0.2", "198.18.64.1", &elsewhere)),
        same(
            "an error about the answer",
            LEFT,
            unreachable("198.18.64.1", "198.19.0.2", &udp(FAR, INSIDE)),
        ),
        same("an echo from outside", RIGHT, echo("198.19.0.2", "198.18.64.1", 8, 4_000)),
        same("an echo", LEFT, echo("198.18.64.1", "198.19.0.2", 8, 4_000)),
        same("its reply", RIGHT, echo("198.19.0.2", "198.18.64.1", 0, 4_000)),
        differs(
            ("an echo from outside with that identifier", ECHOES),
            RIGHT,
            echo("198.19.0.2", "198.18.64.1", 8, 4_000),
            ["nothing", "left echo 8 198.19.0.2>198.18.64.1 4000"],
        ),
        differs(
            ("a reply from inside to nothing", ECHOES),
            LEFT,
            echo("198.18.64.2", "198.19.0.2", 0, 4_200),
            ["nothing", "right echo 0 198.18.64.2>198.19.0.2 4200"],
        ),
        same("a reply with another identifier", RIGHT, echo("198.19.0.2", "198.18.64.1", 0, 4_100)),
        differs(
            ("a datagram with a wrong checksum", CHECKSUMS),
            LEFT,
            spoiled(udp("198.18.64.1:4400", FAR)),
            ["nothing", "right udp 198.18.64.1:4400>198.19.0.2:5000"],
        ),
        same("another protocol from outside", RIGHT, other("198.19.0.2", "198.18.64.1")),
        same("another protocol", LEFT, other("198.18.64.1", "198.19.0.2")),
        same("its answer", RIGHT, other("198.19.0.2", "198.18.64.1")),
    ]
}

fn other(from: &str, to: &str) -> Vec<u8> {
    let [from, to] = [from, to].map(|text| text.parse().expect("an address"));
    build::ip_packet(from, to, 253, vec![1; 30])
}

fn segments() -> Vec<Step> {
    let (inside, far) = ("198.18.64.1:4100", "198.19.0.2:80");
    let into = "left tcp 198.19.0.2:80>198.18.64.1:4100";
    vec![
        same("a SYN from outside", RIGHT, tcp(far, inside, SYN, [5, 0])),
        same("a SYN and ACK to no SYN", RIGHT, tcp(far, inside, SYN | ACK, [5, 1_001])),
        same("a SYN", LEFT, tcp(inside, far, SYN, [1_000, 0])),
        same("the SYN again", LEFT, tcp(inside, far, SYN, [1_000, 0])),
        same("its SYN and ACK", RIGHT, tcp(far, inside, SYN | ACK, [9_000, 1_001])),
        same("the ACK", LEFT, tcp(inside, far, ACK, [1_001, 9_001])),
        same("data out", LEFT, tcp(inside, far, ACK | PUSH, [1_001, 9_001])),
        same("data in", RIGHT, tcp(far, inside, ACK | PUSH, [9_001, 1_008])),
        differs(
            ("data from far beyond the window", WINDOWS),
            RIGHT,
            tcp(far, inside, ACK | PUSH, [900_000_000, 1_008]),
            ["nothing", into],
        ),
        same(
            "data from another host",
            RIGHT,
            tcp("203.0.113.9:80", inside, ACK | PUSH, [9_008, 1_008]),
        ),
        same("a reset from another port", RIGHT, tcp("198.19.0.2:443", inside, RST, [9_008, 0])),
        same("a FIN out", LEFT, tcp(inside, far, FIN | ACK, [1_008, 9_008])),
        same("a FIN in", RIGHT, tcp(far, inside, FIN | ACK, [9_008, 1_009])),
        same("the last ACK", LEFT, tcp(inside, far, ACK, [1_009, 9_009])),
        same(
            "a connection that is older than the filter",
            LEFT,
            tcp("198.18.64.1:4200", far, ACK | PUSH, [5, 5]),
        ),
        same("a reset of nothing", LEFT, tcp("198.18.64.1:4300", far, RST, [7, 0])),
        differs(
            ("a SYN with a FIN", FLAGS),
            LEFT,
            tcp("198.18.64.1:4500", far, SYN | FIN, [7, 0]),
            ["nothing", "right tcp 198.18.64.1:4500>198.19.0.2:80"],
        ),
        same("a second connection", LEFT, tcp("198.18.64.2:4100", far, SYN, [70, 0])),
        same("is answered", RIGHT, tcp(far, "198.18.64.2:4100", SYN | ACK, [80, 71])),
        same("is open", LEFT, tcp("198.18.64.2:4100", far, ACK, [71, 81])),
        same("is reset by the other end", RIGHT, tcp(far, "198.18.64.2:4100", RST | ACK, [81, 71])),
        same("data after the reset", RIGHT, tcp(far, "198.18.64.2:4100", ACK | PUSH, [81, 71])),
    ]
}

#[test]
fn the_firewall_agrees_with_connection_tracking_but_for_listed_differences() {
    let steps: Vec<Step> = [datagrams(), segments()].into_iter().flatten().collect();
    play("firewall", &SERVICE, &steps);
}

/// Random datagrams either way, echoes out and replies in, between a few hosts and ports: nothing may
/// differ here.
#[test]
fn datagrams_by_chance_pass_both_firewalls_or_neither() {
    let Some([mut kernel, mut ours]) = both("the firewall", &SERVICE) else { return };
    let mut rng = Rng::new(11, 0x6677_0001, 0);
    let (mut passed, mut faults) = ([0; 2], Vec::new());
    for _ in 0..600 {
        let inside = format!("198.18.64.{}", 1 + rng.below(3));
        let far = format!("203.0.113.{}", 1 + rng.below(3));
        let [inside_port, far_port] = [[4_000, 4_100, 443], [5_000, 5_001, 80]]
            .map(|ports: [u16; 3]| ports[rng.below(3) as usize]);
        let side = rng.below(2) as usize;
        let is_echo = rng.below(4) == 0;
        let ends = [format!("{inside}:{inside_port}"), format!("{far}:{far_port}")];
        let packet = match (is_echo, side) {
            (true, LEFT) => echo(&inside, &far, 8, inside_port),
            (true, _) => echo(&far, &inside, 0, inside_port),
            (false, LEFT) => udp(&ends[0], &ends[1]),
            (false, _) => udp(&ends[1], &ends[0]),
        };
        let step = same("by chance", side, packet);
        let theirs = kernel.ask_from(side, IPV4, &step.packet).expect("the kernel answers");
        let own = ours.ask_from(side, IPV4, &step.packet).expect("the router answers");
        passed[side] += u32::from(!own.is_empty());
        faults.extend(judged(&step, &theirs, &own));
    }
    println!("{passed:?} of 600 packets passed, out and in");
    assert!(passed[LEFT] > 150 && passed[RIGHT] > 50, "{passed:?}");
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}
