//! The shares of the bins that best explain the records, by accelerated expectation-maximisation.
//!
//! Expectation: each record is distributed over the bins in proportion to share times chance, and so are the unseen
//! flows. Their number follows from the shares so far or, where only the records are known, from N times the SYNs
//! (`Grid::missed`). Maximisation: the flows of a bin, divided by all flows, are its new share. The likelihood never
//! falls, and rises for thousands of rounds where records hold little information. So two rounds are taken at a time,
//! and a third step follows their direction as far as their curvature allows (Varadhan & Roland, *Scandinavian Journal
//! of Statistics* 35, 2008: SQUAREM, step length S3), in logarithms, so that no share becomes negative. A step that
//! lowers the likelihood is shortened until it is the plain one, so that the accelerated likelihood never falls
//! either.
//!
//! The reference counts as [`Problem::weight`] further observed flows with its law of lengths: bins without
//! evidence in the records keep its shape, and the tail is not broken into spikes, one for each of the few
//! longest flows, as the unregularised maximum would be.

use alloc::vec::Vec;

use super::grid::Grid;
use super::grid::SHARE_MIN;

/// Rounds of three steps at most.
const ROUNDS_MAX: u32 = 400;
/// The search ends when a round gains less than this, in natural logarithms of the likelihood.
const GAIN_MIN: f64 = 1e-3;

/// A problem to solve.
pub(super) struct Problem<'a> {
    pub grid: &'a Grid,
    pub reference: &'a [f64],
    /// The number of flows that the reference counts as.
    pub weight: f64,
}

/// The solution of a [`Problem`].
#[derive(Clone, Debug)]
pub(super) struct Solution {
    pub shares: Vec<f64>,
    /// Number of expectation steps.
    pub steps: u32,
}

impl Problem<'_> {
    /// One expectation and maximisation from `shares`.
    fn step(&self, shares: &[f64]) -> Vec<f64> {
        let grid = self.grid;
        let mut dealt: Vec<f64> = self.reference.iter().map(|share| share * self.weight).collect();
        for row in &grid.rows {
            let each = row.count / row.chance(shares).max(SHARE_MIN);
            let part = dealt[row.first..].iter_mut().zip(&shares[row.first..]);
            for ((dealt, share), chance) in part.zip(&row.chances) {
                *dealt += each * chance * share;
            }
        }
        let seen = grid.seen(shares);
        let missed = |missed: f64| missed / (1.0 - seen).max(SHARE_MIN);
        let each = grid.missed.map_or(grid.records / seen, missed);
        for ((dealt, share), chance) in dealt.iter_mut().zip(shares).zip(&grid.unseen) {
            *dealt += each * chance * share;
        }
        normalised(dealt)
    }

    /// The objective, which never falls: the log-likelihood of the records and of the reference's flows.
    fn objective(&self, shares: &[f64]) -> f64 {
        let pull = self.reference.iter().zip(shares);
        let pull: f64 = pull.map(|(reference, share)| reference * libm::log(*share)).sum();
        self.grid.likelihood(shares) + self.weight * pull
    }

    /// Two plain steps and the extrapolation from them.
    fn round(&self, from: &[f64], before: f64) -> (Vec<f64>, f64, u32) {
        let one = self.step(from);
        let two = self.step(&one);
        let ln = |shares: &[f64]| -> Vec<f64> { shares.iter().map(|s| libm::log(*s)).collect() };
        let (start, one, two_ln) = (ln(from), ln(&one), ln(&two));
        let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
        let way: Vec<f64> = one.iter().zip(&start).map(|(a, b)| a - b).collect();
        let second = two_ln.iter().zip(&one).map(|(a, b)| a - b);
        let bend: Vec<f64> = second.zip(&way).map(|(a, b)| a - b).collect();
        let curvature = squares(&mut bend.iter().copied());
        let mut steps = 2;
        if curvature > 0.0 {
            let mut length = -libm::sqrt(squares(&mut way.iter().copied()) / curvature).max(1.0);
            while length < -1.01 {
                let far = (0..from.len())
                    .map(|at| start[at] - 2.0 * length * way[at] + length * length * bend[at])
                    .map(|ln| libm::exp(ln.clamp(-690.0, 0.0)));
                let shares = self.step(&normalised(far.collect()));
                let after = self.objective(&shares);
                steps += 1;
                if after >= before {
                    return (shares, after, steps);
                }
                length = 0.5 * (length - 1.0);
            }
        }
        let after = self.objective(&two);
        (two, after, steps)
    }

    /// Solves it, starting at the reference.
    pub fn solve(&self) -> Solution {
        let mut shares = self.reference.to_vec();
        let mut objective = self.objective(&shares);
        let mut steps = 0;
        for _ in 0..ROUNDS_MAX {
            let (next, after, taken) = self.round(&shares, objective);
            steps += taken;
            let gain = after - objective;
            (shares, objective) = (next, after);
            if gain < GAIN_MIN {
                break;
            }
        }
        Solution { shares, steps }
    }
}

fn normalised(mut shares: Vec<f64>) -> Vec<f64> {
    let total: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share = (*share / total).max(SHARE_MIN));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use alloc::collections::BTreeMap;

    fn records(interval: u64) -> BTreeMap<(u64, u32), u64> {
        let mut rng = Rng::new(3, 0x656d, interval);
        let mut counts = BTreeMap::new();
        for _ in 0..60_000 {
            let length = crate::pareto(&mut rng, 1.2, 2.0).min(1e5) as u64;
            let mut packets = 0;
            let syn = rng.below(interval) == 0;
            packets += u64::from(syn);
            packets += (1..length).filter(|_| rng.below(interval) == 0).count() as u64;
            if packets > 0 {
                *counts.entry((packets, u32::from(syn))).or_default() += 1;
            }
        }
        counts
    }

    /// The naive twin takes plain steps until nothing changes.
    #[test]
    fn accelerated_steps_end_where_plain_ones_do_and_are_fewer() {
        for interval in [10, 50] {
            let counts = records(interval);
            let grid = Grid::new(&counts, interval as f64, 1);
            let reference = normalised(alloc::vec![1.0; grid.bins.len()]);
            let weight = 60_000.0 / interval as f64;
            let problem = Problem { grid: &grid, reference: &reference, weight };
            let found = problem.solve();
            let reached = problem.objective(&found.shares);
            let mut plain = reference.clone();
            let mut objectives = alloc::vec![problem.objective(&plain)];
            while objectives.last().expect("one") < &(reached - 0.5) {
                plain = problem.step(&plain);
                objectives.push(problem.objective(&plain));
                assert!(objectives.len() < 20_000, "1 in {interval}: plain steps come as far");
            }
            assert!(objectives.windows(2).all(|two| two[1] >= two[0] - 1e-6));
            let plain = objectives.len() - 1;
            assert!(2 * found.steps as usize <= plain, "{} against {plain}", found.steps);
        }
    }

    #[test]
    fn a_heavy_reference_is_kept() {
        let counts = records(10);
        let grid = Grid::new(&counts, 10.0, 1);
        let reference = normalised((1..=grid.bins.len()).map(|at| 1.0 / at as f64).collect());
        let problem = Problem { grid: &grid, reference: &reference, weight: 1e12 };
        let found = problem.solve();
        for (share, reference) in found.shares.iter().zip(&reference) {
            assert!((share / reference - 1.0).abs() < 1e-3);
        }
    }
}
