//! When each connection of an event loop continues: one due time for each, the soonest first.

use std::collections::BTreeSet;

use crate::generate::slab::Key;

/// Due times by key. Each key has one at most, so there are never more of them than connections.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeSet<(u64, u64)>,
}

impl Timers {
    /// Sets or changes or, with none, cancels a key's due time, which was `before`.
    pub fn change(&mut self, key: Key, before: Option<u64>, after: Option<u64>) {
        if before == after {
            return;
        }
        if let Some(before_ns) = before {
            self.due.remove(&(before_ns, key.to_bits()));
        }
        if let Some(after_ns) = after {
            self.due.insert((after_ns, key.to_bits()));
        }
    }

    /// The soonest due time.
    pub fn first(&self) -> Option<u64> {
        self.due.first().map(|&(at_ns, _)| at_ns)
    }

    /// Takes the soonest of those that are due.
    pub fn take_due(&mut self, now_ns: u64) -> Option<Key> {
        if self.first()? > now_ns {
            return None;
        }
        self.due.pop_first().map(|(_, bits)| Key::from_bits(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_cancelled_ones_never() {
        let mut timers = Timers::default();
        let keys: Vec<Key> = (0..4).map(Key::from_bits).collect();
        timers.change(keys[0], None, Some(30));
        timers.change(keys[1], None, Some(10));
        timers.change(keys[2], None, Some(20));
        timers.change(keys[3], None, Some(10));
        timers.change(keys[0], Some(30), Some(5));
        timers.change(keys[2], Some(20), None);
        assert_eq!((timers.first(), timers.take_due(4)), (Some(5), None));
        let due: Vec<Key> = std::iter::from_fn(|| timers.take_due(10)).collect();
        assert_eq!(due, [keys[0], keys[1], keys[3]]);
        assert_eq!(timers.first(), None);
    }
}
