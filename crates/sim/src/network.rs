//! The network in motion: members and links under one calendar.
//!
//! A *member* is a [`Node`] that takes and makes packets: a host's end of a flow, a fault box, a
//! router with queues of its own. Routers that only forward are not members: they take no time, and
//! a packet's path is known, so that where a link ends it continues with the packet's next hop. Each
//! link and each member has one slot in the calendar: the links first, so that at one moment packets
//! land before timers run out, and in the order in which the links were made.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use nilometer_queue::{Drops, Reason};
use nilometer_wire::{Node, Port, Time};

use crate::calendar::{Calendar, GENERAL, LANES_LIMIT};
use crate::link::Link;
use crate::packet::{Packet, Route};
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

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// Into the queue of a link.
    Link(u32),
    /// To a member, at one of its ports.
    Member(u32, u16),
}

/// Where a link ends.
#[derive(Clone, Debug)]
enum End {
    /// Nobody's path leads over it.
    Unused,
    /// All packets go on alike.
    Alike(Hop),
    /// By route.
    ByRoute(Vec<Option<Hop>>),
}

/// What came of a run: everything that happened, in one number and in counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// A mix of every delivery's moment, route and sequence number, in their order.
    pub digest: u64,
    /// Packets delivered to members.
    pub deliveries: u64,
    /// Packets that came to the end of a link on which their route has no path.
    pub unroutable: u64,
    /// Events taken from the calendar.
    pub events: u64,
}

impl Journal {
    #[inline]
    fn delivered(&mut self, now: Time, packet: &Packet) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let what = u64::from(packet.route.0) << 32 | u64::from(packet.segment.sequence);
        let told = now.0 ^ what.wrapping_mul(ODD);
        self.digest = (self.digest.rotate_left(23) ^ told).wrapping_mul(ODD);
        self.deliveries += 1;
    }
}

/// Members and links under one clock.
#[derive(Debug)]
pub struct Network<M, T = ()> {
    now: Time,
    calendar: Calendar,
    links: Vec<Link>,
    ends: Vec<End>,
    /// Whether what leaves a link goes straight into the next one's flight.
    fused: Vec<bool>,
    members: Vec<M>,
    /// The links at each member's ports.
    ports: Vec<Vec<u32>>,
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

/// The parts of a network that stands still.
#[derive(Debug)]
pub struct Plan<M> {
    /// The links.
    pub links: Vec<Link>,
    /// By route, the links and members that its packets pass, the receiver last. The sender is not
    /// in its own path.
    pub paths: Vec<Vec<Hop>>,
    /// The members, and the links at their ports.
    pub members: Vec<(M, Vec<u32>)>,
}

impl<M: Node<Packet>, T: Tap> Network<M, T> {
    /// Sets `plan` in motion at time zero. With `fuses` false every hop is an event of its own; the
    /// results are the same.
    pub fn new(plan: Plan<M>, tap: T, fuses: bool) -> Network<M, T> {
        let ends = ends(&plan);
        let fused = if fuses { fusible(&plan, &ends) } else { vec![false; plan.links.len()] };
        let calendar = Calendar::new(lanes(&plan, &ends, &fused));
        let links = plan.links;
        let (members, ports): (Vec<M>, Vec<Vec<u32>>) = plan.members.into_iter().unzip();
        let mut network = Network {
            now: Time::ZERO,
            calendar,
            links,
            ends,
            fused,
            members,
            ports,
            journal: Journal::default(),
            tap,
        };
        for member in 0..network.members.len() {
            network.attend(member, Time::ZERO);
        }
        network
    }

    /// Lets everything happen that is due until `end`, that moment included, and makes up for every
    /// departure until then.
    pub fn run_until(&mut self, end: Time) {
        while let Some((now, slot)) = self.calendar.pop(end) {
            self.now = now;
            self.journal.events += 1;
            if slot < self.links.len() {
                self.touch(slot, now);
            } else {
                let member = slot - self.links.len();
                if self.members[member].poll_timeout().is_some_and(|due| due <= now) {
                    self.members[member].handle_timeout(now);
                }
                self.attend(member, now);
            }
        }
        self.now = end;
        for link in 0..self.links.len() {
            self.settle(link, end);
        }
    }

    /// A link's moment has come: a packet lands, or departures are to be made up for.
    #[inline]
    fn touch(&mut self, link: usize, now: Time) {
        self.settle(link, now);
        if self.fused[link] {
            self.watch(link);
            return;
        }
        let Some(packet) = self.links[link].land() else { return };
        if let Some(next) = self.links[link].head() {
            self.calendar.push(link, next);
        }
        match self.onward(link, packet.route) {
            Some(Hop::Link(onward)) => self.send(onward as usize, now, packet),
            Some(Hop::Member(member, port)) => {
                self.deliver(member as usize, Port(u32::from(port)), now, packet);
            }
            None => self.journal.unroutable += 1,
        }
    }

    #[inline]
    fn onward(&self, link: usize, route: Route) -> Option<Hop> {
        match &self.ends[link] {
            End::Alike(hop) => Some(*hop),
            End::ByRoute(table) => table.get(route.0 as usize).copied().flatten(),
            End::Unused => None,
        }
    }

    #[inline]
    fn deliver(&mut self, member: usize, port: Port, now: Time, packet: Packet) {
        self.journal.delivered(now, &packet);
        self.tap.delivered(member, now, &packet);
        self.members[member].receive(now, port, packet);
        self.attend(member, now);
    }

    /// Takes what a member has to send, and notes when it next wants to be told the time.
    #[inline]
    fn attend(&mut self, member: usize, now: Time) {
        while let Some((port, packet)) = self.members[member].poll_transmit(now) {
            let link = self.ports[member][port.0 as usize];
            self.send(link as usize, now, packet);
        }
        // A deadline that moved later is found out when the earlier moment comes.
        if let Some(due) = self.members[member].poll_timeout() {
            let slot = self.links.len() + member;
            if due < self.calendar.get(slot) {
                self.calendar.set(slot, due);
            }
        }
    }

    /// `packet` joins a link's queue.
    #[inline]
    fn send(&mut self, link: usize, now: Time, packet: Packet) {
        if self.links[link].is_fifo() {
            self.pass(link, now, packet);
            return;
        }
        self.settle(link, now);
        let mut drops = Dropping { tap: &mut self.tap, link, now };
        self.links[link].enqueue(now, packet, &mut drops);
        self.settle(link, now);
        if self.fused[link] && self.calendar.get(link) == NEVER {
            self.watch(link);
        }
    }

    /// Sets the alarm of a fused link that has decisions to make.
    #[inline]
    fn watch(&mut self, link: usize) {
        if let Some(alarm) = self.links[link].alarm() {
            self.calendar.set(link, alarm);
        }
    }

    /// Makes up for a link's departures until `now`.
    #[inline]
    fn settle(&mut self, link: usize, now: Time) {
        loop {
            let mut drops = Dropping { tap: &mut self.tap, link, now };
            let Some((arrival, packet)) = self.links[link].depart(now, &mut drops) else { return };
            self.tap.transmitted(link, arrival, &packet);
            if !self.fused[link] {
                self.fly(link, arrival, packet);
            } else if let Some(onward) = self.hand_on(link, arrival, &packet) {
                self.pass(onward, arrival, packet);
            }
        }
    }

    /// `packet` joins the queue of a FIFO at `now`, and of those fused to it when it gets there.
    #[inline]
    fn pass(&mut self, link: usize, now: Time, packet: Packet) {
        let (mut link, mut now) = (link, now);
        loop {
            match self.links[link].admit(now, packet.bytes) {
                Ok(arrival) => {
                    self.tap.transmitted(link, arrival, &packet);
                    if !self.fused[link] {
                        self.fly(link, arrival, packet);
                        return;
                    }
                    let Some(onward) = self.hand_on(link, arrival, &packet) else { return };
                    (link, now) = (onward, arrival);
                }
                Err(reason) => {
                    self.links[link].refuse(reason, packet);
                    self.tap.dropped(link, now, reason, &packet);
                    return;
                }
            }
        }
    }

    /// The FIFO that a packet goes into when it reaches the end of a fused link.
    #[inline]
    fn hand_on(&mut self, link: usize, arrival: Time, packet: &Packet) -> Option<usize> {
        self.links[link].remember(self.now, arrival, packet.bytes);
        match self.onward(link, packet.route) {
            Some(Hop::Link(onward)) => Some(onward as usize),
            _ => {
                self.journal.unroutable += 1;
                None
            }
        }
    }

    #[inline]
    fn fly(&mut self, link: usize, arrival: Time, packet: Packet) {
        if self.links[link].fly(arrival, packet) {
            self.calendar.push(link, arrival);
        }
    }

    /// The moment until which everything has happened.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What came of it so far.
    pub fn journal(&self) -> Journal {
        self.journal
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

    /// Packets wholly transmitted so far, on all links together.
    pub fn packet_hops(&self) -> u64 {
        self.links.iter().map(|link| link.counters(self.now).transmitted_packets).sum()
    }

    /// Whether every link's account is square.
    pub fn balances(&self) -> bool {
        self.links.iter().all(Link::balances)
    }
}

/// Where each link ends, from the paths that lead over it.
fn ends<M>(plan: &Plan<M>) -> Vec<End> {
    let mut ends = vec![End::Unused; plan.links.len()];
    for (route, path) in plan.paths.iter().enumerate() {
        for pair in path.windows(2) {
            let (Hop::Link(link), hop) = (pair[0], pair[1]) else { continue };
            let end = &mut ends[link as usize];
            match end {
                End::Unused => *end = End::Alike(hop),
                End::Alike(known) if *known == hop => {}
                End::Alike(_) => *end = End::ByRoute(vec![None; plan.paths.len()]),
                End::ByRoute(_) => {}
            }
            if let End::ByRoute(table) = end {
                table[route] = Some(hop);
            }
        }
    }
    // A table that was begun late lacks the routes that came before.
    for (route, path) in plan.paths.iter().enumerate() {
        for pair in path.windows(2) {
            if let (Hop::Link(link), hop) = (pair[0], pair[1])
                && let End::ByRoute(table) = &mut ends[link as usize]
            {
                table[route] = Some(hop);
            }
        }
    }
    ends
}

/// Who feeds each link: the one link that does, or none (senders do, or several links).
fn feeders<M>(plan: &Plan<M>) -> Vec<Option<u32>> {
    let mut feeders: Vec<Option<Option<u32>>> = vec![None; plan.links.len()];
    for path in &plan.paths {
        let mut before = None;
        for hop in path {
            let Hop::Link(link) = *hop else {
                before = None;
                continue;
            };
            let feeder = &mut feeders[link as usize];
            *feeder = match *feeder {
                None => Some(before),
                Some(known) if known == before => Some(known),
                Some(_) => Some(None),
            };
            before = Some(link);
        }
    }
    feeders.into_iter().map(Option::flatten).collect()
}

/// Which links may pass what leaves them straight into the next link's flight: those that are
/// followed by nothing but FIFOs which nothing else feeds.
fn fusible<M>(plan: &Plan<M>, ends: &[End]) -> Vec<bool> {
    let feeders = feeders(plan);
    let follows = |link: usize, hop: &Hop| match hop {
        Hop::Link(next) => {
            feeders[*next as usize] == Some(link as u32) && plan.links[*next as usize].is_fifo()
        }
        Hop::Member(..) => false,
    };
    let fuses = |(link, end): (usize, &End)| match end {
        End::Unused => false,
        End::Alike(hop) => follows(link, hop),
        End::ByRoute(table) => table.iter().flatten().all(|hop| follows(link, hop)),
    };
    ends.iter().enumerate().map(fuses).collect()
}

/// A lane for each of the largest groups of links that are alike: of one rate and one delay, behind
/// the same fused link or behind none, and ending alike.
fn lanes<M>(plan: &Plan<M>, ends: &[End], fused: &[bool]) -> Vec<u8> {
    let feeders = feeders(plan);
    let mut groups = BTreeMap::new();
    for (link, made) in plan.links.iter().enumerate() {
        if fused[link] {
            continue;
        }
        let behind = feeders[link].filter(|&feeder| fused[feeder as usize]);
        let is_last = matches!(ends[link], End::Alike(Hop::Member(..)));
        let group: &mut Vec<usize> = groups.entry((behind, is_last, made.kind())).or_default();
        group.push(link);
    }
    let mut largest: Vec<Vec<usize>> = groups.into_values().collect();
    largest.sort_by_key(|group| Reverse(group.len()));
    let mut lanes = vec![GENERAL; plan.links.len() + plan.members.len()];
    for (lane, group) in largest.into_iter().take(LANES_LIMIT).enumerate() {
        for link in group {
            lanes[link] = lane as u8;
        }
    }
    lanes
}
