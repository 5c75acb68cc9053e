//! The mapping that packet memory lies in.

use std::io;
use std::ptr::NonNull;

/// The bytes behind the chunks.
pub(super) struct Mapping {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to the thread that made it, and only the memory
// that owns it hands out references into it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps so many bytes and touches all of them, in large pages where the kernel has some.
    pub(super) fn new(bytes: usize) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both calls and the writing stay within the mapping that was just made. Large
        // pages are a wish; a child must not get copies of pages that a device writes to.
        unsafe {
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
            libc::madvise(start, bytes, libc::MADV_DONTFORK);
            std::ptr::write_bytes(start.cast::<u8>(), 0, bytes);
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at address zero");
        Ok(Mapping { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap returned, unmapped once; no slice outlives the
        // memory, and the kernel keeps the pages of sockets that are still open.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
