//! The traits between links, queueing disciplines and packets.
//!
//! Buffer management and scheduling are one trait, because the disciplines that matter couple them:
//! QSDRR chooses its victim by the state of the scheduler's queues, CoDel drops on departure. A
//! discipline is given the time of each arrival and of each departure, in order; that is all it
//! knows of the link. It may therefore be driven by a virtual clock or a real one, and even in
//! arrears, as long as calls are made in order of time.

use nilometer_wire::{Ecn, Time};

/// What a discipline can read of a packet: an inline record, or a handle to a buffer elsewhere.
pub trait Packet {
    /// Bytes that it takes on the link and in byte-counted buffers.
    fn bytes(&self) -> u32;

    /// A number that all packets of its flow share: what queues are hashed by.
    fn flow(&self) -> u32;

    /// The number of the reserved queue that it waits in, if its flow has a reservation
    /// ([`crate::reserved`]).
    #[inline]
    fn reserved(&self) -> Option<u32> {
        None
    }

    /// Its ECN bits.
    fn ecn(&self) -> Ecn;

    /// Sets the congestion-experienced code point; only called for packets that are ECN-capable.
    fn mark(&mut self);
}

nilometer_wire::named! {
    /// Why a packet was dropped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Reason {
        /// The buffer was full when it arrived.
        Full = "full",
        /// Already waiting, it gave way to another (longest queue, highest throughput, queue state).
        PushedOut = "pushed_out",
        /// Dropped before the buffer was full, at a probability (RED, Blue, PIE).
        Early = "early",
        /// It had waited too long (CoDel).
        Sojourn = "sojourn",
        /// It was beyond its contract (token bucket).
        Policed = "policed",
        /// It was larger than the link's MTU or the whole buffer.
        TooBig = "too_big",
        /// Its queue had its share of a buffer in which others still had room ([`crate::sharing`]).
        Share = "share",
    }
}

impl Reason {
    /// The reasons of a discipline, whose buffer is its own: the first of all.
    pub const OF_DISCIPLINES: [Reason; 6] = *Reason::ALL.first_chunk().expect("the first of all");
}

/// Where dropped packets go: nothing vanishes.
pub trait Drops<P> {
    /// `packet` was dropped for `reason`.
    fn dropped(&mut self, reason: Reason, packet: P);
}

impl<P> Drops<P> for alloc::vec::Vec<(Reason, P)> {
    fn dropped(&mut self, reason: Reason, packet: P) {
        self.push((reason, packet));
    }
}

/// What waits in a queue; the packet on the link is no longer waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets that wait.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Buffer management and scheduling of one link.
pub trait Discipline<P: Packet> {
    /// `packets` will arrive soon: prefetches what is read for them into the cache, all at once and not
    /// packet by packet. Changes nothing; a caller that omits it loses only time.
    fn expect(&self, _packets: &[P]) {}

    /// `packet` arrives at `now`. It is kept, or it or others go to `drops`.
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>);

    /// All of `packets` arrive at `now`, in their order. A discipline that can prefetches what is read for
    /// them into the cache, all at once and not packet by packet.
    #[inline]
    fn enqueue_all(&mut self, now: Time, packets: &[P], drops: &mut impl Drops<P>)
    where
        P: Copy,
    {
        for packet in packets {
            self.enqueue(now, *packet, drops);
        }
    }

    /// The link is free at `now`: the packet to send, if any waits. Those that the discipline drops
    /// instead go to `drops`.
    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P>;

    /// Repeats [`Discipline::dequeue`] until `give` wants no more (returns true) or nothing waits (false).
    #[inline]
    fn dequeue_while(
        &mut self,
        now: Time,
        drops: &mut impl Drops<P>,
        mut give: impl FnMut(P) -> bool,
    ) -> bool {
        while let Some(packet) = self.dequeue(now, drops) {
            if !give(packet) {
                return true;
            }
        }
        false
    }

    /// What waits now.
    fn backlog(&self) -> Backlog;
}
