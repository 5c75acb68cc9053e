//! A TCP host as a node over frames: many connections behind one interface.
//!
//! Each connection is an end of a script ([`Scripted`]). What its TCP sends becomes a frame with real headers,
//! checksums and zeros for payload, in the memory that the driver lends; what arrives is read from bytes, and a
//! segment whose checksum is wrong is dropped, as a kernel drops it. So a host stands on a real wire as well as on a
//! virtual one, and a device between two hosts sees what it would see in a laboratory.
//!
//! A client's end begins at its start, a server's with the first segment for it. When TCP has closed, only a report
//! is kept, and segments that still arrive for it are answered by a reset (RFC 9293, 3.10.7.1).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::SocketAddr;

use nilometer_conversation::{Opening, Side};
use nilometer_stat::Histogram;
use nilometer_tcp::bytes::{Ends, emit};
use nilometer_tcp::segment::SYN;
use nilometer_tcp::{Config, Connection, Segment, State};
use nilometer_wire::memory::{Memory, Place};
use nilometer_wire::{Ecn, Node, Port, Span, Time};

use crate::packet::{Packet, Route};
use crate::scripted::{Part, Scripted};
use frame::{ReceivedFrame, headers, read};

mod frame;

/// An event that is handled later than this after it was due is late.
pub const LATE: Span = Span::from_nanos(1_000_000);

/// The link-layer addresses at both ends of a host's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddresses {
    /// The host's.
    pub own: [u8; 6],
    /// Its neighbour's, to which all frames go.
    pub peer: [u8; 6],
}

/// One end of a connection that a host is to perform.
#[derive(Clone, Debug)]
pub struct PlannedEnd {
    /// From the host (source) to the other one (destination).
    pub ends: Ends,
    /// What it does, and when.
    pub part: Part,
    /// Its stack, before what its script makes of it.
    pub stack: Config,
    /// The first sequence number of its TCP.
    pub initial_sequence: u32,
}

/// What became of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndReport {
    /// When it began: a client at its start, a server with the first segment for it.
    pub began: Option<Time>,
    /// When it had done all of its steps and received all of the other end's ([`Scripted::finished`]).
    pub finished: Option<Time>,
    /// When TCP had closed.
    pub closed: Option<Time>,
    /// Whether the handshake was completed.
    pub was_established: bool,
    /// Payload bytes that arrived in order.
    pub received_bytes: u64,
    /// Segments that TCP sent again.
    pub retransmitted: u64,
}

/// Frames of a host, by what became of them; its ends and events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Frames that came.
    pub received: u64,
    /// Of these, those that are not TCP segments over IPv4 or IPv6.
    pub not_tcp: u64,
    /// Those with a checksum that is wrong.
    pub corrupted: u64,
    /// Those for no connection, which were answered by a reset or are resets themselves.
    pub strays: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Segments for which the memory had no room.
    pub no_room: u64,
    /// Ends that have begun.
    pub began: u64,
    /// Of these, those that have done and received all, or whose TCP has closed.
    pub done: u64,
    /// Events handled later than [`LATE`] after they were due.
    pub late: u64,
}

/// A connection's end: to come, there, or over.
#[derive(Debug)]
enum Phase {
    Planned(Box<(Part, Config, u32)>),
    Alive(Box<Scripted>),
    Over,
}

#[derive(Debug)]
struct HostConnection {
    ends: Ends,
    phase: Phase,
    /// It begins by itself, at its start.
    is_client: bool,
    /// Ignores every segment, as there is no server.
    is_deaf: bool,
    /// Its entry in the heap of timers; `None` if there is none that counts.
    armed: Option<Time>,
    is_ready: bool,
    /// It is counted among those that have done all.
    is_done: bool,
    /// The identification of its next IPv4 packet.
    identification: u16,
    report: EndReport,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    link: LinkAddresses,
    talks: Vec<HostConnection>,
    /// By addresses and ports, which may be used again, the talks in the order of their starts.
    by_ends: BTreeMap<(SocketAddr, SocketAddr), Vec<u32>>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    /// Talks that may have something to send.
    ready: VecDeque<u32>,
    /// Resets to be sent for segments of no connection.
    resets: VecDeque<(Ends, Segment)>,
    counts: HostCounts,
    lateness_ns: Histogram,
    packet: Packet,
    bytes: Vec<u8>,
}

impl Host {
    /// A host that performs `ends`, by start. Addresses and ports may be used again: a server goes over to the next
    /// connection of a pair with a SYN that comes when the one before it is closed, or waits to be forgotten.
    pub fn new(link: LinkAddresses, ends: Vec<PlannedEnd>) -> Host {
        let (mut talks, mut timers) = (Vec::new(), BinaryHeap::new());
        let mut by_ends: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for (index, planned) in ends.into_iter().enumerate() {
            let PlannedEnd { ends, part, stack, initial_sequence } = planned;
            let is_client = part.side == Side::Client;
            by_ends.entry((ends.source, ends.destination)).or_default().push(index as u32);
            if is_client {
                timers.push(Reverse((part.start, index as u32)));
            }
            talks.push(HostConnection {
                ends,
                is_client,
                is_deaf: !is_client && part.script.opening == Opening::Unanswered,
                armed: is_client.then_some(part.start),
                phase: Phase::Planned(Box::new((part, stack, initial_sequence))),
                is_ready: false,
                is_done: false,
                identification: initial_sequence as u16,
                report: EndReport::default(),
            });
        }
        Host {
            link,
            talks,
            by_ends,
            timers,
            ready: VecDeque::new(),
            resets: VecDeque::new(),
            counts: HostCounts::default(),
            lateness_ns: Histogram::new(),
            packet: Packet::default(),
            bytes: Vec::new(),
        }
    }

    /// What became of each end, in the order in which they were given.
    pub fn reports(&self) -> impl Iterator<Item = EndReport> + '_ {
        self.talks.iter().map(|talk| match &talk.phase {
            Phase::Alive(end) => report(end, talk.report),
            _ => talk.report,
        })
    }

    /// Its frames, ends and events.
    pub fn counts(&self) -> HostCounts {
        self.counts
    }

    /// How many ends it has to perform.
    pub fn ends(&self) -> usize {
        self.talks.len()
    }

    /// How long after they were due its events were handled, ns: starts, steps that waited, and timers of TCP. Under a
    /// virtual clock all are 0.
    pub fn lateness_ns(&self) -> &Histogram {
        &self.lateness_ns
    }

    /// Whether every end has begun and is over.
    pub fn is_over(&self) -> bool {
        self.timers.is_empty() && self.ready.is_empty() && self.resets.is_empty()
    }

    /// The live end of talk number `index`; a planned one begins with this call.
    fn alive(&mut self, index: u32, now: Time) -> Option<&mut Scripted> {
        let talk = &mut self.talks[index as usize];
        if let Phase::Planned(planned) = &talk.phase {
            let (part, stack, sequence) = (**planned).clone();
            talk.report.began = Some(now);
            self.counts.began += 1;
            talk.phase = Phase::Alive(Box::new(Scripted::new(part, stack, Route(0), sequence)));
        }
        match &mut talk.phase {
            Phase::Alive(end) => Some(end),
            _ => None,
        }
    }

    fn make_ready(&mut self, index: u32) {
        let talk = &mut self.talks[index as usize];
        if !talk.is_ready {
            talk.is_ready = true;
            self.ready.push_back(index);
        }
    }

    /// A segment arrived between these ends, as seen from here.
    fn hear(&mut self, now: Time, ends: &Ends, segment: Segment, ecn: Ecn) {
        let Some(index) = self.listener(now, ends, &segment) else {
            return self.stray(now, ends, &segment);
        };
        if self.talks[index as usize].is_deaf {
            return;
        }
        match self.alive(index, now) {
            Some(end) => {
                let packet = Packet { segment, ecn, ..Packet::default() };
                end.receive(now, Port(0), &packet, &mut ());
                self.make_ready(index);
            }
            None => self.stray(now, ends, &segment),
        }
    }

    /// The talk that a segment belongs to: the live connection, or the next server if it is a SYN.
    fn listener(&mut self, now: Time, ends: &Ends, segment: &Segment) -> Option<u32> {
        let all = self.by_ends.get(&(ends.source, ends.destination))?;
        let talk = |index: &&u32| &self.talks[**index as usize];
        let is_alive = |index: &&u32| matches!(talk(index).phase, Phase::Alive(_));
        let waits =
            |index: &&u32| !talk(index).is_client && matches!(talk(index).phase, Phase::Planned(_));
        let alive = all.iter().rev().find(is_alive).copied();
        let next = all.iter().find(waits).copied().filter(|_| segment.has(SYN));
        if let (Some(before), Some(next)) = (alive, next) {
            let talk = &mut self.talks[before as usize];
            let Phase::Alive(end) = &talk.phase else { return Some(next) };
            if end.connection().state() != State::TimeWait {
                return Some(before);
            }
            talk.report = EndReport { closed: Some(now), ..report(end, talk.report) };
            (talk.phase, talk.armed) = (Phase::Over, None);
        }
        next.or(alive)
    }

    /// A segment for no connection: a closed one answers it.
    fn stray(&mut self, now: Time, ends: &Ends, segment: &Segment) {
        self.counts.strays += 1;
        let mut closed = Connection::listen(Config::rfc(), 0);
        closed.close();
        closed.receive(now, segment, Ecn::NotCapable);
        let mut answer = Segment::default();
        if closed.poll_transmit_into(now, &mut answer).is_some() {
            self.resets.push_back((*ends, answer));
        }
    }

    /// Notes the next deadline of talk number `index`, or that it is over.
    fn rest(&mut self, index: u32, now: Time) {
        let talk = &mut self.talks[index as usize];
        let Phase::Alive(end) = &talk.phase else { return };
        let due = end.poll_timeout();
        let is_closed = end.connection().state() == State::Closed;
        if !talk.is_done && (is_closed || end.finished().is_some()) {
            talk.is_done = true;
            self.counts.done += 1;
        }
        if is_closed && due.is_none() {
            talk.report = EndReport { closed: Some(now), ..report(end, talk.report) };
            (talk.phase, talk.armed) = (Phase::Over, None);
            return;
        }
        // (A deadline that moved later is noticed when the earlier one passes.)
        if let Some(due) = due
            && talk.armed.is_none_or(|armed| due < armed)
        {
            talk.armed = Some(due);
            self.timers.push(Reverse((due, index)));
        }
    }

    /// The next timer that has run out: its talk, unless it no longer counts.
    fn run_out(&mut self, now: Time) -> Option<Option<u32>> {
        let &Reverse((due, index)) = self.timers.peek()?;
        if due > now {
            return None;
        }
        self.timers.pop();
        let talk = &mut self.talks[index as usize];
        if talk.armed != Some(due) {
            return Some(None);
        }
        talk.armed = None;
        let late = now.since(due);
        self.lateness_ns.record(late.as_nanos());
        self.counts.late += u64::from(late > LATE);
        Some(Some(index))
    }

    /// Puts a segment into a frame. (It takes only part of the host: segments are large, and would be copied.)
    fn frame<M: Memory>(
        (link, bytes, counts): (&LinkAddresses, &mut Vec<u8>, &mut HostCounts),
        ends: &Ends,
        (segment, ecn, identification): (&Segment, Ecn, u16),
        memory: &mut M,
    ) -> Option<Place> {
        bytes.clear();
        headers(link, ends, (segment, ecn, identification), bytes);
        emit(segment, ends, bytes);
        let room = u16::try_from(bytes.len()).ok().and_then(|length| memory.take(length));
        match room {
            Some(place) => {
                memory.frame_mut(place).copy_from_slice(bytes);
                counts.sent += 1;
            }
            None => counts.no_room += 1,
        }
        room
    }
}

/// The report on a live end.
fn report(end: &Scripted, before: EndReport) -> EndReport {
    let connection = end.connection();
    EndReport {
        finished: end.finished(),
        was_established: before.was_established || end.was_established(),
        received_bytes: connection.delivered(),
        retransmitted: connection.statistics().retransmitted_segments,
        ..before
    }
}

impl<M: Memory> Node<Place, M> for Host {
    fn receive(&mut self, now: Time, _port: Port, frame: &Place, memory: &mut M) {
        self.counts.received += 1;
        let frame_kind = read(memory.frame(*frame));
        memory.give(*frame);
        match frame_kind {
            ReceivedFrame::Segment(it) => {
                let (ends, segment, ecn) = *it;
                self.hear(now, &ends, segment, ecn);
            }
            ReceivedFrame::NotTcp => self.counts.not_tcp += 1,
            ReceivedFrame::Corrupted => self.counts.corrupted += 1,
        }
    }

    fn handle_timeout(&mut self, now: Time, _: &mut M) {
        while let Some(ran_out) = self.run_out(now) {
            let Some(index) = ran_out else { continue };
            if let Some(end) = self.alive(index, now) {
                end.handle_timeout(now, &mut ());
                self.make_ready(index);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, frame: &mut Place, memory: &mut M) -> Option<Port> {
        while let Some((ends, answer)) = self.resets.pop_front() {
            let out = (&self.link, &mut self.bytes, &mut self.counts);
            if let Some(place) = Host::frame(out, &ends, (&answer, Ecn::NotCapable, 0), memory) {
                *frame = place;
                return Some(Port(0));
            }
        }
        while let Some(&index) = self.ready.front() {
            let talk = &mut self.talks[index as usize];
            let sends = match &mut talk.phase {
                Phase::Alive(end) => end.poll_transmit(now, &mut self.packet, &mut ()).is_some(),
                _ => false,
            };
            if !sends {
                talk.is_ready = false;
                self.ready.pop_front();
                self.rest(index, now);
                continue;
            }
            talk.identification = talk.identification.wrapping_add(1);
            let (ends, identification) = (talk.ends, talk.identification);
            let what = (&self.packet.segment, self.packet.ecn, identification);
            let out = (&self.link, &mut self.bytes, &mut self.counts);
            if let Some(place) = Host::frame(out, &ends, what, memory) {
                *frame = place;
                return Some(Port(0));
            }
        }
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.timers.peek().map(|&Reverse((due, _))| due)
    }
}

#[cfg(test)]
mod tests;
