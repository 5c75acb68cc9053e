//! The pipeline's interface to the ports' packet memory.

use nilometer_router::memory::{Memory, Place};
use nilometer_wire::prefetch::prefetch;

use crate::memory::PacketMemory;

impl Memory for PacketMemory {
    fn take(&mut self, bytes: u16) -> Option<Place> {
        if bytes > self.frame_bytes_max() {
            return None;
        }
        PacketMemory::take(self).map(|buffer| buffer.packet(bytes))
    }

    fn give(&mut self, place: Place) {
        PacketMemory::give(self, place);
    }

    #[inline(always)]
    fn expect(&self, place: Place) {
        prefetch(self.whereabouts(&place));
    }

    #[inline]
    fn frame(&self, place: Place) -> &[u8] {
        PacketMemory::frame(self, &place)
    }

    #[inline]
    fn frame_mut(&mut self, place: Place) -> &mut [u8] {
        PacketMemory::frame_mut(self, &place)
    }
}
