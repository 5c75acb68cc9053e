//! Replacement policy of a full table, which attackers cannot turn against an exporter in use.
//!
//! Any host can send a UDP datagram with any source address, and each datagram may bring a template of a new
//! observation domain. If a full table refuses new entries, one sender can fill it and lock out every later
//! exporter; if it evicts the least recently used entry, a sender that is faster than the exporters evicts
//! theirs. Here every entry belongs to an *owner*, the exporter's address, and has a *class*, by the number of
//! datagrams in which it was useful, that is, in which it was used to read records: none, 1 to 7, 8 to 63, 64 to
//! 511, more. Three rules choose the entry to evict.
//!
//! 1. An owner has a maximum number of entries. Beyond that, one of its own is evicted, from its lowest
//!    class.
//! 2. When the table is full, an entry of the lowest class is evicted. But entries that were never useful
//!    keep a quarter of the table; they are evicted only when they have more.
//! 3. In a class the least recently useful entry is evicted. Where an owner has more than its fair share of
//!    the class, the owner with the most entries loses one first; for this, being renewed counts as being
//!    useful.
//!
//! Why no attacker can silence an exporter in use: assume that an exporter has at most a fair share (64 of
//! 16,384 templates), which is more than routers have.
//!
//! - *From one address*, spoofed or not, an attacker is limited by rule 1 and rule 3: it is over its share,
//!   and every further template costs one of its own. The same holds for any number of addresses that each
//!   hold more than the fair share, as they must when fewer than 256 of them fill the table.
//! - *From many spoofed addresses*, templates alone stay in the lowest class and replace each other (rule 2).
//!   An exporter whose records were read once is safe from them, as long as useful entries fill no more than
//!   three quarters of the table.
//! - *A new template of an exporter* is in the lowest class too, until the first of its records comes, which
//!   is soon. It is lost only if more templates of attackers than a quarter of the table come between the
//!   two, and then until its exporter repeats it; its records wait for that (`pending_records`).
//! - *With records beside their templates*, attackers rise as exporters do. But to replace an entry that was
//!   useful in n datagrams, three quarters of the table must have been useful in about as many and more
//!   recently. That takes 12,288 times n datagrams before, and as many again each time the exporter sends
//!   another one: such an attacker sends more than the socket's buffer takes, and no table would help.
//!
//! The cost for each set of records, [`Replacement::useful`], is one or two stores: entries are sorted again
//! only before an eviction, each at most once for every time it was useful, so that all operations take
//! O(log n) amortised. The order is exact, as the naive twin in the tests shows.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;

/// Datagrams in which an entry was useful, from which it belongs to the next class.
const CLASS_FROM: [u32; 4] = [1, 8, 64, 512];
const CLASSES: usize = CLASS_FROM.len() + 1;

/// Limits on the number of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    /// In all; at least one.
    pub(super) total: usize,
    /// Of one owner; at least one.
    pub(super) of_owner: usize,
    /// Of one owner in one class, before its entries are evicted first.
    pub(super) fair: usize,
    /// Entries that were never useful and are still protected.
    pub(super) unproven: usize,
}

impl Shares {
    /// A fair share is a 256th of the table, and the share of entries that were never useful a quarter.
    pub(super) fn new(total: usize, of_owner: usize) -> Shares {
        let (total, of_owner) = (total.max(1), of_owner.clamp(1, total.max(1)));
        Shares { total, of_owner, fair: (total / 256).max(1), unproven: total / 4 }
    }
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u32);

/// The entries of a table, in the order of their eviction.
#[derive(Clone, Debug)]
pub(super) struct Replacement<T> {
    shares: Shares,
    /// The number of the datagram.
    now: u64,
    entries: Vec<Option<Entry<T>>>,
    free: Vec<Place>,
    classes: [Class; CLASSES],
    owners: BTreeMap<IpAddr, usize>,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    what: T,
    owner: IpAddr,
    class: usize,
    /// Datagrams in which it was useful, and the last of them.
    uses: u32,
    used_at: u64,
    /// When it was useful or renewed.
    heard_at: u64,
    /// The moment by which it is ordered in its class; not later than `heard_at`.
    queued_at: u64,
}

/// A moment and a place: the order within a class.
type Turn = (u64, Place);

#[derive(Clone, Debug, Default)]
struct Class {
    turns: BTreeSet<Turn>,
    by_owner: BTreeMap<IpAddr, BTreeSet<Turn>>,
    /// How many each owner has.
    holders: BTreeSet<(usize, IpAddr)>,
}

impl<T: Copy> Replacement<T> {
    pub(super) fn new(shares: Shares) -> Replacement<T> {
        Replacement {
            shares,
            now: 0,
            entries: Vec::new(),
            free: Vec::new(),
            classes: Default::default(),
            owners: BTreeMap::new(),
        }
    }

    /// Another datagram begins.
    pub(super) fn tick(&mut self) {
        self.now += 1;
    }

    /// Ensures that `owner` can have one more entry; returns what was evicted for it.
    pub(super) fn make_room(&mut self, owner: IpAddr) -> Option<Gone<T>> {
        let place = if self.owners.get(&owner).is_some_and(|held| *held >= self.shares.of_owner) {
            self.least_of(owner)
        } else if self.entries.len() - self.free.len() >= self.shares.total {
            self.least()
        } else {
            return None;
        };
        let entry = self.leave(place);
        Some(Gone { what: entry.what, owner: entry.owner, was_useful: entry.uses > 0 })
    }

    /// Adds an entry of `owner`, for which there must be room.
    pub(super) fn enter(&mut self, owner: IpAddr, what: T) -> Place {
        let now = self.now;
        let (heard_at, queued_at) = (now, now);
        let entry = Entry { what, owner, class: 0, uses: 0, used_at: 0, heard_at, queued_at };
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            Place(self.entries.len() as u32 - 1)
        });
        self.entries[place.0 as usize] = Some(entry);
        *self.owners.entry(owner).or_default() += 1;
        self.classes[0].add(owner, (now, place));
        place
    }

    /// Notes that the entry was used to read records of this datagram.
    #[inline]
    pub(super) fn useful(&mut self, place: Place) {
        let now = self.now;
        let entry = self.entry(place);
        entry.heard_at = now;
        if entry.uses > 0 && entry.used_at == now {
            return;
        }
        entry.used_at = now;
        entry.uses = entry.uses.saturating_add(1);
        if entry.class < CLASS_FROM.len() && entry.uses == CLASS_FROM[entry.class] {
            self.rise(place);
        }
    }

    /// Notes that the entry was sent again.
    pub(super) fn renewed(&mut self, place: Place) {
        let now = self.now;
        self.entry(place).heard_at = now;
    }

    /// Removes an entry that is no longer needed; returns whether it was ever useful.
    pub(super) fn withdraw(&mut self, place: Place) -> bool {
        self.leave(place).uses > 0
    }

    fn entry(&mut self, place: Place) -> &mut Entry<T> {
        self.entries[place.0 as usize].as_mut().expect("it has not left")
    }

    fn rise(&mut self, place: Place) {
        let entry = self.entry(place);
        let (owner, class) = (entry.owner, entry.class);
        let before = (entry.queued_at, place);
        entry.class += 1;
        entry.queued_at = entry.heard_at;
        let after = (entry.queued_at, place);
        self.classes[class].remove(owner, before);
        self.classes[class + 1].add(owner, after);
    }

    fn leave(&mut self, place: Place) -> Entry<T> {
        let entry = self.entries[place.0 as usize].take().expect("it has not left");
        self.free.push(place);
        self.classes[entry.class].remove(entry.owner, (entry.queued_at, place));
        let held = self.owners.get_mut(&entry.owner).expect("it held this one");
        *held -= 1;
        if *held == 0 {
            self.owners.remove(&entry.owner);
        }
        entry
    }

    /// Rule 1: the entry of `owner`, which must have one, that is evicted first.
    fn least_of(&mut self, owner: IpAddr) -> Place {
        let class = (0..CLASSES).find(|class| self.classes[*class].by_owner.contains_key(&owner));
        self.least_in(class.expect("it has an entry"), Some(owner))
    }

    /// Rules 2 and 3: the entry that is evicted first.
    fn least(&mut self) -> Place {
        let unproven = self.classes[0].turns.len();
        let lowest = usize::from(unproven <= self.shares.unproven);
        let class = (lowest..CLASSES).find(|class| !self.classes[*class].turns.is_empty());
        let class = class.unwrap_or(0);
        let most = self.classes[class].holders.last();
        let owner = most.filter(|(held, _)| *held > self.shares.fair).map(|(_, owner)| *owner);
        self.least_in(class, owner)
    }

    /// The least recently heard entry of a class, or of `owner`'s entries in it, after entries that were
    /// heard since have been put back in order.
    fn least_in(&mut self, class: usize, owner: Option<IpAddr>) -> Place {
        loop {
            let of_class = &self.classes[class];
            let turns = owner.map_or(&of_class.turns, |owner| &of_class.by_owner[&owner]);
            let turn = *turns.first().expect("the class is not empty");
            let entry = self.entry(turn.1);
            if entry.heard_at == turn.0 {
                return turn.1;
            }
            let (owner, later) = (entry.owner, (entry.heard_at, turn.1));
            entry.queued_at = entry.heard_at;
            self.classes[class].put_back(owner, turn, later);
        }
    }
}

/// An evicted entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone<T> {
    pub(super) what: T,
    pub(super) owner: IpAddr,
    pub(super) was_useful: bool,
}

impl Class {
    fn add(&mut self, owner: IpAddr, turn: Turn) {
        self.turns.insert(turn);
        let own = self.by_owner.entry(owner).or_default();
        self.holders.remove(&(own.len(), owner));
        own.insert(turn);
        self.holders.insert((own.len(), owner));
    }

    fn remove(&mut self, owner: IpAddr, turn: Turn) {
        self.turns.remove(&turn);
        let own = self.by_owner.get_mut(&owner).expect("it has this one");
        self.holders.remove(&(own.len(), owner));
        own.remove(&turn);
        if own.is_empty() {
            self.by_owner.remove(&owner);
        } else {
            self.holders.insert((own.len(), owner));
        }
    }

    fn put_back(&mut self, owner: IpAddr, turn: Turn, later: Turn) {
        self.turns.remove(&turn);
        self.turns.insert(later);
        let own = self.by_owner.get_mut(&owner).expect("it has this one");
        own.remove(&turn);
        own.insert(later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use core::net::Ipv4Addr;

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    struct Rng(u64);

    impl Rng {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) % bound
        }
    }

    fn owner(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    /// The rules taken literally: every entry is examined, every time.
    struct Twin {
        shares: Shares,
        now: u64,
        /// Owner, uses, last use, last heard of, and place; in no order.
        entries: Vec<(IpAddr, u32, u64, u64, Place)>,
    }

    impl Twin {
        fn class(uses: u32) -> usize {
            CLASS_FROM.iter().filter(|from| uses >= **from).count()
        }

        fn held(&self, owner: IpAddr) -> usize {
            self.entries.iter().filter(|entry| entry.0 == owner).count()
        }

        /// The place of the entry that is evicted for one more of `owner`.
        fn leaves(&self, by: IpAddr) -> Option<Place> {
            let all = || self.entries.iter();
            let least = |class: usize, owner: Option<IpAddr>| {
                all()
                    .filter(|one| Twin::class(one.1) == class)
                    .filter(|one| owner.is_none_or(|owner| one.0 == owner))
                    .min_by_key(|one| (one.3, one.4))
                    .map(|one| one.4)
            };
            if self.held(by) >= self.shares.of_owner {
                return (0..CLASSES).find_map(|class| least(class, Some(by)));
            }
            if self.entries.len() < self.shares.total {
                return None;
            }
            let count = |class| all().filter(|one| Twin::class(one.1) == class).count();
            let lowest = usize::from(count(0) <= self.shares.unproven);
            let class = (lowest..CLASSES).find(|class| count(*class) > 0).unwrap_or(0);
            let of_class =
                |owner| all().filter(|one| Twin::class(one.1) == class && one.0 == owner).count();
            let most = all().map(|one| (of_class(one.0), one.0)).max().expect("it is full");
            least(class, (most.0 > self.shares.fair).then_some(most.1))
        }
    }

    #[test]
    fn the_same_entries_go_as_by_the_rules_word_for_word() {
        for seed in 0..300 {
            let mut rng = Rng(seed);
            let total = 1 + rng.below(30) as usize;
            let shares = Shares {
                total,
                of_owner: 1 + rng.below(total as u64) as usize,
                fair: 1 + rng.below(4) as usize,
                unproven: rng.below(total as u64) as usize,
            };
            let owners = 1 + rng.below(12);
            // Some are heard often, so that all classes occur.
            let busy = 1 + rng.below(200);
            let mut twin = Twin { shares, now: 0, entries: Vec::new() };
            let mut table: Replacement<u64> = Replacement::new(shares);
            for number in 0..2_000 {
                if rng.below(3) > 0 {
                    table.tick();
                    twin.now += 1;
                }
                let drawn = rng.below(busy);
                if drawn == 0 || twin.entries.is_empty() {
                    let owner = owner(rng.below(owners) as u32);
                    let leaves = twin.leaves(owner);
                    let gone = table.make_room(owner);
                    assert_eq!(gone.is_some(), leaves.is_some(), "seed {seed}, step {number}");
                    twin.entries.retain(|one| Some(one.4) != leaves);
                    let place = table.enter(owner, number);
                    // The place of the evicted entry is the free one.
                    assert!(leaves.is_none_or(|left| left == place), "seed {seed}, step {number}");
                    twin.entries.push((owner, 0, 0, twin.now, place));
                    continue;
                }
                let at = rng.below(twin.entries.len() as u64) as usize;
                let entry = &mut twin.entries[at];
                match drawn {
                    1 if rng.below(8) == 0 => {
                        table.withdraw(entry.4);
                        twin.entries.swap_remove(at);
                    }
                    2 => {
                        table.renewed(entry.4);
                        entry.3 = twin.now;
                    }
                    _ => {
                        table.useful(entry.4);
                        let is_first = entry.1 == 0 || entry.2 != twin.now;
                        entry.1 += u32::from(is_first);
                        (entry.2, entry.3) = (twin.now, twin.now);
                    }
                }
                let held = table.entries.len() - table.free.len();
                assert_eq!(held, twin.entries.len(), "seed {seed}, step {number}");
            }
        }
    }

    /// A table in use, and an exporter in it whose entry was useful `uses` times.
    fn with_exporter(uses: u32) -> (Replacement<&'static str>, Place) {
        let mut table = Replacement::new(Shares::new(16_384, 4_096));
        table.tick();
        let place = table.enter(owner(0), "exporter");
        for _ in 0..uses {
            table.tick();
            table.useful(place);
        }
        (table, place)
    }

    /// Entries from each of a number of addresses, each useful equally often.
    fn flood(
        table: &mut Replacement<&'static str>,
        addresses: u32,
        each: u32,
        uses: u32,
    ) -> Result<(), alloc::string::String> {
        for number in 0..addresses * each {
            table.tick();
            let stranger = owner(1 + number % addresses);
            if let Some(gone) = table.make_room(stranger)
                && gone.what == "exporter"
            {
                return Err(format!("gone after {number} of {addresses} addresses"));
            }
            let place = table.enter(stranger, "stranger");
            for _ in 0..uses {
                table.tick();
                table.useful(place);
            }
        }
        Ok(())
    }

    #[test]
    fn entries_used_once_survive_any_flood_of_templates_from_other_addresses() {
        for addresses in [1, 2, 5, 200, 4_096, 20_000, 100_000] {
            let (mut table, _) = with_exporter(1);
            assert_eq!(flood(&mut table, addresses, 400_000 / addresses, 0), Ok(()));
        }
    }

    #[test]
    fn entries_not_yet_used_stay_for_a_quarter_of_the_table() {
        for addresses in [1, 5, 200] {
            let (mut table, _) = with_exporter(0);
            assert_eq!(flood(&mut table, addresses, 100_000 / addresses, 0), Ok(()), "over shares");
        }
        // The table is as full of attackers' useful entries as it can be.
        let (mut table, _) = with_exporter(1);
        assert_eq!(
            flood(&mut table, 40_000, 1, 1),
            Err("gone after 16383 of 40000 addresses".into())
        );
        let mut table = Replacement::new(Shares::new(16_384, 4_096));
        assert_eq!(flood(&mut table, 40_000, 1, 1), Ok(()));
        let place = table.enter(owner(0), "exporter");
        assert_eq!(flood(&mut table, 4_000, 1, 0), Ok(()));
        table.useful(place);
        assert_eq!(flood(&mut table, 100_000, 1, 0), Ok(()));
    }

    #[test]
    fn only_strangers_with_as_many_records_per_template_displace_an_exporter() {
        let (mut table, _) = with_exporter(64);
        assert_eq!(flood(&mut table, 100_000, 1, 20), Ok(()));
        assert!(flood(&mut table, 20_000, 1, 64).is_err(), "a class of their own is not held back");
    }
}
