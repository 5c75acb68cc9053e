//! The RIB thread as seen by threads that forward by its tables, change its routes and query it.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nilometer_router::fpm::FpmFault;
use nilometer_router::{
    AnyPrefix, Engine, Hop, Member, Path, Point, Prefix, RouteBatch, RouteLimits, RouteTarget,
    RouteUpdate, Source,
};
use nilometer_routerd::fpm::{FpmConfig, FpmListener};
use nilometer_routerd::rib_thread::{
    Engines, Listing, RibThread, RouteView, Selection, StaticRoute,
};
use nilometer_stat::Rng;

use crate::forwarder::{Forwarder, Watch, wait};

fn rib_thread() -> RibThread {
    let limits = RouteLimits { routes_v4: 20_000, routes_v6: 1_000, ..RouteLimits::default() };
    RibThread::start(limits, Engines::default()).expect("a thread")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn prefix(text: &str) -> AnyPrefix {
    let (address, length) = text.split_once('/').expect("a prefix");
    AnyPrefix::new(ip(address), length.parse().expect("a length")).expect("short enough")
}

fn via(port: u16, gateway: &str) -> Member {
    Member { hop: Hop::Via { port, gateway: Some(ip(gateway)) }, weight: 1 }
}

fn on_link(port: u16) -> Member {
    Member { hop: Hop::Via { port, gateway: None }, weight: 1 }
}

fn static_route(to: &str, members: &[Member]) -> StaticRoute {
    StaticRoute { prefix: prefix(to), members: members.to_vec() }
}

#[test]
fn operator_changes_are_applied_when_the_call_returns() {
    let rib = rib_thread();
    let mut forwarder = Forwarder::new(&rib);
    rib.set_addresses(0, &[(ip("198.18.0.1"), 24), (ip("fd00::1"), 64)]);
    rib.set_addresses(1, &[(ip("198.18.1.1"), 24)]);
    assert_eq!(forwarder.one("198.18.1.7"), Some(on_link(1).hop));
    for own in ["198.18.0.1", "198.18.1.1", "198.18.0.255"] {
        assert_eq!(forwarder.one(own), Some(Hop::Local), "{own}");
    }
    let default = static_route("0.0.0.0/0", &[via(0, "198.18.0.2")]);
    rib.set_static(&[default.clone(), static_route("10.0.0.0/8", &[via(1, "198.18.1.2")])]);
    assert_eq!(forwarder.one("10.1.1.1"), Some(via(1, "198.18.1.2").hop));
    assert_eq!(forwarder.one("9.1.1.1"), Some(via(0, "198.18.0.2").hop));

    let count = |of: Source| {
        let counts = rib.counts();
        let count = counts.iter().find(|count| count.source == of).expect("every source");
        (count.v4, count.v6)
    };
    // Two networks of IPv4 with an address and a broadcast each; one of IPv6 with an address.
    assert_eq!((count(Source::Connected), count(Source::Static)), ((6, 2), (2, 0)));
    let found = rib.look_up(ip("10.200.0.1"));
    assert_eq!((found.len(), found[0].prefix), (1, prefix("10.0.0.0/8")));
    assert_eq!((found[0].source, &found[0].members), (Source::Static, &vec![via(1, "198.18.1.2")]));
    assert_eq!(rib.look_up(ip("fd00::2"))[0].members, [on_link(0)]);
    assert_eq!(rib.look_up(ip("fd01::2")), []);

    let within = |text: &str, most| {
        let selection = Selection { within: Some(prefix(text)), most, ..Selection::default() };
        let routes = rib.list(selection).routes.into_iter();
        routes.map(|route| route.prefix.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(within("198.18.0.0/24", 9), ["198.18.0.0/24", "198.18.0.1/32", "198.18.0.255/32"]);
    assert_eq!(within("0.0.0.0/0", 2), ["0.0.0.0/0", "10.0.0.0/8"]);
    assert_eq!(within("::/0", 9), ["fd00::/64", "fd00::1/128"]);

    rib.set_static(&[default]);
    assert_eq!(forwarder.one("10.1.1.1"), Some(via(0, "198.18.0.2").hop));
    rib.set_addresses(1, &[]);
    assert_eq!(forwarder.one("198.18.1.7"), Some(via(0, "198.18.0.2").hop));
    assert_eq!((count(Source::Connected), count(Source::Static)), ((3, 2), (1, 0)));
}

#[test]
fn pages_of_a_list_are_the_list() {
    let rib = rib_thread();
    let mut rng = Rng::new(41, 0, 0);
    let mut routes = Vec::new();
    for _ in 0..3_000 {
        let length = rng.below(33);
        let bits = (rng.next_u64() as u32) & u32::MAX.checked_shl(32 - length as u32).unwrap_or(0);
        let to = AnyPrefix::new(IpAddr::V4(bits.into()), length as u32).expect("short enough");
        routes.push(StaticRoute { prefix: to, members: vec![on_link(0)] });
    }
    routes.push(static_route("fd00::/16", &[on_link(1)]));
    routes.push(static_route("fd01::/16", &[on_link(1)]));
    assert_eq!(rib.set_static(&routes), 0);
    let mut expected: Vec<AnyPrefix> = routes.iter().map(|route| route.prefix).collect();
    expected.sort();
    expected.dedup();
    for most in [1, 7, 1_000, usize::MAX] {
        let (mut seen, mut after): (Vec<AnyPrefix>, _) = (Vec::new(), None);
        loop {
            let listing = rib.list(Selection { after, most, ..Selection::default() });
            seen.extend(listing.routes.iter().map(|route| route.prefix));
            assert_eq!(listing.more, expected.len() - seen.len(), "most {most}");
            assert!(listing.routes.len() <= most);
            after = seen.last().copied();
            if listing.more == 0 {
                break;
            }
        }
        assert!(seen == expected, "most {most}");
    }
    let none = rib.list(Selection { most: 0, ..Selection::default() });
    assert_eq!((none.routes.len(), none.more), (0, expected.len()));
}

#[test]
fn a_failed_port_is_left_and_taken_again() {
    let rib = rib_thread();
    let mut forwarder = Forwarder::new(&rib);
    let ways = [via(0, "198.18.0.2"), via(1, "198.18.1.2")];
    rib.set_static(&[static_route("10.0.0.0/8", &ways)]);
    let flows = |forwarder: &mut Forwarder| {
        let flows = (0..64).map(|flow| forwarder.batch(&[0x0a01_0101], flow)[0]);
        flows.filter(|hop| *hop == Some(ways[0].hop)).count()
    };
    assert_eq!(flows(&mut forwarder), 32, "one half each");
    assert_eq!(rib.fail(Point::Port(1)), 1);
    assert_eq!(flows(&mut forwarder), 64);
    assert_eq!(rib.fail(Point::Port(0)), 1);
    assert_eq!(forwarder.one("10.1.1.1"), Some(Hop::Failed));
    rib.restore(Point::Port(0));
    rib.restore(Point::Port(1));
    assert_eq!(flows(&mut forwarder), 32);
}

fn address(number: u32) -> u32 {
    0x0a00_0000 + (number << 8)
}

fn network(number: u32) -> AnyPrefix {
    AnyPrefix::V4(Prefix::new(address(number), 24).expect("short enough"))
}

fn tell(rib: &RibThread, updates: Vec<RouteUpdate>) {
    let batch = RouteBatch { source: Source::Fpm, updates };
    rib.news().send(batch).expect("it listens");
}

/// Every route by its own new next hop, in an order of chance, as updates.
fn churn(rng: &mut Rng, count: u32, round: u32) -> Vec<RouteUpdate> {
    let mut numbers: Vec<u32> = (0..count).collect();
    rng.shuffle(&mut numbers);
    let announce = |number: u32| {
        let gateway = std::net::Ipv4Addr::from(0xc612_0000 + round * 700 + number % 700);
        let path = Path { link: 1 + number % 2, gateway: Some(gateway.into()), weight: 1 };
        let (prefix, way) = (network(number), RouteTarget::Path(path));
        RouteUpdate::Announce { prefix, protocol: 186, metric: 0, way }
    };
    numbers.into_iter().map(announce).collect()
}

#[test]
fn no_packet_meets_a_route_whose_next_hop_it_does_not_know() {
    const ROUTES: u32 = 3_000;
    let rib = rib_thread();
    rib.set_port(1, 0);
    rib.set_port(2, 1);
    let mut rng = Rng::new(9, 1, 0);
    tell(&rib, churn(&mut rng, ROUTES, 0));
    wait("routes", || rib.status().prefixes_v4 == ROUTES as usize);

    let all = (0..ROUTES).map(address).collect();
    let is_right = |_, hop| matches!(hop, Some(Hop::Via { .. }));
    let watch = Watch::start(Forwarder::new(&rib), all, is_right);
    for round in 1..30 {
        let mut updates = churn(&mut rng, ROUTES, round);
        if round % 5 == 0 {
            updates.insert(0, RouteUpdate::ReplayBegins);
            updates.push(RouteUpdate::ReplayEnds);
        }
        tell(&rib, updates);
    }
    let last = 29 * u64::from(ROUTES);
    wait("the last round", || rib.status().routes_v4.changed >= last);
    assert!(watch.end() > 0);
    let status = rib.status();
    assert_eq!((status.routes_v4.swept, status.table.routes_refused), (0, 0));
    assert!(status.next_hops <= 1_400, "old ones are let go: {}", status.next_hops);
}

#[test]
fn the_table_is_exchanged_under_updates() {
    const ROUTES: u32 = 5_000;
    let rib = rib_thread();
    rib.set_port(1, 0);
    rib.set_port(2, 1);
    let mut rng = Rng::new(10, 1, 0);
    tell(&rib, churn(&mut rng, ROUTES, 0));
    wait("routes", || rib.status().prefixes_v4 == ROUTES as usize);
    // 700 next hops are more than it has names for.
    let refused = rib.exchange_v4(Engine::Lines, |_| panic!("there is nothing to install"));
    assert!(refused.is_err());

    let mut forwarder = Forwarder::new(&rib);
    let all: Vec<u32> = (0..ROUTES).map(address).collect();
    for round in 1..6 {
        tell(&rib, churn(&mut rng, ROUTES, round));
        let engine = [Engine::TreeBitmap, Engine::WideLines][round as usize % 2];
        let install = |reader| forwarder.v4 = reader;
        rib.exchange_v4(engine, install).expect("room");
        assert!(forwarder.batch(&all, 0).iter().all(Option::is_some));
    }
    wait("the last round", || rib.status().routes_v4.changed >= 5 * u64::from(ROUTES));
    for (hop, number) in forwarder.batch(&all, 0).into_iter().zip(0..) {
        let gateway = std::net::Ipv4Addr::from(0xc612_0000 + 5 * 700 + number % 700);
        let port = (number % 2) as u16;
        assert_eq!(hop, Some(Hop::Via { port, gateway: Some(gateway.into()) }));
    }
}

fn listen(rib: &RibThread, hold_ms: u64, quiet_ms: u64, longest_ms: u64) -> FpmListener {
    let [hold, quiet, longest] = [hold_ms, quiet_ms, longest_ms].map(Duration::from_millis);
    let config = FpmConfig { address: "127.0.0.1:0".parse().expect("one"), hold, quiet, longest };
    FpmListener::start(None, config, rib.news()).expect("loopback")
}

/// A next-hop object behind link 1, and routes by it, as zebra announces them.
fn replay(gateway: &str, numbers: std::ops::Range<u32>) -> Vec<u8> {
    let mut bytes = crate::netlink::frame(&[crate::netlink::object(7, 1, ip(gateway))]);
    for number in numbers {
        let to = std::net::Ipv4Addr::from(address(number));
        bytes.extend(crate::netlink::frame(&[crate::netlink::via_object(to.into(), 24, 7)]));
    }
    bytes
}

fn connect(listener: &FpmListener, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(listener.address()).expect("it listens");
    stream.write_all(bytes).expect("it reads");
    stream
}

#[test]
fn routes_of_a_lost_daemon_are_kept_until_the_replay_of_another_ends() {
    let rib = rib_thread();
    rib.set_port(1, 0);
    let listener = listen(&rib, 2_000, 1_000, 60_000);
    let prefixes = || rib.status().prefixes_v4;
    let first = connect(&listener, &replay("198.18.0.2", 0..100));
    wait("routes", || prefixes() == 100);
    wait("the replay's end", || listener.status().replays == 1);
    drop(first);
    wait("its end", || !listener.status().is_connected);

    // All but ten come again, some of them changed; the rest is forwarded by until that is all.
    let mut forwarder = Forwarder::new(&rib);
    let mut second = connect(&listener, &replay("198.18.0.2", 0..80));
    wait("the other", || rib.status().routes_v4.repeated == 80);
    assert_eq!((prefixes(), forwarder.one("10.0.99.1")), (100, Some(via(0, "198.18.0.2").hop)));
    second.write_all(&replay("198.18.0.3", 80..90)).expect("it reads");
    wait("the sweep", || prefixes() == 90);
    assert_eq!(forwarder.one("10.0.99.1"), None);
    assert_eq!(forwarder.one("10.0.85.1"), Some(via(0, "198.18.0.3").hop));
    assert_eq!(rib.status().routes_v4.swept, 10);
    assert_eq!(listener.status().connections, 2);
}

#[test]
fn routes_of_a_daemon_that_is_never_quiet_are_swept_after_a_limit() {
    let rib = rib_thread();
    rib.set_port(1, 0);
    let listener = listen(&rib, 100, 60_000, 1_500);
    drop(connect(&listener, &replay("198.18.0.2", 0..10)));
    wait("routes", || rib.status().prefixes_v4 == 10 && !listener.status().is_connected);
    let mut busy = connect(&listener, &[]);
    wait("the sweep", || {
        busy.write_all(&replay("198.18.0.2", 0..1)).expect("it reads");
        rib.status().prefixes_v4 == 1
    });
}

#[test]
fn foreign_connections_are_closed_and_bad_messages_skipped() {
    let rib = rib_thread();
    rib.set_port(1, 0);
    let listener = listen(&rib, 100, 100, 60_000);
    for (bytes, fault) in [
        (&b"GET / HTTP/1.0\r\n\r\n"[..], FpmFault::Version(b'G')),
        (&[1, 2, 0, 9, 0], FpmFault::Kind(2)),
        (&[1, 1, 0, 3], FpmFault::Length(3)),
    ] {
        let mut stranger = connect(&listener, bytes);
        assert_eq!(stranger.read(&mut [0]).unwrap_or(0), 0, "closed");
        wait("what it was closed for", || listener.status().fault == Some(fault));
    }
    // A route longer than its family allows, in a frame of its own; then a sound one.
    let mut bytes = crate::netlink::frame(&[crate::netlink::via_object(ip("10.0.0.0"), 99, 7)]);
    bytes.extend(replay("198.18.0.2", 0..1));
    let _stays = connect(&listener, &bytes);
    wait("the sound one", || rib.status().prefixes_v4 == 1);
    assert!(listener.status().counters.malformed == 1 && listener.status().is_connected);
}

#[test]
fn a_list_is_whole_while_the_table_changes() {
    // Those that stay, between those that come and go.
    const ROUTES: u32 = 12_000;
    let rib = rib_thread();
    rib.set_port(1, 0);
    rib.set_port(2, 1);
    let mut rng = Rng::new(12, 1, 0);
    tell(&rib, churn(&mut rng, ROUTES, 0));
    wait("routes", || rib.status().prefixes_v4 == ROUTES as usize);
    let is_over = AtomicBool::new(false);
    let lists = thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let odd = |number: &u32| number % 2 == 1;
                let gone = (0..ROUTES)
                    .filter(odd)
                    .map(|number| RouteUpdate::Withdraw { prefix: network(number), metric: 0 });
                tell(&rib, gone.collect());
                tell(&rib, churn(&mut rng, ROUTES, round % 20));
            }
        });
        let list = |_| {
            thread::sleep(Duration::from_millis(5));
            rib.list(Selection { most: 50_000, ..Selection::default() })
        };
        let lists: Vec<Listing> = (0..40).map(list).collect();
        is_over.store(true, Ordering::Relaxed);
        lists
    });
    let mut others = 0;
    for Listing { routes, more, .. } in lists {
        assert!(routes.is_sorted_by(|a, b| a.prefix < b.prefix), "each once, in order");
        assert_eq!(more, 0);
        let stay = (0..ROUTES / 2).map(|number| network(2 * number));
        let number = |route: &RouteView| match route.prefix {
            AnyPrefix::V4(prefix) => (prefix.address() - address(0)) >> 8,
            AnyPrefix::V6(_) => panic!("{route:?}"),
        };
        let (stayed, came): (Vec<_>, Vec<_>) =
            routes.iter().partition(|&route| number(route) % 2 == 0);
        assert!(stayed.iter().map(|route| route.prefix).eq(stay), "{} stayed", stayed.len());
        others += came.len();
        // Its ways are from one moment: never those of another prefix, whose next hop was released
        // meanwhile.
        for route in routes.iter() {
            let Hop::Via { port, gateway: Some(IpAddr::V4(gateway)) } = route.members[0].hop else {
                panic!("{route:?}")
            };
            let of = (u32::from(gateway) - 0xc612_0000) % 700;
            assert_eq!((port, of), ((number(route) % 2) as u16, number(route) % 700), "{route:?}");
        }
    }
    assert!(others > 0 && others < 40 * ROUTES as usize / 2, "{others} came and went");
}

/// With NILOMETER_LISTED_ROUTES=900000, the figures of a full table.
#[test]
fn a_failover_and_a_change_do_not_wait_for_a_list() {
    let routes = std::env::var("NILOMETER_LISTED_ROUTES").ok();
    let routes: u32 = routes.map_or(300_000, |text| text.parse().expect("a number"));
    let rib = RibThread::start(RouteLimits::default(), Engines::default()).expect("a thread");
    rib.set_port(1, 0);
    rib.set_port(2, 1);
    let mut rng = Rng::new(13, 1, 0);
    for part in churn(&mut rng, routes, 0).chunks(10_000) {
        tell(&rib, part.to_vec());
    }
    wait("routes", || rib.status().prefixes_v4 == routes as usize);
    let timed = |work: &dyn Fn() -> u64| {
        thread::sleep(Duration::from_millis(1));
        let began = Instant::now();
        let _ = work();
        began.elapsed()
    };
    let figures = || {
        let fails = (0..300).map(|_| {
            let took = timed(&|| rib.fail(Point::Port(1)) as u64);
            rib.restore(Point::Port(1));
            took
        });
        let fails: Vec<Duration> = fails.collect();
        let one = [static_route("9.9.9.0/24", &[via(0, "198.18.0.2")])];
        let change = |number: usize| {
            timed(&|| rib.set_static(if number.is_multiple_of(2) { &one } else { &[] }))
        };
        [fails, (0..300).map(change).collect()]
    };
    let quiet = figures();
    let (is_over, lists) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (beside, mut walks) = thread::scope(|scope| {
        let walking = scope.spawn(|| {
            let mut walks = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                let listing = rib.list(Selection { most: 10_000, ..Selection::default() });
                walks.push(began.elapsed());
                let found = listing.routes.len() + listing.more;
                assert!((routes as usize..=routes as usize + 1).contains(&found), "{found}");
                lists.fetch_add(1, Ordering::Relaxed);
            }
            walks
        });
        wait("a list", || lists.load(Ordering::Relaxed) > 0);
        let beside = figures();
        is_over.store(true, Ordering::Relaxed);
        (beside, walking.join().expect("lists are made"))
    });
    walks.sort();
    let walk = walks[walks.len() / 2];
    for (what, taken) in ["failover", "change", "failover beside lists", "change beside lists"]
        .into_iter()
        .zip(quiet.into_iter().chain(beside))
    {
        let mut taken = taken;
        taken.sort();
        let at = |share: usize| taken[(taken.len() - 1) * share / 100];
        println!("{what}: {:?}, 99 % {:?}, most {:?}", at(50), at(99), at(100));
        // Lists follow each other without a pause: waiting for one would take half of its time on
        // average.
        assert!(at(50) < walk / 8, "{what}: {:?}, and a list {walk:?}", at(50));
    }
    println!("{} lists of {routes} routes, {walk:?} each", lists.load(Ordering::Relaxed));
}
