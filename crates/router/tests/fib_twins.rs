//! Tables against the list that is searched from one end to the other, operation by operation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nilometer_router::{Address, Fib, FibLinear, Full, NextHop, Prefix, TreeBitmap};
use nilometer_stat::Rng;

/// Addresses with the same few first bytes, so that prefixes contain each other.
trait Chosen: Address {
    fn any(rng: &mut Rng) -> Self;
}

impl Chosen for u32 {
    fn any(rng: &mut Rng) -> u32 {
        let near = rng.below(4) != 0;
        let address = rng.next_u64() as u32;
        if near { address & 0x0703_03ff } else { address }
    }
}

impl Chosen for u128 {
    fn any(rng: &mut Rng) -> u128 {
        let address = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        address & 0x2003_0003_0003_0003_8000_0000_0000_0003
    }
}

fn any_prefix<A: Chosen>(rng: &mut Rng) -> Prefix<A> {
    let length = rng.below(u64::from(A::BITS) + 1) as u32;
    Prefix::new(A::any(rng), length).expect("no longer than an address")
}

fn hold<A: Chosen, const STRIDE: u32, const INITIAL: u32>(seed: u64, operations: usize) {
    let mut rng = Rng::new(seed, 1, 0);
    let mut ours = TreeBitmap::<A, STRIDE, INITIAL>::new(200_000).expect("room");
    let mut twin = FibLinear::new();
    let mut known: Vec<Prefix<A>> = Vec::new();
    for step in 0..operations {
        let is_known = !known.is_empty() && rng.below(3) == 0;
        let prefix = if is_known {
            known[rng.below(known.len() as u64) as usize]
        } else {
            any_prefix(&mut rng)
        };
        // Growing, then shrinking until nothing is left.
        if rng.below(10) < if step < operations / 2 { 7 } else { 3 } {
            let next = NextHop(rng.below(65_536) as u16);
            assert_eq!(ours.insert(prefix, next), twin.insert(prefix, next), "seed {seed}");
            known.push(prefix);
        } else {
            assert_eq!(ours.remove(prefix), twin.remove(prefix), "seed {seed}");
        }
        assert_eq!(ours.len(), twin.len());
        for address in [A::any(&mut rng), prefix.address()] {
            assert_eq!(ours.lookup(address), twin.lookup(address), "seed {seed} {address:?}");
        }
    }
    assert!(ours.balances(), "seed {seed}");
    for prefix in known {
        assert_eq!(ours.remove(prefix), twin.remove(prefix));
    }
    assert!(ours.is_empty() && ours.balances(), "seed {seed}");
    assert_eq!(ours.bytes(), 12 << INITIAL, "an empty table is its roots");
}

#[test]
fn tree_bitmap_answers_as_the_list_does() {
    for seed in 0..12 {
        hold::<u32, 4, 13>(seed, 1_500);
        hold::<u32, 4, 0>(seed, 1_500);
        hold::<u32, 3, 8>(seed, 1_500);
        hold::<u32, 2, 16>(seed, 1_500);
        hold::<u32, 1, 0>(seed, 800);
        hold::<u128, 4, 13>(seed, 1_500);
        hold::<u128, 4, 0>(seed, 800);
    }
}

/// What does not fit is refused, and nothing has changed.
#[test]
fn a_full_table_is_as_it_was() {
    let mut rng = Rng::new(5, 1, 0);
    let mut ours = TreeBitmap::<u32, 4, 0>::new(300).expect("room");
    let mut twin = FibLinear::new();
    let mut refused = 0;
    for _ in 0..3_000 {
        let prefix = any_prefix(&mut rng);
        let next = NextHop(rng.below(100) as u16);
        let is_in = if rng.below(4) == 0 {
            ours.remove(prefix).is_ok_and(|was| twin.remove(prefix) == Ok(was))
        } else {
            ours.insert(prefix, next).is_ok_and(|was| twin.insert(prefix, next) == Ok(was))
        };
        refused += u64::from(!is_in);
        assert!(ours.balances());
        let address = u32::any(&mut rng);
        assert_eq!(ours.lookup(address), twin.lookup(address));
    }
    assert!(refused > 100, "{refused}");
    assert!(matches!(TreeBitmap::<u32>::new(100), Err(Full)));
}

/// While routes under them come and go, addresses keep to answers that some moment had.
#[test]
fn readers_see_before_or_after_and_nothing_between() {
    let mut table = TreeBitmap::<u32>::new(40_000).expect("room");
    let parse = |text: &str| text.parse::<Prefix<u32>>().expect("a prefix");
    table.insert(parse("10.0.0.0/8"), NextHop(1)).expect("room");
    table.insert(parse("10.1.0.0/16"), NextHop(2)).expect("room");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut handles = Vec::new();
        for seed in 0..2 {
            let reader = table.reader().expect("a place");
            let done = &done;
            handles.push(scope.spawn(move || {
                let mut rng = Rng::new(seed, 2, 0);
                let (mut changed, mut lookups) = (0u64, 0u64);
                let mut next_hops = [None; 64];
                while !done.load(Ordering::Relaxed) || lookups < 10_000 {
                    let addresses: [u32; 64] =
                        core::array::from_fn(|_| 0x0a01_0000 | rng.below(0x1_0000) as u32);
                    reader.lookup(&addresses, &mut next_hops);
                    for (address, found) in addresses.iter().zip(next_hops) {
                        // The writer's routes name the last byte but one that they have.
                        let third = (address >> 8 & 0xff) as u16;
                        let found = found.expect("a route").0;
                        assert!(found == 2 || found == 1_000 + third, "{address:x}: {found}");
                        changed += u64::from(found != 2);
                    }
                    lookups += 64;
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
                table.insert(prefix, NextHop(1_000 + third as u16))
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
