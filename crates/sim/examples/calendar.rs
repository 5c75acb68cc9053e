//! Measures event calendars in the hold model: take the next event, set its place to a later moment.
//!
//!     cargo run --release -p nilometer-sim --example calendar
//!
//! The increments are those of a dumbbell (30 % 24 µs, 35 % 1.2 ms, 30 % 50 ms, 5 % 200 to 300 ms),
//! the places from a hundred to a million. Nanoseconds per hold, the least of five rounds.

use std::collections::{BTreeMap, BinaryHeap};
use std::hint::black_box;

use nilometer_sim::Tournament;
use nilometer_stat::Rng;
use nilometer_wire::Time;

const HOLDS: usize = 1_000_000;
const ROUNDS: usize = 5;
use std::time::Instant;

/// What is compared: an event is a moment and a place.
trait Hold {
    fn fill(&mut self, events: &[(u64, u32)]);
    fn hold(&mut self, increment: u64) -> u64;
}

struct Matches(Tournament);

impl Hold for Matches {
    fn fill(&mut self, events: &[(u64, u32)]) {
        self.0 = Tournament::new(events.len());
        for &(moment, place) in events {
            self.0.set(place as usize, Time(moment));
        }
    }

    fn hold(&mut self, increment: u64) -> u64 {
        let (moment, place) = self.0.next().expect("an event");
        self.0.set(place, Time(moment.0 + increment));
        moment.0
    }
}

/// The standard library's binary heap, least first.
#[derive(Default)]
struct Heap(BinaryHeap<std::cmp::Reverse<(u64, u32)>>);

impl Hold for Heap {
    fn fill(&mut self, events: &[(u64, u32)]) {
        self.0 = events.iter().map(|&event| std::cmp::Reverse(event)).collect();
    }

    fn hold(&mut self, increment: u64) -> u64 {
        let std::cmp::Reverse((moment, place)) = self.0.pop().expect("an event");
        self.0.push(std::cmp::Reverse((moment + increment, place)));
        moment
    }
}

#[derive(Default)]
struct Tree(BTreeMap<(u64, u32), ()>);

impl Hold for Tree {
    fn fill(&mut self, events: &[(u64, u32)]) {
        self.0 = events.iter().map(|&event| (event, ())).collect();
    }

    fn hold(&mut self, increment: u64) -> u64 {
        let ((moment, place), ()) = self.0.pop_first().expect("an event");
        self.0.insert((moment + increment, place), ());
        moment
    }
}

/// A heap with four children to a parent.
#[derive(Default)]
struct Quad(Vec<(u64, u32)>);

impl Quad {
    fn sink(&mut self, from: usize) {
        let (mut hole, event) = (from, self.0[from]);
        loop {
            let first = 4 * hole + 1;
            let last = (first + 4).min(self.0.len());
            let Some(child) = (first..last).min_by_key(|&child| self.0[child]) else { break };
            if self.0[child] >= event {
                break;
            }
            self.0[hole] = self.0[child];
            hole = child;
        }
        self.0[hole] = event;
    }
}

impl Hold for Quad {
    fn fill(&mut self, events: &[(u64, u32)]) {
        self.0 = events.to_vec();
        for index in (0..self.0.len()).rev() {
            self.sink(index);
        }
    }

    fn hold(&mut self, increment: u64) -> u64 {
        let (moment, place) = self.0[0];
        self.0[0] = (moment + increment, place);
        self.sink(0);
        moment
    }
}

/// A monotone wheel (radix heap): by the highest six-bit digit in which a moment differs from now.
struct Wheel {
    now: u64,
    buckets: Vec<Vec<(u64, u32)>>,
    occupied: [u64; 11],
}

impl Wheel {
    fn put(&mut self, event: (u64, u32)) {
        let differs = event.0 ^ self.now;
        let level = if differs == 0 { 0 } else { (63 - differs.leading_zeros() as usize) / 6 };
        let digit = (event.0 >> (6 * level)) as usize & 63;
        self.occupied[level] |= 1 << digit;
        self.buckets[level * 64 + digit].push(event);
    }

    fn take(&mut self) -> (u64, u32) {
        loop {
            let level = self.occupied.iter().position(|&bits| bits != 0).expect("an event");
            let digit = self.occupied[level].trailing_zeros() as usize;
            let bucket = level * 64 + digit;
            if level == 0 {
                let event = self.buckets[bucket].pop().expect("an occupied bucket");
                if self.buckets[bucket].is_empty() {
                    self.occupied[0] &= !(1 << digit);
                }
                self.now = event.0;
                return event;
            }
            let mut events = std::mem::take(&mut self.buckets[bucket]);
            self.occupied[level] &= !(1 << digit);
            self.now = events.iter().map(|event| event.0).min().expect("an occupied bucket");
            for event in events.drain(..) {
                self.put(event);
            }
            self.buckets[bucket] = events;
        }
    }
}

impl Hold for Wheel {
    fn fill(&mut self, events: &[(u64, u32)]) {
        *self = Wheel { now: 0, buckets: vec![Vec::new(); 11 * 64], occupied: [0; 11] };
        for &event in events {
            self.put(event);
        }
    }

    fn hold(&mut self, increment: u64) -> u64 {
        let (moment, place) = self.take();
        self.put((moment + increment, place));
        moment
    }
}

fn increments() -> Vec<u64> {
    let mut rng = Rng::new(1, 1, 0);
    let micros = |rng: &mut Rng| match rng.below(100) {
        0..30 => 24,
        30..65 => 1200,
        65..95 => 50_000,
        _ => 200_000 + rng.below(100_000),
    };
    (0..HOLDS).map(|_| micros(&mut rng) * 1_000_000 + rng.below(1000)).collect()
}

fn measure(calendar: &mut dyn Hold, places: u32, increments: &[u64]) -> (f64, u64) {
    let mut rng = Rng::new(2, 1, 0);
    let events: Vec<(u64, u32)> =
        (0..places).map(|place| (rng.below(100_000_000_000), place)).collect();
    let (mut best, mut sum) = (f64::INFINITY, 0);
    for _ in 0..ROUNDS {
        calendar.fill(&events);
        sum = 0;
        let begun = Instant::now();
        for &increment in increments {
            sum ^= black_box(calendar.hold(increment));
        }
        best = best.min(begun.elapsed().as_secs_f64());
    }
    (best * 1e9 / increments.len() as f64, sum)
}

fn main() {
    let increments = increments();
    println!("places  tournament  binary heap  4-ary heap  B-tree  wheel   (ns per hold)");
    for places in [100, 1_000, 10_000, 100_000, 1_000_000] {
        let mut calendars: Vec<Box<dyn Hold>> = vec![
            Box::new(Matches(Tournament::new(1))),
            Box::new(Heap::default()),
            Box::new(Quad::default()),
            Box::new(Tree::default()),
            Box::new(Wheel { now: 0, buckets: Vec::new(), occupied: [0; 11] }),
        ];
        let results: Vec<(f64, u64)> =
            calendars.iter_mut().map(|c| measure(c.as_mut(), places, &increments)).collect();
        assert!(results.iter().all(|r| r.1 == results[0].1), "all give the same events");
        let [t, h, q, b, w] = [0, 1, 2, 3, 4].map(|i| results[i].0);
        println!("{places:7} {t:10.1} {h:12.1} {q:11.1} {b:7.1} {w:6.1}");
    }
}
