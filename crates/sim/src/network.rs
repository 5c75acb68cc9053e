//! The network in motion: members and links under one calendar.
//!
//! A *member* is a [`Node`] that takes and makes packets: a host's end of a flow, a fault box, a
//! router with queues of its own. Routers that only forward are not members: they take no time, and
//! a packet's path is known, so that where a link ends it continues with the packet's next hop. Of
//! events at one moment, packets land first, in the order in which their links were made; then timers
//! run out, those of links before those of members.
//!
//! *In advance.* What happens to a member is decided by what reaches it and by its own timers. Where
//! one link alone leads to it, packets reach it in the order in which that link took them, so that it
//! may be told of each as soon as its landing is decided, before the clock is there: first the timers
//! that run out earlier, each at its moment, then the packet at its own. What it sends goes into a
//! FIFO that it alone feeds, and from there into the calendar. So a packet and its acknowledgement
//! through two routers are two events, where an end of each transmission and of each flight would be
//! twelve. A member is never told of anything after the horizon, which is the end of the run, so that
//! at the end nobody is ahead.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_queue::{Drops, Reason};
use nilometer_wire::{Node, Port, Time};

use crate::calendar::{Calendar, Event};
use crate::link::{Counters, Link};
use crate::packet::Packet;
use crate::plan::{Hop, Plan};
use crate::tournament::NEVER;

/// What sees packets pass, for traces and tests. Moments may be told ahead of the clock, but each
/// link's in their order.
pub trait Tap {
    /// `packet` was handed to `link`'s transmitter and reaches the far end at `arrival`.
    fn transmitted(&mut self, link: usize, arrival: Time, packet: &Packet);
    /// `packet` was dropped at `link`.
    fn dropped(&mut self, link: usize, now: Time, reason: Reason, packet: &Packet);
    /// `packet` was delivered to `member`.
    fn delivered(&mut self, member: usize, now: Time, packet: &Packet);
}

/// Sees nothing and costs nothing.
impl Tap for () {
    #[inline(always)]
    fn transmitted(&mut self, _link: usize, _arrival: Time, _packet: &Packet) {}
    #[inline(always)]
    fn dropped(&mut self, _link: usize, _now: Time, _reason: Reason, _packet: &Packet) {}
    #[inline(always)]
    fn delivered(&mut self, _member: usize, _now: Time, _packet: &Packet) {}
}

/// What came of a run: everything that happened, in one number and in counts.
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

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What the engine knows of a member.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The moment of the last packet that it was told of.
    until: Time,
    /// A mix of its deliveries.
    digest: u64,
}

impl Told {
    #[inline]
    fn delivered(&mut self, now: Time, packet: &Packet) {
        let what = u64::from(packet.route.0) << 32 | u64::from(packet.segment.sequence);
        let told = now.0 ^ what.wrapping_mul(ODD);
        self.digest = (self.digest.rotate_left(23) ^ told).wrapping_mul(ODD);
        self.until = now;
    }
}

/// Members and links under one clock.
#[derive(Debug)]
pub struct Network<M, T = ()> {
    now: Time,
    /// Until when members may be told in advance.
    horizon: Time,
    calendar: Calendar<Packet>,
    links: Vec<Link>,
    /// The links whose alarms are the first timers.
    alarms: Vec<u32>,
    members: Vec<M>,
    told: Vec<Told>,
    /// Where each member's ports begin in `ports`.
    first_ports: Vec<u32>,
    /// The links at the members' ports.
    ports: Vec<u32>,
    journal: Journal,
    tap: T,
}

/// Drops of one link, on their way to the tap.
struct Dropping<'a, T> {
    tap: &'a mut T,
    link: usize,
    now: Time,
}

impl<T: Tap> Drops<Packet> for Dropping<'_, T> {
    #[inline]
    fn dropped(&mut self, reason: Reason, packet: Packet) {
        self.tap.dropped(self.link, self.now, reason, &packet);
    }
}

impl<M: Node<Packet>, T: Tap> Network<M, T> {
    /// Sets `plan` in motion at time zero. With `fuses` false every hop is an event of its own; the
    /// results are the same.
    pub fn new(plan: Plan<M>, tap: T, fuses: bool) -> Network<M, T> {
        let (ways, lanes) = plan.ways(fuses);
        let (mut links, mut alarms) = (plan.links, Vec::new());
        for (index, (link, way)) in links.iter_mut().zip(ways).enumerate() {
            if way.alarm > 0 {
                alarms.push(index as u32);
            }
            link.way = way;
        }
        let (mut members, mut first_ports, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        for (member, links) in plan.members {
            members.push(member);
            first_ports.push(ports.len() as u32);
            ports.extend(links);
        }
        let timers = alarms.len() + members.len();
        let mut network = Network {
            now: Time::ZERO,
            horizon: Time::ZERO,
            calendar: Calendar::new(lanes, links.len(), timers),
            links,
            alarms,
            told: vec![Told::default(); members.len()],
            members,
            first_ports,
            ports,
            journal: Journal::default(),
            tap,
        };
        for member in 0..network.members.len() {
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

    /// As [`Network::run_until`], on the way to `horizon`: members may know already what will reach
    /// them until then. The queues of links that several feed are as they are at `end`.
    pub fn advance(&mut self, end: Time, horizon: Time) {
        self.horizon = horizon;
        while let Some((now, event)) = self.calendar.pop(end) {
            self.now = now;
            self.journal.events += 1;
            match event {
                Event::Landing(link, packet) => self.land(link, now, packet),
                Event::Timer(timer) => self.run_out(timer, now),
            }
        }
        self.now = end;
        for link in 0..self.links.len() {
            self.settle(link, end);
        }
    }

    /// `packet` lands at the end of a link.
    #[inline]
    fn land(&mut self, link: usize, now: Time, packet: Packet) {
        if self.links[link].is_busy() {
            self.settle(link, now);
        }
        let landed = &mut self.links[link];
        landed.pending -= 1;
        if let Some((next, follower)) = landed.follower(now) {
            self.calendar.push(usize::from(landed.way.lane) + 1, link, next, follower);
        }
        match landed.way.onward(packet.route) {
            Some(Hop::Link(onward)) => self.send(onward as usize, now, &packet),
            Some(Hop::Member(member, port)) => {
                self.deliver(member as usize, Port(u32::from(port)), now, &packet);
            }
            None => self.journal.unroutable += 1,
        }
    }

    /// A fused link has to make up for its departures, or a member is told the time.
    fn run_out(&mut self, timer: usize, now: Time) {
        let Some(member) = timer.checked_sub(self.alarms.len()) else {
            let link = self.alarms[timer] as usize;
            self.settle(link, now);
            self.watch(link);
            return;
        };
        if self.told[member].until <= now {
            if self.members[member].poll_timeout().is_some_and(|due| due <= now) {
                self.members[member].handle_timeout(now);
            }
            self.transmit(member, now);
        }
        self.watch_timer(member);
    }

    /// Sets the alarm of a fused link that has decisions to make.
    #[inline]
    fn watch(&mut self, link: usize) {
        if let Some(timer) = self.links[link].way.alarm.checked_sub(1)
            && self.calendar.get(timer as usize) == NEVER
            && let Some(alarm) = self.links[link].alarm()
        {
            self.calendar.set(timer as usize, alarm);
        }
    }

    #[inline]
    fn deliver(&mut self, member: usize, port: Port, now: Time, packet: &Packet) {
        self.journal.deliveries += 1;
        self.told[member].delivered(now, packet);
        self.tap.delivered(member, now, packet);
        self.members[member].receive(now, port, *packet);
        self.transmit(member, now);
        self.watch_timer(member);
    }

    /// Tells a member of a packet that will reach it at `at`, after the timers that run out before.
    #[inline]
    fn deliver_ahead(&mut self, member: usize, port: Port, at: Time, packet: &Packet) {
        let mut last = None;
        while let Some(due) = self.members[member].poll_timeout()
            && due < at
            && last != Some(due)
        {
            self.members[member].handle_timeout(due);
            self.transmit(member, due);
            last = Some(due);
        }
        self.deliver(member, port, at, packet);
    }

    /// Takes what a member has to send.
    #[inline]
    fn transmit(&mut self, member: usize, now: Time) {
        while let Some((port, packet)) = self.members[member].poll_transmit(now) {
            let link = self.ports[(self.first_ports[member] + port.0) as usize];
            self.journal.sent += 1;
            self.send(link as usize, now, &packet);
        }
    }

    /// Notes when a member next wants to be told the time. A deadline that moved later is found out
    /// when the earlier moment comes.
    #[inline]
    fn watch_timer(&mut self, member: usize) {
        if let Some(due) = self.members[member].poll_timeout() {
            let timer = self.alarms.len() + member;
            if due < self.calendar.get(timer) {
                self.calendar.set(timer, due);
            }
        }
    }

    /// `packet` joins a link's queue.
    #[inline]
    fn send(&mut self, link: usize, now: Time, packet: &Packet) {
        if self.links[link].is_fifo() {
            self.pass(link, now, packet);
            return;
        }
        self.settle(link, now);
        let mut drops = Dropping { tap: &mut self.tap, link, now };
        self.links[link].enqueue(now, packet, &mut drops);
        self.settle(link, now);
        self.watch(link);
    }

    /// Makes up for a link's departures until `now`.
    #[inline]
    fn settle(&mut self, link: usize, now: Time) {
        while self.links[link].is_busy() {
            let mut drops = Dropping { tap: &mut self.tap, link, now };
            let Some((arrival, packet, follows)) = self.links[link].depart(now, &mut drops) else {
                return;
            };
            self.tap.transmitted(link, arrival, &packet);
            if self.links[link].way.is_fused {
                if let Some(onward) = self.hand_on(link, arrival, &packet) {
                    self.pass(onward, arrival, &packet);
                }
            } else {
                self.fly(link, arrival, &packet, follows);
            }
        }
    }

    /// `packet` joins the queue of a FIFO at `now`, and of those fused to it when it gets there.
    #[inline]
    fn pass(&mut self, mut link: usize, mut now: Time, packet: &Packet) {
        loop {
            let fifo = &mut self.links[link];
            let (arrival, follows) = match fifo.admit(now, packet.bytes) {
                Ok(admitted) => admitted,
                Err(reason) => {
                    fifo.refuse(reason, *packet);
                    self.tap.dropped(link, now, reason, packet);
                    return;
                }
            };
            self.tap.transmitted(link, arrival, packet);
            if !fifo.way.is_fused {
                self.fly(link, arrival, packet, follows);
                return;
            }
            let Some(onward) = self.hand_on(link, arrival, packet) else { return };
            (link, now) = (onward, arrival);
        }
    }

    /// The FIFO that a packet goes into when it reaches the end of a fused link.
    #[inline]
    fn hand_on(&mut self, link: usize, arrival: Time, packet: &Packet) -> Option<usize> {
        let passed = &mut self.links[link];
        passed.remember(self.now, arrival, packet.bytes);
        match passed.way.onward(packet.route) {
            Some(Hop::Link(onward)) => Some(onward as usize),
            _ => {
                self.journal.unroutable += 1;
                None
            }
        }
    }

    /// `packet` is on its way to the far end.
    #[inline]
    fn fly(&mut self, link: usize, arrival: Time, packet: &Packet, follows: bool) {
        let flown = &mut self.links[link];
        if flown.way.is_eager
            && flown.pending == 0
            && arrival <= self.horizon
            && let Some(Hop::Member(member, port)) = flown.way.onward(packet.route)
        {
            self.deliver_ahead(member as usize, Port(u32::from(port)), arrival, packet);
            return;
        }
        flown.pending += 1;
        // What it follows was told of in advance if nothing else is pending, and will not land.
        if follows && flown.pending > 1 {
            flown.follow(arrival, packet);
        } else {
            self.calendar.push(usize::from(flown.way.lane), link, arrival, *packet);
        }
    }

    /// The moment until which everything has happened.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What came of it so far.
    pub fn journal(&self) -> Journal {
        let mix = |digest: u64, told: &Told| {
            (digest.rotate_left(23) ^ told.digest.wrapping_mul(ODD)).wrapping_mul(ODD)
        };
        Journal { digest: self.told.iter().fold(0, mix), ..self.journal }
    }

    /// The links, in the order of the plan.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The members, in the order of the plan.
    pub fn members(&self) -> &[M] {
        &self.members
    }

    /// What watched.
    pub fn tap(&self) -> &T {
        &self.tap
    }

    /// The counters of every link, in the order of the plan. What has not wholly left a transmitter
    /// is not counted as transmitted.
    pub fn counters(&self) -> Vec<Counters> {
        let mut counters: Vec<Counters> =
            self.links.iter().map(|link| link.counters(self.now)).collect();
        for (lands, link, packet) in self.calendar.landings() {
            if self.links[link].is_leaving(self.now, lands) {
                counters[link].transmitted_packets -= 1;
                counters[link].transmitted_bytes -= u64::from(packet.bytes);
            }
        }
        counters
    }

    /// Ends the network and gives back what watched.
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
            found += drops + link.followers() + link.backlog(self.now).packets;
        }
        journal.sent == found && self.links.iter().all(Link::balances)
    }
}
