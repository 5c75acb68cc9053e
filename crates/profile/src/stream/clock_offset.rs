//! The offset between the clocks of two hosts, within bounds that hold whatever the path between them does.
//!
//! One host sends a request at `t1` by its own clock; the other receives it at `t2` and answers at `t3` by its clock; the
//! answer arrives at `t4` (RFC 5905, 8). Neither message arrives before it was sent, so the offset of the other clock,
//! what it shows minus what ours shows at the same moment, lies between `t3 − t4` and `t2 − t1`. That holds however long
//! either message was on its way and however different both ways are; an exchange without delay would be exact.
//!
//! Clocks drift, by [`DRIFT_MAX`] at the most, as is assumed: a bound of some seconds ago is wider by the drift since then.
//! What lies within all of the latest bounds (Marzullo 1984) is possible. If nothing does, the clocks drift faster, because
//! a time daemon is correcting one of them; one-way delays cannot be had from them then. (A correction that is small beside
//! the delay of the exchanges is not noticed: daemons should have settled before a trial.)
//!
//! Within the bounds the estimate stays where it was, and moves no further than they force it to: a middle that followed
//! every exchange would put its own jumps into the differences between delays.

use alloc::collections::VecDeque;

/// The most by which two clocks drift apart, nanoseconds in a second: 50 for each of two crystals, and as much again for
/// the correction of a clock that a time daemon keeps.
pub const DRIFT_MAX: i64 = 200_000;
/// Exchanges that are kept.
const KEPT: usize = 128;
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// One exchange of messages, ns: the first and the last by our clock, the others by the other host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When the request was sent.
    pub t1: u64,
    /// When the other host received it.
    pub t2: u64,
    /// When it answered.
    pub t3: u64,
    /// When the answer arrived.
    pub t4: u64,
}

/// What the offset of the other host's clock may be at a moment: that clock minus ours, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetBounds {
    /// The least.
    pub least_ns: i64,
    /// The greatest.
    pub greatest_ns: i64,
}

impl OffsetBounds {
    /// The offset that is nearest to an earlier one and possible.
    #[must_use]
    pub fn nearest_ns(&self, earlier_ns: i64) -> i64 {
        earlier_ns.clamp(self.least_ns, self.greatest_ns)
    }

    /// The middle.
    #[must_use]
    pub fn middle_ns(&self) -> i64 {
        self.least_ns.saturating_add_unsigned(self.greatest_ns.abs_diff(self.least_ns) / 2)
    }

    /// How far the truth may be from an offset, ns.
    #[must_use]
    pub fn uncertainty_ns(&self, offset_ns: i64) -> u64 {
        offset_ns.abs_diff(self.least_ns).max(offset_ns.abs_diff(self.greatest_ns))
    }
}

/// The other clock, as the exchanges so far show it.
#[derive(Clone, Debug, Default)]
pub struct ClockOffset {
    /// When an exchange was over, and the least and the greatest offset then.
    kept: VecDeque<(u64, i64, i64)>,
    exchanges: u64,
    is_inconsistent: bool,
}

/// `a − b`, saturating.
fn minus(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// The drift in so many nanoseconds, at the most, ns.
pub fn drift_ns(elapsed_ns: u64) -> i64 {
    (i128::from(elapsed_ns) * i128::from(DRIFT_MAX) / NANOS_PER_SECOND) as i64 + 1
}

impl ClockOffset {
    /// Takes an exchange into account. One whose times are not in order, which the other host made up, is left out.
    pub fn add(&mut self, exchange: Exchange) {
        let Exchange { t1, t2, t3, t4 } = exchange;
        if t4 < t1 || t3 < t2 || t3 - t2 > t4 - t1 + drift_ns(t4 - t1) as u64 {
            return;
        }
        // (Both bounds are moved to the end of the exchange, by the drift meanwhile.)
        let (least, greatest) = (minus(t3, t4), minus(t2, t1).saturating_add(drift_ns(t4 - t1)));
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((t4, least, greatest));
        self.exchanges += 1;
        self.is_inconsistent |= self.at(t4).is_none();
    }

    /// Exchanges so far.
    pub fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// Whether no offset was possible at some time: the clocks drift by more than [`DRIFT_MAX`].
    pub fn is_inconsistent(&self) -> bool {
        self.is_inconsistent
    }

    /// What the offset may be at a time of our clock, ns, before or after the exchanges; none without any, or if they
    /// contradict each other.
    pub fn at(&self, ns: u64) -> Option<OffsetBounds> {
        let (mut least, mut greatest) = (i64::MIN, i64::MAX);
        for &(at, low, high) in &self.kept {
            let drift = drift_ns(at.abs_diff(ns));
            least = least.max(low.saturating_sub(drift));
            greatest = greatest.min(high.saturating_add(drift));
        }
        if self.kept.is_empty() || least > greatest {
            return None;
        }
        Some(OffsetBounds { least_ns: least, greatest_ns: greatest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    const MILLISECOND: u64 = 1_000_000;

    /// Two clocks: the other one is ahead by `offset_ns` at zero and gains `drift` ns a second.
    struct Clocks {
        offset_ns: i64,
        drift: i64,
    }

    impl Clocks {
        fn offset(&self, ns: u64) -> i64 {
            self.offset_ns + (i128::from(ns) * i128::from(self.drift) / NANOS_PER_SECOND) as i64
        }

        fn other(&self, ns: u64) -> u64 {
            ns.saturating_add_signed(self.offset(ns))
        }

        /// An exchange that begins at `t1`, with these delays there, at the other host, and back.
        fn exchange(&self, t1: u64, [there, stay, back]: [u64; 3]) -> Exchange {
            let t2 = self.other(t1 + there);
            let t3 = self.other(t1 + there + stay);
            Exchange { t1, t2, t3, t4: t1 + there + stay + back }
        }
    }

    fn draw(rng: &mut Rng, most: u64) -> u64 {
        rng.below(most)
    }

    /// Delays of chance, longer one way than the other; clocks that are far apart and drift, either way; moments before and
    /// after the exchanges.
    #[test]
    fn the_true_offset_is_within_the_bounds() {
        let mut rng = Rng::new(4, u32::from_be_bytes(*b"sync"), 0);
        for (offset_ns, drift) in
            [(0, 0), (3_600_000_000_000, 100_000), (-7_000_000, -200_000), (5, 200_000)]
        {
            let (clocks, mut estimate) = (Clocks { offset_ns, drift }, ClockOffset::default());
            let (mut kept, mut jumps) = (None, 0);
            for number in 0..2_000_u64 {
                let t1 =
                    100_000 * MILLISECOND + number * 50 * MILLISECOND + draw(&mut rng, MILLISECOND);
                let delays =
                    [draw(&mut rng, 900_000), draw(&mut rng, 5_000), draw(&mut rng, 90_000)];
                let exchange = clocks.exchange(t1, delays);
                estimate.add(exchange);
                for at in
                    [exchange.t4, exchange.t4 + 20 * MILLISECOND, exchange.t4 - 2_000 * MILLISECOND]
                {
                    let found = estimate.at(at).expect("exchanges that agree");
                    let true_ns = clocks.offset(at);
                    // (Both clocks are whole nanoseconds.)
                    assert!(
                        found.least_ns <= true_ns + 1 && true_ns <= found.greatest_ns + 1,
                        "{found:?}: {true_ns}"
                    );
                }
                let found = estimate.at(exchange.t4).expect("exchanges that agree");
                let offset_ns = kept.map_or(found.middle_ns(), |ns| found.nearest_ns(ns));
                jumps += u64::from(kept.is_some_and(|ns| ns != offset_ns));
                kept = Some(offset_ns);
                let error_ns = offset_ns.abs_diff(clocks.offset(exchange.t4));
                assert!(error_ns <= found.uncertainty_ns(offset_ns) + 1, "{found:?}: {offset_ns}");
            }
            assert!(!estimate.is_inconsistent());
            assert!(drift != 0 || jumps < 20, "{jumps} jumps of clocks that do not drift");
            let last = estimate.at(200_000 * MILLISECOND + MILLISECOND).expect("an estimate");
            assert!(
                last.uncertainty_ns(last.middle_ns()) < 200_000,
                "{last:?}: the best exchanges count"
            );
        }
    }

    #[test]
    fn an_exchange_without_delay_is_exact() {
        let (clocks, mut estimate) =
            (Clocks { offset_ns: 5_000, drift: 0 }, ClockOffset::default());
        let exchange = clocks.exchange(MILLISECOND, [0, 0, 0]);
        estimate.add(exchange);
        let found = estimate.at(exchange.t4).expect("an estimate");
        assert!(
            found.least_ns.abs_diff(5_000) <= 1 && found.greatest_ns.abs_diff(5_000) <= 2,
            "{found:?}"
        );
    }

    #[test]
    fn a_clock_that_jumps_is_noticed() {
        let delays = [20_000, 1_000, 20_000];
        let (before, after) =
            (Clocks { offset_ns: 0, drift: 0 }, Clocks { offset_ns: 1_000_000, drift: 0 });
        let mut estimate = ClockOffset::default();
        (1..5).for_each(|number| estimate.add(before.exchange(number * MILLISECOND, delays)));
        assert!(!estimate.is_inconsistent() && estimate.at(5 * MILLISECOND).is_some());
        estimate.add(after.exchange(5 * MILLISECOND, delays));
        assert!(estimate.is_inconsistent());
        assert_eq!(estimate.at(6 * MILLISECOND), None);
    }

    #[test]
    fn exchanges_that_cannot_be_are_left_out() {
        let mut estimate = ClockOffset::default();
        assert_eq!(estimate.at(0), None);
        for (t1, t2, t3, t4) in [(5, 0, 0, 4), (0, 9, 8, 1), (0, 10, 5_000, 100)] {
            estimate.add(Exchange { t1, t2, t3, t4 });
        }
        assert_eq!((estimate.exchanges(), estimate.at(0)), (0, None));
    }

    /// Times at the ends of the range do no harm.
    #[test]
    fn absurd_times_do_not_overflow() {
        let mut estimate = ClockOffset::default();
        estimate.add(Exchange { t1: 0, t2: u64::MAX, t3: u64::MAX, t4: 10 });
        estimate.add(Exchange { t1: u64::MAX - 5, t2: 0, t3: 0, t4: u64::MAX });
        _ = estimate.at(u64::MAX);
        _ = estimate.at(0);
    }
}
