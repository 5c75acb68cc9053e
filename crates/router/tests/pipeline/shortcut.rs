//! Two routers under the same random configurations, one of which lets flows take shortcuts: the same
//! packets leave both, at the same moments.

use std::collections::BTreeMap;

use nilometer_queue::distributed::{SwitchShape, Variant};
use nilometer_queue::{Any, Capacity, DisciplineKind, Settings};
use nilometer_router::classifier::{Action, Inputs, Octet, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::forward::hop;
use nilometer_router::forward::urpf::Mode;
use nilometer_router::memory::{Memory, ReturnBuffers, Ticket};
use nilometer_router::neighbour::Given;
use nilometer_router::pipeline::shortcut::Shortcut;
use nilometer_router::{AnyKey, Header, Key, header};
use nilometer_stat::Rng;
use nilometer_wire::{Rate, Span};

use nilometer_router::plugin::OnFault;

use crate::bench::{Bench, PORTS, framed, host, mac, mend, udp};
use crate::plugins::{add, bind, forward};

/// Configurations of chance, and packets between two changes of one.
const CONFIGURATIONS: u64 = 160;
const CHANGES: u64 = 6;
const PACKETS: u64 = 60;

/// A change that is applied to both routers, drawn once for both.
#[derive(Clone, Debug)]
pub enum Change {
    Queueing(Option<Variant>, Rate),
    Discipline(usize, DisciplineKind, u32),
    Usual(usize),
    Rate(usize, Option<Rate>),
    Delay(usize, Span),
    Filter(u32, Option<(Inputs, Rule<u32>)>),
    ReversePath(usize, Mode),
    Link(usize, bool),
    Mtu(usize, u16),
    Forwards(usize, bool),
}

impl Change {
    pub fn draw(rng: &mut Rng) -> Change {
        let port = rng.below(PORTS as u64) as usize;
        let minimum_share = Variant::minimum_share(PORTS);
        let reserved = Variant::Reserved { minimum_backlog_bytes: 1_500, minimum_share };
        let dq_plus =
            Variant::DqPlus { minimum_backlog_bytes: 1_500, minimum_share, deferral_periods: None };
        let megabits = [2, 50, 10_000][rng.below(3) as usize];
        match rng.below(20) {
            // Mostly off, so that there are shortcuts.
            0..3 => Change::Queueing(None, Rate::from_megabits(megabits)),
            3 => {
                let variant = [Variant::Original, reserved, dq_plus][rng.below(3) as usize];
                Change::Queueing(Some(variant), Rate::from_megabits(megabits))
            }
            4 => {
                let kinds: Vec<DisciplineKind> = DisciplineKind::ALL.into_iter().collect();
                let kind = kinds[rng.below(kinds.len() as u64) as usize];
                Change::Discipline(port, kind, 2 + rng.below(60) as u32)
            }
            5..8 => Change::Usual(port),
            8 => Change::Rate(port, Some(Rate::from_megabits(1 + rng.below(40)))),
            9 => Change::Rate(port, None),
            10 | 16..20 => Change::Delay(port, Span::from_nanos(rng.below(2) * 3_000_000)),
            11 => {
                let rule = filter(rng);
                // Of some ports, or of all.
                let inputs = Inputs::of((0..PORTS).filter(|_| rng.below(3) == 0));
                let rule = (inputs.unwrap_or_default(), rule);
                Change::Filter(rng.below(4) as u32, (rng.below(3) > 0).then_some(rule))
            }
            12 => Change::ReversePath(port, [Mode::Off, Mode::Loose, Mode::Strict][port % 3]),
            13 => Change::Link(port, rng.below(4) > 0),
            14 => Change::Mtu(port, [576, 1_280, 1_500][rng.below(3) as usize].max(1_280)),
            _ => Change::Forwards(port, rng.below(4) > 0),
        }
    }

    pub fn make(&self, bench: &mut Bench) {
        let (now, router, memory) = (bench.now, &mut bench.router, &mut bench.memory);
        let mut drops = ReturnBuffers(memory);
        match self.clone() {
            Change::Queueing(variant, rate) => {
                let shape = SwitchShape::new(PORTS, 2.0, rate, Span::from_nanos(500_000));
                let shape = shape.expect("a shape");
                let fabric = router.fabric_mut();
                fabric.set_queueing(now, shape, variant, &mut drops).expect("as many ports");
            }
            Change::Discipline(port, kind, packets) => {
                router.fabric_mut().set_discipline(now, port, queue(kind, packets), &mut drops);
            }
            Change::Usual(port) => {
                let usual = queue(DisciplineKind::Qsdrr, 2_048);
                router.fabric_mut().set_discipline(now, port, usual, &mut drops);
                router.fabric_mut().set_usual(port, true);
            }
            Change::Rate(port, rate) => router.fabric_mut().set_rate(port, rate),
            Change::Delay(port, delay) => router.fabric_mut().set_delay(port, delay),
            Change::Filter(id, rule) => {
                let filters = &mut router.tables_mut().filters4;
                let _ = filters.remove(RuleId(id));
                if let Some((inputs, rule)) = rule {
                    filters.insert_at(RuleId(id), inputs, rule).expect("room");
                }
            }
            Change::ReversePath(port, mode) => router.port_mut(port).set_reverse_path(mode),
            Change::Link(port, is_up) => {
                router.set_link(now, port, is_up, memory).expect("a port");
            }
            Change::Mtu(port, mtu_bytes) => router.set_mtu(port, mtu_bytes).expect("in range"),
            Change::Forwards(port, forwards) => router.port_mut(port).set_forwards(forwards),
        }
    }
}

/// The configuration that the changes requested: the rule of shortcuts once more, from the test's own
/// record.
#[derive(Clone, Debug)]
struct RequestedState {
    queueing: bool,
    disciplines: [bool; PORTS],
    rates: [bool; PORTS],
    delays: [bool; PORTS],
}

impl RequestedState {
    fn hear(&mut self, change: &Change) {
        match *change {
            Change::Queueing(variant, _) => self.queueing = variant.is_some(),
            Change::Discipline(port, ..) => self.disciplines[port] = true,
            Change::Usual(port) => self.disciplines[port] = false,
            Change::Rate(port, rate) => self.rates[port] = rate.is_some(),
            Change::Delay(port, delay) => self.delays[port] = delay > Span::ZERO,
            _ => {}
        }
    }

    /// Whether a packet for this port has something to meet.
    fn is_met(&self, port: usize) -> bool {
        self.queueing || self.disciplines[port] || self.rates[port] || self.delays[port]
    }
}

fn queue(kind: DisciplineKind, packets: u32) -> Any<Ticket> {
    let link = Rate::from_megabits(10_000);
    let settings =
        Settings { mtu_bytes: 9_300, ..Settings::new(kind, Capacity::Packets(packets), link) };
    Any::new(&settings).expect("settings")
}

fn filter(rng: &mut Rng) -> Rule<u32> {
    let action = if rng.below(3) == 0 { Action::Deny } else { Action::Permit };
    let destination = format!("198.19.{}.0/25", rng.below(PORTS as u64)).parse().expect("a prefix");
    let mut rule = Rule { destination, ..Rule::any(rng.below(9) as u32, action) };
    match rng.below(6) {
        0 => rule.is_copied = true,
        1 => rule.flags = Octet::new(2, 2),
        2 => rule.protocol = Octet::exact(17),
        _ => {}
    }
    rule
}

/// Mostly a sound packet between hosts behind two gateways; now and then one with something about it.
pub fn packet(rng: &mut Rng) -> (usize, Vec<u8>) {
    let mut any = || (rng.below(PORTS as u64) as usize, rng.below(6));
    let ((from, source), (to, destination)) = (any(), any());
    let bytes = [18, 100, 700, 1_300, 1_472][rng.below(5) as usize];
    let address = |port: usize, last: u64| format!("198.19.{port}.{}", 9 + 30 * last);
    let mut packet = udp(&address(from, source), &address(to, destination), bytes);
    match rng.below(24) {
        0 => packet[8] = rng.below(3) as u8,
        1 => packet[6..8].copy_from_slice(&[0x20, 0]),
        2 => packet[16] ^= 0x40,
        3 => packet[12] = 127,
        4 => packet[1] = 2,
        _ => {}
    }
    if rng.below(3) == 0 {
        packet[9] = 6;
        packet[33] = [2, 16][rng.below(2) as usize];
    }
    let mut frame = framed(from, &mend(packet));
    match rng.below(40) {
        0 => frame[rng.below(34) as usize] ^= 1 << rng.below(8),
        1 => frame.truncate(frame.len() - 1),
        _ => {}
    }
    (from, frame)
}

/// The router that offloads: the shortcuts granted since the last change, as its driver keeps them.
struct Offloading {
    bench: Bench,
    granted: BTreeMap<(usize, [u64; 2]), Option<Shortcut>>,
}

impl Offloading {
    /// The frame that leaves by a shortcut, if the flow has one and the frame is usual: as the program
    /// in the kernel does.
    fn by_shortcut(&mut self, input: usize, frame: &[u8]) -> Option<(usize, Vec<u8>)> {
        let header = Header::read(frame).ok()?;
        let AnyKey::V4(key) = header.key else { return None };
        let key = Key { flags: 0, ..key };
        let Bench { router, now, .. } = &mut self.bench;
        let ask = || router.shortcut(*now, input, &key);
        let shortcut = (*self.granted.entry((input, name(&key))).or_insert_with(ask))?;
        let is_usual = frame[..6] == mac(input)
            && header.notes & (header::OPTIONS | header::FRAGMENT) == 0
            && !hop::expires(header.hop_limit)
            && frame.len() == 14 + usize::from(header.ip_bytes)
            && header.ip_bytes <= shortcut.mtu_bytes;
        let mut out =
            is_usual.then(|| [&shortcut.to[..], &shortcut.from, &frame[12..]].concat())?;
        hop::decrement_ipv4(&mut out[14..]).ok()?;
        router.credit(input, &shortcut, 1, header.ip_bytes.into());
        Some((shortcut.output.into(), out))
    }
}

pub fn name(key: &Key<u32>) -> [u64; 2] {
    let ports = u64::from(key.source_port) << 16 | u64::from(key.destination_port);
    [u64::from(key.source) << 32 | u64::from(key.destination), ports << 8 | u64::from(key.protocol)]
}

/// The frames that leave in the next twenty microseconds.
fn step(bench: &mut Bench) -> Vec<(usize, Vec<u8>)> {
    let mut out = Vec::new();
    bench.router.advance(bench.now, &mut bench.memory, &mut ());
    for port in 0..PORTS {
        while let Some(place) = bench.router.transmit(bench.now, port, &mut bench.memory) {
            out.push((port, bench.memory.frame(place).to_vec()));
            bench.memory.give(place);
        }
    }
    while let Some((_, place)) = bench.router.poll_copy() {
        out.push((PORTS, bench.memory.frame(place).to_vec()));
        bench.memory.give(place);
    }
    bench.now += Span::from_nanos(20_000);
    assert!(bench.router.balances());
    out
}

fn bench() -> Bench {
    let mut bench = Bench::with(|plans| plans.router.fabric.variant = None);
    for port in 0..PORTS {
        bench.router.fabric_mut().set_usual(port, true);
        // Gateways stay resolved whatever happens to links.
        let gateway = u32::from_be_bytes([198, 18, port as u8, 2]);
        let table = &mut bench.router.port_mut(port).arp_mut().table;
        table.set(bench.now, gateway, host(port), Given::Permanent).expect("room");
    }
    bench
}

/// All counters that must not depend on the path of packets: of ports, filters and disciplines.
fn counted(bench: &Bench) -> Vec<u64> {
    let router = &bench.router;
    let mut all = Vec::new();
    for (number, port) in router.ports().iter().enumerate() {
        let (packets, bytes) = port.left_by_shortcut();
        let output = router.fabric().output_ledger(number);
        all.extend([port.received().0, port.received().1]);
        all.extend([output.out_packets + packets, output.out_bytes + bytes]);
        all.push(output.drops.total_packets());
        all.extend(Discard::ALL.map(|why| port.discards().of(why)));
    }
    let filters = router.tables().filters4.iter();
    all.extend(filters.flat_map(|(_, _, filter)| [filter.packets, filter.bytes]));
    all
}

#[test]
fn a_router_that_offloads_does_the_same_under_configurations_of_chance() {
    let mut taken = 0;
    let mut sent = 0;
    for number in 0..CONFIGURATIONS {
        let mut rng = Rng::new(29, u32::from_be_bytes(*b"offl"), number);
        let mut plain = bench();
        let mut fast = Offloading { bench: bench(), granted: BTreeMap::new() };
        let mut reported = Vec::new();
        let none = [false; PORTS];
        let mut requested =
            RequestedState { queueing: false, disciplines: none, rates: none, delays: none };
        for _ in 0..CHANGES {
            let change = Change::draw(&mut rng);
            change.make(&mut plain);
            change.make(&mut fast.bench);
            fast.granted.clear();
            requested.hear(&change);
            reported.push(change);
            for packet_number in 0..PACKETS {
                let (input, frame) = packet(&mut rng);
                plain.receive(input, &frame);
                let expected = step(&mut plain);
                let by_shortcut = fast.by_shortcut(input, &frame);
                let found = match by_shortcut {
                    Some(out) => {
                        taken += 1;
                        assert!(
                            !requested.is_met(out.0),
                            "past what {requested:?} asks for: {reported:?}"
                        );
                        let mut found = step(&mut fast.bench);
                        found.push(out);
                        found
                    }
                    None => {
                        fast.bench.receive(input, &frame);
                        step(&mut fast.bench)
                    }
                };
                sent += 1;
                let sorted = |mut all: Vec<(usize, Vec<u8>)>| {
                    all.sort();
                    all.into_iter().map(|(port, frame)| (port, frame.len(), frame)).collect()
                };
                let [found, expected]: [Vec<_>; 2] = [found, expected].map(sorted);
                let short = |all: &[(usize, usize, Vec<u8>)]| {
                    all.iter().map(|(port, bytes, _)| (*port, *bytes)).collect::<Vec<_>>()
                };
                assert!(
                    found == expected,
                    "configuration {number}, packet {packet_number} from port {input}: with shortcuts \
                     (port, bytes) {:?} left, without {:?}, after {reported:?}",
                    short(&found),
                    short(&expected)
                );
            }
            assert_eq!(counted(&fast.bench), counted(&plain), "{number}: {reported:?}");
        }
        let account = fast.bench.router.account();
        assert_eq!(account.received, plain.router.account().received);
        assert_eq!(plain.router.account().by_shortcut, 0);
    }
    println!("{taken} of {sent} packets took a shortcut");
    assert!(4 * taken > sent && 10 * taken < 9 * sent, "{taken} of {sent}");
}

/// A shortcut is given up when its neighbour moves, its link fails or its port starts to queue.
#[test]
fn a_shortcut_leads_while_nothing_changes_on_its_way() {
    let mut bench = bench();
    let key = |last: u32| Key {
        source: 0xc613_0009,
        destination: 0xc613_0100 + last,
        source_port: 1_000,
        destination_port: 2_000,
        protocol: 17,
        flags: 0,
    };
    let ask = |bench: &mut Bench, last| {
        bench.router.shortcut(bench.now, 0, &key(last)).expect("a shortcut")
    };
    let (one, other) = (ask(&mut bench, 9), ask(&mut bench, 10));
    assert!(one == other, "the same way");
    let elsewhere =
        bench.router.shortcut(bench.now, 0, &Key { destination: 0xc613_0209, ..key(0) });
    assert!(elsewhere.is_some_and(|elsewhere| elsewhere != one), "another port");
    assert!(bench.router.still_leads(&one) && bench.router.may_offload());
    bench.router.fabric_mut().set_rate(1, Some(Rate::from_megabits(10)));
    assert!(!bench.router.still_leads(&one), "there is a rate to wait for");
    bench.router.fabric_mut().set_rate(1, None);
    assert!(bench.router.still_leads(&one));
    assert!(bench.router.ports()[1].is_up());
    bench.router.set_link(bench.now, 1, false, &mut bench.memory).expect("a port");
    assert!(!bench.router.still_leads(&one) && !bench.router.ports()[1].is_up());
    bench.router.set_link(bench.now, 1, true, &mut bench.memory).expect("a port");
    assert!(bench.router.ports()[1].is_up());
}

#[test]
fn a_flow_with_a_plugin_has_no_shortcut() {
    let mut bench = Bench::with(|plans| plans.router.fabric.variant = None);
    for output in 0..4 {
        bench.router.fabric_mut().set_usual(output, true);
    }
    add(&mut bench, "one", OnFault::Drop, forward);
    let packet = framed(0, &udp("198.19.0.9", "198.19.1.9", 30));
    let header = nilometer_router::Header::read(&packet).expect("a packet");
    let nilometer_router::AnyKey::V4(key) = header.key else { panic!("IPv4") };
    bench.pass(0, &packet);
    let now = bench.now;
    assert!(bench.router.shortcut(now, 0, &key).is_some());
    bind(&mut bench, 0, "198.19.1.0/24", &["one"]);
    assert!(bench.router.shortcut(now, 0, &key).is_none());
    bench.router.tables_mut().filters4.remove(RuleId(0));
    assert!(bench.router.shortcut(now, 0, &key).is_some());
    let outputs = bench.router.output_filters_mut();
    let any = (Some(Rule::any(0, Action::Permit)), None);
    outputs.insert(RuleId(0), Inputs::ANY, any).expect("room");
    assert!(bench.router.shortcut(now, 0, &key).is_none());
}
