//! HyStart++: slow start that ends when the round-trip time rises, not when the queue overflows.
//!
//! Slow start doubles the window until something is lost, and by then has sent up to twice what the
//! path holds. A queue announces itself before it overflows: the least round-trip time of a round,
//! taken over at least eight samples, rises above that of the round before. RFC 9406 then does not
//! stop at once, since a burst of other traffic would look the same, but continues for up to five
//! rounds at a quarter of the pace (Conservative Slow Start). If the round-trip time falls below
//! where it stood when this began, the alarm was false and slow start resumes; else the window is
//! now right, and congestion avoidance begins. Names and constants are those of RFC 9406, 4.2 and
//! 4.3.

use nilometer_wire::Span;

use super::Acked;

const MIN_RTT_THRESH: Span = Span::from_nanos(4_000_000);
const MAX_RTT_THRESH: Span = Span::from_nanos(16_000_000);
const MIN_RTT_DIVISOR: u64 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;

/// Segments that one acknowledgement may add, without pacing (RFC 9406, 4.3: L).
const LIMIT: u64 = 8;

/// Conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// The least round-trip time of the round that began it.
    baseline: Span,
    /// Rounds that ended since, the one in which it began included.
    rounds: u32,
}

/// The state of HyStart++ during a connection's first slow start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HyStart {
    last_min: Option<Span>,
    current_min: Option<Span>,
    samples: u32,
    conservative: Option<Conservative>,
}

/// What an acknowledgement means for slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes by which the window grows.
    pub(super) growth: u64,
    /// Whether slow start is over: `ssthresh` becomes the window.
    pub(super) is_over: bool,
}

impl HyStart {
    /// An acknowledgement came in slow start; `mss` in bytes.
    pub(super) fn on_ack(&mut self, acked: &Acked, mss: u64) -> Step {
        let mut growth = acked.bytes.min(LIMIT * mss);
        if self.conservative.is_some() {
            growth /= CSS_GROWTH_DIVISOR;
        }
        if let Some(rtt) = acked.rtt {
            self.samples += 1;
            self.current_min = Some(self.current_min.map_or(rtt, |least| least.min(rtt)));
            self.judge();
        }
        let is_over = acked.round_ended && self.end_round();
        Step { growth, is_over }
    }

    /// Enters or leaves conservative slow start when a round has samples enough.
    fn judge(&mut self) {
        let Some(current) = self.current_min.filter(|_| self.samples >= N_RTT_SAMPLE) else {
            return;
        };
        match (self.conservative, self.last_min) {
            (Some(css), _) if current < css.baseline => self.conservative = None,
            (None, Some(last)) => {
                let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if current >= last + threshold {
                    self.conservative = Some(Conservative { baseline: current, rounds: 0 });
                }
            }
            _ => {}
        }
    }

    /// A round ended; true when it was the last one of slow start.
    fn end_round(&mut self) -> bool {
        self.last_min = self.current_min.take();
        self.samples = 0;
        self.conservative.as_mut().is_some_and(|css| {
            css.rounds += 1;
            css.rounds >= CSS_ROUNDS
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    fn millis(count: u64) -> Span {
        Span::from_nanos(count * 1_000_000)
    }

    /// One round of `count` acknowledgements of a segment each; bytes grown, and whether it is over.
    fn round(hystart: &mut HyStart, count: u64, rtt: Span) -> (u64, bool) {
        let mut total = (0, false);
        for i in 1..=count {
            let acked =
                Acked { bytes: MSS, rtt: Some(rtt), round_ended: i == count, ..Acked::default() };
            let step = hystart.on_ack(&acked, MSS);
            total = (total.0 + step.growth, total.1 || step.is_over);
        }
        total
    }

    #[test]
    fn a_rise_slows_growth_to_a_quarter_and_ends_after_five_rounds() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 16, millis(40)), (16_000, false));
        assert_eq!(round(&mut hystart, 16, millis(44)), (16_000, false)); // threshold is 40/8 = 5 ms
        // The eighth sample raises the alarm: eight at full pace, eight at a quarter.
        assert_eq!(round(&mut hystart, 16, millis(50)), (8_000 + 8 * 250, false));
        for _ in 0..3 {
            assert_eq!(round(&mut hystart, 16, millis(60)), (16 * 250, false));
        }
        assert_eq!(round(&mut hystart, 16, millis(60)), (16 * 250, true));
    }

    #[test]
    fn a_false_alarm_resumes_slow_start() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 16, millis(40));
        round(&mut hystart, 16, millis(50));
        assert_eq!(round(&mut hystart, 16, millis(40)), (8 * 250 + 8_000, false));
        for _ in 0..20 {
            assert_eq!(round(&mut hystart, 16, millis(41)), (16_000, false));
        }
    }

    #[test]
    fn few_samples_and_small_rises_raise_no_alarm() {
        let mut hystart = HyStart::default();
        for rtt in [40, 80, 160] {
            assert_eq!(round(&mut hystart, 7, millis(rtt)), (7_000, false));
        }
        // Below 4 ms no rise counts, and 16 ms always do.
        let alarmed = |from, to| {
            let mut hystart = HyStart::default();
            round(&mut hystart, 8, millis(from));
            round(&mut hystart, 8, millis(to));
            hystart.conservative.is_some()
        };
        assert!(!alarmed(1, 4));
        assert!(alarmed(1, 5));
        assert!(!alarmed(200, 215));
        assert!(alarmed(200, 216));
    }
}
