//! BBR's model of the path: how fast it delivers, how much it holds, and since when.
//!
//! Two time scales (draft-ietf-ccwg-bbr-06, 3.4). The long term remembers the best: the highest
//! delivery rate of this probing cycle and the last, and `inflight_longterm`, the volume at which
//! probing last met losses. The short term remembers the worst since the last probe: each round with
//! losses pulls `bw_shortterm` and `inflight_shortterm` down to what was delivered in it, at most to
//! 0.7. Rates are bytes per second, volumes bytes.

use nilometer_wire::{Span, Time};

use super::super::Delivery;

/// Part that remains after a cut, as CUBIC's (5.5.10.2).
pub(super) const BETA: f64 = 0.7;
/// Losses per round that are taken for a full buffer (3.2).
const LOSS_THRESH: f64 = 0.02;
/// Growth per round below which the pipe is taken to be full (5.3.1.2).
const FULL_BW_GROWTH: f64 = 1.25;
/// Rounds without growth after which the pipe counts as full.
const FULL_BW_ROUNDS: u32 = 3;
/// Half of the rounds that acknowledgement aggregation is remembered (5.5.9: 10).
const EXTRA_ACKED_HALF: u64 = 5;

/// An acknowledgement with its delivery-rate sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Time,
    pub(super) bytes: u64,
    pub(super) rtt: Option<Span>,
    pub(super) in_flight: u64,
    pub(super) is_window_limited: bool,
    pub(super) in_recovery: bool,
    /// Bytes per second, or zero.
    pub(super) rate: f64,
    pub(super) delivery: Delivery,
}

impl Sample {
    /// Bytes delivered over the sample.
    pub(super) fn volume(&self) -> u64 {
        self.delivery.delivered.saturating_sub(self.delivery.prior_delivered)
    }

    /// Whether more than 2 % of what was in flight was lost (5.5.10.2).
    pub(super) fn is_inflight_too_high(&self) -> bool {
        is_too_high(self.delivery.lost, self.delivery.sent_in_flight)
    }
}

/// Whether `lost` of `in_flight` bytes are more than the path should lose.
pub(super) fn is_too_high(lost: u64, in_flight: u64) -> bool {
    lost as f64 > in_flight as f64 * LOSS_THRESH
}

/// The volume at which losses passed the threshold, within a segment of `bytes` (5.5.10.2).
pub(super) fn inflight_at_loss(bytes: u64, lost: u64, in_flight: u64) -> u64 {
    let before = in_flight.saturating_sub(bytes) as f64;
    let lost_before = lost.saturating_sub(bytes) as f64;
    let prefix = (LOSS_THRESH * before - lost_before) / (1.0 - LOSS_THRESH);
    (before + prefix).max(0.0) as u64
}

/// Whether sending faster still brings more (5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    /// Whether it ever did not.
    pub(super) is_reached: bool,
    /// Whether it does not now.
    pub(super) is_now: bool,
    baseline: f64,
    rounds: u32,
}

impl FullPipe {
    /// Starts anew from `baseline` bytes per second.
    pub(super) fn reset(&mut self, baseline: f64) {
        *self = FullPipe { is_reached: self.is_reached, is_now: false, baseline, rounds: 0 };
    }

    fn on_round(&mut self, rate: f64) {
        if rate >= self.baseline * FULL_BW_GROWTH {
            self.reset(rate);
            return;
        }
        self.rounds += 1;
        self.is_now = self.rounds >= FULL_BW_ROUNDS;
        self.is_reached |= self.is_now;
    }
}

/// How much more than expected is acknowledged at once (5.5.9): the maximum over this and the last
/// half of a window.
#[derive(Clone, Copy, Debug)]
struct Aggregation {
    start: Time,
    delivered: u64,
    most: [u64; 2],
    since_round: u64,
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// Highest rate of the last probing cycle and of this one.
    cycles: [f64; 2],
    pub(super) bw_shortterm: f64,
    pub(super) inflight_shortterm: u64,
    pub(super) inflight_longterm: u64,
    pub(super) full: FullPipe,
    pub(super) round_count: u64,
    /// Whether this acknowledgement ends a round.
    pub(super) round_start: bool,
    next_round_delivered: u64,
    /// Whether it ends a round that is counted from the last loss.
    pub(super) loss_round_start: bool,
    loss_round_delivered: u64,
    pub(super) is_loss_in_round: bool,
    /// Acknowledgements that found losses in this round, and when the last one did.
    pub(super) loss_events: u32,
    last_loss: Option<Time>,
    bw_latest: f64,
    pub(super) inflight_latest: u64,
    aggregation: Aggregation,
}

impl Model {
    pub(super) fn new() -> Model {
        Model {
            cycles: [0.0; 2],
            bw_shortterm: f64::INFINITY,
            inflight_shortterm: u64::MAX,
            inflight_longterm: u64::MAX,
            full: FullPipe::default(),
            round_count: 0,
            round_start: false,
            next_round_delivered: 0,
            loss_round_start: false,
            loss_round_delivered: 0,
            is_loss_in_round: false,
            loss_events: 0,
            last_loss: None,
            bw_latest: 0.0,
            inflight_latest: 0,
            aggregation: Aggregation {
                start: Time::ZERO,
                delivered: 0,
                most: [0; 2],
                since_round: 0,
            },
        }
    }

    /// The highest rate of two cycles.
    pub(super) fn max_bw(&self) -> f64 {
        self.cycles[0].max(self.cycles[1])
    }

    /// The rate that the path is taken to have.
    pub(super) fn bw(&self) -> f64 {
        self.max_bw().min(self.bw_shortterm)
    }

    /// Bytes that one acknowledgement may exceed the expected by.
    pub(super) fn extra_acked(&self) -> u64 {
        self.aggregation.most[0].max(self.aggregation.most[1])
    }

    /// A round begins when `delivered` bytes have been delivered.
    pub(super) fn start_round(&mut self, delivered: u64) {
        self.next_round_delivered = delivered;
    }

    /// A probing cycle ended: its rates are now the last one's (5.5.6).
    pub(super) fn advance_cycle(&mut self) {
        if self.cycles[1] > 0.0 {
            self.cycles = [self.cycles[1], 0.0];
        }
    }

    /// Forgets the short term (5.5.10.3).
    pub(super) fn reset_shortterm(&mut self) {
        self.bw_shortterm = f64::INFINITY;
        self.inflight_shortterm = u64::MAX;
    }

    /// Forgets the signals of this round (5.5.10.3).
    pub(super) fn reset_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = 0.0;
        self.inflight_latest = 0;
    }

    /// Measures aggregation from `now` on.
    pub(super) fn restart_aggregation(&mut self, now: Time) {
        self.aggregation.start = now;
        self.aggregation.delivered = 0;
    }

    /// Something was lost; true when it was the first in this round (5.5.10.2, NoteLoss).
    pub(super) fn note_loss(&mut self, now: Time, delivered: u64) -> bool {
        if self.last_loss != Some(now) {
            self.last_loss = Some(now);
            self.loss_events += 1;
        }
        let is_first = !self.is_loss_in_round;
        if is_first {
            self.loss_round_delivered = delivered;
        }
        self.is_loss_in_round = true;
        is_first
    }

    /// The first half of an acknowledgement's work: rounds, rates, losses of the round, aggregation
    /// and the full pipe. `is_probing` while the sender deliberately sends too fast.
    pub(super) fn update(&mut self, sample: &Sample, is_probing: bool, cwnd: u64) {
        let delivery = &sample.delivery;
        self.bw_latest = self.bw_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.volume());
        self.loss_round_start = delivery.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = delivery.delivered;
        }
        self.round_start = delivery.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round(delivery.delivered);
            self.round_count += 1;
        }
        if sample.rate > 0.0 && (sample.rate >= self.max_bw() || !delivery.is_app_limited) {
            self.cycles[1] = self.cycles[1].max(sample.rate);
        }
        if self.loss_round_start {
            if self.is_loss_in_round && !is_probing {
                self.lower_bounds(cwnd);
            }
            self.is_loss_in_round = false;
        }
        self.aggregate(sample, cwnd);
        if self.round_start && !self.full.is_now && !delivery.is_app_limited {
            self.full.on_round(sample.rate);
        }
    }

    /// The second half, when the state machine is done (5.5.10.3).
    pub(super) fn finish(&mut self, sample: &Sample) {
        if self.loss_round_start {
            self.bw_latest = sample.rate;
            self.inflight_latest = sample.volume();
            self.loss_events = 0;
        }
    }

    fn lower_bounds(&mut self, cwnd: u64) {
        if self.bw_shortterm == f64::INFINITY {
            self.bw_shortterm = self.max_bw();
        }
        if self.inflight_shortterm == u64::MAX {
            self.inflight_shortterm = cwnd;
        }
        self.bw_shortterm = self.bw_latest.max(BETA * self.bw_shortterm);
        let cut = (BETA * self.inflight_shortterm as f64) as u64;
        self.inflight_shortterm = self.inflight_latest.max(cut);
    }

    fn aggregate(&mut self, sample: &Sample, cwnd: u64) {
        let bw = self.bw();
        let half = if self.full.is_reached { EXTRA_ACKED_HALF } else { 1 };
        let aggregation = &mut self.aggregation;
        let mut expected = bw * sample.now.since(aggregation.start).as_secs_f64();
        if aggregation.delivered as f64 <= expected {
            (aggregation.start, aggregation.delivered, expected) = (sample.now, 0, 0.0);
        }
        aggregation.delivered += sample.bytes;
        let extra = (aggregation.delivered as f64 - expected) as u64;
        if self.round_count >= aggregation.since_round + half {
            aggregation.most = [aggregation.most[1], 0];
            aggregation.since_round = self.round_count;
        }
        aggregation.most[1] = aggregation.most[1].max(extra.min(cwnd));
    }
}
