//! Arrival times of one slot's connections, as a stationary renewal process.
//!
//! A slot is a place for one session at a time. Its connections are a renewal process over the whole run: the time
//! between consecutive ones is a draw of P(InterConnection). The first wait is the *residual* of a gap (a gap met at a
//! random moment is drawn in proportion to its length, and a uniform part of it is left). Every interval, including
//! the first, then expects as many connections of a slot as its length holds mean gaps, and there is no wave of
//! connections at the start (Cox, Renewal Theory, 5.4).
//!
//! Each slot has a random stream of its own, so its arrivals depend neither on the thread that draws them nor on the
//! number of slots.

use alloc::vec::Vec;

use nilometer_stat::{Empirical, Residual, Rng};
use nilometer_wire::{Span, Time};

use crate::random_streams;

/// One interval of the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Its first moment.
    pub start: Time,
    /// The first moment of the next one.
    pub end: Time,
    /// Intended connections, or about as many as its sessions will make.
    pub connections: u64,
    /// The intended mean number of active sessions, where sessions drive.
    pub sessions: Option<f64>,
}

impl Window {
    /// How long it lasts, seconds.
    pub fn length_s(&self) -> f64 {
        self.end.since(self.start).as_secs_f64()
    }
}

/// Arrival times of one slot, rising.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// When a session in the slot connects, if it is on.
    pub times: Vec<Time>,
}

/// The fewest gaps drawn in a window, besides twice the window's connections.
const GAPS_MIN: u64 = 100;

/// Draws the arrivals of `slot` over the windows; gaps are in seconds.
///
/// If one slot alone would connect far more often than intended for a window, only the window's end is drawn,
/// beginning with a residual like the run: no more of it is ever switched on, the process is stationary, and
/// an original whose clock jumps by years stays cheap.
pub fn draw(gaps: &Empirical, seed: u64, slot: u32, windows: &[Window]) -> Arrivals {
    let mut rng = Rng::new(seed, random_streams::GAPS, u64::from(slot));
    let mut times = Vec::new();
    let residual = Residual::new(gaps);
    let rest = |rng: &mut Rng| Span::from_secs_f64(residual.draw(rng));
    let mut at = Time::ZERO + rest(&mut rng);
    for window in windows {
        let drawn = (2 * window.connections + GAPS_MIN) as f64;
        let reach = Span::from_secs_f64(gaps.mean() * drawn);
        let from = Time(window.end.0.saturating_sub(reach.0));
        if at < from {
            times.push(at);
            at = from + rest(&mut rng);
        }
        while at < window.end {
            times.push(at);
            at += Span::from_secs_f64(gaps.draw(&mut rng));
        }
    }
    Arrivals { times }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law() -> Empirical {
        let mut rng = Rng::new(7, 0, 0);
        let samples: Vec<f64> = (0..2_000).map(|_| rng.exponential(0.5).min(5.0)).collect();
        Empirical::linear_from(samples, 512).expect("law")
    }

    fn ten_seconds(connections: u64) -> [Window; 1] {
        let end = Time::ZERO + Span::from_secs(10);
        [Window { start: Time::ZERO, end, connections, sessions: None }]
    }

    #[test]
    fn arrivals_are_stationary_from_the_first_second() {
        let gaps = law();
        let windows = ten_seconds(1_000);
        let mut seconds = [0u32; 10];
        for slot in 0..4_000 {
            for time in draw(&gaps, 1, slot, &windows).times {
                seconds[time.as_secs_f64() as usize] += 1;
            }
        }
        let expected = 4_000.0 / gaps.mean();
        for (second, &count) in seconds.iter().enumerate() {
            let off = (f64::from(count) / expected - 1.0).abs();
            assert!(off < 0.05, "second {second}: {count} of {expected}");
        }
    }

    #[test]
    fn arrivals_depend_on_seed_and_slot_alone() {
        let gaps = law();
        let windows = ten_seconds(1_000);
        assert_eq!(draw(&gaps, 1, 9, &windows), draw(&gaps, 1, 9, &windows));
        assert_ne!(draw(&gaps, 1, 9, &windows), draw(&gaps, 2, 9, &windows));
        assert_ne!(draw(&gaps, 1, 9, &windows), draw(&gaps, 1, 8, &windows));
    }

    #[test]
    fn a_sparse_window_draws_few_arrivals_at_full_density() {
        let gaps = law().scaled(1e-6);
        let windows = ten_seconds(20);
        let arrivals = draw(&gaps, 1, 0, &windows);
        assert!((100..300).contains(&arrivals.times.len()), "{}", arrivals.times.len());
        let last = windows[0].end.since(*arrivals.times.last().expect("times")).as_secs_f64();
        assert!(last <= gaps.max(), "the last time is a gap from the end: {last}");
    }
}
