//! FQ-CoDel: a queue and a CoDel for each flow, and flows that send little are served first.
//!
//! RFC 8290. Flows are hashed into queues; a queue with packets stands in one of two lists. One that
//! becomes active enters the *new* list with a quantum of credit, and new queues are served before
//! old ones. The queue at the head of its list sends as long as it has credit; a queue out of credit
//! is given a quantum and goes to the end of the *old* list. A new queue that empties goes to the
//! end of the old list too, so that a flow cannot keep its priority by sending one packet at a time;
//! an old one that empties becomes inactive. So a flow that sends less than a quantum per round of
//! the others never waits for them.
//!
//! All queues share one buffer. When it is full, packets are dropped from the front of the queue
//! that holds most bytes: as many as make half of it, and at most a batch (64 in Linux, which
//! spreads the cost of finding the queue; 1 drops no more than is needed). Finding it costs an
//! indexed heap here, O(log active queues) per change, and no scan.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::Time;

use crate::capacity::{Capacity, Occupancy};
use crate::codel::{CoDelOptions, Control, Law, Source, Stamped};
use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::fifos::{End, Fifo, Fifos, NONE};
use crate::hashing::{Hashing, Spread};
use crate::heap::IndexedHeap;
use crate::limits::{LARGEST_MTU_BYTES, MOST_QUEUES};
use crate::round_robin::QueueState;
use crate::settings_error::SettingsError;

/// The least quantum, so that a queue in debt for one largest packet is out of it in few rounds.
const LEAST_QUANTUM_BYTES: u32 = 256;

/// FQ-CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDelOptions {
    /// The parameters of each queue's CoDel.
    pub codel: CoDelOptions,
    /// Credit per round, 256 to 65,535 bytes.
    pub quantum_bytes: u32,
    /// Number of queues, 1 to [`MOST_QUEUES`].
    pub queues: u32,
    /// How flows find their queues. [`Hashing::Direct`] with as many queues as flows gives every
    /// flow its own.
    pub hashing: Hashing,
    /// Packets dropped at most when the buffer is full; not zero.
    pub drop_batch: u32,
}

impl Default for FqCoDelOptions {
    /// RFC 8290, section 5.2: 1,024 hashed queues, a quantum of 1,514 bytes, batches of 64.
    fn default() -> FqCoDelOptions {
        FqCoDelOptions {
            codel: CoDelOptions::default(),
            quantum_bytes: 1_514,
            queues: 1_024,
            hashing: Hashing::Mixed,
            drop_batch: 64,
        }
    }
}

impl FqCoDelOptions {
    fn check(&self) -> Result<(), SettingsError> {
        let fault = if let Some(fault) = self.codel.fault() {
            fault
        } else if !(LEAST_QUANTUM_BYTES..=LARGEST_MTU_BYTES).contains(&self.quantum_bytes) {
            "quantum_bytes is not 256 to 65535"
        } else if self.drop_batch == 0 {
            "drop_batch is zero"
        } else if !(1..=MOST_QUEUES).contains(&self.queues) {
            return Err(SettingsError::Queues(self.queues));
        } else {
            return Ok(());
        };
        Err(SettingsError::FqCoDel(fault))
    }
}

/// Where a queue stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Inactive,
    New,
    Old,
}

#[derive(Clone, Debug)]
struct Queue {
    waiting: Fifo,
    bytes: u64,
    next: u32,
    sent_bytes: u64,
    credit_bytes: i64,
    control: Control,
    standing: Standing,
}

/// A list of queues, linked through their `next`.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    fn push(&mut self, queues: &mut [Queue], number: u32) {
        queues[number as usize].next = NONE;
        match queues.get_mut(self.last as usize) {
            Some(last) => last.next = number,
            None => self.first = number,
        }
        self.last = number;
    }

    fn pop(&mut self, queues: &[Queue]) {
        self.first = queues[self.first as usize].next;
        if self.first == NONE {
            self.last = NONE;
        }
    }
}

/// Flow queues under CoDel.
#[derive(Clone, Debug)]
pub struct FqCoDel<P> {
    queues: Vec<Queue>,
    packets: Fifos<Stamped<P>>,
    new: List,
    old: List,
    /// Active queues by bytes, then by when they changed.
    fattest: IndexedHeap<(u64, u64)>,
    changes: u64,
    occupancy: Occupancy,
    spread: Spread,
    law: Law,
    options: FqCoDelOptions,
}

impl<P: Packet> FqCoDel<P> {
    /// Empty queues that hold `capacity` together and send packets of at most `mtu_bytes`; the hash
    /// is that of `hash_seed`.
    ///
    /// # Errors
    /// When the capacity is zero or `mtu_bytes` or `options` are out of their ranges.
    pub fn new(
        capacity: Capacity,
        mtu_bytes: u32,
        options: FqCoDelOptions,
        hash_seed: u64,
    ) -> Result<FqCoDel<P>, SettingsError> {
        options.check()?;
        if capacity.limit() == 0 {
            return Err(SettingsError::NoCapacity);
        }
        if !(1..=LARGEST_MTU_BYTES).contains(&mtu_bytes) {
            return Err(SettingsError::Mtu(mtu_bytes));
        }
        let queue = Queue {
            waiting: Fifo::EMPTY,
            bytes: 0,
            next: NONE,
            sent_bytes: 0,
            credit_bytes: 0,
            control: Control::default(),
            standing: Standing::Inactive,
        };
        let empty = List { first: NONE, last: NONE };
        Ok(FqCoDel {
            queues: vec![queue; options.queues as usize],
            packets: Fifos::new(),
            new: empty,
            old: empty,
            fattest: IndexedHeap::new(options.queues),
            changes: 0,
            occupancy: Occupancy::new(capacity),
            spread: Spread::new(options.hashing, options.queues, hash_seed),
            law: Law { options: options.codel, mtu_bytes },
            options,
        })
    }

    /// What `queue` is doing, if there is one of that number. All weigh the same.
    pub fn queue_state(&self, queue: u32) -> Option<QueueState> {
        let queue = self.queues.get(queue as usize)?;
        Some(QueueState {
            packets: u64::from(queue.waiting.length()),
            bytes: queue.bytes,
            weight: 1,
            is_active: queue.waiting.length() > 0,
            sent_bytes: queue.sent_bytes,
            throughput_bps: None,
        })
    }

    /// Notes that what waits in `number` has changed.
    fn rank(&mut self, number: u32) {
        let queue = &self.queues[number as usize];
        if queue.waiting.length() == 0 {
            self.fattest.remove(number);
        } else {
            self.changes += 1;
            self.fattest.set(number, (queue.bytes, self.changes));
        }
    }

    /// Drops from the queue that holds most: half of its bytes, or a batch. `arrived` is the slot of
    /// the packet for which there was no room.
    fn drop_fattest(&mut self, arrived: u32, drops: &mut impl Drops<P>) -> bool {
        let Some((number, _)) = self.fattest.top() else { return false };
        let (queue, packets) = (&mut self.queues[number as usize], &mut self.packets);
        let enough = queue.bytes / 2;
        let mut dropped = 0;
        for _ in 0..self.options.drop_batch {
            let is_arrival = queue.waiting.slot(End::Front) == arrived;
            let reason = if is_arrival { Reason::Full } else { Reason::PushedOut };
            let occupancy = &mut self.occupancy;
            let Some(taken) = (Head { queue, packets, occupancy }).pop() else { break };
            dropped += u64::from(taken.packet.bytes());
            drops.dropped(reason, taken.packet);
            if dropped >= enough {
                break;
            }
        }
        self.rank(number);
        true
    }
}

/// One queue as its CoDel sees it.
struct Head<'a, P> {
    queue: &'a mut Queue,
    packets: &'a mut Fifos<Stamped<P>>,
    occupancy: &'a mut Occupancy,
}

impl<P: Packet> Source<P> for Head<'_, P> {
    fn pop(&mut self) -> Option<Stamped<P>> {
        let (slot, bytes) = self.packets.release(&mut self.queue.waiting, End::Front)?;
        self.queue.bytes -= u64::from(bytes);
        self.occupancy.remove(bytes);
        self.packets.take(slot)
    }

    fn bytes(&self) -> u64 {
        self.queue.bytes
    }
}

impl<P: Packet> Discipline<P> for FqCoDel<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) {
        let bytes = packet.bytes();
        if bytes > self.law.mtu_bytes || !self.occupancy.could_hold(bytes) {
            drops.dropped(Reason::TooBig, packet);
            return;
        }
        let number = self.spread.queue(packet.flow());
        let queue = &mut self.queues[number as usize];
        let slot = self.packets.push(&mut queue.waiting, Stamped { arrived: now, packet }, bytes);
        queue.bytes += u64::from(bytes);
        self.occupancy.add(bytes);
        if queue.standing == Standing::Inactive {
            queue.standing = Standing::New;
            queue.credit_bytes = i64::from(self.options.quantum_bytes);
            self.new.push(&mut self.queues, number);
        }
        self.rank(number);
        while self.occupancy.is_over() && self.drop_fattest(slot, drops) {}
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        loop {
            let is_new = self.new.first != NONE;
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = list.first;
            let queue = self.queues.get_mut(number as usize)?;
            if queue.credit_bytes <= 0 {
                queue.credit_bytes += i64::from(self.options.quantum_bytes);
                queue.standing = Standing::Old;
                list.pop(&self.queues);
                self.old.push(&mut self.queues, number);
                continue;
            }
            let mut control = queue.control;
            let (packets, occupancy) = (&mut self.packets, &mut self.occupancy);
            let mut head = Head { queue, packets, occupancy };
            let sent = control.dequeue(now, &self.law, &mut head, drops);
            queue.control = control;
            if let Some(packet) = sent {
                queue.credit_bytes -= i64::from(packet.bytes());
                queue.sent_bytes += u64::from(packet.bytes());
                self.rank(number);
                return Some(packet);
            }
            queue.standing = if is_new { Standing::Old } else { Standing::Inactive };
            list.pop(&self.queues);
            if is_new {
                self.old.push(&mut self.queues, number);
            }
            self.rank(number);
        }
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.length(), bytes: self.occupancy.bytes() }
    }
}
