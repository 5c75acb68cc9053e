//! A link: a queue, a transmitter and a length of wire, with at most one pending event between them.
//!
//! A naive simulator schedules the end of each transmission and the end of each flight. Neither is
//! needed.
//!
//! *Flight.* Packets land in the order in which they left. A packet that found its link idle goes
//! into the calendar at once, with its landing; one that had to wait for another *follows* it, and
//! goes there when that one lands.
//!
//! *First come, first served.* When a packet joins a FIFO, its fate is decided: it leaves when those
//! before it have left, at max(now, last departure) plus its own time on the link. What waits at a
//! moment, in bytes, is the time until the transmitter is free times the rate; no queue is kept. Tail
//! drop is a FIFO with another account of its buffer: a moment and a length for each that waits.
//!
//! *Other disciplines* decide at each departure, from what has arrived by then. But a decision needs
//! to be made only before its consequence, and its consequence is an arrival at the far end, at
//! least the length of the wire later. So the transmitter *runs in arrears*: whenever the link is
//! touched (an arrival at the queue, the head of the flight landing, an alarm), it first makes up
//! for every departure since, each at its own moment and in its order. The discipline is given
//! exactly the moments that it would have been given, and sees exactly the queue that it would have
//! seen.
//!
//! *Fusion.* Where a FIFO is fed by one link alone, through a router that takes no time, what leaves
//! the first has its departure from the second decided too, and goes straight into the second's
//! flight: one event for two hops. The first link has then no flight of its own; it remembers the
//! departures that lie behind the horizon, so that its counters are right at that moment.
//!
//! At one moment, the end of a transmission comes before arrivals at the queue: a transmitter that
//! becomes free takes the next packet, then the newcomer joins. It also polls an empty queue, as
//! drivers do: that is how CoDel and its like learn that the queue has been empty.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::mem::{offset_of, replace};

use nilometer_queue::{Any, Backlog, Discipline, Drops, Ledger, Reason, Tally, VirtualTailDrop};
use nilometer_stat::Rng;
use nilometer_wire::{Port, Rate, Span, Time};

use crate::followers::Followers;
use crate::hop::{Hop, LinkFacts, Turns};
use crate::packet::{Packet, Route};
use crate::parcel::{Annex, Parcel};

/// The purpose of the random stream of processing times.
const PURPOSE_OVERHEAD: u32 = 0x4c49_0001;

/// What waits before a transmitter.
#[derive(Debug)]
pub enum Queue {
    /// First come, first served.
    Fifo {
        /// A packet is refused when more bytes than this wait before it, the rest of the packet on the
        /// link included.
        limit_bytes: u64,
    },
    /// Any discipline; the packet on the link has left it.
    Discipline(Any<Packet>),
}

/// Counters of a link at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered to the queue.
    pub offered_packets: u64,
    /// Packets wholly transmitted.
    pub transmitted_packets: u64,
    /// Bytes wholly transmitted.
    pub transmitted_bytes: u64,
    /// What was dropped, by reason.
    pub drops: Tally,
}

/// The random time that a sender's processing takes before each packet.
#[derive(Debug)]
struct Overhead {
    most: Span,
    chance: Rng,
}

/// One direction of a wire with its transmitter and its queue.
///
/// The fields that each packet needs stand first, in one cache line, and those needed by a packet that
/// has to wait for another in the next: with hundreds of links, cache misses are the cost of a packet.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Link {
    /// When the transmitter is free, or was last.
    free_at: Time,
    delay: Span,
    /// Of a FIFO: the longest time until the transmitter is free.
    limit: Span,
    /// The last length looked up and its time on the link: most packets of a link are alike.
    last_bytes: u16,
    mtu: u16,
    is_fifo: bool,
    /// Whether a discipline has not been found empty since it was last given a packet.
    is_busy: bool,
    /// Whether the next departure from a discipline follows another without a pause.
    is_streaming: bool,
    /// Whether it is a FIFO with random times, or with tail drop's account of its buffer.
    is_particular: bool,
    last_span: Span,
    /// Packets that have departed one after another with the last length, modulo 2³².
    alike: u32,
    /// Packets that have departed for the far end and not landed there, those that follow included.
    pub(crate) pending: u32,
    /// Those that follow.
    following: u32,
    /// What comes after it.
    pub(crate) way: LinkFacts,
    /// Packets on the wire or soon to be, that follow others.
    followers: Followers,
    pub(crate) turns: Turns,
    /// Packets and bytes that departed, except those that are counted as alike.
    out_packets: u64,
    out_bytes: u64,
    rate: Rate,
    discipline: Option<Box<Any<Packet>>>,
    virtual_drop: Option<Box<VirtualTailDrop>>,
    overhead: Option<Box<Overhead>>,
    /// Of a link without a flight of its own: departures that lay behind the horizon.
    ahead: VecDeque<(Time, u16)>,
    /// What a discipline was given.
    in_packets: u64,
    in_bytes: u64,
    drops: Tally,
}

const _: () = assert!(offset_of!(Link, followers) == 64);

impl Link {
    /// A link of `rate` and `delay` that takes packets of at most `mtu` bytes.
    pub fn new(rate: Rate, delay: Span, mtu: u16, queue: Queue) -> Link {
        let (limit, virtual_drop, discipline) = match queue {
            Queue::Fifo { limit_bytes } => (rate.span_of(limit_bytes), None, None),
            Queue::Discipline(discipline) => match discipline.virtual_tail_drop() {
                Some(virtual_drop) => (Span(u64::MAX), Some(Box::new(virtual_drop)), None),
                None => (Span::ZERO, None, Some(Box::new(discipline))),
            },
        };
        Link {
            free_at: Time::ZERO,
            delay,
            limit,
            last_bytes: 0,
            mtu,
            is_fifo: discipline.is_none(),
            is_busy: false,
            is_streaming: false,
            is_particular: virtual_drop.is_some(),
            last_span: Span::ZERO,
            alike: 0,
            pending: 0,
            following: 0,
            way: LinkFacts::default(),
            followers: Followers::default(),
            turns: Turns::default(),
            out_packets: 0,
            out_bytes: 0,
            rate,
            discipline,
            virtual_drop,
            overhead: None,
            ahead: VecDeque::new(),
            in_packets: 0,
            in_bytes: 0,
            drops: Tally::default(),
        }
    }

    /// Makes a FIFO's transmitter take a random time before each packet, uniform below `most`: the
    /// processing of a host, which keeps deterministic flows from locking into phase with a queue
    /// (Floyd and Jacobson 1992; ns-2's `overhead_`). Link number `index` of a run with `seed`.
    pub fn with_overhead(mut self, most: Span, seed: u64, index: u64) -> Link {
        if most > Span::ZERO {
            let chance = Rng::new(seed, PURPOSE_OVERHEAD, index);
            self.overhead = Some(Box::new(Overhead { most, chance }));
            self.is_particular = true;
        }
        self
    }

    /// Whether its queue is a plain FIFO, whose departures are known on arrival.
    #[inline]
    pub fn is_fifo(&self) -> bool {
        self.is_fifo
    }

    /// A packet of `bytes` joins a FIFO's queue at `now`: returns when it reaches the far end and
    /// whether it has to follow another, or why it is dropped.
    #[inline(always)]
    pub fn admit(&mut self, now: Time, bytes: u16) -> Result<(Time, bool), Reason> {
        if self.last_bytes != bytes {
            // What was let pass last need not be measured against the MTU again.
            if bytes > self.mtu {
                return Err(Reason::TooBig);
            }
            self.measure(bytes);
        }
        if self.free_at.since(now) > self.limit {
            return Err(Reason::Full);
        }
        let follows = self.free_at > now;
        let mut start = if follows { self.free_at } else { now };
        if self.is_particular {
            start = self.admit_particular(now, start, bytes)?;
        }
        Ok((self.transmit(start), follows))
    }

    /// When a packet that could begin at `start` does begin, given the random times and tail drop's
    /// account. A function of its own, because most links have neither.
    #[inline(never)]
    fn admit_particular(&mut self, now: Time, start: Time, bytes: u16) -> Result<Time, Reason> {
        let mut start = start;
        if let Some(overhead) = &mut self.overhead {
            start += Span(overhead.chance.below(overhead.most.0));
        }
        if let Some(virtual_drop) = &mut self.virtual_drop {
            if let Some(reason) = virtual_drop.refusal(now, u32::from(bytes)) {
                return Err(reason);
            }
            virtual_drop.push(start, u32::from(bytes));
        }
        Ok(start)
    }

    /// Counts a packet that [`Link::admit`] refused.
    pub fn refuse(&mut self, reason: Reason, packet: Packet) {
        self.drops.dropped(reason, packet);
    }

    /// `packet` joins a discipline's queue at `now`, after [`Link::depart`] had nothing more to
    /// give.
    #[inline]
    pub fn enqueue(&mut self, now: Time, packet: &Packet, drops: &mut impl Drops<Packet>) {
        self.in_packets += 1;
        self.in_bytes += u64::from(packet.bytes);
        let mut drops = CountingDrops(&mut self.drops, drops);
        let Some(discipline) = &mut self.discipline else { return };
        if packet.bytes > self.mtu {
            drops.dropped(Reason::TooBig, *packet);
            return;
        }
        discipline.enqueue(now, *packet, &mut drops);
        if !self.is_busy {
            self.is_busy = true;
            self.is_streaming = false;
            self.free_at = self.free_at.max(now);
        }
    }

    /// The next departure that was due by `now` and is not made up for yet: a packet, its arrival at
    /// the far end, and whether it follows another without a pause.
    #[inline]
    pub fn depart(
        &mut self,
        now: Time,
        drops: &mut impl Drops<Packet>,
    ) -> Option<(Time, Packet, bool)> {
        while self.is_busy && self.free_at <= now {
            let discipline = self.discipline.as_mut()?;
            let mut drops = CountingDrops(&mut self.drops, drops);
            match discipline.dequeue(self.free_at, &mut drops) {
                Some(packet) => {
                    let follows = replace(&mut self.is_streaming, true);
                    if self.last_bytes != packet.bytes {
                        self.measure(packet.bytes);
                    }
                    return Some((self.transmit(self.free_at), packet, follows));
                }
                None => self.is_busy = false,
            }
        }
        None
    }

    /// Puts a packet of the length measured last on the wire at `start`, when the transmitter is free.
    #[inline]
    fn transmit(&mut self, start: Time) -> Time {
        // A run ends long before the end of time.
        self.free_at = Time(start.0 + self.last_span.0);
        self.alike = self.alike.wrapping_add(1);
        if self.alike == 0 {
            self.carry();
        }
        Time(self.free_at.0 + self.delay.0)
    }

    /// Counts the 2³² packets that [`Link::alike`] has forgotten.
    #[cold]
    fn carry(&mut self) {
        self.out_packets += 1 << 32;
        self.out_bytes += u64::from(self.last_bytes) << 32;
    }

    #[inline(never)]
    fn measure(&mut self, bytes: u16) {
        (self.out_packets, self.out_bytes) = self.departed();
        self.alike = 0;
        self.last_bytes = bytes;
        self.last_span = self.rate.span_of(u64::from(bytes));
    }

    /// Packets and bytes that have departed.
    fn departed(&self) -> (u64, u64) {
        let alike = u64::from(self.alike);
        (self.out_packets + alike, self.out_bytes + alike * u64::from(self.last_bytes))
    }

    /// Where a packet on `route` goes when it has landed.
    #[inline(always)]
    pub(crate) fn onward(&self, route: Route) -> Option<&Hop> {
        self.way.onward(&self.turns, route)
    }

    /// Whether departures may have to be made up for.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// When decisions not yet made could first be felt at the far end, if any are due.
    #[inline]
    pub fn alarm(&self) -> Option<Time> {
        let discipline = self.discipline.as_ref().filter(|_| self.is_busy)?;
        (discipline.backlog().packets > 0).then_some(self.free_at + self.delay)
    }

    /// Keeps a packet that follows another until that one, which was the last, lands.
    #[inline(always)]
    pub(crate) fn follow(&mut self, annex: &mut Annex, arrival: Time, packet: &Packet) {
        // Not after the one before it lands: between the two are this packet's time and the overhead.
        let mut own = self.last_span;
        if self.is_particular {
            own = own + self.overhead.as_ref().map_or(Span::ZERO, |overhead| overhead.most);
        }
        let after = Time(arrival.0.saturating_sub(own.0));
        self.following += 1;
        self.followers.push(annex, after, arrival, packet);
    }

    /// The member at its end and the port there, if what lands at `arrival` may be delivered to it in advance.
    #[inline(always)]
    pub(crate) fn delivers_ahead(&self, arrival: Time, horizon: Time) -> Option<(u32, Port)> {
        if !self.way.is_eager || self.pending > 0 || arrival > horizon {
            return None;
        }
        self.way.member()
    }

    /// A packet has landed: the one that followed it, if one did, and its landing.
    #[inline(always)]
    pub(crate) fn follower(&self, landed: Time) -> Option<(Time, &Parcel)> {
        if self.following == 0 { None } else { self.followers.first(landed) }
    }

    /// The one that followed is on its way.
    #[inline(always)]
    pub(crate) fn let_follower_go(&mut self) {
        self.following -= 1;
        self.followers.drop_first();
    }

    /// Remembers a departure that is passed to another link's flight, if it is after `horizon`: the
    /// counters are not read before then. `clock` is the moment until which everything has happened.
    #[inline(always)]
    pub fn remember(&mut self, clock: Time, horizon: Time, arrival: Time, bytes: u16) {
        // It has just departed, so that the transmitter is free when it has left.
        if self.free_at > horizon {
            self.remember_late(clock, arrival, bytes);
        }
    }

    #[inline(never)]
    fn remember_late(&mut self, clock: Time, arrival: Time, bytes: u16) {
        while self.ahead.front().is_some_and(|&(lands, _)| lands <= clock + self.delay) {
            self.ahead.pop_front();
        }
        self.ahead.push_back((arrival, bytes));
    }

    /// What waits at `now`, after [`Link::depart`] had nothing more to give. A FIFO limited in bytes
    /// knows only its bytes, including the rest of the packet on the link.
    pub fn backlog(&self, now: Time) -> Backlog {
        if let Some(virtual_drop) = &self.virtual_drop {
            return virtual_drop.backlog(now);
        }
        match &self.discipline {
            Some(discipline) => discipline.backlog(),
            None => {
                let bytes = self.rate.bytes_in(self.free_at.since(now));
                Backlog { packets: 0, bytes: bytes as u64 }
            }
        }
    }

    /// Packets in its keeping: those that wait in a discipline, and those that follow others and are
    /// not in the calendar yet. A FIFO keeps none that waits.
    pub fn kept(&self) -> u64 {
        let waiting = self.discipline.as_ref().map_or(0, |discipline| discipline.backlog().packets);
        waiting + u64::from(self.following)
    }

    /// The counters at `now`, at which everything due has been made up for. Packets that follow
    /// others or are passed on and have not wholly left the transmitter are not counted; the caller
    /// knows about those in the calendar ([`Link::is_leaving`]).
    pub fn counters(&self, now: Time) -> Counters {
        let (offered_packets, _) = self.offered();
        let (transmitted_packets, transmitted_bytes) = self.departed();
        let mut counters =
            Counters { offered_packets, transmitted_packets, transmitted_bytes, drops: self.drops };
        let leaving = self.followers.landings().chain(self.ahead.iter().copied());
        for (_, bytes) in leaving.filter(|&(lands, _)| self.is_leaving(now, lands)) {
            counters.transmitted_packets -= 1;
            counters.transmitted_bytes -= u64::from(bytes);
        }
        counters
    }

    /// Whether a packet that lands at `lands` has not wholly left the transmitter at `now`.
    #[inline]
    pub fn is_leaving(&self, now: Time, lands: Time) -> bool {
        lands > now + self.delay
    }

    /// Rate and delay: links that share both write their landings in nearly the order of time.
    pub fn kind(&self) -> (Rate, Span) {
        (self.rate, self.delay)
    }

    /// Packets and bytes offered: those a discipline was given; a FIFO keeps or drops at once.
    fn offered(&self) -> (u64, u64) {
        if self.is_fifo {
            let (packets, bytes) = (self.drops.total_packets(), self.drops.total_bytes());
            let (out_packets, out_bytes) = self.departed();
            return (out_packets + packets, out_bytes + bytes);
        }
        (self.in_packets, self.in_bytes)
    }

    /// Whether what came in is what left, was dropped or waits, in packets and in bytes.
    pub fn balances(&self) -> bool {
        let waiting = self.discipline.as_ref().map(|d| d.backlog()).unwrap_or_default();
        let (in_packets, in_bytes) = self.offered();
        let ((out_packets, out_bytes), drops) = (self.departed(), self.drops);
        Ledger { in_packets, in_bytes, out_packets, out_bytes, drops }.balances(waiting)
    }
}

/// Counts drops in the link's own account and passes them on.
struct CountingDrops<'a, D>(&'a mut Tally, &'a mut D);

impl<D: Drops<Packet>> Drops<Packet> for CountingDrops<'_, D> {
    fn dropped(&mut self, reason: Reason, packet: Packet) {
        self.0.dropped(reason, packet);
        self.1.dropped(reason, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_the_count_of_like_packets_overflows() {
        let queue = Queue::Fifo { limit_bytes: 1 << 20 };
        let mut link = Link::new(Rate::from_megabits(1_000), Span::ZERO, 1_500, queue);
        link.admit(Time::ZERO, 1_000).expect("room");
        link.alike = u32::MAX - 1;
        for _ in 0..3 {
            link.admit(Time::ZERO, 1_000).expect("room");
        }
        link.admit(Time::ZERO, 40).expect("room");
        let departed = (1 << 32) + 1;
        assert_eq!(link.departed(), (departed + 1, departed * 1_000 + 40));
        assert_eq!(link.admit(Time::ZERO, 1_501), Err(Reason::TooBig));
        assert_eq!(link.departed(), (departed + 1, departed * 1_000 + 40));
        assert!(link.balances());
    }
}
