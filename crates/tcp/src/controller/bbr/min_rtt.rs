//! BBR's least round-trip time, and when to send less in order to see it again.
//!
//! Two minima of different age (draft-ietf-ccwg-bbr-06, 5.3.4.3): one over 5 s, whose expiry triggers
//! ProbeRTT, and one over 10 s, which the model uses; so that a probe always happens before the
//! estimate may rise.

use nilometer_wire::{Span, Time};

/// How long a minimum lasts until ProbeRTT is due (5.3.4.1).
const PROBE_RTT_INTERVAL: Span = Span::from_secs(5);
/// How long the model's minimum lasts (5.5.7.2).
const MIN_RTT_FILTER: Span = Span::from_secs(10);

/// The minima and their moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    least: Option<(Span, Time)>,
    recent: Option<(Span, Time)>,
    /// Whether ProbeRTT is due.
    pub(super) is_expired: bool,
}

impl MinRtt {
    pub(super) const fn new() -> MinRtt {
        MinRtt { least: None, recent: None, is_expired: false }
    }

    /// The model's minimum.
    pub(super) fn least(&self) -> Option<Span> {
        self.least.map(|(rtt, _)| rtt)
    }

    /// An acknowledgement came, with a measurement or without.
    pub(super) fn update(&mut self, now: Time, rtt: Option<Span>) {
        self.is_expired = self.recent.is_some_and(|(_, at)| now > at + PROBE_RTT_INTERVAL);
        if let Some(rtt) = rtt
            && (self.is_expired || self.recent.is_none_or(|(least, _)| rtt < least))
        {
            self.recent = Some((rtt, now));
        }
        let Some(recent) = self.recent else { return };
        if self.least.is_none_or(|(least, at)| recent.0 < least || now > at + MIN_RTT_FILTER) {
            self.least = Some(recent);
        }
    }

    /// ProbeRTT was done: the next one is a whole interval away.
    pub(super) fn postpone(&mut self, now: Time) {
        if let Some((_, at)) = &mut self.recent {
            *at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Span {
        Span::from_nanos(count * 1_000_000)
    }

    #[test]
    fn the_minimum_outlives_the_call_for_a_probe() {
        let mut filter = MinRtt::new();
        let mut probes = 0;
        for tenth in 0..=200 {
            let now = Time::ZERO + millis(100) * tenth;
            filter.update(now, Some(millis(if tenth == 0 { 40 } else { 60 })));
            probes += u32::from(filter.is_expired);
            let expected = if tenth <= 100 { 40 } else { 60 };
            assert_eq!(filter.least(), Some(millis(expected)), "at {tenth} tenths");
        }
        // A sample is taken on expiry, so that it shows for one acknowledgement in 5.1 s.
        assert_eq!(probes, 3);
    }

    #[test]
    fn a_lower_measurement_counts_at_once_and_postpones() {
        let mut filter = MinRtt::new();
        filter.update(Time::ZERO, None);
        assert_eq!(filter.least(), None);
        filter.update(Time::ZERO, Some(millis(40)));
        filter.update(Time::ZERO + millis(4_900), Some(millis(39)));
        assert_eq!(filter.least(), Some(millis(39)));
        filter.update(Time::ZERO + millis(9_000), Some(millis(50)));
        assert!(!filter.is_expired);
        filter.postpone(Time::ZERO + millis(9_000));
        filter.update(Time::ZERO + millis(13_900), Some(millis(50)));
        assert!(!filter.is_expired);
        filter.update(Time::ZERO + millis(14_100), Some(millis(50)));
        assert!(filter.is_expired);
    }
}
