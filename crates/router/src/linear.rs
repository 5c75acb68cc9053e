//! The naive twin of every forwarding table: a list that is searched from one end to the other.

use alloc::collections::BTreeMap;

use crate::fib::{Fib, Full, NextHop};
use crate::prefix::{Address, Prefix};

/// All routes; a lookup tests each.
#[derive(Clone, Debug)]
pub struct FibLinear<A> {
    routes: BTreeMap<Prefix<A>, NextHop>,
}

impl<A: Address> FibLinear<A> {
    /// No routes.
    pub fn new() -> FibLinear<A> {
        FibLinear { routes: BTreeMap::new() }
    }
}

impl<A: Address> Default for FibLinear<A> {
    fn default() -> FibLinear<A> {
        FibLinear::new()
    }
}

impl<A: Address> Fib<A> for FibLinear<A> {
    fn insert(&mut self, prefix: Prefix<A>, next: NextHop) -> Result<Option<NextHop>, Full> {
        Ok(self.routes.insert(prefix, next))
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Result<Option<NextHop>, Full> {
        Ok(self.routes.remove(&prefix))
    }

    fn lookup(&self, address: A) -> Option<NextHop> {
        let matching = self.routes.iter().filter(|(prefix, _)| prefix.contains(address));
        matching.max_by_key(|(prefix, _)| prefix.length()).map(|(_, next)| *next)
    }

    fn len(&self) -> usize {
        self.routes.len()
    }
}
