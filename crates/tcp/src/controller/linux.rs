//! CUBIC as Linux computes it: whole segments, milliseconds, and HyStart's two signs.
//!
//! The curve is RFC 9438's ([`super::Cubic`] has it in real numbers); what differs is when the
//! window takes its steps, which is what a trace of a Linux sender shows. The window is a number of
//! segments and grows by one when `pace` segments were acknowledged. `pace` is the window divided
//! by its distance to where the curve will be a round trip later; a hundred windows if the curve is
//! below it; at most twenty segments until a loss has shown where the path is full; never less than
//! two, so that the window grows by at most half per round trip. It is kept for a thirty-second of
//! a second as long as the window is the same. Reno's window is followed beside it by whole
//! segments, too.
//!
//! Slow start adds all that was acknowledged. It ends by HyStart (Ha and Rhee 2011), from 16
//! segments on, when either sign shows that the path's queue grows. *Delay*: of at least nine
//! samples of a round the least is an eighth above the least ever, with bounds of 4 and 16 ms.
//! *Train*: acknowledgements come within 2 ms of one another for half a round-trip time.

use nilometer_wire::{Span, Time};

use super::{Acked, Congestion, Controller, Window};

/// What a cut leaves, of 1024.
const BETA: u64 = 717;
const BETA_SCALE: u64 = 1024;
/// Eighths of a window acknowledged for each segment of Reno's growth: 8/α.
const RENO_SCALE: u64 = 8 * (BETA_SCALE + BETA) / 3 / (BETA_SCALE - BETA);
/// C of RFC 9438 as 1024ths per tick cubed times forty.
const CURVE_SCALE: u64 = 410;
/// Ticks in a second, as a shift: time is counted in 1024ths.
const TICKS_SHIFT: u32 = 10;
/// Milliseconds for which `pace` is kept.
const KEPT_MS: u64 = 31;
/// Window from which HyStart looks, segments.
const LOW_WINDOW: u64 = 16;
/// Samples that HyStart needs from a round before it judges by delay.
const SAMPLES: u32 = 8;
const DELAY_BOUNDS_USECS: (u64, u64) = (4_000, 16_000);
/// Distance within which acknowledgements are a train, and what is allowed for their own delay.
const TRAIN_GAP_USECS: u64 = 2_000;
const TRAIN_ALLOWANCE_USECS: u64 = 1_000;
const MS: u64 = 1_000_000_000;

/// HyStart's view of the current round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    start: Time,
    last_ack: Time,
    /// The round ends when more than this has been acknowledged.
    end: u64,
    least_usecs: u64,
    samples: u32,
    has_begun: bool,
}

/// Linux's CUBIC.
#[derive(Clone, Copy, Debug)]
pub struct LinuxCubic {
    hystart: bool,
    /// Whether HyStart has ended slow start.
    found: bool,
    round: Round,
    /// Bytes acknowledged in all.
    total: u64,
    least_rtt: Option<Span>,
    /// Window at the last loss, segments; 0 if there is none to go by.
    max: u64,
    /// When the curve began, ms.
    epoch: Option<u64>,
    /// Where the curve is flat, and when, in ticks after the epoch.
    origin: u64,
    flat: u64,
    /// Segments acknowledged per segment of growth.
    pace: u64,
    /// Window and moment for which `pace` holds.
    judged: (u64, u64),
    /// Segments acknowledged towards the next of Reno's steps, and Reno's window.
    reno_count: u64,
    reno: u64,
    /// Segments acknowledged towards the next step.
    count: u64,
    before: Option<(u64, u64, u64)>,
}

impl LinuxCubic {
    /// A controller; HyStart ends its slow starts if `hystart`.
    pub fn new(hystart: bool) -> LinuxCubic {
        LinuxCubic {
            hystart,
            found: false,
            round: Round::default(),
            total: 0,
            least_rtt: None,
            max: 0,
            epoch: None,
            origin: 0,
            flat: 0,
            pace: 0,
            judged: (0, 0),
            reno_count: 0,
            reno: 0,
            count: 0,
            before: None,
        }
    }

    /// A round-trip time was measured.
    fn sample(&mut self, window: &mut Window, acked: &Acked, rtt: Span) {
        let now = acked.now.0 / MS;
        // Samples right after a recovery are of a queue that is gone.
        if self.epoch.is_some_and(|epoch| now < epoch + 1_000) {
            return;
        }
        let least = self.least_rtt.map_or(rtt, |least| least.min(rtt));
        self.least_rtt = Some(least);
        let is_slow_start = window.cwnd < window.ssthresh;
        let segments = window.cwnd / u64::from(window.mss);
        if self.hystart && !self.found && is_slow_start && segments >= LOW_WINDOW {
            self.look(acked, usecs(rtt), usecs(least));
            if self.found {
                window.ssthresh = window.cwnd;
            }
        }
    }

    /// HyStart's two signs.
    fn look(&mut self, acked: &Acked, rtt: u64, least: u64) {
        if !self.round.has_begun || self.total > self.round.end {
            self.round = Round {
                start: acked.now,
                last_ack: acked.now,
                end: self.total + acked.in_flight,
                least_usecs: u64::MAX,
                samples: 0,
                has_begun: true,
            };
        }
        let round = &mut self.round;
        if usecs(acked.now.since(round.last_ack)) <= TRAIN_GAP_USECS {
            round.last_ack = acked.now;
            let threshold = (least + TRAIN_ALLOWANCE_USECS) / 2;
            self.found |= usecs(acked.now.since(round.start)) > threshold;
        }
        round.least_usecs = round.least_usecs.min(rtt);
        if round.samples < SAMPLES {
            round.samples += 1;
        } else {
            let margin = (least / 8).clamp(DELAY_BOUNDS_USECS.0, DELAY_BOUNDS_USECS.1);
            self.found |= round.least_usecs > least + margin;
        }
    }

    /// Slow start; returns the segments that are left over when it ends.
    fn slow_start(window: &mut Window, segments: u64) -> u64 {
        let mss = u64::from(window.mss);
        let room = (window.ssthresh.saturating_sub(window.cwnd)) / mss;
        let taken = segments.min(room.max(1));
        window.cwnd += taken * mss;
        segments - taken
    }

    /// How many segments are to be acknowledged before the next step.
    fn judge(&mut self, cwnd: u64, segments: u64, now: u64) {
        self.reno_count += segments;
        let (judged_cwnd, judged_at) = self.judged;
        if judged_cwnd == cwnd && now <= judged_at + KEPT_MS {
            return;
        }
        if self.epoch.is_none() || now != judged_at {
            self.judged = (cwnd, now);
            self.follow_curve(cwnd, segments, now);
        }
        let step = cwnd * RENO_SCALE / 8;
        let steps = self.reno_count.saturating_sub(1) / step.max(1);
        self.reno_count -= steps * step;
        self.reno += steps;
        if self.reno > cwnd {
            self.pace = self.pace.min(cwnd / (self.reno - cwnd));
        }
        self.pace = self.pace.max(2);
    }

    fn follow_curve(&mut self, cwnd: u64, segments: u64, now: u64) {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.reno_count = segments;
            self.reno = cwnd;
            self.origin = self.max.max(cwnd);
            // ∛(distance / C) seconds.
            let distance = (self.origin - cwnd) as f64;
            let seconds = libm::cbrt(distance * 1024.0 / CURVE_SCALE as f64);
            self.flat = (seconds * f64::from(1 << TICKS_SHIFT)) as u64;
            now
        });
        let round_trip = self.least_rtt.map_or(0, |least| least.0.div_ceil(MS));
        let ticks = ((now - epoch + round_trip) << TICKS_SHIFT) / 1000;
        let offset = u128::from(ticks.abs_diff(self.flat));
        let cube = u128::from(CURVE_SCALE) * offset * offset * offset;
        let delta = u64::try_from(cube >> (TICKS_SHIFT + 3 * TICKS_SHIFT)).unwrap_or(u64::MAX);
        let target = if ticks < self.flat {
            self.origin.saturating_sub(delta)
        } else {
            self.origin.saturating_add(delta)
        };
        self.pace = if target > cwnd { cwnd / (target - cwnd) } else { 100 * cwnd };
        if self.max == 0 {
            self.pace = self.pace.min(20);
        }
    }

    fn avoid_congestion(&mut self, window: &mut Window, segments: u64, now: u64) {
        let mss = u64::from(window.mss);
        self.judge(window.cwnd / mss, segments, now);
        if self.count >= self.pace {
            self.count = 0;
            window.cwnd += mss;
        }
        self.count += segments;
        if self.count >= self.pace {
            window.cwnd += self.count / self.pace * mss;
            self.count %= self.pace;
        }
    }
}

impl Controller for LinuxCubic {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        self.total += acked.bytes;
        if let Some(rtt) = acked.rtt {
            self.sample(window, acked, rtt);
        }
        if acked.in_recovery || !acked.is_window_limited || acked.bytes == 0 {
            return;
        }
        let mut segments = acked.bytes.div_ceil(u64::from(window.mss));
        if window.cwnd < window.ssthresh {
            segments = LinuxCubic::slow_start(window, segments);
            if segments == 0 {
                return;
            }
        }
        self.avoid_congestion(window, segments, acked.now.0 / MS);
    }

    fn on_congestion(&mut self, _: Time, window: &mut Window, cause: Congestion, _: u64) {
        let mss = u64::from(window.mss);
        let cwnd = window.cwnd / mss;
        self.before = Some((window.cwnd, window.ssthresh, self.max));
        self.epoch = None;
        self.max = if cwnd < self.max { cwnd * (BETA_SCALE + BETA) / 2 / BETA_SCALE } else { cwnd };
        window.ssthresh = (cwnd * BETA / BETA_SCALE).max(2) * mss;
        match cause {
            Congestion::Loss => {}
            Congestion::Marked => window.cwnd = window.ssthresh,
            Congestion::Timeout => {
                window.cwnd = mss;
                *self = LinuxCubic {
                    total: self.total,
                    before: self.before,
                    ..LinuxCubic::new(self.hystart)
                };
            }
        }
    }

    fn undo(&mut self, _: Time, window: &mut Window) {
        if let Some((cwnd, ssthresh, max)) = self.before.take() {
            window.cwnd = window.cwnd.max(cwnd);
            window.ssthresh = window.ssthresh.max(ssthresh);
            self.max = max;
        }
    }

    fn on_restart(&mut self, now: Time, _: &mut Window, idle: Span) {
        let now = now.0 / MS;
        if let Some(epoch) = &mut self.epoch {
            *epoch = (*epoch + idle.0 / MS).min(now);
        }
    }
}

const fn usecs(span: Span) -> u64 {
    span.0 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MSS: u64 = 1_000;

    /// A path without queue that acknowledges two segments at a time.
    fn run(
        cubic: &mut LinuxCubic,
        window: &mut Window,
        rtt: f64,
        duration: f64,
    ) -> Vec<(f64, f64)> {
        let mut now = Time(1_000 * MS);
        let start = now;
        let mut seen = Vec::new();
        while now.since(start).as_secs_f64() < duration {
            let acked = Acked {
                now,
                bytes: 2 * MSS,
                rtt: Some(Span::from_secs_f64(rtt)),
                in_flight: window.cwnd,
                is_window_limited: true,
                ..Acked::default()
            };
            cubic.on_ack(window, &acked);
            seen.push((now.since(start).as_secs_f64(), window.cwnd as f64 / MSS as f64));
            now += Span::from_secs_f64(rtt * 2.0 * MSS as f64 / window.cwnd as f64);
        }
        seen
    }

    /// The naive twin is the curve in real numbers: C(t − K)³ + W, a round trip ahead.
    #[test]
    fn the_window_steps_along_the_curve() {
        for w_max in [200_u64, 600, 1_000] {
            let mut cubic = LinuxCubic::new(false);
            let mut window = Window { cwnd: w_max * MSS, ssthresh: u64::MAX, mss: MSS as u32 };
            cubic.on_congestion(Time(1), &mut window, Congestion::Loss, 0);
            window.cwnd = window.ssthresh;
            let from = window.cwnd as f64 / MSS as f64;
            let k = libm::cbrt((w_max as f64 - from) / 0.4);
            for (t, cwnd) in run(&mut cubic, &mut window, 0.1, 1.5 * k) {
                let ahead = t - k;
                let curve = (0.4 * ahead * ahead * ahead + w_max as f64).max(from);
                assert!((cwnd - curve).abs() < 0.01 * curve + 3.0, "{t}: {cwnd}, {curve}");
            }
        }
    }

    #[test]
    fn a_short_path_keeps_pace_with_reno() {
        let mut cubic = LinuxCubic::new(false);
        let mut window = Window { cwnd: 20 * MSS, ssthresh: u64::MAX, mss: MSS as u32 };
        cubic.on_congestion(Time(1), &mut window, Congestion::Loss, 0);
        window.cwnd = window.ssthresh;
        let seen = run(&mut cubic, &mut window, 0.04, 4.0);
        let (_, last) = seen[seen.len() - 1];
        // 14 and 0.53 segments for each of a hundred round trips.
        assert!((60.0..72.0).contains(&last), "{last}");
    }

    #[test]
    fn slow_start_ends_when_the_delay_rises_or_acknowledgements_come_in_trains() {
        for (rtt, gap_ms, ends) in [(0.1, 5, false), (0.12, 5, true), (0.1, 1, true)] {
            let mut cubic = LinuxCubic::new(true);
            cubic.least_rtt = Some(Span::from_secs_f64(0.1));
            let mut window = Window { cwnd: 40 * MSS, ssthresh: u64::MAX, mss: MSS as u32 };
            for i in 0..60 {
                let acked = Acked {
                    now: Time((1_000 + i * gap_ms) * MS),
                    bytes: 2 * MSS,
                    rtt: Some(Span::from_secs_f64(rtt)),
                    in_flight: 1_000 * MSS,
                    is_window_limited: true,
                    ..Acked::default()
                };
                cubic.on_ack(&mut window, &acked);
            }
            assert_eq!(window.ssthresh != u64::MAX, ends, "{rtt} {gap_ms}");
        }
    }

    #[test]
    fn a_timeout_forgets_the_curve_and_undo_puts_the_window_back() {
        let mut cubic = LinuxCubic::new(true);
        let mut window = Window { cwnd: 100 * MSS, ssthresh: u64::MAX, mss: MSS as u32 };
        let before = window;
        cubic.on_congestion(Time(1), &mut window, Congestion::Timeout, 0);
        assert_eq!((window.cwnd, window.ssthresh, cubic.max), (MSS, 70 * MSS, 0));
        cubic.undo(Time(2), &mut window);
        assert_eq!(window, before);
        cubic.on_congestion(Time(3), &mut window, Congestion::Loss, 0);
        assert_eq!(cubic.max, 100);
        window.cwnd = 80 * MSS;
        cubic.on_congestion(Time(4), &mut window, Congestion::Marked, 0);
        assert_eq!((cubic.max, window.cwnd), (68, 56 * MSS));
    }
}
