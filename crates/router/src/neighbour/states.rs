//! How a neighbour's entry goes from state to state (RFC 4861, 7.2, 7.3 and appendix C).

use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

use super::chains::Chain;
use super::ledger::{Ignored, Reason};
use super::table::{Body, Given, Hot, Outcome, State, Table};
use super::waiting::Queue;
use super::{Family, Mac, is_unicast, link_address};

/// How long a drawn reachable time is used (RFC 4861, 6.3.4: "every few hours").
const DRAWN_FOR: Span = Span::from_secs(7_200);
/// The purpose of its random stream.
const PURPOSE: u32 = 0x6e75;

/// The contents of a neighbour advertisement or an ARP reply (RFC 4861, 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its link-layer address, if it is given.
    pub mac: Option<Mac>,
    /// S: it answers a request of ours.
    pub is_solicited: bool,
    /// O: a different link-layer address replaces the one known.
    pub overrides: bool,
    /// R: it is a router.
    pub is_router: bool,
}

impl<A: Family, B: Copy> Table<A, B> {
    /// A neighbour has answered, or sent an unsolicited advertisement (7.2.5). No entry is made.
    ///
    /// # Errors
    /// Why it was ignored; it is counted.
    pub fn answered(&mut self, now: Time, address: A, answer: Answer) -> Result<(), Ignored> {
        let done = self.take_answer(now, address, answer);
        done.inspect_err(|&why| self.ledger.ignore(why))
    }

    fn take_answer(&mut self, now: Time, address: A, answer: Answer) -> Result<(), Ignored> {
        self.check_claim(address, answer.mac)?;
        let place = self.index.find(address).ok_or(Ignored::Unknown)?;
        let known = self.hot[place as usize].mac();
        let other = answer.mac.filter(|&mac| mac != known);
        let state = self.bodies[place as usize].state;
        let new_state = if answer.is_solicited { State::Reachable } else { State::Stale };
        match state {
            State::Permanent if other.is_some() => return Err(Ignored::Locked),
            State::Permanent => {}
            State::Incomplete | State::Failed => {
                let mac = answer.mac.ok_or(Ignored::Unknown)?;
                self.set_mac(now, place, mac);
                self.enter(now, place, new_state);
            }
            State::Reachable if other.is_some() && !answer.overrides => {
                self.enter(now, place, State::Stale);
                return Ok(());
            }
            _ if other.is_some() && !answer.overrides => return Ok(()),
            _ => {
                if let Some(mac) = other {
                    self.check_lock(now, place)?;
                    self.set_mac(now, place, mac);
                }
                if answer.is_solicited || other.is_some() {
                    self.enter(now, place, new_state);
                }
            }
        }
        self.bodies[place as usize].is_router = answer.is_router;
        Ok(())
    }

    /// A neighbour has named its link-layer address in a message of its own: a solicitation, a router's
    /// advertisement, an ARP request (7.2.3, 6.2.6, 6.3.4). An entry is made if it spoke to us.
    ///
    /// # Errors
    /// Why it was ignored; it is counted.
    pub fn note_address(
        &mut self,
        now: Time,
        address: A,
        mac: Mac,
        to_us: bool,
    ) -> Result<(), Ignored> {
        let done = self.take_address(now, address, mac, to_us);
        done.inspect_err(|&why| self.ledger.ignore(why))
    }

    fn take_address(
        &mut self,
        now: Time,
        address: A,
        mac: Mac,
        to_us: bool,
    ) -> Result<(), Ignored> {
        self.check_claim(address, Some(mac))?;
        let Some(place) = self.index.find(address) else {
            if !to_us {
                return Err(Ignored::Unknown);
            }
            let place = self.make_room(false).ok_or(Ignored::TableFull)?;
            self.settle(now, place, address);
            self.set_mac(now, place, mac);
            self.enter(now, place, State::Stale);
            return Ok(());
        };
        let is_other = self.hot[place as usize].mac() != mac;
        match self.bodies[place as usize].state {
            State::Permanent if is_other => return Err(Ignored::Locked),
            State::Permanent => return Ok(()),
            State::Incomplete | State::Failed => {}
            _ if !is_other => return Ok(()),
            _ => self.check_lock(now, place)?,
        }
        self.set_mac(now, place, mac);
        self.enter(now, place, State::Stale);
        Ok(())
    }

    /// Records whether a neighbour is a router, by its own message (6.2.6, 6.3.4).
    pub(super) fn note_router(&mut self, address: A, is_router: bool) {
        if let Some(place) = self.index.find(address) {
            self.bodies[place as usize].is_router = is_router;
        }
    }

    /// The layer above has seen that packets to `address` arrive (7.3.1).
    pub fn confirm(&mut self, now: Time, address: A) {
        let Some(place) = self.index.find(address) else { return };
        let state = self.bodies[place as usize].state;
        if matches!(state, State::Reachable | State::Stale | State::Delay | State::Probe) {
            self.enter(now, place, State::Reachable);
        }
    }

    /// Sets an entry from outside, whatever was there; packets that waited for it are released.
    ///
    /// # Errors
    /// Why there can be no such entry: the address, the link-layer address, or a full table.
    pub fn set(&mut self, now: Time, address: A, mac: Mac, given: Given) -> Result<(), Reason> {
        match given {
            Given::Permanent => self.own.check_given(address)?,
            Given::Reachable | Given::Stale => self.own.check(address)?,
        }
        if !is_unicast(mac) || mac == self.own.mac() {
            return Err(Reason::NotHost);
        }
        let place = match self.index.find(address) {
            Some(place) => place,
            None => {
                let place = self.make_room(true).ok_or(Reason::TableFull)?;
                self.settle(now, place, address);
                place
            }
        };
        self.set_mac(now, place, mac);
        let state = match given {
            Given::Permanent => State::Permanent,
            Given::Reachable => State::Reachable,
            Given::Stale => State::Stale,
        };
        self.enter(now, place, state);
        Ok(())
    }

    /// The moment of [`Table::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(&(moment, place)) = self.timers.first() {
            if moment > now {
                break;
            }
            let Body { state, requests, .. } = self.bodies[place as usize];
            match state {
                State::Incomplete if requests < self.settings.multicast_requests => {
                    self.ask(now, place);
                }
                State::Incomplete => self.enter(now, place, State::Failed),
                State::Reachable => self.enter(now, place, State::Stale),
                State::Delay => self.enter(now, place, State::Probe),
                State::Probe if requests < self.settings.unicast_requests => self.ask(now, place),
                State::Probe | State::Stale | State::Failed => self.remove_place(place),
                State::Permanent => unreachable!("what is permanent has no timer"),
            }
        }
    }

    /// Whether `address` and `mac` may belong together on this link.
    fn check_claim(&mut self, address: A, mac: Option<Mac>) -> Result<(), Ignored> {
        if self.own.has(address) || mac == Some(self.own.mac()) {
            return Err(Ignored::Conflict);
        }
        if mac.is_some_and(|mac| !is_unicast(mac)) {
            return Err(Ignored::NotHost);
        }
        self.own.check(address).map_err(|reason| match reason {
            Reason::OffLink => Ignored::OffLink,
            _ => Ignored::NotHost,
        })
    }

    fn check_lock(&self, now: Time, place: u32) -> Result<(), Ignored> {
        let is_over = now >= self.bodies[place as usize].changed + self.settings.lock;
        is_over.then_some(()).ok_or(Ignored::Locked)
    }

    fn set_mac(&mut self, now: Time, place: u32, mac: Mac) {
        self.hot[place as usize].link_address = link_address(mac);
        self.bodies[place as usize].changed = now;
    }

    /// A new entry, being resolved.
    pub(super) fn begin(&mut self, now: Time, address: A) -> Result<u32, Reason> {
        if self.unresolved == self.settings.unresolved_max {
            return Err(Reason::UnresolvedFull);
        }
        let place = self.make_room(true).ok_or(Reason::TableFull)?;
        self.settle(now, place, address);
        self.unresolved += 1;
        self.ask(now, place);
        Ok(place)
    }

    /// A place for one more entry: an unused one, or that of a failed or stale entry; for traffic, also
    /// that of the reachable entry that has been silent for longest.
    fn make_room(&mut self, for_traffic: bool) -> Option<u32> {
        if let Some(place) = self.chains.first(Chain::Free) {
            return Some(place);
        }
        if self.bodies.len() < self.settings.entries_max {
            self.chains.add_place();
            self.hot.push(Hot { key: 0, link_address: 0 });
            self.bodies.push(Body {
                address: A::NONE,
                state: State::Incomplete,
                is_router: false,
                requests: 0,
                deadline: None,
                changed: Time::ZERO,
                waiting: Queue::EMPTY,
            });
            return Some(self.bodies.len() as u32 - 1);
        }
        let reachable = || self.chains.first(Chain::Reachable).filter(|_| for_traffic);
        let idle = self.chains.first(Chain::Failed).or_else(|| self.chains.first(Chain::Stale));
        let victim = idle.or_else(reachable)?;
        self.ledger.evicted += 1;
        self.remove_place(victim);
        Some(victim)
    }

    /// Puts `address` into an unused place, as an entry without a link-layer address.
    fn settle(&mut self, now: Time, place: u32, address: A) {
        self.chains.put(place, None);
        self.index.insert(address, place);
        self.entries += 1;
        let body = &mut self.bodies[place as usize];
        body.address = address;
        body.state = State::Incomplete;
        body.is_router = false;
        body.requests = 0;
        body.changed = now;
        // The place's number of owners goes up, which voids every old handle; it wraps after 2^31.
        let hot = &mut self.hot[place as usize];
        hot.key = (hot.key & !1).wrapping_add(2);
    }

    /// Gives a place back; packets that waited come out as removed.
    pub(super) fn remove_place(&mut self, place: u32) {
        let body = &self.bodies[place as usize];
        let is_unresolved = body.state == State::Incomplete && body.deadline.is_some();
        self.unresolved -= usize::from(is_unresolved);
        self.hand_out(place, Err(Reason::Removed));
        self.arm(place, None);
        self.index.remove(self.bodies[place as usize].address);
        self.hot[place as usize].key &= !1;
        self.entries -= 1;
        self.chains.put(place, Some(Chain::Free));
    }

    /// Sends a request soon, and again after a while.
    fn ask(&mut self, now: Time, place: u32) {
        self.bodies[place as usize].requests += 1;
        self.arm(place, Some(now + self.settings.retransmit));
        if !self.chains.is_in(place, Chain::Asking) {
            self.chains.put(place, Some(Chain::Asking));
        }
    }

    /// Goes to another state than INCOMPLETE, with all that comes with it.
    pub(super) fn enter(&mut self, now: Time, place: u32, state: State) {
        let body = &mut self.bodies[place as usize];
        if body.state == State::Incomplete && body.deadline.is_some() {
            self.unresolved -= 1;
        }
        body.state = state;
        body.requests = 0;
        let is_ready = !matches!(state, State::Incomplete | State::Stale | State::Failed);
        let hot = &mut self.hot[place as usize];
        hot.key = (hot.key & !1) | u32::from(is_ready);
        let (chain, until) = match state {
            State::Reachable => (Some(Chain::Reachable), Some(self.reachable_time(now))),
            State::Stale => (Some(Chain::Stale), Some(self.settings.stale)),
            State::Failed => (Some(Chain::Failed), Some(self.settings.failed)),
            State::Delay => (None, Some(self.settings.delay)),
            State::Incomplete | State::Probe | State::Permanent => (None, None),
        };
        self.chains.put(place, chain);
        self.arm(place, until.map(|span| now + span));
        match state {
            State::Probe => self.ask(now, place),
            State::Failed => self.hand_out(place, Err(Reason::Unreachable)),
            _ => self.hand_out(place, Ok(self.hot[place as usize].mac())),
        }
    }

    /// Moves the packets that wait at a place to the queue of those whose fate is known.
    fn hand_out(&mut self, place: u32, fate: Result<Mac, Reason>) {
        let body = &mut self.bodies[place as usize];
        while let Some(packet) = self.room.pop(&mut body.waiting) {
            self.outcomes.push_back(Outcome { packet, address: body.address, fate });
        }
    }

    fn arm(&mut self, place: u32, deadline: Option<Time>) {
        let before = core::mem::replace(&mut self.bodies[place as usize].deadline, deadline);
        if let Some(before) = before {
            self.timers.remove(&(before, place));
        }
        if let Some(deadline) = deadline {
            self.timers.insert((deadline, place));
        }
    }

    /// How long what is confirmed now counts as reachable: drawn once in two hours.
    fn reachable_time(&mut self, now: Time) -> Span {
        let hours = now.0 / DRAWN_FOR.0;
        if self.reachable.0 != hours {
            let factor = 0.5 + Rng::new(self.settings.seed, PURPOSE, hours).unit();
            let drawn = Span::from_secs_f64(self.settings.reachable.as_secs_f64() * factor);
            self.reachable = (hours, drawn);
        }
        self.reachable.1
    }
}
