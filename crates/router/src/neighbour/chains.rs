//! Doubly linked lists through numbered places, each of which stands in one list at most.

use alloc::vec::Vec;

const END: u32 = u32::MAX;

/// The lists a place may stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chain {
    /// Unused: free to be allocated.
    Free,
    /// Failed entries, the longest failed first.
    Failed,
    /// Stale entries, the longest unused first.
    Stale,
    /// Reachable entries, the longest unconfirmed first.
    Reachable,
    /// Entries whose neighbour is to be solicited, the longest waiting first.
    Asking,
}

const CHAINS: usize = 5;

#[derive(Clone, Copy, Debug)]
struct Link {
    chain: Option<Chain>,
    before: u32,
    after: u32,
}

/// The lists.
#[derive(Debug)]
pub(super) struct Chains {
    links: Vec<Link>,
    ends: [(u32, u32); CHAINS],
}

impl Chains {
    /// Without places.
    pub(super) fn new() -> Chains {
        Chains { links: Vec::new(), ends: [(END, END); CHAINS] }
    }

    /// One more place, in no list.
    pub(super) fn add_place(&mut self) {
        self.links.push(Link { chain: None, before: END, after: END });
    }

    /// The first of a list.
    pub(super) fn first(&self, chain: Chain) -> Option<u32> {
        Some(self.ends[chain as usize].0).filter(|&place| place != END)
    }

    /// Whether `place` stands in `chain`.
    pub(super) fn is_in(&self, place: u32, chain: Chain) -> bool {
        self.links[place as usize].chain == Some(chain)
    }

    /// Puts `place` at the end of a list, or in none; it leaves the one it stood in.
    pub(super) fn put(&mut self, place: u32, chain: Option<Chain>) {
        self.leave(place);
        let Some(chain) = chain else { return };
        let (_, last) = self.ends[chain as usize];
        self.links[place as usize] = Link { chain: Some(chain), before: last, after: END };
        if last == END {
            self.ends[chain as usize].0 = place;
        } else {
            self.links[last as usize].after = place;
        }
        self.ends[chain as usize].1 = place;
    }

    fn leave(&mut self, place: u32) {
        let Link { chain, before, after } = self.links[place as usize];
        let Some(chain) = chain else { return };
        match before {
            END => self.ends[chain as usize].0 = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            END => self.ends[chain as usize].1 = before,
            after => self.links[after as usize].before = before,
        }
        self.links[place as usize].chain = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use nilometer_stat::Rng;

    const ALL: [Chain; CHAINS] =
        [Chain::Free, Chain::Failed, Chain::Stale, Chain::Reachable, Chain::Asking];

    #[test]
    fn agrees_with_lists_that_are_searched() {
        let mut rng = Rng::new(1, 1, 0);
        let mut chains = Chains::new();
        let mut twin: Vec<Vec<u32>> = vec![Vec::new(); CHAINS];
        (0..30).for_each(|_| chains.add_place());
        for _ in 0..50_000 {
            let place = rng.below(30) as u32;
            let to = ALL.get(rng.below(CHAINS as u64 + 1) as usize).copied();
            chains.put(place, to);
            twin.iter_mut().for_each(|list| list.retain(|&there| there != place));
            if let Some(chain) = to {
                twin[chain as usize].push(place);
            }
            for chain in ALL {
                assert_eq!(chains.first(chain), twin[chain as usize].first().copied());
                assert_eq!(chains.is_in(place, chain), to == Some(chain));
            }
        }
    }
}
