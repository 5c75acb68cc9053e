//! Packet memory: where frames lie while their handles move. A node's driver lends it for each call.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::prefetch::prefetch;

/// Room in front of a frame of [`HeapMemory`], bytes.
const HEAD_ROOM_BYTES: u16 = 64;
/// The default size of a buffer of [`HeapMemory`], bytes.
const BUFFER_BYTES: usize = 2_048;

/// A frame in the memory, from its Ethernet header on, without the check sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The number of its buffer.
    pub buffer: u32,
    /// Where in the buffer it begins, in bytes.
    pub offset: u16,
    /// Its length in bytes.
    pub bytes: u16,
}

/// Buffers that hold a frame each. The holder of a [`Place`] owns its buffer, and must pass it on or give it
/// back exactly once.
pub trait Memory {
    /// A buffer for a frame of `bytes`, behind the usual head-room; `None` when no buffer is free, or when a
    /// buffer cannot hold that many bytes.
    fn take(&mut self, bytes: u16) -> Option<Place>;

    /// Takes a frame's buffer back.
    fn give(&mut self, place: Place);

    /// The bytes of a frame.
    fn frame(&self, place: Place) -> &[u8];

    /// Prefetches the first cache line of `place`, which will be read soon. A memory that knows where a frame
    /// lies without checking that it is one can override this with something faster.
    #[inline(always)]
    fn expect(&self, place: Place) {
        prefetch(self.frame(place).as_ptr());
    }

    /// The bytes of a frame, to change.
    fn frame_mut(&mut self, place: Place) -> &mut [u8];
}

/// A borrowed memory can be lent on.
impl<M: Memory + ?Sized> Memory for &mut M {
    fn take(&mut self, bytes: u16) -> Option<Place> {
        (**self).take(bytes)
    }

    fn give(&mut self, place: Place) {
        (**self).give(place);
    }

    fn frame(&self, place: Place) -> &[u8] {
        (**self).frame(place)
    }

    fn expect(&self, place: Place) {
        (**self).expect(place);
    }

    fn frame_mut(&mut self, place: Place) -> &mut [u8] {
        (**self).frame_mut(place)
    }
}

/// Buffers of one size on the heap, which come into being when they are first needed: the memory of nodes under the
/// virtual clock.
#[derive(Clone, Debug)]
pub struct HeapMemory {
    bytes: Vec<u8>,
    buffer_bytes: usize,
    limit: u32,
    free: Vec<u32>,
    is_taken: Vec<bool>,
}

impl HeapMemory {
    /// At most `limit` buffers of 2,048 bytes.
    pub fn new(limit: u32) -> HeapMemory {
        HeapMemory::of_buffers(limit, BUFFER_BYTES)
    }

    /// At most `limit` buffers of `buffer_bytes` bytes, 64 of which are kept free in front of a frame.
    pub fn of_buffers(limit: u32, buffer_bytes: usize) -> HeapMemory {
        let (bytes, free, is_taken) = (Vec::new(), Vec::new(), Vec::new());
        HeapMemory { bytes, buffer_bytes, limit, free, is_taken }
    }

    /// Buffers in use.
    pub fn taken(&self) -> usize {
        self.is_taken.len() - self.free.len()
    }

    /// # Panics
    /// When the buffer is not in use.
    fn range(&self, place: Place) -> Range<usize> {
        assert!(self.is_taken[place.buffer as usize], "nobody has buffer {}", place.buffer);
        let start = place.buffer as usize * self.buffer_bytes + usize::from(place.offset);
        start..start + usize::from(place.bytes)
    }

    fn free_buffer(&mut self) -> Option<u32> {
        if let Some(buffer) = self.free.pop() {
            return Some(buffer);
        }
        let buffer = self.is_taken.len() as u32;
        if buffer >= self.limit {
            return None;
        }
        self.is_taken.push(false);
        self.bytes.extend(vec![0; self.buffer_bytes]);
        Some(buffer)
    }
}

impl Memory for HeapMemory {
    fn take(&mut self, bytes: u16) -> Option<Place> {
        if usize::from(bytes) + usize::from(HEAD_ROOM_BYTES) > self.buffer_bytes {
            return None;
        }
        let buffer = self.free_buffer()?;
        self.is_taken[buffer as usize] = true;
        Some(Place { buffer, offset: HEAD_ROOM_BYTES, bytes })
    }

    /// # Panics
    /// When it was given back before.
    fn give(&mut self, place: Place) {
        assert!(self.is_taken[place.buffer as usize], "given back twice");
        self.is_taken[place.buffer as usize] = false;
        self.free.push(place.buffer);
    }

    fn frame(&self, place: Place) -> &[u8] {
        &self.bytes[self.range(place)]
    }

    fn frame_mut(&mut self, place: Place) -> &mut [u8] {
        let range = self.range(place);
        &mut self.bytes[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_buffers_are_bounded_and_used_again() {
        let mut memory = HeapMemory::new(2);
        let (first, second) = (memory.take(60).expect("room"), memory.take(1_514).expect("room"));
        assert_eq!((memory.take(60), memory.taken()), (None, 2));
        memory.frame_mut(first).fill(7);
        assert!(memory.frame(first).iter().all(|&byte| byte == 7) && memory.frame(second)[0] == 0);
        memory.give(first);
        assert_eq!(memory.take(60).map(|place| place.buffer), Some(first.buffer));
        assert_eq!(HeapMemory::new(9).take(2_000), None, "longer than a buffer");
    }
}
