//! Filters of some ports: they apply to packets that arrive at these, and to no others (RFC 1812,
//! 5.3.9).

use nilometer_router::classifier::{Action, Inputs, Octet, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::header::{AnyKey, Header};
use nilometer_wire::build;

use crate::bench::{Bench, framed, mend, udp};

fn ip(text: &str) -> std::net::IpAddr {
    text.parse().expect("an address")
}

/// A router that lets nothing in by ports 0 and 3, without distributed queueing.
fn bench() -> Bench {
    let mut bench = Bench::with(|plans| plans.router.fabric.variant = None);
    let inputs = Inputs::of([0, 3]).expect("ports");
    let tables = bench.router.tables_mut();
    let priority = 5;
    let deny = Rule::any(priority, Action::Deny);
    tables.filters4.insert_at(RuleId(0), inputs, deny).expect("room");
    tables.filters6.insert_at(RuleId(0), inputs, Rule::any(priority, Action::Deny)).expect("room");
    // For every port, and before the other filter: packets to the network behind port 2.
    let destination = "198.19.2.0/24".parse().expect("a prefix");
    let permit = Rule { destination, ..Rule::any(priority - 1, Action::Permit) };
    tables.filters4.insert(RuleId(1), permit).expect("room");
    bench
}

#[test]
fn a_filter_of_a_port_applies_to_packets_received_there() {
    let mut bench = bench();
    for (port, passes) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
        // (By another port than it came by, so that no redirect is due.)
        let to = (port + 3) % 4;
        let (to4, to6) =
            (format!("198.19.{}.9", if to == 2 { 1 } else { to }), format!("fd00:1{to}::9"));
        let four = bench.pass(port, &framed(port, &udp("10.0.0.9", &to4, 30)));
        let six = bench.pass(port, &framed(port, &udp("fd00:77::9", &to6, 30)));
        assert_eq!((four.len(), six.len()), (passes, passes), "port {port}");
        let first = bench.pass(port, &framed(port, &udp("10.0.0.9", "198.19.2.9", 30)));
        assert!(first.iter().any(|(by, _)| *by == 2), "what goes first counts, port {port}");
        // Packets for the router itself are filtered as well.
        let own = format!("198.18.{port}.1");
        let echo = build::icmp(ip(&format!("198.18.{port}.2")), ip(&own), 8, 0, &[0; 9]);
        assert_eq!(bench.pass(port, &framed(port, &echo)).len(), passes, "port {port}");
    }
    let met = |id: u32| bench.router.tables().filters4.get(RuleId(id)).expect("it").1.packets;
    assert_eq!((met(0), met(1)), (4, 4), "one counter for all its ports");
    let denied = |port: usize| bench.router.ports()[port].discards().of(Discard::Denied);
    assert_eq!([0, 1, 2, 3].map(denied), [3, 0, 0, 3]);
    assert!(bench.router.tables_mut().filters4.remove(RuleId(0)).is_some());
    assert_eq!(bench.pass(0, &framed(0, &udp("10.0.0.9", "198.19.1.9", 30))).len(), 1);
}

#[test]
fn a_shortcut_is_judged_by_the_filters_of_its_port() {
    let mut bench = bench();
    let fabric = bench.router.fabric_mut();
    (0..4).for_each(|output| fabric.set_usual(output, true));
    let frame = framed(0, &udp("10.0.0.9", "198.19.1.9", 30));
    let Ok(Header { key: AnyKey::V4(key), .. }) = Header::read(&frame) else { panic!("a packet") };
    let now = bench.now;
    let mut has = |input: usize| bench.router.shortcut(now, input, &key).is_some();
    assert_eq!([0, 2, 3].map(&mut has), [false, true, false]);
}

#[test]
fn tcp_flags_are_needed_only_at_ports_whose_filters_match_them() {
    let mut packet = udp("198.19.0.9", "198.19.1.9", 16);
    packet[6..8].copy_from_slice(&1u16.to_be_bytes());
    packet[9] = 6;
    let packet = mend(packet);
    let mut bench = Bench::new();
    let acks = Rule { flags: Octet::new(0x10, 0x10), ..Rule::any(1, Action::Deny) };
    let inputs = Inputs::of([2]).expect("a port");
    bench.router.tables_mut().filters4.insert_at(RuleId(1), inputs, acks).expect("room");
    let passed = [0, 2].map(|port| bench.pass(port, &framed(port, &packet)).len());
    assert_eq!(passed, [1, 0]);
    assert_eq!(bench.router.ports()[2].discards().of(Discard::Fragment), 1);
}

#[test]
fn filters_are_counted_and_the_flow_cache_counts_hits() {
    let mut bench = Bench::new();
    let filters = &mut bench.router.tables_mut().filters4;
    assert_eq!((filters.is_empty(), filters.len()), (true, 0));
    assert_eq!((filters.flow_cache(), filters.flow_cache_span()), (None, None));
    filters.insert(RuleId(3), Rule::any(1, Action::Permit)).expect("room");
    filters.insert(RuleId(5), Rule::any(2, Action::Deny)).expect("room");
    filters.set_flow_cache(Some(64));
    assert!(!filters.is_empty() && filters.len() == 2);
    let span = filters.flow_cache_span().expect("a cache");
    assert!(!span.is_empty());
    for hits in 0..3 {
        let packet = framed(0, &udp("198.19.0.9", "198.19.1.9", 30));
        assert_eq!(bench.pass(0, &packet).len(), 1);
        assert_eq!(bench.router.tables().filters4.flow_cache(), Some((hits, 1)));
    }
    assert_eq!(bench.router.tables().filters6.len(), 0);
    assert_eq!(format!("{:?}", bench.router.tables()), "Tables { filters: (2, 0), .. }");
    bench.router.tables_mut().filters4.set_flow_cache(None);
    assert_eq!(bench.router.tables().filters4.flow_cache(), None);
}
