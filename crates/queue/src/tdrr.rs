//! Throughput DRR: deficit round robin, and when the buffer is full the fastest queue loses.
//!
//! Kantawala and Turner's TDRR (the router paper of 2005, section 7.1): scheduling as DRR, and the
//! victim of a drop is the active queue with the highest throughput. Each queue keeps an
//! exponentially weighted average T of what it sends, brought up to date when it sends: n bytes
//! after a time d since it last sent make T ← T + w·(n/d − T). The published weight could not be
//! read; w = 1/32 is a reconstruction, and since it weighs packets alike whether they are a
//! microsecond or a second apart, there is a second preset that averages over a time τ:
//! w = 1 − exp(−d/τ). Choosing this parameter is what QSDRR does without.
//!
//! An average changes when its own queue sends and at no other time, so an indexed heap of the
//! active queues moves one entry per departure, O(log queues); a scan would look at all of them at
//! every drop. Of equal averages the queue that last sent or became active is the victim. A first
//! departure only starts the clock, and bytes that leave at one moment count as one departure.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::fifos::End;
use crate::heap::IndexedHeap;
use crate::round_robin::{Layout, QueueState, RoundRobin, WeightError};
use crate::settings_error::SettingsError;

/// How a queue's throughput is averaged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Averaging {
    /// The newest departure has this weight, above 0 and at most 1.
    PerDeparture(f64),
    /// The newest departure has the weight of its time against this one, which is not zero.
    OverTime(Span),
}

/// What TDRR leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TdrrOptions {
    /// How a queue's throughput is averaged.
    pub averaging: Averaging,
    /// Which end of the victim loses packets.
    pub drop_from: End,
}

impl TdrrOptions {
    /// The newest departure weighs 1/32: a reconstruction of the study's parameter.
    pub const PER_DEPARTURE: TdrrOptions =
        TdrrOptions { averaging: Averaging::PerDeparture(1.0 / 32.0), drop_from: End::Front };
}

impl Default for TdrrOptions {
    fn default() -> TdrrOptions {
        TdrrOptions::PER_DEPARTURE
    }
}

/// The average of one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    bytes_per_second: f64,
    /// When it last sent.
    last: Option<Time>,
    /// Bytes that left at that very moment, after the average was brought up to date.
    unaccounted_bytes: u64,
}

impl Meter {
    fn sent(&mut self, now: Time, bytes: u32, averaging: Averaging) {
        let Some(last) = self.last else {
            self.last = Some(now);
            return;
        };
        self.unaccounted_bytes += u64::from(bytes);
        let span = now.since(last);
        if span == Span::ZERO {
            return;
        }
        let weight = match averaging {
            Averaging::PerDeparture(weight) => weight,
            Averaging::OverTime(time) => -libm::expm1(-(span.0 as f64) / time.0 as f64),
        };
        let rate = self.unaccounted_bytes as f64 / span.as_secs_f64();
        self.bytes_per_second += weight * (rate - self.bytes_per_second);
        self.last = Some(now);
        self.unaccounted_bytes = 0;
    }
}

/// Throughput DRR.
#[derive(Clone, Debug)]
pub struct Tdrr<P> {
    core: RoundRobin<P>,
    meters: Vec<Meter>,
    /// Active queues by throughput, then by when they last sent or became active. A float that is
    /// not negative has the order of its bits.
    fastest: IndexedHeap<(u64, u64)>,
    changes: u64,
    options: TdrrOptions,
}

impl<P: Packet> Tdrr<P> {
    /// Empty queues of weight 1.
    ///
    /// # Errors
    /// When `layout` or `options` are out of their ranges.
    pub fn new(layout: &Layout, options: TdrrOptions) -> Result<Tdrr<P>, SettingsError> {
        let is_sound = match options.averaging {
            Averaging::PerDeparture(weight) => weight > 0.0 && weight <= 1.0,
            Averaging::OverTime(time) => time > Span::ZERO,
        };
        if !is_sound {
            return Err(SettingsError::Tdrr("the averaging weight is not in (0, 1]"));
        }
        let core = RoundRobin::new(layout)?;
        let meters = vec![Meter::default(); core.queues() as usize];
        let fastest = IndexedHeap::new(core.queues());
        Ok(Tdrr { core, meters, fastest, changes: 0, options })
    }

    /// Gives `queue` a share of the link proportional to `weight`, from its next turn on.
    ///
    /// # Errors
    /// When there is no such queue, or the weight is out of range.
    pub fn set_weight(&mut self, queue: u32, weight: u32) -> Result<(), WeightError> {
        self.core.set_weight(queue, weight)
    }

    /// The share of the link that a flow gets as long as the queues that are backlogged now stay so: its weight, and
    /// the sum of that and the weights of all other active queues, in one unit.
    pub fn share(&self, flow: u32) -> (u64, u64) {
        self.core.share(flow)
    }

    /// What `queue` is doing, if there is one of that number.
    pub fn queue_state(&self, queue: u32) -> Option<QueueState> {
        let state = self.core.state(queue)?;
        let throughput_bps = Some(8.0 * self.meters[queue as usize].bytes_per_second);
        Some(QueueState { throughput_bps, ..state })
    }

    fn rank(&mut self, queue: u32) {
        self.changes += 1;
        let throughput = self.meters[queue as usize].bytes_per_second;
        self.fastest.set(queue, (throughput.to_bits(), self.changes));
    }
}

impl<P: Packet> Discipline<P> for Tdrr<P> {
    fn enqueue(&mut self, _now: Time, packet: P, drops: &mut impl Drops<P>) {
        let bytes = packet.bytes();
        if !self.core.could_hold(bytes) {
            drops.dropped(Reason::TooBig, packet);
            return;
        }
        let arrived = self.core.push(self.core.queue_of(packet.flow()), packet);
        if self.core.is_alone(arrived.queue) {
            self.rank(arrived.queue);
        }
        while self.core.is_over() {
            let Some((victim, _)) = self.fastest.top() else { return };
            let end = self.options.drop_from;
            let Some(dropped) = self.core.push_out(victim, end, arrived, drops) else { return };
            if dropped.units == 0 {
                self.fastest.remove(victim);
            }
        }
    }

    fn dequeue(&mut self, now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        let sent = self.core.send()?;
        let queue = sent.queue;
        self.meters[queue as usize].sent(now, sent.bytes, self.options.averaging);
        if sent.units == 0 {
            self.fastest.remove(queue);
        } else {
            self.rank(queue);
        }
        self.core.take(sent)
    }

    fn backlog(&self) -> Backlog {
        self.core.backlog()
    }
}
