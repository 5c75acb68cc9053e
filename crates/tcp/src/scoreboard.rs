//! The scoreboard of selective acknowledgements (RFC 6675): what is lost, what is under way, what
//! to send next.
//!
//! RFC 6675 defines for every unacknowledged byte whether it is lost: whether three separate ranges
//! above it were acknowledged, or more than two segments' bytes. Both only grow downwards, so that
//! one *lost edge* is enough: everything not acknowledged below the edge is lost. It is the left
//! end of the first range, from the top, at which the count or the bytes suffice; at most three
//! ranges are looked at. `pipe` is then arithmetic over four sums that are kept up to date, instead
//! of a walk over the window.

use crate::ranges::Ranges;

/// Ranges or segments above a hole that make it lost (DupThresh).
pub const DUPLICATE_THRESHOLD: u32 = 3;

/// What the peer selectively acknowledged, and how far holes were sent again.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    sacked: Ranges,
    /// Offsets below this one that are not acknowledged were sent again (HighRxt + 1).
    retransmitted: u64,
    /// Acknowledged offsets below `retransmitted`.
    sacked_below: u64,
    /// Everything below is lost if not acknowledged: set by a timeout.
    lost_below: u64,
}

impl Scoreboard {
    /// Whether the peer holds nothing out of order and nothing is being repaired.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sacked.is_empty()
    }

    /// Selectively acknowledged bytes.
    pub const fn bytes(&self) -> u64 {
        self.sacked.bytes()
    }

    /// The offset after the highest that was selectively acknowledged.
    pub fn highest(&self) -> Option<u64> {
        self.sacked.last().map(|range| range.right)
    }

    /// The first offset that was selectively acknowledged.
    pub fn first_left(&self) -> Option<u64> {
        self.sacked.first().map(|range| range.left)
    }

    /// How far holes were sent again.
    pub const fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// `[left, right)` was selectively acknowledged; returns how many of its bytes are news.
    pub fn record(&mut self, left: u64, right: u64) -> u64 {
        let split = self.retransmitted.clamp(left, right);
        let below = self.sacked.insert(left, split);
        self.sacked_below += below;
        below + self.sacked.insert(split, right)
    }

    /// Everything below `una` was acknowledged cumulatively.
    pub fn advance(&mut self, una: u64) {
        let removed = self.sacked.discard_below(una);
        if una >= self.retransmitted {
            self.retransmitted = una;
            self.sacked_below = 0;
        } else {
            self.sacked_below -= removed;
        }
    }

    /// A recovery begins at `una`: nothing was sent again yet.
    pub fn begin(&mut self, una: u64) {
        self.retransmitted = una;
        self.sacked_below = 0;
        self.lost_below = 0;
    }

    /// The timer ran out: whatever is below `edge` and not acknowledged is lost, what was sent
    /// again too. A peer that gave up what it had acknowledged shows it by not acknowledging `una`
    /// cumulatively; all blocks are then discarded (RFC 2018, section 8).
    pub fn lose_all(&mut self, una: u64, edge: u64) {
        if self.sacked.first().is_some_and(|first| first.left <= una) {
            self.sacked.clear();
        }
        self.begin(una);
        self.lost_below = edge;
    }

    /// The loss of everything was an error: only what the ranges say is lost.
    pub fn unlose(&mut self) {
        self.lost_below = 0;
    }

    /// What is not acknowledged below this offset is lost (IsLost), and how much is acknowledged
    /// above it.
    pub fn lost_edge(&self, mss: u32) -> (u64, u64) {
        let (mut above, mut count) = (0, 0);
        let enough = u64::from((DUPLICATE_THRESHOLD - 1) * mss);
        for range in self.sacked.iter().rev() {
            count += 1;
            above += range.right - range.left;
            if count >= DUPLICATE_THRESHOLD || above > enough {
                if range.left < self.lost_below {
                    break;
                }
                return (range.left, above);
            }
        }
        let edge = self.lost_below;
        (edge, self.sacked.bytes_between(edge, u64::MAX))
    }

    /// Whether the byte at `offset`, if not acknowledged, is lost (IsLost of RFC 6675).
    pub fn is_lost(&self, offset: u64, mss: u32) -> bool {
        offset < self.lost_edge(mss).0
    }

    /// Bytes under way of those in `[una, high)` (SetPipe of RFC 6675).
    pub fn pipe(&self, una: u64, high: u64, mss: u32) -> u64 {
        let (edge, above) = self.lost_edge(mss);
        let (edge, sent) = (edge.max(una), self.retransmitted.max(una));
        let unacknowledged = (high - una) - self.sacked.bytes();
        let sacked_to_edge = self.sacked.bytes() - above;
        // What is unacknowledged, less what of it lies below the edge (it is lost), and once more
        // what of it lies below `sent` (it was sent again).
        (unacknowledged + sent + sacked_to_edge) - (edge + self.sacked_below)
    }

    /// The next lost hole that was not sent again, `[left, right)` (rule 1 of NextSeg).
    pub fn next_lost(&self, una: u64, mss: u32) -> Option<(u64, u64)> {
        let (edge, _) = self.lost_edge(mss);
        self.hole_below(una, edge)
    }

    /// The next hole below acknowledged data that was not sent again, lost or not (rule 3).
    pub fn next_hole(&self, una: u64) -> Option<(u64, u64)> {
        self.hole_below(una, self.highest()?)
    }

    fn hole_below(&self, una: u64, limit: u64) -> Option<(u64, u64)> {
        let mut left = self.retransmitted.max(una);
        let mut next = self.sacked.at_or_above(left);
        if let Some(range) = next.filter(|range| range.left <= left) {
            left = range.right;
            next = self.sacked.at_or_above(left);
        }
        let right = next.map_or(limit, |range| range.left.min(limit));
        (left < right).then_some((left, right))
    }

    /// A hole was sent again up to `right`.
    pub fn sent(&mut self, right: u64) {
        if right > self.retransmitted {
            self.sacked_below += self.sacked.bytes_between(self.retransmitted, right);
            self.retransmitted = right;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use nilometer_stat::Rng;

    const UNIVERSE: u64 = 160;
    const MSS: u32 = 10;

    /// RFC 6675 to the letter, a byte at a time.
    struct Twin {
        sacked: Vec<bool>,
        sent_again: Vec<bool>,
        lost_below: u64,
        una: u64,
        high: u64,
    }

    impl Twin {
        fn is_lost(&self, at: u64) -> bool {
            if at < self.lost_below {
                return true;
            }
            let above: Vec<bool> = (at + 1..self.high).map(|b| self.sacked[b as usize]).collect();
            let bytes = above.iter().filter(|sacked| **sacked).count() as u64;
            let starts = above.windows(2).filter(|pair| !pair[0] && pair[1]).count();
            let runs = starts + usize::from(above.first() == Some(&true));
            runs >= 3 || bytes > 2 * u64::from(MSS)
        }

        fn pipe(&self) -> u64 {
            let open = (self.una..self.high).filter(|at| !self.sacked[*at as usize]);
            open.map(|at| u64::from(!self.is_lost(at)) + u64::from(self.sent_again[at as usize]))
                .sum()
        }

        /// The first byte that may be sent again, by rule 1 or rule 3 of NextSeg.
        fn next(&self, only_lost: bool) -> Option<u64> {
            let again = (self.una..self.high).rfind(|at| self.sent_again[*at as usize]);
            let from = again.map_or(self.una, |at| at + 1);
            let highest = (self.una..self.high).rfind(|at| self.sacked[*at as usize]);
            (from..self.high).find(|at| {
                let is_below = highest.is_some_and(|highest| *at < highest);
                let is_due = if only_lost { self.is_lost(*at) } else { is_below };
                !self.sacked[*at as usize] && is_due
            })
        }
    }

    fn compare(ours: &Scoreboard, twin: &Twin, about: &str) {
        for at in (twin.una..twin.high).filter(|at| !twin.sacked[*at as usize]) {
            assert_eq!(ours.is_lost(at, MSS), twin.is_lost(at), "byte {at}, {about}");
        }
        assert_eq!(ours.pipe(twin.una, twin.high, MSS), twin.pipe(), "{about}");
        let lost = ours.next_lost(twin.una, MSS).map(|(left, _)| left);
        assert_eq!(lost, twin.next(true), "rule 1, {about}");
        let hole = ours.next_hole(twin.una).map(|(left, _)| left);
        assert_eq!(hole, twin.next(false), "rule 3, {about}");
    }

    fn act(ours: &mut Scoreboard, twin: &mut Twin, rng: &mut Rng) {
        match rng.below(12) {
            0 => {
                twin.una = (twin.una + rng.below(25)).min(twin.high - 1);
                // Cumulative acknowledgements do not end inside of what the peer holds.
                while twin.sacked[twin.una as usize] && twin.una + 1 < twin.high {
                    twin.una += 1;
                }
                ours.advance(twin.una);
            }
            1 => {
                twin.sent_again.fill(false);
                twin.lost_below = 0;
                ours.begin(twin.una);
            }
            2 if rng.below(4) == 0 => {
                twin.sent_again.fill(false);
                twin.lost_below = twin.high;
                if twin.sacked[twin.una as usize] {
                    twin.sacked.fill(false);
                }
                ours.lose_all(twin.una, twin.high);
            }
            3..=5 => {
                if let Some((left, right)) = ours.next_lost(twin.una, MSS) {
                    let right = right.min(left + u64::from(MSS));
                    twin.sent_again[left as usize..right as usize].fill(true);
                    ours.sent(right);
                }
            }
            _ => {
                let left = twin.una + 1 + rng.below(twin.high - twin.una);
                let right = (left + rng.below(15)).min(twin.high);
                if left < right {
                    let inside = &mut twin.sacked[left as usize..right as usize];
                    let news = inside.iter().filter(|sacked| !**sacked).count() as u64;
                    inside.fill(true);
                    assert_eq!(ours.record(left, right), news);
                }
            }
        }
    }

    #[test]
    fn agrees_with_rfc_6675_byte_by_byte() {
        for seed in 0..150 {
            let mut rng = Rng::new(seed, 0, 0);
            let mut ours = Scoreboard::default();
            let mut twin = Twin {
                sacked: vec![false; UNIVERSE as usize],
                sent_again: vec![false; UNIVERSE as usize],
                lost_below: 0,
                una: 0,
                high: UNIVERSE,
            };
            for step in 0..40 {
                act(&mut ours, &mut twin, &mut rng);
                compare(&ours, &twin, &alloc::format!("seed {seed}, step {step}"));
            }
        }
    }
}
