//! The places of a server: how many each address holds, and which one must make room.
//!
//! Places belong to no address until they run out. Then a newcomer whose address holds at least two fewer
//! than another's takes a place of the address that holds most; with a smaller difference that would only
//! swap the two. So one address cannot keep another from being served, and no address is bounded while no
//! other address competes: max-min fairness, enforced when it matters.
//!
//! [`Prefix::of_host`] defines what counts as one address.
//!
//! Nothing here costs much while there are places: a table's entry for each connection. The address
//! with most is looked for only when they have run out, by a walk over the counts.

use std::collections::HashMap;

use nilometer_linux::prefix::Prefix;

/// At most this many connections of an address are examined to find the least deserving.
pub const LOOKED_AT_MAX: usize = 64;

#[derive(Debug, Default)]
struct Members {
    holder: Option<Prefix>,
    places: Vec<u32>,
}

/// The position of a place in its holder's list.
#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    list: u32,
    index: u32,
}

/// The holders of all taken places.
#[derive(Debug, Default)]
pub struct PlaceTable {
    by_holder: HashMap<Prefix, u32>,
    lists: Vec<Members>,
    free_lists: Vec<u32>,
    seats: Vec<Seat>,
}

impl PlaceTable {
    /// An empty table.
    pub fn new() -> PlaceTable {
        PlaceTable::default()
    }

    /// How many places `holder` has.
    pub fn count(&self, holder: Prefix) -> usize {
        self.by_holder.get(&holder).map_or(0, |&list| self.lists[list as usize].places.len())
    }

    /// `holder` takes `place`, which is free.
    pub fn enter(&mut self, place: u32, holder: Prefix) {
        let list = *self.by_holder.entry(holder).or_insert_with(|| {
            self.free_lists.pop().unwrap_or_else(|| {
                self.lists.push(Members::default());
                self.lists.len() as u32 - 1
            })
        });
        let members = &mut self.lists[list as usize];
        members.holder = Some(holder);
        if self.seats.len() <= place as usize {
            self.seats.resize(place as usize + 1, Seat::default());
        }
        self.seats[place as usize] = Seat { list, index: members.places.len() as u32 };
        members.places.push(place);
    }

    /// `place`, which is taken, is free.
    pub fn leave(&mut self, place: u32) {
        let Seat { list, index } = self.seats[place as usize];
        let members = &mut self.lists[list as usize];
        let left = members.places.swap_remove(index as usize);
        assert_eq!(left, place, "a place is left by the address that took it");
        if let Some(&moved) = members.places.get(index as usize) {
            self.seats[moved as usize].index = index;
        }
        if members.places.is_empty()
            && let Some(holder) = members.holder.take()
        {
            self.by_holder.remove(&holder);
            self.free_lists.push(list);
        }
    }

    /// Candidate places, [`LOOKED_AT_MAX`] at most, one of which goes to `newcomer`; none where no
    /// address holds two more than it does.
    pub fn in_favour_of(&self, newcomer: Prefix) -> &[u32] {
        let most = self.lists.iter().max_by_key(|members| members.places.len());
        match most {
            Some(most) if most.places.len() >= self.count(newcomer) + 2 => {
                &most.places[..most.places.len().min(LOOKED_AT_MAX)]
            }
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;
    use std::collections::BTreeMap;

    fn holder(last: u8) -> Prefix {
        Prefix::of_host([192, 0, 2, last].into())
    }

    #[test]
    fn agrees_with_a_map_of_places() {
        let mut place_table = PlaceTable::new();
        let mut twin: BTreeMap<u32, Prefix> = BTreeMap::new();
        let mut rng = Rng::new(3, 0, 0);
        for _ in 0..20_000 {
            let chance = rng.next_u64();
            let place = (chance >> 33) as u32 % 60;
            let most_of = (chance >> 50) % 7;
            let holder = holder((most_of * most_of / 8) as u8);
            match twin.remove(&place) {
                Some(_) => place_table.leave(place),
                None => {
                    place_table.enter(place, holder);
                    twin.insert(place, holder);
                }
            }
            let count = |holder| twin.values().filter(|&&other| other == holder).count();
            let most = twin.values().map(|&holder| count(holder)).max().unwrap_or(0);
            assert_eq!(place_table.count(holder), count(holder));
            let offered = place_table.in_favour_of(holder);
            assert_eq!(offered.is_empty(), most < count(holder) + 2, "{twin:?}");
            for place in offered {
                assert_eq!(count(twin[place]), most, "only the address with most makes room");
            }
        }
    }

    #[test]
    fn an_address_gives_way_until_all_have_the_same() {
        let [greedy, modest] = [holder(1), holder(2)];
        let mut place_table = PlaceTable::new();
        (0..100).for_each(|place| place_table.enter(place, greedy));
        while let Some(&place) = place_table.in_favour_of(modest).first() {
            place_table.leave(place);
            place_table.enter(place, modest);
        }
        assert_eq!((place_table.count(greedy), place_table.count(modest)), (50, 50));
    }
}
