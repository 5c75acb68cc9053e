//! The scoreboard of selective acknowledgements (RFC 6675): what is lost, what is under way, what
//! to send next.
//!
//! RFC 6675 asks of every unacknowledged byte whether it is lost: whether three separate ranges
//! above it were acknowledged, or more than two segments' bytes. Both only grow downwards, so that
//! one *lost edge* says it for all: whatever is not acknowledged below the edge is lost. It is the
//! left end of the first range, from the top, at which the count or the bytes suffice; at most three
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

    /// The timer ran out: whatever is below `edge` and not acknowledged is lost, what was sent again
    /// too. A peer that gave up what it had acknowledged shows it by not acknowledging `una`
    /// cumulatively; nothing is believed then (RFC 2018, section 8).
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

    /// Everything was acknowledged up to here.
    pub fn clear(&mut self) {
        self.sacked.clear();
        self.begin(0);
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
        if edge > sent {
            unacknowledged - ((edge - sent) - (sacked_to_edge - self.sacked_below))
        } else {
            unacknowledged + (sent - edge) - (self.sacked_below - sacked_to_edge)
        }
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
