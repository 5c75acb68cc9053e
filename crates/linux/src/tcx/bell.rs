//! The wake-up channel: a kernel ring buffer that can be polled, whose records carry no information.
//!
//! The program at the hook puts a record into it when it finds that we sleep, and has the kernel wake the
//! polling thread. The buffer is two pages with a counter each, and its data: the consumer position,
//! which we write, and the producer position, which the kernel writes.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bpf::{MAP_CREATE, MapShape, bpf_descriptor};
use crate::mapping::{Mapping, READ_WRITE};

const MAP_TYPE_RINGBUF: u32 = 27;

/// The bell.
pub(super) struct Bell {
    read: Mapping,
    written: Mapping,
    map: OwnedFd,
}

impl Bell {
    /// A bell that does not ring.
    pub(super) fn new() -> io::Result<Bell> {
        // SAFETY: sysconf takes an integer and returns one.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let shape = MapShape {
            map_type: MAP_TYPE_RINGBUF,
            key_bytes: 0,
            value_bytes: 0,
            entries_max: page_bytes as u32,
            flags: 0,
        };
        let map = bpf_descriptor(MAP_CREATE, &shape)?;
        let read = Mapping::shared(&map, 0, page_bytes, READ_WRITE)?;
        let written = Mapping::shared(&map, page_bytes as _, page_bytes, libc::PROT_READ)?;
        Ok(Bell { read, written, map })
    }

    /// Is ready to be read when the bell rings; a map to programs.
    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.map
    }

    /// Is quiet until it is rung again.
    pub(super) fn silence(&self) {
        let written = counter(&self.written).load(Ordering::Acquire);
        counter(&self.read).store(written, Ordering::Release);
    }
}

/// The counter that a page begins with.
fn counter(page: &Mapping) -> &AtomicU64 {
    // SAFETY: the counter is the first word of a page that is mapped as long as the borrow, and
    // both sides change it only as a whole.
    unsafe { page.start.cast().as_ref() }
}
