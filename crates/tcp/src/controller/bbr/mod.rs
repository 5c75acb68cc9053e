//! BBR: pace at the rate that the path delivers, with no more under way than it holds.
//!
//! Version 3, after draft-ietf-ccwg-bbr-06; its names are kept and its sections cited. Reno and CUBIC
//! find a full path by overflowing its queue. BBR measures two things instead, the highest rate at
//! which its data is delivered and the least round-trip time, whose product (BDP) is what the path
//! holds without a queue. The two cannot be seen at once: the rate shows only when the path is
//! full, the least round-trip time only when no queue stands. So the sender goes through states:
//!
//! ```text
//! Startup ──► Drain ──► Down ──► Cruise ──► Refill ──► Up ──► Down …       every 2 to 3 s or 63 rounds
//!                 (any) ──► ProbeRtt ──► Cruise or Startup                 every 5 s without a new minimum
//! ```
//!
//! Startup doubles the rate each round until it no longer follows for three rounds, or until 2 % are
//! lost; Drain takes away the queue that this made. `probe_bw.rs` holds the steady state, `model.rs`
//! the model of the path, `min_rtt.rs` when ProbeRtt is due. The result is a pacing rate and a
//! window; the window, twice the BDP, allows for acknowledgements that arrive in lumps and is never
//! meant to fill queues.
//!
//! Choices that the draft leaves open: a send quantum is one segment, since nothing is offloaded here; six
//! lossy acknowledgements (and not sequence ranges) in a round are needed to leave Startup, as in
//! Linux; an ECN mark counts as a loss for the short-term model (3.7); and while ProbeRtt holds the
//! rate down, samples are called application-limited here and not in the sender.

mod min_rtt;
mod model;
mod probe_bw;
#[cfg(test)]
mod tests;

use nilometer_wire::{Rate, Span, Time};

use super::{Acked, Congestion, Controller, Lost, Window};
use min_rtt::MinRtt;
use model::{Model, Sample};
use probe_bw::{AckPhase, Cycle};

/// 4 ln 2: the rate doubles each round (5.3.1.1).
const STARTUP_PACING_GAIN: f64 = 2.77;
/// What remains of the rate after pacing 1 % below it (5.6.2).
const PACING_MARGIN: f64 = 0.99;
/// Rounds after which Drain gives up (5.3.2).
const DRAIN_ROUNDS: u64 = 3;
/// Lossy acknowledgements in a round that end Startup (5.3.1.3).
const STARTUP_LOSS_EVENTS: u32 = 6;
/// How long ProbeRtt keeps half of a BDP under way (5.3.4.1).
const PROBE_RTT_DURATION: Span = Span::from_nanos(200_000_000);
const PROBE_RTT_GAIN: f64 = 0.5;
/// Segments for the least window (5.6.4.3).
const LEAST_SEGMENTS: u64 = 4;
/// Segments that stay in sending and receiving ends (5.5.8.1).
const OFFLOAD_SEGMENTS: u64 = 3;
/// The round-trip time assumed before one was measured (5.6.2).
const NOMINAL_RTT: Span = Span::from_nanos(1_000_000);

/// A state of the machine (5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// Times the delivery rate at which segments leave (5.6.1).
    const fn pacing_gain(self) -> f64 {
        match self {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => 0.5,
            State::Down => 0.9,
            State::Up => 1.25,
            State::Cruise | State::Refill | State::ProbeRtt => 1.0,
        }
    }

    /// Times the BDP that may be under way (5.6.1).
    const fn cwnd_gain(self) -> f64 {
        match self {
            State::Up => 2.25,
            State::ProbeRtt => PROBE_RTT_GAIN,
            _ => 2.0,
        }
    }

    const fn is_probe_bw(self) -> bool {
        matches!(self, State::Down | State::Cruise | State::Refill | State::Up)
    }

    /// Whether losses are what the state is asking for.
    const fn is_probing(self) -> bool {
        matches!(self, State::Startup | State::Refill | State::Up)
    }
}

/// What the sender is recovering from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovering {
    No,
    Fast,
    /// Until this many bytes were delivered: all that was under way when the timer ran out.
    Timeout(u64),
}

/// What a needless recovery gives back (5.5.11.1).
#[derive(Clone, Copy, Debug)]
struct Before {
    bw_shortterm: f64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
}

/// BBR's state.
#[derive(Clone, Debug)]
pub struct Bbr {
    state: State,
    model: Model,
    min_rtt: MinRtt,
    cycle: Cycle,
    /// Bytes per second at which segments leave.
    pacing: f64,
    mss: u64,
    initial_cwnd: u64,
    has_rtt: bool,
    delivered: u64,
    /// Segments sent at these counts of delivered bytes are application-limited.
    limited: [u64; 2],
    drain_start_round: u64,
    probe_rtt_done: Option<Time>,
    probe_rtt_round_done: bool,
    is_idle_restart: bool,
    recovering: Recovering,
    prior_cwnd: u64,
    undo_state: Option<State>,
    before: Option<Before>,
    random: u64,
}

impl Bbr {
    /// A controller in Startup for a connection that starts with `window`. The waits between its
    /// probes are drawn from `seed`; flows with the same seed probe at the same times.
    pub fn new(window: &Window, seed: u64) -> Bbr {
        let mut bbr = Bbr {
            state: State::Startup,
            model: Model::new(),
            min_rtt: MinRtt::new(),
            cycle: Cycle::new(),
            pacing: 0.0,
            mss: u64::from(window.mss),
            initial_cwnd: window.cwnd,
            has_rtt: false,
            delivered: 0,
            limited: [u64::MAX, 0],
            drain_start_round: 0,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            is_idle_restart: false,
            recovering: Recovering::No,
            prior_cwnd: 0,
            undo_state: None,
            before: None,
            random: seed,
        };
        bbr.init_pacing(NOMINAL_RTT);
        bbr
    }

    /// 64 random bits: SplitMix64 (Steele, Lea, Flood 2014). A flow draws once in some seconds, so
    /// a word of state is worth more than quality.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.random;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn init_pacing(&mut self, rtt: Span) {
        let nominal = self.initial_cwnd as f64 / rtt.as_secs_f64().max(1e-9);
        self.pacing = STARTUP_PACING_GAIN * nominal;
    }

    fn least_window(&self) -> u64 {
        LEAST_SEGMENTS * self.mss
    }

    /// `gain` times what the path holds at `bw` (5.6.4.2, BDPMultiple).
    fn bdp(&self, bw: f64, gain: f64) -> u64 {
        match self.min_rtt.least() {
            Some(rtt) => (gain * bw * rtt.as_secs_f64()) as u64,
            None => self.initial_cwnd,
        }
    }

    /// At least what keeps both ends busy (5.6.4.2, QuantizationBudget).
    fn quantized(&self, bytes: u64) -> u64 {
        let probe = if self.state == State::Up { 2 * self.mss } else { 0 };
        bytes.max(OFFLOAD_SEGMENTS * self.mss).max(self.least_window()) + probe
    }

    fn inflight(&self, bw: f64, gain: f64) -> u64 {
        self.quantized(self.bdp(bw, gain))
    }

    fn sample(&self, acked: &Acked) -> Option<Sample> {
        let mut delivery = acked.delivery?;
        let sent_at = delivery.prior_delivered;
        delivery.is_app_limited |= (self.limited[0]..=self.limited[1]).contains(&sent_at);
        Some(Sample {
            now: acked.now,
            bytes: acked.bytes,
            rtt: acked.rtt,
            in_flight: acked.in_flight,
            is_window_limited: acked.is_window_limited,
            in_recovery: acked.in_recovery,
            rate: delivery.bytes_per_second as f64,
            delivery,
        })
    }

    /// 5.2.3, UpdateModelAndState.
    fn update_model(&mut self, window: &mut Window, sample: &Sample) {
        self.delivered = sample.delivery.delivered;
        self.model.update(sample, self.state.is_probing(), window.cwnd);
        if self.model.round_start {
            self.cycle.rounds_since_probe += 1;
        }
        self.check_startup(sample);
        self.check_drain(sample);
        self.update_cycle(window, sample);
        self.min_rtt.update(sample.now, sample.rtt);
        self.check_probe_rtt(window, sample);
        self.model.finish(sample);
    }

    /// Leaves Startup when the pipe is full or loses too much (5.3.1).
    fn check_startup(&mut self, sample: &Sample) {
        let is_lossy = self.model.loss_round_start
            && sample.in_recovery
            && self.model.loss_events >= STARTUP_LOSS_EVENTS
            && sample.is_inflight_too_high();
        if is_lossy && !self.model.full.is_reached {
            self.undo_state = Some(State::Startup);
            self.model.full.is_reached = true;
            let bdp = self.bdp(self.model.bw(), 1.0);
            self.model.inflight_longterm = bdp.max(self.model.inflight_latest);
        }
        if self.state == State::Startup && self.model.full.is_reached {
            self.state = State::Drain;
            self.drain_start_round = self.model.round_count;
        }
    }

    fn check_drain(&mut self, sample: &Sample) {
        let is_over = sample.in_flight <= self.inflight(self.model.bw(), 1.0)
            || self.model.round_count > self.drain_start_round + DRAIN_ROUNDS;
        if self.state == State::Drain && is_over {
            self.start_down(sample.now);
        }
    }

    /// Enters, holds and leaves ProbeRtt (5.3.4.3).
    fn check_probe_rtt(&mut self, window: &mut Window, sample: &Sample) {
        if self.state != State::ProbeRtt && self.min_rtt.is_expired && !self.is_idle_restart {
            self.save_cwnd(window);
            self.state = State::ProbeRtt;
            self.probe_rtt_done = None;
            self.cycle.ack_phase = AckPhase::ProbeStopping;
            self.model.start_round(self.delivered);
        }
        if self.state == State::ProbeRtt {
            self.hold_probe_rtt(window, sample);
        }
        self.is_idle_restart &= sample.volume() == 0;
    }

    fn hold_probe_rtt(&mut self, window: &mut Window, sample: &Sample) {
        if self.delivered > self.limited[1] || self.limited[0] > self.limited[1] {
            self.limited[0] = self.delivered;
        }
        self.limited[1] = self.delivered + sample.in_flight;
        if self.probe_rtt_done.is_none() {
            if sample.in_flight <= self.probe_rtt_cwnd() {
                self.probe_rtt_done = Some(sample.now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.model.start_round(self.delivered);
            }
        } else {
            self.probe_rtt_round_done |= self.model.round_start;
            if self.probe_rtt_round_done {
                self.check_probe_rtt_done(sample.now, window);
            }
        }
    }

    fn check_probe_rtt_done(&mut self, now: Time, window: &mut Window) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.min_rtt.postpone(now);
        window.cwnd = window.cwnd.max(self.prior_cwnd);
        self.model.reset_shortterm();
        if self.model.full.is_reached {
            self.start_down(now);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp(self.model.bw(), PROBE_RTT_GAIN).max(self.least_window())
    }

    /// Remembers the last window that neither losses nor ProbeRtt held down (5.6.4.4).
    fn save_cwnd(&mut self, window: &Window) {
        let is_free = self.recovering == Recovering::No && self.state != State::ProbeRtt;
        self.prior_cwnd = if is_free { window.cwnd } else { self.prior_cwnd.max(window.cwnd) };
    }

    fn note_loss(&mut self, now: Time, window: &Window) {
        if self.model.note_loss(now, self.delivered) {
            self.save_cwnd(window);
            self.undo_state = None;
            self.before = Some(Before {
                bw_shortterm: self.model.bw_shortterm,
                inflight_shortterm: self.model.inflight_shortterm,
                inflight_longterm: self.model.inflight_longterm,
            });
        }
    }

    /// Gives the window back when a recovery is over (5.6.4.4).
    fn check_recovered(&mut self, window: &mut Window, acked: &Acked) {
        let is_over = match self.recovering {
            Recovering::No => false,
            Recovering::Fast => !acked.in_recovery,
            Recovering::Timeout(until) => self.delivered >= until,
        };
        if is_over {
            self.recovering = Recovering::No;
            window.cwnd = window.cwnd.max(self.prior_cwnd);
        }
    }

    fn set_pacing(&mut self, gain: f64) {
        let rate = gain * self.model.bw() * PACING_MARGIN;
        if self.model.full.is_reached || rate > self.pacing {
            self.pacing = rate;
        }
    }

    /// 5.6.4.6 and 5.6.4.7.
    fn set_cwnd(&self, window: &mut Window, bytes: u64) {
        let bdp = self.bdp(self.model.bw(), self.state.cwnd_gain());
        let max_inflight = self.quantized(bdp + self.model.extra_acked());
        let mut cwnd = window.cwnd;
        if self.model.full.is_reached {
            cwnd = (cwnd + bytes).min(max_inflight);
        } else if cwnd < max_inflight || self.delivered < self.initial_cwnd {
            cwnd += bytes;
        }
        cwnd = cwnd.max(self.least_window());
        let longterm = match self.state {
            State::Startup | State::Drain => u64::MAX,
            State::Down | State::Refill | State::Up => self.model.inflight_longterm,
            State::Cruise | State::ProbeRtt => self.inflight_with_headroom(),
        };
        if self.state == State::ProbeRtt {
            cwnd = cwnd.min(self.probe_rtt_cwnd());
        }
        let cap = longterm.min(self.model.inflight_shortterm).max(self.least_window());
        window.cwnd = cwnd.min(cap);
    }
}

impl Controller for Bbr {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        if let Some(rtt) = acked.smoothed_rtt.filter(|_| !self.has_rtt) {
            self.has_rtt = true;
            self.init_pacing(rtt);
        }
        if let Some(sample) = self.sample(acked) {
            self.update_model(window, &sample);
        }
        self.check_recovered(window, acked);
        self.set_pacing(self.state.pacing_gain());
        self.set_cwnd(window, acked.bytes);
    }

    fn on_congestion(&mut self, now: Time, window: &mut Window, cause: Congestion, in_flight: u64) {
        self.note_loss(now, window);
        match cause {
            Congestion::Marked => {}
            Congestion::Loss => {
                self.save_cwnd(window);
                self.recovering = Recovering::Fast;
            }
            Congestion::Timeout => {
                self.save_cwnd(window);
                self.recovering = Recovering::Timeout(self.delivered + in_flight);
                window.cwnd = self.mss;
            }
        }
    }

    /// 5.5.11.2.
    fn undo(&mut self, _: Time, window: &mut Window) {
        let Some(before) = self.before.take() else { return };
        self.recovering = Recovering::No;
        window.cwnd = window.cwnd.max(self.prior_cwnd);
        let model = &mut self.model;
        model.is_loss_in_round = false;
        model.full.reset(0.0);
        model.bw_shortterm = model.bw_shortterm.max(before.bw_shortterm);
        model.inflight_shortterm = model.inflight_shortterm.max(before.inflight_shortterm);
        model.inflight_longterm = model.inflight_longterm.max(before.inflight_longterm);
        let is_held = self.state == State::ProbeRtt;
        match self.undo_state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.model.full.is_reached = false;
                self.state = if is_held { self.state } else { State::Startup };
            }
            Some(State::Up) if self.state != State::Up && !is_held => self.start_refill(),
            _ => {}
        }
    }

    fn on_lost(&mut self, window: &mut Window, lost: &Lost) {
        self.delivered = lost.delivered;
        self.note_loss(lost.now, window);
        if self.cycle.is_probe_sample && model::is_too_high(lost.lost, lost.sent_in_flight) {
            let in_flight = model::inflight_at_loss(lost.bytes, lost.lost, lost.sent_in_flight);
            let in_flight = (!lost.is_app_limited).then_some(in_flight);
            self.handle_too_high(lost.now, window, in_flight);
        }
    }

    fn on_restart(&mut self, now: Time, window: &mut Window, _: Span) {
        self.is_idle_restart = true;
        self.model.restart_aggregation(now);
        if self.state.is_probe_bw() {
            self.set_pacing(1.0);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now, window);
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Rate::new((self.pacing * 8.0).max(1.0) as u64)
    }

    fn owns_recovery(&self) -> bool {
        true
    }

    fn needs_delivery(&self) -> bool {
        true
    }
}
