//! Drives a discipline and its naive twin through the same traffic and compares all they decide.

#![allow(dead_code)]

use nilometer_queue::{Capacity, Discipline, Ledger, Packet, Reason};
use nilometer_stat::Rng;
use nilometer_wire::{Ecn, Span, Time};

/// How many random runs each discipline and its twin go through.
pub const SEEDS: u64 = 240;

/// A packet that can be distinguished from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub id: u32,
    pub flow: u32,
    pub bytes: u32,
    pub ecn: Ecn,
}

impl Piece {
    pub fn new(id: u32, flow: u32, bytes: u32) -> Piece {
        Piece { id, flow, bytes, ecn: Ecn::NotCapable }
    }
}

impl Packet for Piece {
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
        assert!(self.ecn.is_capable(), "only what is capable is marked");
        self.ecn = Ecn::Congestion;
    }
}

/// What passes the queue in one run.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    pub events: usize,
    pub flows: u64,
    /// Time between two events, on average.
    pub mean_gap: Span,
    /// Sizes reach from zero to this.
    pub largest_bytes: u64,
    pub with_ecn: bool,
}

/// A capacity in a random unit, small enough to overflow often.
pub fn any_capacity(rng: &mut Rng) -> Capacity {
    match rng.below(3) {
        0 => Capacity::Packets(1 + rng.below(60) as u32),
        1 => Capacity::Bytes(500 + rng.below(60_000) as u32),
        _ => Capacity::Cells(10 + rng.below(1_500) as u32),
    }
}

fn piece(id: u32, traffic: &Traffic, rng: &mut Rng) -> Piece {
    // A third of all packets are of the two flows that send most.
    let flow = if rng.below(3) == 0 { rng.below(2) } else { rng.below(traffic.flows) };
    let bytes = match rng.below(4) {
        0 => 40,
        1 => 1_500.min(traffic.largest_bytes),
        _ => rng.below(traffic.largest_bytes + 1),
    };
    let ecn = match rng.below(4) {
        0 if traffic.with_ecn => Ecn::Capable0,
        1 if traffic.with_ecn => Ecn::Capable1,
        2 if traffic.with_ecn => Ecn::Congestion,
        _ => Ecn::NotCapable,
    };
    Piece { id, flow: flow as u32, bytes: bytes as u32, ecn }
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub ledger: Ledger,
    pub marked: u64,
}

/// Runs both through `traffic`, drawn from `rng`: phases in which more arrives than leaves alternate
/// with phases in which it is the other way round, and now and then nothing happens for long.
/// Every packet that leaves, every drop with its reason, and every backlog must agree, and nothing
/// may vanish.
pub fn hold(
    mut tested: impl Discipline<Piece>,
    mut twin: impl Discipline<Piece>,
    traffic: Traffic,
    rng: &mut Rng,
) -> Outcome {
    let (mut now, mut outcome) = (Time::ZERO, Outcome::default());
    let mut arrivals_percent = 50;
    for event in 0..traffic.events {
        if rng.below(100) == 0 {
            arrivals_percent = [10, 30, 50, 70, 90][rng.below(5) as usize];
        }
        let gap = rng.exponential(traffic.mean_gap.0 as f64) as u64;
        now += match rng.below(500) {
            0 => Span(gap) * 1_000,
            1..=50 => Span::ZERO,
            _ => Span(gap),
        };
        let (mut drops, mut expected) = (Vec::new(), Vec::new());
        if rng.below(100) < arrivals_percent {
            let piece = piece(event as u32, &traffic, rng);
            outcome.ledger.in_packets += 1;
            outcome.ledger.in_bytes += u64::from(piece.bytes);
            tested.enqueue(now, piece, &mut drops);
            twin.enqueue(now, piece, &mut expected);
        } else {
            let left = tested.dequeue(now, &mut drops);
            assert_eq!(left, twin.dequeue(now, &mut expected), "event {event}");
            if let Some(piece) = left {
                outcome.ledger.out_packets += 1;
                outcome.ledger.out_bytes += u64::from(piece.bytes);
                outcome.marked += u64::from(piece.ecn == Ecn::Congestion);
            }
        }
        assert_eq!(drops, expected, "event {event}");
        for (reason, piece) in drops {
            nilometer_queue::Drops::dropped(&mut outcome.ledger.drops, reason, piece);
        }
        assert_eq!(tested.backlog(), twin.backlog(), "event {event}");
        assert!(outcome.ledger.balances(tested.backlog()), "event {event}");
    }
    outcome
}

/// A run in which nothing of what is tested happened would prove nothing.
pub fn has_seen(outcomes: &[Outcome], reasons: &[Reason]) {
    for &reason in reasons {
        let count: u64 = outcomes.iter().map(|outcome| outcome.ledger.drops.packets(reason)).sum();
        assert!(count > 100, "only {count} packets dropped as {}", reason.name());
    }
    assert!(outcomes.iter().map(|outcome| outcome.ledger.out_packets).sum::<u64>() > 10_000);
}
