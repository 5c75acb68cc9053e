//! A box with two ports that treats packets as bad networks do: loses, repeats, delays, corrupts them.
//!
//! What comes in at one port goes out at the other, and each direction has faults of its own. Each packet meets
//! them in this order:
//!
//! ```text
//!   loss ── corruption ── duplication ── link of a rate, with a queue ── delay and jitter ── reordering
//! ```
//!
//! *Loss* is at a constant probability, by the two states of Gilbert and Elliott, in turn, of stated packets, or
//! of all while the link is cut ([`Timetable`]). The memory implements *corruption* ([`Frames`]): a bit is
//! flipped, or, where frames have no bytes, the packet is dropped, as a receiver's checksum would, and counted
//! apart. By *duplication* a second copy follows at once. A *link of a rate* sends one packet after the other,
//! and drops those that find its queue full. The *delay* is constant or follows a trace; *jitter* is drawn by a
//! law for each packet. Both keep the order: where packets come closer together than the delay falls, one waits
//! for the one in front, and the mean exceeds the delay. By *reordering* a packet is held back for a while, so
//! that those behind it overtake. Each fault has a random stream of its own, named by the seed, the box and the
//! direction, so that switching one on does not change the chances of another.
//!
//! A box may have several *paths*, each with a link and faults of its own: the caller chooses the path of each
//! packet ([`FaultBox::receive_on`]), by its address pair for instance.
//!
//! The box is a [`Node`] over frames of any kind: records of the simulator under the virtual clock, and buffers of a
//! packet memory under the real one. What it decides, and when, can be kept as [`Event`]s: the ground truth that a
//! meter is compared with.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::mem;

use nilometer_stat::Rng;
use nilometer_wire::{Node, Port, Span, Time};

use crate::fault::{Event, FaultCounts, Faults, Frames, JitterLaw, Timetable, What};
use crate::packet::Packet;

const PURPOSE_LOSS: u32 = 0x4641_0001;
const PURPOSE_STATE: u32 = 0x4641_0002;
const PURPOSE_CORRUPT: u32 = 0x4641_0003;
const PURPOSE_DUPLICATE: u32 = 0x4641_0004;
const PURPOSE_REORDER: u32 = 0x4641_0005;
const PURPOSE_JITTER: u32 = 0x4641_0006;
/// The streams of the way back are those of a box with this in its number.
const BACK: u64 = 1 << 63;
/// The streams of a path are those of a box whose number is higher by this for each path before it.
const PATH: u64 = 1 << 32;

/// Identifies a packet: the port by which it arrived, its number there, its path, and its length.
#[derive(Clone, Copy, Debug)]
struct Name {
    port: Port,
    number: u64,
    path: u32,
    link_bytes: u64,
}

/// A frame that leaves later, in the order of moments and then of coming.
#[derive(Debug)]
struct Held<F> {
    due: Time,
    order: u64,
    name: Name,
    is_copy: bool,
    frame: F,
}

impl<F> PartialEq for Held<F> {
    fn eq(&self, other: &Held<F>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<F> Eq for Held<F> {}

impl<F> PartialOrd for Held<F> {
    fn partial_cmp(&self, other: &Held<F>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> Ord for Held<F> {
    /// The earliest is the greatest: the heap gives the greatest.
    fn cmp(&self, other: &Held<F>) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

/// One direction of a path: its faults, their streams, and the link.
#[derive(Debug)]
struct Way {
    faults: Faults,
    timetable: Timetable,
    is_bad: bool,
    came: u64,
    /// When the link is free.
    free_at: Time,
    /// When the packet before leaves that keeps the order.
    before: Time,
    loss: Rng,
    state: Rng,
    corrupt: Rng,
    duplicate: Rng,
    reorder: Rng,
    jitter: Rng,
}

impl Way {
    fn new(faults: Faults, timetable: Timetable, seed: u64, index: u64) -> Way {
        Way {
            faults,
            timetable,
            is_bad: false,
            came: 0,
            free_at: Time::ZERO,
            before: Time::ZERO,
            loss: Rng::new(seed, PURPOSE_LOSS, index),
            state: Rng::new(seed, PURPOSE_STATE, index),
            corrupt: Rng::new(seed, PURPOSE_CORRUPT, index),
            duplicate: Rng::new(seed, PURPOSE_DUPLICATE, index),
            reorder: Rng::new(seed, PURPOSE_REORDER, index),
            jitter: Rng::new(seed, PURPOSE_JITTER, index),
        }
    }

    /// Whether the packet that arrived last is lost, at `since` after the beginning of the traffic.
    fn loses(&mut self, since: Option<Span>) -> bool {
        let faults = self.faults;
        let mut lost = faults.loss > 0.0 && self.loss.unit() < faults.loss;
        if faults.loss_period > 0 && self.came.is_multiple_of(faults.loss_period) {
            lost = true;
        }
        if let Some(channel) = faults.bursts {
            let turns = if self.is_bad { channel.recovers } else { channel.worsens };
            self.is_bad ^= self.state.unit() < turns;
            let loss = if self.is_bad { channel.loss_bad } else { channel.loss_good };
            lost |= self.loss.unit() < loss;
        }
        lost || self.timetable.loses(self.came - 1, since)
    }

    /// When a packet of `bytes` is at the far end; `None` if the link's queue is full.
    fn arrival(&mut self, now: Time, began: Option<Time>, bytes: u64) -> Option<Time> {
        let mut sent = now;
        if let Some(rate) = self.faults.rate {
            let waiting = rate.bytes_in(self.free_at.max(now).since(now));
            if waiting > 0.0 && waiting + bytes as f64 > self.faults.queue_bytes as f64 {
                return None;
            }
            self.free_at = self.free_at.max(now) + rate.span_of(bytes);
            sent = self.free_at;
        }
        let delay = self.timetable.delay(elapsed(began, sent)).unwrap_or(self.faults.delay);
        let mut due = sent + self.varied(delay);
        if self.faults.jitter > Span::ZERO || !self.timetable.delays.is_empty() {
            due = due.max(self.before);
            self.before = due;
        }
        Some(due)
    }

    /// A delay with this packet's jitter.
    fn varied(&mut self, delay: Span) -> Span {
        let jitter = self.faults.jitter;
        if jitter == Span::ZERO {
            return delay;
        }
        let (delay_ns, jitter_ns) = (delay.as_nanos() as f64, jitter.as_nanos() as f64);
        let most_ns = self.faults.jitter_law.most(jitter).as_nanos() as f64;
        let by_ns = match self.faults.jitter_law {
            JitterLaw::Uniform => self.jitter.unit() * 2.0 * jitter_ns - jitter_ns,
            JitterLaw::Normal => self.jitter.normal() * jitter_ns,
            JitterLaw::Exponential => self.jitter.exponential(jitter_ns),
        };
        Span::from_nanos((delay_ns + by_ns.clamp(-most_ns, most_ns)).max(0.0) as u64)
    }
}

/// The time since the traffic began; `None` before that, or if it is not known.
fn elapsed(began: Option<Time>, now: Time) -> Option<Span> {
    began.filter(|began| *began <= now).map(|began| now.since(began))
}

/// A fault box over frames of type `F`.
#[derive(Debug)]
pub struct FaultBox<F = Packet> {
    paths: Vec<[Way; 2]>,
    /// When the traffic began, once that is known.
    began: Option<Time>,
    /// Packets that came, by direction.
    came: [u64; 2],
    held: BinaryHeap<Held<F>>,
    /// Frames held so far.
    order: u64,
    counts: FaultCounts,
    events: Option<Vec<Event>>,
}

impl<F: Copy> FaultBox<F> {
    /// Box number `index` of a run with `seed`, which does the same in both directions.
    pub fn new(faults: Faults, seed: u64, index: u64) -> FaultBox<F> {
        FaultBox::of_ways([faults, faults], seed, index)
    }

    /// A box with faults for packets that arrive by an even port, and others for those that arrive
    /// by an odd one.
    pub fn of_ways(faults: [Faults; 2], seed: u64, index: u64) -> FaultBox<F> {
        FaultBox::of_paths([faults.map(|way| (way, Timetable::default()))], seed, index)
    }

    /// A box with several paths, each with two directions; those of the first are the ones of a box with one path.
    /// The traffic begins at [`Time::ZERO`] by default.
    pub fn of_paths(
        paths: impl IntoIterator<Item = [(Faults, Timetable); 2]>,
        seed: u64,
        index: u64,
    ) -> FaultBox<F> {
        let indices = (0..).map(|path| index + path * PATH);
        let paths = paths.into_iter().zip(indices).map(|([forth, back], index)| {
            [Way::new(forth.0, forth.1, seed, index), Way::new(back.0, back.1, seed, index | BACK)]
        });
        FaultBox {
            paths: paths.collect(),
            began: Some(Time::ZERO),
            came: [0; 2],
            held: BinaryHeap::new(),
            order: 0,
            counts: FaultCounts::default(),
            events: None,
        }
    }

    /// Sets the moment at which the traffic begins, or that it is not known yet: timetables count from it.
    pub fn begins_at(&mut self, began: Option<Time>) {
        self.began = began;
    }

    /// Keeps what happens from now on, until it is taken.
    pub fn keep_events(&mut self) {
        self.events = Some(Vec::new());
    }

    /// What has happened since it was taken last, where it is kept.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.as_mut().map(mem::take).unwrap_or_default()
    }

    /// What it has done so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Frames that are under way in it.
    pub fn inside(&self) -> usize {
        self.held.len()
    }

    /// When the next of them leaves.
    pub fn due(&self) -> Option<Time> {
        self.held.peek().map(|held| held.due)
    }

    /// Whether every packet is accounted for.
    pub fn balances(&self) -> bool {
        let counts = &self.counts;
        counts.received + counts.duplicated
            == counts.sent + counts.lost + counts.discarded + self.held.len() as u64
    }

    fn note(&mut self, at: Time, name: Name, what: What) {
        let Name { port, number, path, link_bytes } = name;
        if let Some(events) = &mut self.events {
            events.push(Event { at, port, number, path, link_bytes, what });
        }
    }

    fn way(&mut self, name: Name) -> &mut Way {
        &mut self.paths[name.path as usize][name.port.0 as usize & 1]
    }

    /// Sends a frame on, if the link has room for it; `by` later than usual.
    fn pass<M: Frames<F>>(
        &mut self,
        now: Time,
        name: Name,
        frame: F,
        (is_copy, by): (bool, Span),
        memory: &mut M,
    ) {
        let began = self.began;
        let Some(due) = self.way(name).arrival(now, began, name.link_bytes) else {
            memory.discard(&frame);
            self.counts.discarded += 1;
            return self.note(now, name, What::Discarded);
        };
        self.order += 1;
        self.held.push(Held { due: due + by, order: self.order, name, is_copy, frame });
    }

    /// Takes a packet on one of its paths.
    pub fn receive_on<M: Frames<F>>(
        &mut self,
        path: u32,
        now: Time,
        port: Port,
        frame: &F,
        memory: &mut M,
    ) {
        let came = &mut self.came[port.0 as usize & 1];
        let name = Name { port, number: *came, path, link_bytes: memory.link_bytes(frame) };
        *came += 1;
        let since = elapsed(self.began, now);
        let way = self.way(name);
        way.came += 1;
        let (faults, is_lost) = (way.faults, way.loses(since));
        let is_corrupt = !is_lost && faults.corrupt > 0.0 && way.corrupt.unit() < faults.corrupt;
        self.counts.received += 1;
        self.note(now, name, What::Came);
        if is_lost {
            memory.discard(frame);
            self.counts.lost += 1;
            return self.note(now, name, What::Lost);
        }
        if is_corrupt {
            self.counts.corrupted += 1;
            self.note(now, name, What::Corrupted);
            // (Which bit is no matter of chance: it need not be drawn, and no stream is disturbed.)
            let bit = name.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if !memory.corrupt(frame, bit) {
                memory.discard(frame);
                self.counts.discarded += 1;
                return self.note(now, name, What::Discarded);
            }
        }
        let way = self.way(name);
        let is_late = faults.reorder > 0.0 && way.reorder.unit() < faults.reorder;
        let is_twice = faults.duplicate > 0.0 && way.duplicate.unit() < faults.duplicate;
        let by = if is_late { faults.reorder_by } else { Span::ZERO };
        if is_late {
            self.counts.reordered += 1;
            self.note(now, name, What::HeldBack);
        }
        // (Copied first: a frame that has gone on is the link's.)
        let copy = if is_twice { memory.copy(frame) } else { None };
        self.counts.duplicated += u64::from(is_twice);
        self.counts.discarded += u64::from(is_twice && copy.is_none());
        self.pass(now, name, *frame, (false, by), memory);
        if let Some(copy) = copy {
            self.pass(now, name, copy, (true, by), memory);
        }
    }
}

impl<F: Copy, M: Frames<F>> Node<F, M> for FaultBox<F> {
    fn receive(&mut self, now: Time, port: Port, frame: &F, memory: &mut M) {
        self.receive_on(0, now, port, frame, memory);
    }

    fn handle_timeout(&mut self, _now: Time, _: &mut M) {}

    fn poll_transmit(&mut self, now: Time, frame: &mut F, _: &mut M) -> Option<Port> {
        if self.held.peek()?.due > now {
            return None;
        }
        self.counts.sent += 1;
        let held = self.held.pop()?;
        *frame = held.frame;
        let what = if held.is_copy { What::CopyLeft } else { What::Left };
        self.note(now, held.name, what);
        Some(Port(held.name.port.0 ^ 1))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.due()
    }
}

#[cfg(test)]
mod tests;
