//! What acknowledgements measure, and what a controller that measures deliveries is told of it.

use nilometer_wire::{Span, Time};

use crate::controller::{Acked, Controller, Delivery};
use crate::rack::Rack;
use crate::scoreboard::DUPLICATE_THRESHOLD;
use crate::sender::{Arrival, Phase, Sender};
use crate::sequence::unwrap;
use crate::transmit::Chunk;

impl Sender {
    /// A round-trip time, if this acknowledgement tells one: of the record of the flight, of the
    /// timed segment, unless something was sent again meanwhile (Karn and Partridge 1987), or of the
    /// echoed timestamp. The timeout takes those of the record only where they are meant for it.
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

    /// Enters there that the application has nothing to send though the window is open.
    pub(crate) fn record_pause(&mut self, in_flight: u64) {
        if let Some(flight) = &mut self.flight {
            flight.application_pauses(in_flight);
        }
    }

    /// Tells a controller that measures deliveries of bytes that were acknowledged selectively.
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

    /// Tells the controller of each segment below `edge` that is now known to be lost.
    pub(crate) fn tell_losses(&mut self, now: Time, edge: u64) {
        let Some(flight) = self.flight.as_mut().filter(|_| self.controller.needs_delivery()) else {
            return;
        };
        let (controller, window) = (&mut self.controller, &mut self.window);
        flight.lose_below(now, edge, |lost| controller.on_lost(window, lost));
    }

    /// Tells the controller of each segment that RACK found lost.
    pub(crate) fn tell_recorded_losses(&mut self, rack: &Rack, now: Time) {
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
