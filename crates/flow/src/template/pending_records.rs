//! Sets that came before their template, held until it comes.
//!
//! Templates are repeated every minute or every few hundred datagrams, so a capture that begins in the
//! middle starts with records that cannot be read yet. They wait here, with the header that dates them,
//! within a limit in bytes. When there is no room, a set from an exporter's address that holds more than its
//! fair share (a 64th of all bytes) is skipped itself, since templates for the oldest records come first.
//! For a set from another address room is made: by dropping the newest set of the address that holds most,
//! where that is more than its share, and otherwise the oldest of all. So no sender can keep others from
//! waiting, neither with many sets from one address nor with few from many.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem::size_of;
use core::net::IpAddr;

use super::domain::DomainKey;
use super::message::Header;

/// The domain and the identifier of a template.
type Template = (DomainKey, u16);

/// A waiting set.
#[derive(Clone, Debug)]
pub(super) struct HeldSet {
    pub(super) header: Header,
    pub(super) body: Box<[u8]>,
}

impl HeldSet {
    /// The memory that it takes.
    fn cost_bytes(&self) -> usize {
        size_of::<HeldSet>() + self.body.len()
    }
}

/// Sets skipped to make room for another, or because they cannot wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) sets: u64,
    /// Bytes of their bodies.
    pub(super) bytes: u64,
}

impl Dropped {
    fn add(&mut self, set: &HeldSet) {
        self.sets += 1;
        self.bytes += set.body.len() as u64;
    }
}

/// All waiting sets.
#[derive(Clone, Debug)]
pub(super) struct Held {
    capacity_bytes: usize,
    used_bytes: usize,
    /// Each with its arrival number.
    sets: BTreeMap<Template, VecDeque<(u64, HeldSet)>>,
    /// In the order in which they came.
    by_number: BTreeMap<u64, Template>,
    by_address: BTreeMap<IpAddr, Waiting>,
    /// The bytes of each address.
    holders: BTreeSet<(usize, IpAddr)>,
    coming: u64,
}

/// The waiting sets of one address.
#[derive(Clone, Debug, Default)]
struct Waiting {
    bytes: usize,
    numbers: BTreeSet<u64>,
}

impl Held {
    pub(super) fn new(capacity_bytes: usize) -> Held {
        Held {
            capacity_bytes,
            used_bytes: 0,
            sets: BTreeMap::new(),
            by_number: BTreeMap::new(),
            by_address: BTreeMap::new(),
            holders: BTreeSet::new(),
            coming: 0,
        }
    }

    /// Holds a set, if there is room or room can be made; returns what was skipped, which may be the set
    /// itself.
    pub(super) fn hold(&mut self, domain: DomainKey, id: u16, set: HeldSet) -> Dropped {
        let (mut dropped, cost_bytes) = (Dropped::default(), set.cost_bytes());
        let fair_bytes = self.capacity_bytes / 64;
        let own = self.by_address.get(&domain.address).map_or(0, |waiting| waiting.bytes);
        let must_wait_for_room = cost_bytes > self.capacity_bytes - self.used_bytes;
        if cost_bytes > self.capacity_bytes || must_wait_for_room && own + cost_bytes > fair_bytes {
            dropped.add(&set);
            return dropped;
        }
        while cost_bytes > self.capacity_bytes - self.used_bytes {
            let most = self.holders.last().filter(|(bytes, _)| *bytes > fair_bytes);
            let newest = most.and_then(|(_, address)| self.by_address[address].numbers.last());
            let oldest = self.by_number.keys().next();
            let number = *newest.or(oldest).expect("something takes the room");
            dropped.add(&self.drop_set(number));
        }
        self.coming += 1;
        self.account(domain.address, self.coming, cost_bytes, true);
        self.by_number.insert(self.coming, (domain, id));
        self.sets.entry((domain, id)).or_default().push_back((self.coming, set));
        dropped
    }

    /// The sets that waited for this template, in their order.
    pub(super) fn take(&mut self, domain: DomainKey, id: u16) -> Vec<HeldSet> {
        let sets = self.sets.remove(&(domain, id)).unwrap_or_default();
        let leaves = |(number, set): (u64, HeldSet)| {
            self.by_number.remove(&number);
            self.account(domain.address, number, set.cost_bytes(), false);
            set
        };
        sets.into_iter().map(leaves).collect()
    }

    /// All sets that still wait.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = HeldSet> + use<> {
        let all = core::mem::replace(self, Held::new(self.capacity_bytes));
        all.sets.into_values().flatten().map(|(_, set)| set)
    }

    /// Drops a set that is the first or the last of those that wait for its template.
    fn drop_set(&mut self, number: u64) -> HeldSet {
        let template = self.by_number.remove(&number).expect("it waits");
        let sets = self.sets.get_mut(&template).expect("it waits for this one");
        let is_first = sets.front().is_some_and(|(first, _)| *first == number);
        let set = if is_first { sets.pop_front() } else { sets.pop_back() };
        let (found, set) = set.expect("it waits");
        assert_eq!(found, number, "the oldest of all is a first, the newest of an address a last");
        if sets.is_empty() {
            self.sets.remove(&template);
        }
        self.account(template.0.address, number, set.cost_bytes(), false);
        set
    }

    /// Counts a set that is added or removed.
    fn account(&mut self, address: IpAddr, number: u64, cost_bytes: usize, comes: bool) {
        let waiting = self.by_address.entry(address).or_default();
        self.holders.remove(&(waiting.bytes, address));
        if comes {
            waiting.bytes += cost_bytes;
            self.used_bytes += cost_bytes;
            waiting.numbers.insert(number);
        } else {
            waiting.bytes -= cost_bytes;
            self.used_bytes -= cost_bytes;
            waiting.numbers.remove(&number);
        }
        if waiting.numbers.is_empty() {
            self.by_address.remove(&address);
        } else {
            self.holders.insert((waiting.bytes, address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Dialect;
    use super::*;
    use core::net::Ipv4Addr;
    use nilometer_stat::Rng;

    fn domain(address: u32, id: u32) -> DomainKey {
        let address = Ipv4Addr::from(address).into();
        DomainKey { address, dialect: Dialect::Ipfix, id }
    }

    fn set(first: u8, bytes: usize) -> HeldSet {
        let dialect = Dialect::Ipfix;
        let header = Header { dialect, uptime_ms: 0, export_secs: 0, sequence: 0, domain: 0 };
        let mut body = alloc::vec![0; bytes - size_of::<HeldSet>()];
        body[0] = first;
        HeldSet { header, body: body.into() }
    }

    fn firsts(sets: Vec<HeldSet>) -> Vec<u8> {
        sets.iter().map(|set| set.body[0]).collect()
    }

    #[test]
    fn a_single_address_keeps_its_first_sets() {
        let mut held = Held::new(64_000);
        let lost = (0..100).map(|n| held.hold(domain(1, n % 3), 256, set(n as u8, 1_000)).sets);
        assert_eq!(lost.sum::<u64>(), 36);
        assert_eq!(firsts(held.take(domain(1, 0), 256)), (0..64).step_by(3).collect::<Vec<u8>>());
        assert_eq!(held.used_bytes, 42_000);
        assert_eq!(held.take_all().count(), 42);
        assert_eq!((held.used_bytes, held.by_address.len(), held.holders.len()), (0, 0, 0));
    }

    #[test]
    fn the_address_that_holds_most_makes_room_for_others() {
        let mut held = Held::new(64_000);
        for number in 0..64 {
            assert_eq!(held.hold(domain(1, number), 256, set(0, 1_000)), Dropped::default());
        }
        let bytes = 1_000 - size_of::<HeldSet>() as u64;
        let dropped = held.hold(domain(2, 7), 300, set(5, 1_000));
        assert_eq!(dropped, Dropped { sets: 1, bytes });
        assert!(held.take(domain(1, 63), 256).is_empty(), "its newest");
        // An address beyond its fair share does not displace the sets of others.
        assert_eq!(held.hold(domain(2, 7), 300, set(6, 1_000)), Dropped { sets: 1, bytes });
        assert_eq!(firsts(held.take(domain(2, 7), 300)), [5]);
    }

    #[test]
    fn many_addresses_with_one_set_each_do_not_keep_another_out() {
        let mut held = Held::new(64_000);
        for number in 0..1_000 {
            held.hold(domain(100 + number, 0), 256, set(0, 500));
        }
        held.hold(domain(1, 0), 256, set(1, 900));
        for number in 0..100 {
            held.hold(domain(5_000 + number, 0), 256, set(0, 500));
        }
        assert!(held.used_bytes <= 64_000);
        assert_eq!(firsts(held.take(domain(1, 0), 256)), [1]);
        assert_eq!(held.hold(domain(1, 0), 256, set(1, 64_001)).sets, 1, "more than all room");
    }

    /// The counts agree with the waiting sets themselves.
    fn assert_counted(held: &Held) {
        let mut by_address: BTreeMap<IpAddr, Waiting> = BTreeMap::new();
        let mut by_number = BTreeMap::new();
        for (&(domain, id), sets) in &held.sets {
            for (number, set) in sets {
                let waiting = by_address.entry(domain.address).or_default();
                waiting.bytes += set.cost_bytes();
                waiting.numbers.insert(*number);
                by_number.insert(*number, (domain, id));
            }
        }
        let used = by_address.values().map(|waiting| waiting.bytes).sum::<usize>();
        assert_eq!(held.used_bytes, used);
        let holders = by_address.iter().map(|(address, waiting)| (waiting.bytes, *address));
        assert!(held.holders.iter().copied().eq(holders.collect::<BTreeSet<_>>()));
        let same = |(one, other): ((&IpAddr, &Waiting), (&IpAddr, &Waiting))| {
            one.0 == other.0 && one.1.bytes == other.1.bytes && one.1.numbers == other.1.numbers
        };
        assert_eq!(held.by_address.len(), by_address.len());
        assert!(held.by_address.iter().zip(&by_address).all(same));
        assert!(held.by_number.iter().eq(by_number.iter()));
    }

    #[test]
    fn held_bytes_and_drops_are_accounted_for() {
        let (mut held, mut rng) = (Held::new(20_000), Rng::new(7, 0, 0));
        for number in 0..3_000 {
            let mut below = |most: u64| rng.below(most) as u32;
            let domain = domain(below(9), below(3));
            match below(4) {
                0 => drop(held.take(domain, 256)),
                _ => {
                    let dropped = held.hold(domain, 256, set(0, 200 + below(900) as usize));
                    assert!(dropped.sets < 10, "{number}: {dropped:?}");
                }
            }
            assert!(held.used_bytes <= 20_000);
            assert_counted(&held);
        }
        assert!(held.used_bytes > 10_000);
    }

    #[test]
    fn a_set_as_large_as_all_room_waits() {
        let mut held = Held::new(64_000);
        assert_eq!(held.hold(domain(1, 0), 256, set(3, 64_000)).sets, 0);
        assert_eq!(held.hold(domain(1, 0), 256, set(4, 200)).sets, 1);
        assert_eq!(firsts(held.take(domain(1, 0), 256)), [3]);
        assert_counted(&held);
    }
}
