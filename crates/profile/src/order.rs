//! Which packets left out of order within their flow.
//!
//! RFC 4737, section 3.3 (Type-P-Reordered): a packet is reordered when, on its arrival, a packet
//! sent later has already arrived. Here a packet's place is its rank among those that entered the
//! device, and only packets of the same flow are compared: two flows that overtake one another harm
//! nobody. So after `1 2 4 5 3` one packet, the late `3`, is reordered, not the two that passed it.
//!
//! A flow is remembered by the newest of its packets that has left. That is needed only while an
//! older packet of the flow can still leave, so a flow is forgotten together with that packet, and
//! the table never holds more flows than the matcher holds entries. Flows are told apart by a
//! 32-bit hash; two that share it are compared as if they were one.

use hashbrown::HashMap;

use crate::keyed::Keyed;

/// For each flow, the number of the newest entry that has left.
#[derive(Debug, Default)]
pub struct FlowOrder {
    newest: HashMap<u32, u64, Keyed>,
}

impl FlowOrder {
    /// Notes that entry `number` of `flow` has left, and says whether it was overtaken. `oldest` is
    /// the oldest entry that is still held, and will one day be told to [`FlowOrder::forget`].
    pub fn left(&mut self, flow: u32, number: u64, oldest: u64) -> bool {
        if let Some(newest) = self.newest.get_mut(&flow) {
            let overtaken = *newest > number;
            *newest = number.max(*newest);
            return overtaken;
        }
        if number >= oldest {
            self.newest.insert(flow, number);
        }
        false
    }

    /// Entry `number` of `flow` is no longer held, and nothing that entered before it is.
    pub fn forget(&mut self, flow: u32, number: u64) {
        if self.newest.get(&flow) == Some(&number) {
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

    fn reordered(numbers: &[u64]) -> alloc::vec::Vec<u64> {
        let mut order = FlowOrder::default();
        numbers.iter().copied().filter(|&number| order.left(7, number, 0)).collect()
    }

    #[test]
    fn agrees_with_the_examples_of_rfc_4737() {
        assert!(reordered(&[1, 2, 3, 4, 5]).is_empty());
        assert_eq!(reordered(&[1, 2, 4, 5, 3, 6]), [3]);
        assert_eq!(reordered(&[1, 5, 2, 3, 4, 6]), [2, 3, 4]);
        assert_eq!(reordered(&[3, 2, 1]), [2, 1]);
    }

    #[test]
    fn flows_are_apart_and_forgotten() {
        let mut order = FlowOrder::default();
        assert!(!order.left(1, 10, 0));
        assert!(!order.left(2, 9, 0), "another flow may overtake");
        order.forget(1, 9);
        assert!(order.left(1, 8, 0), "only the newest entry takes the flow with it");
        order.forget(1, 10);
        assert!(!order.left(1, 7, 8), "an entry that is gone starts no flow");
        assert_eq!(order.len(), 1);
    }
}
