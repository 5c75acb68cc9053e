//! Hurst's parameter of exact fractional Gaussian noise: bias, and how often the interval contains the
//! truth.
//!
//! The noise is exact by circulant embedding (Davies & Harte, *Biometrika* 74(1), 1987): the series'
//! covariances, wrapped around a circle, have a Fourier transform λ that is nowhere negative, and white
//! noise that is scaled by these energies and transformed back has exactly these covariances.

use std::f64::consts::TAU;

use nilometer_stat::log_scale_diagram::{Diagram, FIRST_OCTAVE, Scaling};
use nilometer_stat::{Pyramid, Rng};

/// Values of a series, and how many series.
const LENGTH: usize = 65_536;
const SERIES: usize = 500;
const NOISE: u32 = 0x6647_6e00;

type Complex = (f64, f64);

/// The discrete Fourier transform of a power of two of values, in place (Cooley & Tukey, 1965).
fn transform(values: &mut [Complex]) {
    let count = values.len();
    assert!(count.is_power_of_two());
    for at in 0..count {
        let mirrored = at.reverse_bits() >> (usize::BITS - count.trailing_zeros());
        if at < mirrored {
            values.swap(at, mirrored);
        }
    }
    let roots: Vec<Complex> =
        (0..count / 2).map(|at| (-TAU * at as f64 / count as f64).sin_cos()).collect();
    let mut half = 1;
    while half < count {
        for block in values.chunks_mut(2 * half) {
            let (even, odd) = block.split_at_mut(half);
            for (at, (one, two)) in even.iter_mut().zip(odd).enumerate() {
                let (sin, cos) = roots[at * (count / 2 / half)];
                let turned = (two.0 * cos - two.1 * sin, two.0 * sin + two.1 * cos);
                *two = (one.0 - turned.0, one.1 - turned.1);
                *one = (one.0 + turned.0, one.1 + turned.1);
            }
        }
        half *= 2;
    }
}

/// The covariance of values `apart` places apart, of noise with variance 1.
fn covariance(hurst: f64, apart: usize) -> f64 {
    let power = |x: f64| x.abs().powf(2.0 * hurst);
    let apart = apart as f64;
    0.5 * (power(apart + 1.0) - 2.0 * power(apart) + power(apart - 1.0))
}

/// The square roots of the energies on a circle of twice the length.
fn amplitudes(hurst: f64) -> Vec<f64> {
    let around = 2 * LENGTH;
    let apart = |at: usize| at.min(around - at);
    let mut circle: Vec<Complex> =
        (0..around).map(|at| (covariance(hurst, apart(at)), 0.0)).collect();
    transform(&mut circle);
    circle
        .iter()
        .map(|&(energy, _)| {
            assert!(energy > -1e-9, "the circle has the energy {energy}");
            (energy.max(0.0) / around as f64).sqrt()
        })
        .collect()
}

/// Two independent series.
fn draw(amplitudes: &[f64], rng: &mut Rng) -> [Vec<f64>; 2] {
    let mut white: Vec<Complex> =
        amplitudes.iter().map(|a| (a * rng.normal(), a * rng.normal())).collect();
    transform(&mut white);
    white.truncate(LENGTH);
    white.into_iter().unzip::<_, _, Vec<f64>, Vec<f64>>().into()
}

fn scaling(series: &[f64]) -> Scaling {
    let mut pyramid = Pyramid::new();
    pyramid.extend(series.iter().copied());
    let diagram = Diagram::from(&pyramid);
    let to = diagram.coarsest().expect("a series this long has octaves");
    diagram.fit(FIRST_OCTAVE, to).expect("three octaves at least")
}

#[test]
fn the_transform_is_the_sum_that_it_is_defined_by() {
    let mut rng = Rng::new(1, NOISE, 0);
    let values: Vec<Complex> = (0..64).map(|_| (rng.normal(), rng.normal())).collect();
    let mut fast = values.clone();
    transform(&mut fast);
    for (k, found) in fast.iter().enumerate() {
        let mut sum = (0.0, 0.0);
        for (n, (re, im)) in values.iter().enumerate() {
            let (sin, cos) = (-TAU * (k * n) as f64 / 64.0).sin_cos();
            sum = (sum.0 + re * cos - im * sin, sum.1 + re * sin + im * cos);
        }
        assert!((found.0 - sum.0).abs() < 1e-12 && (found.1 - sum.1).abs() < 1e-12, "{k}");
    }
}

#[test]
fn noise_has_the_requested_covariances() {
    let amplitudes = amplitudes(0.8);
    let mut sums = [0.0; 4];
    for index in 0..10 {
        let mut rng = Rng::new(2, NOISE, index);
        for series in draw(&amplitudes, &mut rng) {
            for (apart, sum) in sums.iter_mut().enumerate() {
                let products = series.iter().zip(&series[apart..]).map(|(one, two)| one * two);
                *sum += products.sum::<f64>() / (20.0 * (LENGTH - apart) as f64);
            }
        }
    }
    for (apart, found) in sums.iter().enumerate() {
        // Long memory makes means of such noise uncertain by a percent or two.
        let expected = covariance(0.8, apart);
        assert!((found - expected).abs() < 0.03, "{apart}: {found}, and not {expected}");
    }
}

#[test]
fn hurst_is_estimated_without_bias_and_its_interval_has_its_coverage() {
    for (round, hurst) in [0.6, 0.8, 0.9].into_iter().enumerate() {
        let amplitudes = amplitudes(hurst);
        let mut found = Vec::new();
        for index in 0..SERIES / 2 {
            let mut rng = Rng::new(3, NOISE + round as u32, index as u64);
            found.extend(draw(&amplitudes, &mut rng).map(|series| scaling(&series)));
        }
        let mean = found.iter().map(|one| one.hurst).sum::<f64>() / SERIES as f64;
        let square = |one: &Scaling| (one.hurst - mean).powi(2);
        let deviation = (found.iter().map(square).sum::<f64>() / (SERIES - 1) as f64).sqrt();
        let covers = |one: &&Scaling| {
            let [low, high] = one.interval().ends();
            (low..=high).contains(&hurst)
        };
        let covered = found.iter().filter(covers).count() as f64 / SERIES as f64;
        let fits = found.iter().filter(|one| one.goodness >= 0.05).count() as f64 / SERIES as f64;
        let [from, to] = found[0].octaves;
        println!(
            "H {hurst}: octaves {from} to {to}: bias {:+.4}, deviation {deviation:.4} ({:.4} \
             foretold), {:.1} % of intervals have it, {:.1} % of lines fit",
            mean - hurst,
            found[0].deviation,
            100.0 * covered,
            100.0 * fits
        );
        assert!((mean - hurst).abs() <= 0.01, "H {hurst}: bias {}", mean - hurst);
        assert!((0.90..=0.98).contains(&covered), "H {hurst}: {covered} of intervals have it");
        assert!((0.90..=0.99).contains(&fits), "H {hurst}: {fits} of lines fit");
    }
}
