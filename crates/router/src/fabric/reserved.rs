//! Reserved queues at outputs of the fabric: their contracts, packets that cross to them at once, and a flow's share.

use alloc::vec::Vec;

use nilometer_queue::{Any, Contract, ContractError, Drops, Packet, Reserved};
use nilometer_wire::Time;

use super::Fabric;

impl<P: Packet + Copy> Fabric<P> {
    /// Whether a packet waits in a reserved queue at its output.
    #[inline(always)]
    pub(super) fn has_contract(&self, output: usize, packet: &P) -> bool {
        packet.reserved().is_some_and(|queue| self.outputs[output].reserved().has(queue))
    }

    /// [`Fabric::enqueue`] for packets with a reservation; they are taken out of the list.
    #[inline(never)]
    pub(super) fn enqueue_reserved(
        &mut self,
        now: Time,
        input: usize,
        packets: &mut Vec<(u16, P)>,
        drops: &mut impl Drops<P>,
    ) {
        packets.retain(|(output, packet)| {
            let is_reserved = self.has_contract(usize::from(*output), packet);
            if is_reserved {
                self.enqueue(now, (input, usize::from(*output)), *packet, drops);
            }
            !is_reserved
        });
    }

    /// Gives a reserved queue of `output` a contract, or another one (`nilometer_queue::reserved`). Packets that name
    /// it cross the fabric at once, since their bandwidth is booked at both ports, and wait in it alone. Panics where
    /// there is no such port.
    ///
    /// # Errors
    /// When there is no such queue, or it would have no capacity.
    pub fn reserve(
        &mut self,
        output: usize,
        queue: u32,
        contract: Contract,
    ) -> Result<(), ContractError> {
        self.outputs[output].reserve(queue, contract)
    }

    /// Ends the contract of a reserved queue of `output`, and returns whether it had one; packets that wait in it
    /// continue as best effort. Panics where there is no such port.
    pub fn release(
        &mut self,
        now: Time,
        output: usize,
        queue: u32,
        drops: &mut impl Drops<P>,
    ) -> bool {
        let is_ended = self.outputs[output].release(now, queue, drops);
        self.settle(output);
        is_ended
    }

    /// The reserved queues of `output`. Panics where there is no such port.
    pub fn reserved(&self, output: usize) -> &Reserved<P, Any<P>> {
        self.outputs[output].reserved()
    }

    /// Bits per second that the link of `output` gives the flow of a packet: by its contract, or else as long as the
    /// same flows are waiting there; nothing where the link has no rate, or a discipline that does not share it by
    /// flows. Panics where there is no such port.
    pub fn share_bps(&self, output: usize, packet: &P) -> Option<u64> {
        let reserved = self.reserved(output);
        if let Some(state) = packet.reserved().and_then(|queue| reserved.state(queue)) {
            return Some(state.contract.rate.bits_per_second());
        }
        let rate = u128::from(self.rate(output)?.bits_per_second());
        let (own, all) = self.discipline(output).share(packet.flow())?;
        u64::try_from(rate * u128::from(own) / u128::from(all.max(1))).ok()
    }
}
