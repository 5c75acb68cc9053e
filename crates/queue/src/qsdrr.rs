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

use crate::discipline::Packet;
use crate::fifos::End;
use crate::push_out::{PushOut, VictimRule};
use crate::round_robin::Layout;
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

/// One queue loses packets until it is the smallest (Kantawala and Turner).
#[derive(Clone, Debug)]
pub struct QueueStateDrop {
    victim: Option<u32>,
    strictly_smallest: bool,
    /// The victim is forgotten when less than this is taken, in units of the capacity.
    release_below: u64,
}

/// Queue State DRR.
pub type Qsdrr<P> = PushOut<P, QueueStateDrop>;

impl<P: Packet> Qsdrr<P> {
    /// Empty queues of weight 1.
    ///
    /// # Errors
    /// When `layout` or `options` are out of their ranges.
    pub fn new(layout: &Layout, options: QsdrrOptions) -> Result<Qsdrr<P>, SettingsError> {
        let QsdrrOptions { drop_from, strictly_smallest, release_below_percent } = options;
        let percent = match release_below_percent {
            None => 0,
            Some(percent @ 1..=100) => u64::from(percent),
            Some(_) => return Err(SettingsError::Qsdrr("release_below_percent is not 1 to 100")),
        };
        let release_below = (layout.capacity.limit() * percent).div_ceil(100);
        let rule = QueueStateDrop { victim: None, strictly_smallest, release_below };
        PushOut::by_rule(rule, layout, drop_from)
    }

    /// The queue that lost the last packet, unless the choice has been forgotten.
    pub fn victim(&self) -> Option<u32> {
        self.rule.victim
    }
}

impl VictimRule for QueueStateDrop {
    const WITH_SMALLEST: bool = true;

    #[inline]
    fn choose<P: Packet>(qsdrr: &mut Qsdrr<P>) -> Option<u32> {
        let PushOut { core, ranking, rule, .. } = qsdrr;
        let strictly = rule.strictly_smallest;
        let lengths = ranking.ask(core);
        let stays =
            |&victim: &u32| core.units(victim) > 0 && !lengths.is_smallest(victim, strictly);
        rule.victim = rule.victim.filter(stays).or_else(|| lengths.longest());
        rule.victim
    }

    #[inline(always)]
    fn sent<P: Packet>(qsdrr: &mut Qsdrr<P>) {
        if qsdrr.core.occupancy().units() < qsdrr.rule.release_below {
            qsdrr.rule.victim = None;
        }
    }
}
