//! The state of the RIB thread, in numbers.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nilometer_router::rib::RibCounters;
use nilometer_router::{RouteTableCounters, Source};

use super::{RibThread, Table};

/// How many routes a source has announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteCount {
    /// The source.
    pub source: Source,
    /// Of IPv4.
    pub v4: usize,
    /// Of IPv6.
    pub v6: usize,
    /// Whether it is telling everything again.
    pub is_replaying: bool,
}

/// How the RIB thread is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RibStatus {
    /// Prefixes of IPv4 that have a route.
    pub prefixes_v4: usize,
    /// Prefixes of IPv6 that have a route.
    pub prefixes_v6: usize,
    /// Bytes that lookups of IPv4 may read.
    pub fib_v4_bytes: usize,
    /// Bytes that lookups of IPv6 may read.
    pub fib_v6_bytes: usize,
    /// Bytes of all IPv4 routes in the RIB.
    pub rib_v4_bytes: usize,
    /// Bytes of all IPv6 routes in the RIB.
    pub rib_v6_bytes: usize,
    /// Next hops in use.
    pub next_hops: usize,
    /// What happened to routes of IPv4.
    pub routes_v4: RibCounters,
    /// What happened to routes of IPv6.
    pub routes_v6: RibCounters,
    /// Updates that could not be applied as they were given.
    pub table: RouteTableCounters,
    /// Times that a reader did not take new next hops in time: it slept without notice, or had no
    /// processor. Packets of its batch may have met an unknown number.
    pub late_readers: u64,
    /// CPU time of the thread that applies news.
    pub cpu: Duration,
    /// When a route was added, changed or withdrawn last, since 1970; zero where none ever was.
    pub changed_at: Duration,
}

/// How often a route was added, changed or taken out.
pub(super) fn changes(table: &Table) -> u64 {
    table.rib_v4().counters().changes() + table.rib_v6().counters().changes()
}

/// Nanoseconds since 1970, by the machine's clock.
pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl RibThread {
    /// How many routes each source has announced.
    pub fn counts(&self) -> Vec<RouteCount> {
        let table = self.shared.called();
        let count = |source| RouteCount {
            source,
            v4: table.rib_v4().routes(source),
            v6: table.rib_v6().routes(source),
            is_replaying: table.rib_v4().is_resyncing(source),
        };
        Source::ALL.map(count).into()
    }

    /// How it is.
    pub fn status(&self) -> RibStatus {
        let table = self.shared.called();
        RibStatus {
            prefixes_v4: table.rib_v4().prefixes(),
            prefixes_v6: table.rib_v6().prefixes(),
            fib_v4_bytes: table.fib_v4().bytes(),
            fib_v6_bytes: table.fib_v6().bytes(),
            rib_v4_bytes: table.rib_v4().bytes(),
            rib_v6_bytes: table.rib_v6().bytes(),
            next_hops: table.hops().len(),
            routes_v4: table.rib_v4().counters(),
            routes_v6: table.rib_v6().counters(),
            table: table.counters(),
            late_readers: self.shared.late_readers.load(Ordering::Relaxed),
            cpu: Duration::from_nanos(self.shared.cpu_ns.load(Ordering::Relaxed)),
            changed_at: Duration::from_nanos(self.shared.changed_at_ns.load(Ordering::Relaxed)),
        }
    }
}
