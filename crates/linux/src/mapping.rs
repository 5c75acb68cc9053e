//! Memory that is mapped: of this process alone, or shared with the kernel by a descriptor.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

pub(super) const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A range of mapped bytes; dropped, it is unmapped.
pub(super) struct Mapping {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to the thread that made it, and only the value
// that owns it hands out references into it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps this many bytes and touches all of them, in large pages where the kernel has some.
    pub(super) fn new(bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapping = Mapping::map(bytes, READ_WRITE, flags, -1, 0)?;
        // SAFETY: both calls and the writing stay within the mapping that was just made. Large
        // pages are a wish; a child must not get copies of pages that a device writes to.
        unsafe {
            libc::madvise(mapping.start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
            libc::madvise(mapping.start.as_ptr().cast(), bytes, libc::MADV_DONTFORK);
            mapping.start.write_bytes(0, bytes);
        }
        Ok(mapping)
    }

    /// Maps `bytes` bytes of the object behind a descriptor, from `offset` on, all pages at once.
    pub(super) fn shared(
        descriptor: &OwnedFd,
        offset: libc::off_t,
        bytes: usize,
        access: libc::c_int,
    ) -> io::Result<Mapping> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Mapping::map(bytes, access, flags, descriptor.as_raw_fd(), offset)
    }

    fn map(
        bytes: usize,
        access: libc::c_int,
        flags: libc::c_int,
        descriptor: RawFd,
        offset: libc::off_t,
    ) -> io::Result<Mapping> {
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { libc::mmap(null, bytes, access, flags, descriptor, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address zero");
        Ok(Mapping { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap returned, unmapped once; no reference into it outlives
        // the value that owns it, and the kernel keeps the pages of sockets that are still open.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
