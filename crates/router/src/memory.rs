//! A packet as the pipeline's queues hold it: a handle of a frame in the ports' memory, which
//! [`nilometer_wire::memory`] describes.

use nilometer_queue::{Drops, Packet, Reason};
use nilometer_wire::Ecn;
pub use nilometer_wire::memory::{Memory, Place};

/// A packet in a queue: sixteen bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// Where it lies.
    pub place: Place,
    /// The flow's number, the same for all its packets; with [`Ticket::RESERVED`] the number of its
    /// reserved queue.
    pub flow: u32,
    /// Bytes that it takes on its link, with what the link adds to each frame.
    pub link_bytes: u16,
    /// Its ECN bits as it came, [`Ticket::MARKED`], [`Ticket::FILTERED`] and [`Ticket::RESERVED`].
    pub bits: u8,
}

impl Ticket {
    /// A queue on its way marked it as having experienced congestion; its header is not marked yet.
    pub const MARKED: u8 = 0x80;
    /// It has met the filters of its output.
    pub const FILTERED: u8 = 0x40;
    /// Its flow has a reservation, and `flow` is the number of its queue.
    pub const RESERVED: u8 = 0x20;

    /// The same with these bits as well, in this reserved queue.
    pub(crate) fn marked(self, queue: Option<u16>, bits: u8) -> Ticket {
        let reserved = if queue.is_some() { Ticket::RESERVED } else { 0 };
        let flow = queue.map_or(self.flow, u32::from);
        Ticket { flow, bits: self.bits | bits | reserved, ..self }
    }

    /// Whether a queue marked it.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.bits & Ticket::MARKED != 0
    }
}

impl Packet for Ticket {
    #[inline]
    fn bytes(&self) -> u32 {
        u32::from(self.link_bytes)
    }

    #[inline]
    fn flow(&self) -> u32 {
        self.flow
    }

    #[inline]
    fn reserved(&self) -> Option<u32> {
        (self.bits & Ticket::RESERVED != 0).then_some(self.flow)
    }

    fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.bits)
    }

    fn mark(&mut self) {
        self.bits |= Ticket::MARKED;
    }
}

/// Gives the buffers of what queues drop back to their memory.
pub struct ReturnBuffers<'a, M: ?Sized>(pub &'a mut M);

impl<M: Memory + ?Sized> Drops<Ticket> for ReturnBuffers<'_, M> {
    fn dropped(&mut self, _reason: Reason, ticket: Ticket) {
        self.0.give(ticket.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_kept_beside_the_bits_that_came() {
        for (bits, ecn) in [(0, Ecn::NotCapable), (1, Ecn::Capable1), (2, Ecn::Capable0)] {
            let mut ticket = Ticket { bits, flow: 7, link_bytes: 1_538, ..Ticket::default() };
            assert_eq!((ticket.bytes(), ticket.flow(), ticket.ecn()), (1_538, 7, ecn));
            assert!(!ticket.is_marked());
            assert_eq!(ticket.reserved(), None);
            let reserved = Ticket { bits: bits | Ticket::RESERVED, ..ticket };
            assert_eq!((reserved.reserved(), reserved.ecn()), (Some(7), ecn));
            ticket.mark();
            assert!(ticket.is_marked());
            assert_eq!((ticket.bits, ticket.ecn()), (0x80 | bits, ecn));
        }
    }
}
