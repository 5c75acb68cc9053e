//! DRR: deficit round robin, and when the shared buffer is full the longest queue loses a packet.
//!
//! What the router paper of 2005 calls plain DRR: the scheduling of Shreedhar and Varghese (SIGCOMM
//! 1995), the dropping of McKenney's stochastic fairness queueing (INFOCOM 1990). An arrival is
//! enqueued first; then, as long as the buffer holds more than it may, a packet is dropped from the
//! queue that is longest *now*, the arrival's own included.

use crate::discipline::Packet;
use crate::fifos::End;
use crate::push_out::{PushOut, VictimRule};
use crate::round_robin::Layout;
use crate::settings_error::SettingsError;

/// The longest queue loses a packet (McKenney, INFOCOM 1990).
#[derive(Clone, Copy, Debug)]
pub struct LongestQueueDrop;

/// Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) with longest-queue drop (McKenney, INFOCOM 1990).
pub type Drr<P> = PushOut<P, LongestQueueDrop>;

impl<P: Packet> Drr<P> {
    /// Empty queues of weight 1 that drop from their end `drop_from`.
    ///
    /// # Errors
    /// When `layout` is out of its ranges.
    pub fn new(layout: &Layout, drop_from: End) -> Result<Drr<P>, SettingsError> {
        PushOut::by_rule(LongestQueueDrop, layout, drop_from)
    }
}

impl VictimRule for LongestQueueDrop {
    const WITH_SMALLEST: bool = false;

    #[inline(always)]
    fn choose<P: Packet>(drr: &mut Drr<P>) -> Option<u32> {
        drr.ranking.ask(&drr.core).longest()
    }
}
