//! Large pages for memory that is read all over.

use std::ops::Range;

/// Asks the kernel to put `span`, a table's own memory, on pages of 2 MiB now (`MADV_COLLAPSE`, Linux 6.1).
/// This is an optimisation: without it the table works the same, with pages of 4 KiB. Returns whether it was
/// granted.
pub fn ask_for_large_pages(span: Range<usize>) -> bool {
    const PAGE_BYTES: usize = 2 << 20;
    let first = span.start.next_multiple_of(PAGE_BYTES);
    let bytes = (span.end / PAGE_BYTES * PAGE_BYTES).saturating_sub(first);
    if bytes == 0 {
        return false;
    }
    let address = std::ptr::without_provenance_mut(first);
    // SAFETY: neither advice changes what is in memory, whichever process has it, or moves it as a process sees it.
    unsafe {
        libc::madvise(address, bytes, libc::MADV_HUGEPAGE);
        libc::madvise(address, bytes, libc::MADV_COLLAPSE) == 0
    }
}
