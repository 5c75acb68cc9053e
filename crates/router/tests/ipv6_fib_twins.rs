//! Tables of IPv6 against a map that is searched once per length, operation by operation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nilometer_router::{Engine, Fib, Full, Ipv6Fib, NextHop, Prefix, Routed, ServingFib};
use nilometer_stat::Rng;

/// The routes, and which of their lengths there are.
#[derive(Default)]
struct ByLength {
    routes: HashMap<Prefix<u128>, NextHop>,
    counts: Vec<usize>,
}

impl ByLength {
    fn new() -> ByLength {
        ByLength { routes: HashMap::new(), counts: vec![0; 129] }
    }

    fn insert(&mut self, prefix: Prefix<u128>, next: NextHop) -> Option<NextHop> {
        let was = self.routes.insert(prefix, next);
        self.counts[prefix.length() as usize] += usize::from(was.is_none());
        was
    }

    fn remove(&mut self, prefix: Prefix<u128>) -> Option<NextHop> {
        let was = self.routes.remove(&prefix);
        self.counts[prefix.length() as usize] -= usize::from(was.is_some());
        was
    }

    fn lookup(&self, address: u128) -> Option<NextHop> {
        let lengths = (0..=128u32).rev().filter(|length| self.counts[*length as usize] > 0);
        let at = |length| self.routes.get(&Prefix::new(address, length)?).copied();
        lengths.into_iter().find_map(at)
    }
}

/// Where routes crowd: the bits that all their addresses have, which of the others differ, and lengths.
#[derive(Clone, Copy)]
struct Cluster {
    base: u128,
    differ: u128,
    lengths: (u32, u32),
}

const CROWDS: [Cluster; 9] = [
    // The Internet: /29 to /48 below a few /20, dense in one of them.
    Cluster { base: 0x2a0e << 112, differ: 0x0000_0fff_ffff << 80, lengths: (20, 48) },
    Cluster { base: 0x2001_0670 << 96, differ: 0x000f_00ff << 80, lengths: (32, 48) },
    // /64s under one /48; /128s under one /64; both at once.
    Cluster { base: 0x2001_0db8_0001 << 80, differ: 0xffff << 64, lengths: (64, 64) },
    Cluster { base: 0x2001_0db8_0002_0003 << 64, differ: 0x0fff, lengths: (128, 128) },
    Cluster { base: 0x2001_0db8_0004 << 80, differ: 0x00ff << 64 | 0x0f0f, lengths: (49, 128) },
    // IPv4-mapped.
    Cluster { base: 0xffff << 32, differ: 0x0103_07ff, lengths: (96, 128) },
    // The highest addresses, whose bits equal those that fill up a line.
    Cluster { base: u128::MAX << 20, differ: 0x000f_ffff, lengths: (100, 128) },
    // Prefixes shorter than a parcel, and everything.
    Cluster { base: 0, differ: u128::MAX, lengths: (0, 26) },
    Cluster { base: 0, differ: 0x2003_0003_0003_0003_8000_0000_0000_0003, lengths: (0, 128) },
];

impl Cluster {
    fn address(&self, rng: &mut Rng) -> u128 {
        let any = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        self.base | any & self.differ
    }

    fn prefix(&self, rng: &mut Rng) -> Prefix<u128> {
        let (shortest, longest) = self.lengths;
        let length = shortest + rng.below(u64::from(longest - shortest + 1)) as u32;
        Prefix::new(self.address(rng), length).expect("no longer than an address")
    }
}

/// An address near those of a crowd: one of theirs, or with a bit that none has.
fn near(crowds: &[Cluster], rng: &mut Rng) -> u128 {
    let crowd = &crowds[rng.below(crowds.len() as u64) as usize];
    let address = crowd.address(rng);
    if rng.below(4) == 0 { address ^ 1 << rng.below(128) } else { address }
}

/// What a reader finds, one address at a time and all at once.
fn compare(ours: &dyn ServingFib<u128>, twin: &ByLength, addresses: &[u128], seed: u64) {
    let expected: Vec<_> = addresses.iter().map(|address| twin.lookup(*address)).collect();
    for (address, expected) in addresses.iter().zip(&expected) {
        assert_eq!(ours.lookup(*address), *expected, "seed {seed} {address:x}");
    }
    let mut found = vec![None; addresses.len()];
    ours.reader().expect("a place").look_up(addresses, &mut found);
    assert_eq!(found, expected, "seed {seed}");
}

/// Growing, then shrinking until nothing is left.
fn hold(
    ours: &mut dyn ServingFib<u128>,
    crowds: &[Cluster],
    next_hops: u64,
    seed: u64,
    operations: usize,
) {
    let mut rng = Rng::new(seed, 1, 0);
    let mut twin = ByLength::new();
    let mut known: Vec<Prefix<u128>> = Vec::new();
    let bytes = ours.bytes();
    for step in 0..operations {
        let is_known = !known.is_empty() && rng.below(3) == 0;
        let prefix = match is_known {
            true => known[rng.below(known.len() as u64) as usize],
            false => crowds[rng.below(crowds.len() as u64) as usize].prefix(&mut rng),
        };
        if rng.below(10) < if step < operations * 2 / 3 { 8 } else { 2 } {
            let next = NextHop(rng.below(next_hops) as u16);
            assert_eq!(ours.insert(prefix, next), Ok(twin.insert(prefix, next)), "seed {seed}");
            known.push(prefix);
        } else {
            assert_eq!(ours.remove(prefix), Ok(twin.remove(prefix)), "seed {seed}");
        }
        assert_eq!(ours.len(), twin.routes.len());
        let last = prefix.address() | u128::MAX.checked_shr(prefix.length()).unwrap_or(0);
        for address in [prefix.address(), last, last.wrapping_add(1), near(crowds, &mut rng)] {
            assert_eq!(ours.lookup(address), twin.lookup(address), "seed {seed} {address:x}");
        }
        if step % 500 == 0 {
            let addresses: Vec<u128> =
                (0..step / 500 * 7).map(|_| near(crowds, &mut rng)).collect();
            compare(ours, &twin, &addresses, seed);
            assert!(ours.balances());
        }
    }
    for prefix in known {
        assert_eq!(ours.remove(prefix), Ok(twin.remove(prefix)));
    }
    assert!(ours.is_empty() && ours.balances(), "seed {seed}");
    assert_eq!(ours.bytes(), bytes, "all parcels are joined again, seed {seed}");
}

#[test]
fn parcels_answer_as_the_map_does() {
    for seed in 0..3 {
        let mut ours = Ipv6Fib::<1>::new(1 << 20).expect("room");
        hold(&mut ours, &CROWDS, 254, seed, 24_000);
        let mut ours = Ipv6Fib::<2>::new(1 << 20).expect("room");
        hold(&mut ours, &CROWDS, 65_534, seed, 12_000);
    }
    // Each alone, with so few next hops that neighbours are often alike.
    for (seed, crowd) in CROWDS.iter().enumerate() {
        let mut ours = Ipv6Fib::<1>::new(1 << 20).expect("room");
        hold(&mut ours, &[*crowd], 3, seed as u64, 6_000);
    }
}

/// A covering route changes the answers of parcels that are full, and never their being divided.
#[test]
fn covers_that_change_make_nothing_overflow() {
    let mut ours = Ipv6Fib::<2>::new(1 << 20).expect("room");
    let mut twin = ByLength::new();
    let whole: Prefix<u128> = "2001:db8::/32".parse().expect("a prefix");
    // Every second network has the answer of the covering route, and then no longer.
    let networks = (0..4_096u128).map(|number| (0x2001_0db8 << 96 | number << 81, number % 2));
    for (address, kind) in networks.clone() {
        let prefix = Prefix::new(address, if kind == 0 { 47 } else { 48 }).expect("sound");
        assert_eq!(ours.insert(prefix, NextHop(7)), Ok(twin.insert(prefix, NextHop(7))));
    }
    for next in [7, 8, 7, 9] {
        let next = NextHop(next);
        assert_eq!(ours.insert(whole, next), Ok(twin.insert(whole, next)));
        let addresses: Vec<u128> = networks.clone().map(|(address, _)| address | 1 << 80).collect();
        compare(&ours, &twin, &addresses, 0);
    }
    assert_eq!(ours.remove(whole), Ok(twin.remove(whole)));
    assert!(ours.balances());
}

/// The room that an engine reserves for a number of prefixes is enough for any such prefixes.
#[test]
fn there_is_room_for_the_worst_prefixes() {
    let mut rng = Rng::new(3, 1, 0);
    for engine in [Engine::Lines, Engine::WideLines] {
        let mut ours = engine.table::<u128>(20_000).expect("room");
        // Crowds of /128s, each below all the parcels that can be divided for it, and few more than one
        // may hold.
        for number in 0..20_000u128 {
            let crowd = (number / 120) << 112 | (number / 120) << 40;
            let prefix = Prefix::new(crowd | (2 * (number % 120)), 128).expect("sound");
            assert_eq!(ours.insert(prefix, NextHop(rng.below(200) as u16)), Ok(None));
        }
        println!("{engine}: {} bytes each", ours.bytes() / ours.len());
        let mut ours = engine.table::<u128>(20_000).expect("room");
        for _ in 0..20_000 {
            let address = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
            let prefix = Prefix::new(address, 128).expect("sound");
            assert_eq!(ours.insert(prefix, NextHop(rng.below(200) as u16)), Ok(None));
        }
        println!("{engine}: {} bytes each", ours.bytes() / ours.len());
    }
}

/// A table loaded at once equals one whose routes are inserted one by one.
#[test]
fn loading_is_inserting() {
    let mut rng = Rng::new(8, 1, 0);
    let any = |rng: &mut Rng| CROWDS[rng.below(9) as usize].prefix(rng);
    let routes: Vec<_> =
        (0..8_000).map(|_| (any(&mut rng), NextHop(rng.below(200) as u16))).collect();
    let mut twin = ByLength::new();
    for &(prefix, next) in &routes {
        twin.insert(prefix, next);
    }
    let addresses: Vec<u128> = (0..5_000).map(|_| near(&CROWDS, &mut rng)).collect();
    for &engine in u128::ENGINES {
        let mut ours = engine.table::<u128>(routes.len()).expect("room");
        ours.load(&mut routes.iter().copied()).expect("room");
        assert_eq!(ours.len(), twin.routes.len());
        compare(&*ours, &twin, &addresses, 8);
        assert!(ours.balances(), "{engine}");
    }
}

/// A route that a parcel has already may change its next hop, as full as the parcel is.
#[test]
fn a_route_replaced_divides_nothing() {
    let mut ours = Ipv6Fib::<1>::new(1 << 17).expect("room");
    let route = |number: u128| Prefix::new(0x2001 << 112 | number << 97, 32).expect("sound");
    for number in 0..186 {
        assert_eq!(ours.insert(route(number), NextHop(1)), Ok(None));
    }
    let bytes = ours.bytes();
    assert_eq!(ours.insert(route(7), NextHop(2)), Ok(Some(NextHop(1))));
    assert_eq!(ours.bytes(), bytes);
    assert_eq!(ours.insert(route(186), NextHop(1)), Ok(None));
    assert!(ours.bytes() > bytes + 512, "one more divides it");
}

/// What does not fit is refused, and no answer has changed.
#[test]
fn a_full_table_is_as_it_was() {
    let (mut refused, mut divided) = (0, 0);
    for (seed, crowd) in CROWDS.iter().enumerate() {
        let mut rng = Rng::new(seed as u64, 1, 0);
        let mut ours = Ipv6Fib::<1>::new((1 << 16) + 1_200).expect("room");
        let mut twin = ByLength::new();
        for _ in 0..3_000 {
            let prefix = crowd.prefix(&mut rng);
            let next = NextHop(rng.below(10) as u16);
            let made = match rng.below(4) {
                0 => ours.remove(prefix).map(|was| assert_eq!(was, twin.remove(prefix))),
                _ => {
                    ours.insert(prefix, next).map(|was| assert_eq!(was, twin.insert(prefix, next)))
                }
            };
            refused += u64::from(made.is_err());
            divided += u64::from(ours.bytes() > (1 << 18) + 1_024);
            assert!(ours.balances() && ours.len() == twin.routes.len());
            for address in [prefix.address(), near(&CROWDS[seed..=seed], &mut rng)] {
                assert_eq!(ours.lookup(address), twin.lookup(address), "{seed} {address:x}");
            }
        }
    }
    assert!(refused > 3_000 && divided > 3_000, "{refused} {divided}");
    assert!(matches!(Ipv6Fib::<1>::new(100), Err(Full)));
    // More words than one can refer to.
    assert!(matches!(Ipv6Fib::<1>::new((1 << 27) + 1), Err(Full)));
    // A next hop that the answers cannot name.
    let mut ours = Ipv6Fib::<1>::new(1 << 17).expect("room");
    let prefix = "fd00::/8".parse().expect("a prefix");
    assert_eq!(ours.insert(prefix, NextHop(254)), Err(Full));
}

/// While routes under them come and go, and parcels are divided and joined, addresses keep to answers
/// that some moment had.
#[test]
fn readers_see_before_or_after_and_nothing_between() {
    let mut table = Ipv6Fib::<1>::new((1 << 16) + 60_000).expect("room");
    let parse = |text: &str| text.parse::<Prefix<u128>>().expect("a prefix");
    table.insert(parse("2001:d00::/24"), NextHop(251)).expect("room");
    table.insert(parse("2001:db8::/32"), NextHop(252)).expect("room");
    let network = |number: u64| 0x2001_0db8 << 96 | u128::from(number) << 80;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut handles = Vec::new();
        for seed in 0..2 {
            let mut reader = table.reader().expect("a place");
            let done = &done;
            handles.push(scope.spawn(move || {
                let mut rng = Rng::new(seed, 2, 0);
                let (mut changed, mut lookups) = (0u64, 0u64);
                let mut next_hops = [None; 64];
                while !done.load(Ordering::Relaxed) || lookups < 10_000 {
                    let addresses: [u128; 64] = core::array::from_fn(|_| network(rng.below(4_096)));
                    reader.look_up(&addresses, &mut next_hops);
                    for (address, found) in addresses.iter().zip(next_hops) {
                        // The writer's routes name some bits of theirs.
                        let own = (address >> 84 & 0x7f) as u16;
                        let found = found.expect("a route").0;
                        assert!(found == 252 || found == own, "{address:x}: {found}");
                        changed += u64::from(found != 252);
                    }
                    lookups += 64;
                }
                changed
            }));
        }
        let mut rng = Rng::new(9, 3, 0);
        let mut span = (0, 0);
        for step in 0..200_000 {
            let number = rng.below(4_096);
            let length = 44 + rng.below(21) as u32;
            let prefix = Prefix::new(network(number), length).expect("at most 64");
            // By turns there are many routes and few.
            let change = if rng.below(10) < if step / 20_000 % 2 == 0 { 9 } else { 1 } {
                table.insert(prefix, NextHop((number >> 4 & 0x7f) as u16))
            } else {
                table.remove(prefix)
            };
            // Without room the writer comes back when the readers have passed.
            if change.is_err() {
                thread::yield_now();
            }
            span = (span.0.max(table.len()), span.1.max(table.bytes()));
        }
        done.store(true, Ordering::Relaxed);
        let changed: u64 = handles.into_iter().map(|handle| handle.join().expect("sound")).sum();
        assert!(changed > 1_000 && span.0 > 1_000, "{changed} {span:?}");
    });
    assert!(table.balances());
}
