//! BBR's steady state: send a little faster now and then, drain what that queued, cruise.
//!
//! DOWN drains, CRUISE keeps the rate, REFILL fills the pipe for a round, UP sends a quarter faster
//! until the rate no longer follows or 2 % are lost (draft-ietf-ccwg-bbr-06, 5.3.3). The time
//! between two probes is the lesser of a Reno flow's cycle (as many round trips as the path holds
//! segments, at most 63) and 2 to 3 s, drawn anew each time so that flows do not march in step.

use nilometer_wire::{Span, Time};

use super::super::Window;
use super::model::{BETA, Sample};
use super::{Bbr, State};

/// Part of `inflight_longterm` that is left to others while cruising (3.2, 5.3.3.1).
const HEADROOM: f64 = 0.15;
/// Most round trips between two probes (5.3.3.8).
const RENO_ROUNDS_MAX: u64 = 63;
/// Least time between two probes, unless Reno's is less.
const PROBE_WAIT_MIN: Span = Span::from_secs(2);

/// The part of a probe to which the acknowledgements that arrive now belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// Where in its cycle a flow is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    pub(super) ack_phase: AckPhase,
    stamp: Time,
    wait: Span,
    pub(super) rounds_since_probe: u64,
    up_rounds: u32,
    up_acked: u64,
    acked_per_increase: u64,
    /// Whether losses now are answers to a probe that has not been answered yet.
    pub(super) is_probe_sample: bool,
    was_too_high: bool,
    was_precautionary: bool,
}

impl Cycle {
    pub(super) const fn new() -> Cycle {
        Cycle {
            ack_phase: AckPhase::Init,
            stamp: Time::ZERO,
            wait: Span::ZERO,
            rounds_since_probe: 0,
            up_rounds: 0,
            up_acked: 0,
            acked_per_increase: u64::MAX,
            is_probe_sample: false,
            was_too_high: false,
            was_precautionary: false,
        }
    }
}

impl Bbr {
    pub(super) fn start_down(&mut self, now: Time) {
        self.model.reset_signals();
        self.cycle.acked_per_increase = u64::MAX;
        let drawn = self.draw();
        self.cycle.rounds_since_probe = drawn & 1;
        self.cycle.wait = PROBE_WAIT_MIN + Span((drawn >> 1) % Span::from_secs(1).0);
        self.cycle.stamp = now;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.model.start_round(self.delivered);
        self.state = State::Down;
    }

    pub(super) fn start_refill(&mut self) {
        self.model.reset_shortterm();
        self.cycle.up_rounds = 0;
        self.cycle.up_acked = 0;
        self.cycle.was_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.model.start_round(self.delivered);
        self.state = State::Refill;
    }

    fn start_up(&mut self, window: &Window, rate: f64) {
        self.cycle.is_probe_sample = true;
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.model.start_round(self.delivered);
        self.model.full.reset(rate);
        self.state = State::Up;
        self.raise_slope(window);
    }

    /// The state machine (5.3.3.9, UpdateProbeBWCyclePhase).
    pub(super) fn update_cycle(&mut self, window: &Window, sample: &Sample) {
        if !self.model.full.is_reached || self.adapt_longterm(window, sample) {
            return;
        }
        if self.state == State::Up && self.is_time_to_go_down(window, sample) {
            self.cycle.was_too_high = false;
            self.start_down(sample.now);
            return;
        }
        match self.state {
            State::Down if self.is_time_to_probe(window, sample.now) => self.start_refill(),
            State::Down if self.is_time_to_cruise(sample.in_flight) => self.state = State::Cruise,
            State::Cruise if self.is_time_to_probe(window, sample.now) => self.start_refill(),
            State::Refill if self.model.round_start => self.start_up(window, sample.rate),
            _ => {}
        }
    }

    fn is_time_to_probe(&self, window: &Window, now: Time) -> bool {
        let reno_rounds = self.target_inflight(window) / u64::from(window.mss);
        now > self.cycle.stamp + self.cycle.wait
            || self.cycle.rounds_since_probe >= reno_rounds.min(RENO_ROUNDS_MAX)
    }

    fn is_time_to_cruise(&self, in_flight: u64) -> bool {
        in_flight <= self.inflight_with_headroom()
            && in_flight <= self.inflight(self.model.max_bw(), 1.0)
    }

    fn is_time_to_go_down(&mut self, window: &Window, sample: &Sample) -> bool {
        let longterm = self.model.inflight_longterm;
        if self.cycle.was_too_high && sample.in_flight >= longterm {
            self.cycle.was_precautionary = true;
            return true;
        }
        if sample.is_window_limited && window.cwnd >= longterm {
            self.model.full.reset(sample.rate);
            return false;
        }
        self.model.full.is_now
    }

    /// What should be in flight: the estimated BDP, unless losses cut the window.
    fn target_inflight(&self, window: &Window) -> u64 {
        self.bdp(self.model.bw(), 1.0).min(window.cwnd)
    }

    /// The long-term volume less room for others (5.3.3.9).
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        let longterm = self.model.inflight_longterm;
        if longterm == u64::MAX {
            return u64::MAX;
        }
        let headroom = ((longterm as f64 * HEADROOM) as u64).max(self.mss);
        longterm.saturating_sub(headroom).max(self.least_window())
    }

    fn raise_slope(&mut self, window: &Window) {
        let growth = 1 << self.cycle.up_rounds;
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(30);
        self.cycle.acked_per_increase = (window.cwnd / growth).max(self.mss);
    }

    fn raise_longterm(&mut self, window: &Window, sample: &Sample) {
        if !sample.is_window_limited || window.cwnd < self.model.inflight_longterm {
            return;
        }
        self.cycle.up_acked += sample.bytes;
        let increases = self.cycle.up_acked / self.cycle.acked_per_increase;
        self.cycle.up_acked -= increases * self.cycle.acked_per_increase;
        self.model.inflight_longterm += increases * self.mss;
        if self.model.round_start {
            self.raise_slope(window);
        }
    }

    /// Moves the long-term model; true when it decided the next phase (5.3.3.9).
    fn adapt_longterm(&mut self, window: &Window, sample: &Sample) -> bool {
        let is_probing_state = self.state.is_probe_bw();
        if self.model.round_start && self.cycle.ack_phase == AckPhase::ProbeStarting {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.model.round_start && self.cycle.ack_phase == AckPhase::ProbeStopping {
            self.cycle.is_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            if is_probing_state && !sample.delivery.is_app_limited {
                self.model.advance_cycle();
            }
            let was_safe = self.cycle.was_precautionary && !self.cycle.was_too_high;
            if is_probing_state && was_safe {
                self.start_refill();
                return true;
            }
        }
        let longterm = self.model.inflight_longterm;
        if !sample.is_inflight_too_high() && longterm != u64::MAX {
            self.model.inflight_longterm = longterm.max(sample.delivery.sent_in_flight);
            if self.state == State::Up {
                self.raise_longterm(window, sample);
            }
        }
        false
    }

    /// A probe lost too much with `in_flight` bytes under way (5.5.10.2).
    pub(super) fn handle_too_high(&mut self, now: Time, window: &Window, in_flight: Option<u64>) {
        self.cycle.was_too_high = true;
        self.cycle.is_probe_sample = false;
        if let Some(in_flight) = in_flight {
            let least = (self.target_inflight(window) as f64 * BETA) as u64;
            self.model.inflight_longterm = in_flight.max(least);
        }
        if self.state == State::Up {
            self.undo_state = Some(State::Up);
            self.start_down(now);
        }
    }
}
