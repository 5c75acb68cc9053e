//! An indexed heap: the greatest of a changing set of numbered things, and the next.

use alloc::vec;
use alloc::vec::Vec;

/// Not in the heap.
const ABSENT: u32 = u32::MAX;
/// Children of a node. Four halve the depth of two; their keys lie side by side.
const CHILDREN: usize = 4;

/// A heap whose members are numbered from zero, so that each can be found when its key changes:
/// every operation but reading the top costs the depth of the tree, log₄ of the members.
#[derive(Clone, Debug)]
pub(crate) struct IndexedHeap<K> {
    nodes: Vec<(K, u32)>,
    places: Vec<u32>,
}

impl<K: Ord + Copy> IndexedHeap<K> {
    /// An empty heap of things numbered below `things`.
    pub(crate) fn new(things: u32) -> IndexedHeap<K> {
        IndexedHeap { nodes: Vec::new(), places: vec![ABSENT; things as usize] }
    }

    /// Takes everything out.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.places.fill(ABSENT);
    }

    /// Gives `thing` the key `key`, whether it was in the heap or not.
    pub(crate) fn set(&mut self, thing: u32, key: K) {
        let place = self.places[thing as usize];
        if place == ABSENT {
            self.nodes.push((key, thing));
            self.rise(self.nodes.len() - 1);
            return;
        }
        let place = place as usize;
        let grew = key > self.nodes[place].0;
        self.nodes[place].0 = key;
        if grew { self.rise(place) } else { self.sink(place) }
    }

    /// Takes `thing` out, if it is in.
    pub(crate) fn remove(&mut self, thing: u32) {
        let place = core::mem::replace(&mut self.places[thing as usize], ABSENT);
        if place == ABSENT {
            return;
        }
        let place = place as usize;
        let Some((last_key, last)) = self.nodes.pop() else { return };
        if last == thing {
            return;
        }
        let grew = last_key > self.nodes[place].0;
        self.nodes[place] = (last_key, last);
        if grew { self.rise(place) } else { self.sink(place) }
    }

    /// The thing with the greatest key.
    pub(crate) fn top(&self) -> Option<(u32, K)> {
        self.nodes.first().map(|&(key, thing)| (thing, key))
    }

    /// The greatest key but that of the top.
    pub(crate) fn second(&self) -> Option<K> {
        self.nodes.iter().skip(1).take(CHILDREN).map(|node| node.0).max()
    }

    fn rise(&mut self, mut place: usize) {
        let node = self.nodes[place];
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if self.nodes[parent].0 >= node.0 {
                break;
            }
            self.put(place, self.nodes[parent]);
            place = parent;
        }
        self.put(place, node);
    }

    fn sink(&mut self, mut place: usize) {
        let node = self.nodes[place];
        loop {
            let first = place * CHILDREN + 1;
            let last = (first + CHILDREN).min(self.nodes.len());
            let Some(child) = (first..last).max_by_key(|&child| self.nodes[child].0) else { break };
            if self.nodes[child].0 <= node.0 {
                break;
            }
            self.put(place, self.nodes[child]);
            place = child;
        }
        self.put(place, node);
    }

    fn put(&mut self, place: usize, node: (K, u32)) {
        self.nodes[place] = node;
        self.places[node.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// Against a table that is scanned: 200 seeds of settings and removals, equal keys among them.
    #[test]
    fn top_and_second_are_those_of_a_scan() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed, 2, 0);
            let things = 1 + rng.below(60) as u32;
            let mut heap = IndexedHeap::new(things);
            let mut twin: Vec<Option<u64>> = vec![None; things as usize];
            for _ in 0..1_000 {
                let thing = rng.below(u64::from(things)) as u32;
                if rng.below(3) == 0 {
                    heap.remove(thing);
                    twin[thing as usize] = None;
                } else {
                    let key = rng.below(40);
                    heap.set(thing, key);
                    twin[thing as usize] = Some(key);
                }
                let mut keys: Vec<u64> = twin.iter().flatten().copied().collect();
                keys.sort_unstable();
                assert_eq!(heap.top().map(|(_, key)| key), keys.pop());
                assert_eq!(heap.second(), keys.pop());
                if let Some((top, key)) = heap.top() {
                    assert_eq!(twin[top as usize], Some(key));
                }
            }
        }
    }
}
