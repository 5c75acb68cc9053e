//! Labels in virtual time (MPLS): vectors byte by byte, three routers in a row, and malformed frames.

use crate::config::RouterConfig;
use crate::machine::Machine;
use nilometer_router::discard::Discard;
use nilometer_router::pipeline::Router;
use nilometer_wire::memory::{HeapMemory, Memory, Place};
use nilometer_wire::{Span, Time, build};

/// The link-layer address of a router's port, and of a host behind a router's port.
fn mac(router: usize, port: usize) -> [u8; 6] {
    [2, 0, 0, router as u8, 0, port as u8]
}

fn host_mac(router: usize) -> [u8; 6] {
    [2, 0, 0, 9, 0, router as u8]
}

/// Routers of two ports; port 1 of each is joined to port 0 of the next. Hosts are at both ends.
struct Line {
    machines: Vec<Machine>,
    memory: HeapMemory,
    now: Time,
    /// On the way between routers.
    under_way: Vec<(usize, usize, Place)>,
    /// Labelled frames that crossed a link between routers.
    labelled: Vec<Vec<u8>>,
}

impl Line {
    fn new(texts: &[String]) -> Line {
        let machine = |(number, text): (usize, &String)| {
            let config: RouterConfig = toml::from_str(text).expect("a description");
            let ports = [0, 1].map(|port| (mac(number, port), 1_500));
            Machine::without_devices(&config, &ports).expect("a router")
        };
        let machines = texts.iter().enumerate().map(machine).collect();
        let (memory, now) = (HeapMemory::new(4_096), Time::ZERO);
        Line { machines, memory, now, under_way: Vec::new(), labelled: Vec::new() }
    }

    fn router(&self, number: usize) -> &Router {
        &self.machines[number].router
    }

    /// Packets that a router has discarded for a reason.
    fn discarded(&self, router: usize, why: Discard) -> u64 {
        self.router(router).ports().iter().map(|port| port.discards().of(why)).sum()
    }

    /// Hands a frame to a router's port.
    fn receive(&mut self, router: usize, port: usize, frame: &[u8]) {
        let place = self.memory.take(frame.len() as u16).expect("a buffer");
        self.memory.frame_mut(place).copy_from_slice(frame);
        self.under_way.push((router, port, place));
    }

    /// Some milliseconds; what hosts get of them, with the router that they are at.
    fn run(&mut self, milliseconds: u64) -> Vec<(usize, Vec<u8>)> {
        let (mut out, last) = (Vec::new(), self.machines.len() - 1);
        for _ in 0..milliseconds * 20 {
            self.now += Span::from_nanos(50_000);
            for (router, port, place) in self.under_way.drain(..) {
                let router = &mut self.machines[router].router;
                router.receive(self.now, port, &[place], &mut self.memory, &mut ());
            }
            for (number, machine) in self.machines.iter_mut().enumerate() {
                let router = &mut machine.router;
                router.advance(self.now, &mut self.memory, &mut ());
                for port in 0..2 {
                    while let Some(place) = router.transmit(self.now, port, &mut self.memory) {
                        let frame = self.memory.frame(place);
                        let at_end = [0, last][port] == number;
                        if at_end && frame[..6] == host_mac(number) {
                            out.push((number, frame.to_vec()));
                        }
                        if !at_end && frame[12..14] == [0x88, 0x47] {
                            self.labelled.push(frame.to_vec());
                        }
                        match (at_end, port) {
                            (true, _) => self.memory.give(place),
                            (false, 0) => self.under_way.push((number - 1, 1, place)),
                            (false, _) => self.under_way.push((number + 1, 0, place)),
                        }
                    }
                }
                assert!(router.balances(), "router {number}");
            }
        }
        let inside: u64 = (0..=last).map(|number| self.router(number).inside()).sum();
        assert_eq!(self.memory.taken() as u64, inside + self.under_way.len() as u64, "buffers");
        out
    }

    /// What hosts get for one frame.
    fn pass(&mut self, router: usize, port: usize, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
        self.receive(router, port, frame);
        self.run(3)
    }
}

/// A router between 198.18.0.0/24 and 198.18.1.0/24, whose hosts are known; with a filter that has packets for
/// 10.0.0.0/8 and fd10::/16 labelled.
fn lone(configuration: &str) -> Line {
    Line::new(&[described(0, configuration, "mpls = \"labels\"\n", "\"10.0.0.0/8\" \"fd10::/16\"")])
}

/// Router `number` of a line between networks 198.18.NUMBER.0/24 and the next; neighbours behind its ports are static
/// where they are hosts.
fn described(number: usize, configuration: &str, first: &str, destinations: &str) -> String {
    let filters = destinations.split_whitespace().map(|destination| {
        format!(
            "[[filter]]\naction = \"active\"\nplugins = [\"labels\"]\ndestination = {destination}\n"
        )
    });
    let port = |port: usize, more: &str| {
        let (network, last) = (number + port, 2 - port);
        format!(
            "[[port]]\ninterface = \"p{port}\"\naddress_probes = 0\n{more}\
             addresses = [\"198.18.{network}.{last}/24\", \"fd00:18:{network}::{last}/64\"]\n"
        )
    };
    let neighbour = |port: usize| {
        let [a, b, c, d, e, f] = host_mac(number);
        let (network, last) = (number + port, 8 + port);
        ["198.18.{network}.{last}", "fd00:18:{network}::{last}"].map(|address| {
            let address = address.replace("{network}", &network.to_string());
            let address = address.replace("{last}", &last.to_string());
            format!(
                "[[neighbour]]\ninterface = \"p{port}\"\naddress = \"{address}\"\n\
                 mac = \"{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}\"\n"
            )
        })
    };
    [
        "[fabric]\nqueueing = \"off\"\n".to_owned(),
        port(0, first),
        port(1, "mpls = \"labels\"\n"),
        neighbour(0).concat(),
        neighbour(1).concat(),
        format!(
            "[[plugin]]\nname = \"labels\"\nclass = \"mpls\"\nconfiguration = \"{configuration}\"\n"
        ),
    ]
    .into_iter()
    .chain(filters)
    .collect()
}

/// A frame for a router's port.
fn framed(router: usize, port: usize, kind: u16, payload: &[u8]) -> Vec<u8> {
    let kind = kind.to_be_bytes();
    [&mac(router, port)[..], &host_mac(router), &kind, payload].concat()
}

fn labelled(stack: &[[u8; 4]], packet: &[u8]) -> Vec<u8> {
    framed(0, 0, 0x8847, &[stack.as_flattened(), packet].concat())
}

/// A UDP packet of `bytes` bytes, with this service byte and time to live.
fn udp(from: &str, to: &str, bytes: usize, (service, ttl): (u8, u8)) -> Vec<u8> {
    let [from, to] = [from, to].map(|text| text.parse().expect("an end"));
    let headers = build::udp(from, to, b"").len();
    let data: Vec<u8> = (0..bytes - headers).map(|at| at as u8).collect();
    let mut packet = build::udp(from, to, &data);
    if packet[0] >> 4 == 6 {
        (packet[0], packet[1]) = (0x60 | service >> 4, service << 4);
        packet[7] = ttl;
        return packet;
    }
    // (It may be cut.)
    (packet[1], packet[6], packet[8]) = (service, 0, ttl);
    mended(packet)
}

fn mended(mut packet: Vec<u8>) -> Vec<u8> {
    packet[10..12].fill(0);
    let sum = nilometer_wire::checksum::internet_checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The same packet with another time to live.
fn with_ttl(packet: &[u8], ttl: u8) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 6 {
        packet[7] = ttl;
        return packet;
    }
    packet[8] = ttl;
    mended(packet)
}

/// The frames that leave the lone router by port 1: addresses, ethertype, and the rest.
fn leaves(kind: u16, payload: &[&[u8]]) -> Vec<(usize, Vec<u8>)> {
    let head = [&host_mac(0)[..], &mac(0, 1), &kind.to_be_bytes()].concat();
    vec![(0, [&head[..], &payload.concat()].concat())]
}

const TABLE: &str = "push=200+100@198.18.1.9 pop=21,22@198.18.1.9,24,25 \
                     swap=16:17@198.18.1.9,18:19+20@198.18.1.9,23:0@198.18.1.9,26:27@198.18.7.7";

/// RFC 3032, 2.1: label (20 bits), traffic class (3), bottom of stack (1), time to live (8).
#[test]
fn labels_are_pushed_swapped_and_popped_byte_by_byte() {
    let mut line = lone(TABLE);
    for (from, to, kind) in
        [("198.18.0.8:1", "10.9.9.9:2", 0x0800), ("[fd00:18::8]:1", "[fd10::9]:2", 0x86dd)]
    {
        // DSCP 46 is of class selector 5.
        let packet = udp(from, to, 90, (46 << 2, 64));
        let out = line.pass(0, 0, &framed(0, 0, kind, &packet));
        let stack = [[0, 0x0c, 0x8a, 63], [0, 0x06, 0x4b, 63]];
        assert_eq!(out, leaves(0x8847, &[stack.as_flattened(), &with_ttl(&packet, 63)]));
    }
    let packet = udp("10.1.1.1:1", "10.2.2.2:2", 90, (0, 64));
    let mut switched = |from: &[[u8; 4]], to: &[[u8; 4]]| {
        let out = line.pass(0, 0, &labelled(from, &packet));
        assert_eq!(out, leaves(0x8847, &[to.as_flattened(), &packet]), "{from:?}");
    };
    switched(&[[0, 1, 0x07, 9]], &[[0, 1, 0x17, 8]]);
    switched(&[[0, 1, 0x21, 9]], &[[0, 1, 0x30, 8], [0, 1, 0x41, 8]]);
    switched(&[[0, 1, 0x06, 9], [0, 9, 0x91, 7]], &[[0, 1, 0x16, 8], [0, 9, 0x91, 7]]);
    // To the explicit null, and past a router alert, which stays on top (RFC 3032, 2.1).
    switched(&[[0, 1, 0x71, 9]], &[[0, 0, 0x01, 8]]);
    switched(&[[0, 0, 0x10, 9], [0, 1, 0x01, 9]], &[[0, 0, 0x10, 8], [0, 1, 0x11, 8]]);
    // One label is popped, and the one beneath is looked up, or sent on unchanged with the time to live of the outer
    // label.
    switched(&[[0, 1, 0x50, 9], [0, 1, 0x01, 40]], &[[0, 1, 0x11, 8]]);
    switched(&[[0, 1, 0x60, 9], [0, 9, 0x91, 40]], &[[0, 9, 0x91, 8]]);
    // The last one before a next hop: to hosts of no route here (RFC 3031, 3.16).
    let out = line.pass(0, 0, &labelled(&[[0, 1, 0x61, 9]], &packet));
    assert_eq!(out, leaves(0x0800, &[&with_ttl(&packet, 8)]));
    // The last one of all: an IP packet like any other, of either version, by labels and by explicit nulls.
    for (from, to, kind, null) in [
        ("10.1.1.1:1", "198.18.1.9:2", 0x0800, [0, 0, 0x01, 48]),
        ("[fd10::1]:1", "[fd00:18:1::9]:2", 0x86dd, [0, 0, 0x21, 48]),
    ] {
        let packet = udp(from, to, 90, (0, 64));
        for stack in [vec![[0, 1, 0x51, 48]], vec![null], vec![[0, 1, 0x80, 50], [0, 1, 0x51, 48]]]
        {
            let out = line.pass(0, 0, &labelled(&stack, &packet));
            assert_eq!(out, leaves(kind, &[&with_ttl(&packet, 47)]), "{stack:?}");
        }
    }
    let state = line.router(0).plugins().states().next().expect("an instance");
    let counted: Vec<u64> = state.own_counters.iter().map(|(_, count)| *count).collect();
    assert_eq!(counted, [2, 6, 8, 0, 0, 0]);
    assert_eq!((state.counters.packets, state.counters.dropped), (16, 0));
}

/// RFC 3443: in the pipe model a path of labels is one hop, and a packet's time to live is its own.
#[test]
fn a_pipe_leaves_the_time_to_live_alone() {
    let mut line = lone(&format!("{TABLE} ttl=pipe"));
    let packet = udp("198.18.0.8:1", "10.9.9.9:2", 90, (0, 64));
    let out = line.pass(0, 0, &framed(0, 0, 0x0800, &packet));
    let stack = [[0, 0x0c, 0x80, 255], [0, 0x06, 0x41, 255]];
    assert_eq!(out, leaves(0x8847, &[stack.as_flattened(), &with_ttl(&packet, 63)]));
    let packet = udp("10.1.1.1:1", "198.18.1.9:2", 90, (0, 64));
    let out = line.pass(0, 0, &labelled(&[[0, 1, 0x51, 9]], &packet));
    assert_eq!(out, leaves(0x0800, &[&with_ttl(&packet, 63)]));
}

/// Three routers: only the first and the last have routes to the hosts, apart from those in `added`.
fn three(added: [&str; 3]) -> Line {
    let to = ["\"198.18.3.0/24\" \"fd00:18:3::/64\"", "\"198.18.0.0/24\" \"fd00:18:0::/64\""];
    let named = "mpls = \"labels\"\n";
    Line::new(&[
        described(0, "push=100@198.18.1.2 pop=400", "", to[0]) + added[0],
        described(1, "swap=100:300@198.18.2.2,200:400@198.18.1.1", named, "") + added[1],
        described(2, "push=200@198.18.2.1 pop=300", named, to[1]) + added[2],
    ])
}

#[test]
fn packets_cross_three_routers_unchanged_but_for_their_time_to_live() {
    let mut line = three([""; 3]);
    let ends = [["198.18.0.8:7", "198.18.3.9:8"], ["[fd00:18::8]:7", "[fd00:18:3::9]:8"]];
    for (at, [left, right]) in ends.into_iter().enumerate() {
        let kind = [0x0800, 0x86dd][at];
        for bytes in [60, 61, 576, 1_496] {
            let there = udp(left, right, bytes, (8, 64));
            line.receive(0, 0, &framed(0, 0, kind, &there));
            let back = udp(right, left, bytes, (8, 64));
            line.receive(2, 1, &framed(2, 1, kind, &back));
            let mut out = line.run(10);
            out.sort_by_key(|(router, _)| *router);
            let came: Vec<_> = out.iter().map(|(router, frame)| (*router, &frame[14..])).collect();
            let [back, there] = [back, there].map(|packet| with_ttl(&packet, 61));
            assert_eq!(came, [(0, &back[..]), (2, &there[..])], "{left} {bytes}");
        }
    }
    // Each of 8 packets there and back crossed two links, with one label.
    let labels = |frame: &Vec<u8>| u32::from_be_bytes([0, frame[14], frame[15], frame[16]]) >> 4;
    let mut seen: Vec<u32> = line.labelled.iter().map(labels).collect();
    seen.sort_unstable();
    assert_eq!(seen, [[100; 8], [200; 8], [300; 8], [400; 8]].concat());
}

/// RFC 3032, 2.3 and 2.4: a label's time to live ends as an IP packet's does, and the sender gets a message where a route
/// leads back.
#[test]
fn a_trace_finds_every_router_of_the_path() {
    let route = |via: &str| format!("[[route]]\nprefix = \"198.18.0.0/24\"\nvia = [\"{via}\"]\n");
    let (two, three_) = (route("198.18.1.1"), route("198.18.2.1"));
    for (added, answers) in [([""; 3], [1, 0, 0]), (["", two.as_str(), three_.as_str()], [1, 1, 1])]
    {
        let mut line = three(added);
        for ttl in 1..=3 {
            let packet = udp("198.18.0.8:7", "198.18.3.9:8", 60, (0, ttl as u8));
            let out = line.pass(0, 0, &framed(0, 0, 0x0800, &packet));
            let expired = [0, 1, 2].map(|router| line.discarded(router, Discard::Expired));
            assert_eq!(expired, [0, 1, 2].map(|router| u64::from(router < ttl)), "{ttl}");
            assert_eq!(out.len(), answers[ttl - 1], "{ttl}");
            for (at, frame) in out {
                assert_eq!((at, &frame[34..36]), (0, &[11, 0][..]), "{ttl}");
                assert_eq!(frame[28], ttl as u8 - 1, "which network the router spoke from");
                assert_eq!(frame[54..58], [198, 18, 0, 8]);
            }
        }
    }
}

/// Two routers that swap a packet back and forth: its time to live ends it.
#[test]
fn a_loop_of_labels_ends() {
    let mut line = Line::new(&[
        described(0, "push=100@198.18.1.2 swap=200:100@198.18.1.2", "", "\"10.0.0.0/8\""),
        described(1, "swap=100:200@198.18.1.1", "mpls = \"labels\"\n", ""),
    ]);
    let packet = udp("198.18.0.8:7", "10.9.9.9:8", 60, (0, 255));
    line.receive(0, 0, &framed(0, 0, 0x0800, &packet));
    line.run(100);
    assert_eq!(line.labelled.len(), 254);
    assert_eq!(line.discarded(0, Discard::Expired) + line.discarded(1, Discard::Expired), 1);
}

#[test]
fn invalid_label_stacks_are_discarded_by_reason() {
    let packet = udp("10.1.1.1:1", "198.18.1.9:2", 60, (0, 64));
    let six = udp("[fd10::1]:1", "[fd00:18:1::9]:2", 60, (0, 64));
    let no_bottom = vec![[0u8, 1, 0x50, 9]; 40];
    let deep = vec![[0, 1, 0x50, 99]; 16];
    /// The entries of a stack, the bytes beneath, and the reason of discard.
    type Case<'a> = (&'a [[u8; 4]], &'a [u8], Discard);
    let cases: &[Case<'_>] = &[
        (&[], &[], Discard::LabelStack),
        (&[[0, 1, 0x50, 9]], &[], Discard::LabelStack),
        (&no_bottom, &packet, Discard::LabelStack),
        (&deep, &packet, Discard::LabelStack),
        (&[[0, 1, 0x51, 9]], &[], Discard::Short),
        (&[[0, 1, 0x51, 9]], &packet[..19], Discard::Short),
        (&[[0, 1, 0x51, 9]], &packet[..40], Discard::TotalLength),
        (&[[0, 1, 0x51, 9]], &[0x55; 60], Discard::Version),
        (&[[0, 1, 0x61, 9]], &packet[..40], Discard::TotalLength),
        (&[[0, 1, 0x51, 1]], &packet, Discard::Expired),
        (&[[0, 1, 0x01, 0]], &packet, Discard::Expired),
        (&[[0, 1, 0x50, 9], [0, 1, 0x01, 1]], &packet, Discard::Expired),
        (&[[0, 1, 0x60, 9], [0, 9, 0x91, 0]], &packet, Discard::Expired),
        // Reserved labels (RFC 3032, 2.1).
        (&[[0, 0, 0x01, 9]], &six, Discard::LabelStack),
        (&[[0, 0, 0x21, 9]], &packet, Discard::LabelStack),
        (&[[0, 0, 0x11, 9]], &packet, Discard::LabelStack),
        (&[[0, 0, 0x31, 9]], &packet, Discard::UnknownLabel),
        (&[[0, 0, 0x71, 9]], &packet, Discard::UnknownLabel),
        (&[[0, 0, 0xf1, 9]], &packet, Discard::UnknownLabel),
        (&[[0xff, 0xff, 0xf1, 9]], &packet, Discard::UnknownLabel),
        // A next hop that no route leads to.
        (&[[0, 1, 0xa1, 9]], &packet, Discard::NoRoute),
    ];
    for (number, &(stack, beneath, why)) in cases.iter().enumerate() {
        let mut line = lone(TABLE);
        let out = line.pass(0, 0, &labelled(stack, beneath));
        assert!(out.iter().all(|(_, frame)| frame[12..14] != [0x88, 0x47]), "{number}: {out:?}");
        assert_eq!(line.discarded(0, why), 1, "{number}: {stack:?}");
    }
    // One that does not answer.
    let mut line = lone("swap=16:17@198.18.1.77");
    line.receive(0, 0, &labelled(&[[0, 1, 0x01, 9]], &packet));
    line.run(6_000);
    assert_eq!(line.discarded(0, Discard::Unresolved), 1);
    // For a group of stations; where no instance is named; and where nothing is forwarded.
    let mut line = lone(TABLE);
    let mut frame = labelled(&[[0, 1, 0x01, 9]], &packet);
    frame[0] |= 1;
    assert!(line.pass(0, 0, &frame).is_empty());
    assert_eq!(line.discarded(0, Discard::LinkBroadcast), 1);
    let keeps = "mpls = \"labels\"\nforwards = false\n";
    for (first, why) in [("", Discard::NotSpoken), (keeps, Discard::ForwardingOff)] {
        let mut line = Line::new(&[described(0, TABLE, first, "")]);
        assert!(line.pass(0, 0, &labelled(&[[0, 1, 0x01, 9]], &packet)).is_empty());
        assert_eq!(line.discarded(0, why), 1);
    }
}

/// RFC 3032, 3: a packet that with its labels does not fit is fragmented before it gets them, or an ICMP error
/// reports what would fit.
#[test]
fn packets_too_long_with_their_labels_are_fragmented_before_labelling() {
    let mut line = lone(TABLE);
    let fits = udp("198.18.0.8:1", "10.9.9.9:2", 1_492, (0, 64));
    let out = line.pass(0, 0, &framed(0, 0, 0x0800, &fits));
    assert_eq!(out.iter().map(|(_, frame)| frame.len()).collect::<Vec<_>>(), [1_514]);
    let long = udp("198.18.0.8:1", "10.9.9.9:2", 1_493, (0, 64));
    let out = line.pass(0, 0, &framed(0, 0, 0x0800, &long));
    assert_eq!(out.len(), 2, "{out:?}");
    let mut data = Vec::new();
    for (_, frame) in &out {
        assert_eq!(frame[12..22], [0x88, 0x47, 0, 0x0c, 0x80, 63, 0, 0x06, 0x41, 63]);
        assert!(frame.len() <= 1_514 && frame[22] == 0x45 && frame[30] == 63, "{frame:?}");
        data.extend_from_slice(&frame[42..]);
    }
    assert_eq!(data, long[20..]);
    // Swapped on its way, with one more label than it arrived with.
    let out = line.pass(0, 0, &labelled(&[[0, 1, 0x21, 9]], &long));
    assert_eq!(out.len(), 2);
    assert!(out.iter().all(|(_, frame)| frame[14..22] == [0, 1, 0x30, 8, 0, 1, 0x41, 8]));
    assert_eq!(out.iter().map(|(_, frame)| frame.len() - 42).sum::<usize>(), 1_473);
    // One that may not be cut: to its sender goes what would fit, about the packet as it came.
    let mut whole = long.clone();
    whole[6] = 0x40;
    let whole = mended(whole);
    for frame in [framed(0, 0, 0x0800, &whole), labelled(&[[0, 1, 0x21, 9]], &whole)] {
        let out = line.pass(0, 0, &frame);
        assert_eq!(out.len(), 1);
        let message = &out[0].1[34..];
        assert_eq!(message[..2], [3, 4]);
        assert_eq!(message[6..8], 1_492u16.to_be_bytes());
        assert_eq!(message[8..36], whole[..28]);
    }
    let six = udp("[fd00:18::8]:1", "[fd10::9]:2", 1_493, (0, 64));
    let out = line.pass(0, 0, &framed(0, 0, 0x86dd, &six));
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].1[54..62][..2], [2, 0]);
    assert_eq!(out[0].1[58..62], 1_492u32.to_be_bytes());
    assert_eq!(line.discarded(0, Discard::TooBig), 3);
}

/// Packets for the router itself, from addresses that may not be there, and at the end of their time stop where they do
/// without labels.
#[test]
fn packets_that_would_not_be_forwarded_get_no_labels() {
    let everything = "\"0.0.0.0/0\" \"::/0\"";
    let mut line = Line::new(&[described(0, TABLE, "", everything)]);
    let own = udp("198.18.0.8:1", "198.18.0.2:2", 60, (0, 64));
    let out = line.pass(0, 0, &framed(0, 0, 0x0800, &own));
    assert!(out.iter().all(|(_, frame)| frame[12..14] == [8, 0]), "{out:?}");
    for (from, to, ttl, why) in [
        ("127.0.0.1:1", "10.9.9.9:2", 64, Discard::MartianSource),
        ("198.18.0.8:1", "127.9.9.9:2", 64, Discard::MartianDestination),
        ("198.18.0.8:1", "10.9.9.9:2", 1, Discard::Expired),
    ] {
        let packet = udp(from, to, 60, (0, ttl));
        line.pass(0, 0, &framed(0, 0, 0x0800, &packet));
        assert_eq!(line.discarded(0, why), 1, "{why:?}");
    }
    assert_eq!(line.discarded(0, Discard::UnknownLabel), 0);
}

/// What we write as labels tshark reads as such.
#[test]
fn tshark_reads_the_labels_that_are_written() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    if Command::new("tshark").arg("--version").output().is_err() {
        return println!("skipped: labels read by tshark: it is not here");
    }
    let mut line = three([""; 3]);
    for bytes in [60, 576] {
        let packet = udp("198.18.0.8:7", "198.18.3.9:8", bytes, (46 << 2, 64));
        line.pass(0, 0, &framed(0, 0, 0x0800, &packet));
    }
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 1] {
        file.extend(u32::to_be_bytes(word));
    }
    for frame in &line.labelled {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_be_bytes());
        }
        file.extend(frame);
    }
    let fields =
        ["mpls.label", "mpls.exp", "mpls.bottom", "mpls.ttl", "ip.ttl", "ip.checksum.status"];
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", "-", "-T", "fields", "-E", "separator=,"]);
    tshark.args(["-o", "ip.check_checksum:TRUE"]);
    fields.iter().for_each(|field| _ = tshark.args(["-e", field]));
    tshark.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = tshark.spawn().expect("tshark");
    child.stdin.take().expect("its input").write_all(&file).expect("it reads");
    let out = child.wait_with_output().expect("tshark");
    let text = String::from_utf8_lossy(&out.stdout).replace("True", "1");
    let one = ["100,5,1,63,63,1", "300,5,1,62,63,1"];
    assert_eq!(text.lines().collect::<Vec<_>>(), [one, one].concat(), "{out:?}");
}
