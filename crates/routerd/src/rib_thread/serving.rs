//! A forwarding table that serves, and the one that takes its place under updates.
//!
//! The new table is filled from a copy of the routes while the old one is still updated; changes
//! made meanwhile are noted and applied at the end. From then on both are updated, until every
//! reader has moved to the new one: a route is never looked up in a table that is no longer updated.

use std::mem;

use crate::recording::{Recorded, TableRecorder};
use nilometer_router::{Address, Fib, Full, Lookups, NextHop, Prefix, ServingFib};

/// Changes that may come while a new table is filled.
const NOTED_MAX: usize = 1 << 22;

/// A changed prefix and its next hop, if it has one now.
type Change<A> = (Prefix<A>, Option<NextHop>);

/// The table of one family, as the routing table updates it.
pub(super) struct Serving<A> {
    fib: Box<dyn ServingFib<A>>,
    /// The former table, which some readers may still use.
    former: Option<Box<dyn ServingFib<A>>>,
    noted: Option<Vec<Change<A>>>,
    recorder: Option<TableRecorder>,
}

impl<A: Recorded> Serving<A> {
    pub(super) fn new(fib: Box<dyn ServingFib<A>>, recorder: Option<TableRecorder>) -> Serving<A> {
        Serving { fib, former: None, noted: None, recorder }
    }

    /// Bytes that lookups may read.
    pub(super) fn bytes(&self) -> usize {
        self.fib.bytes()
    }

    /// Adds a reader.
    pub(super) fn reader(&self) -> Option<Box<dyn Lookups<A>>> {
        self.fib.reader()
    }

    /// From now on changes are noted.
    pub(super) fn begin_exchange(&mut self) {
        self.noted = Some(Vec::new());
    }

    /// Applies the changes made since, and puts `fib` in place. If that fails, the old table stays,
    /// and readers see no difference.
    pub(super) fn exchange(&mut self, mut fib: Box<dyn ServingFib<A>>) -> Result<(), Full> {
        let noted = self.noted.take().unwrap_or_default();
        if noted.len() > NOTED_MAX {
            return Err(Full);
        }
        for change in noted {
            make(&mut *fib, change)?;
        }
        self.former = Some(mem::replace(&mut self.fib, fib));
        Ok(())
    }

    /// From now on nothing is noted.
    pub(super) fn end_exchange(&mut self) {
        self.noted = None;
    }

    /// No reader uses the former table any more.
    pub(super) fn let_former_go(&mut self) {
        self.former = None;
    }

    fn change(&mut self, change: Change<A>) -> Result<Option<NextHop>, Full> {
        let (fib, former) = (&mut self.fib, &mut self.former);
        let mut make_both = || {
            let before = make(&mut **fib, change)?;
            if let Some(former) = former {
                // It goes in a moment; one route that it has no room for is late by as long.
                let _ = make(&mut **former, change);
            }
            Ok(before)
        };
        let before = match &self.recorder {
            Some(recorder) => recorder.change(change.0, change.1, make_both),
            None => make_both(),
        }?;
        if let Some(noted) = self.noted.as_mut().filter(|noted| noted.len() <= NOTED_MAX) {
            noted.push(change);
        }
        Ok(before)
    }
}

fn make<A: Address>(
    fib: &mut dyn ServingFib<A>,
    (prefix, next): Change<A>,
) -> Result<Option<NextHop>, Full> {
    match next {
        Some(next) => fib.insert(prefix, next),
        None => fib.remove(prefix),
    }
}

impl<A: Recorded> Fib<A> for Serving<A> {
    fn insert(&mut self, prefix: Prefix<A>, next: NextHop) -> Result<Option<NextHop>, Full> {
        self.change((prefix, Some(next)))
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Result<Option<NextHop>, Full> {
        self.change((prefix, None))
    }

    fn lookup(&self, address: A) -> Option<NextHop> {
        self.fib.lookup(address)
    }

    fn len(&self) -> usize {
        self.fib.len()
    }
}
