//! Fidelity: how close the traffic was to its model, beside how close a second sample would be.
//!
//! A distance alone means nothing: even draws from the model itself are at some distance from it,
//! which is larger the fewer they are. So each distance stands beside its *floor*, the median over
//! 200 seeds of the same distance for an independent sample of the same count drawn from the model,
//! from the same pools and with the same censoring. A ratio near one means: as close to the model as
//! a second sample.
//!
//! * `file_size`: Kolmogorov-Smirnov distance of the measured payloads to P(FileSize).
//! * `inter_connection`: Kolmogorov-Smirnov distance of gaps to P(InterConnection). A wait that the
//!   run's end cut is censored, so the Kaplan-Meier estimate takes the place of the plain
//!   distribution, in the floor as well.
//! * `source_rank`, `destination_rank`: Jensen-Shannon divergence of how often each rank's address
//!   was used, one use for each session, because a session draws its pair once.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::survival::{KaplanMeier, Lifetime};
use nilometer_stat::{Alias, Empirical, distance, floor};
use serde::{Deserialize, Serialize};

use crate::random_streams;

/// Seeds behind each floor.
pub const ROUNDS: u32 = 200;

/// A gap between two connections of one session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// Seconds waited, until the connection or until the run's end.
    pub waited_s: f64,
    /// Whether the connection came.
    pub observed: bool,
    /// Seconds from the gap's beginning to the run's end: the longest wait that could be observed.
    pub limit_s: f64,
}

/// Measurements of the traffic.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Payload bytes of each file.
    pub sizes: Vec<f64>,
    /// Gaps of each session.
    pub gaps: Vec<Gap>,
    /// Sessions that used each source, by rank.
    pub source_uses: Vec<u64>,
    /// Sessions that used each destination, by rank.
    pub destination_uses: Vec<u64>,
}

/// The laws that the traffic was to follow.
#[derive(Clone, Debug)]
pub struct Laws<'a> {
    /// P(FileSize), bytes.
    pub file_size: &'a Empirical,
    /// P(InterConnection) as performed, seconds.
    pub inter_connection: &'a Empirical,
    /// Shares of the sources that have an address.
    pub sources: Vec<f64>,
    /// Shares of the destinations that have an address.
    pub destinations: Vec<f64>,
}

/// One distance beside its floor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// `file_size`, `inter_connection`, `source_rank` or `destination_rank`.
    pub name: alloc::string::String,
    /// Distance of the measured traffic to the model.
    pub distance: f64,
    /// Median distance of independent samples from the model.
    pub floor: f64,
    /// 5th percentile of these distances.
    pub floor_p5: f64,
    /// 95th percentile of these distances.
    pub floor_p95: f64,
    /// `distance / floor`; `None` where the floor is zero and the distance is not.
    pub ratio: Option<f64>,
    /// Observations behind the distance.
    pub count: u64,
}

/// Computes all four distances.
pub fn judge(measured: &Measured, laws: &Laws<'_>, seed: u64) -> Vec<Fidelity> {
    vec![
        file_size(measured, laws.file_size, seed),
        inter_connection(&measured.gaps, laws.inter_connection, seed),
        rank("source_rank", &measured.source_uses, &laws.sources, seed, 2),
        rank("destination_rank", &measured.destination_uses, &laws.destinations, seed, 3),
    ]
}

fn floors(
    seed: u64,
    figure: u64,
    distance: impl FnMut(&mut nilometer_stat::Rng) -> f64,
) -> floor::Floor {
    floor::floor(seed ^ (u64::from(random_streams::FLOORS) << 56 | figure << 48), ROUNDS, distance)
}

fn fidelity(name: &str, count: usize, distance: f64, floor: floor::Floor) -> Fidelity {
    Fidelity {
        name: name.into(),
        distance,
        floor: floor.median,
        floor_p5: floor.p5,
        floor_p95: floor.p95,
        ratio: floor::ratio(distance, floor.median),
        count: count as u64,
    }
}

fn file_size(measured: &Measured, law: &Empirical, seed: u64) -> Fidelity {
    let count = measured.sizes.len();
    let distance = match count {
        0 => 1.0,
        _ => distance::ks_to(&mut measured.sizes.clone(), law),
    };
    let mut sample = vec![0.0; count];
    let floor = floors(seed, 0, |rng| {
        for value in &mut sample {
            *value = law.draw(rng);
        }
        if count == 0 { 0.0 } else { distance::ks_to(&mut sample, law) }
    });
    fidelity("file_size", count, distance, floor)
}

/// Kolmogorov-Smirnov distance of censored gaps to `law`; 1 where there is none.
pub fn gap_distance(gaps: &[Gap], law: &Empirical) -> f64 {
    let lives: Vec<Lifetime> = gaps
        .iter()
        .map(|gap| Lifetime { duration: gap.waited_s, observed: gap.observed })
        .collect();
    if lives.iter().any(|life| life.observed) { KaplanMeier::new(&lives).ks_to(law) } else { 1.0 }
}

fn inter_connection(gaps: &[Gap], law: &Empirical, seed: u64) -> Fidelity {
    let mut sample = gaps.to_vec();
    let floor = floors(seed, 1, |rng| {
        for gap in &mut sample {
            let drawn = law.draw(rng);
            gap.observed = drawn <= gap.limit_s;
            gap.waited_s = drawn.min(gap.limit_s);
        }
        gap_distance(&sample, law)
    });
    fidelity("inter_connection", gaps.len(), gap_distance(gaps, law), floor)
}

fn rank(name: &str, uses: &[u64], shares: &[f64], seed: u64, figure: u64) -> Fidelity {
    let count: u64 = uses.iter().sum();
    let measured: Vec<f64> = uses.iter().map(|&uses| uses as f64).collect();
    let distance = if count == 0 { 1.0 } else { distance::jsd(&measured, shares) };
    let alias = Alias::new(shares).expect("shares of a checked model are positive");
    let mut sample = vec![0.0; shares.len()];
    let floor = floors(seed, figure, |rng| {
        sample.fill(0.0);
        for _ in 0..count {
            sample[alias.draw(rng)] += 1.0;
        }
        if count == 0 { 0.0 } else { distance::jsd(&sample, shares) }
    });
    fidelity(name, count as usize, distance, floor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::{Rng, parametric};

    fn laws() -> (Empirical, Empirical, Vec<f64>) {
        let mut rng = Rng::new(1, 0, 0);
        let sizes: Vec<f64> = (0..5_000)
            .map(|_| libm::round(parametric::lognormal(&mut rng, 8.0, 1.2)).max(1.0))
            .collect();
        let gaps: Vec<f64> = (0..5_000).map(|_| rng.exponential(0.6).min(5.0)).collect();
        (
            Empirical::step_from(sizes, 1_024).expect("law"),
            Empirical::linear_from(gaps, 512).expect("law"),
            parametric::zipf_weights(100, 1.0),
        )
    }

    fn sample(factor: f64) -> Vec<Fidelity> {
        let (sizes, gaps, shares) = laws();
        let mut rng = Rng::new(77, 9, 0);
        let alias = Alias::new(&shares).expect("shares");
        let mut uses = vec![0; 100];
        for _ in 0..700 {
            uses[alias.draw(&mut rng)] += 1;
        }
        let measured = Measured {
            sizes: (0..3_000).map(|_| sizes.draw(&mut rng) * factor).collect(),
            gaps: (0..3_000)
                .map(|_| {
                    let limit_s = rng.unit() * 20.0;
                    let drawn = gaps.draw(&mut rng) * factor;
                    Gap { waited_s: drawn.min(limit_s), observed: drawn <= limit_s, limit_s }
                })
                .collect(),
            source_uses: uses.clone(),
            destination_uses: uses.iter().rev().copied().collect(),
        };
        let laws = Laws {
            file_size: &sizes,
            inter_connection: &gaps,
            sources: shares.clone(),
            destinations: shares,
        };
        judge(&measured, &laws, 1)
    }

    #[test]
    fn a_second_sample_is_near_the_floor_and_another_law_is_not() {
        let same = sample(1.0);
        for figure in &same[..3] {
            let ratio = figure.ratio.expect("a floor");
            assert!((0.3..2.0).contains(&ratio), "{figure:?}");
        }
        assert!(same[3].ratio.expect("a floor") > 3.0, "ranks reversed: {:?}", same[3]);
        let other = sample(1.3);
        for figure in &other[..2] {
            assert!(figure.ratio.expect("a floor") > 3.0, "{figure:?}");
        }
    }

    #[test]
    fn nothing_measured_is_the_greatest_distance_not_none() {
        let (sizes, gaps, shares) = laws();
        let laws = Laws {
            file_size: &sizes,
            inter_connection: &gaps,
            sources: shares.clone(),
            destinations: shares,
        };
        let verdicts = judge(&Measured::default(), &laws, 1);
        assert_eq!(verdicts.len(), 4);
        assert!(verdicts.iter().all(|figure| figure.distance == 1.0));
    }
}
