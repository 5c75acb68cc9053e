//! What wakes us: a ring buffer of the kernel's, which can be polled, with nothing of interest in it.
//!
//! The program at the hook puts a record into it when it finds that we sleep, and asks the kernel to
//! wake whoever polls. The buffer is two pages with a counter each, and its data: how far the reader
//! has come, which we write, and how far has been written, which the kernel does.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bpf::{MAP_CREATE, MapShape, bpf_descriptor};

const MAP_TYPE_RINGBUF: u32 = 27;

/// The bell.
pub(super) struct Bell {
    read: Page,
    written: Page,
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
        let read = Page::map(&map, 0, page_bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        let written = Page::map(&map, 1, page_bytes, libc::PROT_READ)?;
        Ok(Bell { read, written, map })
    }

    /// Is ready to be read when the bell rings; a map to programs.
    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.map
    }

    /// Is quiet until it is rung again.
    pub(super) fn silence(&self) {
        let written = self.written.counter().load(Ordering::Acquire);
        self.read.counter().store(written, Ordering::Release);
    }
}

/// A page that begins with a counter.
struct Page {
    start: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process and not to the thread that made it, and the counter is
// only changed as a whole.
unsafe impl Send for Page {}

impl Page {
    fn map(map: &OwnedFd, number: usize, bytes: usize, access: i32) -> io::Result<Page> {
        let (null, at) = (std::ptr::null_mut(), (number * bytes) as libc::off_t);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start =
            unsafe { libc::mmap(null, bytes, access, libc::MAP_SHARED, map.as_raw_fd(), at) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("nothing is mapped at address zero");
        Ok(Page { start, bytes })
    }

    fn counter(&self) -> &AtomicU64 {
        // SAFETY: the counter is the first word of a page that is mapped as long as the borrow, and
        // both sides change it only as a whole.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap returned, unmapped once; no reference outlives the page.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
