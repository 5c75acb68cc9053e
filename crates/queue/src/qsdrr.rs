//! Queue State DRR: deficit round robin that drops from one queue until it is the smallest.
//!
//! Kantawala and Turner, as the router paper of 2005 gives it (sections 4.1 and 7): QSDRR
//! "continues to drop packets from the same queue when faced with congestion until that queue is
//! the smallest amongst all active queues". One word of state is added to DRR with longest-queue
//! drop, the victim. At every drop,
//!
//! * if there is no victim, or it has become empty, or it is smaller than every other active queue,
//!   the queue that is longest now becomes the victim;
//! * the victim loses a packet.
//!
//! So a short congestion falls on few flows, each of which sees a burst of losses that it answers
//! once, instead of on all flows, which would then halve together. No parameter is tuned.
//!
//! What the paper leaves open is an option here ([`QsdrrOptions`]): which end of the victim drops,
//! whether "the smallest" allows others as small, and whether the victim is remembered beyond the
//! congestion that chose it. With a single active queue the victim is trivially the smallest and is
//! chosen again.

use nilometer_wire::Time;

use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::fifos::End;
use crate::ranking::Ranking;
use crate::round_robin::{Layout, QueueState, RoundRobin, TOGETHER, WeightError};
use crate::settings_error::SettingsError;

/// What the published text of QSDRR leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QsdrrOptions {
    /// Which end of the victim loses packets; the front, where the sender notices soonest.
    pub drop_from: End,
    /// Whether the victim is released only when all other active queues are longer (true), or
    /// already when none is shorter (false).
    pub strictly_smallest: bool,
    /// In percent of the capacity, 1 to 100: when a departure leaves less than this in the buffer,
    /// congestion is over and the victim is forgotten. `None` keeps it, as the paper says.
    pub release_below_percent: Option<u8>,
}

impl Default for QsdrrOptions {
    fn default() -> QsdrrOptions {
        QsdrrOptions { drop_from: End::Front, strictly_smallest: true, release_below_percent: None }
    }
}

/// Queue State DRR.
#[derive(Clone, Debug)]
pub struct Qsdrr<P> {
    core: RoundRobin<P>,
    ranking: Ranking,
    victim: Option<u32>,
    options: QsdrrOptions,
    /// The victim is forgotten when less than this is taken, in units of the capacity.
    release_below: u64,
}

impl<P: Packet> Qsdrr<P> {
    /// Empty queues of weight 1.
    ///
    /// # Errors
    /// When `layout` or `options` are out of their ranges.
    pub fn new(layout: &Layout, options: QsdrrOptions) -> Result<Qsdrr<P>, SettingsError> {
        let core = RoundRobin::new(layout)?;
        let percent = match options.release_below_percent {
            None => 0,
            Some(percent @ 1..=100) => u64::from(percent),
            Some(_) => return Err(SettingsError::Qsdrr("release_below_percent is not 1 to 100")),
        };
        let ranking = Ranking::new(core.queues(), layout.capacity, true);
        let release_below = (layout.capacity.limit() * percent).div_ceil(100);
        Ok(Qsdrr { core, ranking, victim: None, options, release_below })
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
        self.core.state(queue)
    }

    /// The queue that lost the last packet, unless the choice has been forgotten.
    pub fn victim(&self) -> Option<u32> {
        self.victim
    }

    /// The queue that loses a packet now.
    #[inline]
    fn choose(&mut self) -> Option<u32> {
        let strictly = self.options.strictly_smallest;
        let lengths = self.ranking.ask(&self.core);
        let stays =
            |&victim: &u32| self.core.units(victim) > 0 && !lengths.is_smallest(victim, strictly);
        self.victim = self.victim.filter(stays).or_else(|| lengths.longest());
        self.victim
    }

    /// `packet` arrives for `queue`, that of its flow.
    #[inline(always)]
    fn take_in(&mut self, queue: u32, packet: P, drops: &mut impl Drops<P>) {
        if !self.core.could_hold(packet.bytes()) {
            drops.dropped(Reason::TooBig, packet);
            return;
        }
        let arrived = self.core.push(queue, packet);
        self.ranking.change(arrived.queue, arrived.units);
        while self.core.is_over() {
            let Some(victim) = self.choose() else { return };
            let dropped = self.core.push_out(victim, self.options.drop_from, arrived, drops);
            let Some(dropped) = dropped else { return };
            self.ranking.change(victim, dropped.units);
        }
    }
}

impl<P: Packet> Discipline<P> for Qsdrr<P> {
    #[inline]
    fn expect(&self, packets: &[P]) {
        for packets in packets.chunks(TOGETHER) {
            self.core.expect(packets);
        }
    }

    #[inline]
    fn enqueue(&mut self, _now: Time, packet: P, drops: &mut impl Drops<P>) {
        let queue = self.core.queue_of(packet.flow());
        self.take_in(queue, packet, drops);
    }

    #[inline]
    fn enqueue_all(&mut self, _now: Time, packets: &[P], drops: &mut impl Drops<P>)
    where
        P: Copy,
    {
        for packets in packets.chunks(TOGETHER) {
            let queues = self.core.expect(packets);
            for (packet, queue) in packets.iter().zip(queues) {
                self.take_in(queue, *packet, drops);
            }
        }
    }

    #[inline]
    fn dequeue(&mut self, _now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        let sent = self.core.send()?;
        self.ranking.change(sent.queue, sent.units);
        if self.core.occupancy().units() < self.release_below {
            self.victim = None;
        }
        self.core.take(sent)
    }

    #[inline]
    fn dequeue_while(
        &mut self,
        now: Time,
        drops: &mut impl Drops<P>,
        mut give: impl FnMut(P) -> bool,
    ) -> bool {
        while self.ranking.is_kept() {
            let Some(packet) = self.dequeue(now, drops) else { return false };
            if !give(packet) {
                return true;
            }
        }
        let waits = self.core.send_while(give);
        if self.core.occupancy().units() < self.release_below {
            self.victim = None;
        }
        waits
    }

    fn backlog(&self) -> Backlog {
        self.core.backlog()
    }
}
