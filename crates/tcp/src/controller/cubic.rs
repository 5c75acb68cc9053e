//! CUBIC: growth by the time since the last cut, not by round trips (RFC 9438).
//!
//! After a loss at a window of `W_max` segments the window is cut to 0.7 of it and then follows
//!
//! ```text
//! W_cubic(t) = C·(t − K)³ + W_max        K = ∛((W_max − cwnd_epoch) / C)        C = 0.4
//! ```
//!
//! fast at first, flat around `W_max` where the path was full last time (t = K), and ever faster after
//! it. `t` is real time, so flows of different round-trip times grow alike. Each acknowledgement aims
//! at where the curve will be a round trip later, and never at more than half as much again.
//!
//! Where that would be slower than Reno (short round trips, small windows) CUBIC keeps pace with
//! `W_est`, what Reno's additive increase would have made of a cut to 0.7: α = 3(1 − β)/(1 + β)
//! segments per round trip up to the window before the cut, and one segment from there on (4.3).
//!
//! Fast convergence (4.7): a loss below the last `W_max` means that another flow now has a part of
//! the path, so that `W_max` is set lower than where the loss was, to 0.85 of it.
//!
//! A stage of congestion avoidance begins with the first acknowledgement after recovery, and only
//! then is K computed, from the window at that time. A stage that no loss began (after a timeout,
//! 4.8, or an early end of slow start, 4.10) starts on the flat: K = 0, `W_max` = cwnd. Time in
//! which the application did not use the window is taken out of `t` (5.8).
//!
//! Windows here are in segments and real numbers, as the RFC has them; the window grows in
//! bytes: whole segments would leave it up to a segment short just where the curve is flat.

use nilometer_wire::{Span, Time};

use super::hystart::HyStart;
use super::{Acked, Congestion, Controller, Window};

/// Part of the window that a cut leaves (4.6).
const BETA: f64 = 0.7;
/// Segments per second cubed (5.1).
const C: f64 = 0.4;
/// Reno's increase for a cut to `BETA`, segments per round trip (4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Most that the target may exceed the window (4.2).
const TARGET_LIMIT: f64 = 1.5;
/// Segments that one acknowledgement may add in slow start (RFC 3465, 2.2).
const SLOW_START_LIMIT: u64 = 2;

/// One stage of congestion avoidance.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stage {
    /// Its beginning, moved on by time that does not count.
    start: Time,
    /// Seconds until the curve is at `origin`.
    k: f64,
    /// The curve's flat, segments.
    origin: f64,
    /// Reno's window, segments.
    estimate: f64,
    /// Part of a byte that is yet to be grown.
    credit: f64,
}

impl Stage {
    /// The curve, `seconds` after the stage began (equation 1).
    fn curve(&self, seconds: f64) -> f64 {
        let offset = seconds - self.k;
        C * offset * offset * offset + self.origin
    }
}

/// What a cut changes, for [`Controller::undo`].
#[derive(Clone, Copy, Debug)]
struct Before {
    cwnd: u64,
    ssthresh: u64,
    w_max: Option<f64>,
    prior: f64,
    stage: Option<Stage>,
}

/// CUBIC's state.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    /// Present during the first slow start, if it was configured.
    hystart: Option<HyStart>,
    /// Where the last loss was, or less with fast convergence; none after a timeout.
    w_max: Option<f64>,
    /// Window before the last cut, segments.
    prior: f64,
    stage: Option<Stage>,
    last_ack: Time,
    before: Option<Before>,
    /// Whether a loss below the last one makes room for others (4.7).
    fast_convergence: bool,
}

impl Cubic {
    /// A controller whose first slow start is HyStart++ (RFC 9406) if `hystart`.
    pub fn new(hystart: bool) -> Cubic {
        Cubic {
            hystart: hystart.then(HyStart::default),
            w_max: None,
            prior: 0.0,
            stage: None,
            last_ack: Time::ZERO,
            before: None,
            fast_convergence: true,
        }
    }

    fn slow_start(&mut self, window: &mut Window, acked: &Acked) {
        let mss = u64::from(window.mss);
        let Some(hystart) = &mut self.hystart else {
            window.cwnd += acked.bytes.min(SLOW_START_LIMIT * mss);
            return;
        };
        let step = hystart.on_ack(acked, mss);
        window.cwnd += step.growth;
        if step.is_over {
            window.ssthresh = window.cwnd;
            self.hystart = None;
        }
    }

    /// Begins a stage with a window of `cwnd` segments (4.2, 4.8, 4.10).
    fn begin(&self, now: Time, cwnd: f64) -> Stage {
        let origin = self.w_max.map_or(cwnd, |w_max| w_max.max(cwnd));
        let k = libm::cbrt((origin - cwnd) / C);
        Stage { start: now, k, origin, estimate: cwnd, credit: 0.0 }
    }

    fn avoid_congestion(&mut self, window: &mut Window, acked: &Acked) {
        let mss = f64::from(window.mss);
        let cwnd = window.cwnd as f64 / mss;
        let mut stage = self.stage.unwrap_or_else(|| self.begin(acked.now, cwnd));
        let segments = acked.bytes as f64 / mss;
        let alpha = if stage.estimate >= self.prior { 1.0 } else { ALPHA };
        stage.estimate += alpha * segments / cwnd;
        let elapsed = acked.now.since(stage.start).as_secs_f64();
        if stage.curve(elapsed) < stage.estimate {
            window.cwnd = window.cwnd.max((stage.estimate * mss) as u64);
        } else {
            let rtt = acked.smoothed_rtt.unwrap_or(Span::ZERO).as_secs_f64();
            let target = stage.curve(elapsed + rtt).clamp(cwnd, TARGET_LIMIT * cwnd);
            stage.credit += (target - cwnd) * acked.bytes as f64 / cwnd;
            let whole = stage.credit as u64;
            window.cwnd += whole;
            stage.credit -= whole as f64;
        }
        self.stage = Some(stage);
    }
}

impl Controller for Cubic {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        let since_last = acked.now.since(self.last_ack);
        self.last_ack = acked.now;
        if acked.in_recovery || acked.bytes == 0 {
            return;
        }
        if !acked.is_window_limited {
            if let Some(stage) = &mut self.stage {
                stage.start = (stage.start + since_last).min(acked.now);
            }
        } else if window.cwnd < window.ssthresh {
            self.slow_start(window, acked);
        } else {
            self.hystart = None;
            self.avoid_congestion(window, acked);
        }
    }

    fn on_congestion(&mut self, _: Time, window: &mut Window, cause: Congestion, in_flight: u64) {
        let Window { cwnd, ssthresh, mss } = *window;
        let Cubic { w_max, prior, stage, .. } = *self;
        self.before = Some(Before { cwnd, ssthresh, w_max, prior, stage });
        self.hystart = None;
        self.stage = None;
        self.prior = cwnd as f64 / f64::from(mss);
        let is_below = self.fast_convergence && w_max.is_some_and(|w_max| self.prior < w_max);
        self.w_max = Some(if is_below { self.prior * (1.0 + BETA) / 2.0 } else { self.prior });
        window.ssthresh = ((in_flight as f64 * BETA) as u64).max(2 * u64::from(mss));
        match cause {
            Congestion::Loss => {}
            Congestion::Marked => window.cwnd = window.ssthresh,
            Congestion::Timeout => {
                window.cwnd = u64::from(mss);
                self.w_max = None;
            }
        }
    }

    fn undo(&mut self, _: Time, window: &mut Window) {
        if let Some(before) = self.before.take() {
            window.cwnd = window.cwnd.max(before.cwnd);
            window.ssthresh = window.ssthresh.max(before.ssthresh);
            self.w_max = before.w_max;
            self.prior = before.prior;
            self.stage = before.stage;
        }
    }

    fn on_restart(&mut self, now: Time, _: &mut Window, idle: Span) {
        if let Some(stage) = &mut self.stage {
            stage.start = (stage.start + idle).min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MSS: u64 = 1_000;

    fn seconds(value: f64) -> Span {
        Span::from_secs_f64(value)
    }

    /// A path of fixed round-trip time that acknowledges a window's segments evenly over it.
    struct Path {
        cubic: Cubic,
        window: Window,
        now: Time,
        rtt: Span,
    }

    impl Path {
        fn before_loss(w_max: u64, rtt: f64) -> Path {
            let window = Window { cwnd: w_max * MSS, ssthresh: u64::MAX, mss: MSS as u32 };
            Path { cubic: Cubic::new(false), window, now: Time(1), rtt: seconds(rtt) }
        }

        /// A path whose sender has just lost at a window of `w_max` segments.
        fn after_loss(w_max: u64, rtt: f64) -> Path {
            let mut path = Path::before_loss(w_max, rtt);
            path.lose();
            path
        }

        fn lose(&mut self) {
            let in_flight = self.window.cwnd;
            self.cubic.on_congestion(self.now, &mut self.window, Congestion::Loss, in_flight);
            self.window.cwnd = self.window.ssthresh;
        }

        fn cwnd(&self) -> f64 {
            self.window.cwnd as f64 / MSS as f64
        }

        fn ack(&mut self) {
            let acked = Acked {
                now: self.now,
                bytes: MSS,
                smoothed_rtt: Some(self.rtt),
                is_window_limited: true,
                ..Acked::default()
            };
            self.cubic.on_ack(&mut self.window, &acked);
            self.now += Span(self.rtt.0 * MSS / self.window.cwnd);
        }

        /// Acknowledges for `duration`; windows in segments every `duration / 100`.
        fn run(&mut self, duration: f64) -> Vec<f64> {
            let start = self.now;
            let mut samples = Vec::new();
            while samples.len() < 100 {
                self.ack();
                let elapsed = self.now.since(start).as_secs_f64();
                while samples.len() < 100 && elapsed >= duration * samples.len() as f64 / 100.0 {
                    samples.push(self.cwnd());
                }
            }
            samples
        }
    }

    /// K of a loss at 1000 segments is ∛(300/0.4) = 9.0856 s; the window follows the curve to a
    /// segment and a half, and the growth falls before K and rises after it.
    #[test]
    fn the_window_follows_the_cube() {
        let mut path = Path::after_loss(1_000, 0.1);
        assert_eq!(path.cwnd(), 700.0);
        let samples = path.run(18.0);
        let k = path.cubic.stage.expect("a stage began").k;
        assert!((k - 9.085_603).abs() < 1e-6, "{k}");
        for (i, cwnd) in samples.iter().enumerate() {
            let t = 18.0 * i as f64 / 100.0;
            let expected = 0.4 * (t - k) * (t - k) * (t - k) + 1_000.0;
            assert!((cwnd - expected).abs() < 1.6, "t {t} cwnd {cwnd} curve {expected}");
        }
        let growth = |from: usize, to: usize| samples[to] - samples[from];
        assert!(growth(0, 20) > growth(20, 40), "concave before K");
        assert!(growth(40, 60) < 12.0, "flat around K");
        assert!(growth(80, 99) > growth(60, 79), "convex after K");
    }

    /// RFC 9438, table 1: average window in segments, 0.1 s round trips, a loss every 1/p segments.
    /// In the first row CUBIC is Reno-friendly
    /// (and 5 % above: once past the last window it grows as Reno does, from a shallower cut). A cycle starts where the RFC's model has its losses,
    /// at the average over 0.925 (the curve's mean between two losses), and stays there.
    #[test]
    fn average_windows_are_those_of_the_rfc() {
        for (loss, published) in [(1e-3, 38.0), (1e-4, 187.0), (1e-5, 1_054.0), (1e-6, 5_926.0)] {
            let mut path = Path::before_loss((published / 0.925) as u64, 0.1);
            path.cubic.fast_convergence = false;
            let each = (1.0_f64 / loss) as u64;
            let mut cycles = |count: u64| {
                let start = path.now;
                for i in 0..count * each {
                    if i % each == 0 {
                        path.lose();
                    }
                    path.ack();
                }
                (count * each) as f64 / (path.now.since(start).as_secs_f64() / 0.1)
            };
            cycles(10);
            let average = cycles(10);
            let off = average / published - 1.0;
            assert!(off.abs() < 0.06, "p {loss}: {average} against {published}");
        }
    }

    #[test]
    fn short_paths_keep_pace_with_reno() {
        // 2 ms: the curve needs 2 s to return to 20 segments, Reno about 15 round trips.
        let mut path = Path::after_loss(20, 0.002);
        let samples = path.run(0.002 * 40.0);
        // 14 + 0.529 segments a round trip up to 20, then one.
        let to_prior = 6.0 / ALPHA;
        for (i, cwnd) in samples.iter().enumerate() {
            let rounds = 40.0 * i as f64 / 100.0;
            let reno =
                if rounds < to_prior { 14.0 + ALPHA * rounds } else { 20.0 + (rounds - to_prior) };
            assert!((cwnd - reno).abs() < 1.6, "round {rounds}: {cwnd} against {reno}");
        }
    }

    #[test]
    fn a_loss_below_the_last_one_makes_room() {
        let mut path = Path::after_loss(1_000, 0.1);
        path.run(2.0);
        let at = path.cwnd();
        assert!(at < 1_000.0);
        path.lose();
        assert_eq!(path.cubic.w_max, Some(at * 0.85));
        path.run(0.1);
        let stage = path.cubic.stage.expect("a stage began");
        assert!((stage.k - libm::cbrt(at * 0.15 / 0.4)).abs() < 0.01);
    }

    #[test]
    fn a_timeout_starts_anew_and_undo_puts_everything_back() {
        let mut path = Path::after_loss(1_000, 0.1);
        path.run(3.0);
        let (window, stage, w_max) = (path.window, path.cubic.stage, path.cubic.w_max);
        let in_flight = window.cwnd;
        path.cubic.on_congestion(path.now, &mut path.window, Congestion::Timeout, in_flight);
        assert_eq!(path.window.cwnd, MSS);
        assert_eq!(path.window.ssthresh, (in_flight as f64 * 0.7) as u64);
        path.cubic.undo(path.now, &mut path.window);
        assert_eq!((path.window, path.cubic.stage, path.cubic.w_max), (window, stage, w_max));

        path.cubic.on_congestion(path.now, &mut path.window, Congestion::Timeout, in_flight);
        let ssthresh = path.window.ssthresh;
        while path.window.cwnd < ssthresh {
            path.ack();
        }
        path.ack();
        let stage = path.cubic.stage.expect("a stage began");
        assert_eq!((stage.k, stage.origin as u64), (0.0, path.window.cwnd / MSS));
    }

    #[test]
    fn idle_time_does_not_advance_the_cubic_curve() {
        let mut busy = Path::after_loss(1_000, 0.1);
        let mut idle = Path::after_loss(1_000, 0.1);
        busy.run(5.0);
        idle.run(5.0);
        let pause = seconds(60.0);
        idle.now += pause;
        idle.cubic.on_restart(idle.now, &mut idle.window, pause);
        assert_eq!(busy.run(5.0), idle.run(5.0));
    }

    #[test]
    fn hystart_ends_slow_start_on_the_flat() {
        let mut cubic = Cubic::new(true);
        let mut window = Window { cwnd: 10 * MSS, ssthresh: u64::MAX, mss: MSS as u32 };
        let mut acks = 0;
        while window.ssthresh == u64::MAX {
            acks += 1;
            assert!(acks < 10_000, "slow start never ended");
            let rtt = Some(if acks < 500 { seconds(0.04) } else { seconds(0.06) });
            let (round_ended, is_window_limited) = (acks % 50 == 0, true);
            let acked =
                Acked { bytes: MSS, rtt, round_ended, is_window_limited, ..Acked::default() };
            cubic.on_ack(&mut window, &acked);
        }
        assert_eq!(window.ssthresh, window.cwnd);
        let acked = Acked { bytes: MSS, is_window_limited: true, ..Acked::default() };
        cubic.on_ack(&mut window, &acked);
        assert_eq!(cubic.stage.expect("a stage began").k, 0.0);
    }
}
