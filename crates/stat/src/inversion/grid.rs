//! Lengths of flows on a grid, and how probable each makes a sampled record.
//!
//! Short lengths stand alone, longer ones in bins each a sixteenth wider than the one before, so that
//! a few hundred numbers describe flows of one packet and of billions. A packet is sampled with the chance p =
//! 1/N. M packets of a flow are *marked*, that is, recognised by flags: the first one is the SYN, and where each
//! flow has a FIN, that is another. So for a flow of L packets (for M = 1: Duffield, Lund and Thorup,
//! *Estimating Flow Distributions from Sampled Flow Statistics*, SIGCOMM 2003)
//!
//! ```text
//!   P(j packets, m marked ones among them) = Bin(m; M, p) · Bin(j − m; L − M, p)
//!   P(nothing)                             = (1 − p)^L
//! ```
//!
//! and a bin has the mean of these over its lengths. Counts of packets are grouped where grouping changes
//! nothing, and from [`CERTAIN_PACKETS`] on a record determines its flow's length to within a bin.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::special::ln_binomial;

/// Each bin begins this much farther than the one before.
const RATIO: f64 = 1.062_5;
/// The most lengths of a bin that are evaluated.
const POINTS: usize = 8;
/// Up to here every count of packets is kept apart; beyond, groups are a 32nd wide.
const COUNTED_APART: u64 = 256;
/// From here on the length of a record's flow is taken to be N times its packets.
const CERTAIN_PACKETS: u64 = 4_096;
/// The grid ends at this many times the longest estimated flow.
const BEYOND: f64 = 2.0;
/// Bins that are less probable than the best one by this factor are left out of a row.
const NEGLIGIBLE: f64 = 1e-14;
/// No bin has a share below this.
pub(super) const SHARE_MIN: f64 = 1e-300;

/// A bin: lengths `from` to `to`, both included, in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bin {
    pub from: f64,
    pub to: f64,
}

impl Bin {
    /// Lengths in the bin, spread evenly.
    fn points(self) -> impl Iterator<Item = f64> {
        let width = self.to - self.from + 1.0;
        let count = if width < POINTS as f64 { width as usize } else { POINTS };
        let step = width / count as f64;
        (0..count).map(move |at| self.from + (at as f64 + 0.5) * step - 0.5)
    }

    /// The mean length.
    pub fn middle(self) -> f64 {
        0.5 * (self.from + self.to)
    }
}

/// The evidence of records of one kind: how probable each bin makes them, from bin `first` on.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub count: f64,
    pub first: usize,
    pub chances: Vec<f64>,
}

/// The grid, and the evidence of all records on it.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub interval: f64,
    /// Marked packets of each flow.
    pub marks: f64,
    pub bins: Vec<Bin>,
    pub rows: Vec<Row>,
    /// All records.
    pub records: f64,
    /// Flows without a record, where that is known.
    pub missed: Option<f64>,
    /// The chance that no packet of a flow is sampled, by bin.
    pub unseen: Vec<f64>,
}

/// Bins from 1 to `longest` at least.
fn bins(longest: f64) -> Vec<Bin> {
    let mut bins = Vec::new();
    let mut from = 1.0;
    while from <= longest {
        let to = libm::floor(from * RATIO).max(from);
        bins.push(Bin { from, to });
        from = to + 1.0;
    }
    bins
}

/// The representative of the group in which records of `packets` packets are counted.
fn group(packets: u64) -> u64 {
    if packets <= COUNTED_APART {
        return packets;
    }
    let octave = packets.ilog2() - 5;
    let half = 1 << (octave - 1);
    (packets >> octave << octave).saturating_add(half)
}

impl Grid {
    /// The grid of records counted by (packets, marked ones), sampled 1 in `interval`, of flows with `marks` marked
    /// packets.
    pub fn new(counts: &BTreeMap<(u64, u32), u64>, interval: f64, marks: u32) -> Grid {
        let most = counts.keys().map(|&(packets, _)| packets).max().unwrap_or(1);
        let bins = bins(BEYOND * most as f64 * interval);
        let chance = 1.0 / interval;
        let mean = |bin: &Bin, of: &dyn Fn(f64) -> f64| -> f64 {
            let (sum, count) = bin.points().fold((0.0, 0.0), |(sum, n), l| (sum + of(l), n + 1.0));
            sum / count
        };
        let unseen = bins.iter().map(|bin| mean(bin, &|l| libm::exp(l * libm::log1p(-chance))));
        let records = counts.values().sum::<u64>() as f64;
        let unseen = unseen.collect();
        let marks = f64::from(marks);
        let mut grid =
            Grid { interval, marks, unseen, bins, rows: Vec::new(), records, missed: None };
        let mut grouped: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        for (&(packets, marked), &count) in counts {
            *grouped.entry((group(packets), marked)).or_default() += count;
        }
        for ((packets, marked), count) in grouped {
            let row = grid.row(packets, marked);
            grid.rows.push(Row { count: count as f64, ..row });
        }
        grid
    }

    /// How probable each bin makes a record of `packets` packets, `marked` of which are marked.
    pub fn row(&self, packets: u64, marked: u32) -> Row {
        let (j, m, p) = (packets as f64, f64::from(marked), 1.0 / self.interval);
        if packets >= CERTAIN_PACKETS {
            let at = self.bins.partition_point(|bin| bin.to < j * self.interval);
            let first = at.min(self.bins.len() - 1);
            return Row { count: 1.0, first, chances: alloc::vec![1.0] };
        }
        let ln_chance = |length: f64| {
            let marks = self.marks.min(length);
            ln_binomial(m, marks, p) + ln_binomial(j - m, length - marks, p)
        };
        let of_bin = |bin: &Bin| {
            let (sum, count) = bin
                .points()
                .fold((0.0, 0.0), |(sum, n), l| (sum + libm::exp(ln_chance(l)), n + 1.0));
            sum / count
        };
        let first = self.bins.partition_point(|bin| bin.to < j);
        let mut chances: Vec<f64> = self.bins[first..].iter().map(of_bin).collect();
        let least = NEGLIGIBLE * chances.iter().copied().fold(0.0, f64::max);
        let used = chances.iter().rposition(|&chance| chance > least).map_or(1, |last| last + 1);
        chances.truncate(used);
        let skipped = chances.iter().position(|&chance| chance > least).unwrap_or(0);
        Row { count: 1.0, first: first + skipped, chances: chances.split_off(skipped) }
    }
}

impl Grid {
    /// The share of flows that leave a record.
    pub fn seen(&self, shares: &[f64]) -> f64 {
        let seen = self.unseen.iter().zip(shares).map(|(unseen, share)| (1.0 - unseen) * share);
        seen.sum::<f64>().max(SHARE_MIN)
    }

    /// The logarithm of the likelihood of all records: conditional on flows that left a record, or with the flows that
    /// left none, if their number is known.
    pub fn likelihood(&self, shares: &[f64]) -> f64 {
        let each =
            self.rows.iter().map(|row| row.count * libm::log(row.chance(shares).max(SHARE_MIN)));
        let seen = self.seen(shares);
        let of_others = match self.missed {
            Some(missed) => missed * libm::log((1.0 - seen).max(SHARE_MIN)),
            None => -self.records * libm::log(seen),
        };
        each.sum::<f64>() + of_others
    }
}

impl Row {
    /// How probable `shares` of the bins make the record.
    pub fn chance(&self, shares: &[f64]) -> f64 {
        self.chances.iter().zip(&shares[self.first..]).map(|(chance, share)| chance * share).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_one_another_and_short_lengths_stand_alone() {
        let bins = bins(1e12);
        assert!(bins[..15].iter().enumerate().all(|(at, bin)| bin.middle() == at as f64 + 1.0));
        assert!(bins.windows(2).all(|two| two[1].from == two[0].to + 1.0));
        assert!(bins.len() < 500, "{}", bins.len());
        assert_eq!(bins[200].points().count(), POINTS);
        let middle = bins[200].points().sum::<f64>() / POINTS as f64;
        assert!((middle / bins[200].middle() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn groups_are_narrow_and_hold_their_packets() {
        let many = (1..100_000).chain([u64::MAX - 1, u64::MAX]);
        for packets in many {
            let held = group(packets);
            assert!((held as f64 / packets as f64 - 1.0).abs() < 1.0 / 32.0, "{packets}: {held}");
            assert!(packets > COUNTED_APART || held == packets);
        }
    }

    /// For any length of a flow, the chances of all outcomes sum to one.
    #[test]
    fn the_chances_of_a_bin_sum_to_one() {
        let counts = BTreeMap::from([((60, 0), 1)]);
        for marks in [1, 2] {
            let grid = Grid::new(&counts, 10.0, marks);
            let mut sums = grid.unseen.clone();
            for (packets, marked) in (1..120).flat_map(|j| (0..=marks).map(move |m| (j, m))) {
                let row = grid.row(packets, marked);
                for (sum, chance) in sums[row.first..].iter_mut().zip(&row.chances) {
                    *sum += chance;
                }
            }
            for (bin, sum) in grid.bins.iter().zip(&sums).filter(|(bin, _)| bin.to < 600.0) {
                assert!((sum - 1.0).abs() < 1e-6, "{bin:?}: {sum}");
            }
        }
    }

    #[test]
    fn many_packets_tell_the_length() {
        let counts = BTreeMap::from([((1_000_000, 1), 3), ((u64::MAX, 0), 1)]);
        let grid = Grid::new(&counts, 4_294_967_295.0, 1);
        for row in &grid.rows {
            assert_eq!(row.chances, [1.0]);
        }
        let bin = grid.bins[grid.rows[0].first];
        let length = group(1_000_000) as f64 * grid.interval;
        assert!(bin.from <= length && length <= bin.to);
    }

    #[test]
    fn a_long_record_determines_the_bin_of_its_flow() {
        let grid = Grid::new(&BTreeMap::from([((5_000, 1), 1)]), 10.0, 1);
        for packets in [CERTAIN_PACKETS, 5_000] {
            let row = grid.row(packets, 1);
            let (bin, length) = (grid.bins[row.first], 10.0 * packets as f64);
            assert!(bin.from <= length && length <= bin.to, "{bin:?} for {length}");
            assert_eq!(row.chances, [1.0]);
        }
    }

    /// From [`CERTAIN_PACKETS`] on a record belongs to the bin that contains its packets times the interval,
    /// or to the last bin.
    #[test]
    fn long_records_are_of_one_bin() {
        let grid = Grid::new(&BTreeMap::from([((5_000, 0), 1)]), 10.0, 1);
        for packets in [4_096, 4_097, 5_000, 9_999] {
            let row = grid.row(packets, 1);
            let bin = grid.bins[row.first];
            assert!(bin.from <= 10.0 * packets as f64 && 10.0 * packets as f64 <= bin.to);
            assert_eq!((row.chances.as_slice(), row.count), ([1.0].as_slice(), 1.0));
        }
        assert_eq!(grid.row(u64::MAX, 0).first, grid.bins.len() - 1);
        assert!(grid.row(4_095, 1).chances.len() > 1);
    }
}
