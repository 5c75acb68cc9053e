//! The latest next hops, handed from the thread that owns the routing table to those that forward.
//!
//! A forwarding thread looks at a number at the beginning of each batch, which costs one load of a line
//! that is hardly ever written; only when it has changed does it take the lock, for as long as it takes
//! to increment a reference count.
//!
//! A new number is published before any route leads to it, and then the owner waits until every reader
//! has taken it ([`LatestHops::wait`]): a batch that began with the old snapshot must be over before it
//! could meet the number. A reader about to sleep says so ([`HopsReader::rest`]) and is not waited for.
//! The two sides meet as in Dekker's algorithm: a reader marks itself awake and then looks at the
//! version; the owner changes the version and then looks which readers are awake. All four are
//! sequentially consistent, so at least one of them sees the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nilometer_router::Snapshot;

/// Between two looks at the readers.
const LOOK: Duration = Duration::from_micros(50);

/// The version of a reader that has no batch.
const RESTING: u64 = u64::MAX;

/// The place where the owner publishes each new snapshot.
#[derive(Debug, Default)]
pub struct LatestHops {
    version: AtomicU64,
    /// How often routes were changed.
    routes: AtomicU64,
    place: Mutex<Place>,
}

#[derive(Debug, Default)]
struct Place {
    snapshot: Arc<Snapshot>,
    /// The version that each reader has taken.
    readers: Vec<Weak<AtomicU64>>,
}

impl LatestHops {
    /// Readers take this one from their next batch on.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        let version = snapshot.version();
        self.place().snapshot = snapshot;
        self.version.store(version, Ordering::SeqCst);
    }

    /// Routes lead elsewhere now.
    pub fn change_routes(&self) {
        self.routes.fetch_add(1, Ordering::Release);
    }

    /// Waits until every reader has a snapshot of `version` or later or rests, but no longer than
    /// `most`; returns whether all have.
    pub fn wait(&self, version: u64, most: Duration) -> bool {
        let begun = Instant::now();
        loop {
            if self.have_all(version) {
                return true;
            }
            if begun.elapsed() >= most {
                return false;
            }
            thread::sleep(LOOK);
        }
    }

    fn have_all(&self, version: u64) -> bool {
        let readers = &mut self.place().readers;
        readers.retain(|reader| reader.strong_count() > 0);
        let mut living = readers.iter().filter_map(Weak::upgrade);
        living.all(|taken| taken.load(Ordering::SeqCst) >= version)
    }

    /// One more reader.
    pub fn reader(self: &Arc<Self>) -> HopsReader {
        let mut place = self.place();
        let snapshot = Arc::clone(&place.snapshot);
        let taken = Arc::new(AtomicU64::new(RESTING));
        place.readers.push(Arc::downgrade(&taken));
        HopsReader { latest: Arc::clone(self), snapshot, taken, is_resting: true, routes: 0 }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader that forwards by the latest next hops; it rests at first.
#[derive(Debug)]
pub struct HopsReader {
    latest: Arc<LatestHops>,
    snapshot: Arc<Snapshot>,
    taken: Arc<AtomicU64>,
    is_resting: bool,
    /// The count of route changes at the last call.
    routes: u64,
}

impl HopsReader {
    /// The next hops that were taken last.
    pub fn current(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Before each batch: other next hops, if there are any since the last call. The previous snapshot
    /// must not be used from now on.
    #[inline]
    pub fn newer(&mut self) -> Option<&Arc<Snapshot>> {
        if self.is_resting {
            self.is_resting = false;
            self.taken.store(self.snapshot.version(), Ordering::SeqCst);
        }
        if self.latest.version.load(Ordering::SeqCst) == self.snapshot.version() {
            return None;
        }
        self.snapshot = Arc::clone(&self.latest.place().snapshot);
        self.taken.store(self.snapshot.version(), Ordering::SeqCst);
        Some(&self.snapshot)
    }

    /// Whether routes were changed since the last call.
    #[inline]
    pub fn have_routes_changed(&mut self) -> bool {
        let routes = self.latest.routes.load(Ordering::Acquire);
        std::mem::replace(&mut self.routes, routes) != routes
    }

    /// Before sleep: nothing is looked up until [`HopsReader::newer`] is called again.
    pub fn rest(&mut self) {
        self.is_resting = true;
        self.taken.store(RESTING, Ordering::SeqCst);
    }
}
