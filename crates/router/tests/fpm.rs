//! From FPM bytes to forwarding: pieces of any size, hostile bytes, exchanges, replays and failures.

use std::net::{IpAddr, Ipv4Addr};

use nilometer_router::fpm::{FpmFault, Stream};
use nilometer_router::rtnetlink;
use nilometer_router::{
    AnyPrefix, Fib, Hop, Path, Point, Rejection, RouteLimits, RouteTable, RouteTarget, RouteUpdate,
    Source, TreeBitmap,
};
use nilometer_stat::Rng;

mod netlink;
use netlink::{BGP, UNICAST, forget, frame, group, object, route, via_object, withdrawal};

type Table = RouteTable<TreeBitmap<u32>, TreeBitmap<u128>>;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn table() -> Table {
    let fibs = (TreeBitmap::new(100_000), TreeBitmap::new(100_000));
    let limits = RouteLimits { routes_v4: 10_000, routes_v6: 10_000, ..RouteLimits::default() };
    let mut table = RouteTable::new(limits, fibs.0.expect("room"), fibs.1.expect("room"));
    for link in 10..20 {
        table.set_port(link, link as u16 - 10);
    }
    table
}

/// The updates in the frames, read in pieces of random sizes.
fn decoded(seed: u64, bytes: &[u8]) -> (Vec<RouteUpdate>, Stream) {
    let mut rng = Rng::new(seed, 1, 0);
    let (mut stream, mut updates, mut rest) = (Stream::new(), Vec::new(), bytes);
    while !rest.is_empty() {
        let space = stream.space();
        let most = space.len().min(rest.len()).min(400) as u64;
        let count = 1 + rng.below(most) as usize;
        space[..count].copy_from_slice(&rest[..count]);
        stream.filled(count);
        rest = &rest[count..];
        stream.updates(&mut updates).expect("sound frames");
    }
    (updates, stream)
}

/// What becomes of a packet to `to`.
fn fate(table: &mut Table, to: &str) -> Option<Hop> {
    let next = match ip(to) {
        IpAddr::V4(to) => table.fib_v4().lookup(u32::from(to)),
        IpAddr::V6(to) => table.fib_v6().lookup(u128::from(to)),
    };
    let snapshot = table.hops_mut().snapshot();
    next.map(|next| *snapshot.resolve(next, 0).expect("every number of a route is known"))
}

fn via(port: u16, gateway: &str) -> Option<Hop> {
    Some(Hop::Via { port, gateway: Some(ip(gateway)) })
}

fn feed(table: &mut Table, frames: &[Vec<u8>]) {
    let (updates, _) = decoded(1, &frames.concat());
    table.apply(Source::Fpm, &updates);
}

#[test]
fn messages_of_zebra_are_parsed_in_any_segmentation() {
    let inline = route(rtnetlink::NEW_ROUTE, ip("fd00::"), 8, BGP, UNICAST);
    let inline = inline.number(4, 11).address(5, ip("fe80::1")).bytes();
    let ways = [
        [16, 0, 0, 4, 10, 0, 0, 0, 8, 0, 5, 0, 198, 18, 0, 1],
        [16, 0, 0, 0, 11, 0, 0, 0, 8, 0, 5, 0, 198, 18, 0, 2],
    ];
    let several = route(rtnetlink::NEW_ROUTE, ip("10.1.0.0"), 16, BGP, UNICAST);
    let several = several.attribute(9, &ways.concat()).bytes();
    let prohibited = route(rtnetlink::NEW_ROUTE, ip("10.2.0.0"), 16, BGP, 8).bytes();
    let frames = [
        frame(&[object(7, 10, ip("198.18.0.1"))]),
        frame(&[object(8, 11, ip("fe80::2")), group(9, &[(7, 1), (8, 3)])]),
        frame(&[via_object(ip("10.0.0.0"), 8, 9), inline]),
        frame(&[several, prohibited, withdrawal(ip("10.9.0.0"), 16), forget(9)]),
    ];
    let prefix = |text: &str, length| AnyPrefix::new(ip(text), length).expect("a prefix");
    let announce = |prefix, way| RouteUpdate::Announce { prefix, protocol: BGP, metric: 20, way };
    let path = |link, gateway: &str, weight| Path { link, gateway: Some(ip(gateway)), weight };
    let expected = [
        RouteUpdate::Define { id: 7, way: RouteTarget::Path(path(10, "198.18.0.1", 1)) },
        RouteUpdate::Define { id: 8, way: RouteTarget::Path(path(11, "fe80::2", 1)) },
        RouteUpdate::Define { id: 9, way: RouteTarget::Objects(vec![(7, 1), (8, 3)]) },
        announce(prefix("10.0.0.0", 8), RouteTarget::Object(9)),
        announce(prefix("fd00::", 8), RouteTarget::Path(path(11, "fe80::1", 1))),
        announce(
            prefix("10.1.0.0", 16),
            RouteTarget::Paths(vec![path(10, "198.18.0.1", 5), path(11, "198.18.0.2", 1)]),
        ),
        announce(prefix("10.2.0.0", 16), RouteTarget::Fate(Hop::Reject(Rejection::Prohibited))),
        RouteUpdate::Withdraw { prefix: prefix("10.9.0.0", 16), metric: 20 },
        RouteUpdate::Forget { id: 9 },
    ];
    for seed in 0..50 {
        let (updates, stream) = decoded(seed, &frames.concat());
        assert_eq!(updates, expected, "seed {seed}");
        let counters = stream.counters();
        assert_eq!((counters.frames, counters.messages, counters.malformed), (4, 9, 0));
        assert_eq!(counters.bytes as usize, frames.concat().len());
    }
}

#[test]
fn a_frame_that_was_cut_is_forgotten_with_its_connection() {
    let whole = frame(&[withdrawal(ip("10.9.0.0"), 16)]);
    let (mut stream, mut updates) = (Stream::new(), Vec::new());
    for bytes in [&whole[..whole.len() - 1], &whole] {
        stream.reset();
        stream.space()[..bytes.len()].copy_from_slice(bytes);
        stream.filled(bytes.len());
        stream.updates(&mut updates).expect("sound frames");
    }
    assert_eq!((updates.len(), stream.counters().frames), (1, 1));
}

#[test]
fn foreign_messages_are_counted_and_ignored() {
    let to = ip("10.0.0.0");
    let mut of_multicast = route(rtnetlink::NEW_ROUTE, to, 8, BGP, UNICAST).bytes();
    of_multicast[16] = 128;
    let mut for_a_service = route(rtnetlink::NEW_ROUTE, to, 8, BGP, UNICAST).bytes();
    for_a_service[19] = 8;
    let other_table = route(rtnetlink::NEW_ROUTE, to, 8, BGP, UNICAST).number(15, 1_000).bytes();
    let encapsulated = route(rtnetlink::NEW_ROUTE, to, 8, BGP, UNICAST).attribute(22, &[0; 8]);
    let link = netlink::Message::new(16, &[0; 16]).bytes();
    let frames = frame(&[of_multicast, for_a_service, other_table, encapsulated.bytes(), link]);
    let (updates, stream) = decoded(1, &frames);
    let ignored = stream.counters().ignored;
    assert_eq!((ignored.multicast, ignored.selective, ignored.table, ignored.kind), (1, 1, 1, 1));
    assert_eq!(ignored.encapsulated, 1);
    let [RouteUpdate::Announce { way, .. }] = &updates[..] else { panic!("{updates:?}") };
    assert_eq!(*way, RouteTarget::Fate(Hop::KernelLink), "the kernel encapsulates");
}

/// By the type of the route alone (`RTN_`, linux/rtnetlink.h).
#[test]
fn the_type_of_a_route_may_determine_its_fate() {
    let unreachable = Hop::Reject(Rejection::Unreachable);
    let fates = [
        (2, Hop::Local),
        (3, Hop::Local),
        (4, Hop::Local),
        (5, Hop::Multicast),
        (6, Hop::Blackhole),
        (7, unreachable),
        (8, Hop::Reject(Rejection::Prohibited)),
        (9, unreachable),
    ];
    for (kind, fate) in fates {
        let route = route(rtnetlink::NEW_ROUTE, ip("10.0.0.0"), 8, BGP, kind).bytes();
        let (updates, _) = decoded(1, &frame(&[route]));
        let [RouteUpdate::Announce { way, .. }] = &updates[..] else { panic!("{updates:?}") };
        assert_eq!(*way, RouteTarget::Fate(fate), "type {kind}");
    }
    for (kind, message) in [(0, rtnetlink::NEW_ROUTE), (10, rtnetlink::NEW_ROUTE)] {
        let (updates, stream) =
            decoded(1, &frame(&[route(message, ip("10.0.0.0"), 8, BGP, kind).bytes()]));
        assert_eq!((updates.len(), stream.counters().ignored.other), (0, 1), "type {kind}");
    }
}

/// Attributes of next-hop objects (`NHA_`, linux/nexthop.h): of 4 a blackhole, of 8 an encapsulation.
#[test]
fn the_attributes_of_an_object_give_its_kind() {
    let object = |kind: u16, value: &[u8]| {
        let message = netlink::Message::new(rtnetlink::NEW_NEXT_HOP, &[2, 0, 11, 0, 0, 0, 0, 0]);
        let bytes = message.number(1, 7).number(5, 12).attribute(kind, value).bytes();
        let (updates, stream) = decoded(1, &frame(&[bytes]));
        (updates, stream.counters().ignored.encapsulated, stream.counters().malformed)
    };
    let define = |way| vec![RouteUpdate::Define { id: 7, way }];
    assert_eq!(object(4, &[]), (define(RouteTarget::Fate(Hop::Blackhole)), 0, 0));
    assert_eq!(object(8, &[0; 4]), (define(RouteTarget::Fate(Hop::KernelLink)), 1, 0));
    let path = |gateway| RouteTarget::Path(Path { link: 12, gateway, weight: 1 });
    assert_eq!(object(6, &[198, 18, 0, 1]), (define(path(Some(ip("198.18.0.1")))), 0, 0));
    assert_eq!(object(9, &[]), (define(path(None)), 0, 0));
    let group = RouteTarget::Objects(vec![(u32::from_ne_bytes([1, 2, 3, 4]), 6)]);
    assert_eq!(object(2, &[1, 2, 3, 4, 5, 0, 0, 0]), (define(group), 0, 0));
    for value in [&[][..], &[0; 7], &[0; 12]] {
        assert_eq!(object(2, value), (Vec::new(), 0, 1), "a group of {} bytes", value.len());
    }
}

#[test]
fn a_way_that_the_kernel_calls_dead_is_not_taken_while_another_lives() {
    let way = |flags: u8, link: u8| [8, 0, flags, 0, link, 0, 0, 0];
    let told_of = |ways: &[[u8; 8]]| {
        let several = route(rtnetlink::NEW_ROUTE, ip("10.0.0.0"), 8, BGP, UNICAST);
        let (updates, _) = decoded(1, &frame(&[several.attribute(9, &ways.concat()).bytes()]));
        let [RouteUpdate::Announce { way: RouteTarget::Paths(paths), .. }] = &updates[..] else {
            panic!("{updates:?}");
        };
        paths.iter().map(|path| path.link).collect::<Vec<_>>()
    };
    assert_eq!(told_of(&[way(0, 10), way(1, 11), way(16, 12)]), [10, 12], "no carrier is no death");
    assert_eq!(told_of(&[way(17, 10), way(1, 11)]), [10, 11], "all of them");
}

#[test]
fn hostile_bytes_are_tolerated() {
    let sound = [
        frame(&[object(7, 10, ip("198.18.0.1")), group(9, &[(7, 1), (8, 3)])]),
        frame(&[via_object(ip("10.0.0.0"), 8, 9), withdrawal(ip("10.1.0.0"), 16)]),
        frame(&[via_object(ip("fd00::"), 8, 7), forget(9)]),
    ]
    .concat();
    let mut outcomes = [0; 3];
    for seed in 0..20_000 {
        let mut rng = Rng::new(seed, 3, 0);
        let mut bytes = sound.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = [0, 1, 4, 255, rng.next_u64() as u8][rng.below(5) as usize];
        }
        bytes.truncate(bytes.len() - rng.below(20) as usize);
        let (mut stream, mut updates) = (Stream::new(), Vec::new());
        stream.space()[..bytes.len()].copy_from_slice(&bytes);
        stream.filled(bytes.len());
        let done = stream.updates(&mut updates);
        outcomes[0] += usize::from(done.is_err());
        outcomes[1] += stream.counters().malformed as usize;
        outcomes[2] += updates.len();
        if seed % 40 == 0 {
            let mut table = table();
            table.apply(Source::Fpm, &updates);
        }
    }
    assert!(outcomes.iter().all(|count| *count > 1_000), "{outcomes:?}");
    for (bytes, fault) in [
        ([2, 1, 0, 4], FpmFault::Version(2)),
        ([1, 2, 0, 4], FpmFault::Kind(2)),
        ([1, 1, 0, 3], FpmFault::Length(3)),
    ] {
        assert_eq!(nilometer_router::fpm::frame(&bytes), Err(fault));
    }
    let (whole, cut) = ([1, 1, 0, 4], [1, 1, 0, 5]);
    assert_eq!(nilometer_router::fpm::frame(&whole), Ok(Some((&[][..], 4))));
    assert_eq!(nilometer_router::fpm::frame(&cut), Ok(None));
    assert_eq!(nilometer_router::fpm::frame(&cut[..3]), Ok(None));
}

#[test]
fn a_withdrawal_and_an_announcement_in_one_frame_are_one_change() {
    let mut table = table();
    let objects = frame(&[object(7, 10, ip("198.18.0.1")), object(8, 11, ip("198.18.0.5"))]);
    feed(&mut table, &[objects, frame(&[via_object(ip("10.0.0.0"), 8, 7)])]);
    let before = table.rib_v4().counters();
    let exchange = frame(&[withdrawal(ip("10.0.0.0"), 8), via_object(ip("10.0.0.0"), 8, 8)]);
    let (updates, stream) = decoded(1, &exchange);
    assert_eq!((updates.len(), stream.counters().exchanges), (1, 1));
    table.apply(Source::Fpm, &updates);
    let after = table.rib_v4().counters();
    assert_eq!((after.withdrawn, after.changed), (before.withdrawn, before.changed + 1));
    assert_eq!(fate(&mut table, "10.1.1.1"), via(1, "198.18.0.5"));
    let gone = frame(&[via_object(ip("10.0.0.0"), 8, 7), withdrawal(ip("10.0.0.0"), 8)]);
    feed(&mut table, &[gone]);
    assert_eq!(fate(&mut table, "10.1.1.1"), None, "the other way about it is gone");
}

#[test]
fn objects_move_their_routes_and_ports_their_flows() {
    let mut table = table();
    let objects = [object(7, 10, ip("198.18.0.1")), object(8, 11, ip("198.18.0.5"))];
    feed(&mut table, &[frame(&objects), frame(&[group(9, &[(7, 1), (8, 1)])])]);
    feed(&mut table, &[frame(&[via_object(ip("10.0.0.0"), 8, 9), via_object(ip("fd00::"), 8, 7)])]);
    let first = fate(&mut table, "10.1.1.1").expect("a route");
    let Hop::Via { port, .. } = first else { panic!("{first:?}") };
    assert!(table.hops_mut().fail(Point::Port(port)) >= 1);
    let other = fate(&mut table, "10.1.1.1").expect("a route");
    assert!(matches!(other, Hop::Via { port: other, .. } if other != port));
    table.hops_mut().fail(Point::Port(1 - port));
    assert_eq!(fate(&mut table, "10.1.1.1"), Some(Hop::Failed));
    table.hops_mut().restore(Point::Port(port));
    assert_eq!(fate(&mut table, "10.1.1.1"), Some(first));
    table.hops_mut().restore(Point::Port(1 - port));
    // The object is redefined: its routes and its groups follow.
    feed(&mut table, &[frame(&[object(7, 12, ip("198.18.0.9"))])]);
    assert_eq!(fate(&mut table, "fd00::1"), via(2, "198.18.0.9"));
    feed(&mut table, &[frame(&[forget(8)])]);
    assert_eq!(fate(&mut table, "10.1.1.1"), via(2, "198.18.0.9"), "the group's only way");
    // A link that is none of ours is the kernel's.
    feed(&mut table, &[frame(&[object(7, 99, ip("198.18.0.9"))])]);
    assert_eq!(fate(&mut table, "fd00::1"), Some(Hop::KernelLink));
    table.set_port(99, 5);
    assert_eq!(fate(&mut table, "fd00::1"), via(5, "198.18.0.9"));
}

#[test]
fn a_replay_with_other_numbers_leaves_no_route_without_its_way() {
    let mut table = table();
    let (to, gone) = (ip("10.0.0.0"), ip("11.0.0.0"));
    feed(&mut table, &[frame(&[object(7, 10, ip("198.18.0.1")), object(8, 11, ip("198.18.0.5"))])]);
    feed(&mut table, &[frame(&[via_object(to, 8, 7), via_object(gone, 8, 8)])]);
    table.apply(Source::Fpm, &[RouteUpdate::ReplayBegins]);
    // The restarted daemon has assigned its numbers the other way round.
    feed(&mut table, &[frame(&[object(8, 10, ip("198.18.0.1")), object(7, 11, ip("198.18.0.5"))])]);
    assert_eq!(fate(&mut table, "10.0.0.1"), via(0, "198.18.0.1"), "as before");
    feed(&mut table, &[frame(&[via_object(to, 8, 8)])]);
    assert_eq!(fate(&mut table, "10.0.0.1"), via(0, "198.18.0.1"));
    assert_eq!(fate(&mut table, "11.0.0.1"), via(1, "198.18.0.5"));
    table.apply(Source::Fpm, &[RouteUpdate::ReplayEnds]);
    assert_eq!(fate(&mut table, "10.0.0.1"), via(0, "198.18.0.1"));
    assert_eq!(fate(&mut table, "11.0.0.1"), None);
    assert_eq!(table.hops().len(), 2, "the objects of before are gone");
    // Repeated as they were, objects keep their numbers, and nothing reaches the forwarding table.
    let updates = table.rib_v4().counters().fib_updates;
    table.apply(Source::Fpm, &[RouteUpdate::ReplayBegins]);
    feed(&mut table, &[frame(&[object(8, 10, ip("198.18.0.1")), via_object(to, 8, 8)])]);
    table.apply(Source::Fpm, &[RouteUpdate::ReplayEnds]);
    assert_eq!(table.rib_v4().counters().fib_updates, updates);
    assert_eq!(table.hops().len(), 1);
}

#[test]
fn a_route_before_its_object_fails_until_it_comes() {
    let mut table = table();
    feed(&mut table, &[frame(&[via_object(ip("10.0.0.0"), 8, 7)])]);
    assert_eq!(fate(&mut table, "10.1.1.1"), Some(Hop::Failed));
    feed(&mut table, &[frame(&[object(7, 10, ip("198.18.0.1"))])]);
    assert_eq!(fate(&mut table, "10.1.1.1"), via(0, "198.18.0.1"));
    assert_eq!(table.counters().early, 1);
    let all = (0..100u32).map(|number| {
        let to = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + (number << 8)));
        via_object(to, 24, 7)
    });
    feed(&mut table, &[frame(&all.collect::<Vec<_>>())]);
    assert_eq!((table.fib_v4().len(), table.hops().len()), (101, 1));
}
