//! What it costs to bring a whole routing table from a daemon's bytes to forwarding, and to reroute it.
//!
//! `cargo run --release -p nilometer-router --example routes PREFIXES.gz [ROUNDS]`: writes the stream
//! that zebra 8.4 would send for the IPv4 prefixes of the file (64 next-hop objects, 8 groups of them,
//! one frame a route, shuffled as BGP brings them), then, ROUNDS times (5), in CPU time of one thread:
//! decoding alone; decoding into the routing table above Tree Bitmap; the same stream again as a replay;
//! and, by the clock, the failure of a next hop that a group of all prefixes uses. Medians, least and
//! greatest.

use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use flate2::read::GzDecoder;
use nilometer_router::fpm::Stream;
use nilometer_router::{
    Fib, Hop, Point, Prefix, RouteLimits, RouteTable, RouteUpdate, Source, TreeBitmap,
};
use nilometer_stat::Rng;

#[path = "../tests/netlink/mod.rs"]
mod netlink;

/// Next-hop objects, each behind a port of its own.
const OBJECTS: u32 = 64;
/// Groups of eight objects each, by which an eighth of the routes go.
const GROUPS: u32 = 8;

/// Failures that are timed.
const TIMES: usize = 101;

/// CPU time of this thread, seconds.
fn cpu_s() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos: f64 = text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    nanos / 1e9
}

fn gateway(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0xc612_0001 + (number << 8)))
}

/// The bytes that zebra would send.
fn stream(routes: &[Prefix<u32>]) -> Vec<u8> {
    let mut rng = Rng::new(1, 1, 0);
    let objects = 0..OBJECTS;
    let mut bytes: Vec<u8> = objects
        .flat_map(|at| netlink::frame(&[netlink::object(100 + at, 10 + at, gateway(at))]))
        .collect();
    for group in 0..GROUPS {
        let members: Vec<(u32, u8)> = (0..8).map(|at| (100 + group * 8 + at, 1)).collect();
        bytes.extend(netlink::frame(&[netlink::group(200 + group, &members)]));
    }
    for route in routes {
        let one_of = |rng: &mut Rng, many: u32| rng.below(u64::from(many)) as u32;
        let by_group = rng.below(8) == 0;
        let id =
            if by_group { 200 + one_of(&mut rng, GROUPS) } else { 100 + one_of(&mut rng, OBJECTS) };
        let to = IpAddr::V4(Ipv4Addr::from(route.address()));
        bytes.extend(netlink::frame(&[netlink::via_object(to, route.length() as u8, id)]));
    }
    bytes
}

type Table = RouteTable<TreeBitmap<u32>, TreeBitmap<u128>>;

fn table() -> Table {
    let fib_v4 = TreeBitmap::new(2_000_000).expect("room");
    let mut table =
        RouteTable::new(RouteLimits::default(), fib_v4, TreeBitmap::new(10_000).expect("room"));
    for port in 0..OBJECTS {
        table.set_port(10 + port, port as u16);
    }
    table
}

/// Reads the bytes as they come from a socket, 64 kilobytes at a time, and hands on each batch.
fn read(bytes: &[u8], mut each: impl FnMut(&[RouteUpdate])) {
    let (mut stream, mut updates) = (Stream::new(), Vec::new());
    for piece in bytes.chunks(1 << 16) {
        stream.space()[..piece.len()].copy_from_slice(piece);
        stream.filled(piece.len());
        stream.updates(&mut updates).expect("sound frames");
        each(&updates);
        updates.clear();
    }
    assert_eq!(stream.counters().malformed, 0);
}

fn timed(work: impl FnOnce()) -> f64 {
    let begun = cpu_s();
    work();
    cpu_s() - begun
}

fn print_times(name: &str, unit: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let (middle, last) = (values[values.len() / 2], values[values.len() - 1]);
    println!("{name}: {middle:.3} {unit} ({:.3} to {last:.3})", values[0]);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("the path of a file of prefixes, gzip");
    let rounds: usize = arguments.next().map_or(5, |text| text.parse().expect("a number"));
    let mut text = String::new();
    let packed = fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("text");
    let mut routes: Vec<Prefix<u32>> = text.lines().filter_map(|line| line.parse().ok()).collect();
    Rng::new(2, 1, 0).shuffle(&mut routes);
    let bytes = stream(&routes);
    println!("{} routes, {} bytes of FPM", routes.len(), bytes.len());

    let mut decoding = Vec::new();
    let mut whole = Vec::new();
    let mut again = Vec::new();
    let mut failing = Vec::new();
    for _ in 0..rounds {
        let mut count = 0;
        decoding.push(timed(|| read(&bytes, |updates| count += updates.len())));
        assert_eq!(count, routes.len() + (OBJECTS + GROUPS) as usize);
        let mut table = table();
        whole.push(timed(|| read(&bytes, |updates| table.apply(Source::Fpm, updates))));
        assert_eq!(table.fib_v4().len(), routes.len());
        let before = table.rib_v4().counters();
        again.push(timed(|| {
            table.apply(Source::Fpm, &[RouteUpdate::ReplayBegins]);
            read(&bytes, |updates| table.apply(Source::Fpm, updates));
            table.apply(Source::Fpm, &[RouteUpdate::ReplayEnds]);
        }));
        let after = table.rib_v4().counters();
        assert_eq!((after.swept, after.fib_updates), (0, before.fib_updates));
        failing.push(fail(&mut table, &bytes) * 1e6);
        println!(
            "routing table {:.1} bytes a route",
            table.rib_v4().bytes() as f64 / routes.len() as f64
        );
    }
    print_times("decoding", "s CPU", decoding);
    print_times("from bytes to forwarding", "s CPU", whole);
    print_times("the same again, nothing changed", "s CPU", again);
    print_times("a failed next hop of all prefixes, until readers may see it", "µs", failing);
}

/// All routes go by one group of 64 ways; then one of them fails, again and again. Seconds until readers
/// may see it, the middle of all times.
fn fail(table: &mut Table, bytes: &[u8]) -> f64 {
    let members: Vec<(u32, u8)> = (0..OBJECTS).map(|at| (100 + at, 1)).collect();
    let (mut all, mut updates) = (Stream::new(), Vec::new());
    let group = netlink::frame(&[netlink::group(300, &members)]);
    all.space()[..group.len()].copy_from_slice(&group);
    all.filled(group.len());
    all.updates(&mut updates).expect("a sound frame");
    table.apply(Source::Fpm, &updates);
    read(bytes, |updates| {
        let mut updates = updates.to_vec();
        for update in &mut updates {
            if let RouteUpdate::Announce { way, .. } = update {
                *way = nilometer_router::RouteTarget::Object(300);
            }
        }
        table.apply(Source::Fpm, &updates);
    });
    let next = table.fib_v4().lookup(u32::from(Ipv4Addr::new(8, 8, 8, 8))).expect("a route");
    let before = table.hops_mut().snapshot();
    let Some(Hop::Via { port, .. }) = before.resolve(next, 7).copied() else { panic!("a way") };
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let begun = Instant::now();
        assert!(table.hops_mut().fail(Point::Port(port)) > 0);
        let now = table.hops_mut().snapshot();
        took.push(begun.elapsed().as_secs_f64());
        let now = now.resolve(next, 7).copied();
        assert!(matches!(now, Some(Hop::Via { port: other, .. }) if other != port));
        table.hops_mut().restore(Point::Port(port));
        drop(table.hops_mut().snapshot());
    }
    took.sort_by(f64::total_cmp);
    took[TIMES / 2]
}
