//! Tables of slots against the list that is searched from one end to the other, operation by operation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nilometer_router::{
    Address, Engine, Fib, FibLinear, Full, Lines, NextHop, Prefix, ServingFib, SlotFib,
};
use nilometer_stat::Rng;

/// Addresses with the same few first bytes, so that prefixes contain each other.
trait Chosen: Address {
    fn any(rng: &mut Rng) -> Self;
}

impl Chosen for u32 {
    fn any(rng: &mut Rng) -> u32 {
        let address = rng.next_u64() as u32;
        match rng.below(8) {
            0 => address,
            1..=3 => address & 0x0300_43ff,
            _ => address & 0x0000_03ff,
        }
    }
}

impl Chosen for u128 {
    fn any(rng: &mut Rng) -> u128 {
        let address = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        match rng.below(8) {
            0 => address,
            1..=3 => address & 0x2003_0003_0003_0003_8000_0000_0000_0003,
            _ => 0x2000 << 112 | address & 0x0000_0003_8103_0000_0000_0000_0000_0003,
        }
    }
}

/// A prefix, mostly of a length that a slot holds.
fn any_prefix<A: Chosen>(rng: &mut Rng) -> Prefix<A> {
    let length = match rng.below(8) {
        0 => rng.below(u64::from(A::BITS) + 1) as u32,
        1..=4 => 16 + rng.below(9) as u32,
        _ => 17 + rng.below(u64::from(A::BITS) - 16) as u32,
    };
    Prefix::new(A::any(rng), length).expect("no longer than an address")
}

/// What a reader finds, one address at a time and all at once.
fn compare<A: Chosen>(ours: &dyn ServingFib<A>, twin: &FibLinear<A>, addresses: &[A], seed: u64) {
    let expected: Vec<_> = addresses.iter().map(|address| twin.lookup(*address)).collect();
    for (address, expected) in addresses.iter().zip(&expected) {
        assert_eq!(ours.lookup(*address), *expected, "seed {seed} {address:?}");
    }
    let mut found = vec![None; addresses.len()];
    ours.reader().expect("a place").look_up(addresses, &mut found);
    assert_eq!(found, expected, "seed {seed}");
}

fn hold<A: Chosen>(ours: &mut dyn ServingFib<A>, next_hops: u64, seed: u64, operations: usize) {
    let mut rng = Rng::new(seed, 1, 0);
    let mut twin = FibLinear::new();
    let mut known: Vec<Prefix<A>> = Vec::new();
    let bytes = ours.bytes();
    for step in 0..operations {
        let is_known = !known.is_empty() && rng.below(3) == 0;
        let prefix = if is_known {
            known[rng.below(known.len() as u64) as usize]
        } else {
            any_prefix(&mut rng)
        };
        // Growing, then shrinking.
        if rng.below(10) < if step < operations / 2 { 7 } else { 3 } {
            let next = NextHop(rng.below(next_hops) as u16);
            assert_eq!(ours.insert(prefix, next), twin.insert(prefix, next), "seed {seed}");
            known.push(prefix);
        } else {
            assert_eq!(ours.remove(prefix), twin.remove(prefix), "seed {seed}");
        }
        assert_eq!(ours.len(), twin.len());
        let near = [A::any(&mut rng), A::any(&mut rng), prefix.address()];
        near.iter().for_each(|address| {
            assert_eq!(ours.lookup(*address), twin.lookup(*address), "seed {seed} {address:?}");
        });
        if step % 100 == 0 {
            let addresses: Vec<A> = (0..step / 100 * 3).map(|_| A::any(&mut rng)).collect();
            compare(ours, &twin, &addresses, seed);
        }
    }
    for prefix in known {
        assert_eq!(ours.remove(prefix), twin.remove(prefix));
    }
    assert!(ours.is_empty() && twin.is_empty(), "seed {seed}");
    // Only the blocks that slots with one answer share are left.
    assert!(ours.bytes() <= bytes + next_hops as usize * 64, "seed {seed}");
}

#[test]
fn lines_answer_as_the_list_does() {
    for seed in 0..6 {
        let mut ours = SlotFib::<u32, Lines<1>>::new(1 << 20).expect("room");
        hold(&mut ours, 254, seed, 3_000);
        assert!(ours.balances());
        let mut ours = SlotFib::<u32, Lines<2>>::new(1 << 20).expect("room");
        hold(&mut ours, 65_534, seed, 1_500);
        assert!(ours.balances());
    }
}

/// The tables that ours are compared with have to be right as well.
#[test]
fn direct_poptrie_and_ranges_answer_as_the_list_does() {
    for seed in 0..3 {
        for engine in [Engine::Direct, Engine::Poptrie, Engine::Dxr] {
            let mut table = engine.table::<u32>(3_000).expect("room");
            hold(&mut *table, engine.next_hops_max() as u64, seed, 1_000);
            assert!(table.balances(), "{engine}");
        }
    }
}

/// A table loaded at once equals one whose routes are inserted one by one.
#[test]
fn loading_is_inserting() {
    let mut rng = Rng::new(8, 1, 0);
    let routes: Vec<_> =
        (0..3_000).map(|_| (any_prefix::<u32>(&mut rng), NextHop(rng.below(200) as u16))).collect();
    let mut twin = FibLinear::new();
    for &(prefix, next) in &routes {
        twin.insert(prefix, next).expect("there is always room");
    }
    let addresses: Vec<u32> = (0..2_000).map(|_| u32::any(&mut rng)).collect();
    for engine in Engine::ALL {
        let mut ours = engine.table::<u32>(routes.len()).expect("room");
        ours.load(&mut routes.iter().copied()).expect("room");
        assert_eq!(ours.len(), twin.len());
        compare(&*ours, &twin, &addresses, 8);
        assert!(ours.balances(), "{engine}");
    }
}

/// The memory that a change frees is reused by later ones.
#[test]
fn routes_come_and_go_without_end() {
    let prefix = |text: &str| text.parse::<Prefix<u32>>().expect("a prefix");
    let some = ["10.0.0.0/8", "10.1.1.0/25", "10.1.1.7/32", "10.1.2.128/26", "10.200.0.0/13"];
    let some = some.map(prefix);
    for engine in Engine::ALL {
        let mut table = engine.table::<u32>(some.len()).expect("room");
        let mut twin = FibLinear::new();
        for step in 0..3_000 {
            let (prefix, next) = (some[step * 7 % some.len()], NextHop((step % 200) as u16));
            let is_there = step % 3 == 2;
            let done = if is_there { table.remove(prefix) } else { table.insert(prefix, next) };
            let same = if is_there { twin.remove(prefix) } else { twin.insert(prefix, next) };
            assert_eq!(done, same, "{engine}, step {step}");
            assert_eq!((table.len(), table.is_empty()), (twin.len(), twin.len() == 0));
        }
        let addresses = some.map(|prefix| prefix.address());
        compare(&*table, &twin, &addresses, 0);
        assert!(table.balances(), "{engine}");
    }
}

/// What does not fit is refused, and nothing has changed.
#[test]
fn a_full_table_is_as_it_was() {
    let mut rng = Rng::new(5, 1, 0);
    let mut ours = SlotFib::<u32, Lines>::new((1 << 18) + 500).expect("room");
    let mut twin = FibLinear::new();
    let mut refused = 0;
    for _ in 0..3_000 {
        let prefix = any_prefix(&mut rng);
        let next = NextHop(rng.below(10) as u16);
        let is_in = if rng.below(4) == 0 {
            ours.remove(prefix).is_ok_and(|was| twin.remove(prefix) == Ok(was))
        } else {
            ours.insert(prefix, next).is_ok_and(|was| twin.insert(prefix, next) == Ok(was))
        };
        refused += u64::from(!is_in);
        assert!(ours.balances() && ours.len() == twin.len());
        let address = u32::any(&mut rng);
        assert_eq!(ours.lookup(address), twin.lookup(address));
    }
    assert!(refused > 100, "{refused}");
    assert!(matches!(SlotFib::<u32, Lines>::new(100), Err(Full)));
    // A next hop that the answers cannot name.
    let prefix = "10.0.0.0/8".parse().expect("a prefix");
    assert_eq!(ours.insert(prefix, NextHop(254)), Err(Full));
}

/// While routes under them come and go, addresses keep to answers that some moment had.
#[test]
fn readers_see_before_or_after_and_nothing_between() {
    let mut table = SlotFib::<u32, Lines>::new((1 << 18) + 4_000).expect("room");
    let parse = |text: &str| text.parse::<Prefix<u32>>().expect("a prefix");
    table.insert(parse("10.0.0.0/8"), NextHop(251)).expect("room");
    table.insert(parse("10.1.0.0/16"), NextHop(252)).expect("room");
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
                    let addresses: [u32; 64] =
                        core::array::from_fn(|_| 0x0a01_0000 | rng.below(0x1_0000) as u32);
                    reader.look_up(&addresses, &mut next_hops);
                    for (address, found) in addresses.iter().zip(next_hops) {
                        // The writer's routes name the low bits of the last byte but one.
                        let third = (address >> 8 & 0x7f) as u16;
                        let found = found.expect("a route").0;
                        assert!(found == 252 || found == third, "{address:x}: {found}");
                        changed += u64::from(found != 252);
                    }
                    lookups += 64;
                    // The writer, which waits for us, need not wait for the end of our time slice.
                    thread::yield_now();
                }
                changed
            }));
        }
        let mut rng = Rng::new(9, 3, 0);
        for _ in 0..60_000 {
            let third = rng.below(256) as u32;
            let length = 24 + rng.below(9) as u32;
            let address = 0x0a01_0000 | third << 8 | rng.below(256) as u32;
            let prefix = Prefix::new(address, length).expect("at most 32");
            let change = if rng.below(2) == 0 {
                table.insert(prefix, NextHop((third & 0x7f) as u16))
            } else {
                table.remove(prefix)
            };
            // Without room the writer comes back when the readers have passed.
            if change.is_err() {
                thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
        let changed: u64 = handles.into_iter().map(|handle| handle.join().expect("sound")).sum();
        assert!(changed > 1_000, "{changed}");
    });
    assert!(table.balances());
}
