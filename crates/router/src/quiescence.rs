//! When memory that readers may still be looking at can be used again.
//!
//! A table's readers never wait for its writer, and the writer waits for them only where no memory is
//! left (`slots/home.rs`). What the writer takes out of a table may still be in use by a reader that
//! found it a moment before; so it is kept until each reader has declared, once, that it holds nothing
//! (quiescent states; McKenney and Slingwine 1998). Time is counted in *epochs*; every removal begins
//! one. A reader that begins publishes the epoch that it saw, and a reader that ends publishes that it
//! rests.
//!
//! One fence is all that a reader pays. It stands between publishing its epoch and reading the table,
//! as the writer has one between its change and its look at the readers' epochs: so either the writer
//! sees the reader, or the reader sees the change and cannot find what was taken out.

use alloc::boxed::Box;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Most readers of a table.
pub const READERS_LIMIT: usize = 64;

/// The epoch of a reader that holds nothing.
const RESTS: u64 = u64::MAX;
/// A place that no reader has.
const VACANT: u64 = u64::MAX - 1;

/// The readers of a table, and the epoch.
#[derive(Debug)]
pub(crate) struct Readers {
    /// Changes so far that took something away.
    epoch: AtomicU64,
    /// For each reader, the epoch in which it last began.
    places: Box<[AtomicU64]>,
}

impl Readers {
    pub fn new() -> Readers {
        let places = (0..READERS_LIMIT).map(|_| AtomicU64::new(VACANT)).collect();
        Readers { epoch: AtomicU64::new(0), places }
    }

    /// The place of a new reader.
    pub fn admit(&self) -> Option<usize> {
        let enter = |place: &AtomicU64| {
            place.compare_exchange(VACANT, RESTS, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        self.places.iter().position(enter)
    }

    pub fn dismiss(&self, reader: usize) {
        self.places[reader].store(VACANT, Ordering::SeqCst);
    }

    /// The reader holds nothing now, and continues.
    #[inline]
    pub fn pass(&self, reader: usize) {
        self.places[reader].store(self.epoch.load(Ordering::Acquire), Ordering::Relaxed);
        // Everything read from here on is at least as new as the writer's view of this reader.
        fence(Ordering::SeqCst);
    }

    /// The reader holds nothing, and will not until it passes again.
    #[inline]
    pub fn rest(&self, reader: usize) {
        self.places[reader].store(RESTS, Ordering::Release);
    }

    /// Something was taken out just now; returns the epoch that all readers must have passed before it
    /// is used again.
    pub fn advance(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Waits until no reader holds anything taken out earlier: at most as long as a batch of lookups takes,
    /// however many batches follow.
    pub fn wait(&self) {
        let epoch = self.advance();
        while self.passed() < epoch {
            spin_loop();
        }
    }

    /// The epoch that every reader has passed.
    pub fn passed(&self) -> u64 {
        fence(Ordering::SeqCst);
        let now = self.epoch.load(Ordering::SeqCst);
        let epochs = self.places.iter().map(|place| place.load(Ordering::SeqCst));
        epochs.filter(|&epoch| epoch < VACANT).min().unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_a_reader_may_hold_is_kept_until_it_passes() {
        let readers = Readers::new();
        let (a, b) = (readers.admit().expect("a place"), readers.admit().expect("a place"));
        readers.pass(a);
        let epoch = readers.advance();
        assert!(readers.passed() < epoch);
        readers.pass(b);
        assert!(readers.passed() < epoch, "the first still holds it");
        readers.pass(a);
        assert!(readers.passed() >= epoch);
        let epoch = readers.advance();
        readers.rest(a);
        assert!(readers.passed() < epoch);
        readers.dismiss(b);
        assert!(readers.passed() >= epoch);
    }

    #[test]
    fn reader_slots_are_reused() {
        let readers = Readers::new();
        let places: alloc::vec::Vec<usize> = core::iter::from_fn(|| readers.admit()).collect();
        assert_eq!(places.len(), READERS_LIMIT);
        readers.dismiss(7);
        assert_eq!(readers.admit(), Some(7));
    }
}
