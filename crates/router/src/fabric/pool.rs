//! The packet memory that inputs and outputs share: whose packets lie in it, by output.
//!
//! Ports of a real switch have memories of their own; here one memory holds what waits at inputs, at
//! outputs, on wires and at devices that send. Without a rule for sharing it, the queues of a slow output
//! could fill it, and the devices would have no buffers to receive into: packets to which an input's buffer
//! is guaranteed would be lost a step earlier. So a packet may enter if its *output* has room for it, by the
//! same policy as at an input ([`nilometer_queue::sharing`]): each output has a reserve in memory, wherever
//! its packets lie, and the rest by dynamic thresholds. A packet that was admitted needs no more room on its
//! way.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_queue::sharing::ReserveError;
use nilometer_queue::{Reason, Shares, Sharing};

/// The memory of the whole fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Packets that may be in it, at all inputs, outputs and devices that send together.
    pub packets: u64,
    /// How the outputs share it.
    pub sharing: Sharing,
}

/// The account of the memory.
#[derive(Debug)]
pub(super) struct Pool {
    shares: Shares,
    /// Packets that had left each output when it was last settled.
    left: Vec<u64>,
    /// Packets that have left each output and lie at its device.
    sending: Vec<u32>,
}

impl Pool {
    pub(super) fn new(outputs: usize, limits: MemoryLimits) -> Result<Pool, ReserveError> {
        let shares = Shares::new(outputs, limits.packets, limits.sharing)?;
        Ok(Pool { shares, left: vec![0; outputs], sending: vec![0; outputs] })
    }

    /// Admits a packet for `output`, or returns why not. A packet with a reservation is admitted whatever others
    /// take: the backlog of its flow is limited by its own queue.
    #[inline(always)]
    pub(super) fn admit(&mut self, output: usize, is_reserved: bool) -> Result<(), Reason> {
        if is_reserved {
            self.shares.impose(output, 1);
            return Ok(());
        }
        self.shares.admit(output)
    }

    /// Records that `left` packets have left `output` since it began; fewer than before where one came back.
    #[inline]
    pub(super) fn settle(&mut self, output: usize, left: u64) {
        let before = core::mem::replace(&mut self.left[output], left);
        match left.checked_sub(before) {
            Some(gone) => self.shares.leave(output, gone as u32),
            None => self.shares.impose(output, (before - left) as u32),
        }
    }

    /// Records that `packets` of those that have left `output` are still at its device.
    pub(super) fn set_sending(&mut self, output: usize, packets: u32) {
        let before = core::mem::replace(&mut self.sending[output], packets);
        match packets.checked_sub(before) {
            Some(more) => self.shares.impose(output, more),
            None => self.shares.leave(output, before - packets),
        }
    }

    /// Whether the count agrees with `inside` packets for `output` in the fabric and `left` that have left
    /// it since it began.
    pub(super) fn balances(&self, output: usize, inside: u64, left: u64) -> bool {
        let unsettled = left.wrapping_sub(self.left[output]);
        let counted = u64::from(self.shares.used(output) - self.sending[output]);
        counted == inside.wrapping_add(unsettled)
    }
}
