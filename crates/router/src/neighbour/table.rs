//! The neighbour table: the interface for forwarding, and the places of its entries.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

use super::chains::{Chain, Chains};
use super::index::Index;
use super::ledger::{Ledger, Reason};
use super::own::{Own, OwnError};
use super::settings::{Settings, SettingsError};
use super::waiting::{Queue, Room};
use super::{Family, LinkAddress, Mac, mac};

/// A place and its key, to be kept beside a next hop. It is void as soon as there is anything to do or
/// to know before the entry may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    place: u32,
    key: u32,
}

impl Handle {
    /// A handle that no entry ever has.
    pub const VOID: Handle = Handle { place: u32::MAX, key: 0 };
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Send to this link-layer address; the handle gives it again by [`Table::ready`].
    Resolved(Mac, Handle),
    /// Not known yet: give the packet to [`Table::hold`].
    Queue,
    /// Drop the packet.
    Refused(Reason),
}

/// The outcome of a held packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<A, B> {
    /// The packet.
    pub packet: B,
    /// Its next hop.
    pub address: A,
    /// The link-layer address to send it to, or why it must be dropped.
    pub fate: Result<Mac, Reason>,
}

/// A request to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicit<A> {
    /// The address to resolve.
    pub address: A,
    /// The one neighbour to solicit, or all.
    pub to: Option<Mac>,
}

/// The states of RFC 4861, 7.3.2, and two more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Being resolved; packets wait.
    Incomplete,
    /// Known to have answered lately.
    Reachable,
    /// Not known to have answered lately; not used since.
    Stale,
    /// Used since it went stale; a sign of life from above is waited for.
    Delay,
    /// Being asked, alone.
    Probe,
    /// Did not answer: refused for a while.
    Failed,
    /// Set by hand; no message changes it.
    Permanent,
}

/// How an entry that comes from outside begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// For good, until removed.
    Permanent,
    /// As if it had just answered.
    Reachable,
    /// As if it had just asked.
    Stale,
}

/// An entry, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<A> {
    /// The next hop.
    pub address: A,
    /// Its link-layer address, where one is known.
    pub mac: Option<Mac>,
    /// Its state.
    pub state: State,
    /// Whether it last identified itself as a router.
    pub is_router: bool,
}

/// What every packet needs of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hot {
    /// Twice the number of times the place was given away, and one if nothing is to do on use.
    pub(super) key: u32,
    pub(super) link_address: LinkAddress,
}

impl Hot {
    #[inline]
    pub(super) fn mac(&self) -> Mac {
        mac(self.link_address)
    }
}

/// The rest of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body<A> {
    pub(super) address: A,
    pub(super) state: State,
    pub(super) is_router: bool,
    /// Requests sent since the state began.
    pub(super) requests: u8,
    pub(super) deadline: Option<Time>,
    /// When the link-layer address last changed.
    pub(super) changed: Time,
    pub(super) waiting: Queue,
}

/// The neighbours of one port in one family. `B` is a handle to a packet.
#[derive(Debug)]
pub struct Table<A, B> {
    pub(super) settings: Settings,
    pub(super) own: Own<A>,
    pub(super) index: Index<A>,
    pub(super) hot: Vec<Hot>,
    pub(super) bodies: Vec<Body<A>>,
    pub(super) chains: Chains,
    pub(super) timers: BTreeSet<(Time, u32)>,
    pub(super) room: Room<B>,
    pub(super) outcomes: VecDeque<Outcome<A, B>>,
    pub(super) entries: usize,
    pub(super) unresolved: usize,
    pub(super) ledger: Ledger,
    /// The reachable time and the number of the two hours for which it was drawn.
    pub(super) reachable: (u64, Span),
}

impl<A: Family, B: Copy> Table<A, B> {
    /// An empty table of a port that is `own`.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn new(settings: Settings, own: Own<A>) -> Result<Table<A, B>, SettingsError> {
        settings.check()?;
        Ok(Table {
            settings,
            own,
            index: Index::new(settings.entries_max, settings.seed),
            hot: Vec::new(),
            bodies: Vec::new(),
            chains: Chains::new(),
            timers: BTreeSet::new(),
            room: Room::new(settings.packets_max),
            outcomes: VecDeque::new(),
            entries: 0,
            unresolved: 0,
            ledger: Ledger::default(),
            reachable: (u64::MAX, Span::ZERO),
        })
    }

    /// The link-layer address behind a handle, as long as it may be used without another thought.
    #[inline(always)]
    pub fn ready(&self, handle: Handle) -> Option<Mac> {
        self.ready_link_address(handle).map(mac)
    }

    /// The link-layer address that [`Table::ready`] gives, as a number.
    #[inline(always)]
    pub(crate) fn ready_link_address(&self, handle: Handle) -> Option<LinkAddress> {
        let hot = self.hot.get(handle.place as usize)?;
        (hot.key == handle.key).then_some(hot.link_address)
    }

    /// The link-layer address of a next hop. The use of a stale entry starts its delay (7.3.3);
    /// nothing else changes.
    #[inline]
    pub fn lookup(&mut self, now: Time, address: A) -> Lookup {
        match self.index.find(address) {
            Some(place) => {
                let hot = self.hot[place as usize];
                if hot.key & 1 == 1 {
                    Lookup::Resolved(hot.mac(), Handle { place, key: hot.key })
                } else {
                    self.lookup_unready(now, place)
                }
            }
            None => match self.own.check(address) {
                Ok(()) => Lookup::Queue,
                Err(reason) => Lookup::Refused(reason),
            },
        }
    }

    #[cold]
    fn lookup_unready(&mut self, now: Time, place: u32) -> Lookup {
        match self.bodies[place as usize].state {
            State::Incomplete => Lookup::Queue,
            State::Failed => Lookup::Refused(Reason::Unreachable),
            _ => {
                self.enter(now, place, State::Delay);
                let hot = self.hot[place as usize];
                Lookup::Resolved(hot.mac(), Handle { place, key: hot.key })
            }
        }
    }

    /// Keeps a packet until its next hop is resolved, and starts the resolution if none runs. It comes back
    /// by [`Table::poll_packet`].
    ///
    /// # Errors
    /// Why the packet must be dropped at once; it is counted as dropped.
    pub fn hold(&mut self, now: Time, address: A, packet: B) -> Result<(), Reason> {
        self.ledger.offered += 1;
        let held = self.seat(now, address, packet);
        if let Err(reason) = held {
            self.ledger.drop_one(reason);
        }
        held
    }

    fn seat(&mut self, now: Time, address: A, packet: B) -> Result<(), Reason> {
        if self.held() >= self.settings.packets_max {
            return Err(Reason::PacketsFull);
        }
        match self.lookup(now, address) {
            Lookup::Refused(reason) => return Err(reason),
            Lookup::Resolved(mac, _) => {
                self.outcomes.push_back(Outcome { packet, address, fate: Ok(mac) });
                return Ok(());
            }
            Lookup::Queue => {}
        }
        let place = match self.index.find(address) {
            Some(place) => place,
            None => self.begin(now, address)?,
        };
        let waiting = &mut self.bodies[place as usize].waiting;
        if waiting.len() == self.settings.waiting_max
            && let Some(packet) = self.room.pop(waiting)
        {
            let fate = Err(Reason::Overflow);
            self.outcomes.push_back(Outcome { packet, address, fate });
        }
        let is_in = self.room.push(waiting, packet);
        assert!(is_in, "the room has as many seats as packets may be held");
        Ok(())
    }

    /// The next packet whose fate is known. To be called after every other call until there is
    /// none.
    pub fn poll_packet(&mut self) -> Option<Outcome<A, B>> {
        let outcome = self.outcomes.pop_front()?;
        match outcome.fate {
            Ok(_) => self.ledger.released += 1,
            Err(reason) => self.ledger.drop_one(reason),
        }
        Some(outcome)
    }

    /// The next request to be sent.
    pub fn poll_solicit(&mut self) -> Option<Solicit<A>> {
        let place = self.chains.first(Chain::Asking)?;
        self.chains.put(place, None);
        self.ledger.requests += 1;
        let body = &self.bodies[place as usize];
        let to = (body.state == State::Probe).then_some(self.hot[place as usize].mac());
        Some(Solicit { address: body.address, to })
    }

    /// Whether [`Table::poll_solicit`] has a request to send.
    pub fn has_requests(&self) -> bool {
        self.chains.first(Chain::Asking).is_some()
    }

    /// When [`Table::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|&(moment, _)| moment)
    }

    /// Packets that are with the table.
    pub fn held(&self) -> usize {
        self.room.taken() + self.outcomes.len()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Entries that are being resolved.
    pub fn unresolved(&self) -> usize {
        self.unresolved
    }

    /// The counts.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The port's own addresses.
    pub fn own(&self) -> &Own<A> {
        &self.own
    }

    /// The entry of `address`.
    pub fn entry(&self, address: A) -> Option<Entry<A>> {
        self.index.find(address).map(|place| self.shown(place))
    }

    /// All entries, in the order of their places.
    pub fn entries(&self) -> impl Iterator<Item = Entry<A>> + '_ {
        let places = 0..self.bodies.len() as u32;
        places
            .filter(|&place| !self.chains.is_in(place, Chain::Free))
            .map(|place| self.shown(place))
    }

    fn shown(&self, place: u32) -> Entry<A> {
        let Body { address, state, is_router, .. } = self.bodies[place as usize];
        let has_mac = !matches!(state, State::Incomplete | State::Failed);
        let mac = has_mac.then_some(self.hot[place as usize].mac());
        Entry { address, mac, state, is_router }
    }

    /// Gives the port an address, with a prefix of `length` bits around it on the link. An entry of
    /// that address goes.
    ///
    /// # Errors
    /// [`OwnError`], and nothing has changed.
    pub fn add_address(&mut self, address: A, length: u32) -> Result<(), OwnError> {
        self.own.add(address, length)?;
        self.remove_unfit();
        Ok(())
    }

    /// Takes an address from the port, and with it the entries that are now off the link.
    pub fn remove_address(&mut self, address: A) -> bool {
        let was_there = self.own.remove(address);
        self.remove_unfit();
        was_there
    }

    fn remove_unfit(&mut self) {
        for place in 0..self.bodies.len() as u32 {
            let Body { address, state, .. } = self.bodies[place as usize];
            let fits = match state {
                State::Permanent => self.own.check_given(address),
                _ => self.own.check(address),
            };
            if fits.is_err() && !self.chains.is_in(place, Chain::Free) {
                self.remove_place(place);
            }
        }
    }

    /// Removes an entry; whether there was one.
    pub fn remove(&mut self, address: A) -> bool {
        let place = self.index.find(address);
        place.map(|place| self.remove_place(place)).is_some()
    }

    /// Removes every entry that was not set by hand, as when the link goes down.
    pub fn flush(&mut self) {
        for place in 0..self.bodies.len() as u32 {
            let is_entry = !self.chains.is_in(place, Chain::Free);
            if is_entry && self.bodies[place as usize].state != State::Permanent {
                self.remove_place(place);
            }
        }
    }
}
