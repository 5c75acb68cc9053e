//! Which packets left out of order within their flow.
//!
//! RFC 4737, section 3.3 (Type-P-Reordered): a packet is reordered when, on its arrival, a packet
//! sent later has already arrived. Here a packet's place is its rank among those that entered the
//! device, and only packets of the same flow are compared: two flows that overtake one another do
//! no harm. So after `1 2 4 5 3` one packet, the late `3`, is reordered, not the two that passed
//! it.
//!
//! The timestamps of both sides show which packet entered and left sooner. A capture delivers packets
//! in the order in which they were written into its ring, which may differ where two processors write
//! and one is held up between the stamp and the ring: of packets whose order in the feed and by their
//! stamps differ, none counts as reordered.
//!
//! A flow is remembered by the newest of its packets that has left. That is needed only while an
//! older packet of the flow can still leave, so a flow is forgotten together with that packet, and
//! the table never holds more flows than the matcher holds entries. Flows are distinguished by a
//! 32-bit hash; two that share it are compared as if they were one.

use hashbrown::HashMap;
use nilometer_wire::Time;

use crate::keyed::Keyed;

/// A packet that has left: when it entered, its number among those that did, and when it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    pub entered_at: Time,
    pub number: u64,
    pub left_at: Time,
}

impl Passed {
    /// Its place among the packets that entered.
    fn place(&self) -> (Time, u64) {
        (self.entered_at, self.number)
    }
}

/// For each flow, the newest entry that has left.
#[derive(Debug, Default)]
pub struct FlowOrder {
    newest: HashMap<u32, Passed, Keyed>,
}

impl FlowOrder {
    /// Notes that a packet of `flow` has left, and returns whether it was overtaken. `oldest` is
    /// the oldest entry that is still held; [`FlowOrder::forget`] will be called for it later.
    pub fn left(&mut self, flow: u32, passed: Passed, oldest: u64) -> bool {
        if let Some(newest) = self.newest.get_mut(&flow) {
            let is_older = passed.place() < newest.place();
            let overtaken = is_older && newest.left_at <= passed.left_at;
            if !is_older && passed.number >= oldest {
                *newest = passed;
            }
            return overtaken;
        }
        if passed.number >= oldest {
            self.newest.insert(flow, passed);
        }
        false
    }

    /// Entry `number` of `flow` is no longer held, nor is any that entered before it.
    pub fn forget(&mut self, flow: u32, number: u64) {
        if self.newest.get(&flow).is_some_and(|newest| newest.number == number) {
            self.newest.remove(&flow);
        }
    }

    /// How many flows are remembered.
    pub fn len(&self) -> usize {
        self.newest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packet `number` entered at that time, and left at `left_at`.
    fn passed(number: u64, left_at: u64) -> Passed {
        Passed { entered_at: Time(number), number, left_at: Time(left_at) }
    }

    fn reordered(numbers: &[u64]) -> alloc::vec::Vec<u64> {
        let mut order = FlowOrder::default();
        let left = (100..).zip(numbers).map(|(at, &number)| passed(number, at));
        left.filter(|passed| order.left(7, *passed, 0)).map(|passed| passed.number).collect()
    }

    #[test]
    fn agrees_with_the_examples_of_rfc_4737() {
        assert!(reordered(&[1, 2, 3, 4, 5]).is_empty());
        assert_eq!(reordered(&[1, 2, 4, 5, 3, 6]), [3]);
        assert_eq!(reordered(&[1, 5, 2, 3, 4, 6]), [2, 3, 4]);
        assert_eq!(reordered(&[3, 2, 1]), [2, 1]);
    }

    /// Four acknowledgements were stamped, and then their processor was held up before it wrote them down.
    #[test]
    fn packets_recorded_late_are_not_reordered() {
        let mut order = FlowOrder::default();
        assert!(!order.left(7, passed(5, 108), 0));
        for (number, left_at) in [(1, 101), (2, 102), (3, 103), (4, 104)] {
            assert!(!order.left(7, passed(number, left_at), 0), "{number} left first");
        }
        assert!(order.left(7, passed(0, 109), 0), "and this one last");
        // Entries, likewise: it was written down later than the one behind it.
        let late = Passed { entered_at: Time(6), number: 8, left_at: Time(110) };
        let behind = Passed { entered_at: Time(7), number: 7, left_at: Time(111) };
        assert!(!order.left(7, late, 0) && !order.left(7, behind, 0));
    }

    #[test]
    fn flows_are_apart_and_forgotten() {
        let mut order = FlowOrder::default();
        assert!(!order.left(1, passed(10, 1), 0));
        assert!(!order.left(2, passed(9, 2), 0), "another flow may overtake");
        order.forget(1, 9);
        assert!(order.left(1, passed(8, 3), 0), "only the newest entry takes the flow with it");
        order.forget(1, 10);
        assert!(!order.left(1, passed(7, 4), 8), "an entry that is gone starts no flow");
        assert_eq!(order.len(), 1);
    }
}
