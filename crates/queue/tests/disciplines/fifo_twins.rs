//! Tail drop, RED and Blue against twins written line by line from their definitions.

use crate::twin::{Outcome, Piece, SEEDS, Traffic, any_capacity, has_seen, hold};
use nilometer_queue::blue::{Blue, BlueOptions};
use nilometer_queue::red::{Red, RedOptions};
use nilometer_queue::{
    Any, Backlog, Capacity, Discipline, DisciplineKind, Drops, Packet, Reason, Settings,
};
use nilometer_queue::{TailDrop, Tally};
use nilometer_stat::Rng;
use nilometer_wire::{Ecn, Rate, Span, Time};

/// A queue whose every size is counted anew.
struct Naive<R> {
    capacity: Capacity,
    waiting: Vec<Piece>,
    rule: R,
}

/// What is special about a discipline.
trait Rule {
    /// An arrival that finds `length` units waiting; whether the buffer itself is `full` for it.
    fn judge(&mut self, now: Time, length: u64, full: bool, piece: &mut Piece) -> Option<Reason>;

    /// `piece` left at `now`, and nothing waits any more.
    fn emptied(&mut self, now: Time, piece: &Piece);
}

impl<R: Rule> Discipline<Piece> for Naive<R> {
    fn enqueue(&mut self, now: Time, mut packet: Piece, drops: &mut impl Drops<Piece>) {
        let length: u64 = self.waiting.iter().map(|p| self.capacity.units(p.bytes)).sum();
        let units = self.capacity.units(packet.bytes);
        if units > self.capacity.limit() {
            return drops.dropped(Reason::TooBig, packet);
        }
        let full = length + units > self.capacity.limit();
        match self.rule.judge(now, length, full, &mut packet) {
            Some(reason) => drops.dropped(reason, packet),
            None => self.waiting.push(packet),
        }
    }

    fn dequeue(&mut self, now: Time, _drops: &mut impl Drops<Piece>) -> Option<Piece> {
        if self.waiting.is_empty() {
            return None;
        }
        let piece = self.waiting.remove(0);
        if self.waiting.is_empty() {
            self.rule.emptied(now, &piece);
        }
        Some(piece)
    }

    fn backlog(&self) -> Backlog {
        let bytes = self.waiting.iter().map(|piece| u64::from(piece.bytes)).sum();
        Backlog { packets: self.waiting.len() as u64, bytes }
    }
}

struct NaiveTailDrop;

impl Rule for NaiveTailDrop {
    fn judge(&mut self, _: Time, _: u64, full: bool, _: &mut Piece) -> Option<Reason> {
        full.then_some(Reason::Full)
    }
    fn emptied(&mut self, _: Time, _: &Piece) {}
}

/// Figure 2 of Floyd and Jacobson 1993, with the options.
struct NaiveRed {
    options: RedOptions,
    limit: f64,
    avg: f64,
    count: i64,
    q_time: Time,
    rate: Rate,
    rng: Rng,
}

impl Rule for NaiveRed {
    fn judge(&mut self, now: Time, length: u64, full: bool, piece: &mut Piece) -> Option<Reason> {
        let o = self.options;
        let (min, max) = (self.limit * o.min_percent / 100.0, self.limit * o.max_percent / 100.0);
        if length > 0 {
            self.avg = (1.0 - o.weight) * self.avg + o.weight * length as f64;
        } else {
            let idle = now.since(self.q_time).0 as f64;
            let m = idle / self.rate.span_of(u64::from(o.typical_bytes)).0 as f64;
            self.avg *= libm::pow(1.0 - o.weight, m);
            self.q_time = self.q_time.max(now);
        }
        let p_b = if self.avg < min {
            self.count = -1;
            return full.then_some(Reason::Full).inspect(|_| self.count = 0);
        } else if self.avg < max {
            o.max_probability * (self.avg - min) / (max - min)
        } else if o.gentle && self.avg < 2.0 * max {
            o.max_probability + (1.0 - o.max_probability) * (self.avg - max) / max
        } else {
            self.count = 0;
            return Some(Reason::Early);
        };
        self.count += 1;
        let left = 1.0 - self.count as f64 * p_b;
        let p_a = if left > 0.0 { p_b / left } else { 1.0 };
        let chosen = p_a >= 1.0 || self.rng.unit() < p_a;
        if chosen {
            self.count = 0;
            if !o.ecn || full || piece.ecn == Ecn::NotCapable {
                return Some(Reason::Early);
            }
            piece.mark();
        }
        full.then_some(Reason::Full).inspect(|_| self.count = 0)
    }

    fn emptied(&mut self, now: Time, piece: &Piece) {
        self.q_time = now + self.rate.span_of(u64::from(piece.bytes));
    }
}

/// Blue, one change at a time.
struct NaiveBlue {
    options: BlueOptions,
    limit: f64,
    /// In units of 2⁻⁵³, as the draws are.
    p: i64,
    last: Option<Time>,
    idle_since: Time,
    rate: Rate,
    rng: Rng,
}

impl NaiveBlue {
    fn change(&mut self, now: Time, by: f64) {
        let one = (1u64 << 53) as f64;
        let frozen = self.last.is_some_and(|last| now.since(last) <= self.options.freeze);
        let changed = (self.p + (by * one) as i64).clamp(0, one as i64);
        if !frozen && changed != self.p {
            self.p = changed;
            self.last = Some(now);
        }
    }
}

impl Rule for NaiveBlue {
    fn judge(&mut self, now: Time, length: u64, full: bool, piece: &mut Piece) -> Option<Reason> {
        // Every moment at which an idle link may change something.
        let mut at = self.idle_since;
        while length == 0 && at < now {
            self.change(at, -self.options.decrement);
            let thaw = self.last.map_or(at, |last| last + self.options.freeze + Span(1));
            if thaw <= at {
                break;
            }
            at = thaw;
        }
        let percent = self.options.threshold_percent.unwrap_or(f64::INFINITY);
        if full || length as f64 > self.limit * percent / 100.0 {
            self.change(now, self.options.increment);
        }
        if full {
            return Some(Reason::Full);
        }
        if self.p > 0 && ((self.rng.next_u64() >> 11) as i64) < self.p {
            if !self.options.ecn || piece.ecn == Ecn::NotCapable {
                return Some(Reason::Early);
            }
            piece.mark();
        }
        None
    }

    fn emptied(&mut self, now: Time, piece: &Piece) {
        self.idle_since = now + self.rate.span_of(u64::from(piece.bytes));
    }
}

const RATE: Rate = Rate::from_megabits(100);

fn traffic(rng: &mut Rng) -> Traffic {
    let mean_gap = Span::from_nanos(1_000 + rng.below(200_000));
    Traffic { events: 2_000, flows: 8, mean_gap, largest_bytes: 1_500, with_ecn: true }
}

fn all(reasons: &[Reason], run: impl Fn(&mut Rng, Capacity) -> Outcome) -> u64 {
    let outcomes: Vec<Outcome> = (0..SEEDS)
        .map(|seed| {
            let mut rng = Rng::new(seed, 11, 0);
            let capacity = any_capacity(&mut rng);
            run(&mut rng, capacity)
        })
        .collect();
    has_seen(&outcomes, reasons);
    outcomes.iter().map(|outcome| outcome.marked).sum()
}

#[test]
fn tail_drop_decides_as_its_twin_does() {
    all(&[Reason::Full, Reason::TooBig], |rng, capacity| {
        let naive = Naive { capacity, waiting: Vec::new(), rule: NaiveTailDrop };
        hold(TailDrop::new(capacity), naive, traffic(rng), rng)
    });
}

/// Before a transmitter of constant rate, tail drop that keeps nothing but moments drops what tail drop
/// with the packets drops.
#[test]
fn virtual_tail_drop_decides_as_tail_drop_does() {
    const MTU_BYTES: u32 = 1_400;
    let rate = Rate::from_megabits(8);
    let (mut dropped, mut oversized) = (0, 0);
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed, 1, 0);
        let capacity = any_capacity(&mut rng);
        let mut settings = Settings::new(DisciplineKind::TailDrop, capacity, rate);
        settings.mtu_bytes = MTU_BYTES;
        let mut kept = Any::<Piece>::new(&settings).expect("sane settings");
        let mut virtual_drop = kept.virtual_tail_drop().expect("it is tail drop");
        let (mut now, mut kept_free, mut free) = (Time::ZERO, Time::ZERO, Time::ZERO);
        for id in 0..2_000 {
            now += Span::from_nanos(1_000 * rng.below(1_500));
            let bytes = 40 + rng.below(1_460) as u32;
            let mut drops = Tally::default();
            let mut depart = |kept: &mut Any<Piece>, drops: &mut Tally| {
                while kept_free <= now && kept.backlog().packets > 0 {
                    let piece = kept.dequeue(kept_free, drops).expect("one that waits");
                    kept_free += rate.span_of(u64::from(piece.bytes));
                }
                kept_free = kept_free.max(now);
            };
            depart(&mut kept, &mut drops);
            kept.enqueue(now, Piece::new(id, 0, bytes), &mut drops);
            depart(&mut kept, &mut drops);
            let refusal = virtual_drop.refusal(now, bytes);
            assert_eq!(u64::from(refusal.is_some()), drops.total_packets(), "seed {seed}, {id}");
            if let Some(reason) = refusal {
                assert_eq!(drops.packets(reason), 1, "seed {seed}, {id}");
                oversized += u64::from(reason == Reason::TooBig);
                dropped += 1;
            } else {
                let start = free.max(now);
                virtual_drop.push(start, bytes);
                free = start + rate.span_of(u64::from(bytes));
            }
            assert_eq!(virtual_drop.backlog(now), kept.backlog(), "seed {seed}, {id}");
        }
    }
    assert!(oversized > 100 && dropped > oversized + 100, "{dropped}, {oversized}");
}

#[test]
fn red_decides_as_its_twin_does() {
    let marked = all(&[Reason::Full, Reason::Early], |rng, capacity| {
        let min_percent = rng.unit() * 40.0;
        let options = RedOptions {
            max_probability: 0.01 + rng.unit() * 0.5,
            weight: 0.001 + rng.unit() * 0.3,
            min_percent,
            max_percent: min_percent + 1.0 + rng.unit() * 80.0,
            gentle: rng.below(2) == 0,
            ecn: rng.below(2) == 0,
            typical_bytes: 40 + rng.below(1_460) as u32,
        };
        let chances = Rng::new(rng.next_u64(), 0, 0);
        let tested = Red::new(capacity, options, RATE, chances.clone()).expect("sound options");
        let limit = capacity.limit() as f64;
        let rule = NaiveRed {
            options,
            limit,
            avg: 0.0,
            count: -1,
            q_time: Time::ZERO,
            rate: RATE,
            rng: chances,
        };
        hold(tested, Naive { capacity, waiting: Vec::new(), rule }, traffic(rng), rng)
    });
    assert!(marked > 1_000, "{marked}");
}

#[test]
fn blue_decides_as_its_twin_does() {
    let marked = all(&[Reason::Full, Reason::Early], |rng, capacity| {
        let options = BlueOptions {
            increment: rng.unit() * 0.1,
            decrement: [0.0, 0.000_3, 0.002, 0.05][rng.below(4) as usize],
            freeze: Span::from_nanos(1 + rng.below(10_000_000)),
            threshold_percent: (rng.below(2) == 0).then(|| rng.unit() * 100.0),
            ecn: rng.below(2) == 0,
        };
        let chances = Rng::new(rng.next_u64(), 0, 0);
        let tested = Blue::new(capacity, options, RATE, chances.clone()).expect("sound options");
        let rule = NaiveBlue {
            options,
            limit: capacity.limit() as f64,
            p: 0,
            last: None,
            idle_since: Time::ZERO,
            rate: RATE,
            rng: chances,
        };
        hold(tested, Naive { capacity, waiting: Vec::new(), rule }, traffic(rng), rng)
    });
    assert!(marked > 1_000, "{marked}");
}
