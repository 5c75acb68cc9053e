//! Tail drop: first come, first served, and who finds the buffer full is dropped.

use nilometer_wire::Time;

use crate::bounded::Bounded;
use crate::capacity::Capacity;
use crate::discipline::{Backlog, Discipline, Drops, Packet};

/// One queue of limited length.
#[derive(Clone, Debug)]
pub struct TailDrop<P> {
    waiting: Bounded<P>,
}

impl<P: Packet> TailDrop<P> {
    /// An empty queue that holds `capacity`.
    pub fn new(capacity: Capacity) -> TailDrop<P> {
        TailDrop { waiting: Bounded::new(capacity) }
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
