//! The ring of arrivals, read: frames in the order in which their slots were claimed.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use super::layout::{FRAME, FULL, HEAD, Layout, SLOT_BYTES, SLOT_KEPT, SLOT_SEQUENCE, SLOT_STAMP};
use super::program::load_arrivals;
use super::{Arrival, FRAME_BYTES_MIN, Watched};
use crate::bpf::SharedMap;
use crate::interface::Interface;
use crate::xdp::{Attachment, Link, Program};

/// The ring and the program that fills it.
pub struct ArrivalRing {
    // Dropped in this order: the program first.
    link: Link,
    shared: SharedMap,
    layout: Layout,
    next: u64,
    most_waiting: u64,
}

impl ArrivalRing {
    pub(super) fn open(
        interface: &str,
        watched: Watched,
        slots: usize,
        frame_bytes_max: usize,
    ) -> Result<ArrivalRing> {
        ensure!(
            slots.is_power_of_two() && (64..=1 << 20).contains(&slots),
            "a ring of {slots} frames: choose a power of two from 64 to 1048576"
        );
        ensure!((FRAME_BYTES_MIN..=9_216).contains(&frame_bytes_max), "frames of up to 9216 bytes");
        let step = || format!("cannot stamp what comes in by {interface}");
        // (The caller decides which interfaces may be taken.)
        let index = Interface::open(interface, true).with_context(step)?.index();
        let layout = Layout::new(slots, frame_bytes_max);
        let shared = SharedMap::new(layout.bytes()).with_context(step)?;
        let program = Program::of(load_arrivals(&shared, watched, &layout).with_context(step)?);
        let mut link = program.attach(index, Attachment::Native);
        if link.is_err() {
            link = program.attach(index, Attachment::Generic);
        }
        let link = link.with_context(step)?;
        let ring = ArrivalRing { link, shared, layout, next: 0, most_waiting: 0 };
        for position in 0..slots as u64 {
            // (What comes before its slot was numbered is behind its position, and counts as lost; none does, as
            // positions are claimed in order and the first is numbered already.)
            ring.sequence(position).store(position, Ordering::Release);
        }
        Ok(ring)
    }

    pub(super) fn attachment(&self) -> Attachment {
        self.link.attachment()
    }

    fn sequence(&self, position: u64) -> &AtomicU64 {
        self.shared.word(self.layout.slots.at(position) + SLOT_SEQUENCE)
    }

    pub(super) fn drain(&mut self, mut each: impl FnMut(Arrival<'_>)) -> usize {
        let claimed = self.shared.word(HEAD).load(Ordering::Relaxed);
        self.most_waiting = self.most_waiting.max(claimed.saturating_sub(self.next));
        let mut count = 0;
        while count < self.layout.slots.count
            && self.sequence(self.next).load(Ordering::Acquire) == self.next + 1
        {
            each(self.front());
            let free = self.next + self.layout.slots.count as u64;
            self.sequence(self.next).store(free, Ordering::Release);
            self.next += 1;
            count += 1;
        }
        count
    }

    /// The frame in the slot that is next, which was committed.
    fn front(&self) -> Arrival<'_> {
        let start = self.layout.slots.at(self.next);
        let stamp_ns = self.shared.word(start + SLOT_STAMP).load(Ordering::Relaxed);
        let word = |at: usize| -> u32 {
            // SAFETY: the word lies within a slot, which lies within the mapping. The program committed the
            // slot, as an acquiring load said, and does not write to it until it is given back.
            unsafe { self.shared.start().add(start + at).cast::<u32>().read() }
        };
        let (bytes, kept) = (word(SLOT_BYTES), word(SLOT_KEPT) as usize);
        // SAFETY: as above; a slot has room for so many bytes.
        let frame = unsafe {
            let first = self.shared.start().add(start + FRAME).as_ptr();
            std::slice::from_raw_parts(first, kept.min(self.layout.kept_max))
        };
        Arrival { stamp_ns, bytes, frame }
    }

    pub(super) fn lost(&self) -> u64 {
        self.shared.word(FULL).load(Ordering::Relaxed)
    }

    pub(super) fn most_waiting(&self) -> u64 {
        self.most_waiting
    }
}
