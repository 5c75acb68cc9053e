//! A log of flow offload: which flows were offloaded, and from when to when. A meter learns from it
//! which path each packet took, which the packet itself does not show.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nilometer_router::Key;

/// Entries at most.
pub const ENTRIES_MAX: usize = 1 << 21;

/// A flow was offloaded, or taken back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffloadEvent {
    /// When.
    pub at: Instant,
    /// The flow.
    pub key: Key<u32>,
    /// Whether it was offloaded.
    pub is_installed: bool,
}

/// The entries of a running router, in their order; clones share the log.
#[derive(Clone, Debug, Default)]
pub struct OffloadLog(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    /// Those that have not been taken yet.
    fresh: Vec<OffloadEvent>,
    written: usize,
}

impl OffloadLog {
    pub(super) fn write(&self, key: Key<u32>, is_installed: bool) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.written < ENTRIES_MAX {
            entries.fresh.push(OffloadEvent { at: Instant::now(), key, is_installed });
        }
        entries.written += 1;
    }

    /// Those that were written since they were taken last.
    pub fn take(&self) -> Vec<OffloadEvent> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut entries.fresh)
    }

    /// Whether there were more than it holds.
    pub fn is_full(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).written > ENTRIES_MAX
    }
}
