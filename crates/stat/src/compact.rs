//! From samples to a quantile table: few knots, the whole heavy tail, the exact mean.
//!
//! A model file must stay readable, yet with Pareto sizes the largest few samples carry the volume:
//! of 100,000 draws at α = 1.2 the top hundred hold about a third of the bytes. So a quarter of the
//! knots goes to the largest values, each by itself, and the rest of the samples share the other
//! knots in groups of nearly equal count. A group never splits samples of equal value, so an atom
//! (the 40-byte segment, the 1,460-byte one) keeps its exact probability if it outweighs two
//! groups.
//!
//! Each group is represented so that its sum, and with it the mean of the whole, is kept:
//!
//! * *step*: by its mean. If all samples are whole numbers, so is the knot: the mean is rounded,
//!   the error carried into the next group, and the last group that spans two whole numbers is
//!   split between neighbours so that the carry ends at zero. The table then has the samples' sum
//!   to the byte.
//! * *linear*: by two straight pieces from the group's first value, at its lower cumulative, to the
//!   next group's first, at the upper. Measure both as fractions of the group's box. A knot on the
//!   box's falling diagonal, at cumulative t and value 1 − t, gives the two pieces the mean t(1 −
//!   t)/2 + (1 − t)(2 − t)/2 = 1 − t. So the knot sits at the height of the group's own mean,
//!   always inside the box; for a group of equal samples it falls into the corner and makes an atom
//!   and a gap.

use alloc::vec::Vec;
use core::ops::Range;

use crate::empirical::{Empirical, EmpiricalError, Form, KNOTS_LIMIT};

/// The fewest knots a table is compressed to; a smaller `knots_max` is raised to this.
pub const KNOTS_MIN: usize = 8;

/// Below this every whole number is exact as a float.
const WHOLE_LIMIT: f64 = (1u64 << 53) as f64;

/// The fewest samples that show how values spread between neighbours.
const PAIR: u64 = 2;

/// Samples of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    value: f64,
    count: u64,
}

impl Empirical {
    /// The discrete law of `samples`, in any order, in at most `knots_max` knots, taken as
    /// [`KNOTS_MIN`]..=[`KNOTS_LIMIT`]. With no more distinct values than that the law is exact.
    /// The mean is the samples' own, but for rounding of floats.
    ///
    /// # Errors
    /// If there is no sample, or one that is negative or not finite.
    pub fn step_from(samples: Vec<f64>, knots_max: usize) -> Result<Empirical, EmpiricalError> {
        Empirical::step_of(runs_of(samples)?, knots_max)
    }

    /// The same of samples that were counted: (value, how many), in any order, a value perhaps more
    /// than once.
    ///
    /// # Errors
    /// If there is no sample, or one that is negative or not finite.
    pub fn step_from_counts(
        counts: Vec<(f64, u64)>,
        knots_max: usize,
    ) -> Result<Empirical, EmpiricalError> {
        Empirical::step_of(runs_of_counts(counts)?, knots_max)
    }

    fn step_of(runs: Vec<Run>, knots_max: usize) -> Result<Empirical, EmpiricalError> {
        let knots_max = knots_max.clamp(KNOTS_MIN, KNOTS_LIMIT);
        let total: u64 = runs.iter().map(|run| run.count).sum();
        let runs = if runs.len() > knots_max { grouped(&runs, knots_max) } else { runs };
        let mut reached = 0;
        let knots = runs
            .iter()
            .map(|run| {
                reached += run.count;
                (reached as f64 / total as f64, run.value)
            })
            .collect();
        Empirical::new(Form::Step, total, knots)
    }

    /// The continuous law of `samples`, in any order, in at most `knots_max` knots, taken as
    /// [`KNOTS_MIN`]..=[`KNOTS_LIMIT`]; values between neighbouring samples become possible, values
    /// that many samples share stay atoms. Minimum, maximum and mean are the samples' own.
    ///
    /// # Errors
    /// If there is no sample, or one that is negative or not finite.
    pub fn linear_from(samples: Vec<f64>, knots_max: usize) -> Result<Empirical, EmpiricalError> {
        Empirical::linear_of(runs_of(samples)?, knots_max)
    }

    /// The same of samples that were counted: (value, how many), in any order, a value perhaps more
    /// than once.
    ///
    /// # Errors
    /// If there is no sample, or one that is negative or not finite.
    pub fn linear_from_counts(
        counts: Vec<(f64, u64)>,
        knots_max: usize,
    ) -> Result<Empirical, EmpiricalError> {
        Empirical::linear_of(runs_of_counts(counts)?, knots_max)
    }

    fn linear_of(runs: Vec<Run>, knots_max: usize) -> Result<Empirical, EmpiricalError> {
        // A group needs two knots, and one closes the table. Few samples pair up throughout; of
        // many, only the tail does.
        let groups_max = (knots_max.clamp(KNOTS_MIN, KNOTS_LIMIT) - 1) / 2;
        let few = runs.len() <= 2 * groups_max;
        let tail_groups = if few { groups_max } else { groups_max / 4 };
        let body = runs.len().saturating_sub(2 * tail_groups);
        let mut groups = groups_of(&runs[..body], groups_max - tail_groups, PAIR);
        let tail = groups_of(&runs[body..], tail_groups, PAIR);
        groups.extend(tail.into_iter().map(|group| group.start + body..group.end + body));
        let total: u64 = runs.iter().map(|run| run.count).sum();
        Empirical::new(Form::Linear, total, pieces(&runs, &groups, total))
    }
}

/// Sorts and counts samples; refuses values that traffic cannot have.
fn runs_of(mut samples: Vec<f64>) -> Result<Vec<Run>, EmpiricalError> {
    if samples.is_empty() {
        return Err(EmpiricalError::Empty);
    }
    if let Some(at) = samples.iter().position(|sample| !sample.is_finite()) {
        return Err(EmpiricalError::NotFinite(at));
    }
    if let Some(at) = samples.iter().position(|sample| *sample < 0.0) {
        return Err(EmpiricalError::Negative(at));
    }
    samples.sort_unstable_by(f64::total_cmp);
    let equal = samples.chunk_by(|a, b| a == b);
    Ok(equal.map(|run| Run { value: run[0].abs(), count: run.len() as u64 }).collect())
}

/// Sorts and adds up counts; refuses values that traffic cannot have.
fn runs_of_counts(mut counts: Vec<(f64, u64)>) -> Result<Vec<Run>, EmpiricalError> {
    counts.retain(|(_, count)| *count > 0);
    if counts.is_empty() {
        return Err(EmpiricalError::Empty);
    }
    if let Some(at) = counts.iter().position(|(value, _)| !value.is_finite()) {
        return Err(EmpiricalError::NotFinite(at));
    }
    if let Some(at) = counts.iter().position(|(value, _)| *value < 0.0) {
        return Err(EmpiricalError::Negative(at));
    }
    counts.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let equal = counts.chunk_by(|one, other| one.0 == other.0);
    let run = |run: &[(f64, u64)]| Run {
        value: run[0].0.abs(),
        count: run.iter().map(|(_, count)| count).sum(),
    };
    Ok(equal.map(run).collect())
}

/// Splits `runs` into at most `groups_max` ranges of nearly equal count, none of a count under
/// `count_min` except beside a heavier run.
fn groups_of(runs: &[Run], groups_max: usize, count_min: u64) -> Vec<Range<usize>> {
    let mut left: u64 = runs.iter().map(|run| run.count).sum();
    let mut groups: Vec<Range<usize>> = Vec::with_capacity(groups_max);
    let (mut start, mut count, mut count_before) = (0, 0, 0);
    for (index, run) in runs.iter().enumerate() {
        // The last group's target is all that is left, so there is never one more.
        let groups_left = (groups_max - groups.len()) as u64;
        let target = left.div_ceil(groups_left).max(count_min);
        let short_by = target.saturating_sub(count);
        let over_by = (count + run.count).saturating_sub(target);
        if count > 0 && over_by > short_by {
            groups.push(start..index);
            left -= count;
            (start, count, count_before) = (index, 0, count);
        }
        count += run.count;
    }
    match groups.last_mut() {
        Some(last) if count < count_min && count_before <= count_min => last.end = runs.len(),
        _ if start < runs.len() => groups.push(start..runs.len()),
        _ => {}
    }
    groups
}

/// The knots of a step table too long to keep: groups below, the largest values alone above.
fn grouped(runs: &[Run], knots_max: usize) -> Vec<Run> {
    let tail = knots_max / 4;
    let (body, tail) = runs.split_at(runs.len() - tail);
    let groups = groups_of(body, knots_max - tail.len() - 1, 1);
    let whole =
        runs.iter().all(|run| run.value < WHOLE_LIMIT && libm::trunc(run.value) == run.value);
    let last_wide = groups.iter().rposition(|group| group.len() > 1);
    let mut knots = Vec::with_capacity(knots_max);
    let mut carry = 0.0;
    for (index, group) in groups.into_iter().enumerate() {
        let members = &body[group];
        let (low, high) = (members[0].value, members[members.len() - 1].value);
        let (count, sum) = weigh(members);
        let owed = sum + carry;
        if !whole {
            knots.push(Run { value: (sum / count as f64).clamp(low, high), count });
        } else if last_wide == Some(index) {
            let value = libm::floor(owed / count as f64).clamp(low, high - 1.0);
            let above = (owed - value * count as f64).clamp(0.0, count as f64) as u64;
            let pair =
                [Run { value, count: count - above }, Run { value: value + 1.0, count: above }];
            knots.extend(pair.into_iter().filter(|run| run.count > 0));
        } else {
            let value = libm::round(owed / count as f64).clamp(low, high);
            carry = owed - value * count as f64;
            knots.push(Run { value, count });
        }
    }
    knots.extend_from_slice(tail);
    knots
}

/// How many samples there are in `runs`, and their sum.
fn weigh(runs: &[Run]) -> (u64, f64) {
    runs.iter()
        .fold((0, 0.0), |(count, sum), run| (count + run.count, sum + run.value * run.count as f64))
}

/// The knots of a linear table: for each group, the knot on its box's diagonal and the box's
/// corner.
fn pieces(runs: &[Run], groups: &[Range<usize>], total: u64) -> Vec<(f64, f64)> {
    let mut knots = Vec::with_capacity(2 * groups.len() + 1);
    let mut lower = (0.0, runs[0].value);
    let mut reached = 0;
    knots.push(lower);
    for group in groups {
        let (count, sum) = weigh(&runs[group.clone()]);
        reached += count;
        let upper_value = runs[group.end.min(runs.len() - 1)].value;
        let upper = (reached as f64 / total as f64, upper_value);
        let span = upper.1 - lower.1;
        let excess = sum / count as f64 - lower.1;
        let height = if span > 0.0 { (excess / span).clamp(0.0, 1.0) } else { 0.0 };
        let middle = (
            (upper.0 - height * (upper.0 - lower.0)).clamp(lower.0, upper.0),
            (lower.1 + height * span).clamp(lower.1, upper.1),
        );
        for knot in [middle, upper] {
            if knots.last() != Some(&knot) {
                knots.push(knot);
            }
        }
        lower = upper;
    }
    knots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::ks_of_sorted;
    use crate::{Rng, lognormal, pareto};

    fn mean_of(samples: &[f64]) -> f64 {
        samples.iter().sum::<f64>() / samples.len() as f64
    }

    fn sorted(mut samples: Vec<f64>) -> Vec<f64> {
        samples.sort_unstable_by(f64::total_cmp);
        samples
    }

    /// Sizes as in traffic, from a law chosen by `kind`: whole numbers, ascending.
    fn sizes(kind: u64, n: usize) -> Vec<f64> {
        let mut rng = Rng::new(kind, 0, n as u64);
        let draw = |rng: &mut Rng| match kind % 4 {
            0 => pareto(rng, 1.2, 1_000.0),
            1 => pareto(rng, 1.2, 1.0),
            2 => lognormal(rng, 7.0, 2.0),
            _ if rng.unit() < 0.6 => 1_460.0,
            _ => rng.exponential(3_000.0),
        };
        sorted((0..n).map(|_| libm::floor(draw(&mut rng))).collect())
    }

    #[test]
    fn few_values_stay_as_they_are() {
        let law = Empirical::step_from(alloc::vec![40.0, 1_460.0, 40.0, 576.0], 8).expect("sizes");
        assert_eq!(law.knots(), [(0.5, 40.0), (0.75, 576.0), (1.0, 1_460.0)]);
        assert_eq!((law.form(), law.samples()), (Form::Step, 4));
        let samples = sizes(2, 300);
        let law = Empirical::step_from(samples.clone(), 300).expect("sizes");
        assert_eq!(ks_of_sorted(&samples, &law), 0.0);
    }

    #[test]
    fn counted_samples_make_the_law_of_the_samples() {
        for kind in 0..4 {
            let samples = sizes(kind, 20_000);
            let mut counts: Vec<(f64, u64)> = samples.iter().map(|size| (*size, 1)).collect();
            counts.extend(samples[..500].iter().map(|size| (*size, 2)));
            counts.push((7.0, 0));
            counts.reverse();
            let mut all = samples.clone();
            all.extend(samples[..500].iter().flat_map(|size| [*size; 2]));
            let law = Empirical::step_from_counts(counts, 256).expect("counts");
            assert_eq!(law, Empirical::step_from(all, 256).expect("samples"), "kind {kind}");
        }
        let refused = |counts| Empirical::step_from_counts(counts, 8).expect_err("no counts");
        assert_eq!(refused(alloc::vec![(1.0, 0)]), EmpiricalError::Empty);
        assert_eq!(refused(alloc::vec![(-1.0, 2)]), EmpiricalError::Negative(0));
        assert_eq!(refused(alloc::vec![(f64::NAN, 2)]), EmpiricalError::NotFinite(0));
    }

    #[test]
    fn step_keeps_the_sum_to_the_byte_and_the_tail_whole() {
        for kind in 0..4 {
            for knots_max in [8, 64, 256, 1_024] {
                let samples = sizes(kind, 100_000);
                let law = Empirical::step_from(samples.clone(), knots_max).expect("sizes");
                assert!(law.knots().len() <= knots_max, "kind {kind}");
                let (mean, wanted) = (law.mean(), mean_of(&samples));
                let off = (mean / wanted - 1.0).abs();
                assert!(off < 1e-9, "kind {kind}, {knots_max} knots: {mean} for {wanted}");
                assert!(law.knots().iter().all(|knot| libm::trunc(knot.1) == knot.1));
                let mut largest = samples.clone();
                largest.dedup();
                for (knot, value) in
                    law.knots().iter().rev().zip(largest.iter().rev()).take(knots_max / 4)
                {
                    assert_eq!(knot.1, *value, "kind {kind}, {knots_max} knots");
                }
            }
        }
    }

    #[test]
    fn step_of_broken_numbers_keeps_the_mean_too() {
        let mut rng = Rng::new(9, 0, 0);
        let samples: Vec<f64> = (0..100_000).map(|_| pareto(&mut rng, 1.2, 0.25)).collect();
        let law = Empirical::step_from(samples.clone(), 128).expect("values");
        assert!((law.mean() / mean_of(&samples) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn groups_are_few_whole_and_nearly_equal() {
        let mut rng = Rng::new(13, 0, 0);
        for groups_max in [1, 2, 7, 50] {
            let runs: Vec<Run> = (0..400)
                .map(|value| Run { value: f64::from(value), count: 1 + rng.below(20) })
                .collect();
            let groups = groups_of(&runs, groups_max, 1);
            assert!(groups.len() <= groups_max);
            assert!((groups[0].start, groups[groups.len() - 1].end) == (0, 400));
            assert!(groups.windows(2).all(|pair| pair[0].end == pair[1].start));
            // Closing at the nearer side of the target, no group is off by more than half a run.
            let equal = weigh(&runs).0 as f64 / groups_max as f64;
            for group in groups {
                let count = weigh(&runs[group]).0 as f64;
                assert!((count - equal).abs() <= 11.0, "{count} for {equal}");
            }
        }
    }

    #[test]
    fn an_atom_keeps_its_exact_probability() {
        let samples = sizes(3, 50_000);
        let atom = samples.iter().filter(|&&size| size == 1_460.0).count() as f64 / 50_000.0;
        for law in
            [Empirical::step_from(samples.clone(), 64), Empirical::linear_from(samples.clone(), 64)]
        {
            let law = law.expect("sizes");
            let held = law.cdf(1_460.0) - law.cdf_left(1_460.0);
            assert!((held - atom).abs() < 1e-9, "{:?}: {held} for {atom}", law.form());
        }
    }

    #[test]
    fn more_knots_come_closer() {
        let samples = sizes(0, 100_000);
        for (knots_max, bound) in [(64, 0.025), (256, 0.006), (1_024, 0.0015)] {
            for law in [
                Empirical::step_from(samples.clone(), knots_max).expect("sizes"),
                Empirical::linear_from(samples.clone(), knots_max).expect("sizes"),
            ] {
                let distance = ks_of_sorted(&samples, &law);
                assert!(distance < bound, "{knots_max} knots, {:?}: {distance}", law.form());
            }
        }
    }

    #[test]
    fn linear_keeps_minimum_maximum_and_mean() {
        let mut rng = Rng::new(10, 0, 0);
        for n in [1, 2, 3, 4, 5, 100, 1_001, 100_000] {
            for knots_max in [8, 65, 512] {
                let samples = sorted((0..n).map(|_| pareto(&mut rng, 1.2, 0.01)).collect());
                let law = Empirical::linear_from(samples.clone(), knots_max).expect("times");
                assert!(law.knots().len() <= knots_max, "{n} samples, {knots_max} knots");
                assert_eq!((law.min(), law.max()), (samples[0], samples[n - 1]));
                let off = (law.mean() / mean_of(&samples) - 1.0).abs();
                assert!(off < 1e-9, "{n} samples, {knots_max} knots: mean off by {off}");
            }
        }
    }

    #[test]
    fn linear_has_no_atoms_where_no_samples_agree() {
        let mut rng = Rng::new(12, 0, 0);
        for n in [2usize, 3, 7, 50, 51, 5_000] {
            let samples: Vec<f64> = (0..n).map(|_| rng.exponential(1.0)).collect();
            let law = Empirical::linear_from(samples, 64).expect("times");
            for pair in law.knots().windows(2) {
                let jumps = pair[0].1 == pair[1].1 && pair[0].0 < pair[1].0;
                assert!(!jumps, "{n} samples: an atom at {}", pair[0].1);
            }
        }
    }

    #[test]
    fn refuses_samples_that_are_no_measurements() {
        for (samples, error) in [
            (&[][..], EmpiricalError::Empty),
            (&[1.0, f64::NAN], EmpiricalError::NotFinite(1)),
            (&[f64::INFINITY], EmpiricalError::NotFinite(0)),
            (&[3.0, 2.0, -1.0], EmpiricalError::Negative(2)),
        ] {
            assert_eq!(Empirical::step_from(samples.to_vec(), 64), Err(error));
            assert_eq!(Empirical::linear_from(samples.to_vec(), 64), Err(error));
        }
        let zero = Empirical::step_from(alloc::vec![-0.0, 0.0], 64).expect("zeros");
        assert_eq!(zero.knots(), [(1.0, 0.0)]);
    }
}
