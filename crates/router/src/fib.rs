//! What a forwarding information base is asked and told (RFC 1812, 5.2.4.3: longest match).

use core::fmt;

use crate::prefix::{Address, Prefix};

/// The number of a next hop, or of a group of them; what it stands for is kept elsewhere, so that a
/// next hop that fails is replaced once and not in every route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHop(pub u16);

/// The table is full: the update was not made, and lookups are as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the forwarding table is full; make it with more room")
    }
}

impl core::error::Error for Full {}

/// Routes, of which the longest that contains an address is its route.
pub trait Fib<A: Address> {
    /// Makes `next` the next hop of `prefix`; returns which it was before, if there was one.
    ///
    /// # Errors
    /// [`Full`] when there is no room.
    fn insert(&mut self, prefix: Prefix<A>, next: NextHop) -> Result<Option<NextHop>, Full>;

    /// Withdraws `prefix`; returns its next hop, if there was one.
    ///
    /// # Errors
    /// [`Full`] when there is no room to prepare the change.
    fn remove(&mut self, prefix: Prefix<A>) -> Result<Option<NextHop>, Full>;

    /// The next hop of the longest prefix that contains `address`.
    fn lookup(&self, address: A) -> Option<NextHop>;

    /// How many prefixes there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
