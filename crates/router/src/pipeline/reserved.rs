//! Filters of reservations: which packets belong to a reserved flow, which queue it has, and its pinned route.
//!
//! A reservation consists of a contract at its output ([`crate::Fabric::reserve`]) and of filters that say which
//! packets it is for (DER, 3.5: "a new rule is added to the classifier to bind the reserved flow to its
//! reservation"). These filters stand apart from those of the operator, behind them on a packet's way: the right to
//! reserve does not allow passing what is denied. The order is
//!
//! ```text
//!   classify ─ plugins ─ look up ─ reservations ─ decide ─┬─ reserved ─► output, queue of the flow
//!                                  (queue, pinned route)  └─ others ───► virtual output queue
//! ```
//!
//! Packets with options meet the same filters on the slow path; fragments that are made here wait in the queue of their
//! packet. A packet to a group waits in the queue with its flow's number at each output that has a contract for it, and
//! goes as best effort to the others. Best effort is also a fragment that comes without ports, which no filter of ports
//! can know (RFC 2205, 1.2 expects flows that are not fragmented). A router without reservations pays a comparison a
//! batch.

use alloc::boxed::Box;
use alloc::vec::Vec;

use nilometer_queue::RESERVED_QUEUES_MAX;

use super::engine::Filters;
use crate::classifier::{Action, Classified, ClassifierTuples, Inputs, Refused, Rule, RuleId};
use crate::fib::NextHop;

/// Filters of reservations that there may be; a reservation of several senders has several.
pub const RESERVED_FILTERS_MAX: u32 = 4 * RESERVED_QUEUES_MAX;

/// The reservation of a flow at its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedFlow {
    /// The reserved queue that its packets wait in.
    pub queue: u16,
    /// Where they go, whatever their route says: a pinned route. None leaves it to the route.
    pub pinned: Option<NextHop>,
}

/// The filters of reservations, of both families.
pub struct ReservedFlows {
    pub(super) filters4: Filters<u32>,
    pub(super) filters6: Filters<u128>,
    /// The pinned route of each filter, by number.
    pub(super) pinned: Vec<Option<NextHop>>,
    /// The filter of each packet of a lane.
    pub(super) found: Vec<Option<RuleId>>,
}

impl Default for ReservedFlows {
    fn default() -> ReservedFlows {
        fn none<A: Classified + Send + 'static>() -> Filters<A> {
            Filters::new(Box::new(ClassifierTuples::<A>::new(RESERVED_FILTERS_MAX)))
        }
        ReservedFlows { filters4: none(), filters6: none(), pinned: Vec::new(), found: Vec::new() }
    }
}

impl ReservedFlows {
    /// Gives packets that come by `inputs` and match a rule of IPv4 or of IPv6 to a reserved flow; both, or none.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn insert(
        &mut self,
        id: RuleId,
        inputs: Inputs,
        (four, six): (Option<Rule<u32>>, Option<Rule<u128>>),
        flow: ReservedFlow,
    ) -> Result<(), Refused> {
        let action = Action::Reserved(flow.queue);
        let four = four.map(|rule| Rule { action, ..rule });
        let six = six.map(|rule| Rule { action, ..rule });
        four.map_or(Ok(()), |rule| self.filters4.insert_at(id, inputs, rule))?;
        let six = six.map_or(Ok(()), |rule| self.filters6.insert_at(id, inputs, rule));
        six.inspect_err(|_| _ = self.filters4.remove(id))?;
        let at = id.0 as usize;
        if self.pinned.len() <= at {
            self.pinned.resize(at + 1, None);
        }
        self.pinned[at] = flow.pinned;
        Ok(())
    }

    /// Takes a filter out; whether there was one.
    pub fn remove(&mut self, id: RuleId) -> bool {
        let four = self.filters4.remove(id).is_some();
        self.filters6.remove(id).is_some() || four
    }

    /// Packets and bytes that a filter has met.
    pub fn met(&self, id: RuleId) -> Option<(u64, u64)> {
        let four = self.filters4.get(id).map(|(_, filter)| filter);
        let filter = four.or_else(|| self.filters6.get(id).map(|(_, filter)| filter))?;
        Some((filter.packets, filter.bytes))
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.filters4.is_empty() && self.filters6.is_empty()
    }
}
