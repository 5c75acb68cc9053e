//! Packets on a belt to the meter, whose flows are asked for on the way.
//!
//! The flows of a busy link lie in memory that no processor's cache holds, and each packet is of another
//! one: a meter that looked for a flow when its packet is there would wait for memory three times, for the
//! word of the index, for the flow, and for its neighbours in the order of those seen. So packets ride past
//! three stations before they are metered. At each one the next lines are asked for, by what has come of the
//! ones before, and what one packet waits for comes while others are read and metered. In batches, which
//! wait together, nothing would be read meanwhile. While flows are few all of this is in the cache, and
//! packets go by without a ride.

use nilometer_wire::brief::Brief;

use crate::meter::Meter;

pub use crate::coming::Coming;

/// Packets on the belt.
const LENGTH: usize = 16;
/// With as many flows, a megabyte, packets ride.
const FLOWS_MANY: usize = 1 << 13;
/// How far behind its beginning flows are found in the index and asked for.
const TO_FLOW: usize = 6;
/// How far their neighbours are.
const TO_NEIGHBOURS: usize = 11;

/// The belt.
#[derive(Debug)]
pub struct Belt {
    places: [Coming; LENGTH],
    /// Packets put on it.
    on: usize,
    /// Packets taken off it.
    off: usize,
}

impl Default for Belt {
    /// An empty belt.
    fn default() -> Belt {
        Belt { places: [Coming::default(); LENGTH], on: 0, off: 0 }
    }
}

impl Belt {
    /// Is a ride worth its while, or are packets still on the belt, which come first? Else the meter takes
    /// packets by itself.
    #[inline(always)]
    pub fn carries(&self, meter: &Meter) -> bool {
        self.on != self.off || meter.cache.len() >= FLOWS_MANY
    }

    /// Puts a packet on the belt, stamped `stamp_ns` (ns since 1970); the one whose turn it is comes off, and
    /// is for [`Meter::observe_coming`] of the same meter.
    #[inline(always)]
    pub fn pass(&mut self, meter: &Meter, stamp_ns: u64, packet: &Brief) -> Option<Coming> {
        let coming = Coming { stamp_ns, packet: *packet, place: meter.place_of(packet) };
        let due = if self.on - self.off == LENGTH { self.take_off() } else { None };
        meter.cache.prefetch_place(coming.place.hash);
        let finding = &mut self.places[self.on.wrapping_sub(TO_FLOW) % LENGTH].place;
        finding.slot = meter.cache.prefetch_flow(finding.hash);
        if let Some(slot) = self.places[self.on.wrapping_sub(TO_NEIGHBOURS) % LENGTH].place.slot {
            meter.cache.prefetch_neighbours(slot);
        }
        self.places[self.on % LENGTH] = coming;
        self.on += 1;
        due
    }

    /// Takes the next packet off, until the belt is empty: before the meter is flushed, and when nobody knows
    /// whether more will come.
    #[inline]
    pub fn take_off(&mut self) -> Option<Coming> {
        (self.on != self.off).then(|| {
            self.off += 1;
            self.places[(self.off - 1) % LENGTH]
        })
    }
}
