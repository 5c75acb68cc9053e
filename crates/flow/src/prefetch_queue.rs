//! The meter's prefetch queue: while packets wait in it, the memory that their flows need is prefetched.
//!
//! The flows of a busy link do not fit into a processor's cache, and consecutive packets mostly belong to
//! different flows: a meter that looked for a flow only when its packet is processed would wait for memory
//! three times, for the word of the index, for the flow, and for its neighbours in the order of flows seen. So
//! packets pass three stages of a queue before they are metered. Each stage prefetches the next lines, using
//! what the stage before has loaded, and the memory for one packet arrives while others are read and metered.
//! With batches no packet would be read during the waits. While flows are few, all of this is in the cache,
//! and packets bypass the queue.

use nilometer_wire::brief::Brief;

use crate::meter::Meter;

pub use crate::queued::Queued;

/// Packets in the queue.
const LENGTH: usize = 16;
/// From this many flows on, a megabyte, packets are queued.
const FLOWS_MANY: usize = 1 << 13;
/// Places from the head at which a packet's flow is looked up in the index and prefetched.
const TO_FLOW: usize = 6;
/// Places from the head at which its neighbours are prefetched.
const TO_NEIGHBOURS: usize = 11;

/// The queue.
#[derive(Debug)]
pub struct PrefetchQueue {
    places: [Queued; LENGTH],
    /// Packets pushed.
    pushed: usize,
    /// Packets popped.
    popped: usize,
}

impl Default for PrefetchQueue {
    /// An empty queue.
    fn default() -> PrefetchQueue {
        PrefetchQueue { places: [Queued::default(); LENGTH], pushed: 0, popped: 0 }
    }
}

impl PrefetchQueue {
    /// Does the meter have enough flows for queueing to help, or are packets still in the queue, which come
    /// first? Otherwise packets go directly to the meter.
    #[inline(always)]
    pub fn is_used(&self, meter: &Meter) -> bool {
        self.pushed != self.popped || meter.cache.len() >= FLOWS_MANY
    }

    /// Queues a packet that is stamped `stamp_ns` (ns since 1970); returns the packet that leaves the queue,
    /// if one does, for [`Meter::observe_queued`] of the same meter.
    #[inline(always)]
    pub fn push(&mut self, meter: &Meter, stamp_ns: u64, packet: &Brief) -> Option<Queued> {
        let queued = Queued { stamp_ns, packet: *packet, place: meter.place_of(packet) };
        let due = if self.pushed - self.popped == LENGTH { self.pop() } else { None };
        meter.cache.prefetch_place(queued.place.hash);
        let finding = &mut self.places[self.pushed.wrapping_sub(TO_FLOW) % LENGTH].place;
        finding.slot = meter.cache.prefetch_flow(finding.hash);
        if let Some(slot) = self.places[self.pushed.wrapping_sub(TO_NEIGHBOURS) % LENGTH].place.slot
        {
            meter.cache.prefetch_neighbours(slot);
        }
        self.places[self.pushed % LENGTH] = queued;
        self.pushed += 1;
        due
    }

    /// Removes the next packet, until the queue is empty: to be used before the meter is flushed, and when it
    /// is unknown whether more packets will come.
    #[inline]
    pub fn pop(&mut self) -> Option<Queued> {
        (self.pushed != self.popped).then(|| {
            self.popped += 1;
            self.places[(self.popped - 1) % LENGTH]
        })
    }
}
