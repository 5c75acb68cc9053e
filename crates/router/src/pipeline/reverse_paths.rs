//! The reverse path to a packet's source, with what a forwarding table does not hold (RFC 3704).
//!
//! A forwarding table gives the best route's next hop and not its prefix. Two of the tests need more.
//! *Feasible* (2.3) takes any known route to the source's prefix, the best or not: for prefixes with
//! others, their ports are kept here beside the best. An entry counts only as long as the table's
//! answer is the best next hop that was set with it, so that a longer prefix with another next hop
//! hides it, and so does a change that has not been reported yet. *Loose without default* (2.5) must
//! know whether only the default route leads back. So the default route may be kept here instead of in
//! the table: then any address that the table does not know has the default route, and no other has.
//! Packets are forwarded by it all the same.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::fib::{Full, NextHop};
use crate::prefix::{Address, Prefix};

/// The most prefixes whose other ports are kept.
pub const OTHERS_MAX: usize = 1 << 16;

/// What the reverse path tests know in addition to the forwarding table of a family.
#[derive(Debug)]
pub struct ReversePaths<A> {
    default: Option<NextHop>,
    /// By length of the prefix.
    others: BTreeMap<u32, BTreeMap<A, (NextHop, Vec<u16>)>>,
    prefixes: usize,
}

impl<A> Default for ReversePaths<A> {
    fn default() -> ReversePaths<A> {
        ReversePaths { default: None, others: BTreeMap::new(), prefixes: 0 }
    }
}

impl<A: Address> ReversePaths<A> {
    /// The route for addresses that the forwarding table does not know, if there is one. It takes
    /// effect at once.
    pub fn set_default(&mut self, next: Option<NextHop>) {
        self.default = next;
    }

    /// That route.
    #[inline]
    pub fn default_route(&self) -> Option<NextHop> {
        self.default
    }

    /// The ports of routes to `prefix` that are not its best one, which is `best`; none takes the
    /// prefix out.
    ///
    /// # Errors
    /// [`Full`] after [`OTHERS_MAX`] prefixes; nothing has changed then.
    pub fn set_others(
        &mut self,
        prefix: Prefix<A>,
        best: NextHop,
        ports: &[u16],
    ) -> Result<(), Full> {
        let (address, length) = (prefix.address(), prefix.length());
        let of_length = self.others.entry(length).or_default();
        let was_there = of_length.contains_key(&address);
        let is_full = self.prefixes == OTHERS_MAX && !was_there && !ports.is_empty();
        if is_full || ports.is_empty() {
            self.prefixes -= usize::from(of_length.remove(&address).is_some());
        } else {
            self.prefixes += usize::from(!was_there);
            of_length.insert(address, (best, ports.to_vec()));
        }
        if of_length.is_empty() {
            self.others.remove(&length);
        }
        if is_full { Err(Full) } else { Ok(()) }
    }

    /// The other ports of the prefix of `source`, whose best route is `best`.
    pub(super) fn others(&self, source: A, best: NextHop) -> &[u16] {
        let mut around = self.others.iter().rev().filter_map(|(&length, of_length)| {
            of_length.get(&Prefix::new(source, length)?.address())
        });
        match around.next() {
            Some((there, ports)) if *there == best => ports,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use nilometer_stat::Rng;

    #[test]
    fn the_longest_prefix_with_other_ports_is_used() {
        let mut rng = Rng::new(3, u32::from_be_bytes(*b"back"), 0);
        let mut ways = ReversePaths::<u32>::default();
        let mut twin: Vec<(Prefix<u32>, NextHop, Vec<u16>)> = Vec::new();
        for round in 0..20_000 {
            let address = rng.next_u64() as u32 & 0x0f0f_0000;
            let length = 4 + rng.below(16) as u32;
            let prefix = Prefix::new(address, length).expect("in range");
            let best = NextHop(rng.below(3) as u16);
            if round % 2 == 0 {
                let ports = vec![round as u16; rng.below(3) as usize];
                ways.set_others(prefix, best, &ports).expect("room");
                twin.retain(|there| there.0 != prefix);
                if !ports.is_empty() {
                    twin.push((prefix, best, ports));
                }
            }
            let around = twin.iter().filter(|there| there.0.contains(address));
            let longest = around.max_by_key(|there| there.0.length());
            let expected = longest.filter(|there| there.1 == best);
            assert_eq!(ways.others(address, best), expected.map_or(&[][..], |there| &there.2));
        }
        assert_eq!(ways.prefixes, twin.len());
    }

    #[test]
    fn a_full_list_of_other_ports_refuses_new_prefixes_and_changes_old_ones() {
        let mut ways = ReversePaths::<u32>::default();
        let prefix = |number: u32| Prefix::new(number << 8, 24).expect("in range");
        for number in 0..OTHERS_MAX as u32 {
            assert_eq!(ways.set_others(prefix(number), NextHop(1), &[1]), Ok(()));
        }
        let beyond = prefix(OTHERS_MAX as u32);
        assert_eq!(ways.set_others(beyond, NextHop(1), &[1]), Err(Full));
        assert_eq!(ways.others(beyond.address(), NextHop(1)), [0; 0]);
        assert_eq!(ways.set_others(beyond, NextHop(1), &[]), Ok(()), "it is not there");
        assert_eq!(ways.set_others(prefix(7), NextHop(1), &[2, 3]), Ok(()), "it is there");
        assert_eq!(ways.others(prefix(7).address(), NextHop(1)), [2, 3]);
        assert_eq!(ways.prefixes, OTHERS_MAX);
        assert_eq!(ways.set_others(prefix(7), NextHop(1), &[]), Ok(()));
        assert_eq!(ways.set_others(beyond, NextHop(1), &[4]), Ok(()), "there is room again");
        assert_eq!(ways.others(beyond.address(), NextHop(1)), [4]);
    }
}
