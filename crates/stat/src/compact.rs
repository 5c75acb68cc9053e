//! From samples to a quantile table: few knots, the heavy tail whole, the mean kept.
//!
//! A model file must stay readable, yet with Pareto sizes the largest few samples carry the volume:
//! of 100,000 draws at α = 1.2 the top hundred hold about a third of the bytes. So a quarter of the
//! knots goes to the largest values, each by itself, and the rest of the samples share the others in
//! groups of nearly equal count. A group never parts samples of equal value, so an atom (the 40-byte
//! segment, the 1,460-byte one) keeps its exact probability if it is as heavy as a group.
//!
//! What a group becomes is chosen so that its sum, and with it the mean of the whole, is kept:
//!
//! * *step*: its mean. Where all samples are whole numbers so is the knot: the mean is rounded, the
//!   error carried into the next group, and the last group that spans two whole numbers is split
//!   between neighbours so that the carry ends at zero. The table then has the samples' sum to the
//!   byte.
//! * *linear*: two straight pieces from the group's first value, at its lower cumulative, to the next
//!   group's first, at the upper. Measure both as fractions of the group's box. A knot on the box's
//!   falling diagonal, at cumulative t and value 1 − t, gives the two pieces the mean
//!   t(1 − t)/2 + (1 − t)(2 − t)/2 = 1 − t. So the knot sits at the height of the group's own mean,
//!   always inside the box; for a group of equal samples it falls into the corner and makes an atom
//!   and a gap.

use alloc::vec::Vec;
use core::ops::Range;

use crate::empirical::{Empirical, EmpiricalError, Form, KNOTS_LIMIT};

/// The fewest knots a table is compressed to; a smaller wish is taken as this.
pub const KNOTS_MIN: usize = 8;

/// Below this every whole number is a float.
const WHOLE_LIMIT: f64 = (1u64 << 53) as f64;

/// Samples of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    value: f64,
    count: u64,
}

impl Empirical {
    /// The discrete law of `samples` (sorted in place) in at most `knots_max` knots, taken as
    /// [`KNOTS_MIN`]..=[`KNOTS_LIMIT`]. With no more distinct values than that the law is exact.
    /// The mean is the samples' own, but for rounding of floats.
    ///
    /// # Errors
    /// If there is no sample, or one that is negative or not finite.
    pub fn step_from(
        mut samples: impl AsMut<[f64]>,
        knots_max: usize,
    ) -> Result<Empirical, EmpiricalError> {
        let runs = runs_of(samples.as_mut())?;
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

    /// The continuous law of `samples` (sorted in place) in at most `knots_max` knots, taken as
    /// [`KNOTS_MIN`]..=[`KNOTS_LIMIT`]; values between neighbouring samples become possible, values
    /// that many samples share stay atoms. Minimum, maximum and mean are the samples' own.
    ///
    /// # Errors
    /// If there is no sample, or one that is negative or not finite.
    pub fn linear_from(
        mut samples: impl AsMut<[f64]>,
        knots_max: usize,
    ) -> Result<Empirical, EmpiricalError> {
        let runs = runs_of(samples.as_mut())?;
        // A group needs two knots, and one closes the table.
        let groups_max = (knots_max.clamp(KNOTS_MIN, KNOTS_LIMIT) - 1) / 2;
        let tail_groups = groups_max / 4;
        let body = runs.len().saturating_sub(2 * tail_groups);
        let mut groups = groups_of(&runs[..body], groups_max - tail_groups, 2);
        groups.extend(
            groups_of(&runs[body..], tail_groups, 2)
                .into_iter()
                .map(|group| group.start + body..group.end + body),
        );
        let total: u64 = runs.iter().map(|run| run.count).sum();
        Empirical::new(Form::Linear, total, pieces(&runs, &groups, total))
    }
}

/// Sorts and counts; refuses what no traffic has.
fn runs_of(samples: &mut [f64]) -> Result<Vec<Run>, EmpiricalError> {
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

/// Parts `runs` into at most `groups_max` ranges of nearly equal count, none smaller than
/// `count_min` unless a heavy run stands beside it.
fn groups_of(runs: &[Run], groups_max: usize, count_min: u64) -> Vec<Range<usize>> {
    let mut left: u64 = runs.iter().map(|run| run.count).sum();
    let mut groups: Vec<Range<usize>> = Vec::with_capacity(groups_max);
    let (mut start, mut count) = (0, 0);
    for (index, run) in runs.iter().enumerate() {
        let groups_left = groups_max - groups.len();
        let target = left.div_ceil(groups_left.max(1) as u64).max(count_min);
        let short_by = target.saturating_sub(count);
        let over_by = (count + run.count).saturating_sub(target);
        if count > 0 && over_by > short_by && groups_left > 1 {
            groups.push(start..index);
            left -= count;
            (start, count) = (index, 0);
        }
        count += run.count;
    }
    if start < runs.len() {
        groups.push(start..runs.len());
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

/// The knots of a linear table: for each group, the knot on its box's diagonal and the box's corner.
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
