//! One input of the fabric: its virtual output queues and their credit.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_queue::sharing::ReserveError;
use nilometer_queue::voq::InputLimits;
use nilometer_queue::{Backlog, Drops, Ledger, Packet, Reason, Shares};
use nilometer_wire::{Span, Time};

use super::output::Output;
use super::pool::Pool;

/// Credit is counted in this fraction of a byte.
const PARTS_PER_BYTE: f64 = 65_536.0;
const PARTS_SHIFT: u32 = 16;
/// Packets that are handed over together.
const TOGETHER: usize = 32;

/// The queue for one output.
#[derive(Debug)]
struct Queue<P> {
    packets: VecDeque<P>,
    credit: u64,
}

/// The queues of one input, one for each output.
#[derive(Debug)]
pub(super) struct Input<P> {
    queues: Vec<Queue<P>>,
    backlog_bytes: Vec<u64>,
    /// A bit for each queue in which something waits.
    active: Vec<u64>,
    /// How many packets wait in each queue, and whether one more may.
    shares: Shares,
    limits: InputLimits,
    /// Packets that arrived, crossed and were dropped here.
    pub(super) ledger: Ledger,
}

impl<P: Packet + Copy> Input<P> {
    pub(super) fn new(outputs: usize, limits: InputLimits) -> Result<Input<P>, ReserveError> {
        Ok(Input {
            queues: (0..outputs).map(|_| Queue { packets: VecDeque::new(), credit: 0 }).collect(),
            backlog_bytes: vec![0; outputs],
            active: vec![0; outputs.div_ceil(64)],
            shares: Shares::new(outputs, limits.packets, limits.sharing)?,
            limits,
            ledger: Ledger::default(),
        })
    }

    #[inline]
    pub(super) fn enqueue(
        &mut self,
        output: usize,
        packet: P,
        pool: Option<&mut Pool>,
        drops: &mut impl Drops<P>,
    ) {
        self.ledger.in_packets += 1;
        self.ledger.in_bytes += u64::from(packet.bytes());
        self.seat(output, packet, pool, drops);
    }

    /// All of `packets`, each with its output; none is left in the list.
    #[inline]
    pub(super) fn enqueue_all(
        &mut self,
        packets: &mut Vec<(u16, P)>,
        mut pool: Option<&mut Pool>,
        drops: &mut impl Drops<P>,
    ) {
        self.ledger.in_packets += packets.len() as u64;
        self.ledger.in_bytes +=
            packets.iter().map(|(_, packet)| u64::from(packet.bytes())).sum::<u64>();
        for (output, packet) in packets.drain(..) {
            self.seat(usize::from(output), packet, pool.as_deref_mut(), drops);
        }
    }

    #[inline(always)]
    fn seat(
        &mut self,
        output: usize,
        packet: P,
        pool: Option<&mut Pool>,
        drops: &mut impl Drops<P>,
    ) {
        let bytes = packet.bytes();
        if let Err(reason) = self.admit(output, bytes, pool) {
            self.ledger.drops.count(reason, bytes);
            return drops.dropped(reason, packet);
        }
        self.backlog_bytes[output] += u64::from(bytes);
        self.active[output / 64] |= 1 << (output % 64);
        self.queues[output].packets.push_back(packet);
    }

    /// Counts a packet of `bytes` in, unless there is no room for it, here or in the memory of all.
    #[inline(always)]
    fn admit(&mut self, output: usize, bytes: u32, pool: Option<&mut Pool>) -> Result<(), Reason> {
        if bytes > self.limits.packet_bytes {
            return Err(Reason::TooBig);
        }
        self.shares.admit(output)?;
        if let Some(pool) = pool
            && let Err(reason) = pool.admit(output, false)
        {
            self.shares.leave(output, 1);
            return Err(reason);
        }
        Ok(())
    }

    /// Grants each queue what its rate, bits per second, is worth in `span`.
    pub(super) fn grant(&mut self, span: Span, rates: &[f64]) {
        let kept_most = self.cost(self.limits.packet_bytes);
        let parts_per_bit = span.as_secs_f64() * PARTS_PER_BYTE / 8.0;
        for (queue, &rate) in self.queues.iter_mut().zip(rates) {
            queue.credit = queue.credit.min(kept_most) + (rate * parts_per_bit) as u64;
        }
    }

    /// Hands over packets that have credit, queue by queue.
    #[inline]
    pub(super) fn cross(
        &mut self,
        now: Time,
        outputs: &mut [Output<P>],
        drops: &mut impl Drops<P>,
    ) {
        for word in 0..self.active.len() {
            let mut left = self.active[word];
            while left != 0 {
                let output = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                while self.spend(now, (output, &mut outputs[output]), drops) {}
            }
        }
    }

    /// Hands some packets over to an output; whether there may be more to hand over.
    #[inline]
    fn spend(
        &mut self,
        now: Time,
        (number, output): (usize, &mut Output<P>),
        drops: &mut impl Drops<P>,
    ) -> bool {
        let (framing, queue) = (self.limits.framing, &mut self.queues[number]);
        let (first, _) = queue.packets.as_slices();
        let first = &first[..first.len().min(TOGETHER)];
        let cost = |packet: &P| framing.fabric_bytes(packet.bytes()) << PARTS_SHIFT;
        // Usually there is credit for all packets, and then there is no need to find where it ends.
        let (all, mut packets) = (first.len(), first.len());
        let mut spent: u64 = first.iter().map(cost).sum();
        while spent > queue.credit {
            packets -= 1;
            spent -= cost(&first[packets]);
        }
        queue.credit -= spent;
        let first = &first[..packets];
        let bytes = first.iter().map(|packet| u64::from(packet.bytes())).sum();
        output.enqueue_all(now, first, bytes, drops);
        queue.packets.drain(..packets);
        self.left(number, packets as u32, bytes);
        packets == all && packets > 0
    }

    /// Hands over everything, credit or not.
    pub(super) fn release(&mut self, mut hand: impl FnMut(usize, P)) {
        for output in 0..self.queues.len() {
            let (mut packets, mut bytes) = (0, 0);
            while let Some(packet) = self.queues[output].packets.pop_front() {
                packets += 1;
                bytes += u64::from(packet.bytes());
                hand(output, packet);
            }
            self.queues[output].credit = 0;
            self.left(output, packets, bytes);
        }
    }

    fn left(&mut self, output: usize, packets: u32, bytes: u64) {
        self.shares.leave(output, packets);
        self.backlog_bytes[output] -= bytes;
        self.ledger.out_packets += u64::from(packets);
        self.ledger.out_bytes += bytes;
        if self.queues[output].packets.is_empty() {
            self.active[output / 64] &= !(1 << (output % 64));
        }
    }

    pub(super) fn backlog_bytes(&self) -> &[u64] {
        &self.backlog_bytes
    }

    /// Packets that wait for `output`.
    pub(super) fn packets(&self, output: usize) -> u64 {
        self.queues[output].packets.len() as u64
    }

    pub(super) fn ledger_waiting(&self) -> Backlog {
        Backlog { packets: self.shares.total(), bytes: self.backlog_bytes.iter().sum() }
    }

    fn cost(&self, bytes: u32) -> u64 {
        self.limits.framing.fabric_bytes(bytes) << PARTS_SHIFT
    }
}
