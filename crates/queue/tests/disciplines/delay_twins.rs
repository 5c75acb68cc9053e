//! CoDel, FQ-CoDel and PIE against twins that follow the text of RFC 8289, 8290 and 8033.

use std::collections::VecDeque;

use crate::twin::{Outcome, Piece, SEEDS, Traffic, any_capacity, has_seen, hold};
use nilometer_queue::codel::{CoDel, CoDelOptions};
use nilometer_queue::fq_codel::{FqCoDel, FqCoDelOptions};
use nilometer_queue::pie::{Delay, Pie, PieOptions};
use nilometer_queue::{Backlog, Capacity, Discipline, Drops, Hashing, Packet, Reason};
use nilometer_stat::Rng;
use nilometer_wire::{Ecn, Span, Time};

const MTU_BYTES: u32 = 1_500;

type Waiting = VecDeque<(Time, Piece)>;

fn bytes_of(waiting: &Waiting) -> u64 {
    waiting.iter().map(|(_, piece)| u64::from(piece.bytes)).sum()
}

fn units_of<'a>(capacity: Capacity, pieces: impl Iterator<Item = &'a (Time, Piece)>) -> u64 {
    pieces.map(|(_, piece)| capacity.units(piece.bytes)).sum()
}

/// The variables of RFC 8289, section 5.2; times in picoseconds, zero for none.
#[derive(Clone, Default)]
struct CoDelState {
    first_above: u64,
    drop_next: u64,
    count: u64,
    last_count: u64,
    dropping: bool,
}

struct Took {
    piece: Option<Piece>,
    ok_to_drop: bool,
}

impl CoDelState {
    fn do_dequeue(&mut self, now: u64, o: &CoDelOptions, waiting: &mut Waiting) -> Took {
        let Some((arrived, piece)) = waiting.pop_front() else {
            self.first_above = 0;
            return Took { piece: None, ok_to_drop: false };
        };
        let mut ok_to_drop = false;
        if now - arrived.0 < o.target.0 || bytes_of(waiting) <= u64::from(MTU_BYTES) {
            self.first_above = 0;
        } else if self.first_above == 0 {
            self.first_above = now + o.interval.0;
            ok_to_drop = o.interval.0 == 0;
        } else if now >= self.first_above {
            ok_to_drop = true;
        }
        Took { piece: Some(piece), ok_to_drop }
    }

    fn control_law(&self, from: u64, o: &CoDelOptions) -> u64 {
        from + (o.interval.0 as f64 / (self.count as f64).sqrt()) as u64
    }

    fn dequeue(
        &mut self,
        now: Time,
        o: &CoDelOptions,
        waiting: &mut Waiting,
        drops: &mut impl Drops<Piece>,
    ) -> Option<Piece> {
        let now = now.0;
        let may_mark = |piece: &Piece| o.ecn && piece.ecn != Ecn::NotCapable;
        let mut took = self.do_dequeue(now, o, waiting);
        let Some(mut piece) = took.piece else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            if !took.ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.count += 1;
                if may_mark(&piece) {
                    piece.mark();
                    self.drop_next = self.control_law(self.drop_next, o);
                    break;
                }
                drops.dropped(Reason::Sojourn, piece);
                took = self.do_dequeue(now, o, waiting);
                if took.ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next, o);
                } else {
                    self.dropping = false;
                }
                piece = took.piece?;
            }
            return Some(piece);
        }
        if !took.ok_to_drop {
            return Some(piece);
        }
        let leaves = if may_mark(&piece) {
            piece.mark();
            Some(piece)
        } else {
            drops.dropped(Reason::Sojourn, piece);
            self.do_dequeue(now, o, waiting).piece
        };
        self.dropping = true;
        let delta = self.count - self.last_count;
        self.count = 1;
        if delta > 1 && now.saturating_sub(self.drop_next) < 16 * o.interval.0 {
            self.count = delta;
        }
        self.drop_next = self.control_law(now, o);
        self.last_count = self.count;
        leaves
    }
}

struct NaiveCoDel {
    capacity: Capacity,
    options: CoDelOptions,
    waiting: Waiting,
    state: CoDelState,
}

impl Discipline<Piece> for NaiveCoDel {
    fn enqueue(&mut self, now: Time, packet: Piece, drops: &mut impl Drops<Piece>) {
        let (units, limit) = (self.capacity.units(packet.bytes), self.capacity.limit());
        if units > limit {
            drops.dropped(Reason::TooBig, packet);
        } else if units_of(self.capacity, self.waiting.iter()) + units > limit {
            drops.dropped(Reason::Full, packet);
        } else {
            self.waiting.push_back((now, packet));
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<Piece>) -> Option<Piece> {
        self.state.dequeue(now, &self.options, &mut self.waiting, drops)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.waiting.len() as u64, bytes: bytes_of(&self.waiting) }
    }
}

#[derive(Clone, Default)]
struct NaiveFlow {
    waiting: Waiting,
    state: CoDelState,
    credit: i64,
    changed: u64,
}

struct NaiveFqCoDel {
    capacity: Capacity,
    options: FqCoDelOptions,
    flows: Vec<NaiveFlow>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    changes: u64,
}

impl NaiveFqCoDel {
    fn changed(&mut self, flow: usize) {
        self.changes += 1;
        self.flows[flow].changed = self.changes;
    }
}

impl Discipline<Piece> for NaiveFqCoDel {
    fn enqueue(&mut self, now: Time, packet: Piece, drops: &mut impl Drops<Piece>) {
        if packet.bytes > MTU_BYTES || self.capacity.units(packet.bytes) > self.capacity.limit() {
            return drops.dropped(Reason::TooBig, packet);
        }
        let flow = packet.flow as usize % self.flows.len();
        self.flows[flow].waiting.push_back((now, packet));
        if !self.new.contains(&flow) && !self.old.contains(&flow) {
            self.new.push_back(flow);
            self.flows[flow].credit = i64::from(self.options.quantum_bytes);
        }
        self.changed(flow);
        while units_of(self.capacity, self.flows.iter().flat_map(|flow| &flow.waiting))
            > self.capacity.limit()
        {
            let held = (0..self.flows.len()).filter(|&f| !self.flows[f].waiting.is_empty());
            let rank = |&f: &usize| (bytes_of(&self.flows[f].waiting), self.flows[f].changed);
            let fattest = held.max_by_key(rank).expect("somebody waits");
            let half = bytes_of(&self.flows[fattest].waiting) / 2;
            let (mut bytes, mut count) = (0, 0);
            while count == 0 || count < self.options.drop_batch && bytes < half {
                let Some((_, piece)) = self.flows[fattest].waiting.pop_front() else { break };
                bytes += u64::from(piece.bytes);
                count += 1;
                let is_arrival = piece.id == packet.id;
                drops.dropped(if is_arrival { Reason::Full } else { Reason::PushedOut }, piece);
            }
            self.changed(fattest);
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<Piece>) -> Option<Piece> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = *list.front()?;
            let flow = &mut self.flows[number];
            if flow.credit <= 0 {
                flow.credit += i64::from(self.options.quantum_bytes);
                list.pop_front();
                self.old.push_back(number);
                continue;
            }
            let left = flow.state.dequeue(now, &self.options.codel, &mut flow.waiting, drops);
            if let Some(piece) = left {
                flow.credit -= i64::from(piece.bytes);
                self.changed(number);
                return Some(piece);
            }
            list.pop_front();
            if is_new {
                self.old.push_back(number);
            }
        }
    }

    fn backlog(&self) -> Backlog {
        let packets = self.flows.iter().map(|flow| flow.waiting.len() as u64).sum();
        Backlog { packets, bytes: self.flows.iter().map(|flow| bytes_of(&flow.waiting)).sum() }
    }
}

/// RFC 8033 with a timer that never misses.
struct NaivePie {
    capacity: Capacity,
    o: PieOptions,
    waiting: Waiting,
    p: f64,
    qdelay_old: f64,
    burst_allowance: u64,
    next_update: u64,
    in_measurement: bool,
    started: u64,
    dq_count: u64,
    avg_dq_rate: f64,
    sojourn: f64,
    accu_prob: f64,
    rng: Rng,
}

impl NaivePie {
    fn calculate(&mut self) {
        let target = self.o.target.as_secs_f64();
        let qdelay = match self.o.delay {
            Delay::Timestamp => self.sojourn,
            Delay::DepartureRate if self.avg_dq_rate == 0.0 => 0.0,
            Delay::DepartureRate => bytes_of(&self.waiting) as f64 / self.avg_dq_rate,
        };
        let mut step = self.o.alpha * (qdelay - target) + self.o.beta * (qdelay - self.qdelay_old);
        step /= match self.p {
            p if p < 0.000_001 => 2048.0,
            p if p < 0.000_01 => 512.0,
            p if p < 0.000_1 => 128.0,
            p if p < 0.001 => 32.0,
            p if p < 0.01 => 8.0,
            p if p < 0.1 => 2.0,
            _ => 1.0,
        };
        if self.p >= 0.1 && step > 0.02 {
            step = 0.02;
        }
        self.p += step;
        if qdelay == 0.0 && self.qdelay_old == 0.0 {
            self.p *= 0.98;
        }
        self.p = self.p.clamp(0.0, 1.0);
        self.burst_allowance = self.burst_allowance.saturating_sub(self.o.update.0);
        if self.p == 0.0 && qdelay < target / 2.0 && self.qdelay_old < target / 2.0 {
            self.burst_allowance = self.o.burst.0;
        }
        self.qdelay_old = qdelay;
    }

    fn timer(&mut self, now: Time) {
        while self.next_update <= now.0 {
            self.calculate();
            self.next_update += self.o.update.0;
        }
    }

    fn drop_early(&mut self) -> bool {
        let is_short = self.qdelay_old < self.o.target.as_secs_f64() / 2.0;
        if self.burst_allowance > 0
            || (is_short && self.p < 0.2)
            || bytes_of(&self.waiting) <= 2 * u64::from(MTU_BYTES)
        {
            return false;
        }
        if self.o.derandomise {
            if self.p == 0.0 {
                self.accu_prob = 0.0;
            }
            self.accu_prob += self.p;
            if self.accu_prob < 0.85 {
                return false;
            }
            if self.accu_prob >= 8.5 {
                self.accu_prob = 0.0;
                return true;
            }
        }
        let dropped = self.rng.unit() < self.p;
        if dropped {
            self.accu_prob = 0.0;
        }
        dropped
    }
}

impl Discipline<Piece> for NaivePie {
    fn enqueue(&mut self, now: Time, mut packet: Piece, drops: &mut impl Drops<Piece>) {
        self.timer(now);
        let (units, limit) = (self.capacity.units(packet.bytes), self.capacity.limit());
        if units > limit {
            return drops.dropped(Reason::TooBig, packet);
        }
        if units_of(self.capacity, self.waiting.iter()) + units > limit {
            self.accu_prob = 0.0;
            return drops.dropped(Reason::Full, packet);
        }
        if self.drop_early() {
            let marks = self.o.mark_below.is_some_and(|below| self.p < below);
            if !marks || packet.ecn == Ecn::NotCapable {
                return drops.dropped(Reason::Early, packet);
            }
            packet.mark();
        }
        self.waiting.push_back((now, packet));
    }

    fn dequeue(&mut self, now: Time, _drops: &mut impl Drops<Piece>) -> Option<Piece> {
        self.timer(now);
        let (arrived, piece) = self.waiting.pop_front()?;
        self.sojourn = if self.waiting.is_empty() { 0.0 } else { now.since(arrived).as_secs_f64() };
        if !self.in_measurement && bytes_of(&self.waiting) >= 16_384 {
            self.in_measurement = true;
            self.started = now.0;
            self.dq_count = 0;
        }
        if self.in_measurement {
            self.dq_count += u64::from(piece.bytes);
            if self.dq_count >= 16_384 && now.0 > self.started {
                let rate = self.dq_count as f64 / Span(now.0 - self.started).as_secs_f64();
                let weight = if self.avg_dq_rate == 0.0 { 1.0 } else { 0.25 };
                self.avg_dq_rate += weight * (rate - self.avg_dq_rate);
                self.in_measurement = false;
            }
        }
        Some(piece)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.waiting.len() as u64, bytes: bytes_of(&self.waiting) }
    }
}

fn traffic(mean_gap: Span, rng: &mut Rng) -> Traffic {
    let flows = 2 + rng.below(12);
    Traffic { events: 2_500, flows, mean_gap, largest_bytes: 1_505, with_ecn: true }
}

/// Small enough that packets wait for longer than the target, and that full buffers come too.
fn codel_options(rng: &mut Rng) -> CoDelOptions {
    let target = Span::from_nanos(100_000 + rng.below(2_000_000));
    CoDelOptions { target, interval: target * (1 + rng.below(20)), ecn: rng.below(2) == 0 }
}

fn all(reasons: &[Reason], run: impl Fn(&mut Rng, Capacity) -> Outcome) {
    let outcomes: Vec<Outcome> = (0..SEEDS)
        .map(|seed| {
            let mut rng = Rng::new(seed, 12, 0);
            let capacity = match rng.below(2) {
                0 => any_capacity(&mut rng),
                _ => Capacity::Packets(10_000),
            };
            run(&mut rng, capacity)
        })
        .collect();
    has_seen(&outcomes, reasons);
    assert!(outcomes.iter().map(|outcome| outcome.marked).sum::<u64>() > 1_000);
}

#[test]
fn codel_decides_as_its_twin_does() {
    all(&[Reason::Full, Reason::Sojourn], |rng, capacity| {
        let options = codel_options(rng);
        let tested = CoDel::new(capacity, MTU_BYTES, options).expect("sound options");
        let state = CoDelState::default();
        let naive = NaiveCoDel { capacity, options, waiting: Waiting::new(), state };
        hold(tested, naive, traffic(Span::from_nanos(200_000), rng), rng)
    });
}

#[test]
fn fq_codel_decides_as_its_twin_does() {
    let reasons = [Reason::Full, Reason::PushedOut, Reason::Sojourn, Reason::TooBig];
    all(&reasons, |rng, capacity| {
        let options = FqCoDelOptions {
            codel: codel_options(rng),
            quantum_bytes: 256 + rng.below(2_000) as u32,
            queues: 1 + rng.below(14) as u32,
            hashing: Hashing::Direct,
            drop_batch: 1 + rng.below(64) as u32,
        };
        let tested = FqCoDel::new(capacity, MTU_BYTES, options, 0).expect("sound options");
        let naive = NaiveFqCoDel {
            capacity,
            options,
            flows: vec![NaiveFlow::default(); options.queues as usize],
            new: VecDeque::new(),
            old: VecDeque::new(),
            changes: 0,
        };
        hold(tested, naive, traffic(Span::from_nanos(200_000), rng), rng)
    });
}

#[test]
fn pie_decides_as_its_twin_does() {
    all(&[Reason::Full, Reason::Early], |rng, capacity| {
        let options = PieOptions {
            target: Span::from_nanos(1_000_000 + rng.below(20_000_000)),
            update: Span::from_nanos(1_000_000 + rng.below(20_000_000)),
            alpha: rng.unit() * 5.0,
            beta: rng.unit() * 20.0,
            burst: Span::from_nanos(rng.below(150_000_000)),
            delay: if rng.below(2) == 0 { Delay::Timestamp } else { Delay::DepartureRate },
            derandomise: rng.below(2) == 0,
            mark_below: (rng.below(2) == 0).then(|| rng.unit()),
        };
        let chances = Rng::new(rng.next_u64(), 0, 0);
        let tested =
            Pie::new(capacity, MTU_BYTES, options, chances.clone()).expect("sound options");
        let naive = NaivePie {
            capacity,
            o: options,
            waiting: Waiting::new(),
            p: 0.0,
            qdelay_old: 0.0,
            burst_allowance: options.burst.0,
            next_update: options.update.0,
            in_measurement: false,
            started: 0,
            dq_count: 0,
            avg_dq_rate: 0.0,
            sojourn: 0.0,
            accu_prob: 0.0,
            rng: chances,
        };
        hold(tested, naive, traffic(Span::from_nanos(1_000_000), rng), rng)
    });
}
