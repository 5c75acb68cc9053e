//! The rings of an AF_XDP socket: single producer, single consumer, the kernel at the other end.
//!
//! A ring is an array of a power of two of entries and two counters that only grow. The producer
//! writes entries, then moves its counter on with release order; the consumer reads the counter
//! with acquire order, then the entries, then moves its own counter on. Each side keeps a copy of
//! the other's counter and looks at the shared one only when the copy says that there is nothing
//! to do, so that a batch costs one transfer of each counter's cache line and not one per packet.
//!
//! We produce the fill ring (chunks to receive into) and the transmit ring; we consume the receive
//! ring and the completion ring (chunks that were sent). The four look alike.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::mapping::{Mapping, READ_WRITE};

/// One ring, mapped from its socket.
struct Shared<T> {
    _map: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    count: u32,
}

// SAFETY: the mapping belongs to the process, and one value alone works on our side of a ring; the
// kernel's side does not mind from which thread.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// Maps the ring at `page_offset` of a socket, whose parts lie where the kernel says.
    fn map(
        socket: &OwnedFd,
        page_offset: libc::off_t,
        parts: &libc::xdp_ring_offset,
        count: u32,
    ) -> io::Result<Shared<T>> {
        assert!(count.is_power_of_two());
        let bytes = parts.desc as usize + count as usize * size_of::<T>();
        let map = Mapping::shared(socket, page_offset, bytes, READ_WRITE)?;
        let start = map.start;
        let last_word = bytes - size_of::<u32>();
        for part in [parts.producer, parts.consumer, parts.flags] {
            assert!(part as usize <= last_word && part % 4 == 0, "the kernel's offsets");
        }
        // SAFETY: the parts lie within the mapping, aligned, as just checked; the entries do by
        // the choice of its length.
        unsafe {
            Ok(Shared {
                _map: map,
                producer: start.add(parts.producer as usize).cast(),
                consumer: start.add(parts.consumer as usize).cast(),
                flags: start.add(parts.flags as usize).cast(),
                entries: start.add(parts.desc as usize).cast(),
                count,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the word lies in the mapping, which lives as long as `self`, and both sides
        // change it only as a whole.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for the producer.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // What was published must be visible before the kernel's wish is looked at.
        fence(Ordering::SeqCst);
        // SAFETY: as for the producer.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn entry(&self, number: u32) -> *mut T {
        // SAFETY: the masked number is that of an entry within the mapping.
        unsafe { self.entries.as_ptr().add((number & (self.count - 1)) as usize) }
    }
}

/// A ring that we fill.
pub(super) struct Producer<T> {
    shared: Shared<T>,
    written: u32,
    taken: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(
        socket: &OwnedFd,
        page_offset: libc::off_t,
        parts: &libc::xdp_ring_offset,
        count: u32,
    ) -> io::Result<Producer<T>> {
        let shared = Shared::map(socket, page_offset, parts, count)?;
        Ok(Producer { shared, written: 0, taken: 0 })
    }

    /// How many entries can be pushed; looks again only if that seems to be less than `wanted`.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let count = self.shared.count;
        let room = count - self.written.wrapping_sub(self.taken);
        if room >= wanted {
            return room;
        }
        self.taken = self.shared.consumer().load(Ordering::Acquire);
        count - self.written.wrapping_sub(self.taken)
    }

    /// Writes an entry, which the kernel sees after [`Producer::publish`].
    ///
    /// # Panics
    ///
    /// When there is no room.
    pub(super) fn push(&mut self, entry: T) {
        assert!(self.written.wrapping_sub(self.taken) < self.shared.count, "the ring is full");
        // SAFETY: the entry lies within the mapping, and is ours: the kernel's counter has passed
        // its last use, and it reads it only after the publication.
        unsafe { self.shared.entry(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
    }

    /// Shows the kernel what was pushed.
    pub(super) fn publish(&mut self) {
        self.shared.producer().store(self.written, Ordering::Release);
    }

    /// Whether the kernel has taken everything.
    pub(super) fn is_drained(&mut self) -> bool {
        let count = self.shared.count;
        self.room(count) == count
    }

    /// Whether the kernel needs a system call to notice new entries.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }
}

/// A ring that we empty.
pub(super) struct Consumer<T> {
    shared: Shared<T>,
    seen: u32,
    read: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(
        socket: &OwnedFd,
        page_offset: libc::off_t,
        parts: &libc::xdp_ring_offset,
        count: u32,
    ) -> io::Result<Consumer<T>> {
        let shared = Shared::map(socket, page_offset, parts, count)?;
        Ok(Consumer { shared, seen: 0, read: 0 })
    }

    /// The next entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.read == self.seen {
            self.seen = self.shared.producer().load(Ordering::Acquire);
            if self.read == self.seen {
                return None;
            }
        }
        // SAFETY: the entry lies within the mapping; the kernel published it, as the acquiring
        // load said, and writes it again only after `release`.
        let entry = unsafe { self.shared.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    /// Returns the places of all popped entries to the kernel.
    pub(super) fn release(&mut self) {
        self.shared.consumer().store(self.read, Ordering::Release);
    }
}
