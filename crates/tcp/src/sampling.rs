//! What a controller that measures deliveries is told, from the record of the flight.

use nilometer_wire::Time;

use crate::controller::{Acked, Controller, Delivery};
use crate::rack::Rack;
use crate::scoreboard::DUPLICATE_THRESHOLD;
use crate::sender::{Arrival, Phase, Sender};
use crate::sequence::unwrap;

impl Sender {
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
