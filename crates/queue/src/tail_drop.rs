//! Tail drop: first come, first served, and a packet that finds the buffer full is dropped.
//!
//! A packet's fate is decided on arrival: later arrivals do not change it. Where the transmitter's
//! rate is fixed, its departure is known then, too, and the packet need not be kept:
//! [`VirtualTailDrop`] keeps a departure time and a length for each packet that waits.

use nilometer_wire::Time;

use crate::bounded::Bounded;
use crate::capacity::Capacity;
use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};

/// One queue of limited length: the traditional technique of RFC 2309, section 2.
#[derive(Clone, Debug)]
pub struct TailDrop<P> {
    waiting: Bounded<P>,
}

impl<P: Packet> TailDrop<P> {
    /// An empty queue that holds `capacity`.
    pub fn new(capacity: Capacity) -> TailDrop<P> {
        TailDrop { waiting: Bounded::new(capacity) }
    }

    /// How much it holds.
    pub fn capacity(&self) -> Capacity {
        self.waiting.occupancy().capacity()
    }
}

/// Tail drop before a transmitter whose departures are known in advance.
#[derive(Clone, Debug)]
pub struct VirtualTailDrop {
    /// When each begins to leave the buffer, and its length.
    waiting: Bounded<(Time, u32)>,
    mtu_bytes: u32,
}

impl VirtualTailDrop {
    /// An empty queue that holds `capacity`, of packets of at most `mtu_bytes`.
    pub fn new(capacity: Capacity, mtu_bytes: u32) -> VirtualTailDrop {
        VirtualTailDrop { waiting: Bounded::new(capacity), mtu_bytes }
    }

    /// Why a packet of `bytes` that arrives at `now` is dropped, if it is. Packets that leave at
    /// `now` have left.
    #[inline]
    pub fn refusal(&mut self, now: Time, bytes: u32) -> Option<Reason> {
        while self.waiting.first().is_some_and(|&(leaves, _)| leaves <= now) {
            self.waiting.pop(|&(_, bytes)| bytes);
        }
        if bytes > self.mtu_bytes {
            return Some(Reason::TooBig);
        }
        self.waiting.refusal(bytes)
    }

    /// Takes in a packet of `bytes` that was not refused and leaves the buffer at `leaves`.
    #[inline]
    pub fn push(&mut self, leaves: Time, bytes: u32) {
        self.waiting.push(bytes, (leaves, bytes));
    }

    /// What waits at `now`, which is not before the last packet came.
    pub fn backlog(&self, now: Time) -> Backlog {
        let waiting = self.waiting.iter().filter(|&&(leaves, _)| leaves > now);
        waiting.fold(Backlog::default(), |sum, &(_, bytes)| Backlog {
            packets: sum.packets + 1,
            bytes: sum.bytes + u64::from(bytes),
        })
    }
}

impl<P: Packet> Discipline<P> for TailDrop<P> {
    #[inline]
    fn enqueue(&mut self, _now: Time, packet: P, drops: &mut impl Drops<P>) {
        let bytes = packet.bytes();
        match self.waiting.refusal(bytes) {
            Some(reason) => drops.dropped(reason, packet),
            None => self.waiting.push(bytes, packet),
        }
    }

    #[inline]
    fn dequeue(&mut self, _now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        self.waiting.pop(P::bytes)
    }

    fn backlog(&self) -> Backlog {
        self.waiting.backlog()
    }
}
