//! Tables of lines with hardly any room: existing routes can always be changed and withdrawn.
//!
//! Each run fills a small table until it refuses, keeps it full while routes come, go and change, and
//! empties it, twice; a list of all routes says what must be found. Next hops are few, so that neighbours
//! are often alike and a block may grow when a route goes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nilometer_router::{Address, Fib, FibLinear, Ipv6Fib, Lines, NextHop, Prefix};
use nilometer_router::{ServingFib, SlotFib};
use nilometer_stat::Rng;

/// Words behind the roots.
const ROOM: u32 = 3_000;

/// Addresses where a table is crowded.
trait Crowded: Address {
    fn any(rng: &mut Rng) -> Self;
    /// The shortest length that is usual.
    const USUAL: u32;
}

impl Crowded for u32 {
    const USUAL: u32 = 17;

    fn any(rng: &mut Rng) -> u32 {
        let address = rng.next_u64() as u32;
        // Some slots with many networks, and many with few.
        if rng.below(3) == 0 { address & 0x00ff_e0c0 } else { address & 0x0000_ffc3 }
    }
}

impl Crowded for u128 {
    const USUAL: u32 = 17;

    fn any(rng: &mut Rng) -> u128 {
        let low = rng.next_u64();
        let mask: u64 = match rng.below(8) {
            0 => 0x0003_f0f0_0000_0000,
            1..=3 => 0x0001_0001_00f0_c003,
            _ => 0x0000_0fff_0000_0000,
        };
        let high = 0x2a00_0000_0000_0000 | low & mask;
        u128::from(high) << 64 | u128::from(rng.below(4))
    }
}

fn any_prefix<A: Crowded>(rng: &mut Rng) -> Prefix<A> {
    let length = match rng.below(64) {
        0 => rng.below(u64::from(A::USUAL)) as u32,
        1..=12 => A::USUAL + rng.below(u64::from(A::BITS - A::USUAL) + 1) as u32,
        13..=16 => A::BITS,
        _ => A::USUAL + rng.below(10 + u64::from(A::BITS) / 16) as u32,
    };
    Prefix::new(A::any(rng), length).expect("no longer than an address")
}

/// A table, the list of its routes, and the refusals.
struct Trial<A> {
    ours: Box<dyn ServingFib<A>>,
    twin: FibLinear<A>,
    known: Vec<Prefix<A>>,
    rng: Rng,
    next_hops: u64,
    seed: u64,
    /// Inserted, refused; changed, refused; removed, refused.
    made: [[u32; 2]; 3],
}

impl<A: Crowded> Trial<A> {
    fn next_hop(&mut self) -> NextHop {
        NextHop(self.rng.below(self.next_hops) as u16)
    }

    fn insert(&mut self, prefix: Prefix<A>) -> bool {
        let next = self.next_hop();
        let at = usize::from(self.known.contains(&prefix));
        let bytes = self.ours.bytes();
        let is_made = self.ours.insert(prefix, next).is_ok();
        self.made[at][usize::from(!is_made)] += 1;
        if is_made {
            self.twin.insert(prefix, next).expect("there is always room");
            if at == 0 {
                self.known.push(prefix);
            }
        } else {
            assert_eq!(self.ours.bytes(), bytes, "refused, it left something, seed {}", self.seed);
        }
        self.compare(prefix);
        is_made
    }

    fn remove(&mut self, at: usize) {
        let prefix = self.known[at];
        let is_made = self.ours.remove(prefix).is_ok();
        self.made[2][usize::from(!is_made)] += 1;
        if is_made {
            self.twin.remove(prefix).expect("there is always room");
            self.known.swap_remove(at);
        }
        self.compare(prefix);
    }

    fn any_known(&mut self) -> usize {
        self.rng.below(self.known.len() as u64) as usize
    }

    /// The table and the list agree, in and around `prefix` and anywhere.
    fn compare(&mut self, prefix: Prefix<A>) {
        let seed = self.seed;
        assert!(self.ours.len() == self.twin.len() && self.ours.balances(), "seed {seed}");
        let known = self.any_near();
        let mut addresses = [prefix.address(), A::any(&mut self.rng), known];
        let expected = addresses.map(|address| self.twin.lookup(address));
        assert_eq!(addresses.map(|address| self.ours.lookup(address)), expected, "seed {seed}");
        addresses.reverse();
        let mut found = [None; 3];
        self.ours.reader().expect("a place").look_up(&addresses, &mut found);
        found.reverse();
        assert_eq!(found, expected, "seed {seed} {prefix:?}");
    }

    fn any_near(&mut self) -> A {
        match self.known.len() {
            0 => A::any(&mut self.rng),
            _ => {
                let at = self.any_known();
                self.known[at].address()
            }
        }
    }

    /// Inserts until many were refused.
    fn fill(&mut self) {
        let mut refused = 0;
        while refused < 60 {
            let prefix = any_prefix(&mut self.rng);
            refused += u32::from(!self.insert(prefix));
        }
    }

    /// Keeps the table full, and changes its routes.
    fn churn(&mut self, operations: usize) {
        for _ in 0..operations {
            match self.rng.below(4) {
                0 | 1 => {
                    let prefix = any_prefix(&mut self.rng);
                    self.insert(prefix);
                }
                2 => {
                    let at = self.any_known();
                    self.insert(self.known[at]);
                }
                _ => {
                    let at = self.any_known();
                    self.remove(at);
                }
            }
        }
    }

    /// Withdraws every route; those that are refused are tried again, but not for ever.
    fn empty(&mut self) {
        let mut patience = 2 * self.known.len();
        while !self.known.is_empty() && patience > 0 {
            patience -= 1;
            let at = self.any_known();
            self.remove(at);
        }
        assert!(self.ours.is_empty(), "{} routes go on, seed {}", self.known.len(), self.seed);
    }
}

/// `shared` bytes may be left, of blocks that all slots with one answer share.
fn hold<A: Crowded>(make: impl Fn() -> Box<dyn ServingFib<A>>, next_hops: u64, shared: usize) {
    let mut made = [[0; 2]; 3];
    for seed in 0..6 {
        let (ours, rng) = (make(), Rng::new(seed, 1, 0));
        let (twin, known) = (FibLinear::new(), Vec::new());
        let mut trial = Trial { ours, twin, known, rng, next_hops, seed, made };
        let bytes = trial.ours.bytes();
        for _ in 0..2 {
            trial.fill();
            let full = trial.known.len();
            assert!(full > 100, "{full} routes, seed {seed}");
            trial.churn(600);
            // A refusal is not for ever: less makes room.
            let refused = loop {
                let prefix = any_prefix(&mut trial.rng);
                if !trial.known.contains(&prefix) && !trial.insert(prefix) {
                    break prefix;
                }
            };
            for _ in 0..2 * full {
                if trial.insert(refused) {
                    break;
                }
                let at = trial.any_known();
                trial.remove(at);
            }
            assert!(trial.known.len() > full / 8, "{full} routes, seed {seed}");
            trial.empty();
            assert!(trial.ours.bytes() <= bytes + shared, "words are lost, seed {seed}");
        }
        made = trial.made;
    }
    println!("made and refused: insertions, changes, withdrawals: {made:?}");
    assert!(made[0][1] > 1_000, "it was hardly ever full: {made:?}");
    assert_eq!([made[1][1], made[2][1]], [0, 0], "changes and withdrawals refused: {made:?}");
}

#[test]
fn routes_in_a_full_slot_table_can_change_and_be_withdrawn() {
    for next_hops in [2, 200] {
        let shared = (next_hops as usize + 1) * 16;
        let slots = || SlotFib::<u32, Lines<1>>::new((1 << 18) + ROOM).expect("room");
        hold(|| Box::new(slots()), next_hops, shared);
        let slots = || SlotFib::<u32, Lines<2>>::new((1 << 18) + ROOM).expect("room");
        hold(|| Box::new(slots()), next_hops, shared);
    }
}

#[test]
fn routes_in_a_full_parcel_table_can_change_and_be_withdrawn() {
    for next_hops in [2, 200] {
        let parcels = || Ipv6Fib::<1>::new((1 << 16) + ROOM).expect("room");
        hold(|| Box::new(parcels()), next_hops, 0);
        let parcels = || Ipv6Fib::<2>::new((1 << 16) + ROOM).expect("room");
        hold(|| Box::new(parcels()), next_hops, 0);
    }
}

/// While a full table is changed, addresses keep to answers that some moment had.
fn hold_with_readers(mut table: Box<dyn ServingFib<u32>>, seed: u64) {
    let cover: Prefix<u32> = "10.0.0.0/15".parse().expect("a prefix");
    table.insert(cover, NextHop(200)).expect("room");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..2 {
            let mut reader = table.reader().expect("a place");
            let done = &done;
            scope.spawn(move || {
                let mut rng = Rng::new(seed, 2, number);
                let mut next_hops = [None; 64];
                while !done.load(Ordering::Relaxed) {
                    let addresses: [u32; 64] =
                        core::array::from_fn(|_| 0x0a00_0000 | rng.below(0x2_0000) as u32);
                    reader.look_up(&addresses, &mut next_hops);
                    for (address, found) in addresses.iter().zip(next_hops) {
                        // The routes name the low bits of the last byte but one, and what covers them.
                        let own = (address >> 8 & 0x7f) as u16;
                        let found = found.expect("a route").0;
                        let is_sound = found == 200 || found == 201 || found == own;
                        assert!(is_sound, "seed {seed} {address:x}: {found}");
                    }
                    // A thread that waits for this one need not wait for the end of its time slice.
                    thread::yield_now();
                }
            });
        }
        let mut rng = Rng::new(seed, 3, 0);
        let (mut known, mut refused) = (Vec::new(), 0);
        for step in 0..20_000 {
            let at = rng.below(known.len() as u64 + 1) as usize;
            match rng.below(8) {
                0 if step % 50 == 0 => {
                    let made = table.insert(cover, NextHop(200 + rng.below(2) as u16));
                    assert!(made.is_ok(), "seed {seed}, step {step}");
                }
                0..=2 if at < known.len() => {
                    let made = table.remove(known.swap_remove(at));
                    assert!(made.is_ok_and(|was| was.is_some()), "seed {seed}, step {step}");
                }
                _ => {
                    let address = 0x0a00_0000 | rng.below(0x2_0000) as u32;
                    let length = 24 + rng.below(9) as u32;
                    let prefix = Prefix::new(address, length).expect("at most 32");
                    let made = table.insert(prefix, NextHop((address >> 8 & 0x7f) as u16));
                    let is_new = !known.contains(&prefix);
                    assert!(is_new || made.is_ok(), "seed {seed}, step {step}");
                    refused += u64::from(made.is_err());
                    known.extend((is_new && made.is_ok()).then_some(prefix));
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(refused > 1_000, "{refused}, seed {seed}");
    });
    assert!(table.balances());
}

#[test]
fn readers_of_a_full_table_see_before_or_after() {
    for seed in 0..2 {
        let slots = SlotFib::<u32, Lines<1>>::new((1 << 18) + 1_500).expect("room");
        hold_with_readers(Box::new(slots), seed);
        let slots = SlotFib::<u32, Lines<2>>::new((1 << 18) + 1_500).expect("room");
        hold_with_readers(Box::new(slots), seed);
    }
}
