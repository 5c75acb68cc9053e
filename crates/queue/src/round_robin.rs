//! Deficit round robin over queues that share one buffer: the core of DRR, TDRR and QSDRR.
//!
//! Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995): queues with packets stand in a ring.
//! The one whose turn begins is given its quantum of bytes; it sends as long as its first packet is
//! within what it was given, keeps what is left for its next turn if packets stay, and loses it if
//! none does. A quantum is never less than the largest packet, so every turn sends, and finding the
//! next sender looks at two queues at most. A quantum of weight × MTU makes bandwidth proportional
//! to weights.
//!
//! The link requests one packet at a time, so a turn is interrupted by arrivals and drops; whether
//! it has begun and what is left of it are remembered. A queue that becomes active enters the ring
//! behind all others. A drop may empty a queue anywhere in the ring, which is why the ring is
//! linked both ways.
//!
//! Within any span in which two queues always hold packets, what each has sent per weight differs
//! by less than MTU·(1 + 1/w + 1/v) of their weights w, v (Shreedhar and Varghese, lemma 2): one
//! quantum and a largest packet of each.

use alloc::vec;
use alloc::vec::Vec;

use crate::capacity::{Capacity, Occupancy};
use crate::discipline::{Backlog, Drops, Packet, Reason};
use crate::fifos::{End, Fifo, Fifos, NONE};
use crate::hashing::{Hashing, Spread};
use crate::settings_error::SettingsError;
use nilometer_wire::prefetch::prefetch;

pub use crate::limits::{LARGEST_MTU_BYTES, LARGEST_WEIGHT, MOST_QUEUES};

/// Packets that are expected together.
pub(crate) const TOGETHER: usize = 32;

/// Queues that share a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What all of them hold together.
    pub capacity: Capacity,
    /// How many they are, 1 to [`MOST_QUEUES`].
    pub queues: u32,
    /// Which of them a flow waits in.
    pub hashing: Hashing,
    /// The seed of [`Hashing::Mixed`].
    pub hash_seed: u64,
    /// The largest packet, 1 to [`LARGEST_MTU_BYTES`]; one that is larger is dropped as too big. At
    /// weight 1 also the quantum.
    pub mtu_bytes: u32,
}

impl Layout {
    fn check(&self) -> Result<(), SettingsError> {
        if self.capacity.limit() == 0 {
            return Err(SettingsError::NoCapacity);
        }
        if !(1..=MOST_QUEUES).contains(&self.queues) {
            return Err(SettingsError::Queues(self.queues));
        }
        if !(1..=LARGEST_MTU_BYTES).contains(&self.mtu_bytes) {
            return Err(SettingsError::Mtu(self.mtu_bytes));
        }
        Ok(())
    }
}

/// What a queue of a discipline is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueState {
    /// Packets that wait in it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its share of the link against the other queues' weights.
    pub weight: u32,
    /// Whether it takes part in the round: whether anything waits.
    pub is_active: bool,
    /// Bytes that left it for the link since the beginning.
    pub sent_bytes: u64,
    /// The average that its discipline keeps of what it sends, in bits per second; of TDRR only.
    pub throughput_bps: Option<f64>,
}

/// Why a weight was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightError {
    /// The discipline has no queue of that number, or none with weights.
    NoSuchQueue,
    /// A weight is 1 to [`LARGEST_WEIGHT`].
    OutOfRange,
}

/// One queue; a cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Queue {
    /// What it takes of the buffer, in the unit of the capacity; apart from its bytes, as in the
    /// occupancy of the whole.
    units: u64,
    sent_bytes: u64,
    bytes: u64,
    /// The number of its last change among those of all queues.
    changed: u64,
    waiting: Fifo,
    deficit: u32,
    quantum: u32,
    next: u32,
    prev: u32,
}

impl Queue {
    /// Takes the packet at `end` of the queue of this `number` out of its list and out of all accounts.
    #[inline(always)]
    fn release<P>(
        &mut self,
        number: u32,
        end: End,
        (packets, occupancy, changes): (&mut Fifos<P>, &mut Occupancy, &mut u64),
    ) -> Option<Moved> {
        let (slot, bytes) = packets.release(&mut self.waiting, end)?;
        self.bytes -= u64::from(bytes);
        *changes += 1;
        self.changed = *changes;
        self.units -= occupancy.remove(bytes);
        Some(Moved { queue: number, units: self.units, bytes, slot })
    }
}

/// A packet that was added to a queue, or removed from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) queue: u32,
    /// What the queue now takes of the buffer, in the unit of the capacity.
    pub(crate) units: u64,
    /// The packet's.
    pub(crate) bytes: u32,
    slot: u32,
}

/// The queues, the ring of those that are active, and the buffer that they share.
#[derive(Clone, Debug)]
pub(crate) struct RoundRobin<P> {
    queues: Vec<Queue>,
    packets: Fifos<P>,
    /// Whose turn it is; `NONE` when nothing waits.
    current: u32,
    /// Whether the current queue has been given its quantum.
    turn_began: bool,
    /// Changes of queues' lengths so far.
    changes: u64,
    occupancy: Occupancy,
    spread: Spread,
    mtu_bytes: u32,
    /// The largest packet that may be taken in at all.
    largest_bytes: u32,
}

impl<P: Packet> RoundRobin<P> {
    /// Empty queues of weight 1.
    pub(crate) fn new(layout: &Layout) -> Result<RoundRobin<P>, SettingsError> {
        layout.check()?;
        let queue = Queue {
            units: 0,
            sent_bytes: 0,
            bytes: 0,
            changed: 0,
            waiting: Fifo::EMPTY,
            deficit: 0,
            quantum: layout.mtu_bytes,
            next: NONE,
            prev: NONE,
        };
        Ok(RoundRobin {
            queues: vec![queue; layout.queues as usize],
            packets: Fifos::new(),
            current: NONE,
            turn_began: false,
            changes: 0,
            occupancy: Occupancy::new(layout.capacity),
            spread: Spread::new(layout.hashing, layout.queues, layout.hash_seed),
            mtu_bytes: layout.mtu_bytes,
            largest_bytes: layout.mtu_bytes.min(layout.capacity.largest_bytes()),
        })
    }

    /// Whether a packet of `bytes` may be taken in at all.
    #[inline]
    pub(crate) fn could_hold(&self, bytes: u32) -> bool {
        bytes <= self.largest_bytes
    }

    /// The queue of a flow.
    #[inline]
    pub(crate) fn queue_of(&self, flow: u32) -> u32 {
        self.spread.queue(flow)
    }

    /// The queues of the first [`TOGETHER`] of `packets`. Prefetches what [`RoundRobin::push`] will read
    /// for them, first the queues, then the slots at their tails.
    #[inline]
    pub(crate) fn expect(&self, packets: &[P]) -> [u32; TOGETHER] {
        let mut numbers = [0; TOGETHER];
        for (number, packet) in numbers.iter_mut().zip(packets) {
            *number = self.spread.queue(packet.flow());
            prefetch(&raw const self.queues[*number as usize]);
        }
        for number in numbers.iter().take(packets.len()) {
            self.packets.prefetch(&self.queues[*number as usize].waiting, End::Tail);
        }
        numbers
    }

    /// Takes `packet` into the queue of this `number`, that of its flow, whether there is room or not.
    #[inline(always)]
    pub(crate) fn push(&mut self, number: u32, packet: P) -> Moved {
        let bytes = packet.bytes();
        let queue = &mut self.queues[number as usize];
        let slot = self.packets.push(&mut queue.waiting, packet, bytes);
        queue.bytes += u64::from(bytes);
        self.changes += 1;
        queue.changed = self.changes;
        queue.units += self.occupancy.add(bytes);
        let moved = Moved { queue: number, units: queue.units, bytes, slot };
        if queue.waiting.length() == 1 {
            self.activate(number);
        }
        moved
    }

    /// Whether a packet has to be pushed out.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.occupancy.is_over()
    }

    /// The buffer.
    pub(crate) fn occupancy(&self) -> &Occupancy {
        &self.occupancy
    }

    /// What `queue` takes of the buffer, in the unit of the capacity.
    #[inline]
    pub(crate) fn units(&self, queue: u32) -> u64 {
        self.queues[queue as usize].units
    }

    /// Of every active queue what it takes of the buffer, when it last changed, and its number; in the
    /// order of the round.
    pub(crate) fn active(&self) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        let first = (self.current != NONE).then_some(self.current);
        let next = |at: &u32| {
            let next = self.queues[*at as usize].next;
            (next != self.current).then_some(next)
        };
        core::iter::successors(first, next).map(|at| {
            let queue = &self.queues[at as usize];
            (queue.units, queue.changed, at)
        })
    }

    /// The share of the link that a flow gets as long as the queues that are backlogged now stay so: the quantum of
    /// its queue, and the sum of that and the quanta of all other active queues.
    pub(crate) fn share(&self, flow: u32) -> (u64, u64) {
        let own = self.queue_of(flow);
        let quantum = |queue: u32| u64::from(self.queues[queue as usize].quantum);
        let others = self.active().filter(|(.., queue)| *queue != own);
        let others: u64 = others.map(|(.., queue)| quantum(queue)).sum();
        (quantum(own), quantum(own) + others)
    }

    /// Whether one packet waits in `queue`, as just after it became active.
    pub(crate) fn is_alone(&self, queue: u32) -> bool {
        self.queues[queue as usize].waiting.length() == 1
    }

    /// What waits in all queues.
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.length(), bytes: self.occupancy.bytes() }
    }

    /// How many queues there are.
    pub(crate) fn queues(&self) -> u32 {
        self.queues.len() as u32
    }

    /// Drops from `end` of `victim`, because what has `arrived` found the buffer full; it may be that
    /// packet itself.
    #[inline]
    pub(crate) fn push_out(
        &mut self,
        victim: u32,
        end: End,
        arrived: Moved,
        drops: &mut impl Drops<P>,
    ) -> Option<Moved> {
        let moved = self.remove(victim, end)?;
        let reason = if moved.slot == arrived.slot { Reason::Full } else { Reason::PushedOut };
        if let Some(packet) = self.packets.take(moved.slot) {
            drops.dropped(reason, packet);
        }
        Some(moved)
    }

    /// Chooses the next packet to be sent and takes it out of the accounts; [`RoundRobin::take`] returns it.
    #[inline(always)]
    pub(crate) fn send(&mut self) -> Option<Moved> {
        let number = self.turn()?;
        let RoundRobin { queues, packets, occupancy, changes, .. } = self;
        let queue = &mut queues[number as usize];
        let moved = queue.release(number, End::Front, (packets, occupancy, changes))?;
        queue.sent_bytes += u64::from(moved.bytes);
        if queue.waiting.length() == 0 {
            self.retire(number);
        }
        self.look_ahead();
        Some(moved)
    }

    /// Repeats [`RoundRobin::send`] and [`RoundRobin::take`] until `give` wants no more (returns true) or
    /// nothing waits (false). What a queue sends in one turn is entered into its accounts at once.
    #[inline(always)]
    pub(crate) fn send_while(&mut self, mut give: impl FnMut(P) -> bool) -> bool {
        loop {
            self.look_ahead();
            let RoundRobin { queues, packets, occupancy, .. } = self;
            let Some(queue) = queues.get_mut(self.current as usize) else { return false };
            if !self.turn_began {
                queue.deficit += queue.quantum;
                self.turn_began = true;
            }
            let before = queue.waiting.length();
            let mut units = 0;
            let released =
                packets.release_while(&mut queue.waiting, queue.deficit, |packet, bytes| {
                    units += occupancy.units_of(bytes);
                    give(packet)
                });
            let bytes = u64::from(queue.deficit - released.left_bytes);
            queue.deficit = released.left_bytes;
            queue.bytes -= bytes;
            queue.sent_bytes += bytes;
            queue.units -= units;
            occupancy.remove_all(units, bytes);
            let sent = before - queue.waiting.length();
            self.changes += u64::from(sent);
            if sent > 0 {
                queue.changed = self.changes;
            }
            if queue.waiting.length() == 0 {
                self.retire(self.current);
            } else if released.wants_more {
                self.current = queue.next;
                self.turn_began = false;
            }
            if !released.wants_more {
                return true;
            }
        }
    }

    /// Prefetches what the next packets to be sent need: the slots at the front of this queue and of
    /// the next, and the queue after that, whose slots are prefetched when it is the next.
    #[inline]
    fn look_ahead(&self) {
        let Some(queue) = self.queues.get(self.current as usize) else { return };
        self.packets.prefetch(&queue.waiting, End::Front);
        let Some(next) = self.queues.get(queue.next as usize) else { return };
        self.packets.prefetch(&next.waiting, End::Front);
        prefetch(self.queues.as_ptr().wrapping_add(next.next as usize));
    }

    /// The packet that [`RoundRobin::send`] chose.
    #[inline]
    pub(crate) fn take(&mut self, sent: Moved) -> Option<P> {
        self.packets.take(sent.slot)
    }

    /// The queue that sends next, its first packet already charged to it.
    #[inline(always)]
    fn turn(&mut self) -> Option<u32> {
        loop {
            let queue = self.queues.get_mut(self.current as usize)?;
            if !self.turn_began {
                queue.deficit += queue.quantum;
                self.turn_began = true;
            }
            let bytes = self.packets.front_bytes(&queue.waiting)?;
            if bytes <= queue.deficit {
                queue.deficit -= bytes;
                return Some(self.current);
            }
            self.current = queue.next;
            self.turn_began = false;
        }
    }

    /// Takes the packet at `end` of a queue out of all accounts; it is left in its slot.
    #[inline(always)]
    fn remove(&mut self, number: u32, end: End) -> Option<Moved> {
        let RoundRobin { queues, packets, occupancy, changes, .. } = self;
        let queue = &mut queues[number as usize];
        let moved = queue.release(number, end, (packets, occupancy, changes))?;
        if queue.waiting.length() == 0 {
            self.retire(number);
        }
        Some(moved)
    }

    /// Puts a queue into the ring, last of all: just before the one whose turn it is.
    fn activate(&mut self, number: u32) {
        let Some(current) = self.queues.get_mut(self.current as usize) else {
            let queue = &mut self.queues[number as usize];
            (queue.next, queue.prev) = (number, number);
            self.current = number;
            self.turn_began = false;
            return;
        };
        let last = core::mem::replace(&mut current.prev, number);
        self.queues[last as usize].next = number;
        let queue = &mut self.queues[number as usize];
        (queue.next, queue.prev) = (self.current, last);
    }

    /// Takes a queue that has become empty out of the ring and clears its deficit.
    fn retire(&mut self, number: u32) {
        let queue = &mut self.queues[number as usize];
        queue.deficit = 0;
        let (next, prev) = (queue.next, queue.prev);
        self.queues[prev as usize].next = next;
        self.queues[next as usize].prev = prev;
        if self.current == number {
            self.current = if next == number { NONE } else { next };
            self.turn_began = false;
        }
    }

    /// Gives `queue` a share of the link, from its next turn on.
    pub(crate) fn set_weight(&mut self, queue: u32, weight: u32) -> Result<(), WeightError> {
        if !(1..=LARGEST_WEIGHT).contains(&weight) {
            return Err(WeightError::OutOfRange);
        }
        let queue = self.queues.get_mut(queue as usize).ok_or(WeightError::NoSuchQueue)?;
        queue.quantum = weight * self.mtu_bytes;
        Ok(())
    }

    /// What `queue` is doing, if there is one of that number.
    pub(crate) fn state(&self, queue: u32) -> Option<QueueState> {
        let queue = self.queues.get(queue as usize)?;
        Some(QueueState {
            packets: u64::from(queue.waiting.length()),
            bytes: queue.bytes,
            weight: queue.quantum / self.mtu_bytes,
            is_active: queue.waiting.length() > 0,
            sent_bytes: queue.sent_bytes,
            throughput_bps: None,
        })
    }
}
