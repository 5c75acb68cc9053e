//! The RIB thread: it owns the routes of all sources, and serves the forwarding tables.
//!
//! Sources of routes (zebra by the forwarding plane manager's protocol, the kernel by netlink) send
//! their updates into one bounded channel; the RIB thread applies them. The operator's changes (static
//! routes, addresses of ports) are applied in the caller's thread and are complete when the call
//! returns. Forwarding threads hold readers of the forwarding tables, which see each change at once and
//! never wait, and a [`HopsReader`], which they check between batches.
//!
//! Each batch of updates is applied in three steps, so that no packet meets a route whose next hop is
//! unknown: new next hops are numbered, the snapshot with them is published and taken by every reader,
//! and only then do routes lead to them; next hops that no route uses any more are released last. The
//! tables are locked for at most [`PIECE`] updates, and callers come before the channel: a failed port
//! is out of all groups as soon as the current piece is done. Only the sweep after a replay goes over
//! the whole table at once.

mod serving;
mod status;
mod view;
mod walk;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nilometer_router::{
    AnyPrefix, Engine, Hop, Lookups, Member, Point, Rib, RouteBatch, RouteLimits, RouteTable,
    RouteTarget, RouteUpdate, ServingFib, Source,
};

use super::latest::{HopsReader, LatestHops};
use super::recording::{Recorded, TableRecorder};
use super::route_feed::STOP_POLL_INTERVAL;
use super::worker::Worker;
use nilometer_linux::clock::thread_time;

use serving::Serving;
pub use status::{RibStatus, RouteCount};
pub use view::RouteView;
pub use walk::{Listing, Selection};

/// Updates for which the tables are locked at once.
pub const PIECE: usize = 256;
/// Batches of news that may wait; a source of more blocks.
const NEWS_MAX: usize = 64;
/// No batch of packets lasts longer, even where its thread must wait for a processor: with eighteen
/// threads on two, some waited for more than 20 ms.
const BATCH_MOST: Duration = Duration::from_millis(250);
/// `rtm_protocol` of networks at ports, and of what the operator entered.
const PROTOCOL_KERNEL: u8 = 2;
const PROTOCOL_STATIC: u8 = 4;

type Table = RouteTable<Serving<u32>, Serving<u128>>;

/// The lookup engines of the two families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engines {
    /// IPv4.
    pub v4: Engine,
    /// IPv6.
    pub v6: Engine,
}

impl Default for Engines {
    /// Tree Bitmaps, whose updates are cheap.
    fn default() -> Engines {
        Engines { v4: Engine::TreeBitmap, v6: Engine::TreeBitmap }
    }
}

/// The readers of both tables.
pub struct Readers {
    /// Of IPv4.
    pub v4: Box<dyn Lookups<u32>>,
    /// Of IPv6.
    pub v6: Box<dyn Lookups<u128>>,
}

/// A route that the operator entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticRoute {
    /// Where to.
    pub prefix: AnyPrefix,
    /// Its ways by ports of ours, or its fate; 1 to 256.
    pub members: Vec<Member>,
}

/// Where the routes of one family are, and the table that serves them.
type Parts<A> = (fn(&Table) -> &Rib<A>, fn(&mut Table) -> &mut Serving<A>);

/// The operator's last routes of one source, to find what has changed.
type RoutesOfSource = BTreeMap<AnyPrefix, RouteTarget>;

/// The state that the thread and its callers share.
struct Shared {
    table: Mutex<Table>,
    /// Callers that wait for the table; news wait for them.
    callers: AtomicUsize,
    /// Whose turn it is to apply updates.
    turn: Mutex<()>,
    latest: Arc<LatestHops>,
    /// Readers have been waited for up to this version.
    awaited: AtomicU64,
    late_readers: AtomicU64,
    cpu_ns: AtomicU64,
    /// When a route changed last, nanoseconds since 1970.
    changed_at_ns: AtomicU64,
    over: Arc<AtomicBool>,
}

/// The RIB thread and what it owns; dropped, it applies no more updates. Readers continue with what
/// they have.
pub struct RibThread {
    // First, so that it is waited for before anything else goes.
    _worker: Worker,
    limits: RouteLimits,
    shared: Arc<Shared>,
    news: SyncSender<RouteBatch>,
    by_source: Mutex<[RoutesOfSource; 2]>,
    addresses: Mutex<BTreeMap<u16, Vec<(IpAddr, u8)>>>,
    exchanging: Mutex<()>,
}

impl RibThread {
    /// Begins without routes. There are as many next hops as the engines can name, at most.
    ///
    /// # Errors
    /// When there can be no thread, or an engine has no such table.
    pub fn start(limits: RouteLimits, engines: Engines) -> Result<RibThread> {
        RibThread::start_recorded(limits, engines, None)
    }

    /// As [`RibThread::start`]; `recorder` makes each change of a table.
    ///
    /// # Errors
    /// As there.
    pub fn start_recorded(
        limits: RouteLimits,
        engines: Engines,
        recorder: Option<TableRecorder>,
    ) -> Result<RibThread> {
        let fib_v4 = Serving::new(engines.v4.table(limits.routes_v4)?, recorder.clone());
        let fib_v6 = Serving::new(engines.v6.table(limits.routes_v6)?, recorder);
        let named = engines.v4.next_hops_max().min(engines.v6.next_hops_max());
        let within = RouteLimits { next_hops: limits.next_hops.min(named), ..limits };
        let table = RouteTable::new(within, fib_v4, fib_v6);
        let shared = Arc::new(Shared {
            table: Mutex::new(table),
            callers: AtomicUsize::new(0),
            turn: Mutex::new(()),
            latest: Arc::default(),
            awaited: AtomicU64::new(0),
            late_readers: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            changed_at_ns: AtomicU64::new(0),
            over: Arc::default(),
        });
        let (news, by_source) = sync_channel(NEWS_MAX);
        let (its, over) = (Arc::clone(&shared), Arc::clone(&shared.over));
        let worker = Worker::start("routes", over, move || its.run(&by_source))?;
        let (by_source, addresses, exchanging) = Default::default();
        Ok(RibThread { _worker: worker, limits, shared, news, by_source, addresses, exchanging })
    }

    /// The channel for sources' updates.
    pub fn news(&self) -> SyncSender<RouteBatch> {
        self.news.clone()
    }

    /// Readers of both tables, for a forwarding thread.
    ///
    /// # Errors
    /// When a table has as many as it may have.
    pub fn lookups(&self) -> Result<Readers> {
        let table = self.shared.called();
        let readers = table.fib_v4().reader().zip(table.fib_v6().reader());
        let readers = readers.map(|(v4, v6)| Readers { v4, v6 });
        readers.context("the forwarding table has as many readers as it may have")
    }

    /// The next hops, for a forwarding thread: it must check them before each batch, and rest them
    /// before it sleeps.
    pub fn hops(&self) -> HopsReader {
        self.shared.latest.reader()
    }

    /// The kernel's link of this index is a port of ours. Routes that name the link follow when they
    /// are next announced, so ports are best set before sources start.
    pub fn set_port(&self, link: u32, port: u16) {
        self.shared.set_port(link, port);
    }

    /// What the operator entered, in place of what was entered before. Returns how many of the routes
    /// found no room; a caller that cannot accept that must restore the former ones.
    pub fn set_static(&self, routes: &[StaticRoute]) -> u64 {
        let wanted = routes.iter().map(|route| {
            let members = route.members.clone();
            (route.prefix, RouteTarget::Members(members))
        });
        self.replace(Source::Static, wanted.collect())
    }

    /// The addresses of a port, each with the length of its network, in place of those that it had:
    /// its networks are on the link, the addresses and IPv4 networks' broadcast are the router's own.
    /// Returns how many of the routes found no room.
    pub fn set_addresses(&self, port: u16, addresses: &[(IpAddr, u8)]) -> u64 {
        let mut all = lock(&self.addresses);
        all.insert(port, addresses.to_vec());
        let mut wanted = RoutesOfSource::new();
        for (&port, addresses) in all.iter() {
            let on_link = RouteTarget::Fate(Hop::Via { port, gateway: None });
            for &(address, length) in addresses {
                let network = AnyPrefix::new(address, u32::from(length));
                wanted.extend(network.map(|network| (network, on_link.clone())));
            }
        }
        // After the networks: an address of 32 bits is the router's own.
        for &(address, length) in all.values().flatten() {
            let own = own(address, length).into_iter();
            wanted.extend(own.map(|own| (own, RouteTarget::Fate(Hop::Local))));
        }
        self.replace(Source::Connected, wanted)
    }

    /// Takes a port or a neighbour down: packets take other ways at once, where there are any.
    /// Returns how many next hops that touched.
    pub fn fail(&self, point: Point) -> usize {
        let mut table = self.shared.called();
        let touched = table.hops_mut().fail(point);
        self.shared.publish(&mut table);
        touched
    }

    /// Takes a port or a neighbour up again. Returns how many next hops that touched.
    pub fn restore(&self, point: Point) -> usize {
        let mut table = self.shared.called();
        let touched = table.hops_mut().restore(point);
        self.shared.publish(&mut table);
        touched
    }

    /// Replaces the engine for IPv4. `install` gets a reader of the new table and returns when all
    /// forwarding threads use it; until then both tables are kept.
    ///
    /// # Errors
    /// When the engine has no room, or cannot hold the number of some next hop in use; the old one
    /// stays then.
    pub fn exchange_v4(
        &self,
        engine: Engine,
        install: impl FnOnce(Box<dyn Lookups<u32>>),
    ) -> Result<()> {
        let fib = engine.table(self.limits.routes_v4)?;
        self.exchange((Table::rib_v4, |table| table.fibs_mut().0), fib, install)
    }

    /// As [`RibThread::exchange_v4`], of IPv6.
    ///
    /// # Errors
    /// As there.
    pub fn exchange_v6(
        &self,
        engine: Engine,
        install: impl FnOnce(Box<dyn Lookups<u128>>),
    ) -> Result<()> {
        let fib = engine.table(self.limits.routes_v6)?;
        self.exchange((Table::rib_v6, |table| table.fibs_mut().1), fib, install)
    }

    fn exchange<A: Recorded>(
        &self,
        (rib, serving): Parts<A>,
        mut fib: Box<dyn ServingFib<A>>,
        install: impl FnOnce(Box<dyn Lookups<A>>),
    ) -> Result<()> {
        let _one_at_a_time = lock(&self.exchanging);
        let routes: Vec<_> = {
            let mut table = self.shared.called();
            serving(&mut table).begin_exchange();
            rib(&table).best().map(|route| (route.prefix, route.next)).collect()
        };
        let loaded = fib.load(&mut routes.into_iter());
        let reader = fib.reader().filter(|_| loaded.is_ok());
        let mut table = self.shared.called();
        let reader = reader.filter(|_| serving(&mut table).exchange(fib).is_ok());
        serving(&mut table).end_exchange();
        drop(table);
        install(reader.context("the engine has no room for the routes, or for their next hops")?);
        serving(&mut self.shared.called()).let_former_go();
        Ok(())
    }

    /// All routes to the longest prefix that contains an address, the best first; none where there is
    /// no route.
    pub fn look_up(&self, address: IpAddr) -> Vec<RouteView> {
        view::look_up(&self.shared.called(), address)
    }

    /// All routes to exactly this prefix, the best first.
    pub fn routes_to(&self, prefix: AnyPrefix) -> Vec<RouteView> {
        view::exact(&self.shared.called(), prefix)
    }

    /// The routes in use among those selected, by prefix. It goes over all routes in pieces, between
    /// which changes are applied.
    pub fn list(&self, selection: Selection) -> Listing {
        walk::list(selection, || self.shared.called())
    }

    /// Applies the difference between `wanted` and the earlier routes of a source.
    fn replace(&self, source: Source, wanted: RoutesOfSource) -> u64 {
        let mut by_source = lock(&self.by_source);
        let (place, protocol) = match source {
            Source::Static => (&mut by_source[0], PROTOCOL_STATIC),
            _ => (&mut by_source[1], PROTOCOL_KERNEL),
        };
        let gone = place.keys().filter(|prefix| !wanted.contains_key(*prefix));
        let gone = gone.map(|prefix| RouteUpdate::Withdraw { prefix: *prefix, metric: 0 });
        let new = wanted.iter().filter(|(prefix, way)| place.get(*prefix) != Some(*way));
        let new = new.map(|(prefix, way)| RouteUpdate::Announce {
            prefix: *prefix,
            protocol,
            metric: 0,
            way: way.clone(),
        });
        // New routes first, so that a shorter prefix takes over before a longer one is removed.
        let updates: Vec<RouteUpdate> = new.chain(gone).collect();
        *place = wanted;
        self.shared.apply(source, &updates)
    }
}

impl Shared {
    fn run(&self, news: &Receiver<RouteBatch>) {
        while !self.over.load(Ordering::Relaxed) {
            match news.recv_timeout(STOP_POLL_INTERVAL) {
                Ok(batch) => _ = self.apply(batch.source, &batch.updates),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.cpu_ns.store(thread_time().as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Returns how many updates found no room.
    fn apply(&self, source: Source, updates: &[RouteUpdate]) -> u64 {
        let _turn = lock(&self.turn);
        let mut refused = 0;
        for piece in updates.chunks(PIECE) {
            while self.callers.load(Ordering::Relaxed) > 0 {
                thread::sleep(Duration::from_micros(20));
            }
            let (prepared, youngest) = {
                let mut table = lock(&self.table);
                let before = table.counters().next_hops_refused;
                let prepared = table.prepare(source, piece);
                refused += table.counters().next_hops_refused - before;
                self.publish(&mut table);
                (prepared, table.hops().youngest())
            };
            if self.awaited.fetch_max(youngest, Ordering::Relaxed) < youngest
                && !self.latest.wait(youngest, BATCH_MOST)
            {
                self.late_readers.fetch_add(1, Ordering::Relaxed);
            }
            let mut table = lock(&self.table);
            let before = (table.counters().routes_refused, status::changes(&table));
            table.commit(prepared);
            self.latest.change_routes();
            refused += table.counters().routes_refused - before.0;
            if status::changes(&table) > before.1 {
                self.changed_at_ns.store(status::unix_ns(), Ordering::Relaxed);
            }
        }
        refused
    }

    fn set_port(&self, link: u32, port: u16) {
        let mut table = self.called();
        table.set_port(link, port);
        self.publish(&mut table);
    }

    /// The table for a caller, before news.
    fn called(&self) -> MutexGuard<'_, Table> {
        self.callers.fetch_add(1, Ordering::Relaxed);
        let table = lock(&self.table);
        self.callers.fetch_sub(1, Ordering::Relaxed);
        table
    }

    fn publish(&self, table: &mut Table) {
        self.latest.publish(table.hops_mut().snapshot());
        self.latest.change_routes();
    }
}

/// The router's own addresses of one that it has: itself, and its IPv4 network's broadcast (RFC 1812,
/// 4.2.3.1), where the network has room for one (RFC 3021).
fn own(address: IpAddr, length: u8) -> Vec<AnyPrefix> {
    let mut own: Vec<AnyPrefix> = Vec::new();
    match address {
        IpAddr::V4(address) => {
            own.extend(AnyPrefix::new(address.into(), 32));
            if length < 31 {
                let broadcast = u32::from(address) | u32::MAX >> length;
                own.extend(AnyPrefix::new(Ipv4Addr::from(broadcast).into(), 32));
            }
        }
        IpAddr::V6(address) => own.extend(AnyPrefix::new(address.into(), 128)),
    }
    own
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
