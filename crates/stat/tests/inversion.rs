//! Sampling inverted on a million synthetic flows: what `SPECIFICATION.md` promises, seed by seed.
//!
//! Flows are 55 % mice of a geometric law with a mean of three packets and 45 % of a Pareto law of
//! index 1.2 from three packets on; each packet is sampled with the chance 1/N.

use nilometer_stat::inversion::{Inversion, Reference, SampledFlows};
use nilometer_stat::{Rng, ks_to, lognormal, pareto};

const FLOWS: usize = 1_000_000;
const SEEDS: u64 = 10;
const LONGEST: f64 = 4e5;
const PURPOSE: u32 = 0x696e_7672;

/// The lengths of a million flows, drawn by `draw`.
fn lengths(seed: u64, draw: impl Fn(&mut Rng) -> f64) -> Vec<f64> {
    let mut rng = Rng::new(seed, PURPOSE, 0);
    (0..FLOWS).map(|_| draw(&mut rng).clamp(1.0, LONGEST).floor()).collect()
}

/// 55 % mice of this mean, 45 % elephants from this length on.
fn mixed(rng: &mut Rng, mice_mean: f64, least: f64) -> f64 {
    match rng.unit() < 0.55 {
        true => 1.0 + ((-rng.unit()).ln_1p() / (1.0 - 1.0 / mice_mean).ln()).floor(),
        false => pareto(rng, 1.2, least),
    }
}

fn mice_and_elephants(rng: &mut Rng) -> f64 {
    mixed(rng, 3.0, 3.0)
}

/// Samples each packet of each flow with the chance 1 in `interval`: the distance to the next sampled
/// packet is geometric, whatever flows lie between.
fn sample(lengths: &[f64], interval: u32, seed: u64) -> SampledFlows {
    let mut rng = Rng::new(seed, PURPOSE, 1);
    let ln_missed = (-1.0 / f64::from(interval)).ln_1p();
    let mut way = || ((-rng.unit()).ln_1p() / ln_missed) as u64;
    let mut flows = SampledFlows::new(interval).expect("sampled");
    let mut next = way();
    for &length in lengths {
        let length = length as u64;
        let (mut packets, syn) = (0, next == 0);
        while next < length {
            packets += 1;
            next += 1 + way();
        }
        next -= length;
        flows.add(packets, syn);
    }
    flows
}

/// The relative error of the flow count and of the mean length, and the KS distance.
fn errors(lengths: &mut [f64], found: &Inversion) -> [f64; 3] {
    let mean = lengths.iter().sum::<f64>() / FLOWS as f64;
    let flows = found.flows.value / FLOWS as f64 - 1.0;
    [flows, found.mean_length.value / mean - 1.0, ks_to(lengths, &found.lengths)]
}

#[test]
fn the_laws_of_a_million_sampled_flows_are_recovered() {
    for (interval, ks_most, relative) in [(100, 0.06, 0.02), (1_000, 0.18, 0.065)] {
        let (mut sums, mut outside) = ([0.0; 3], 0);
        for seed in 1..=SEEDS {
            let mut lengths = lengths(seed, mice_and_elephants);
            let found = sample(&lengths, interval, seed).invert().expect("SYNs");
            let error = errors(&mut lengths, &found);
            let [flows, mean, ks] = error;
            println!(
                "1:{interval} seed {seed}: flows {:+.2} %, mean length {:+.2} %, KS {ks:.4}, {} steps",
                100.0 * flows,
                100.0 * mean,
                found.steps
            );
            let [low, high] = found.flows.interval.ends();
            outside += u64::from(!(low..=high).contains(&(FLOWS as f64)));
            for (sum, error) in sums.iter_mut().zip(error) {
                *sum += error / SEEDS as f64;
            }
        }
        let [flows, mean, ks] = sums;
        println!("1:{interval} mean: flows {flows:+.4}, mean length {mean:+.4}, KS {ks:.4}");
        assert!(flows.abs() <= relative, "1:{interval}: flows off by {flows}");
        assert!(mean.abs() <= relative, "1:{interval}: mean length off by {mean}");
        assert!(ks <= ks_most, "1:{interval}: KS {ks}");
        assert!(outside <= 2, "1:{interval}: {outside} intervals of {SEEDS} miss the truth");
    }
}

/// Mice and elephants that lie far apart, or overlap: there laws of different shapes are equally
/// likely, and the prior is farther from the truth.
#[test]
fn other_mixtures_cost_more() {
    for (mice_mean, least) in [(6.0, 20.0), (3.0, 1.0)] {
        for interval in [100, 1_000] {
            let mut sum = 0.0;
            for seed in 1..=3 {
                let mut lengths = lengths(seed, |rng| mixed(rng, mice_mean, least));
                let found = sample(&lengths, interval, seed).invert().expect("SYNs");
                sum += errors(&mut lengths, &found)[2] / 3.0;
            }
            println!("mice of {mice_mean}, elephants from {least}, 1:{interval}: KS {sum:.4}");
            assert!(sum < 0.18, "{mice_mean}, {least}, 1:{interval}: KS {sum}");
        }
    }
}

/// Where lengths are lognormal, that family is recognised.
#[test]
fn a_lognormal_law_is_recognised() {
    for interval in [100, 1_000] {
        let mut lengths = lengths(1, |rng| lognormal(rng, 2.3, 1.7).ceil());
        let found = sample(&lengths, interval, 1).invert().expect("SYNs");
        assert!(matches!(found.reference, Reference::Lognormal { .. }), "{:?}", found.reference);
        let [_, _, ks] = errors(&mut lengths, &found);
        assert!(ks < 0.03, "1:{interval}: KS {ks}");
    }
}

/// Neither family: three classes of flows of nearly fixed lengths. Where a tenth of the packets is
/// sampled, records outweigh the reference.
#[test]
fn records_outweigh_a_reference_that_is_wrong() {
    let three = |rng: &mut Rng| match rng.below(10) {
        0..5 => 5.0 + rng.below(3) as f64,
        5..8 => 100.0 + rng.below(20) as f64,
        _ => 2_000.0 + rng.below(500) as f64,
    };
    let mut lengths = lengths(1, three);
    let found = sample(&lengths, 10, 1).invert().expect("SYNs");
    let [flows, mean, ks] = errors(&mut lengths, &found);
    assert!(flows.abs() < 0.01 && mean.abs() < 0.01, "{flows} {mean}");
    assert!(ks < 0.25, "KS {ks}");
    let at = |length: f64| found.lengths.cdf(length);
    println!("three classes, 1:10: KS {ks:.4}; {:.4} and {:.4}", at(40.0), at(500.0));
    assert!((at(40.0) - 0.5).abs() < 0.01 && (at(500.0) - 0.8).abs() < 0.01);
}

/// Intervals that claim to contain the truth in 95 % of all samplings do so in about as many.
#[test]
fn intervals_have_their_stated_coverage() {
    let lengths: Vec<f64> = lengths(7, mice_and_elephants)[..100_000].to_vec();
    let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
    let (mut flows, mut means) = (0, 0);
    for seed in 0..60 {
        let found = sample(&lengths, 1_000, 100 + seed).invert().expect("SYNs");
        flows += u32::from(found.flows.interval.holds(lengths.len() as f64));
        means += u32::from(found.mean_length.interval.holds(mean));
    }
    // 57 of 60 are expected; fewer than 51 almost never occur.
    assert!(flows >= 51 && means >= 51, "{flows} and {means} of 60");
}
