//! Label stacks (MPLS; RFC 3032, 2.1), and a plugin's decision about a packet's.
//!
//! A plugin specifies how many entries to pop, which to push, and the next hop. The router applies that when nothing
//! can stop the packet any more: so an ICMP error quotes the packet as it arrived, fragments are made before labels,
//! and the bottom-of-stack bit is always right.

use core::net::IpAddr;

/// Bytes of an entry of a label stack.
pub const ENTRY_BYTES: usize = 4;
/// The most entries that a packet gets at once.
pub const PUSHED_MAX: usize = 4;
/// The greatest label: 20 bits.
pub const LABEL_MAX: u32 = (1 << 20) - 1;

/// Labels with a meaning of their own (RFC 3032, 2.1; RFC 7274).
pub mod reserved {
    /// What follows is looked at as IPv4.
    pub const IPV4_EXPLICIT_NULL: u32 = 0;
    /// Router Alert: each router on the path examines the packet, and forwards it by the label beneath.
    pub const ROUTER_ALERT: u32 = 1;
    /// What follows is looked at as IPv6.
    pub const IPV6_EXPLICIT_NULL: u32 = 2;
    /// Named by label distribution, and never in a packet.
    pub const IMPLICIT_NULL: u32 = 3;
    /// The first label without a meaning of its own.
    pub const FIRST_ORDINARY: u32 = 16;
}

/// An entry of a label stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelEntry {
    /// The label, up to [`LABEL_MAX`].
    pub label: u32,
    /// The traffic class (RFC 5462), up to 7.
    pub traffic_class: u8,
    /// Whether it is the last of its stack. The router sets it in what it writes.
    pub is_bottom: bool,
    /// The time to live.
    pub ttl: u8,
}

impl LabelEntry {
    /// The entry at the front of some bytes, if they are enough.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<LabelEntry> {
        let &[first, second, third, ttl] = bytes.first_chunk::<ENTRY_BYTES>()?;
        Some(LabelEntry {
            label: u32::from_be_bytes([0, first, second, third]) >> 4,
            traffic_class: third >> 1 & 7,
            is_bottom: third & 1 != 0,
            ttl,
        })
    }

    /// As it stands in a packet; of a label that is too great the lower bits.
    #[inline]
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let word = self.label << 12
            | u32::from(self.traffic_class & 7) << 9
            | u32::from(self.is_bottom) << 8
            | u32::from(self.ttl);
        word.to_be_bytes()
    }
}

/// A change of a packet's label stack (RFC 3031, 3.10): a swap pops one entry and pushes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relabelling {
    /// How many entries are popped.
    pub popped: u8,
    pushed: [LabelEntry; PUSHED_MAX],
    pushed_entries: usize,
    /// The time to live of the IP packet beneath the last label is reduced to this if it is greater.
    pub hop_limit: Option<u8>,
    /// The next hop: a neighbour, or an address reached by one. Without it, a packet whose last label was popped
    /// continues as an IP packet that arrived without labels.
    pub next_hop: Option<IpAddr>,
}

impl Relabelling {
    /// Pops `popped` entries, and does nothing else.
    pub fn pop(popped: u8) -> Relabelling {
        Relabelling { popped, ..Relabelling::default() }
    }

    /// Adds an entry to push, beneath those added before; returns whether there was room.
    pub fn push(&mut self, entry: LabelEntry) -> bool {
        let free = self.pushed.get_mut(self.pushed_entries);
        let has_room = free.map(|free| *free = entry).is_some();
        self.pushed_entries += usize::from(has_room);
        has_room
    }

    /// The entries to push, the topmost first.
    pub fn pushed(&self) -> &[LabelEntry] {
        &self.pushed[..self.pushed_entries]
    }
}

/// Why a packet goes no further because of its labels: each has a counter of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelRefusal {
    /// No entry for its label.
    UnknownLabel,
    /// Its stack is malformed, or longer than what is examined.
    Stack,
    /// The time to live of its label is used up: an ICMP error about the IP packet beneath goes to its sender.
    Expired,
}

/// A plugin's decision about a packet's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelDecision {
    /// They change, and the packet leaves the chain.
    Relabel(Relabelling),
    /// It is dropped.
    Refuse(LabelRefusal),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3032, 2.1: label, traffic class, bottom of stack, time to live.
    #[test]
    fn an_entry_stands_in_a_packet_as_it_is_written() {
        let entry = LabelEntry { label: 0xabcde, traffic_class: 5, is_bottom: true, ttl: 64 };
        assert_eq!(entry.to_bytes(), [0xab, 0xcd, 0xeb, 0x40]);
        assert_eq!(LabelEntry::read(&[0xab, 0xcd, 0xeb, 0x40, 9]), Some(entry));
        assert_eq!(LabelEntry::read(&[0xab, 0xcd, 0xeb]), None);
        for word in (0..u32::MAX).step_by(65_521) {
            let bytes = word.to_be_bytes();
            assert_eq!(LabelEntry::read(&bytes).map(LabelEntry::to_bytes), Some(bytes));
        }
    }

    #[test]
    fn no_more_is_put_on_than_there_is_room_for() {
        let mut change = Relabelling::pop(1);
        let entry = |label| LabelEntry { label, ..LabelEntry::default() };
        assert!((0..4).all(|label| change.push(entry(label))));
        assert!(!change.push(entry(9)));
        assert_eq!(
            change.pushed().iter().map(|entry| entry.label).collect::<alloc::vec::Vec<_>>(),
            [0, 1, 2, 3]
        );
    }
}
