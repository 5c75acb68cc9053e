//! Two models side by side: distances between their laws, each beside its sampling floor.
//!
//! The floor answers this question: if both models had been estimated from the same traffic, how far apart
//! would they be by chance? Two samples of n and m observations differ as one sample of `nm / (n + m)`
//! differs from its law, so the floor is the median distance of such samples drawn from the first. For
//! samples larger than a limit, the distances of a smaller sample are computed and scaled down as they fall
//! with the size: those of distribution functions by its square root, divergences by the size itself.
//!
//! Ranks are different. Each model has its addresses sorted by how often they appear, and sorting removes most
//! of the randomness. So two samples are drawn from the model with more counts, sorted and compared, as the
//! models were.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::{Empirical, distance, floor, poisson};
use serde::Serialize;

use crate::model::{Ranks, TrafficModel};

/// Seeds behind each floor.
const ROUNDS: u32 = 200;
/// The fewest seeds for a floor of many ranks, and the number of ranks drawn in all rounds together.
const ROUNDS_MIN: u32 = 20;
const RANKS_DRAWN: usize = 500_000;
/// The most observations drawn in one round.
const SAMPLE_MAX: u64 = 50_000;

/// One distance between two models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// The law: `file_size`, `inter_connection`, `source_rank`, `destination_rank`.
    pub name: String,
    /// `ks`, `w1_log2` (octaves) or `jsd`.
    pub metric: &'static str,
    /// The distance between the two models.
    pub distance: f64,
    /// The distance that chance alone would give.
    pub floor: f64,
    /// `distance / floor`; `None` where the floor is zero and the distance is not.
    pub ratio: Option<f64>,
}

/// All distances between two models.
pub fn compare(a: &TrafficModel, b: &TrafficModel, seed: u64) -> Vec<Distance> {
    let mut distances = Vec::new();
    for (name, a, b) in [
        ("file_size", &a.file_size, &b.file_size),
        ("inter_connection", &a.inter_connection, &b.inter_connection),
    ] {
        distances.extend(laws(name, a, b, seed));
    }
    for (name, a, b) in [
        ("source_rank", &a.sources, &b.sources),
        ("destination_rank", &a.destinations, &b.destinations),
    ] {
        distances.push(ranks(name, a, b, seed));
    }
    distances
}

/// The size of one sample that is as far from its law as two samples are from each other. A stated law,
/// without a sample, counts as certain as the largest one.
fn effective(n: u64, m: u64) -> f64 {
    let size = |n: u64, other: u64| if n == 0 { other.max(SAMPLE_MAX) } else { n } as f64;
    let (n, m) = (size(n, m), size(m, n));
    libm::ceil(n * m / (n + m))
}

fn beside(name: &str, metric: &'static str, distance: f64, floor: f64) -> Distance {
    Distance { name: name.into(), metric, distance, floor, ratio: floor::ratio(distance, floor) }
}

fn laws(name: &str, a: &Empirical, b: &Empirical, seed: u64) -> Vec<Distance> {
    let count = effective(a.samples(), b.samples());
    let drawn = count.min(SAMPLE_MAX as f64);
    // Values below one do not count in octaves; with nanoseconds as the unit, gaps below a second count.
    let unit = if name == "inter_connection" { 1e9 } else { 1.0 };
    let (a, b) = (&a.scaled(unit), &b.scaled(unit));
    let mut sample = vec![0.0; drawn as usize];
    let mut chance = |growth: f64, metric: &dyn Fn(&mut [f64]) -> f64| {
        let floor = floor::floor(seed, ROUNDS, |rng| {
            for value in &mut sample {
                *value = a.draw(rng);
            }
            metric(&mut sample)
        });
        floor.median * libm::pow(drawn / count, growth)
    };
    vec![
        beside(name, "ks", distance::ks_models(a, b), chance(0.5, &|s| distance::ks_to(s, a))),
        beside(
            name,
            "w1_log2",
            distance::w1_log2_models(a, b),
            chance(0.5, &|s| distance::w1_log2_to(s, a)),
        ),
        beside(
            name,
            "jsd",
            distance::jsd_quarter_octave_models(a, b),
            chance(1.0, &|s| distance::jsd_quarter_octave_to(s, a)),
        ),
    ]
}

fn ranks(name: &str, a: &Ranks, b: &Ranks, seed: u64) -> Distance {
    let (mine, theirs) = (a.shares(usize::MAX), b.shares(usize::MAX));
    let sizes = [a, b].map(|ranks| ranks.counts.iter().sum::<u64>() as f64);
    let source = if sizes[1] > sizes[0] { &theirs } else { &mine };
    let rounds = (RANKS_DRAWN / source.len()).clamp(ROUNDS_MIN as usize, ROUNDS as usize) as u32;
    let floor = floor::floor(seed, rounds, |rng| {
        let [one, other] = sizes.map(|size| {
            let mut counts: Vec<f64> =
                source.iter().map(|share| poisson(rng, size * share)).collect();
            counts.sort_unstable_by(|a, b| b.total_cmp(a));
            counts
        });
        distance::jsd(&one, &other)
    });
    beside(name, "jsd", distance::jsd(&mine, &theirs), floor.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::{Alias, Rng, zipf_weights};

    fn sampled(exponent: f64, size: usize, seed: u64) -> Ranks {
        let alias = Alias::new(&zipf_weights(5_000, exponent)).expect("weights");
        let mut rng = Rng::new(seed, 0, 0);
        let mut counts = vec![0u64; 5_000];
        (0..size).for_each(|_| counts[alias.draw(&mut rng)] += 1);
        counts.retain(|count| *count > 0);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        Ranks { counts, addresses: Vec::new() }
    }

    #[test]
    fn ranks_of_one_source_are_at_their_floor_and_those_of_another_are_not() {
        for (exponent, sizes) in
            [(1.0, [10_000, 10_000]), (0.7, [10_000, 10_000]), (1.0, [5_000, 50_000])]
        {
            let of = |seed, at: usize| sampled(exponent, sizes[at], seed);
            let ratios = (0..5).map(|seed| ranks("x", &of(seed, 0), &of(100 + seed, 1), 1).ratio);
            let mut ratios: Vec<f64> = ratios.map(|ratio| ratio.expect("a floor")).collect();
            ratios.sort_by(f64::total_cmp);
            assert!((0.5..2.0).contains(&ratios[2]), "{exponent}, {sizes:?}: {ratios:?}");
            let other = ranks("x", &of(1, 0), &sampled(exponent + 0.4, sizes[1], 9), 1);
            assert!(other.ratio.expect("a floor") > 4.0, "{other:?}");
        }
    }

    #[test]
    fn floors_of_large_samples_grow_less_with_their_size() {
        let law = |samples: u64| {
            let knots = (0..=100).map(|n| (f64::from(n) / 100.0, 1.0 + f64::from(n))).collect();
            Empirical::new(nilometer_stat::Form::Linear, samples, knots).expect("a law")
        };
        let floors =
            |size: u64| laws("x", &law(size), &law(size), 1).into_iter().map(|of| of.floor);
        // A sample of 20 million is not drawn, one of 20 thousand is.
        for (large, (small, growth)) in
            floors(40_000_000).zip(floors(40_000).zip([31.6, 31.6, 1e3]))
        {
            assert!((small / large / growth - 1.0).abs() < 0.2, "{small} and {large}");
        }
    }
}
