//! From a next hop to the port and the link-layer address it is reached by, in a few array reads.
//!
//! For each hop of the [`Snapshot`] with a gateway a [`Handle`] of the gateway's neighbour entry is
//! kept, with the port. It is void as soon as the entry changes, so a change needs no notification:
//! the next packet queries the table again.

use alloc::vec::Vec;

use crate::fib::NextHop;
use crate::neighbour::Handle;
use crate::next_hop::Snapshot;

/// The kept adjacency of a hop: the port that it leaves by and the gateway's entry there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) handle: Handle,
    pub(super) output: u16,
    /// Whether the gateway has an address of IPv6.
    pub(super) is_six: bool,
    /// Whether anything is kept.
    pub(super) is_any: bool,
}

impl Kept {
    /// Nothing.
    pub(super) const NOTHING: Kept =
        Kept { handle: Handle::VOID, output: 0, is_six: false, is_any: false };
}

/// All that is kept, by number of hop.
#[derive(Debug, Default)]
pub(super) struct Adjacencies {
    kept: Vec<Kept>,
}

impl Adjacencies {
    /// Other hops are in force.
    pub(super) fn renew(&mut self, hops: &Snapshot) {
        self.kept.clear();
        self.kept.resize(hops.hops().len(), Kept::NOTHING);
    }

    /// The kept adjacency of hop number `hop`.
    #[inline]
    pub(super) fn of(&self, hop: u16) -> Kept {
        self.kept.get(usize::from(hop)).copied().unwrap_or(Kept::NOTHING)
    }

    /// The kept adjacency of the hop that `next` resolves to, for the flow of this hash.
    #[inline(always)]
    pub(super) fn find(&self, hops: &Snapshot, next: NextHop, hash: u64) -> Kept {
        let number = hops.number(next, (hash >> 32) as u32);
        number.map_or(Kept::NOTHING, |number| self.of(number))
    }

    /// Keeps this for hop number `hop`.
    pub(super) fn keep(&mut self, hop: u16, kept: Kept) {
        if let Some(place) = self.kept.get_mut(usize::from(hop)) {
            *place = kept;
        }
    }
}
