//! Tail drop: first come, first served, and who finds the buffer full is dropped.

use alloc::collections::VecDeque;

use nilometer_wire::Time;

use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};

/// One queue of limited length.
#[derive(Clone, Debug)]
pub struct TailDrop<P> {
    waiting: VecDeque<P>,
    bytes: u64,
    limit_packets: u64,
}

impl<P> TailDrop<P> {
    /// A queue in which at most `limit_packets` wait.
    pub fn new(limit_packets: u64) -> TailDrop<P> {
        TailDrop { waiting: VecDeque::new(), bytes: 0, limit_packets }
    }
}

impl<P: Packet> Discipline<P> for TailDrop<P> {
    fn enqueue(&mut self, _now: Time, packet: P, drops: &mut impl Drops<P>) {
        if self.waiting.len() as u64 >= self.limit_packets {
            drops.dropped(Reason::Full, packet);
            return;
        }
        self.bytes += u64::from(packet.bytes());
        self.waiting.push_back(packet);
    }

    fn dequeue(&mut self, _now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        let packet = self.waiting.pop_front()?;
        self.bytes -= u64::from(packet.bytes());
        Some(packet)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.waiting.len() as u64, bytes: self.bytes }
    }
}
