//! The usual delay: which of several packets with the same bytes an exit most likely was.
//!
//! It is the median of the delays of the last [`RECENT`] packets with an unambiguous match, so it
//! follows a queue that fills. Only such packets count: a delay that was guessed supports no
//! further guess.

use nilometer_wire::Span;

/// Delays of which the median is taken.
const RECENT: usize = 31;
/// Delays that differ by less count as equal: a thread is occasionally held up for as long.
const NOISE: Span = Span::from_nanos(100_000);
/// By how many times the spread a delay must exceed another to count as another packet's.
const FAR: u64 = 4;

/// The latest delays that were certain.
#[derive(Debug)]
pub struct UsualDelay {
    recent: [Span; RECENT],
    /// Delays noted so far.
    noted: usize,
}

impl UsualDelay {
    pub fn new() -> UsualDelay {
        UsualDelay { recent: [Span::ZERO; RECENT], noted: 0 }
    }

    /// Adds the delay of a packet with an unambiguous match.
    pub fn note(&mut self, delay: Span) {
        self.recent[self.noted % RECENT] = delay;
        self.noted += 1;
    }

    /// The usual delay now; `None` before the first certain one.
    pub fn now(&self) -> Option<Usual> {
        let mut sorted = self.recent;
        let known = &mut sorted[..self.noted.min(RECENT)];
        known.sort_unstable();
        let [shortest, .., longest] = known else {
            let only = known.first()?;
            return Some(Usual { median: *only, spread: NOISE });
        };
        let spread = Span(longest.0 - shortest.0).max(NOISE);
        Some(Usual { median: known[known.len() / 2], spread })
    }
}

/// The usual delay at some moment, and the spread of the delays from which it is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usual {
    pub median: Span,
    pub spread: Span,
}

impl Usual {
    /// The assumption before anything is known: delays are short.
    pub const UNKNOWN: Usual = Usual { median: Span::ZERO, spread: NOISE };

    /// By how much a delay differs from the usual one.
    pub fn deviation(&self, delay: Span) -> Span {
        Span(delay.0.abs_diff(self.median.0))
    }

    /// Whether a delay of `delay` is far less likely than `other`, that of another packet or of a
    /// copy's original.
    pub fn is_unlike(&self, delay: Span, other: Span) -> bool {
        self.is_far(self.deviation(delay), self.deviation(other))
    }

    /// Whether a delay that differs by `deviation` from the usual one is far less likely than one that
    /// differs by `least`.
    pub fn is_far(&self, deviation: Span, least: Span) -> bool {
        deviation > self.farthest(least)
    }

    /// The most by which a delay may differ from the usual one without being far less likely than one
    /// that differs by `least`.
    pub fn farthest(&self, least: Span) -> Span {
        (least + self.spread) * FAR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: u64 = 1_000_000;

    #[test]
    fn the_median_follows_the_last_delays() {
        let mut usual = UsualDelay::new();
        assert_eq!(usual.now(), None);
        usual.note(Span(7 * MICRO));
        assert_eq!(usual.now(), Some(Usual { median: Span(7 * MICRO), spread: NOISE }));
        for delay in [500, 9, 8] {
            usual.note(Span(delay * MICRO));
        }
        let (median, spread) = (Span(9 * MICRO), Span(493 * MICRO));
        assert_eq!(usual.now(), Some(Usual { median, spread }));
        (0..RECENT).for_each(|_| usual.note(Span(3 * MICRO)));
        assert_eq!(usual.now(), Some(Usual { median: Span(3 * MICRO), spread: NOISE }));
    }

    #[test]
    fn delays_far_from_the_usual_are_unlikely() {
        let usual = Usual { median: Span(50 * MICRO), spread: NOISE };
        assert_eq!(usual.deviation(Span(30 * MICRO)), Span(20 * MICRO));
        assert_eq!(usual.deviation(Span(70 * MICRO)), Span(20 * MICRO));
        // Four times 100 µs and 10 µs.
        assert!(!usual.is_unlike(Span(490 * MICRO), Span(60 * MICRO)));
        assert!(usual.is_unlike(Span(491 * MICRO), Span(60 * MICRO)));
        // Both were held up: one is as likely as the other.
        assert!(!usual.is_unlike(Span(20_010 * MICRO), Span(20_000 * MICRO)));
    }
}
