//! Our end of the ring: slots in the order in which they were claimed.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{
    ASLEEP, FRAME, FULL, Layout, MORE, OVERSIZE, SLOT_BYTES, SLOT_INDEX, SLOT_MARK, SLOT_SEQUENCE,
    SLOT_SIZE, SLOT_TAG,
};
use super::segment::Cut;
use crate::bpf::SharedMap;
use crate::flow_offload::Mark;

/// What lies in a slot.
#[derive(Debug)]
pub(super) struct Arrival<'a> {
    /// The frame as it arrived, without its tag; the headers of a segment are those of the whole
    /// packet. Empty if the kernel could not read what it had announced.
    pub(super) frame: &'a [u8],
    /// Which piece of an unsegmented packet it is, if of any.
    pub(super) cut: Option<Cut>,
    /// The VLAN tag that the kernel had taken off: protocol and control information, four bytes as they
    /// stood in the frame.
    pub(super) tag: Option<[u8; 4]>,
    /// The bucket of its flow.
    pub(super) mark: Mark,
}

/// The memory that the program writes to, read here.
pub(super) struct Ring {
    shared: SharedMap,
    layout: Layout,
    /// The position of the next slot to be read.
    next: u64,
}

impl Ring {
    /// An empty ring.
    pub(super) fn new(layout: Layout) -> io::Result<Ring> {
        let ring = Ring { shared: SharedMap::new(layout.bytes())?, layout, next: 0 };
        for position in 0..layout.slots.count as u64 {
            ring.sequence(position).store(position, Ordering::Relaxed);
        }
        Ok(ring)
    }

    /// The memory, for the program.
    pub(super) fn shared(&self) -> &SharedMap {
        &self.shared
    }

    fn sequence(&self, position: u64) -> &AtomicU64 {
        self.shared.word(self.layout.slots.at(position) + SLOT_SEQUENCE)
    }

    /// Whether there is nothing to be read.
    pub(super) fn is_empty(&self) -> bool {
        self.sequence(self.next).load(Ordering::Acquire) != self.next + 1
    }

    /// The first arrival that was not yet released.
    pub(super) fn front(&self) -> Option<Arrival<'_>> {
        if self.is_empty() {
            return None;
        }
        let start = self.layout.slots.at(self.next);
        let word = |at: usize| -> u32 {
            // SAFETY: the word lies within a slot, which lies within the mapping. The program committed
            // the slot, as the acquiring load said, and does not write to it until it is released,
            // which takes this value exclusively.
            unsafe { self.shared.start().add(start + at).cast::<u32>().read() }
        };
        let (index, size, tag) = (word(SLOT_INDEX), word(SLOT_SIZE), word(SLOT_TAG));
        let mark = word(SLOT_MARK);
        let bytes = (word(SLOT_BYTES) as usize).min(self.layout.frame_bytes_max);
        // SAFETY: as above; a slot has room for so many bytes.
        let frame = unsafe {
            let first: NonNull<u8> = self.shared.start().add(start + FRAME);
            std::slice::from_raw_parts(first.as_ptr(), bytes)
        };
        let cut = (size > 0).then_some(Cut {
            index: (index & (MORE - 1)) as u16,
            size: size as u16,
            is_last: index & MORE == 0,
        });
        let tag = (tag != 0).then(|| {
            let [one, two, _, _] = tag.to_ne_bytes();
            let [three, four] = ((tag >> 16) as u16).to_be_bytes();
            [one, two, three, four]
        });
        Some(Arrival { frame, cut, tag, mark })
    }

    /// Gives the front slot back.
    pub(super) fn release(&mut self) {
        let free = self.next + self.layout.slots.count as u64;
        self.sequence(self.next).store(free, Ordering::Release);
        self.next += 1;
    }

    /// Frames that found no free slot, and packets that were no frames of the link.
    pub(super) fn lost(&self) -> (u64, u64) {
        let count = |at| self.shared.word(at).load(Ordering::Relaxed);
        (count(FULL), count(OVERSIZE))
    }

    /// Requests a wake-up by the next arrival; false if something has arrived already.
    pub(super) fn fall_asleep(&self) -> bool {
        // The program commits a slot before it looks here, and we look at the slot after this.
        self.shared.word(ASLEEP).store(1, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.is_empty()
    }

    /// Withdraws the request.
    pub(super) fn wake_up(&self) {
        self.shared.word(ASLEEP).store(0, Ordering::Relaxed);
    }
}
