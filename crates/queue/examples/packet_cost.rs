//! Measures the cost of a packet in each discipline: nanoseconds per arrival and what it entails.
//!
//! `cargo run --release -p nilometer-queue --example packet_cost [DISCIPLINE]`. 100 flows send packets of
//! 64 to 1,500 bytes; a record of 64 bytes travels. "room": one departure per arrival, nothing is
//! dropped. "overload": the buffer is full and two packets arrive per departure, so that every second one
//! causes a drop. Rounds last a few milliseconds, less than a time slice; the best of many ran without an
//! interruption.

use std::hint::black_box;
use std::time::Instant;

use nilometer_queue::{Any, Capacity, Discipline, DisciplineKind, Ledger, Packet, Settings};
use nilometer_stat::Rng;
use nilometer_wire::{Ecn, Rate, Span, Time};

const FLOWS: u64 = 100;
const ARRIVALS: usize = 1 << 13;
const PASSES: usize = 6;
const ROUNDS: usize = 100;

/// As large as what a simulator moves.
#[derive(Clone, Copy, Debug)]
struct Record {
    flow: u32,
    bytes: u32,
    ecn: Ecn,
    rest: [u64; 6],
}

impl Packet for Record {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow(&self) -> u32 {
        self.flow
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn mark(&mut self) {
        self.ecn = Ecn::Congestion;
    }
}

fn arrivals() -> Vec<Record> {
    let mut rng = Rng::new(1, 0, 0);
    let record = |_| {
        let flow = rng.below(FLOWS) as u32;
        let bytes = if rng.below(2) == 0 { 1_500 } else { 64 + rng.below(1_400) as u32 };
        Record { flow, bytes, ecn: Ecn::NotCapable, rest: [u64::from(flow); 6] }
    };
    (0..ARRIVALS).map(record).collect()
}

/// Nanoseconds per arrival with a departure after every `arrivals_per_departure` of them.
fn cost(settings: &Settings, arrivals: &[Record], arrivals_per_departure: usize) -> (f64, Ledger) {
    let mut best = f64::INFINITY;
    let mut ledger = Ledger::default();
    for _ in 0..ROUNDS {
        let mut queue: Any<Record> = Any::new(settings).expect("sound settings");
        ledger = Ledger::default();
        let mut now = Time::ZERO;
        for record in arrivals.iter().take(180) {
            queue.enqueue(now, *record, &mut ledger.drops);
        }
        let began = Instant::now();
        for _ in 0..PASSES {
            for group in arrivals.chunks_exact(arrivals_per_departure) {
                for record in group {
                    now += Span(12_000_000);
                    queue.enqueue(now, *record, &mut ledger.drops);
                }
                ledger.out_packets += 1;
                let left = queue.dequeue(now, &mut ledger.drops);
                ledger.out_bytes += left.map_or(0, |record| record.rest[0]);
                black_box(left);
            }
        }
        best = best.min(began.elapsed().as_nanos() as f64 / (PASSES * arrivals.len()) as f64);
    }
    (best, ledger)
}

fn main() {
    let arrivals = arrivals();
    println!("ns per arrival, {FLOWS} flows, records of {} bytes", size_of::<Record>());
    println!("{:<22}{:>8}{:>10}{:>14}", "", "room", "overload", "dropped there");
    let rate = Rate::from_megabits(500);
    for capacity in [Capacity::Packets(200), Capacity::Packets(5_000), Capacity::Bytes(200_000)] {
        for kind in DisciplineKind::ALL {
            if std::env::args().nth(1).is_some_and(|name| name != kind.name()) {
                continue;
            }
            let mut settings = Settings::new(kind, capacity, rate);
            settings.queues = FLOWS as u32;
            settings.red.min_percent = 150.0;
            settings.red.max_percent = 300.0;
            settings.blue.increment = 0.0;
            let (room, _) = cost(&settings, &arrivals, 1);
            let (overload, ledger) = cost(&settings, &arrivals, 2);
            let dropped = ledger.drops.total_packets() as f64 / (PASSES * ARRIVALS) as f64;
            let name = format!("{} {capacity:?}", kind.name());
            println!("{name:<26}{room:>6.1}{overload:>8.1}{:>12.1} %", 100.0 * dropped);
        }
    }
}
