//! The intervals of a model on the time axis of its input.

/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// The times of the model's intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub origin_ns: u64,
    pub interval_s: f64,
    pub intervals: usize,
    /// The length of the last interval, which may be shorter.
    pub last_s: f64,
    /// The longest time between two connections or requests of a pair, seconds.
    pub bound_s: f64,
}

impl Grid {
    /// Is a time between two connections within the bound?
    pub fn is_within(&self, gap_ns: u64) -> bool {
        gap_ns as f64 / NANOS <= self.bound_s
    }

    /// The length of an interval, seconds.
    pub fn length_s(&self, at: usize) -> f64 {
        if at + 1 < self.intervals { self.interval_s } else { self.last_s }
    }

    /// When the last interval ends, ns since 1970.
    pub fn end_ns(&self) -> u64 {
        let seconds = self.interval_s * (self.intervals - 1) as f64 + self.last_s;
        self.origin_ns.saturating_add((seconds * NANOS) as u64)
    }

    /// The interval in which something starts.
    pub fn at(&self, start_ns: u64) -> usize {
        let seconds = start_ns.saturating_sub(self.origin_ns) as f64 / 1e9;
        ((seconds / self.interval_s) as usize).min(self.intervals - 1)
    }
}
