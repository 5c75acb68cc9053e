//! The interface of a forwarding information base: lookups and updates (RFC 1812, 5.2.4.3: longest
//! match).

use alloc::boxed::Box;
use core::ops::Range;

use crate::prefix::{Address, Prefix};

/// The number of a next hop, or of a group of them; its meaning is kept elsewhere, so that a failed
/// next hop is replaced once and not in every route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHop(pub u16);

/// The table is full, or its answers cannot name the next hop: the update was not made, and lookups
/// are as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the forwarding table is full; make it with more room")]
pub struct Full;

/// A set of routes: an address's route is the longest prefix that contains it.
pub trait Fib<A: Address> {
    /// Makes `next` the next hop of `prefix`; returns the previous one, if there was one.
    ///
    /// # Errors
    /// [`Full`] when there is no room.
    fn insert(&mut self, prefix: Prefix<A>, next: NextHop) -> Result<Option<NextHop>, Full>;

    /// Withdraws `prefix`; returns its next hop, if there was one.
    ///
    /// # Errors
    /// [`Full`] when there is no room to prepare the change; tables of slots and of parcels have it always.
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

/// A reader that looks up many addresses at once, in a table that a writer may be changing.
pub trait Lookups<A: Address>: Send {
    /// Writes the next hop of each of `addresses`; each lookup sees each change wholly or not at all.
    ///
    /// # Panics
    /// When `addresses` and `next_hops` differ in length.
    fn look_up(&mut self, addresses: &[A], next_hops: &mut [Option<NextHop>]);

    /// Prefetches where the lookups of `addresses` begin, since they will be looked up soon.
    fn expect(&self, _addresses: &[A]) {}
}

/// A table that is looked up by others while its one writer changes it.
pub trait ServingFib<A: Address>: Fib<A> + Send {
    /// One more reader, unless there are too many.
    fn reader(&self) -> Option<Box<dyn Lookups<A>>>;

    /// Makes many routes at once; a later duplicate wins. Lookups may find each as soon as it is made.
    ///
    /// # Errors
    /// [`Full`] when there is no room; some of the routes are made then: the table is to be dropped.
    fn load(&mut self, routes: &mut dyn Iterator<Item = (Prefix<A>, NextHop)>) -> Result<(), Full> {
        for (prefix, next) in routes {
            self.insert(prefix, next)?;
        }
        Ok(())
    }

    /// Bytes that lookups may read: no room that is free, and nothing that the writer alone uses.
    fn bytes(&self) -> usize;

    /// Whether all its memory is in use, waiting for readers, or free.
    fn balances(&self) -> bool;

    /// The addresses of the memory that lookups read, free room included, for a shell that can ask the
    /// kernel for large pages there.
    fn span(&self) -> Range<usize>;
}

/// Lets a table of any engine be used where one of a known kind is expected.
impl<A: Address, F: Fib<A> + ?Sized> Fib<A> for Box<F> {
    fn insert(&mut self, prefix: Prefix<A>, next: NextHop) -> Result<Option<NextHop>, Full> {
        (**self).insert(prefix, next)
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Result<Option<NextHop>, Full> {
        (**self).remove(prefix)
    }

    fn lookup(&self, address: A) -> Option<NextHop> {
        (**self).lookup(address)
    }

    fn len(&self) -> usize {
        (**self).len()
    }
}
