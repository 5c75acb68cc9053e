//! A bounded table whose entries expire: states of flows.
//!
//! An expired entry counts as absent, whether it was removed or not. Some entries are checked and removed each time a
//! new one is added, so that no call has work that grows with the table: a plugin's work in a call is bounded.

use alloc::collections::BTreeMap;
use core::ops::Bound;

/// Entries that are checked when a new one is added.
const SWEPT: usize = 4;

/// Values by key, each until a time.
#[derive(Clone, Debug)]
pub struct Expiring<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    entries_max: usize,
    /// Where the sweep continues.
    hand: Option<K>,
}

#[derive(Clone, Debug)]
struct Entry<V> {
    value: V,
    until_ns: u64,
}

impl<K: Copy + Ord, V> Expiring<K, V> {
    /// An empty table of at most `entries_max` entries.
    pub fn new(entries_max: usize) -> Expiring<K, V> {
        Expiring { entries: BTreeMap::new(), entries_max, hand: None }
    }

    /// The number of entries, including expired ones that were not removed yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, key: &K, now_ns: u64) -> Option<&V> {
        self.entries.get(key).filter(|entry| entry.until_ns > now_ns).map(|entry| &entry.value)
    }

    /// The value of a key and its end, to be changed.
    pub fn get_mut(&mut self, key: &K, now_ns: u64) -> Option<(&mut V, &mut u64)> {
        let entry = self.entries.get_mut(key).filter(|entry| entry.until_ns > now_ns)?;
        Some((&mut entry.value, &mut entry.until_ns))
    }

    /// Adds or replaces a value; returns whether there was room. Removes some expired entries, and passes each
    /// to `removed`, as well as the one that it replaces.
    pub fn insert(
        &mut self,
        key: K,
        value: V,
        until_ns: u64,
        now_ns: u64,
        mut removed: impl FnMut(K, V),
    ) -> bool {
        self.sweep(now_ns, &mut removed);
        if self.entries.len() >= self.entries_max && !self.entries.contains_key(&key) {
            return false;
        }
        if let Some(before) = self.entries.insert(key, Entry { value, until_ns }) {
            removed(key, before.value);
        }
        true
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key).map(|entry| entry.value)
    }

    /// All that are not past their end.
    pub fn iter(&self, now_ns: u64) -> impl Iterator<Item = (&K, &V)> {
        let live = self.entries.iter().filter(move |(_, entry)| entry.until_ns > now_ns);
        live.map(|(key, entry)| (key, &entry.value))
    }

    /// Removes the expired ones among the next few entries.
    pub fn sweep(&mut self, now_ns: u64, removed: &mut impl FnMut(K, V)) {
        for _ in 0..SWEPT {
            let from = self.hand.map_or(Bound::Unbounded, Bound::Excluded);
            let Some((key, entry)) = self.entries.range((from, Bound::Unbounded)).next() else {
                self.hand = None;
                return;
            };
            let key = *key;
            self.hand = Some(key);
            if entry.until_ns <= now_ns
                && let Some(entry) = self.entries.remove(&key)
            {
                removed(key, entry.value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use nilometer_plugin::Random;

    use super::*;

    #[test]
    fn it_is_a_map_whose_entries_end() {
        let mut table: Expiring<u32, u32> = Expiring::new(64);
        let mut twin: Vec<(u32, u32, u64)> = Vec::new();
        let mut random = Random::new(5);
        let mut refused = 0;
        for now_ns in 0..20_000u64 {
            twin.retain(|(_, _, until)| *until > now_ns);
            let (key, value) = (random.below(200), random.below(1_000));
            let until = now_ns + u64::from(random.below(120));
            if table.insert(key, value, until, now_ns, |_, _| {}) {
                twin.retain(|(there, _, _)| *there != key);
                twin.push((key, value, until));
            } else {
                refused += 1;
            }
            assert!(table.len() <= 64);
            let requested = random.below(200);
            let expected =
                twin.iter().find(|(there, _, until)| *there == requested && *until > now_ns);
            assert_eq!(table.get(&requested, now_ns), expected.map(|(_, value, _)| value));
        }
        assert!((20..19_000).contains(&refused), "{refused}: the table was full at times");
    }

    #[test]
    fn room_comes_back_as_entries_end() {
        let mut table: Expiring<u32, ()> = Expiring::new(1_000);
        (0..1_000).for_each(|key| assert!(table.insert(key, (), 10, 0, |_, ()| {})));
        assert!(!table.insert(1_000, (), 10, 9, |_, ()| {}));
        let mut removed = 0;
        for key in 2_000..2_900 {
            assert!(table.insert(key, (), 100, 10, |_, ()| removed += 1), "{key}");
        }
        assert_eq!(removed, 1_000);
    }
}
