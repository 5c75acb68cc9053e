//! Reserved flows in a batch: their packets are marked with their queue and sent on their pinned route.
//!
//! See [`super::reserved`] for its place on a packet's path.

use core::mem;

use nilometer_queue::{Contract, ContractError};
use nilometer_wire::Time;

use super::Router;
use super::reserved::{ReservedFlow, ReservedFlows};
use super::version::Version;
use crate::classifier::Action;
use crate::header::{AnyKey, Header, Key};
use crate::memory::{Memory, ReturnBuffers};

impl Router {
    /// Marks the packets of a batch whose flows have a reservation, and pins their routes.
    #[inline(always)]
    pub(super) fn meet_reservations(&mut self, input: usize) {
        if !self.reserved.is_empty() {
            self.meet_reservations_of::<u32>(input);
            self.meet_reservations_of::<u128>(input);
        }
    }

    #[inline(never)]
    fn meet_reservations_of<A: Version>(&mut self, input: usize) {
        let mut lane = A::lane(&mut self.lanes).take();
        let mut found = mem::take(&mut self.reserved.found);
        found.clear();
        found.resize(lane.packets, None);
        let filters = A::reserved(&mut self.reserved);
        filters.classify(input, &lane.keys[..lane.packets], &mut found);
        for (at, found) in found.iter().enumerate() {
            let Some(id) = *found else { continue };
            let brief = &mut lane.briefs[at];
            let (action, _) = A::reserved(&mut self.reserved).meet(Some(id), brief.ip_bytes);
            let Action::Reserved(queue) = action else { continue };
            brief.reserve(queue);
            let pinned = self.reserved.pinned.get(id.0 as usize).copied().flatten();
            lane.next[at] = pinned.or(lane.next[at]);
        }
        self.reserved.found = found;
        lane.put_back(A::lane(&mut self.lanes));
    }

    /// The reservation of a packet on the slow path, whose filter has counted it in its batch.
    pub(super) fn reservation_of(&mut self, input: usize, header: &Header) -> Option<ReservedFlow> {
        match header.key {
            AnyKey::V4(key) => self.reservation_for(input, key),
            AnyKey::V6(key) => self.reservation_for(input, key),
        }
    }

    /// The reservation of packets with this `key` that come by `input`.
    pub(super) fn reservation_for<A: Version>(
        &mut self,
        input: usize,
        key: Key<A>,
    ) -> Option<ReservedFlow> {
        if self.reserved.is_empty() {
            return None;
        }
        let (filters, mut found) = (A::reserved(&mut self.reserved), [None]);
        filters.classify(input, &[key], &mut found);
        let id = found[0]?;
        let Action::Reserved(queue) = filters.get(id)?.0.action else { return None };
        let pinned = self.reserved.pinned.get(id.0 as usize).copied().flatten();
        Some(ReservedFlow { queue, pinned })
    }

    /// The filters of reservations.
    pub fn reserved(&self) -> &ReservedFlows {
        &self.reserved
    }

    /// The filters of reservations, for changes between batches.
    pub fn reserved_mut(&mut self) -> &mut ReservedFlows {
        &mut self.reserved
    }

    /// Gives a reserved queue of `output` a contract, or another one.
    ///
    /// # Errors
    /// When there is no such queue, or it would have no capacity.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn reserve(
        &mut self,
        output: usize,
        queue: u16,
        contract: Contract,
    ) -> Result<(), ContractError> {
        self.fabric.reserve(output, queue.into(), contract)
    }

    /// Ends the contract of a reserved queue of `output`, and returns whether it had one; its packets
    /// continue as best effort.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn unreserve<M: Memory>(
        &mut self,
        now: Time,
        output: usize,
        queue: u16,
        memory: &mut M,
    ) -> bool {
        self.fabric.release(now, output, queue.into(), &mut ReturnBuffers(memory))
    }
}
