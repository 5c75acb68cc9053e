//! The routing information base against a list of all announcements, and the forwarding table under it.

use std::collections::BTreeMap;

use nilometer_router::rib::RibCounters;
use nilometer_router::{
    Address, Fib, FibLinear, FibSink, Full, Hop, Member, NextHop, NextHops, Prefix, Rib, RibFault,
    Route, Source, TreeBitmap,
};
use nilometer_stat::Rng;

/// A route and whether the source has announced it since the start of the resync.
type AnnouncedRoute<A> = (Route<A>, bool);

/// All announced routes, in a list.
struct Naive<A> {
    announced: Vec<AnnouncedRoute<A>>,
}

impl<A: Address> Naive<A> {
    fn same(one: &Route<A>, prefix: Prefix<A>, source: Source, metric: u32) -> bool {
        let same_metric = source != Source::Kernel || one.metric == metric;
        one.prefix == prefix && one.source == source && same_metric
    }

    fn announce(&mut self, route: Route<A>) {
        self.withdraw(route.prefix, route.source, route.metric);
        self.announced.push((route, true));
    }

    fn withdraw(&mut self, prefix: Prefix<A>, source: Source, metric: u32) -> bool {
        let before = self.announced.len();
        self.announced.retain(|(route, _)| !Self::same(route, prefix, source, metric));
        self.announced.len() < before
    }

    fn begin(&mut self, source: Source) {
        for (_, again) in self.announced.iter_mut().filter(|(route, _)| route.source == source) {
            *again = false;
        }
    }

    fn end(&mut self, source: Source) -> usize {
        let before = self.announced.len();
        self.announced.retain(|(route, again)| route.source != source || *again);
        before - self.announced.len()
    }

    /// The candidates of a prefix, the best first.
    fn candidates(&self, prefix: Prefix<A>) -> Vec<Route<A>> {
        let announced = self.announced.iter().map(|(route, _)| *route);
        let mut found: Vec<Route<A>> = announced.filter(|route| route.prefix == prefix).collect();
        found.sort_by_key(|route| {
            (route.source.distance(route.protocol), route.metric, route.source)
        });
        found
    }

    fn best(&self) -> BTreeMap<Prefix<A>, NextHop> {
        let prefixes = self.announced.iter().map(|(route, _)| route.prefix);
        prefixes.map(|prefix| (prefix, self.candidates(prefix)[0].next)).collect()
    }
}

fn next_hops(count: u16) -> (NextHops, Vec<NextHop>) {
    let mut hops = NextHops::new(1_000, 10_000);
    let numbers = (0..count).map(|port| {
        let hop = Hop::Via { port, gateway: None };
        hops.intern(&[Member { hop, weight: 1 }]).expect("room")
    });
    let numbers = numbers.collect();
    (hops, numbers)
}

/// Prefixes that often meet.
fn any_prefix<A: Address>(rng: &mut Rng, address: impl Fn(u64) -> A) -> Prefix<A> {
    let length = [0, 1, 8, 12, 13, 16, 20, 24, 25, 32][rng.below(10) as usize];
    Prefix::new(address(rng.below(1 << 12)), length).expect("short enough")
}

fn hold<A: Address>(seed: u64, address: impl Fn(u64) -> A + Copy) {
    let mut rng = Rng::new(seed, 1, 0);
    let (mut hops, numbers) = next_hops(16);
    let mut rib = Rib::<A>::new(10_000, seed);
    let mut fib = TreeBitmap::<A>::new(100_000).expect("room");
    let mut naive = Naive { announced: Vec::new() };
    let mut replaying = [false; Source::ALL.len()];
    // Routes added, repeated, changed, withdrawn, unknown, swept.
    let mut happened = [0; 6];
    for _ in 0..3_000 {
        let prefix = any_prefix(&mut rng, address);
        let source = Source::ALL[rng.below(5) as usize];
        let metric = rng.below(3) as u32;
        match rng.below(40) {
            0 => {
                rib.start_resync(source);
                naive.begin(source);
                replaying[source as usize] = true;
            }
            1 => {
                let is_due = std::mem::take(&mut replaying[source as usize]);
                let swept = rib.finish_resync(source, &mut hops, &mut fib);
                assert_eq!(swept, if is_due { naive.end(source) } else { 0 }, "seed {seed}");
                happened[5] += swept as u64;
            }
            2..16 => {
                let was = rib.withdraw(prefix, source, metric, &mut hops, &mut fib);
                let is_there = naive.withdraw(prefix, source, metric);
                assert_eq!(was, Ok(is_there), "seed {seed}");
                happened[if is_there { 3 } else { 4 }] += 1;
            }
            _ => {
                let next = numbers[rng.below(16) as usize];
                let protocol = [2, 186, 188, 189][rng.below(4) as usize];
                let new = Route { prefix, source, protocol, metric, next };
                // Some are announced again unchanged.
                let known = rng.below(8 * (1 + naive.announced.len() as u64)) as usize;
                let route = naive.announced.get(known).map_or(new, |(route, _)| *route);
                let Route { prefix, source, metric, .. } = route;
                rib.announce(route, &mut hops, &mut fib).expect("room");
                let mut announced = naive.announced.iter().map(|(route, _)| *route);
                let old = announced.find(|old| Naive::same(old, prefix, source, metric));
                happened[old.map_or(0, |old| if old == route { 1 } else { 2 })] += 1;
                naive.announce(route);
            }
        }
        assert_eq!(rib.candidates(prefix), naive.candidates(prefix), "seed {seed}");
        assert_eq!(rib.len(), naive.announced.len());
    }
    for source in Source::ALL {
        let announced = naive.announced.iter().filter(|(route, _)| route.source == source).count();
        assert_eq!(rib.routes(source), announced, "{source}");
    }
    // Prefixes with one route stand in the table alone, which holds 7 of 8 places at most.
    let least = rib.prefixes() * size_of::<(Prefix<A>, NextHop)>();
    assert!((least..100 * least).contains(&rib.bytes()), "{} bytes", rib.bytes());
    let counters = rib.counters();
    let [added, repeated, changed, withdrawn, unknown, swept] = happened;
    assert!(happened.iter().all(|count| *count > 10), "{happened:?}");
    let expected = RibCounters { added, repeated, changed, withdrawn, unknown, swept, ..counters };
    assert_eq!(counters, expected, "seed {seed}");
    assert_eq!((counters.refused, counters.refused_by_limit), (0, 0));
    assert_eq!(counters.changes(), added + changed + withdrawn + swept);
    assert_eq!(counters.added - counters.withdrawn - counters.swept, rib.len() as u64);
    let best = naive.best();
    assert!(best.len() > 100 && rib.prefixes() == best.len() && fib.len() == best.len());
    let mut linear = FibLinear::new();
    for (prefix, next) in &best {
        Fib::insert(&mut linear, *prefix, *next).expect("room");
    }
    assert!(rib.best().all(|route| best[&route.prefix] == route.next));
    // Part by part it is the same, each prefix in one of them.
    let in_parts = (0..Rib::<A>::PARTS).flat_map(|part| rib.best_in(part));
    let in_parts: BTreeMap<_, _> = in_parts.map(|route| (route.prefix, route.next)).collect();
    assert!(in_parts == best);
    assert!(best.iter().all(|(at, next)| rib.best_of(*at).map(|it| it.next) == Some(*next)));
    for _ in 0..2_000 {
        let address = address(rng.next_u64());
        assert_eq!(fib.lookup(address), linear.lookup(address), "seed {seed}");
    }
    // Each route is one reference, beside ours.
    for next in numbers {
        let routes = naive.announced.iter().filter(|(route, _)| route.next == next).count();
        assert_eq!(hops.references(next) as usize, routes + 1, "seed {seed}");
    }
}

#[test]
fn the_rib_agrees_with_a_list() {
    for seed in 0..6 {
        hold::<u32>(seed, |bits| (bits as u32) << 20 | (bits >> 40) as u32 & 0x0003_01ff);
        hold::<u128>(seed, |bits| u128::from(bits) << 116 | u128::from(bits >> 32) << 96);
    }
}

/// A forwarding table that notes every call, and is full on demand.
#[derive(Default)]
struct Noted {
    calls: Vec<(Prefix<u32>, Option<NextHop>)>,
    is_full: bool,
}

impl FibSink<u32> for Noted {
    fn insert(&mut self, prefix: Prefix<u32>, next: NextHop) -> Result<(), Full> {
        self.calls.push((prefix, Some(next)));
        if self.is_full { Err(Full) } else { Ok(()) }
    }

    fn remove(&mut self, prefix: Prefix<u32>) -> Result<(), Full> {
        self.calls.push((prefix, None));
        if self.is_full { Err(Full) } else { Ok(()) }
    }
}

fn route(text: &str, source: Source, metric: u32, next: NextHop) -> Route<u32> {
    Route { prefix: text.parse().expect("a prefix"), source, protocol: 186, metric, next }
}

#[test]
fn repeated_routes_do_not_reach_the_forwarding_table() {
    let (mut hops, numbers) = next_hops(3);
    let (mut rib, mut fib) = (Rib::new(100, 1), Noted::default());
    for text in ["10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16"] {
        let route = route(text, Source::Fpm, 20, numbers[0]);
        rib.announce(route, &mut hops, &mut fib).expect("room");
    }
    fib.calls.clear();
    rib.start_resync(Source::Fpm);
    let same = route("10.0.0.0/8", Source::Fpm, 20, numbers[0]);
    let other = route("10.1.0.0/16", Source::Fpm, 20, numbers[1]);
    rib.announce(same, &mut hops, &mut fib).expect("room");
    rib.announce(other, &mut hops, &mut fib).expect("room");
    assert_eq!(fib.calls, [(other.prefix, Some(numbers[1]))], "nothing else was touched");
    assert_eq!(rib.finish_resync(Source::Fpm, &mut hops, &mut fib), 1);
    assert_eq!(fib.calls[1..], [("10.2.0.0/16".parse().expect("a prefix"), None)]);
    assert_eq!(rib.finish_resync(Source::Fpm, &mut hops, &mut fib), 0, "it has ended");
    let counters = rib.counters();
    assert_eq!((counters.repeated, counters.changed, counters.swept), (1, 1, 1));
}

#[test]
fn the_next_best_takes_the_place_in_one_step() {
    let (mut hops, numbers) = next_hops(3);
    let (mut rib, mut fib) = (Rib::new(100, 1), Noted::default());
    for (source, metric, number) in
        [(Source::Kernel, 20, 0), (Source::Kernel, 10, 1), (Source::Fpm, 20, 2)]
    {
        let route = route("10.0.0.0/8", source, metric, numbers[number]);
        rib.announce(route, &mut hops, &mut fib).expect("room");
    }
    let prefix = "10.0.0.0/8".parse().expect("a prefix");
    for (source, metric) in [(Source::Fpm, 0), (Source::Kernel, 10), (Source::Kernel, 20)] {
        assert_eq!(rib.withdraw(prefix, source, metric, &mut hops, &mut fib), Ok(true));
    }
    let announced: Vec<Option<NextHop>> = fib.calls.iter().map(|(_, next)| *next).collect();
    let [zero, one, two] = [0, 1, 2].map(|at| Some(numbers[at]));
    assert_eq!(announced, [zero, one, two, one, zero, None]);
    assert_eq!(rib.counters().fib_updates, 6);
    assert!(rib.is_empty() && rib.prefixes() == 0);
}

#[test]
fn a_change_without_room_changes_nothing() {
    let (mut hops, numbers) = next_hops(2);
    let (mut rib, mut fib) = (Rib::new(2, 1), Noted::default());
    let first = route("10.0.0.0/8", Source::Fpm, 20, numbers[0]);
    rib.announce(first, &mut hops, &mut fib).expect("room");
    fib.is_full = true;
    let changes = [
        route("10.0.0.0/8", Source::Fpm, 20, numbers[1]),
        route("10.0.0.0/8", Source::Static, 20, numbers[1]),
        route("11.0.0.0/8", Source::Fpm, 20, numbers[1]),
    ];
    for change in changes {
        assert_eq!(rib.announce(change, &mut hops, &mut fib), Err(RibFault::Fib));
    }
    let taken = rib.withdraw(first.prefix, Source::Fpm, 0, &mut hops, &mut fib);
    assert_eq!(taken, Err(RibFault::Fib));
    rib.start_resync(Source::Fpm);
    assert_eq!(rib.finish_resync(Source::Fpm, &mut hops, &mut fib), 0);
    assert_eq!(rib.candidates(first.prefix), [first]);
    assert_eq!((hops.references(numbers[0]), hops.references(numbers[1])), (2, 1));
    fib.is_full = false;
    let worse = route("10.0.0.0/8", Source::Kernel, 20, numbers[1]);
    rib.announce(worse, &mut hops, &mut fib).expect("room");
    assert_eq!(rib.announce(changes[2], &mut hops, &mut fib), Err(RibFault::Limit));
    assert_eq!(rib.announce(changes[1], &mut hops, &mut fib), Err(RibFault::Limit));
    assert_eq!((rib.counters().refused, rib.len()), (7, 2));
}

/// Whichever bits differ in prefixes, they are spread over the parts about as at random: 256 prefixes
/// leave 94 of 256 parts empty, and the fullest has some five.
#[test]
fn prefixes_are_spread_over_the_parts() {
    let (mut hops, numbers) = next_hops(1);
    let families: [fn(u32) -> (u32, u32); 5] = [
        |number| (0x0a00_0000 | number, 32),
        |number| (0x0a00_0000 | number << 8, 24),
        |number| (0x0a00_0000 | number << 16, 16),
        |number| (number << 24, 8),
        |number| (0x0a00_0000 | (number & 31) << 17, 16 + number / 32),
    ];
    for (family, prefix) in families.into_iter().enumerate() {
        let mut rib = Rib::new(1_000, 5);
        for (address, length) in (0..256).map(prefix) {
            let prefix = Prefix::new(address, length).expect("short enough");
            let route =
                Route { prefix, source: Source::Fpm, protocol: 186, metric: 0, next: numbers[0] };
            rib.announce(route, &mut hops, &mut Noted::default()).expect("room");
        }
        let parts = (0..Rib::<u32>::PARTS).map(|part| rib.best_in(part).count());
        let (used, most) = (parts.clone().filter(|count| *count > 0).count(), parts.max());
        assert_eq!(rib.prefixes(), 256, "family {family}");
        assert!(used > 130 && most < Some(12), "family {family}: {used} parts, {most:?}");
    }
}
