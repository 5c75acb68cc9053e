//! DRR, TDRR and QSDRR against twins that scan every queue for every decision.

use crate::twin::{Outcome, Piece, SEEDS, Traffic, any_capacity, has_seen, hold};
use nilometer_queue::drr::Drr;
use nilometer_queue::qsdrr::{Qsdrr, QsdrrOptions};
use nilometer_queue::round_robin::Layout;
use nilometer_queue::tdrr::{Averaging, Tdrr, TdrrOptions};
use nilometer_queue::{Backlog, Capacity, Discipline, Drops, End, Hashing, Reason};
use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

const MTU_BYTES: u32 = 1_500;

/// Which queue to drop from.
#[derive(Clone, Copy)]
enum Rule {
    Longest,
    Fastest(Averaging),
    Hysteresis { strictly: bool, release_below_percent: Option<u8> },
}

#[derive(Clone, Default)]
struct NaiveQueue {
    packets: Vec<Piece>,
    deficit: u32,
    weight: u32,
    /// When it last changed, in changes of all queues.
    changed: u64,
    throughput: f64,
    last_sent: Option<Time>,
    sent_since: u32,
    /// When it last sent or became active, in changes of all queues.
    ranked: u64,
}

/// Deficit round robin written with lists that are scanned.
struct Naive {
    rule: Rule,
    end: End,
    capacity: Capacity,
    queues: Vec<NaiveQueue>,
    ring: Vec<usize>,
    turn_began: bool,
    victim: Option<usize>,
    changes: u64,
}

impl Naive {
    fn new(rule: Rule, end: End, layout: &Layout) -> Naive {
        let queue = NaiveQueue { weight: 1, ..NaiveQueue::default() };
        Naive {
            rule,
            end,
            capacity: layout.capacity,
            queues: vec![queue; layout.queues as usize],
            ring: Vec::new(),
            turn_began: false,
            victim: None,
            changes: 0,
        }
    }

    fn length(&self, queue: usize) -> u64 {
        self.queues[queue].packets.iter().map(|piece| self.capacity.units(piece.bytes)).sum()
    }

    fn taken(&self) -> u64 {
        (0..self.queues.len()).map(|queue| self.length(queue)).sum()
    }

    fn active(&self) -> Vec<usize> {
        (0..self.queues.len()).filter(|&q| !self.queues[q].packets.is_empty()).collect()
    }

    fn longest(&self) -> usize {
        let rank = |&q: &usize| (self.length(q), self.queues[q].changed);
        self.active().into_iter().max_by_key(rank).expect("somebody waits")
    }

    fn choose(&mut self) -> usize {
        match self.rule {
            Rule::Longest => self.longest(),
            Rule::Fastest(_) => {
                let mut active = self.active();
                active.sort_by(|&a, &b| {
                    let (a, b) = (&self.queues[a], &self.queues[b]);
                    a.throughput.total_cmp(&b.throughput).then(a.ranked.cmp(&b.ranked))
                });
                *active.last().expect("somebody waits")
            }
            Rule::Hysteresis { strictly, .. } => {
                let is_over = self.victim.is_none_or(|victim| {
                    let length = self.length(victim);
                    let mut others = self.active().into_iter().filter(|&q| q != victim);
                    let is_smallest = others.all(|q| match strictly {
                        true => length < self.length(q),
                        false => length <= self.length(q),
                    });
                    length == 0 || is_smallest
                });
                if is_over {
                    self.victim = Some(self.longest());
                }
                self.victim.expect("just chosen")
            }
        }
    }

    fn changed(&mut self, queue: usize) {
        self.changes += 1;
        self.queues[queue].changed = self.changes;
    }

    fn take(&mut self, queue: usize, end: End) -> Piece {
        let state = &mut self.queues[queue];
        let piece = match end {
            End::Front => state.packets.remove(0),
            End::Tail => state.packets.pop().expect("a packet"),
        };
        if state.packets.is_empty() {
            state.deficit = 0;
            if self.ring[0] == queue {
                self.turn_began = false;
            }
            self.ring.retain(|&q| q != queue);
        }
        self.changed(queue);
        piece
    }

    fn measure(&mut self, queue: usize, now: Time, bytes: u32) {
        let Rule::Fastest(averaging) = self.rule else { return };
        let state = &mut self.queues[queue];
        state.ranked = self.changes;
        let Some(last) = state.last_sent else {
            state.last_sent = Some(now);
            return;
        };
        state.sent_since += bytes;
        if now > last {
            let span = now.since(last);
            let weight = match averaging {
                Averaging::PerDeparture(weight) => weight,
                Averaging::OverTime(time) => -libm::expm1(-(span.0 as f64) / time.0 as f64),
            };
            let rate = f64::from(state.sent_since) / span.as_secs_f64();
            state.throughput += weight * (rate - state.throughput);
            state.last_sent = Some(now);
            state.sent_since = 0;
        }
    }
}

impl Discipline<Piece> for Naive {
    fn enqueue(&mut self, _now: Time, packet: Piece, drops: &mut impl Drops<Piece>) {
        let units = self.capacity.units(packet.bytes);
        if packet.bytes > MTU_BYTES || units > self.capacity.limit() {
            drops.dropped(Reason::TooBig, packet);
            return;
        }
        let queue = packet.flow as usize % self.queues.len();
        if self.queues[queue].packets.is_empty() {
            self.ring.push(queue);
            self.queues[queue].ranked = self.changes + 1;
        }
        self.queues[queue].packets.push(packet);
        self.changed(queue);
        while self.taken() > self.capacity.limit() {
            let victim = self.choose();
            let dropped = self.take(victim, self.end);
            let is_arrival = dropped.id == packet.id;
            drops.dropped(if is_arrival { Reason::Full } else { Reason::PushedOut }, dropped);
        }
    }

    fn dequeue(&mut self, now: Time, _drops: &mut impl Drops<Piece>) -> Option<Piece> {
        loop {
            let queue = *self.ring.first()?;
            let state = &mut self.queues[queue];
            if !self.turn_began {
                state.deficit += state.weight * MTU_BYTES;
                self.turn_began = true;
            }
            let bytes = state.packets[0].bytes;
            if bytes <= state.deficit {
                state.deficit -= bytes;
                let piece = self.take(queue, End::Front);
                self.measure(queue, now, bytes);
                if let Rule::Hysteresis { release_below_percent: Some(percent), .. } = self.rule
                    && self.taken() * 100 < self.capacity.limit() * u64::from(percent)
                {
                    self.victim = None;
                }
                return Some(piece);
            }
            self.ring.rotate_left(1);
            self.turn_began = false;
        }
    }

    fn backlog(&self) -> Backlog {
        let waiting = self.queues.iter().flat_map(|queue| &queue.packets);
        let bytes = waiting.clone().map(|piece| u64::from(piece.bytes)).sum();
        Backlog { packets: waiting.count() as u64, bytes }
    }
}

/// Layout and weights of one run.
fn draw(rng: &mut Rng) -> (Layout, Vec<u32>, End) {
    let queues = 1 + rng.below(16) as u32;
    let layout = Layout {
        capacity: any_capacity(rng),
        queues,
        hashing: Hashing::Direct,
        hash_seed: 0,
        mtu_bytes: MTU_BYTES,
    };
    let weights = (0..queues).map(|_| 1 + rng.below(5) as u32).collect();
    (layout, weights, if rng.below(2) == 0 { End::Front } else { End::Tail })
}

fn traffic(rng: &mut Rng) -> Traffic {
    let flows = 2 + rng.below(20);
    let mean_gap = Span::from_nanos(10_000);
    Traffic { events: 1_500, flows, mean_gap, largest_bytes: 1_510, with_ecn: true }
}

macro_rules! weighted {
    ($tested:expr, $naive:expr, $weights:expr) => {{
        let (mut tested, mut naive) = ($tested.expect("sound settings"), $naive);
        for (queue, &weight) in $weights.iter().enumerate() {
            tested.set_weight(queue as u32, weight).expect("a queue and a weight");
            naive.queues[queue].weight = weight;
        }
        (tested, naive)
    }};
}

fn all(run: impl Fn(&mut Rng) -> Outcome) {
    let outcomes: Vec<Outcome> = (0..SEEDS).map(|seed| run(&mut Rng::new(seed, 10, 0))).collect();
    has_seen(&outcomes, &[Reason::Full, Reason::PushedOut, Reason::TooBig]);
}

#[test]
fn drr_decides_as_its_twin_does() {
    all(|rng| {
        let (layout, weights, end) = draw(rng);
        let naive = Naive::new(Rule::Longest, end, &layout);
        let (tested, naive) = weighted!(Drr::new(&layout, end), naive, weights);
        hold(tested, naive, traffic(rng), rng)
    });
}

#[test]
fn tdrr_decides_as_its_twin_does() {
    all(|rng| {
        let (layout, weights, drop_from) = draw(rng);
        let averaging = match rng.below(2) {
            0 => TdrrOptions::PER_DEPARTURE.averaging,
            _ => Averaging::OverTime(Span::from_nanos(1 + rng.below(10_000_000))),
        };
        let naive = Naive::new(Rule::Fastest(averaging), drop_from, &layout);
        let tested = Tdrr::new(&layout, TdrrOptions { averaging, drop_from });
        let (tested, naive) = weighted!(tested, naive, weights);
        hold(tested, naive, traffic(rng), rng)
    });
}

#[test]
fn qsdrr_decides_as_its_twin_does() {
    all(|rng| {
        let (layout, weights, drop_from) = draw(rng);
        let strictly_smallest = rng.below(2) == 0;
        let release_below_percent = (rng.below(2) == 0).then(|| 1 + rng.below(100) as u8);
        let rule = Rule::Hysteresis { strictly: strictly_smallest, release_below_percent };
        let naive = Naive::new(rule, drop_from, &layout);
        let options = QsdrrOptions { drop_from, strictly_smallest, release_below_percent };
        let (tested, naive) = weighted!(Qsdrr::new(&layout, options), naive, weights);
        hold(tested, naive, traffic(rng), rng)
    });
}
