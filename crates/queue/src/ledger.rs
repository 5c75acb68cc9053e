//! The account of a queue: what came in is what went out, was dropped for a reason, or still waits.

use crate::discipline::{Backlog, Drops, Packet, Reason};

/// Packets and bytes dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    packets: [u64; Reason::ALL.len()],
    bytes: [u64; Reason::ALL.len()],
}

impl Tally {
    /// Packets dropped for `reason`.
    pub fn packets(&self, reason: Reason) -> u64 {
        self.packets[reason as usize]
    }

    /// Counts a packet of `bytes` that was dropped for `reason`, without being given it.
    pub fn count(&mut self, reason: Reason, bytes: u32) {
        self.packets[reason as usize] += 1;
        self.bytes[reason as usize] += u64::from(bytes);
    }

    /// Packets dropped for any reason.
    pub fn total_packets(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// Bytes dropped for any reason.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

impl<P: Packet> Drops<P> for Tally {
    fn dropped(&mut self, reason: Reason, packet: P) {
        self.count(reason, packet.bytes());
    }
}

/// What passed a queue. The code that drives a discipline keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Packets that arrived.
    pub in_packets: u64,
    /// Bytes that arrived.
    pub in_bytes: u64,
    /// Packets that left for the link.
    pub out_packets: u64,
    /// Bytes that left for the link.
    pub out_bytes: u64,
    /// What was dropped.
    pub drops: Tally,
}

impl Ledger {
    /// Whether nothing vanished and nothing was made: in = out + dropped + waiting, in packets and
    /// in bytes.
    pub fn balances(&self, waiting: Backlog) -> bool {
        self.in_packets == self.out_packets + self.drops.total_packets() + waiting.packets
            && self.in_bytes == self.out_bytes + self.drops.total_bytes() + waiting.bytes
    }
}
