//! The Cramér-Rao bound: how well a law can be estimated from sampled records at best.
//!
//! Counts of records and of last packets are Poisson, with means λ(θ) that follow from the parameters θ of a law and
//! the number of flows. An unbiased estimator that knows the family has errors of θ whose covariance is at least the
//! inverse of Fisher's information I = Σ ∇λ ∇λᵀ / λ (Rao 1945; Cramér, Mathematical Methods of Statistics, 1946, 32).
//! Errors drawn with this covariance move the distribution function, along its tangent, by the KS distances whose mean
//! is the bound. Only a prior that happens to be right does better, and only with one can an estimate be good where the
//! bound is beyond 0.1.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::grid::Grid;
use super::model_average::{lognormal, mice, tailed};
use super::reference::{Layout, Reference};
use super::remainder::{PARTS, expected_parts};
use crate::Rng;

/// Half the step by which derivatives are taken.
const STEP: f64 = 1e-3;
const DRAWS: usize = 500;
/// Records of more packets are ignored.
const PACKETS_MAX: u64 = 4_000;

/// A law of a family, and the control packets of its flows.
struct Case<const D: usize> {
    law: fn(&[f64; D]) -> Reference,
    at: [f64; D],
    control: u32,
}

/// How flows are sampled, and whether last packets are used.
#[derive(Clone, Copy)]
struct Sampling {
    flows: f64,
    interval: u32,
    with_remainders: bool,
}

impl<const D: usize> Case<D> {
    /// The central difference of `of` for each parameter of the law.
    fn gradients(&self, of: &dyn Fn(&Reference) -> Vec<f64>) -> Vec<Vec<f64>> {
        let beside = |number: usize, step: f64| {
            let mut at = self.at;
            at[number] += step;
            of(&(self.law)(&at))
        };
        let gradient = |number| -> Vec<f64> {
            let two = beside(number, STEP).into_iter().zip(beside(number, -STEP));
            two.map(|(above, below)| (above - below) / (2.0 * STEP)).collect()
        };
        (0..D).map(gradient).collect()
    }

    /// The mean KS distance of an efficient estimator.
    fn bound(&self, sampling: Sampling) -> f64 {
        let Sampling { flows, interval, with_remainders } = sampling;
        let marks = if self.control > 0 { 2 } else { 1 };
        let kinds = (1..PACKETS_MAX).flat_map(|j| (0..=marks.min(j as u32)).map(move |m| (j, m)));
        let counts: BTreeMap<(u64, u32), u64> = kinds.map(|kind| (kind, 1)).collect();
        let grid = Grid::new(&counts, interval.into(), marks);
        let layout = Layout { control: self.control.into(), is_rounded_up: with_remainders };
        let means = |law: &Reference| -> Vec<f64> {
            let shares = law.shares(&grid.bins, layout);
            let mut means: Vec<f64> =
                grid.rows.iter().map(|row| flows * row.chance(&shares)).collect();
            if with_remainders {
                let lasts = expected_parts(law, interval.into());
                means.extend(lasts[..PARTS - 1].iter().map(|l| flows / f64::from(interval) * l));
            }
            means
        };
        let below = |law: &Reference| -> Vec<f64> {
            let sum = |sum: &mut f64, share: f64| {
                *sum += share;
                Some(*sum)
            };
            law.shares(&grid.bins, layout).into_iter().scan(0.0, sum).collect()
        };
        let at = means(&(self.law)(&self.at));
        let mut gradients = self.gradients(&means);
        gradients.push(at.clone());
        let root = inverse_root(&information(&gradients, &at));
        let tangents = self.gradients(&below);
        let mut rng = Rng::new(1, 0x626f_756e, 0);
        let mut sum = 0.0;
        for _ in 0..DRAWS {
            let chance: Vec<f64> = root.iter().map(|_| rng.normal()).collect();
            let errors = root.iter().map(|row| row.iter().zip(&chance).map(|(r, c)| r * c).sum());
            let errors: Vec<f64> = errors.collect();
            let moved = |bin: usize| -> f64 {
                tangents.iter().zip(&errors).map(|(tangent, error)| tangent[bin] * error).sum()
            };
            sum += (0..grid.bins.len()).map(|bin| moved(bin).abs()).fold(0.0, f64::max);
        }
        sum / DRAWS as f64
    }
}

/// Fisher's information of counts with these means.
fn information(gradients: &[Vec<f64>], means: &[f64]) -> Vec<Vec<f64>> {
    let entry = |one: &Vec<f64>, other: &Vec<f64>| -> f64 {
        let each = one.iter().zip(other).zip(means).filter(|(_, mean)| **mean > 1e-9);
        each.map(|((a, b), mean)| a * b / mean).sum()
    };
    gradients.iter().map(|a| gradients.iter().map(|b| entry(a, b)).collect()).collect()
}

/// R with R Rᵀ the inverse of `matrix` = L Lᵀ: the transposed inverse of Cholesky's L.
fn inverse_root(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let size = matrix.len();
    let mut lower = alloc::vec![alloc::vec![0.0; size]; size];
    for i in 0..size {
        for j in 0..=i {
            let before: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
            let rest: f64 = matrix[i][j] - before;
            lower[i][j] = if i == j { rest.sqrt() } else { rest / lower[j][j] };
        }
    }
    let mut root = alloc::vec![alloc::vec![0.0; size]; size];
    for (column, root) in root.iter_mut().enumerate() {
        for i in column..size {
            let before: f64 = (column..i).map(|k| lower[i][k] * root[k]).sum();
            root[i] = (f64::from(u8::from(i == column)) - before) / lower[i][i];
        }
    }
    root
}

const MILLION: f64 = 1e6;

fn logit(share: f64) -> f64 {
    (share / (1.0 - share)).ln()
}

/// The synthetic original: 88 % lognormal, 12 % Pareto from 6.2 segments on.
fn synthetic() -> Case<5> {
    let (mu, sigma) = (8.16 - 1_448.0_f64.ln(), 1.1_f64);
    let least = (9_000.0 / 1_448.0_f64).ln() - mu - sigma;
    let at = [mu, sigma.ln(), logit(0.12), least, 1.2_f64.ln()];
    Case { law: tailed, at, control: 2 }
}

/// The sizes of the Web.
fn web() -> Case<5> {
    let (mu, sigma) = (9.357 - 1_448.0_f64.ln(), 1.318_f64);
    let least = (133_000.0 / 1_448.0_f64).ln() - mu - sigma;
    let at = [mu, sigma.ln(), logit(0.07), least, 1.1_f64.ln()];
    Case { law: tailed, at, control: 2 }
}

/// Two mixtures of mice and elephants in whole packets, for which only packets are counted.
fn by_packets() -> [Case<4>; 2] {
    let at = |mice: f64, least: f64, index: f64| {
        [logit(0.45), (mice - 1.0).ln(), least.ln(), index.ln()]
    };
    let whole = Case { law: mice, at: at(2.5, 3.0, 1.3), control: 1 };
    let flows = at(3.0, 3.0, 1.2);
    [whole, Case { law: mice, at: flows, control: 0 }]
}

/// The claim of the essays: counts of packets leave laws open that last packets determine.
#[test]
fn last_packets_identify_laws_that_packet_counts_do_not() {
    let sampling =
        |interval, with_remainders| Sampling { flows: MILLION, interval, with_remainders };
    let synthetic = synthetic();
    assert!(synthetic.bound(sampling(100, false)) > 0.1);
    assert!(synthetic.bound(sampling(100, true)) < 0.03);
    assert!(synthetic.bound(sampling(1_000, false)) > 1.0);
    assert!(synthetic.bound(sampling(1_000, true)) < 0.1);
    assert!(web().bound(sampling(100, false)) < 0.02);
    let one = Case { law: lognormal, at: [1.714, 2.0_f64.ln()], control: 2 };
    assert!(one.bound(sampling(1_000, false)) < 0.02);
    for case in by_packets() {
        assert!(case.bound(sampling(100, false)) > 0.1);
        assert!(case.bound(sampling(1_000, false)) > 1.0);
    }
}

/// The mean of a Poisson count: its information is one over it.
#[test]
fn the_inverse_root_agrees_with_an_example_by_hand() {
    let matrix = information(&[alloc::vec![2.0, 0.0], alloc::vec![2.0, 3.0]], &[4.0, 9.0]);
    assert_eq!(matrix, [[1.0, 1.0], [1.0, 2.0]]);
    let root = inverse_root(&matrix);
    let entry = |i: usize, j: usize| -> f64 { (0..2).map(|k| root[i][k] * root[j][k]).sum() };
    assert_eq!([entry(0, 0), entry(0, 1), entry(1, 1)], [2.0, -1.0, 1.0]);
}
