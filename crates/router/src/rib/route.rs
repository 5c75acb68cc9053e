//! A route, its source, and updates of many routes.

use crate::fib::{Fib, Full, NextHop};
use crate::prefix::{Address, Prefix};

nilometer_wire::named! {
    /// The source of a route, the most trusted first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Source {
        /// The router's own addresses (the kernel's table `local`).
        Local = "local",
        /// Networks at its ports.
        Connected = "connected",
        /// What the operator entered.
        Static = "static",
        /// Routing daemons, by the forwarding plane manager's protocol.
        Fpm = "fpm",
        /// The kernel's table, mirrored.
        Kernel = "kernel",
    }
}

impl Source {
    /// How far its routes are to be trusted, the less the better; those of daemons by the protocol that
    /// they came by (`rtm_protocol`), in FRR's numbers.
    pub fn distance(self, protocol: u8) -> u8 {
        match (self, protocol) {
            (Source::Local, _) => 0,
            (Source::Connected, _) => 1,
            (Source::Static, _) => 2,
            (Source::Fpm, 2) => 1,
            (Source::Fpm, 3 | 4 | 196) => 2,
            (Source::Fpm, 186) => 20,
            (Source::Fpm, 192) => 90,
            (Source::Fpm, 188) => 110,
            (Source::Fpm, 187) => 115,
            (Source::Fpm, 189 | 190) => 120,
            (Source::Fpm, _) => 150,
            // The kernel compares its routes by metric alone.
            (Source::Kernel, _) => 250,
        }
    }

    /// Whether it may have several routes to one prefix, distinguished by metric; others have one.
    pub(super) fn has_metrics(self) -> bool {
        self == Source::Kernel
    }
}

/// One route as a source announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<A> {
    /// Where to.
    pub prefix: Prefix<A>,
    /// The source of the update.
    pub source: Source,
    /// By which protocol the source has it (`rtm_protocol`).
    pub protocol: u8,
    /// The source's own preference, the less the better.
    pub metric: u32,
    /// Which way.
    pub next: NextHop,
}

/// A receiver of the best routes, such as a lookup table.
pub trait FibSink<A> {
    /// Makes `next` the next hop of `prefix`, at once for all readers.
    ///
    /// # Errors
    /// [`Full`], and nothing has changed.
    fn insert(&mut self, prefix: Prefix<A>, next: NextHop) -> Result<(), Full>;

    /// Withdraws `prefix`.
    ///
    /// # Errors
    /// [`Full`], and nothing has changed.
    fn remove(&mut self, prefix: Prefix<A>) -> Result<(), Full>;
}

impl<A: Address, F: Fib<A>> FibSink<A> for F {
    fn insert(&mut self, prefix: Prefix<A>, next: NextHop) -> Result<(), Full> {
        Fib::insert(self, prefix, next).map(drop)
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Result<(), Full> {
        Fib::remove(self, prefix).map(drop)
    }
}

/// Why a route was refused; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibFault {
    /// There are as many routes as were allowed.
    #[error("the route limit is reached; raise it")]
    Limit,
    /// The forwarding table has no room.
    #[error("the forwarding table is full; make it with more room")]
    Fib,
}

impl From<Full> for RibFault {
    fn from(_: Full) -> RibFault {
        RibFault::Fib
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RibCounters {
    /// Routes that were new.
    pub added: u64,
    /// Routes that were announced again with changes.
    pub changed: u64,
    /// Routes that were announced again unchanged.
    pub repeated: u64,
    /// Routes that were withdrawn.
    pub withdrawn: u64,
    /// Routes that a source did not repeat.
    pub swept: u64,
    /// Withdrawals of routes that were not there.
    pub unknown: u64,
    /// Routes, or withdrawals, for which there was no room, whatever was full.
    pub refused: u64,
    /// Of those, the ones refused because there were as many routes as were allowed.
    pub refused_by_limit: u64,
    /// Inserts and removals in the forwarding table.
    pub fib_updates: u64,
}

impl RibCounters {
    /// How often a route was added, changed or taken out, in whatever way.
    pub fn changes(&self) -> u64 {
        self.added + self.changed + self.withdrawn + self.swept
    }
}
