//! Where packets lie while handles of them move: what the pipeline asks of the ports' memory.

use nilometer_queue::Packet;
use nilometer_wire::Ecn;
use nilometer_wire::prefetch::prefetch;

/// A frame in the memory, from its Ethernet header on, without the check sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The number of its buffer.
    pub buffer: u32,
    /// Where in the buffer it begins, in bytes.
    pub offset: u16,
    /// Its length in bytes.
    pub bytes: u16,
}

/// Buffers that hold a frame each. Whoever has a [`Place`] has its buffer, and must hand it on or
/// give it back, once.
pub trait Memory {
    /// A buffer for a frame of `bytes`, behind the usual head-room; none when there is no room, or a
    /// buffer cannot hold so much.
    fn take(&mut self, bytes: u16) -> Option<Place>;

    /// Takes a frame's buffer back.
    fn give(&mut self, place: Place);

    /// The bytes of a frame.
    fn frame(&self, place: Place) -> &[u8];

    /// `place` will be looked at soon: its first line is asked for. A memory that knows where a frame lies
    /// without looking whether it is one says so faster than this.
    #[inline(always)]
    fn expect(&self, place: Place) {
        prefetch(self.frame(place).as_ptr());
    }

    /// The bytes of a frame, to change.
    fn frame_mut(&mut self, place: Place) -> &mut [u8];
}

/// A packet in a queue: sixteen bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// Where it lies.
    pub place: Place,
    /// The same number for all packets of its flow.
    pub flow: u32,
    /// Bytes that it takes on its link, with what the link adds to each frame.
    pub link_bytes: u16,
    /// Its ECN bits as it came, and [`Ticket::MARKED`].
    pub bits: u8,
}

impl Ticket {
    /// A queue on its way said that it experienced congestion; the header does not say so yet.
    pub const MARKED: u8 = 0x80;

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

    fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.bits)
    }

    fn mark(&mut self) {
        self.bits |= Ticket::MARKED;
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
            ticket.mark();
            assert!(ticket.is_marked());
            assert_eq!((ticket.bits, ticket.ecn()), (0x80 | bits, ecn));
        }
    }
}
