//! From a next hop to the port and the link-layer address it is reached by, in a few array reads.
//!
//! For each hop of the [`Snapshot`] with a gateway a [`Handle`] of the gateway's neighbour entry is
//! kept. It is void as soon as the entry changes, so nothing has to be told when one does: the next
//! packet asks the table again.

use alloc::vec::Vec;

use crate::neighbour::Handle;
use crate::next_hop::Snapshot;

/// The handles, by number of hop.
#[derive(Debug, Default)]
pub(super) struct Adjacencies {
    handles: Vec<Handle>,
}

impl Adjacencies {
    /// Other hops are in force.
    pub(super) fn renew(&mut self, hops: &Snapshot) {
        self.handles.clear();
        self.handles.resize(hops.hops().len(), Handle::VOID);
    }

    /// What is kept for hop number `hop`.
    #[inline]
    pub(super) fn handle(&self, hop: u16) -> Handle {
        self.handles.get(usize::from(hop)).copied().unwrap_or(Handle::VOID)
    }

    /// Keeps `handle` for hop number `hop`.
    pub(super) fn keep(&mut self, hop: u16, handle: Handle) {
        if let Some(kept) = self.handles.get_mut(usize::from(hop)) {
            *kept = handle;
        }
    }
}
