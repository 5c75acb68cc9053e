//! Two models side by side: distances between their laws, each beside its sampling floor.
//!
//! The floor answers: if both models had been estimated from the same traffic, how far apart would
//! they be by chance? Two samples of n and m observations differ as one sample of `nm / (n + m)`
//! differs from its law, so the floor is the median distance of such samples drawn from the first.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::{Alias, Empirical, distance, floor};
use serde::Serialize;

use crate::model::{Ranks, TrafficModel};

/// Seeds behind each floor.
const ROUNDS: u32 = 200;
/// Observations in one round at most; more would change the floor by less than it varies.
const SAMPLE_MAX: u64 = 200_000;

/// One distance between two models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// The law: `file_size`, `inter_connection`, `source_rank`, `destination_rank`.
    pub name: String,
    /// `ks`, `w1_log2` (octaves) or `jsd`.
    pub metric: &'static str,
    /// Between the two models.
    pub distance: f64,
    /// What chance alone would give.
    pub floor: f64,
    /// `distance / floor`; none where the floor is zero and the distance is not.
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

/// The size of one sample that is as far from its law as two samples are from each other. A law that
/// was stated, of no sample, is as sure as the largest one.
fn effective(n: u64, m: u64) -> usize {
    let size = |n: u64| if n == 0 { SAMPLE_MAX } else { n.min(SAMPLE_MAX) } as f64;
    let (n, m) = (size(n), size(m));
    libm::ceil(n * m / (n + m)) as usize
}

fn beside(name: &str, metric: &'static str, distance: f64, floor: floor::Floor) -> Distance {
    let ratio = floor::ratio(distance, floor.median);
    Distance { name: name.into(), metric, distance, floor: floor.median, ratio }
}

fn laws(name: &str, a: &Empirical, b: &Empirical, seed: u64) -> Vec<Distance> {
    let count = effective(a.samples(), b.samples());
    // Octaves are counted from one up; a nanosecond is one, so that gaps below a second count.
    let unit = if name == "inter_connection" { 1e9 } else { 1.0 };
    let (a, b) = (&a.scaled(unit), &b.scaled(unit));
    let chance = |metric: &dyn Fn(&mut [f64]) -> f64| {
        let mut sample = vec![0.0; count];
        floor::floor(seed, ROUNDS, |rng| {
            for value in &mut sample {
                *value = a.draw(rng);
            }
            metric(&mut sample)
        })
    };
    vec![
        beside(name, "ks", distance::ks_models(a, b), chance(&|s| distance::ks_to(s, a))),
        beside(
            name,
            "w1_log2",
            distance::w1_log2_models(a, b),
            chance(&|s| distance::w1_log2_to(s, a)),
        ),
        beside(
            name,
            "jsd",
            distance::jsd_quarter_octave_models(a, b),
            chance(&|s| distance::jsd_quarter_octave_to(s, a)),
        ),
    ]
}

fn ranks(name: &str, a: &Ranks, b: &Ranks, seed: u64) -> Distance {
    let (mine, theirs) = (a.shares(usize::MAX), b.shares(usize::MAX));
    let alias = Alias::new(&mine).expect("counts of a checked model are positive");
    let count = effective(a.counts.iter().sum(), b.counts.iter().sum());
    let mut sample = vec![0.0; mine.len()];
    let floor = floor::floor(seed, ROUNDS, |rng| {
        sample.fill(0.0);
        for _ in 0..count {
            sample[alias.draw(rng)] += 1.0;
        }
        distance::jsd(&sample, &mine)
    });
    beside(name, "jsd", distance::jsd(&mine, &theirs), floor)
}
