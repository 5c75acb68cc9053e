//! PIE: drops arrivals at a probability that a controller steers by the queueing delay.
//!
//! RFC 8033. Every 15 ms the probability is corrected by what the delay is off its target and by
//! what it has changed,
//!
//! p ← p + scale(p)·(α·(delay − target) + β·(delay − delay before)),
//!
//! where the scale is smaller while p is small (section 4.2: 1/2048 below 10⁻⁶ up to 1 from 0.1
//! on), so that a controller that is quick under heavy load does not swing under a light one. A step
//! is at most 0.02 once p has reached 0.1; p decays by 2 % per period while there is no delay at all.
//! No arrival is dropped while a burst allowance of 150 ms lasts, which is renewed when p is zero and
//! delays are below half the target (section 4.4), nor while the delay is below half the target and p
//! is below 0.2, nor while at most two packets wait (section 4.1).
//!
//! The delay is either what waits over the rate of departure, measured over stretches of 16 KiB in
//! which the link never rests (section 4.3), or the waiting time of the packet that left last,
//! zero once the queue is empty (section 5.2).
//!
//! A discipline has no timer. Nothing that the controller reads changes between two events, so the
//! updates that have come due are made at the next event, before it, each with the state of its
//! moment; from the first that changes nothing on, all the others would change nothing either, and
//! are passed over.

use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

use crate::bounded::Bounded;
use crate::capacity::Capacity;
use crate::codel::{Source, Stamped};
use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::settings_error::SettingsError;

/// DQ_THRESHOLD: bytes over which the rate of departure is measured.
const STRETCH_BYTES: u64 = 1 << 14;
/// The weight of the newest stretch: DQ_THRESHOLD / 2¹⁶.
const STRETCH_WEIGHT: f64 = 0.25;
/// Below this probability a short delay protects arrivals.
const PROTECTED_BELOW: f64 = 0.2;
/// The probability from which on a step is bounded, and the bound.
const BOUNDED_FROM: f64 = 0.1;
const LARGEST_STEP: f64 = 0.02;
/// What is left of the probability after a period without delay.
const DECAY: f64 = 0.98;
/// Packets of the MTU that may always wait.
const PROTECTED_PACKETS: u64 = 2;
/// Without luck: no drop before the probabilities since the last one sum to this, one for certain
/// when they sum to that (section 5.4).
const LEAST_SUM: f64 = 0.85;
const MOST_SUM: f64 = 8.5;
/// The probabilities below which a step is divided, and by what (section 4.2).
const SCALES: [(f64, f64); 6] = [
    (0.000_001, 2_048.0),
    (0.000_01, 512.0),
    (0.000_1, 128.0),
    (0.001, 32.0),
    (0.01, 8.0),
    (0.1, 2.0),
];

/// How PIE estimates the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// What waits over the measured rate of departure.
    DepartureRate,
    /// How long the packet that left last had waited.
    Timestamp,
}

/// PIE's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PieOptions {
    /// QDELAY_REF: the delay to be reached; not zero.
    pub target: Span,
    /// T_UPDATE: the time between updates; at least 10 us, because those missed during an idle time are
    /// made up one by one.
    pub update: Span,
    /// α, per second, of what the delay is off its target.
    pub alpha: f64,
    /// β, per second, of what the delay has changed.
    pub beta: f64,
    /// MAX_BURST: how long a burst is let through.
    pub burst: Span,
    /// How the delay is estimated.
    pub delay: Delay,
    /// Whether drops are spaced (section 5.4).
    pub derandomise: bool,
    /// Below this probability packets that are capable of ECN are marked instead of dropped
    /// (section 5.1: 0.1). `None`: never.
    pub mark_below: Option<f64>,
}

impl Default for PieOptions {
    /// RFC 8033, sections 4 and 5: target and update 15 ms, α 0.125, β 1.25, bursts of 150 ms, the
    /// rate of departure; neither spacing nor marking.
    fn default() -> PieOptions {
        PieOptions {
            target: Span(15_000_000_000),
            update: Span(15_000_000_000),
            alpha: 0.125,
            beta: 1.25,
            burst: Span(150_000_000_000),
            delay: Delay::DepartureRate,
            derandomise: false,
            mark_below: None,
        }
    }
}

/// The shortest time between updates.
const UPDATE_MIN: Span = Span::from_nanos(10_000);

impl PieOptions {
    fn check(&self) -> Result<(), SettingsError> {
        let is_gain = |value: f64| value >= 0.0 && value.is_finite();
        let fault = if self.target == Span::ZERO {
            "target is zero"
        } else if self.update < UPDATE_MIN {
            "update is less than 10 us"
        } else if !is_gain(self.alpha) || !is_gain(self.beta) {
            "alpha or beta is negative or not finite"
        } else if self.mark_below.is_some_and(|below| !(0.0..=1.0).contains(&below)) {
            "mark_below is not in [0, 1]"
        } else {
            return Ok(());
        };
        Err(SettingsError::Pie(fault))
    }
}

/// What an update changes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Control {
    probability: f64,
    /// Seconds, at the last update.
    delay: f64,
    burst_left: Span,
}

impl Control {
    /// One update; `delay` is the delay now, in seconds.
    fn update(&mut self, delay: f64, options: &PieOptions) {
        let target = options.target.as_secs_f64();
        let mut step = options.alpha * (delay - target) + options.beta * (delay - self.delay);
        if let Some((_, divisor)) = SCALES.iter().find(|(below, _)| self.probability < *below) {
            step /= divisor;
        }
        if self.probability >= BOUNDED_FROM {
            step = step.min(LARGEST_STEP);
        }
        self.probability += step;
        if delay == 0.0 && self.delay == 0.0 {
            self.probability *= DECAY;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.burst_left = self.burst_left - options.update;
        let is_calm = delay < target / 2.0 && self.delay < target / 2.0;
        if self.probability == 0.0 && is_calm {
            self.burst_left = options.burst;
        }
        self.delay = delay;
    }
}

/// A stretch of departures without rest: since when, and bytes so far.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    began: Time,
    bytes: u64,
}

/// The PIE queue.
#[derive(Clone, Debug)]
pub struct Pie<P> {
    waiting: Bounded<Stamped<P>>,
    options: PieOptions,
    mtu_bytes: u32,
    control: Control,
    next_update: Time,
    stretch: Option<Stretch>,
    /// Of departure, in bytes per second; zero when it is not known yet.
    rate: f64,
    /// How long the last packet had waited.
    waited: Span,
    /// The probabilities since the last drop, also one by a full buffer.
    sum: f64,
    rng: Rng,
}

impl<P: Packet> Pie<P> {
    /// An empty queue that holds `capacity` and sends packets of at most `mtu_bytes`, its chances
    /// drawn from `rng`.
    ///
    /// # Errors
    /// When the capacity is zero or `options` are out of their ranges.
    pub fn new(
        capacity: Capacity,
        mtu_bytes: u32,
        options: PieOptions,
        rng: Rng,
    ) -> Result<Pie<P>, SettingsError> {
        options.check()?;
        if capacity.limit() == 0 {
            return Err(SettingsError::NoCapacity);
        }
        Ok(Pie {
            waiting: Bounded::new(capacity),
            options,
            mtu_bytes,
            control: Control { probability: 0.0, delay: 0.0, burst_left: options.burst },
            next_update: Time::ZERO + options.update,
            stretch: None,
            rate: 0.0,
            waited: Span::ZERO,
            sum: 0.0,
            rng,
        })
    }

    /// p, as of the last event.
    pub fn probability(&self) -> f64 {
        self.control.probability
    }

    /// The delay now, in seconds.
    fn delay(&self) -> f64 {
        match self.options.delay {
            Delay::Timestamp => self.waited.as_secs_f64(),
            Delay::DepartureRate if self.rate > 0.0 => self.waiting.bytes() as f64 / self.rate,
            Delay::DepartureRate => 0.0,
        }
    }

    /// Makes every update that is due by `now`.
    fn catch_up(&mut self, now: Time) {
        let delay = self.delay();
        while self.next_update <= now {
            let before = self.control;
            self.control.update(delay, &self.options);
            let mut periods = 1;
            if self.control == before {
                periods += now.since(self.next_update).0 / self.options.update.0;
            }
            self.next_update += self.options.update * periods;
            if self.next_update == Time(u64::MAX) {
                return; // the end of time: no update comes after it
            }
        }
    }

    /// Whether the next arrival is unlucky.
    fn chooses(&mut self) -> bool {
        let Control { probability, delay, burst_left } = self.control;
        let is_short = delay < self.options.target.as_secs_f64() / 2.0;
        let few_bytes = PROTECTED_PACKETS * u64::from(self.mtu_bytes);
        if burst_left > Span::ZERO
            || is_short && probability < PROTECTED_BELOW
            || self.waiting.bytes() <= few_bytes
        {
            return false;
        }
        if self.options.derandomise {
            self.sum = if probability == 0.0 { 0.0 } else { self.sum + probability };
            if self.sum < LEAST_SUM {
                return false;
            }
        }
        let is_due = self.options.derandomise && self.sum >= MOST_SUM;
        let is_chosen = is_due || self.rng.unit() < probability;
        if is_chosen {
            self.sum = 0.0;
        }
        is_chosen
    }

    /// Measures the rate of departure by a packet of `bytes` that leaves at `now`.
    fn measure(&mut self, now: Time, bytes: u32) {
        if self.stretch.is_none() && self.waiting.bytes() >= STRETCH_BYTES {
            self.stretch = Some(Stretch { began: now, bytes: 0 });
        }
        let Some(stretch) = &mut self.stretch else { return };
        stretch.bytes += u64::from(bytes);
        let span = now.since(stretch.began);
        if stretch.bytes < STRETCH_BYTES || span == Span::ZERO {
            return;
        }
        let rate = stretch.bytes as f64 / span.as_secs_f64();
        let weight = if self.rate == 0.0 { 1.0 } else { STRETCH_WEIGHT };
        self.rate += weight * (rate - self.rate);
        self.stretch = None;
    }
}

impl<P: Packet> Discipline<P> for Pie<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, drops: &mut impl Drops<P>) {
        self.catch_up(now);
        let bytes = packet.bytes();
        if let Some(reason) = self.waiting.refusal(bytes) {
            if reason == Reason::Full {
                self.sum = 0.0;
            }
            return drops.dropped(reason, packet);
        }
        if self.chooses() {
            let below = self.options.mark_below.unwrap_or(0.0);
            if !(packet.ecn().is_capable() && self.control.probability < below) {
                return drops.dropped(Reason::Early, packet);
            }
            packet.mark();
        }
        self.waiting.push(bytes, Stamped { arrived: now, packet });
    }

    fn dequeue(&mut self, now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        self.catch_up(now);
        let Stamped { arrived, packet } = Source::pop(&mut self.waiting)?;
        let is_empty = self.waiting.occupancy().units() == 0;
        self.waited = if is_empty { Span::ZERO } else { now.since(arrived) };
        self.measure(now, packet.bytes());
        Some(packet)
    }

    fn backlog(&self) -> Backlog {
        self.waiting.backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use nilometer_wire::Ecn;

    /// Steps of `step` before the scale, with a delay and a delay before of two targets.
    fn updated(probability: f64, step: f64) -> f64 {
        let target = Span::from_secs(1);
        let options = PieOptions { target, alpha: step, beta: 0.0, ..PieOptions::default() };
        let mut control = Control { probability, delay: 2.0, burst_left: Span::ZERO };
        control.update(2.0, &options);
        control.probability
    }

    /// The table of RFC 8033, section 4.2: each scale holds below its bound and not at it.
    #[test]
    fn steps_are_scaled_as_in_the_rfcs_table() {
        let scale = |p: f64| {
            if p < 0.000_001 {
                2_048.0
            } else if p < 0.000_01 {
                512.0
            } else if p < 0.000_1 {
                128.0
            } else if p < 0.001 {
                32.0
            } else if p < 0.01 {
                8.0
            } else if p < 0.1 {
                2.0
            } else {
                1.0
            }
        };
        for bound in [0.000_001, 0.000_01, 0.000_1, 0.001, 0.01, 0.1] {
            for p in [bound * 0.999, bound, bound * 1.001] {
                let (found, expected) = (updated(p, 0.01), p + 0.01 / scale(p));
                assert!((found - expected).abs() < 1e-15, "{p}: {found}, {expected}");
            }
        }
        assert_eq!(updated(0.1, 0.5), 0.1 + 0.02, "bounded from 0.1 on");
        assert_eq!(updated(0.09, 0.5), 0.09 + 0.25);
        assert_eq!((updated(0.99, 0.5), updated(0.2, -0.5)), (1.0, 0.0));
    }

    /// The burst allowance is renewed when p is zero and both delays are below half the target.
    #[test]
    fn calm_renews_the_burst_allowance() {
        let options = PieOptions { target: Span::from_secs(1), ..PieOptions::default() };
        let burst_left = Span::from_nanos(20_000_000);
        let after = |probability, before, now| {
            let mut control = Control { probability, delay: before, burst_left };
            control.update(now, &options);
            control.burst_left
        };
        let worn = burst_left - options.update;
        assert_eq!(after(0.0, 0.499, 0.499), options.burst);
        assert_eq!(after(0.0, 0.5, 0.1), worn);
        assert_eq!(after(0.0, 0.1, 0.5), worn);
        assert_eq!(after(0.5, 0.0, 0.0), worn);
    }

    #[derive(Clone, Copy, Debug)]
    struct Piece(u32, Ecn);

    impl Packet for Piece {
        fn bytes(&self) -> u32 {
            self.0
        }
        fn flow(&self) -> u32 {
            0
        }
        fn ecn(&self) -> Ecn {
            self.1
        }
        fn mark(&mut self) {
            self.1 = Ecn::Congestion;
        }
    }

    fn pie(options: PieOptions, packets: u32) -> Pie<Piece> {
        let mut pie = Pie::new(Capacity::Packets(100), 1_500, options, Rng::new(1, 0, 0)).unwrap();
        for _ in 0..packets {
            pie.enqueue(Time::ZERO, Piece(1_500, Ecn::NotCapable), &mut Vec::new());
        }
        pie
    }

    /// Sections 4.1 and 4.2: a delay below half the target protects while p is below 0.2, and so do
    /// two packets of the MTU; from there on nothing does. A drop is due here, so that no luck is left.
    #[test]
    fn arrivals_are_protected_up_to_each_bound() {
        let chosen = |probability, delay, packets, burst_left| {
            let target = Span::from_secs(1);
            let mut pie =
                pie(PieOptions { target, derandomise: true, ..PieOptions::default() }, packets);
            pie.control = Control { probability, delay, burst_left };
            pie.sum = MOST_SUM;
            pie.chooses()
        };
        assert!(chosen(0.1, 0.5, 3, Span::ZERO), "half the target");
        assert!(!chosen(0.1, 0.499, 3, Span::ZERO));
        assert!(!chosen(0.199, 0.499, 3, Span::ZERO));
        assert!(chosen(0.2, 0.499, 3, Span::ZERO), "p of 0.2");
        assert!(!chosen(0.9, 0.9, 2, Span::ZERO), "two packets");
        assert!(!chosen(0.9, 0.9, 3, Span(1)), "a burst");
    }

    /// Section 5.1: from the bound on, a capable packet is dropped and not marked.
    #[test]
    fn packets_are_marked_below_the_bound_alone() {
        for (bound, marks) in [(0.5, false), (0.6, true), (0.4, false)] {
            let mut pie = pie(
                PieOptions { mark_below: Some(bound), derandomise: true, ..PieOptions::default() },
                3,
            );
            pie.control = Control { probability: 0.5, delay: 9.0, burst_left: Span::ZERO };
            pie.sum = MOST_SUM;
            let mut drops = Vec::new();
            pie.enqueue(Time::ZERO, Piece(1_500, Ecn::Capable0), &mut drops);
            assert_eq!(drops.is_empty(), marks, "{bound}");
            assert_eq!(pie.backlog().packets, if marks { 4 } else { 3 });
        }
    }

    #[test]
    fn options_out_of_range_are_refused_and_their_bounds_taken() {
        let base = PieOptions::default();
        let check = |options: PieOptions| options.check().is_ok();
        let of = |update| check(PieOptions { update, ..base });
        assert_eq!([Span(9_999_999), Span(10_000_000)].map(of), [false, true]);
        let of = |target| check(PieOptions { target, ..base });
        assert_eq!([Span(0), Span(1)].map(of), [false, true]);
        for (gain, is_sound) in
            [(0.0, true), (9e9, true), (-0.1, false), (f64::INFINITY, false), (f64::NAN, false)]
        {
            assert_eq!(check(PieOptions { alpha: gain, ..base }), is_sound, "{gain}");
            assert_eq!(check(PieOptions { beta: gain, ..base }), is_sound, "{gain}");
        }
        for (below, is_sound) in [(0.0, true), (1.0, true), (-0.1, false), (1.1, false)] {
            assert_eq!(check(PieOptions { mark_below: Some(below), ..base }), is_sound, "{below}");
        }
    }
}
