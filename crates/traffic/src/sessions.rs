//! The number of active sessions, by the paper's two methods.
//!
//! *The direct method* spreads the lifetime of each address pair, from its first flow's start to its
//! last flow's end, over the intervals. It fails on exported records: routers stamp the end of a flow
//! some 454 ms late (Table 2), each pair lives longer by as much, and the sessions are overestimated.
//!
//! *Figure 4* does not use ends. It estimates how many sessions are needed to carry the interval's bytes:
//! sessions are added one by one, each alternates between waiting for a draw of P(InterConnection) and
//! requesting a draw of P(FileSize) until the interval is over, and when the bytes are reached the sessions
//! are counted. That is done N times; the result is the mean.
//!
//! A session does not begin at the interval's beginning: it is then in the middle of a gap, like sessions that
//! continue from interval to interval (section 4.1). So its first wait is the rest of a gap (`arrivals` draws the same
//! for sessions that are played), and it makes as many connections as the interval holds mean gaps. Beginning with a
//! whole gap instead would make (c² - 1)/2 more connections in each session, where c² is the square of the gaps'
//! coefficient of variation: 31 % of an interval of few gaps, and the number of sessions would be too small by that.
//!
//! It is right for what its laws describe, but they lack two things. In sessions of a few connections, gaps that
//! the end cuts off are not observed, and the observed ones are the short ones. And gaps are those of all
//! connections, but files only of those that carry one: if many carry none, the count is that of sessions with a
//! file at each connection.
//!
//! A heavy tail makes single trials differ wildly (one file may fill the interval), so the last
//! session of a trial is counted by the share of its bytes that was still needed, not as a whole.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::{Empirical, Residual, Rng, Sampler};

use crate::random_streams;

/// The most sessions that one trial adds.
const SESSIONS_MAX: u32 = 10_000_000;
/// The most connections that one trial simulates, over all its sessions.
const CONNECTIONS_MAX: u64 = 50_000_000;

/// Number of trials of an interval, reduced if they would simulate too many connections, but never below a
/// minimum.
const TRIALS: f64 = 100.0;
const TRIED_CONNECTIONS: f64 = 2e7;
const TRIALS_MIN: f64 = 4.0;
/// The seed of their random numbers: the same demand always gives the same sessions.
const SEED: u64 = 1;

/// The most connections of a session within an interval for which trials are made.
const RENEWALS_MAX: f64 = 50_000.0;

/// One interval's demand.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Its number; each has its own random numbers.
    pub interval: u32,
    /// Payload bytes to carry.
    pub bytes: u64,
    /// Its length in seconds.
    pub duration_s: f64,
}

/// Active sessions of an interval, as in models: Figure 4 with enough trials for a stable mean.
pub fn active(demand: Demand, file_size: &Empirical, gaps: &Empirical) -> f64 {
    let connections = demand.bytes as f64 / file_size.mean().max(1.0);
    let trials = (TRIED_CONNECTIONS / connections.max(1.0)).clamp(TRIALS_MIN, TRIALS);
    figure_4(demand, file_size, gaps, trials as u32, SEED)
}

/// Figure 4: the mean number of sessions that carry `demand.bytes` within `demand.duration_s`.
pub fn figure_4(
    demand: Demand,
    file_size: &Empirical,
    gaps: &Empirical,
    trials: u32,
    seed: u64,
) -> f64 {
    if demand.bytes == 0 || demand.duration_s <= 0.0 || trials == 0 {
        return 0.0;
    }
    let is_endless = demand.duration_s > RENEWALS_MAX * gaps.mean();
    if gaps.min() >= demand.duration_s || is_endless {
        return by_rates(demand, file_size, gaps);
    }
    let rest = Residual::new(gaps);
    let (file_size, gaps) = (Sampler::new(file_size), Sampler::new(gaps));
    let sum: f64 = (0..trials)
        .map(|trial| {
            let index = u64::from(demand.interval) << 32 | u64::from(trial);
            let rng = Rng::new(seed, random_streams::FIGURE_4, index);
            one_trial(demand, (&file_size, &rest, &gaps), (SESSIONS_MAX, CONNECTIONS_MAX), rng)
        })
        .sum();
    sum / f64::from(trials)
}

/// The number of sessions by mean rates: used if no session could connect within the interval even once, so
/// that trials would add sessions for ever, or if each connects so often that all trials would give the mean.
fn by_rates(demand: Demand, file_size: &Empirical, gaps: &Empirical) -> f64 {
    demand.bytes as f64 / file_size.mean() * gaps.mean() / demand.duration_s
}

/// One trial, limited in the sessions that it adds and in the connections that it simulates.
fn one_trial(
    demand: Demand,
    (file_size, rest, gaps): (&Sampler, &Residual, &Sampler),
    (sessions_max, connections_max): (u32, u64),
    mut rng: Rng,
) -> f64 {
    let wanted = demand.bytes as f64;
    let (mut carried, mut connections) = (0.0, 0u64);
    for sessions in 0..sessions_max {
        let before = carried;
        let mut clock = rest.draw(&mut rng);
        while clock < demand.duration_s {
            carried += file_size.draw(&mut rng);
            clock += gaps.draw(&mut rng);
            connections += 1;
            if connections >= connections_max {
                return f64::from(sessions) + 1.0;
            }
        }
        if carried >= wanted {
            return f64::from(sessions) + (wanted - before) / (carried - before);
        }
    }
    f64::from(sessions_max)
}

/// The life of one address pair: seconds since the original began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairLifetime {
    /// Start of its first flow.
    pub first_start_s: f64,
    /// End of its last flow.
    pub last_end_s: f64,
}

/// The direct method: mean pairs alive in each of the intervals, of `interval_s` seconds each except for the
/// last, which may be shorter; `lengths_s` are their lengths.
pub fn direct(lives: &[PairLifetime], interval_s: f64, lengths_s: &[f64]) -> Vec<f64> {
    let mut alive = vec![0.0; lengths_s.len()];
    overlaps(lives, interval_s, lengths_s.len(), |index, seconds| {
        alive[index] += seconds / lengths_s[index];
    });
    alive
}

/// The total time for which pairs were alive in each interval, ns: whole numbers, whose sum does not depend
/// on the order.
#[derive(Clone, Debug)]
pub(crate) struct Alive(Vec<u128>);

impl Alive {
    /// No pair is alive.
    pub fn new(count: usize) -> Alive {
        Alive(vec![0; count])
    }

    /// The times of these pairs.
    pub fn of(lives: &[PairLifetime], interval_s: f64, count: usize) -> Alive {
        let mut alive = Alive::new(count);
        overlaps(lives, interval_s, count, |index, seconds| {
            alive.0[index] += libm::round(seconds * NANOS) as u128;
        });
        alive
    }

    /// Adds the times of other pairs.
    pub fn add(&mut self, more: &Alive) {
        self.0.iter_mut().zip(&more.0).for_each(|(sum, more)| *sum += more);
    }

    /// Mean number of pairs alive in each interval, whose length is `length_s` of its index.
    pub fn means(&self, length_s: impl Fn(usize) -> f64) -> Vec<f64> {
        let mean = |(at, nanos): (usize, &u128)| *nanos as f64 / (length_s(at) * NANOS);
        self.0.iter().enumerate().map(mean).collect()
    }
}

/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// Yields each interval that overlaps a life, and the overlap, seconds.
fn overlaps(
    lives: &[PairLifetime],
    interval_s: f64,
    count: usize,
    mut each: impl FnMut(usize, f64),
) {
    for life in lives {
        let first = (life.first_start_s / interval_s).max(0.0) as usize;
        for index in first..count {
            let start = index as f64 * interval_s;
            if start >= life.last_end_s {
                break;
            }
            let from = life.first_start_s.max(start);
            let until = life.last_end_s.min(start + interval_s);
            each(index, (until - from).max(0.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A router's view of `sessions` sessions that connect once every 2 s for 60 s, each transfer
    /// lasting 50 ms; the flows' ends are stamped late by `jitter`.
    fn lives(sessions: usize, mut jitter: impl FnMut() -> f64) -> Vec<PairLifetime> {
        let mut lives = Vec::new();
        for session in 0..sessions {
            for connection in 0..30 {
                let start = connection as f64 * 2.0 + session as f64 * 0.01;
                let late = jitter();
                lives.push(PairLifetime { first_start_s: start, last_end_s: start + 0.05 + late });
            }
        }
        lives
    }

    #[test]
    fn late_flow_ends_overestimate_sessions() {
        let mut rng = Rng::new(2, 0, 0);
        let exact: f64 = direct(&lives(40, || 0.0), 60.0, &[60.0])[0];
        let late = lives(40, || (0.454 + 0.254 * rng.normal()).max(0.0));
        let jittered = direct(&late, 60.0, &[60.0])[0];
        assert!(jittered > 5.0 * exact, "{jittered} against {exact}");
    }

    #[test]
    fn figure_4_counts_the_sessions_of_a_rate() {
        let sizes = Empirical::step_from(vec![10_000.0], 4).expect("law");
        let gaps = Empirical::linear_from(vec![1.9, 2.0, 2.1], 16).expect("law");
        let demand = Demand { interval: 0, bytes: 40 * 30 * 10_000, duration_s: 60.0 };
        let estimate = figure_4(demand, &sizes, &gaps, 100, 1);
        assert!((estimate / 40.0 - 1.0).abs() < 0.05, "{estimate} of 40 sessions");
    }

    #[test]
    fn gaps_longer_than_the_interval_are_answered() {
        let sizes = Empirical::step_from(vec![1_000.0], 4).expect("law");
        let gaps = Empirical::linear_from(vec![1.5, 2.5], 16).expect("law");
        let demand = Demand { interval: 0, bytes: 20_000, duration_s: 1.0 };
        assert!((figure_4(demand, &sizes, &gaps, 100, 1) - 40.0).abs() < 1e-6);
    }

    #[test]
    fn an_interval_of_many_connections_is_answered_by_rates_as_trials_would() {
        let sizes = Empirical::step_from(vec![1_000.0, 3_000.0], 4).expect("law");
        let gaps = Empirical::linear_from(vec![0.5, 1.5], 16).expect("law");
        let of = |duration_s: f64| {
            let demand = Demand { interval: 0, bytes: (duration_s * 1_000.0) as u64, duration_s };
            figure_4(demand, &sizes, &gaps, 3, 1)
        };
        let (tried, stated) = (of(49_000.0), of(5e9));
        assert!((tried / 0.5 - 1.0).abs() < 0.01 && (stated / 0.5 - 1.0).abs() < 1e-9);
    }

    /// Each session connects ten times; the third of them makes the 21st to the 30th connection.
    #[test]
    fn a_trial_ends_with_the_session_that_reaches_a_limit() {
        let sizes = Empirical::step_from(vec![100.0], 4).expect("law");
        let gaps = Empirical::step_from(vec![1.0], 4).expect("law");
        let laws = (&Sampler::new(&sizes), &Residual::new(&gaps), &Sampler::new(&gaps));
        let demand = |bytes: u64| Demand { interval: 0, bytes, duration_s: 10.0 };
        let of = |bytes: u64, limits| one_trial(demand(bytes), laws, limits, Rng::new(1, 0, 0));
        assert_eq!(of(u64::MAX, (1_000, 20)), 2.0);
        assert_eq!(of(u64::MAX, (1_000, 21)), 3.0);
        assert_eq!(of(u64::MAX, (1_000, 30)), 3.0);
        assert_eq!(of(u64::MAX, (1_000, 31)), 4.0);
        assert_eq!(of(u64::MAX, (5, 1_000)), 5.0);
        // No limit is reached: the last session counts by the share of its bytes that was needed.
        assert_eq!(of(2_000, (5, 1_000)), 2.0);
        assert_eq!(of(2_250, (5, 1_000)), 2.25);
        assert_eq!(of(1_000, (1, 1_000)), 1.0);
    }

    /// If the shortest gap is as long as the interval, rates are used; if it is shorter, trials are, with the
    /// same mean.
    #[test]
    fn a_gap_as_long_as_the_interval_is_answered_by_rates() {
        let sizes = Empirical::step_from(vec![1_000.0], 4).expect("law");
        let gaps = Empirical::step_from(vec![2.0], 4).expect("law");
        let of = |duration_s: f64, trials| {
            let demand = Demand { interval: 0, bytes: 10_500, duration_s };
            figure_4(demand, &sizes, &gaps, trials, 1)
        };
        assert_eq!(of(2.0, 1), 10.5);
        assert_eq!(of(1.0, 1), 21.0);
        assert_eq!(of(0.0, 1), 0.0);
        assert!((of(2.5, 1_000) / 8.4 - 1.0).abs() < 0.03, "{}", of(2.5, 1_000));
        let none = Demand { interval: 0, bytes: 0, duration_s: 2.5 };
        assert_eq!(figure_4(none, &sizes, &gaps, 2, 1), 0.0);
        let some = Demand { bytes: 1_000, ..none };
        assert_eq!(figure_4(some, &sizes, &gaps, 0, 1), 0.0);
    }

    /// Few gaps are long: a session that began with a whole gap would make half as many connections again as its
    /// six.
    #[test]
    fn a_session_begins_within_a_gap() {
        let sizes = Empirical::step_from(vec![1_000.0], 4).expect("law");
        let mut samples = vec![0.1; 9];
        samples.push(9.1);
        let gaps = Empirical::step_from(samples, 16).expect("law");
        let demand = Demand { interval: 0, bytes: 600_000, duration_s: 6.0 };
        let counted = figure_4(demand, &sizes, &gaps, 200, 1);
        assert!((counted / 100.0 - 1.0).abs() < 0.02, "{counted} of 100 sessions");
    }

    #[test]
    fn lifetimes_are_spread_over_the_intervals_they_touch() {
        let life = PairLifetime { first_start_s: 5.0, last_end_s: 25.0 };
        assert_eq!(direct(&[life], 10.0, &[10.0; 3]), [0.5, 1.0, 0.5]);
        assert_eq!(direct(&[life], 10.0, &[10.0, 10.0, 5.0]), [0.5, 1.0, 1.0], "the last is short");
        let alive = Alive::of(&[life], 10.0, 3);
        assert_eq!(alive.means(|at| if at < 2 { 10.0 } else { 5.0 }), [0.5, 1.0, 1.0]);
    }

    #[test]
    fn a_heavy_tail_still_gives_the_sessions_that_made_it() {
        let mut rng = Rng::new(5, 0, 0);
        let sizes: Vec<f64> = (0..20_000)
            .map(|_| nilometer_stat::parametric::pareto(&mut rng, 1.5, 1_000.0).min(1e6))
            .collect();
        let law = Empirical::step_from(sizes, 1_024).expect("law");
        let samples: Vec<f64> = (0..4_000).map(|_| rng.exponential(1.0)).collect();
        let gaps = Empirical::linear_from(samples, 512).expect("law");
        let bytes = (law.mean() * 200.0 * 60.0 / gaps.mean()) as u64;
        let estimate =
            figure_4(Demand { interval: 0, bytes, duration_s: 60.0 }, &law, &gaps, 50, 1);
        assert!((estimate / 200.0 - 1.0).abs() < 0.05, "{estimate} of 200 sessions");
    }
}
