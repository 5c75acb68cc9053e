//! The memory of a plugin in WebAssembly: blocks of powers of two, each size with a list of those that are free.
//!
//! A block goes back to the list of its size and is never joined with another: memory that was once split into
//! small blocks stays so. Plugins have tables of a stated size, for which that is enough, and the host bounds the
//! total.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32::{memory_grow, memory_size};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

const PAGE_BYTES: usize = 65_536;
/// The smallest block, as a power of two: a free one holds the address of the next.
const SMALLEST: u32 = 4;
const SIZES: usize = 32;

struct Lists {
    /// Free blocks by the power of two of their size; each has the address of the next in its first word.
    free: [*mut u8; SIZES],
    /// The first byte that was never given out; zero before the first block.
    next: usize,
    /// The end of the linear memory.
    end: usize,
}

/// The allocator of a module.
pub struct Allocator(UnsafeCell<Lists>);

// SAFETY: a module has one thread, and the allocator does not call itself.
unsafe impl Sync for Allocator {}

impl Allocator {
    /// Without any memory yet.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Allocator {
        Allocator(UnsafeCell::new(Lists { free: [null_mut(); SIZES], next: 0, end: 0 }))
    }
}

/// The power of two of a block that holds this.
fn size(layout: Layout) -> u32 {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST);
    bytes.next_power_of_two().trailing_zeros()
}

impl Lists {
    /// A block that was never given out.
    fn fresh(&mut self, bytes: usize) -> *mut u8 {
        if self.next == 0 {
            self.end = memory_size(0) * PAGE_BYTES;
            self.next = self.end;
        }
        // Blocks of a page and more are aligned to a page only: no layout here needs more.
        let start = self.next.next_multiple_of(bytes.min(PAGE_BYTES));
        let Some(stop) = start.checked_add(bytes) else { return null_mut() };
        if stop > self.end {
            let pages = (stop - self.end).div_ceil(PAGE_BYTES);
            if memory_grow(0, pages) == usize::MAX {
                return null_mut();
            }
            self.end += pages * PAGE_BYTES;
        }
        self.next = stop;
        start as *mut u8
    }
}

// SAFETY: a block is either in one list or given out, is as large as the layout and aligned to its own size (to a page, if
// it is larger), and lies inside the linear memory, which never shrinks.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: there is one thread, and this does not call itself.
        let lists = unsafe { &mut *self.0.get() };
        let size = size(layout);
        if size as usize >= SIZES || layout.align() > PAGE_BYTES {
            return null_mut();
        }
        let block = lists.free[size as usize];
        if block.is_null() {
            return lists.fresh(1 << size);
        }
        // SAFETY: a block in a list is free, is at least 16 bytes and aligned to them, and has the next one's address.
        lists.free[size as usize] = unsafe { block.cast::<*mut u8>().read() };
        block
    }

    // SAFETY: the block is given back by its owner, with the layout that it was given out for.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: there is one thread, and this does not call itself.
        let lists = unsafe { &mut *self.0.get() };
        let size = size(layout) as usize;
        // SAFETY: the block is free from here on, and has room for an address.
        unsafe { block.cast::<*mut u8>().write(lists.free[size]) };
        lists.free[size] = block;
    }
}
