//! The chain of one slot: when a session that never stopped would connect.
//!
//! A slot is a place for one session at a time. Its connections are a renewal process over the whole
//! run: consecutive ones are a draw of P(InterConnection) apart. The first wait is the *residual* of
//! a gap (a gap met at a random moment, so drawn in proportion to its length, of which a uniform part
//! is left): then every interval expects as many connections of a slot as its length holds mean gaps,
//! the first interval included, and no wave of connections marks the start (Cox, Renewal Theory, 5.4).
//!
//! Each slot has a stream of random numbers of its own, so a chain does not depend on which thread
//! draws it, nor on how many other slots there are.

use alloc::vec::Vec;

use nilometer_stat::{Empirical, Rng};
use nilometer_wire::{Span, Time};

use crate::purpose;

/// Connection times of one slot, rising.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// When the slot would connect.
    pub times: Vec<Time>,
}

/// Draws the chain of `slot` until `end`; gaps are in seconds. At most `connections_max` times are
/// drawn, which bounds a law whose gaps are nearly all zero.
pub fn chain(gaps: &Empirical, seed: u64, slot: u32, end: Time, connections_max: usize) -> Chain {
    let mut rng = Rng::new(seed, purpose::GAPS, u64::from(slot));
    let mut times = Vec::new();
    let mut at = Time::ZERO + residual(gaps, &mut rng);
    while at < end && times.len() < connections_max {
        times.push(at);
        at += Span::from_secs_f64(gaps.draw(&mut rng));
    }
    Chain { times }
}

/// The rest of a gap met at a random moment: a draw kept with probability in proportion to its
/// length, times a uniform share.
fn residual(gaps: &Empirical, rng: &mut Rng) -> Span {
    let longest = gaps.max();
    loop {
        let gap = gaps.draw(rng);
        if rng.unit() * longest < gap {
            return Span::from_secs_f64(gap * rng.unit());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law() -> Empirical {
        let mut rng = Rng::new(7, 0, 0);
        let samples: Vec<f64> = (0..2_000).map(|_| rng.exponential(0.5).min(5.0)).collect();
        Empirical::linear_from(samples, 512).expect("law")
    }

    #[test]
    fn every_second_expects_the_same_connections_from_the_first_on() {
        let gaps = law();
        let end = Time::ZERO + Span::from_secs(10);
        let mut seconds = [0u32; 10];
        for slot in 0..4_000 {
            for time in chain(&gaps, 1, slot, end, 1_000).times {
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
    fn a_chain_is_the_same_whoever_draws_it() {
        let gaps = law();
        let end = Time::ZERO + Span::from_secs(10);
        assert_eq!(chain(&gaps, 1, 9, end, 1_000), chain(&gaps, 1, 9, end, 1_000));
        assert_ne!(chain(&gaps, 1, 9, end, 1_000), chain(&gaps, 2, 9, end, 1_000));
        assert_ne!(chain(&gaps, 1, 9, end, 1_000), chain(&gaps, 1, 8, end, 1_000));
    }
}
