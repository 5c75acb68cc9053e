//! The simulator where there is no operating system: one function that runs Figure 14's network.
//!
//! Built for wasm32 it is a module without imports, which Node.js or any other host can call;
//! `tests/wasm.rs` does, and compares the digest with that of the native engine. It never frees
//! memory; a host makes a new instance for each run.
#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

#[path = "dumbbell/figure_14.rs"]
mod figure_14;

use figure_14::{Point, plan};
use nilometer_queue::DisciplineKind;
use nilometer_sim::Network;
use nilometer_sim::endpoint::Endpoint;
use nilometer_tcp::Config;
use nilometer_wire::{Span, Time};

/// The digest of every delivery when `flows` flows share the bottleneck for `seconds`. `kind` is an
/// index into [`DisciplineKind::ALL`]; the digest is zero if there is none of that number.
// SAFETY: the name is this module's only export and clashes with nothing.
#[unsafe(no_mangle)]
pub extern "C" fn digest(kind: u32, flows: u32, seconds: u32, seed: u32) -> u64 {
    let Some(&kind) = DisciplineKind::ALL.get(kind as usize) else { return 0 };
    let point =
        Point { kind, buffer_packets: 200, flows, seed: u64::from(seed), tcp: Config::linux() };
    let mut network: Network<Endpoint> = Network::new(plan(&point), (), true);
    network.run_until(Time::ZERO + Span::from_secs(u64::from(seconds)));
    network.journal().digest
}

#[cfg(target_arch = "wasm32")]
mod bare {
    //! What `core` leaves to the host: memory and the end of the world.

    use core::alloc::{GlobalAlloc, Layout};
    use core::arch::wasm32::{memory_grow, memory_size, unreachable};
    use core::panic::PanicInfo;
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const PAGE_BYTES: usize = 65_536;

    /// Allocates memory from the end of what there is.
    struct Bump {
        next: AtomicUsize,
    }

    #[global_allocator]
    static MEMORY: Bump = Bump { next: AtomicUsize::new(0) };

    // SAFETY: each call returns bytes above those of all calls before, aligned as asked, and inside
    // the linear memory, which grows first; there is one thread.
    unsafe impl GlobalAlloc for Bump {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let end = memory_size(0) * PAGE_BYTES;
            let next = match self.next.load(Relaxed) {
                0 => end,
                next => next,
            };
            let start = next.next_multiple_of(layout.align());
            let stop = start + layout.size();
            if stop > end && memory_grow(0, (stop - end).div_ceil(PAGE_BYTES)) == usize::MAX {
                return core::ptr::null_mut();
            }
            self.next.store(stop, Relaxed);
            start as *mut u8
        }

        // SAFETY: nothing is given back, so that nothing can be given back twice.
        unsafe fn dealloc(&self, _memory: *mut u8, _layout: Layout) {}
    }

    #[panic_handler]
    fn panic(_: &PanicInfo) -> ! {
        unreachable()
    }
}
