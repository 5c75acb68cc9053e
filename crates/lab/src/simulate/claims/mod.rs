//! Sentences of a paper checked against measurements: the verdicts, and the rules that give them.
//!
//! A sentence is a predicate over the points of a sweep. The predicates are of two kinds. A
//! *comparison* claims that one quantity exceeds another: it is reproduced where that holds at
//! every point that the sentence is about, with 95 % intervals that do not overlap; reversed where
//! the opposite holds at every one of them; otherwise not reproduced. A *range* claims that a
//! quantity lies between two bounds: it is reproduced where every mean does. Where a point is
//! missing, or has no interval and needs one (a single seed), the sentence is not measured: nothing
//! is ever guessed.

pub mod section7;

use std::cmp::Ordering;

use serde::Serialize;

nilometer_wire::named! {
    /// What became of a sentence.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Reproduction {
        /// It holds here.
        Reproduced = "reproduced",
        /// It does not, and its opposite does not either.
        NotReproduced = "not reproduced",
        /// Its opposite holds.
        Reversed = "reversed",
        /// A point that it needs is missing, or an interval.
        NotMeasured = "not measured",
    }
}

/// Which figure of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Mean goodput over fair share, percent.
    FairSharePercent,
    /// Standard deviation of goodput over fair share.
    StddevOverFairShare,
    /// How many times the variance of QSDRR and DRR.
    VarianceRatio,
}

/// A mean and half the width of its 95 % interval, where it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// Half the width.
    pub half: Option<f64>,
}

impl Estimate {
    /// Which is greater, with intervals that do not overlap; `Equal` where they do, nothing where
    /// one is missing.
    pub fn against(self, other: Estimate) -> Option<Ordering> {
        let (own, others) = (self.half?, other.half?);
        let apart = own + others;
        Some(match self.value - other.value {
            difference if difference > apart => Ordering::Greater,
            difference if difference < -apart => Ordering::Less,
            _ => Ordering::Equal,
        })
    }
}

/// A figure that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cited {
    /// The discipline.
    pub discipline: &'static str,
    /// At which buffer; the mean over the buffers that the paper draws where absent.
    pub buffer_packets: Option<u64>,
    /// What it is.
    pub quantity: Quantity,
    /// Its mean.
    pub value: f64,
    /// Half the width of its interval.
    pub half_width: Option<f64>,
}

/// A sentence and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// A short name that does not change.
    pub id: &'static str,
    /// The paper's words.
    pub sentence: &'static str,
    /// The paper's figure in short.
    pub paper: &'static str,
    /// How it is decided.
    pub rule: &'static str,
    /// What became of it.
    pub verdict: Reproduction,
    /// The figures that decided.
    pub figures: Vec<Cited>,
}

/// One point as sentences need it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// `tail_drop`, `red`, ...
    pub discipline: String,
    /// Size of the buffer.
    pub buffer_packets: u64,
    /// Mean goodput over fair share, percent.
    pub fair_share_percent: Option<Estimate>,
    /// Standard deviation over fair share.
    pub stddev_over_fair_share: Option<Estimate>,
}

/// All points, and the figures that were consulted for one sentence.
#[derive(Debug)]
pub struct Bench<'a> {
    points: &'a [Measured],
    cited: Vec<Cited>,
}

impl<'a> Bench<'a> {
    /// For one sentence.
    pub fn new(points: &'a [Measured]) -> Bench<'a> {
        Bench { points, cited: Vec::new() }
    }

    /// The figures that were consulted, in order, each once.
    pub fn cited(self) -> Vec<Cited> {
        self.cited
    }

    /// Cites a figure.
    pub fn cite(&mut self, cited: Cited) {
        if !self.cited.contains(&cited) {
            self.cited.push(cited);
        }
    }

    fn find(&self, discipline: &str, buffer: u64, quantity: Quantity) -> Option<Estimate> {
        let here =
            |point: &&Measured| point.discipline == discipline && point.buffer_packets == buffer;
        let point = self.points.iter().find(here)?;
        match quantity {
            Quantity::FairSharePercent => point.fair_share_percent,
            Quantity::StddevOverFairShare => point.stddev_over_fair_share,
            Quantity::VarianceRatio => None,
        }
    }

    /// The figure of a point, cited.
    pub fn at(
        &mut self,
        discipline: &'static str,
        buffer: u64,
        quantity: Quantity,
    ) -> Option<Estimate> {
        let Estimate { value, half } = self.find(discipline, buffer, quantity)?;
        let buffer_packets = Some(buffer);
        self.cite(Cited { discipline, buffer_packets, quantity, value, half_width: half });
        Some(Estimate { value, half })
    }

    /// The mean over `buffers`, which must all be there, cited. Its interval is that of a mean of
    /// independent means.
    pub fn over(
        &mut self,
        discipline: &'static str,
        buffers: &[u64],
        quantity: Quantity,
    ) -> Option<Estimate> {
        let each: Vec<Estimate> = buffers
            .iter()
            .map(|&buffer| self.find(discipline, buffer, quantity))
            .collect::<Option<_>>()?;
        let mean = mean_of(&each)?;
        self.cite(Cited {
            discipline,
            buffer_packets: None,
            quantity,
            value: mean.value,
            half_width: mean.half,
        });
        Some(mean)
    }
}

/// The mean of independent estimates; its interval adds their errors as squares.
pub fn mean_of(each: &[Estimate]) -> Option<Estimate> {
    let count = each.len() as f64;
    let squares: Option<f64> = each.iter().map(|one| one.half.map(|half| half * half)).sum();
    (!each.is_empty()).then(|| Estimate {
        value: each.iter().map(|one| one.value).sum::<f64>() / count,
        half: squares.map(|squares| squares.sqrt() / count),
    })
}

/// Whether the first of each pair is `wanted` than the second.
pub fn compared(pairs: &[(Option<Estimate>, Option<Estimate>)], wanted: Ordering) -> Reproduction {
    let one = |(a, b): &(Option<Estimate>, Option<Estimate>)| (*a)?.against((*b)?);
    let Some(each) = pairs.iter().map(one).collect::<Option<Vec<Ordering>>>() else {
        return Reproduction::NotMeasured;
    };
    match &each[..] {
        [] => Reproduction::NotMeasured,
        each if each.iter().all(|&found| found == wanted) => Reproduction::Reproduced,
        each if each.iter().all(|&found| found == wanted.reverse()) => Reproduction::Reversed,
        _ => Reproduction::NotReproduced,
    }
}

/// Whether every value is at least `low` and below `high`.
pub fn within(values: &[Option<f64>], low: f64, high: f64) -> Reproduction {
    match values.iter().copied().collect::<Option<Vec<f64>>>() {
        None => Reproduction::NotMeasured,
        Some(values) if values.is_empty() => Reproduction::NotMeasured,
        Some(values) if values.iter().all(|value| (low..high).contains(value)) => {
            Reproduction::Reproduced
        }
        Some(_) => Reproduction::NotReproduced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, half: f64) -> Option<Estimate> {
        Some(Estimate { value, half: Some(half) })
    }

    #[test]
    fn a_comparison_has_four_ends() {
        let wanted = Ordering::Greater;
        let (low, high, near) = (estimate(1.0, 0.1), estimate(2.0, 0.1), estimate(1.15, 0.1));
        let bare = Some(Estimate { value: 9.0, half: None });
        for (pairs, verdict) in [
            (vec![(high, low), (high, near)], Reproduction::Reproduced),
            (vec![(low, high)], Reproduction::Reversed),
            (vec![(high, low), (low, high)], Reproduction::NotReproduced),
            (vec![(near, low)], Reproduction::NotReproduced),
            (vec![(high, low), (None, low)], Reproduction::NotMeasured),
            (vec![(bare, low)], Reproduction::NotMeasured),
            (vec![], Reproduction::NotMeasured),
        ] {
            assert_eq!(compared(&pairs, wanted), verdict, "{pairs:?}");
        }
    }

    #[test]
    fn a_range_has_three_ends() {
        assert_eq!(within(&[Some(1.0), Some(1.9)], 1.0, 2.0), Reproduction::Reproduced);
        assert_eq!(within(&[Some(1.0), Some(2.0)], 1.0, 2.0), Reproduction::NotReproduced);
        assert_eq!(within(&[Some(1.0), None], 1.0, 2.0), Reproduction::NotMeasured);
        assert_eq!(within(&[], 1.0, 2.0), Reproduction::NotMeasured);
    }

    #[test]
    fn a_mean_of_means_adds_squares() {
        let each = [estimate(1.0, 0.3), estimate(3.0, 0.4)].map(|one| one.expect("made"));
        let mean = mean_of(&each).expect("two");
        assert!((mean.value - 2.0).abs() < 1e-12);
        assert!((mean.half.expect("both") - 0.25).abs() < 1e-12);
        let bare = [each[0], Estimate { value: 2.0, half: None }];
        assert_eq!(mean_of(&bare).expect("two").half, None);
        assert_eq!(mean_of(&[]), None);
    }
}
