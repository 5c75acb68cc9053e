//! Which addresses stand for all hosts of a network on any of the ports (RFC 1812, 4.2.3.1).
//!
//! The source of every packet is checked (4.2.2.11), so the check has to be cheap. Networks of eight
//! bits and more of hosts end in the same six bits, all ones, and few addresses of hosts do. A word
//! with a bit for each ending that occurs says no to nearly all; only then is the list searched.

use alloc::vec::Vec;

/// The broadcast addresses of all networks on the ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Broadcasts {
    /// A bit for each value of the lower six bits that occurs.
    endings: u64,
    addresses: Vec<u32>,
}

impl Broadcasts {
    /// Those of networks, each given as an address within and its length in bits.
    pub(super) fn of(networks: impl Iterator<Item = (u32, u32)>) -> Broadcasts {
        let mut all = Broadcasts::default();
        // Networks of 31 and 32 bits have none (RFC 3021).
        for (address, length) in networks.filter(|&(_, length)| length < 31) {
            let last = address | u32::MAX >> length;
            all.endings |= 1 << (last & 63);
            all.addresses.push(last);
        }
        all
    }

    /// Whether `address` is one.
    #[inline]
    pub(super) fn has(&self, address: u32) -> bool {
        self.endings >> (address & 63) & 1 == 1 && self.search(address)
    }

    #[cold]
    fn search(&self, address: u32) -> bool {
        self.addresses.contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    #[test]
    fn the_word_and_the_list_agree_with_the_networks() {
        let mut rng = Rng::new(5, u32::from_be_bytes(*b"brdc"), 0);
        for _ in 0..200 {
            let networks: Vec<(u32, u32)> = (0..rng.below(9))
                .map(|_| (0xc612_0000 | rng.below(1 << 12) as u32, 20 + rng.below(13) as u32))
                .collect();
            let broadcasts = Broadcasts::of(networks.iter().copied());
            for address in 0xc612_0000..0xc612_1000u32 {
                let is_last = |&(own, length): &(u32, u32)| {
                    let hosts = 32 - length;
                    hosts > 1
                        && own >> hosts == address >> hosts
                        && (address + 1) % (1 << hosts) == 0
                };
                assert_eq!(broadcasts.has(address), networks.iter().any(is_last), "{networks:?}");
            }
        }
    }
}
