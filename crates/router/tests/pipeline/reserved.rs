//! Reserved flows through the whole pipeline in virtual time: their rate under overload, their route, and their end.

use std::net::Ipv4Addr;

use nilometer_queue::Contract;
use nilometer_router::Prefix;
use nilometer_router::classifier::{Action, Inputs, Octet, Ports, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::fabric::MemoryLimits;
use nilometer_router::forward::options::SourceRouting;
use nilometer_router::memory::Memory;
use nilometer_router::next_hop::Hop;
use nilometer_router::pipeline::groups::{MulticastPlan, StaticGroup};
use nilometer_router::pipeline::reserved::ReservedFlow;
use nilometer_wire::{Rate, Span};

use crate::bench::{Bench, PORTS, Plans, framed, udp};

/// The output's link, and what is reserved of it.
const LINK: Rate = Rate::from_megabits(10);
const RESERVED: Rate = Rate::from_megabits(1);
/// A frame's overhead on Ethernet: check sequence, preamble, gap.
const OVERHEAD_BYTES: u16 = 24;
const STEP: Span = Span::from_nanos(100_000);
const SECONDS: f64 = 3.0;

fn contract() -> Contract {
    Contract { rate: RESERVED, bucket_bytes: 3_000, capacity_bytes: 30_000 }
}

/// A UDP packet to a destination; its source does not matter.
fn rule<A: nilometer_router::classifier::Classified>(destination: Prefix<A>) -> Rule<A> {
    Rule {
        destination,
        destination_ports: Ports::exact(2_000),
        protocol: Octet::exact(17),
        ..Rule::any(0, Action::Permit)
    }
}

/// Puts the flow to host 9 behind port 1 into reserved queue 5.
fn reserve(bench: &mut Bench, pinned: Option<nilometer_router::fib::NextHop>) {
    bench.router.reserve(1, 5, contract()).expect("a contract");
    let four = rule::<u32>("198.19.1.9/32".parse().expect("a prefix"));
    let six = rule::<u128>("fd00:11::9/128".parse().expect("a prefix"));
    let flow = ReservedFlow { queue: 5, pinned };
    let flows = bench.router.reserved_mut();
    flows.insert(RuleId(0), Inputs::ANY, (Some(four), Some(six)), flow).expect("room");
}

/// A stream of packets of equal length: the port that it comes by, its frames in turn, its spacing.
struct Stream {
    port: usize,
    frames: Vec<Vec<u8>>,
    sent: usize,
    spacing: Span,
    due: Span,
}

fn stream(port: usize, packets: &[Vec<u8>], rate: Rate) -> Stream {
    let frames: Vec<Vec<u8>> = packets.iter().map(|packet| framed(port, packet)).collect();
    let bytes = frames[0].len() as u64 + u64::from(OVERHEAD_BYTES);
    Stream { port, frames, sent: 0, spacing: rate.span_of(bytes), due: Span::ZERO }
}

/// Of the flow to host 9 the part of its rate that comes out of port 1, and the part of the link that is used, while
/// three ports together offer the link ten times what it carries.
fn goodput(mut bench: Bench, flow: &[u8], others: &[Vec<u8>]) -> (f64, f64) {
    let mut streams = vec![stream(0, &[flow.to_vec()], RESERVED)];
    for port in [0, 2, 3] {
        streams.push(stream(port, others, Rate::from_megabits(33)));
    }
    let (mut passed, mut used, mut elapsed) = (0, 0, Span::ZERO);
    while elapsed.as_secs_f64() < SECONDS {
        for stream in &mut streams {
            while stream.due <= elapsed {
                stream.due = stream.due + stream.spacing;
                let frame = &stream.frames[stream.sent % stream.frames.len()];
                stream.sent += 1;
                bench.receive(stream.port, frame);
            }
        }
        bench.router.advance(bench.now, &mut bench.memory, &mut ());
        for port in 0..PORTS {
            while let Some(place) = bench.router.transmit(bench.now, port, &mut bench.memory) {
                let frame = bench.memory.frame(place);
                let bytes = frame.len() as u64 + u64::from(OVERHEAD_BYTES);
                used += bytes;
                passed += if frame[14..].ends_with(&flow[flow.len() - 40..]) { bytes } else { 0 };
                assert_eq!(port, 1);
                bench.memory.give(place);
            }
        }
        assert!(bench.router.balances());
        elapsed = elapsed + STEP;
        bench.now += STEP;
    }
    let share = |bytes: u64, rate: Rate| bytes as f64 / rate.bytes_in(elapsed);
    (share(passed, RESERVED), share(used, LINK))
}

/// A bench whose port 1 has a slow link.
fn bench(change: impl Fn(&mut Plans)) -> Bench {
    Bench::with(|plans| {
        plans.ports[1].rate = Some(LINK);
        for port in &mut plans.ports {
            port.overhead_bytes = OVERHEAD_BYTES;
        }
        change(plans);
    })
}

/// The flow, marked by its user data, and a hundred others to the same network.
fn packets(is_six: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (from, to, other) = match is_six {
        false => ("198.19.0.9", "198.19.1.9", "198.19.1."),
        true => ("fd00:10::9", "fd00:11::9", "fd00:11::"),
    };
    let mut flow = udp(from, to, 700);
    let at = flow.len() - 40;
    // (Checksums of what they carry are of no account to routers.)
    flow[at..].fill(9);
    (flow, (100..200).map(|last| udp(from, &format!("{other}{last}"), 1_000)).collect())
}

fn offered(bench: Bench, is_six: bool) -> (f64, f64) {
    let (flow, others) = packets(is_six);
    goodput(bench, &flow, &others)
}

#[test]
fn a_reserved_flow_keeps_its_rate_within_two_percent_under_ten_times_overload() {
    let with_memory = |plans: &mut Plans| {
        let sharing = nilometer_queue::Sharing::default();
        plans.router.fabric.memory = Some(MemoryLimits { packets: 600, sharing });
    };
    let without_queueing = |plans: &mut Plans| plans.router.fabric.variant = None;
    let changes: [&dyn Fn(&mut Plans); 3] = [&|_| (), &with_memory, &without_queueing];
    for (number, change) in changes.into_iter().enumerate() {
        for is_six in [false, true] {
            let mut reserved = bench(change);
            reserve(&mut reserved, None);
            let (rate, link) = offered(reserved, is_six);
            assert!((rate - 1.0).abs() < 0.02, "case {number}, IPv6 {is_six}: {rate} of its rate");
            assert!(link > 0.98, "case {number}: {link} of the link is used");
        }
    }
}

/// What makes the test above mean something: the same traffic without the reservation.
#[test]
fn without_its_reservation_the_flow_loses_half_under_the_same_overload() {
    let same = |plans: &mut Plans| plans.router.fabric.variant = None;
    let lost = [offered(bench(|_| ()), false), offered(bench(same), false)];
    assert!(lost.iter().all(|(rate, _)| *rate < 0.5), "{lost:?}");
}

#[test]
fn a_reserved_flow_is_pinned_to_its_route_until_it_is_released() {
    let mut bench = bench(|_| ());
    let gateway = Some(Ipv4Addr::new(198, 18, 2, 2).into());
    let pinned = bench.way(Hop::Via { port: 2, gateway });
    bench.renew();
    let frame = framed(0, &udp("198.19.0.9", "198.19.1.9", 100));
    let ports = |out: Vec<(usize, Vec<u8>)>| out.iter().map(|(port, _)| *port).collect::<Vec<_>>();
    assert_eq!(ports(bench.pass(0, &frame)), [1], "as the table says");
    reserve(&mut bench, Some(pinned));
    let out = bench.pass(0, &frame);
    assert_eq!(&out[0].1[..6], crate::bench::host(2), "to the pinned next hop");
    assert_eq!(ports(out), [2]);
    assert_eq!(bench.router.reserved().met(RuleId(0)), Some((1, 128)));
    // Another flow goes on as before.
    assert_eq!(ports(bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.1.8", 100)))), [1]);
    assert!(bench.router.reserved_mut().remove(RuleId(0)));
    let now = bench.now;
    assert!(bench.router.unreserve(now, 1, 5, &mut bench.memory));
    assert!(!bench.router.unreserve(now, 1, 5, &mut bench.memory));
    assert_eq!(ports(bench.pass(0, &frame)), [1], "as the table says again");
}

#[test]
fn a_reservation_does_not_override_a_deny_filter() {
    let mut bench = bench(|_| ());
    reserve(&mut bench, None);
    let frame = framed(0, &udp("198.19.0.9", "198.19.1.9", 100));
    assert_eq!(bench.pass(0, &frame).len(), 1);
    let deny = Rule::any(9, Action::Deny);
    bench.router.tables_mut().filters4.insert(RuleId(1), deny).expect("room");
    assert!(bench.pass(0, &frame).is_empty());
    assert_eq!(bench.router.ports()[0].discards().of(Discard::Denied), 1);
}

#[test]
fn packets_in_a_reserved_queue_are_sent_when_its_contract_ends() {
    let mut bench = bench(|_| ());
    reserve(&mut bench, None);
    let frame = framed(0, &udp("198.19.0.9", "198.19.1.9", 1_000));
    (0..20).for_each(|_| bench.receive(0, &frame));
    let state = bench.router.fabric().reserved(1).state(5).expect("a contract");
    assert_eq!((state.backlog.packets, state.dropped_packets), (20, 0));
    bench.router.reserved_mut().remove(RuleId(0));
    let now = bench.now;
    bench.router.unreserve(now, 1, 5, &mut bench.memory);
    assert_eq!(bench.wait(40).len(), 20);
}

/// The packets that wait in reserved queue 5 of a port, if that has a contract, after a turn in which nothing leaves.
fn waiting(bench: &mut Bench, port: usize) -> Option<u64> {
    bench.router.advance(bench.now, &mut bench.memory, &mut ());
    bench.router.fabric().reserved(port).state(5).map(|state| state.backlog.packets)
}

#[test]
fn packets_with_options_and_fragments_made_here_wait_in_the_queue_of_their_flow() {
    let record_route = [7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0];
    let with_options =
        |bytes| crate::options::with_options("198.19.0.9", "198.19.1.9", &record_route, bytes);
    let mut bench = bench(|plans| plans.ports[1].mtu_bytes = 1_300);
    reserve(&mut bench, None);
    bench.receive(0, &framed(0, &with_options(100)));
    assert_eq!(waiting(&mut bench, 1), Some(1), "on the slow path");
    let mut large = udp("198.19.0.9", "198.19.1.9", 1_400);
    large[6] = 0;
    bench.receive(0, &framed(0, &crate::bench::mend(large)));
    assert_eq!(waiting(&mut bench, 1), Some(3), "two fragments of one that had no options");
    bench.receive(0, &framed(0, &with_options(1_400)));
    assert_eq!(waiting(&mut bench, 1), Some(5), "and of one that had");
    assert_eq!(bench.router.reserved().met(RuleId(0)), Some((3, 140 + 1_428 + 1_440)));
    // What belongs to no reserved flow does not wait there.
    let other = crate::options::with_options("198.19.0.9", "198.19.1.8", &record_route, 1_400);
    bench.receive(0, &framed(0, &other));
    assert_eq!(waiting(&mut bench, 1), Some(5));
}

#[test]
fn packets_with_options_go_to_the_pinned_next_hop() {
    let mut bench = bench(|_| ());
    let gateway = Some(Ipv4Addr::new(198, 18, 2, 2).into());
    let pinned = bench.way(Hop::Via { port: 2, gateway });
    bench.renew();
    reserve(&mut bench, Some(pinned));
    let record_route = [7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0];
    let packet = crate::options::with_options("198.19.0.9", "198.19.1.9", &record_route, 100);
    let out = bench.pass(0, &framed(0, &packet));
    let [(2, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(&frame[..6], crate::bench::host(2));
    assert_eq!(frame[34..41], [7, 11, 8, 198, 18, 2, 1], "the address of the port it leaves by");
}

#[test]
fn a_source_route_does_not_lead_into_the_reservation_of_its_next_address() {
    let mut bench = bench(|plans| plans.router.rfc1812.source_routing = SourceRouting::Follow);
    reserve(&mut bench, None);
    let loose = [131, 7, 4, 198, 19, 1, 9];
    let packet = crate::options::with_options("198.19.0.9", "198.18.0.1", &loose, 100);
    bench.receive(0, &framed(0, &packet));
    assert_eq!(waiting(&mut bench, 1), Some(0), "no filter has met it with that address");
    assert_eq!(bench.drain().iter().map(|(port, _)| *port).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_packet_to_a_group_is_reserved_at_the_outputs_that_have_a_contract() {
    let group = "239.1.0.1";
    let mut bench = bench(|plans| {
        plans.ports.iter_mut().for_each(|port| port.multicast = Some(MulticastPlan::default()));
        plans.ports[3].mtu_bytes = 1_300;
    });
    let fixed = StaticGroup { group: group.parse().expect("a group"), source: None };
    (1..=3).for_each(|port| bench.router.add_group(port, fixed).expect("room"));
    bench.drain();
    for output in [1, 3] {
        bench.router.reserve(output, 5, contract()).expect("a contract");
    }
    let rule = rule::<u32>(format!("{group}/32").parse().expect("a prefix"));
    let flow = ReservedFlow { queue: 5, pinned: None };
    let flows = bench.router.reserved_mut();
    flows.insert(RuleId(0), Inputs::ANY, (Some(rule), None), flow).expect("room");
    let receive = |bench: &mut Bench, mut packet: Vec<u8>| {
        packet[6] = 0;
        let mut frame = framed(0, &crate::bench::mend(packet));
        frame[..6].copy_from_slice(&[1, 0, 0x5e, 1, 0, 1]);
        bench.receive(0, &frame);
        [1, 2, 3].map(|port| waiting(bench, port))
    };
    let plain = receive(&mut bench, udp("198.19.0.9", group, 100));
    assert_eq!(plain, [Some(1), None, Some(1)]);
    let record_route = [7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0];
    let options = crate::options::with_options("198.19.0.9", group, &record_route, 100);
    assert_eq!(receive(&mut bench, options), [Some(2), None, Some(2)], "on the slow path");
    let fragments = receive(&mut bench, udp("198.19.0.9", group, 1_400));
    assert_eq!(fragments, [Some(3), None, Some(4)], "fragments where the link is narrow");
    let to_two = bench.wait(20).into_iter().filter(|(port, _)| *port == 2).count();
    assert_eq!(to_two, 3, "as best effort where there is no contract");
}
