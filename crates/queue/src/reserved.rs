//! Reserved queues ahead of a best-effort discipline: each has its rate, whatever the others offer.
//!
//! A reserved flow waits in a queue of its own, which no other flow is hashed into. Each queue has a contract: a rate
//! and the depth of a token bucket. When its first packet is *due* follows from the contract alone, by a virtual clock
//! (Zhang, SIGCOMM 1990) that a packet of L bytes moves on by L / rate:
//!
//! ```text
//!   base     = max(clock, arrival)          release = base − bucket / rate          deadline = base + L / rate
//! ```
//!
//! A packet within the contract is released when it arrives (the generic cell rate algorithm of ATM Forum TM 4.0: the
//! clock is its theoretical arrival time, and bucket / rate its limit). Of the released packets, the one with the
//! earliest deadline is sent. If none is released, the best-effort discipline has the link; if that has nothing
//! either, the packet with the earliest release is sent ahead of its time, so that the link never idles. Hence
//!
//! - a flow that always has packets leaves at its rate at least, as long as the rates of all together are no more than the
//!   link's (which admission control sees to), late by a largest packet at most;
//! - a flow that offers more than its contract takes nothing from best effort: what is beyond waits for its release;
//! - best effort has all that is left.
//!
//! What a queue sends ahead of its time is not held against it: its clock then runs no further ahead than if it had
//! just spent its bucket. Otherwise a flow that had the link alone for a while would be silent afterwards.
//!
//! Finding the next costs a search in one of two ordered sets. Without contracts a packet passes one comparison.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use nilometer_wire::{Rate, Span, Time};
use thiserror::Error;

use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};

/// Reserved queues that there may be at one output.
pub const RESERVED_QUEUES_MAX: u32 = 4_096;

/// What a reserved queue is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// The rate of its packets, counted as the link counts them.
    pub rate: Rate,
    /// The depth of its token bucket: what may come at once and leave without waiting for the rate.
    pub bucket_bytes: u32,
    /// What waits in it at most.
    pub capacity_bytes: u32,
}

/// Why a contract was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ContractError {
    /// The number of the queue is not below [`RESERVED_QUEUES_MAX`].
    #[error("a reserved queue has a number below {RESERVED_QUEUES_MAX}, not {0}")]
    NoSuchQueue(u32),
    /// A queue that holds nothing.
    #[error("a reserved queue of 0 bytes holds nothing")]
    NoCapacity,
}

/// What a reserved queue is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedState {
    /// Its contract.
    pub contract: Contract,
    /// What waits in it.
    pub backlog: Backlog,
    /// Bytes that left it for the link since its contract began.
    pub sent_bytes: u64,
    /// Packets that found it full.
    pub dropped_packets: u64,
}

#[derive(Clone, Debug)]
struct Queue<P> {
    contract: Contract,
    /// bucket / rate.
    limit: Span,
    /// When each came, and the packet.
    waiting: VecDeque<(Time, P)>,
    bytes: u64,
    clock: Time,
    /// Of the first packet.
    release: Time,
    /// Of the first packet.
    deadline: Time,
    sent_bytes: u64,
    dropped_packets: u64,
}

impl<P: Packet> Queue<P> {
    fn new(contract: Contract) -> Queue<P> {
        let limit = contract.rate.span_of(contract.bucket_bytes.into());
        Queue {
            contract,
            limit,
            waiting: VecDeque::new(),
            bytes: 0,
            clock: Time::ZERO,
            release: Time::ZERO,
            deadline: Time::ZERO,
            sent_bytes: 0,
            dropped_packets: 0,
        }
    }

    /// When the packet that is first now is released and due; whether there is one.
    fn time_first(&mut self) -> bool {
        let Some((arrival, packet)) = self.waiting.front() else { return false };
        let base = self.clock.max(*arrival);
        self.release = Time(base.0.saturating_sub(self.limit.0));
        self.deadline = base + self.contract.rate.span_of(packet.bytes().into());
        true
    }

    /// Takes the first packet, which leaves at `now`.
    fn pop(&mut self, now: Time) -> Option<P> {
        let (_, packet) = self.waiting.pop_front()?;
        let bytes = u64::from(packet.bytes());
        self.bytes -= bytes;
        self.sent_bytes += bytes;
        let spent = now + self.limit + self.contract.rate.span_of(bytes);
        self.clock = self.deadline.min(spent);
        Some(packet)
    }

    fn state(&self) -> ReservedState {
        ReservedState {
            contract: self.contract,
            backlog: Backlog { packets: self.waiting.len() as u64, bytes: self.bytes },
            sent_bytes: self.sent_bytes,
            dropped_packets: self.dropped_packets,
        }
    }
}

/// Reserved queues, and the discipline of all that has no reservation.
#[derive(Clone, Debug)]
pub struct Reserved<P, D> {
    inner: D,
    queues: Vec<Option<Box<Queue<P>>>>,
    contracts: usize,
    /// Queues whose first packet is not released yet, by its release.
    waiting: BTreeSet<(Time, u32)>,
    /// Queues whose first packet is released, by its deadline.
    released: BTreeSet<(Time, u32)>,
    backlog: Backlog,
}

impl<P: Packet, D: Discipline<P>> Reserved<P, D> {
    /// No reserved queue yet, ahead of `inner`.
    pub fn new(inner: D) -> Reserved<P, D> {
        Reserved {
            inner,
            queues: Vec::new(),
            contracts: 0,
            waiting: BTreeSet::new(),
            released: BTreeSet::new(),
            backlog: Backlog::default(),
        }
    }

    /// The discipline of all that has no reservation.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The same, to be changed or replaced; what waits in it is the caller's to move.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Number of contracts.
    pub fn contracts(&self) -> usize {
        self.contracts
    }

    /// Gives the queue of this number a contract, or another one; what waits in it stays.
    ///
    /// # Errors
    /// When there is no such queue, or it would hold nothing.
    pub fn set(&mut self, number: u32, contract: Contract) -> Result<(), ContractError> {
        if number >= RESERVED_QUEUES_MAX {
            return Err(ContractError::NoSuchQueue(number));
        }
        if contract.capacity_bytes == 0 {
            return Err(ContractError::NoCapacity);
        }
        let at = number as usize;
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, || None);
        }
        match &mut self.queues[at] {
            Some(queue) => {
                queue.contract = contract;
                queue.limit = contract.rate.span_of(contract.bucket_bytes.into());
                self.unlist(number);
                self.list(number);
            }
            none => {
                *none = Some(Box::new(Queue::new(contract)));
                self.contracts += 1;
            }
        }
        Ok(())
    }

    /// Ends the contract of a queue. What waits in it goes to the discipline behind, in its order.
    pub fn remove(&mut self, now: Time, number: u32, drops: &mut impl Drops<P>) -> bool {
        self.unlist(number);
        let Some(queue) = self.queues.get_mut(number as usize).and_then(Option::take) else {
            return false;
        };
        self.contracts -= 1;
        self.backlog.packets -= queue.waiting.len() as u64;
        self.backlog.bytes -= queue.bytes;
        for (_, packet) in queue.waiting {
            self.inner.enqueue(now, packet, drops);
        }
        true
    }

    /// Whether the queue of this number has a contract.
    #[inline]
    pub fn has(&self, number: u32) -> bool {
        self.queues.get(number as usize).is_some_and(Option::is_some)
    }

    /// What the queue of this number is doing, if it has a contract.
    pub fn state(&self, number: u32) -> Option<ReservedState> {
        Some(self.queues.get(number as usize)?.as_ref()?.state())
    }

    /// All queues with contracts.
    pub fn states(&self) -> impl Iterator<Item = (u32, ReservedState)> {
        let queues = (0..).zip(&self.queues);
        queues.filter_map(|(number, queue)| Some((number, queue.as_ref()?.state())))
    }

    /// Takes a queue off the set that it is in.
    fn unlist(&mut self, number: u32) {
        let Some(Some(queue)) = self.queues.get(number as usize) else { return };
        self.waiting.remove(&(queue.release, number));
        self.released.remove(&(queue.deadline, number));
    }

    /// Enters a queue by the release of its first packet, if it has one.
    fn list(&mut self, number: u32) {
        let Some(Some(queue)) = self.queues.get_mut(number as usize) else { return };
        if queue.time_first() {
            self.waiting.insert((queue.release, number));
        }
    }

    /// Moves the queues whose release time has come to the released set.
    fn release(&mut self, now: Time) {
        while let Some(&(release, number)) = self.waiting.first()
            && release <= now
        {
            self.waiting.pop_first();
            if let Some(Some(queue)) = self.queues.get(number as usize) {
                self.released.insert((queue.deadline, number));
            }
        }
    }

    /// The first packet of a queue that is in neither set.
    fn serve(&mut self, now: Time, number: u32) -> Option<P> {
        let packet = self.queues.get_mut(number as usize)?.as_mut()?.pop(now)?;
        self.backlog.packets -= 1;
        self.backlog.bytes -= u64::from(packet.bytes());
        self.list(number);
        Some(packet)
    }
}

impl<P: Packet, D: Discipline<P>> Discipline<P> for Reserved<P, D> {
    #[inline]
    fn expect(&self, packets: &[P]) {
        self.inner.expect(packets);
    }

    #[inline]
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) {
        if self.contracts == 0 {
            return self.inner.enqueue(now, packet, drops);
        }
        let number = packet.reserved();
        let queue = number.and_then(|number| self.queues.get_mut(number as usize)?.as_mut());
        let (Some(number), Some(queue)) = (number, queue) else {
            return self.inner.enqueue(now, packet, drops);
        };
        let bytes = u64::from(packet.bytes());
        let capacity = u64::from(queue.contract.capacity_bytes);
        if queue.bytes + bytes > capacity {
            queue.dropped_packets += 1;
            let reason = if bytes > capacity { Reason::TooBig } else { Reason::Full };
            return drops.dropped(reason, packet);
        }
        queue.bytes += bytes;
        queue.waiting.push_back((now, packet));
        let is_first = queue.waiting.len() == 1;
        self.backlog.packets += 1;
        self.backlog.bytes += bytes;
        if is_first {
            self.list(number);
        }
    }

    #[inline]
    fn enqueue_all(&mut self, now: Time, packets: &[P], drops: &mut impl Drops<P>)
    where
        P: Copy,
    {
        if self.contracts == 0 {
            return self.inner.enqueue_all(now, packets, drops);
        }
        packets.iter().for_each(|packet| self.enqueue(now, *packet, drops));
    }

    #[inline]
    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        if self.backlog.packets == 0 {
            return self.inner.dequeue(now, drops);
        }
        self.release(now);
        if let Some((_, number)) = self.released.pop_first() {
            return self.serve(now, number);
        }
        if let Some(packet) = self.inner.dequeue(now, drops) {
            return Some(packet);
        }
        let (_, number) = self.waiting.pop_first()?;
        self.serve(now, number)
    }

    #[inline]
    fn dequeue_while(
        &mut self,
        now: Time,
        drops: &mut impl Drops<P>,
        mut give: impl FnMut(P) -> bool,
    ) -> bool {
        if self.backlog.packets == 0 {
            return self.inner.dequeue_while(now, drops, give);
        }
        while let Some(packet) = self.dequeue(now, drops) {
            if !give(packet) {
                return true;
            }
        }
        false
    }

    fn backlog(&self) -> Backlog {
        let inner = self.inner.backlog();
        Backlog {
            packets: inner.packets + self.backlog.packets,
            bytes: inner.bytes + self.backlog.bytes,
        }
    }
}
