//! Deficit round robin with push-out: what DRR and QSDRR share, which differ in whose packet a full buffer drops.
//!
//! An arrival is enqueued first; then, as long as the buffer holds more than it may, the queue that the
//! discipline's [`VictimRule`] chooses loses a packet, which may be the arrival itself.

use nilometer_wire::Time;

use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::fifos::End;
use crate::ranking::Ranking;
use crate::round_robin::{Layout, QueueState, RoundRobin, TOGETHER, WeightError};
use crate::settings_error::SettingsError;

/// Which queue loses a packet when the buffer is full.
pub trait VictimRule: Sized {
    /// Whether it asks the ranking for the smallest queue, and not only for the longest.
    const WITH_SMALLEST: bool;

    /// The queue that loses a packet now.
    fn choose<P: Packet>(queues: &mut PushOut<P, Self>) -> Option<u32>;

    /// Packets have left for the link.
    #[inline(always)]
    fn sent<P: Packet>(_queues: &mut PushOut<P, Self>) {}
}

/// Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) that drops from a victim by the rule `R`.
#[derive(Clone, Debug)]
pub struct PushOut<P, R> {
    pub(crate) core: RoundRobin<P>,
    pub(crate) ranking: Ranking,
    pub(crate) rule: R,
    drop_from: End,
}

impl<P: Packet, R: VictimRule> PushOut<P, R> {
    /// Empty queues of weight 1 that drop from their end `drop_from`.
    pub(crate) fn by_rule(
        rule: R,
        layout: &Layout,
        drop_from: End,
    ) -> Result<PushOut<P, R>, SettingsError> {
        let core = RoundRobin::new(layout)?;
        let ranking = Ranking::new(core.queues(), layout.capacity, R::WITH_SMALLEST);
        Ok(PushOut { core, ranking, rule, drop_from })
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
            let Some(victim) = R::choose(self) else { return };
            let dropped = self.core.push_out(victim, self.drop_from, arrived, drops);
            let Some(dropped) = dropped else { return };
            self.ranking.change(victim, dropped.units);
        }
    }
}

impl<P: Packet, R: VictimRule> Discipline<P> for PushOut<P, R> {
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
        R::sent(self);
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
        R::sent(self);
        waits
    }

    fn backlog(&self) -> Backlog {
        self.core.backlog()
    }
}
