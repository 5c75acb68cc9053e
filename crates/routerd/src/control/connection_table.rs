//! The places of a door's connections: which connection gets one, and which it displaces.
//!
//! # Why the owner is served
//!
//! Any host that can reach a TCP address can open connections to it, as many and as fast as it likes. The
//! owner's connection looks like any other until the token has been read. So no connection waits outside
//! for a place: it is always accepted, and where there is no room another is displaced.
//!
//! Connections that have proven nothing have places of their own, [`UNPROVEN_MAX`] in all and
//! [`UNPROVEN_OF_ONE_MAX`] of one address (of IPv6, of one /64), so that strangers never take those of
//! the owner's other connections. The one displaced is the oldest of the newcomer's address where that
//! address is at its limit, and otherwise the oldest of the address with the most connections. A genuine
//! client sends its header right after the handshake. [`super::serve`] accepts [`TAKEN_IN_AT_ONCE`] at
//! most before it reads what has arrived, so that an owner whose header is there is among the proven
//! after one such turn. In that turn even strangers at the same address could have displaced only
//! [`TAKEN_IN_AT_ONCE`] of [`UNPROVEN_OF_ONE_MAX`], all of them older. The connections that they hold
//! open, half-sent or silent, are older and are displaced first. Those that are not displaced end
//! [`PROVEN_WITHIN`] after they were accepted, and each refusal ends its connection, so that no further
//! request follows on it.
//!
//! The proven have [`PROVEN_MAX`] places; of them the one displaced is that which has not moved a byte
//! for the longest: it is idle between two requests, or its peer reads nothing. A connection whose
//! request is being answered is not idle, since the server lets it wait, and keeps its place: if the
//! oldest of those were displaced, each newcomer would take the place of the one to be answered next, and
//! no request would be answered. Where all [`PROVEN_MAX`] are being answered a newcomer must retry. Where
//! there is no token any user of the machine counts as proven, and nothing more is promised there; the
//! socket has a table, a thread and places of its own.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use nilometer_linux::prefix::Prefix;

/// Connections open at once that have proven nothing.
pub const UNPROVEN_MAX: usize = 64;
/// Those of them that one address may have.
pub const UNPROVEN_OF_ONE_MAX: usize = 32;
/// Connections open at once whose requests are answered.
pub const PROVEN_MAX: usize = 64;
/// How long a connection may prove nothing.
pub const PROVEN_WITHIN: Duration = Duration::from_secs(2);
/// Connections that are accepted before the others are served again.
pub const TAKEN_IN_AT_ONCE: usize = 8;

nilometer_wire::named! {
    /// How a connection ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Ended {
        /// One side closed it, and nothing was under way.
        Done = "done",
        /// What came was no HTTP, or broke off.
        Broken = "broken",
        /// Its request was refused for its token, its host, or want of a place.
        Refused = "refused",
        /// It had proven nothing in time.
        Unproven = "unproven",
        /// Another got its place.
        Displaced = "displaced",
        /// Its peer took no bytes for too long.
        Stalled = "stalled",
        /// It had lasted as long as any may.
        Expired = "expired",
    }
}

impl Ended {
    /// Whether we gave it up, so that nothing is left to be sent.
    fn is_given_up(self) -> bool {
        matches!(self, Ended::Unproven | Ended::Displaced | Ended::Stalled | Ended::Expired)
    }
}

/// What a door has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionTableCounts {
    /// Connections that came.
    pub came: u64,
    /// Those that are open.
    pub open: u64,
    /// The others, by [`Ended::ALL`].
    pub ended: [u64; Ended::ALL.len()],
}

/// The connections of a door.
#[derive(Debug, Default)]
pub struct ConnectionTable {
    inner: Mutex<Inner>,
    /// Counts the bytes that move, piece by piece: which of two connections moved last.
    moves: AtomicU64,
}

/// The connection tables of a router's doors.
#[derive(Debug, Default)]
pub struct ConnectionTables {
    /// At the owner's socket.
    pub unix: Arc<ConnectionTable>,
    /// At the TCP address.
    pub tcp: Arc<ConnectionTable>,
}

#[derive(Debug, Default)]
struct Inner {
    unproven: Vec<Held>,
    proven: Vec<Held>,
    came: u64,
    ended: [u64; Ended::ALL.len()],
}

/// A place that is taken.
#[derive(Debug)]
struct Held {
    number: u64,
    from: Option<Prefix>,
    life: Arc<Life>,
}

/// What a connection's parts share: its reader and writer, its answering thread, and its counter.
#[derive(Debug, Default)]
pub struct Life {
    /// One more than the place in [`Ended::ALL`]; 0 while it lasts.
    ended: AtomicU8,
    is_proven: AtomicBool,
    /// Whether a request is being answered.
    is_busy: AtomicBool,
    moved: AtomicU64,
    /// Notified when it is displaced.
    pub displaced: Notify,
}

impl Life {
    /// Records how the connection ends; the first call counts.
    pub fn end(&self, how: Ended) {
        let word = how as u8 + 1;
        let _ = self.ended.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether it has proven itself.
    pub fn is_proven(&self) -> bool {
        self.is_proven.load(Ordering::Relaxed)
    }

    /// How it ended; [`Ended::Done`] where nothing was set.
    fn ended(&self) -> Ended {
        let word = usize::from(self.ended.load(Ordering::Relaxed));
        word.checked_sub(1).map_or(Ended::Done, |place| Ended::ALL[place])
    }

    /// Whether its last bytes need not be delivered.
    pub fn is_given_up(&self) -> bool {
        self.ended().is_given_up()
    }
}

/// A connection's place, which it has until this value goes.
#[derive(Debug)]
pub struct Place {
    connection_table: Arc<ConnectionTable>,
    number: u64,
    /// The state that its parts share.
    pub life: Arc<Life>,
}

impl ConnectionTable {
    /// A place for a newcomer, by its address where it has one; one that comes by the owner's socket has
    /// none, and nothing to prove. Another loses its place where there is no room.
    pub fn enter(self: &Arc<Self>, from: Option<IpAddr>) -> Place {
        let life = Arc::new(Life::default());
        let mut inner = self.lock();
        let number = inner.came;
        inner.came += 1;
        let held = Held { number, from: from.map(Prefix::of_host), life: Arc::clone(&life) };
        self.moved(&life);
        match held.from {
            None => {
                inner.take_in(held);
            }
            Some(from) => {
                if let Some(victim) = inner.unproven_to_go(from) {
                    inner.unproven.remove(victim).lose();
                }
                inner.unproven.push(held);
            }
        }
        drop(inner);
        Place { connection_table: Arc::clone(self), number, life }
    }

    /// Notes that bytes of a connection have moved.
    pub fn moved(&self, life: &Life) {
        life.moved.store(self.moves.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// What became of all that came.
    pub fn counts(&self) -> ConnectionTableCounts {
        let inner = self.lock();
        let gone: u64 = inner.ended.iter().sum();
        ConnectionTableCounts { came: inner.came, open: inner.came - gone, ended: inner.ended }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Which of the unproven connections is displaced in favour of one from `from`, if any. They are in
    /// the order of arrival.
    fn unproven_to_go(&self, from: Prefix) -> Option<usize> {
        let all = &self.unproven;
        let of = |address: Option<Prefix>| all.iter().filter(|held| held.from == address).count();
        let first = |address| all.iter().position(|held| held.from == address);
        if of(Some(from)) >= UNPROVEN_OF_ONE_MAX {
            return first(Some(from));
        }
        if all.len() < UNPROVEN_MAX {
            return None;
        }
        // (`max_by_key` returns the last of equals; the oldest is needed.)
        let most = all.iter().rev().map(|held| held.from).max_by_key(|&address| of(address))?;
        first(most)
    }

    /// Enters one among the proven, if one of them can go; it loses its place where none can.
    fn take_in(&mut self, held: Held) -> bool {
        if self.proven.len() >= PROVEN_MAX {
            let is_idle = |place: &usize| !self.proven[*place].life.is_busy.load(Ordering::Relaxed);
            let since = |place: &usize| self.proven[*place].life.moved.load(Ordering::Relaxed);
            let idle = (0..self.proven.len()).filter(is_idle);
            let Some(place) = idle.min_by_key(since) else {
                return false;
            };
            self.proven.swap_remove(place).lose();
        }
        held.life.is_proven.store(true, Ordering::Relaxed);
        self.proven.push(held);
        true
    }
}

impl Held {
    fn lose(self) {
        self.life.end(Ended::Displaced);
        self.life.displaced.notify_one();
    }
}

impl Place {
    /// Has it among the proven from now on; whether it has a place there.
    pub fn prove(&self) -> bool {
        if self.life.is_proven() {
            return true;
        }
        let mut inner = self.connection_table.lock();
        match inner.unproven.iter().position(|held| held.number == self.number) {
            Some(place) => {
                let held = inner.unproven.remove(place);
                inner.take_in(held)
            }
            None => false,
        }
    }

    /// Marks it as busy with a request until the returned value is dropped.
    pub fn busy(&self) -> Busy<'_> {
        self.life.is_busy.store(true, Ordering::Relaxed);
        Busy(&self.life)
    }

    /// Notes that bytes have moved.
    pub fn moved(&self) {
        self.connection_table.moved(&self.life);
    }
}

/// A request that is being answered.
pub struct Busy<'a>(&'a Life);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.connection_table.lock();
        inner.unproven.retain(|held| held.number != self.number);
        inner.proven.retain(|held| held.number != self.number);
        inner.ended[self.life.ended() as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn address(last: u8) -> Option<IpAddr> {
        Some([198, 51, 100, last].into())
    }

    /// Whether a place is still had.
    fn stays(place: &Place) -> bool {
        place.life.ended.load(Ordering::Relaxed) == 0
    }

    #[test]
    fn one_address_displaces_its_own_and_leaves_others_alone() {
        let connection_table = Arc::new(ConnectionTable::default());
        let owner = connection_table.enter(address(1));
        let strangers: Vec<Place> =
            (0..1_000).map(|_| connection_table.enter(address(2))).collect();
        assert!(stays(&owner));
        let left = strangers.iter().filter(|place| stays(place)).count();
        assert_eq!(left, UNPROVEN_OF_ONE_MAX);
        assert!(strangers.iter().rev().take(left).all(stays), "the newest stay");
        // From many addresses: the one with the most connections gives way, among equals the oldest.
        let many: Vec<Place> = (3..103).map(|last| connection_table.enter(address(last))).collect();
        assert_eq!(strangers.iter().filter(|place| stays(place)).count(), 0);
        assert_eq!(many.iter().filter(|place| stays(place)).count(), UNPROVEN_MAX);
        assert!(!stays(&owner), "all have one, and the owner's is the oldest");
        let counts = connection_table.counts();
        assert_eq!((counts.came, counts.open), (1_101, 1_101));
        drop((owner, strangers, many));
        let counts = connection_table.counts();
        assert_eq!((counts.open, counts.ended[Ended::Displaced as usize]), (0, 1_101 - 64));
    }

    #[test]
    fn strangers_never_have_the_places_of_the_proven() {
        let connection_table = Arc::new(ConnectionTable::default());
        let owners: Vec<Place> =
            (0..PROVEN_MAX).map(|_| connection_table.enter(address(1))).collect();
        let half = owners.iter().filter(|owner| owner.prove()).count();
        // (Half of them had lost their places before they could.)
        let proven: Vec<&Place> = owners.iter().filter(|place| place.life.is_proven()).collect();
        assert_eq!((proven.len(), half), (UNPROVEN_OF_ONE_MAX, UNPROVEN_OF_ONE_MAX));
        let strangers: Vec<Place> = (0..500).map(|_| connection_table.enter(address(1))).collect();
        assert!(proven.iter().all(|place| stays(place)));
        drop(strangers);
        assert!(connection_table.lock().unproven.is_empty());
    }

    #[test]
    fn of_the_proven_the_one_goes_that_moved_nothing_for_the_longest() {
        let connection_table = Arc::new(ConnectionTable::default());
        let all: Vec<Place> = (0..PROVEN_MAX).map(|_| connection_table.enter(None)).collect();
        let _busy = all[3].busy();
        all.iter().filter(|place| ![3, 7].contains(&place.number)).for_each(Place::moved);
        let gone = || all.iter().filter(|it| !stays(it)).map(|it| it.number).collect::<Vec<_>>();
        let _one = connection_table.enter(None);
        assert_eq!(gone(), [7]);
        // What we let wait is not idle.
        let _two = connection_table.enter(None);
        assert_eq!(gone(), [0, 7]);
    }

    #[test]
    fn a_connection_being_answered_keeps_its_place() {
        let connection_table = Arc::new(ConnectionTable::default());
        let all: Vec<Place> = (0..PROVEN_MAX).map(|_| connection_table.enter(None)).collect();
        let busy: Vec<Busy<'_>> = all.iter().map(Place::busy).collect();
        let late = connection_table.enter(address(1));
        assert!(!late.prove() && all.iter().all(stays));
        drop(busy);
        let next = connection_table.enter(address(1));
        assert!(next.prove() && next.prove());
        assert_eq!(all.iter().filter(|place| !stays(place)).count(), 1);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let connection_table = Arc::new(ConnectionTable::default());
        let enter = |last: u16| {
            let host = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, last);
            connection_table.enter(Some(host.into()))
        };
        let all: Vec<Place> = (0..100).map(enter).collect();
        assert_eq!(all.iter().filter(|place| stays(place)).count(), UNPROVEN_OF_ONE_MAX);
    }
}
