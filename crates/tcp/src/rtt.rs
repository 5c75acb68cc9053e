//! The retransmission timeout from round-trip times (RFC 6298, Jacobson and Karels 1988).
//!
//! Two exponential averages, of the time and of its deviation, in picoseconds. The gains are powers
//! of two, so that an update is shifts and additions. A sample of a segment that was sent more than
//! once is never offered (Karn and Partridge 1987); the doubled timeout stays until there is a
//! valid one (section 5.7).

use nilometer_wire::Span;

/// Doublings after which the timeout is beyond any limit.
const BACKOFF_LIMIT: u32 = 20;

/// Smoothed round-trip time and the timeout that follows from it; in front, what is read more often
/// than there are samples.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Estimator {
    /// RTO without back-off, kept within its limits.
    base: Span,
    smoothed: Span,
    backoff: u32,
    has_sample: bool,
    variation: Span,
    granularity: Span,
    minimum: Span,
    maximum: Span,
}

impl Estimator {
    /// No sample yet: the timeout is `initial`. `granularity` is the clock's G of RFC 6298.
    pub fn new(initial: Span, minimum: Span, maximum: Span, granularity: Span) -> Estimator {
        Estimator {
            base: initial.min(maximum),
            smoothed: Span::ZERO,
            variation: Span::ZERO,
            backoff: 0,
            has_sample: false,
            granularity,
            minimum,
            maximum,
        }
    }

    /// A round-trip time was measured. (A function of its own, since most acknowledgements measure none.)
    #[inline(never)]
    pub fn sample(&mut self, rtt: Span) {
        if self.has_sample {
            let error = rtt.0.abs_diff(self.smoothed.0);
            self.variation = Span(self.variation.0 - self.variation.0 / 4 + error / 4);
            self.smoothed = Span(self.smoothed.0 - self.smoothed.0 / 8 + rtt.0 / 8);
        } else {
            self.has_sample = true;
            self.smoothed = rtt;
            self.variation = rtt / 2;
        }
        self.backoff = 0;
        let margin = self.granularity.max(self.variation * 4);
        self.base = (self.smoothed + margin).max(self.minimum).min(self.maximum);
    }

    /// The timer ran out: the next timeout is twice as long (RFC 6298, 5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_LIMIT);
    }

    /// The peer answers again: the timeout is the measured one.
    pub fn forget_backoff(&mut self) {
        self.backoff = 0;
    }

    /// How often the timeout was doubled since the last sample.
    pub const fn backoff(&self) -> u32 {
        self.backoff
    }

    /// The handshake lost a segment and measured nothing: start data with `timeout` (RFC 6298,
    /// 5.7).
    pub fn restart(&mut self, timeout: Span) {
        self.backoff = 0;
        if !self.has_sample {
            self.base = timeout.min(self.maximum);
        }
    }

    /// The timeout now, back-off included.
    #[inline]
    pub fn rto(&self) -> Span {
        if self.backoff == 0 {
            return self.base;
        }
        (self.base * (1 << self.backoff)).min(self.maximum)
    }

    /// The smoothed round-trip time, once there was a sample.
    #[inline]
    pub fn smoothed(&self) -> Option<Span> {
        self.has_sample.then_some(self.smoothed)
    }

    /// The smoothed deviation, once there was a sample.
    pub fn variation(&self) -> Option<Span> {
        self.has_sample.then_some(self.variation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000_000;

    fn estimator() -> Estimator {
        Estimator::new(Span::from_secs(1), Span(200 * MS), Span::from_secs(60), Span(MS))
    }

    #[test]
    fn follows_the_formulas_of_rfc_6298() {
        let mut ours = estimator();
        assert_eq!(ours.rto(), Span::from_secs(1));
        let samples = [0.1, 0.12, 0.09, 0.4, 0.1, 0.1, 0.101, 1.5, 0.1];
        let (mut srtt, mut rttvar) = (samples[0], samples[0] / 2.0);
        for (count, rtt) in samples.into_iter().enumerate() {
            ours.sample(Span::from_secs_f64(rtt));
            if count > 0 {
                rttvar = 0.75 * rttvar + 0.25 * f64::abs(srtt - rtt);
                srtt = 0.875 * srtt + 0.125 * rtt;
            }
            let rto = f64::clamp(srtt + f64::max(0.001, 4.0 * rttvar), 0.2, 60.0);
            assert!((ours.smoothed().unwrap().as_secs_f64() - srtt).abs() < 1e-9);
            assert!((ours.variation().unwrap().as_secs_f64() - rttvar).abs() < 1e-9);
            assert!((ours.rto().as_secs_f64() - rto).abs() < 1e-9);
        }
    }

    #[test]
    fn doubles_up_to_its_limit_and_starts_anew_with_a_sample() {
        let mut ours = estimator();
        for (count, expected) in (1..).zip([2, 4, 8, 16, 32, 60, 60]) {
            ours.back_off();
            assert_eq!((ours.backoff(), ours.rto()), (count, Span::from_secs(expected)));
        }
        ours.sample(Span(100 * MS));
        assert_eq!((ours.backoff(), ours.rto()), (0, Span(300 * MS)));
    }

    #[test]
    fn keeps_to_its_least_value() {
        let mut ours = estimator();
        for _ in 0..200 {
            ours.sample(Span(MS));
        }
        assert_eq!(ours.rto(), Span(200 * MS));
    }
}
