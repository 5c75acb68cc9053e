//! A slab: places for open connections, reused without allocation, named by keys that go stale.
//!
//! A key holds the place and how often it has been vacated, so an event that the kernel reported
//! for a connection since closed finds nothing instead of the place's next tenant.

/// Names one tenant of one place; travels through epoll as a `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    fn new(place: u32, generation: u32) -> Key {
        Key(u64::from(generation) << 32 | u64::from(place))
    }

    /// The number of the place.
    pub fn place(self) -> usize {
        self.0 as u32 as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The key as the kernel keeps it.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The key that [`Key::to_bits`] gave.
    pub fn from_bits(bits: u64) -> Key {
        Key(bits)
    }
}

struct Place<T> {
    generation: u32,
    tenant: Option<T>,
}

/// At most `limit` tenants in numbered places.
pub struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    limit: usize,
}

impl<T> Slab<T> {
    /// An empty slab for at most `limit` tenants; grows as they come.
    pub fn new(limit: usize) -> Slab<T> {
        assert!(limit > 0 && limit < u32::MAX as usize, "a slab holds 1 to 2^32 - 2 tenants");
        Slab { places: Vec::new(), free: Vec::new(), limit }
    }

    /// Tenants now.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True when it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when it is full.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Gives `tenant` a place, or gives it back when the slab is full.
    pub fn insert(&mut self, tenant: T) -> Result<Key, T> {
        if self.is_full() {
            return Err(tenant);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, tenant: None });
            self.places.len() as u32 - 1
        });
        let room = &mut self.places[place as usize];
        room.tenant = Some(tenant);
        Ok(Key::new(place, room.generation))
    }

    /// The tenant of `key`, if it is still in.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let room = self.places.get_mut(key.place())?;
        if room.generation == key.generation() { room.tenant.as_mut() } else { None }
    }

    /// Takes the tenant of `key` out, if it is still in.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let room = self.places.get_mut(key.place())?;
        if room.generation != key.generation() {
            return None;
        }
        let tenant = room.tenant.take()?;
        room.generation = room.generation.wrapping_add(1);
        self.free.push(key.place() as u32);
        Some(tenant)
    }

    /// The key of the entry in `place`, for walks over all of them; places end at
    /// [`Slab::places`].
    pub fn key_at(&self, place: usize) -> Option<Key> {
        let room = self.places.get(place)?;
        room.tenant.as_ref().map(|_| Key::new(place as u32, room.generation))
    }

    /// How many places there are, taken or free.
    pub fn places(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_a_map_and_stale_keys_find_nothing() {
        let mut slab = Slab::new(50);
        let mut twin = BTreeMap::new();
        let mut gone = Vec::new();
        let mut rng = Rng::new(7, 0, 0);
        for turn in 0..20_000u64 {
            let chance = rng.next_u64();
            if chance >> 63 == 0 {
                match slab.insert(turn) {
                    Ok(key) => assert_eq!(twin.insert(key.to_bits(), turn), None),
                    Err(back) => assert_eq!((back, twin.len()), (turn, 50)),
                }
            } else if let Some(&bits) = twin.keys().nth((chance >> 40) as usize % 50) {
                assert_eq!(slab.remove(Key::from_bits(bits)), twin.remove(&bits));
                gone.push(Key::from_bits(bits));
            }
            assert_eq!(slab.len(), twin.len());
        }
        assert!(gone.len() > 1_000, "the test must see many tenants leave: {}", gone.len());
        assert!(gone.iter().all(|&key| slab.get_mut(key).is_none() && slab.remove(key).is_none()));
        let walked = (0..slab.places()).filter_map(|place| slab.key_at(place)).count();
        assert_eq!(walked, twin.len());
        for (&bits, &tenant) in &twin {
            assert_eq!(slab.get_mut(Key::from_bits(bits)), Some(&mut { tenant }));
        }
    }
}
