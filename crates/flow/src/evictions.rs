//! Templates that were forgotten because there were too many: their number, and their exporters.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::IpAddr;

/// Addresses that are counted apart.
const ADDRESSES_MAX: usize = 4_096;

/// Forgotten templates, by the addresses of exporters.
///
/// Addresses can be invented, so only some thousand are counted apart. When there are more, a new one takes
/// over the place and the count of the one with the smallest count (Metwally, Agrawal and El Abbadi,
/// *Efficient computation of frequent and top-k elements in data streams*, 2005): no count is too small
/// then, and an address that lost more than a 4,096th of all templates is among those that are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    templates: u64,
    useful: u64,
    by_address: BTreeMap<IpAddr, u64>,
    by_count: BTreeSet<(u64, IpAddr)>,
    has_more: bool,
}

impl Evictions {
    /// Counts a template of `address`, by which records had been read or not.
    pub(crate) fn note(&mut self, address: IpAddr, was_useful: bool) {
        self.templates += 1;
        self.useful += u64::from(was_useful);
        let mut count = self.by_address.get(&address).copied();
        if count.is_none() && self.by_address.len() == ADDRESSES_MAX {
            let least = self.by_count.pop_first().expect("as many as addresses");
            self.by_address.remove(&least.1);
            self.has_more = true;
            count = Some(least.0);
        } else if let Some(count) = count {
            self.by_count.remove(&(count, address));
        }
        let count = count.unwrap_or(0) + 1;
        self.by_address.insert(address, count);
        self.by_count.insert((count, address));
    }

    /// Templates that were forgotten.
    pub fn templates(&self) -> u64 {
        self.templates
    }

    /// Those among them by which records had been read.
    pub fn useful(&self) -> u64 {
        self.useful
    }

    /// Number of exporter addresses that lost a template, and whether there are more than are counted.
    pub fn addresses(&self) -> (usize, bool) {
        (self.by_address.len(), self.has_more)
    }

    /// The address that lost most, and how many; `None` if nothing was forgotten.
    pub fn worst(&self) -> Option<(IpAddr, u64)> {
        self.by_count.last().map(|(count, address)| (*address, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn the_worst_is_found_among_any_number_of_addresses() {
        let mut evictions = Evictions::default();
        assert_eq!((evictions.worst(), evictions.addresses()), (None, (0, false)));
        let address = |number: u32| IpAddr::from(Ipv4Addr::from(number));
        for number in 0..60_000 {
            evictions.note(address(1_000 + number), false);
            if number % 100 == 0 {
                evictions.note(address(7), true);
            }
        }
        assert_eq!((evictions.templates(), evictions.useful()), (60_600, 600));
        assert_eq!(evictions.addresses(), (4_096, true));
        let (worst, count) = evictions.worst().expect("some went");
        assert_eq!(worst, address(7));
        // A count that was taken over may be too large by the least there was.
        assert!((600..=600 + 60_600 / 4_096).contains(&count), "{count}");
    }
}
