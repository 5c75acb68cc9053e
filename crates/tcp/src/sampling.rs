//! Round-trip times from acknowledgements, and reports to controllers that measure deliveries.

use nilometer_wire::{Span, Time};

use crate::controller::{Acked, Controller, Delivery};
use crate::rack::Rack;
use crate::scoreboard::DUPLICATE_THRESHOLD;
use crate::sender::{Arrival, Phase, Sender};
use crate::sequence::unwrap;
use crate::transmit::Chunk;

impl Sender {
    /// A round-trip time, if this acknowledgement yields one: from the record of the flight, from
    /// the timed segment, unless something was sent again meanwhile (Karn and Partridge 1987), or
    /// from the echoed timestamp. The timeout takes those of the record only where they are meant
    /// for it.
    #[inline(always)]
    pub(crate) fn measure(&mut self, ack: u64, arrival: &Arrival<'_>) -> Option<Span> {
        let (sampled, is_for_timeout) = match &mut self.flight {
            Some(flight) => {
                flight.acknowledge(arrival.now, ack);
                (flight.sample(arrival.now), flight.is_for_timeout())
            }
            None => (None, false),
        };
        let rtt = match self.timed {
            _ if is_for_timeout && sampled.is_some() => sampled,
            Some((offset, sent)) if ack > offset => Some(arrival.now.since(sent)),
            Some(_) => None,
            None => arrival.echoed,
        };
        if let Some(rtt) = rtt {
            self.timed = None;
            self.rtt.sample(rtt);
        } else if self.forgets_backoff {
            self.rtt.forget_backoff();
        }
        sampled.or(rtt)
    }

    /// Enters a segment into the record of the flight; `in_flight` bytes are under way with it.
    pub(crate) fn record_sent(&mut self, now: Time, chunk: &Chunk, in_flight: u64) {
        if let Some(flight) = &mut self.flight {
            let right = chunk.start + u64::from(chunk.length) + u64::from(chunk.has_fin);
            flight.sent(now, chunk.start, right, in_flight);
        }
    }

    /// Records that the application has nothing to send though the window is open.
    pub(crate) fn record_pause(&mut self, in_flight: u64) {
        if let Some(flight) = &mut self.flight {
            flight.application_pauses(in_flight);
        }
    }

    /// Reports selectively acknowledged bytes to a controller that measures deliveries.
    pub(crate) fn report_delivery(&mut self, sacked: u64, now: Time) {
        let Some(flight) = &mut self.flight else { return };
        let rtt = flight.sample(now);
        let delivery = flight.take_delivery();
        let acked = Acked {
            now,
            bytes: sacked,
            rtt,
            smoothed_rtt: self.rtt.smoothed(),
            in_flight: self.in_flight(),
            is_window_limited: self.is_window_limited,
            in_recovery: self.phase == Phase::Recovery,
            round_ended: false,
            delivery,
        };
        self.controller.on_ack(&mut self.window, &acked);
    }

    /// Offset below which everything not acknowledged is known to be lost.
    pub(crate) fn lost_edge(&self) -> u64 {
        if self.has_sack {
            self.scoreboard.lost_edge(self.window.mss).0
        } else if self.duplicates + 1 >= DUPLICATE_THRESHOLD || self.phase == Phase::Recovery {
            self.una + u64::from(self.window.mss)
        } else {
            0
        }
    }

    /// Reports to the controller each segment below `edge` that is now known to be lost.
    pub(crate) fn report_losses(&mut self, now: Time, edge: u64) {
        let Some(flight) = self.flight.as_mut().filter(|_| self.controller.needs_delivery()) else {
            return;
        };
        let (controller, window) = (&mut self.controller, &mut self.window);
        flight.lose_below(now, edge, |lost| controller.on_lost(window, lost));
    }

    /// Reports to the controller each segment that RACK found lost.
    pub(crate) fn report_recorded_losses(&mut self, rack: &Rack, now: Time) {
        if rack.segments().waiting == 0 {
            return;
        }
        let Some(flight) = self.flight.as_mut().filter(|_| self.controller.needs_delivery()) else {
            return;
        };
        let (controller, window) = (&mut self.controller, &mut self.window);
        for right in rack.lost() {
            flight.lose_one(now, right, |lost| controller.on_lost(window, lost));
        }
    }

    /// Enters an acknowledgement into the record of the flight, blocks first; `una` has moved.
    pub(crate) fn sample_flight(&mut self, arrival: &Arrival<'_>) -> Option<Delivery> {
        let Some(flight) = &mut self.flight else { return None };
        for [left, right] in arrival.segment.blocks() {
            let left = unwrap(self.initial, self.una, left).unwrap_or(0);
            let right = unwrap(self.initial, self.una, right).unwrap_or(0);
            if left < right && left > self.una && right <= self.max {
                flight.acknowledge_range(arrival.now, left, right);
            }
        }
        flight.acknowledge(arrival.now, self.una);
        flight.sample(arrival.now);
        flight.take_delivery()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Algorithm, Config, Recovery};
    use crate::flight::Flight;
    use crate::segment::Segment;
    use crate::statistics::Statistics;
    use alloc::boxed::Box;
    use nilometer_wire::Span;

    const MSS: u64 = 1_000;
    const NOW: Time = Time(5_000_000_000_000);

    /// A sender with records of four segments under way, from offset 1 on.
    fn under_way(algorithm: Algorithm, recovery: Recovery) -> Sender {
        let config =
            Config { algorithm, recovery, initial_window: 10, nagle: false, ..Config::rfc() };
        let mut sender = Sender::new(&config, 0);
        sender.begin(MSS as u32, &config);
        (sender.una, sender.next, sender.max) = (1, 1, 1);
        (sender.edge, sender.peer_window_max) = (1 << 30, 1 << 30);
        sender.rtt.sample(Span::from_nanos(50_000_000));
        sender.write(4 * MSS);
        let mut now = NOW;
        while sender.max < 1 + 4 * MSS {
            now = now.max(sender.paced_until);
            sender.transmit(now, &mut Statistics::default()).expect("a segment");
        }
        sender
    }

    fn at(millis: u64) -> Time {
        NOW + Span::from_nanos(millis * 1_000_000)
    }

    /// A block counts if it is of what was sent, not empty and above the cumulative acknowledgement.
    #[test]
    fn invalid_sack_blocks_deliver_nothing() {
        for (left, right, expected) in [
            (2_001, 3_001, MSS),
            (1_001, 2_001, MSS),
            (2_001, 4_001, 2 * MSS), // up to the last byte sent
            (2_001, 4_002, 0),       // beyond
            (1, 1_001, 0),           // the very one that is waited for
            (2_001, 2_001, 0),
            (3_001, 2_001, 0),
        ] {
            let mut sender = under_way(Algorithm::Bbr, Recovery::Rack);
            let mut segment = Segment::default();
            assert!(segment.push_block(left, right));
            let arrival = Arrival { now: at(900), segment: &segment, echoed: None, is_bare: true };
            let delivery = sender.sample_flight(&arrival);
            let delivered = delivery.map_or(0, |delivery| delivery.delivered);
            assert_eq!(delivered, expected, "{left} to {right}");
        }
    }

    /// Without SACK the first segment counts as lost at the third duplicate, the one just being
    /// counted, and in recovery; with SACK the scoreboard decides.
    #[test]
    fn losses_are_found_by_duplicates_or_by_the_scoreboard() {
        let mut sender = under_way(Algorithm::Reno, Recovery::NewReno);
        let mut edge = |duplicates, phase| {
            (sender.duplicates, sender.phase) = (duplicates, phase);
            sender.lost_edge()
        };
        let open = [0, 1, 2, 3].map(|duplicates| edge(duplicates, Phase::Open));
        assert_eq!(open, [0, 0, 1_001, 1_001]);
        assert_eq!((edge(0, Phase::Recovery), edge(0, Phase::Loss)), (1_001, 0));
        sender.has_sack = true;
        (sender.duplicates, sender.phase) = (3, Phase::Recovery);
        assert_eq!(sender.lost_edge(), 0);
        sender.scoreboard.record(1_001, 4_001);
        assert_eq!(sender.lost_edge(), 1_001);
    }

    /// Karn's rule: a timed segment measures when it is covered, and nothing else does meanwhile; an
    /// echo measures where none is timed, a record of the flight where it is meant for the timeout.
    #[test]
    fn the_timeout_takes_one_measurement_of_the_right_kind() {
        let sent = Some((1_000, NOW));
        let echoed = Some(Span::from_nanos(7_000_000));
        let of = |records: Option<bool>, timed, ack| {
            let mut sender = under_way(Algorithm::Reno, Recovery::NewReno);
            (sender.timed, sender.una) = (timed, ack);
            sender.flight = records.map(|is_for_timeout| {
                let mut flight = Flight::new(is_for_timeout);
                flight.sent(at(20), 1, 1_001, MSS);
                flight.sent(at(30), 1_001, 2_001, 2 * MSS);
                Box::new(flight)
            });
            let segment = Segment::default();
            let arrival = Arrival { now: at(100), segment: &segment, echoed, is_bare: true };
            let measured = sender.measure(ack, &arrival);
            let millis = |span: Span| span.as_nanos() / 1_000_000;
            // A sample moves the average of 50 ms by an eighth of what it is off.
            let smoothed = sender.rtt.smoothed().expect("a sample");
            (measured.map(millis), smoothed.as_nanos() / 1_000, sender.timed.is_some())
        };
        assert_eq!(of(None, sent, 1_001), (Some(100), 56_250, false));
        assert_eq!(of(None, sent, 1_000), (None, 50_000, true), "not covered yet");
        assert_eq!(of(None, None, 1_000), (Some(7), 44_625, false), "an echo");
        assert_eq!(of(Some(true), sent, 1_001), (Some(80), 53_750, false));
        assert_eq!(of(Some(true), sent, 2_001), (Some(70), 52_500, false));
        assert_eq!(of(Some(false), sent, 1_001), (Some(80), 56_250, false));
        assert_eq!(of(Some(false), None, 1_001), (Some(80), 44_625, false));
        assert_eq!(of(Some(true), sent, 900), (None, 50_000, true), "no record is covered");
    }
}
