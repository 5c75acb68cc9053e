//! The network in motion: members and links under one calendar.
//!
//! A *member* is a [`Node`] that takes and makes packets: a host's end of a flow, a fault box, a
//! router with queues of its own. Routers that only forward are not members: they take no time, and
//! a packet's path is known, so that where a link ends it continues with the packet's next hop. Of
//! events at one moment, packets land first, in the order in which their links were made; then timers
//! run out, those of links before those of members.
//!
//! *In advance.* What happens to a member is decided by what reaches it and by its own timers. Where
//! one link alone leads to it, packets reach it in the order in which that link took them, so that
//! each may be delivered to it as soon as its landing is decided, before the clock gets there: first
//! the timers that run out earlier, each at its moment, then the packet at its own. What it sends
//! goes into a FIFO that it alone feeds, and from there into the calendar. So a packet and its
//! acknowledgement through two routers are two events, where an end of each transmission and of each
//! flight would be twelve. Nothing after the horizon, which is the end of the run, is delivered in
//! advance, so that no member is ahead at the end.

use alloc::vec::Vec;
use core::hint::black_box;

use nilometer_queue::Reason;
use nilometer_wire::{Node, Port, Time};

use crate::calendar::{Calendar, Event};
use crate::link::{Counters, Link};
use crate::packet::{Packet, Route};
use crate::parcel::{Annex, Parcel};
use crate::plan::{Hop, Plan};
use crate::seat::Seat;
use crate::tap::Dropping;
pub use crate::tap::Tap;
use crate::tournament::NEVER;

/// The record of a run: everything that happened, in one number and in counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// A mix of every delivery's moment, route and sequence number, in each member's order.
    pub digest: u64,
    /// Packets that members sent.
    pub sent: u64,
    /// Packets delivered to members.
    pub deliveries: u64,
    /// Packets that came to the end of a link on which their route has no path.
    pub unroutable: u64,
    /// Events taken from the calendar.
    pub events: u64,
}

/// The last link of a path and the member at its end.
fn receiver(path: &[Hop]) -> (u32, u32) {
    path.iter().fold((0, 0), |(link, member), hop| match *hop {
        Hop::Link(link) => (link, member),
        Hop::Member(member, _) => (link, member),
    })
}

/// Members and links under one clock.
#[derive(Debug)]
pub struct Network<M, T = ()> {
    now: Time,
    /// Until when packets may be delivered in advance.
    horizon: Time,
    calendar: Calendar<Parcel>,
    annex: Annex,
    links: Vec<Link>,
    /// The links whose alarms are the first timers.
    alarms: Vec<u32>,
    seats: Vec<Seat<M>>,
    /// The links at the members' ports.
    ports: Vec<u32>,
    /// By route, the last link and the member at its end.
    receivers: Vec<(u32, u32)>,
    /// What a member has just sent.
    outgoing: Packet,
    journal: Journal,
    tap: T,
}

impl<M: Node<Packet>, T: Tap> Network<M, T> {
    /// Sets `plan` in motion at time zero. With `fuses` false every hop is an event of its own; the
    /// results are the same.
    pub fn new(plan: Plan<M>, tap: T, fuses: bool) -> Network<M, T> {
        let receivers = plan.paths.iter().map(|path| receiver(path)).collect();
        let (ways, groups) = plan.ways(fuses);
        let (mut links, mut alarms) = (plan.links, Vec::new());
        for (index, (link, (way, turns))) in links.iter_mut().zip(ways).enumerate() {
            if turns.alarm > 0 {
                alarms.push(index as u32);
            }
            (link.way, link.turns) = (way, turns);
        }
        let (mut seats, mut ports) = (Vec::new(), Vec::new());
        for (member, links) in plan.members {
            let (link, first_port) = (links.first().copied().unwrap_or(0), ports.len() as u32);
            seats.push(Seat::new(member, link, first_port));
            ports.extend(links);
        }
        let timers = alarms.len() + seats.len();
        let mut network = Network {
            now: Time::ZERO,
            horizon: Time::ZERO,
            calendar: Calendar::new(groups, links.len(), timers),
            annex: Annex::default(),
            links,
            alarms,
            seats,
            ports,
            receivers,
            outgoing: Packet::default(),
            journal: Journal::default(),
            tap,
        };
        for member in 0..network.seats.len() {
            network.transmit(member, Time::ZERO);
            network.watch_timer(member);
        }
        network
    }

    /// Lets everything happen that is due until `end`, that moment included, and makes up for every
    /// departure until then.
    pub fn run_until(&mut self, end: Time) {
        self.advance(end, end);
    }

    /// As [`Network::run_until`], on the way to `horizon`: packets may already be delivered to members
    /// until then. The queue of the link that is watched is as it is at `end`; others may hold what is
    /// yet to join them.
    pub fn advance(&mut self, end: Time, horizon: Time) {
        self.horizon = horizon;
        let mut packet = Packet::default();
        loop {
            let take = |parcel: &Parcel| self.annex.unpack(parcel, &mut packet);
            let Some((now, event)) = self.calendar.pop(end, take) else { break };
            self.now = now;
            self.journal.events += 1;
            match event {
                Event::Landing(link) => {
                    self.look_ahead(packet.route);
                    self.land(link, now, &packet);
                }
                Event::Timer(timer) => self.run_out(timer, now),
            }
        }
        self.now = end;
        for link in 0..self.links.len() {
            self.settle(link, end);
        }
    }

    /// Reads what a packet may need at the end of its way, so that it comes into the caches while
    /// the routers on the way are passed: 7 % at a hundred flows.
    #[inline(always)]
    fn look_ahead(&self, route: Route) {
        if let Some(&(link, member)) = self.receivers.get(route.0 as usize) {
            black_box(self.links[link as usize].pending);
            black_box(self.seats[member as usize].member.poll_timeout());
        }
    }

    /// `packet` lands at the end of a link.
    #[inline(always)]
    fn land(&mut self, link: usize, now: Time, packet: &Packet) {
        if self.links[link].is_busy() {
            self.settle(link, now);
        }
        let landed = &mut self.links[link];
        landed.pending -= 1;
        if let Some((next, follower)) = landed.follower(now) {
            self.calendar.push(landed.way.group, link, next, |parcel| *parcel = *follower);
            landed.let_follower_go();
        }
        match landed.onward(packet.route) {
            Some(&Hop::Link(onward)) => self.send(onward as usize, now, packet),
            Some(&Hop::Member(member, port)) => {
                self.deliver_apart(member as usize, Port(u32::from(port)), now, packet);
            }
            None => self.journal.unroutable += 1,
        }
    }

    /// A fused link has to make up for its departures, or a member's timer runs out.
    fn run_out(&mut self, timer: usize, now: Time) {
        let Some(member) = timer.checked_sub(self.alarms.len()) else {
            let link = self.alarms[timer] as usize;
            self.settle(link, now);
            self.watch(link);
            return;
        };
        let seat = &mut self.seats[member];
        seat.alarm = NEVER;
        if seat.until <= now {
            if seat.due <= now {
                seat.member.handle_timeout(now, &mut ());
            }
            self.transmit(member, now);
        }
        self.watch_timer(member);
    }

    /// Sets the alarm of a fused link that has decisions to make.
    #[inline]
    fn watch(&mut self, link: usize) {
        if let Some(timer) = self.links[link].turns.alarm.checked_sub(1)
            && self.calendar.get(timer as usize) == NEVER
            && let Some(alarm) = self.links[link].alarm()
        {
            self.calendar.set(timer as usize, alarm);
        }
    }

    /// Delivers a packet to a member and takes what it sends.
    #[inline(always)]
    fn deliver(&mut self, member: usize, port: Port, now: Time, packet: &Packet) {
        self.journal.deliveries += 1;
        let seat = &mut self.seats[member];
        seat.delivered(now, packet);
        self.tap.delivered(member, now, packet);
        seat.member.receive(now, port, packet, &mut ());
        let first = seat.link;
        let Some(line) = self.links.get_mut(first as usize) else { return };
        // Nearly always a host sends into its own line, which is plain: [`Network::pass`] would
        // needlessly check whether it is fused or eager, and where it leads.
        loop {
            let packet = &mut self.outgoing;
            let Some(port) = seat.member.poll_transmit(now, packet, &mut ()) else { break };
            if port != Port(0) || !line.way.is_plain {
                self.transmit_from(member, port, now);
                return self.watch_timer(member);
            }
            self.journal.sent += 1;
            match line.admit(now, packet.bytes) {
                Ok((arrival, follows)) => {
                    self.tap.transmitted(first as usize, arrival, packet);
                    let (calendar, annex) = (&mut self.calendar, &mut self.annex);
                    schedule(calendar, annex, line, first, arrival, packet, follows);
                }
                Err(reason) => {
                    line.refuse(reason, *packet);
                    self.tap.dropped(first as usize, now, reason, packet);
                }
            }
        }
        seat.ask();
        if seat.due < seat.alarm {
            seat.alarm = seat.due;
            self.calendar.set(self.alarms.len() + member, seat.due);
        }
    }

    /// As [`Network::deliver`].
    #[inline(never)]
    fn deliver_apart(&mut self, member: usize, port: Port, now: Time, packet: &Packet) {
        self.deliver(member, port, now, packet);
    }

    /// Delivers to a member a packet that will reach it at `at`, after the timers that run out before.
    #[inline(always)]
    fn deliver_ahead(&mut self, member: usize, port: Port, at: Time, packet: &Packet) {
        if self.seats[member].due < at {
            self.catch_up(member, at);
        }
        self.deliver(member, port, at, packet);
    }

    /// Runs a member's timers that run out before `at`.
    #[inline(never)]
    fn catch_up(&mut self, member: usize, at: Time) {
        let mut last = None;
        loop {
            let seat = &mut self.seats[member];
            let due = seat.due;
            if due >= at || last == Some(due) {
                return;
            }
            seat.member.handle_timeout(due, &mut ());
            self.transmit(member, due);
            self.seats[member].ask();
            last = Some(due);
        }
    }

    /// Takes what a member has to send.
    fn transmit(&mut self, member: usize, now: Time) {
        if let Some(port) =
            self.seats[member].member.poll_transmit(now, &mut self.outgoing, &mut ())
        {
            self.transmit_from(member, port, now);
        }
    }

    /// Sends what a member has made for `port`, and takes what else it has to send.
    #[inline(never)]
    fn transmit_from(&mut self, member: usize, mut port: Port, now: Time) {
        loop {
            let (seat, packet) = (&self.seats[member], self.outgoing);
            let link = match port {
                Port(0) => seat.link,
                Port(port) => self.ports[(seat.first_port + port) as usize],
            };
            self.journal.sent += 1;
            self.send(link as usize, now, &packet);
            let seat = &mut self.seats[member];
            match seat.member.poll_transmit(now, &mut self.outgoing, &mut ()) {
                Some(next) => port = next,
                None => return,
            }
        }
    }

    /// Notes a member's next deadline. A deadline that moved later is noticed when the earlier moment comes.
    #[inline]
    fn watch_timer(&mut self, member: usize) {
        let seat = &mut self.seats[member];
        seat.ask();
        if seat.due < seat.alarm {
            seat.alarm = seat.due;
            self.calendar.set(self.alarms.len() + member, seat.due);
        }
    }

    /// `packet` joins a link's queue.
    #[inline(always)]
    fn send(&mut self, link: usize, now: Time, packet: &Packet) {
        if self.links[link].is_fifo() {
            self.pass(link, now, packet);
        } else {
            self.queue(link, now, packet);
        }
    }

    /// `packet` is given to a link's discipline.
    #[inline(never)]
    fn queue(&mut self, link: usize, now: Time, packet: &Packet) {
        self.settle(link, now);
        let mut drops = Dropping { tap: &mut self.tap, link, now };
        self.links[link].enqueue(now, packet, &mut drops);
        self.settle(link, now);
        self.watch(link);
    }

    /// Makes up for a link's departures until `now`.
    fn settle(&mut self, link: usize, now: Time) {
        while self.links[link].is_busy() {
            let mut drops = Dropping { tap: &mut self.tap, link, now };
            let Some((arrival, packet, follows)) = self.links[link].depart(now, &mut drops) else {
                return;
            };
            self.tap.transmitted(link, arrival, &packet);
            if self.links[link].way.is_fused {
                let passed = &mut self.links[link];
                passed.remember(self.now, self.horizon, arrival, packet.bytes);
                match passed.onward(packet.route) {
                    Some(&Hop::Link(onward)) => self.pass(onward as usize, arrival, &packet),
                    _ => self.journal.unroutable += 1,
                }
            } else {
                // Only FIFOs deliver in advance.
                self.fly(link, arrival, &packet, follows);
            }
        }
    }

    /// `packet` joins the queue of a FIFO at `now`, and of those fused to it when it gets there.
    #[inline(never)]
    fn pass(&mut self, mut link: usize, mut now: Time, packet: &Packet) {
        loop {
            let fifo = &mut self.links[link];
            let (arrival, follows) = match fifo.admit(now, packet.bytes) {
                Ok(admitted) => admitted,
                Err(reason) => return self.refuse(link, now, reason, packet),
            };
            self.tap.transmitted(link, arrival, packet);
            if fifo.way.is_fused {
                fifo.remember(self.now, self.horizon, arrival, packet.bytes);
                let Some(&Hop::Link(onward)) = fifo.onward(packet.route) else {
                    self.journal.unroutable += 1;
                    return;
                };
                (link, now) = (onward as usize, arrival);
            } else if let Some((member, port)) = fifo.delivers_ahead(arrival, self.horizon) {
                return self.deliver_ahead(member as usize, port, arrival, packet);
            } else {
                return self.fly(link, arrival, packet, follows);
            }
        }
    }

    /// A FIFO has no room for `packet`.
    #[cold]
    fn refuse(&mut self, link: usize, now: Time, reason: Reason, packet: &Packet) {
        self.links[link].refuse(reason, *packet);
        self.tap.dropped(link, now, reason, packet);
    }

    /// `packet` is on its way to the far end, and is not delivered in advance.
    #[inline(never)]
    fn fly(&mut self, link: usize, arrival: Time, packet: &Packet, follows: bool) {
        let (calendar, annex) = (&mut self.calendar, &mut self.annex);
        let flown = &mut self.links[link];
        schedule(calendar, annex, flown, link as u32, arrival, packet, follows);
    }

    /// The moment until which everything has happened.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The journal so far.
    pub fn journal(&self) -> Journal {
        let digest = self.seats.iter().fold(0, |digest, seat| seat.mixed_into(digest));
        Journal { digest, ..self.journal }
    }

    /// The links, in the order of the plan.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The members, in the order of the plan.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &M> {
        self.seats.iter().map(|seat| &seat.member)
    }

    /// Member number `index` of the plan.
    pub fn member(&self, index: usize) -> &M {
        &self.seats[index].member
    }

    /// What watched.
    pub fn tap(&self) -> &T {
        &self.tap
    }

    /// The counters of every link, in the order of the plan. What has not wholly left a transmitter
    /// is not counted as transmitted. To be called when everything up to the horizon has happened.
    pub fn counters(&self) -> Vec<Counters> {
        debug_assert!(self.horizon <= self.now, "links forget what leaves before the horizon");
        let mut counters: Vec<Counters> =
            self.links.iter().map(|link| link.counters(self.now)).collect();
        for (lands, link, parcel) in self.calendar.landings() {
            if self.links[link].is_leaving(self.now, lands) {
                counters[link].transmitted_packets -= 1;
                counters[link].transmitted_bytes -= u64::from(parcel.bytes);
            }
        }
        counters
    }

    /// Ends the network and returns its tap.
    pub fn into_tap(self) -> T {
        self.tap
    }

    /// Packets wholly transmitted so far, on all links together.
    pub fn packet_hops(&self) -> u64 {
        self.counters().iter().map(|link| link.transmitted_packets).sum()
    }

    /// Whether every link's account is square, and all that members sent has been delivered or
    /// dropped or is still on its way.
    pub fn balances(&self) -> bool {
        let journal = &self.journal;
        let mut found = journal.deliveries + journal.unroutable;
        found += self.calendar.landings().count() as u64;
        for link in &self.links {
            let drops = link.counters(self.now).drops.total_packets();
            found += drops + link.kept();
        }
        journal.sent == found && self.links.iter().all(Link::balances)
    }
}

/// `packet` lands at `arrival` at the end of `link`, which is number `place`: an event, or one to be
/// when the packet that it follows has landed.
#[inline(always)]
fn schedule(
    calendar: &mut Calendar<Parcel>,
    annex: &mut Annex,
    link: &mut Link,
    place: u32,
    arrival: Time,
    packet: &Packet,
    follows: bool,
) {
    link.pending += 1;
    // If nothing else is pending, the packet that it follows was delivered in advance, and will not land.
    if follows && link.pending > 1 {
        link.follow(annex, arrival, packet);
    } else {
        let fill = |parcel: &mut Parcel| annex.stow(packet, parcel);
        calendar.push(link.way.group, place as usize, arrival, fill);
    }
}
