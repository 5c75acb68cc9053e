//! The writer's table of parcels: all routes, parcel by parcel.
//!
//! A parcel is the addresses of one prefix. It has a list of the routes inside it, sorted; and it
//! remembers the longest route that covers it whole, so that what it answers depends on these two alone.
//! A parcel with many routes is *divided*: by the next eight bits into 256 parcels, each with its own list,
//! and the list of the divided one keeps the routes that cover whole parts. The parcel of all addresses is
//! divided by sixteen bits from the beginning and stays so.

use alloc::vec;
use alloc::vec::Vec;

use crate::prefix::{Address, Prefix};
use crate::slots::division::Ranged;
use crate::slots::memory::Block;
use crate::slots::routes::{Cover, Leaf, Route, Run, Walk, runs_of, set_long};

/// Bits by which all addresses are divided, and parcels after them.
pub(super) const FIRST_BITS: u32 = 16;
pub(super) const BITS: u32 = 8;
/// Parts of a divided parcel.
pub(super) const PARTS: u32 = 1 << BITS;
/// The number of the parcel of all addresses.
const WHOLE: u32 = 0;

/// A parcel's number, and its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub number: u32,
    pub prefix: Prefix<u128>,
}

/// What is known of a parcel.
#[derive(Clone, Debug, Default)]
pub(super) struct Parcel {
    /// The routes inside; of a divided parcel those alone that cover whole parts.
    pub routes: Vec<Route<u128>>,
    pub cover: Cover,
    /// The number of its first part; 0 where it is not divided.
    first_part: u32,
    /// All routes inside.
    pub count: u32,
    /// The word in which readers find it.
    pub at: u32,
    /// Its home, or its parts if it is divided; a home has room for whatever its routes may answer.
    pub own: Block,
}

/// All parcels.
#[derive(Debug)]
pub(super) struct ParcelTable {
    parcels: Vec<Parcel>,
    /// Numbers of first parts that are free.
    free: Vec<u32>,
    walk: Walk<u128>,
}

/// Bits by which a parcel of this length is divided.
fn stride(length: u32) -> u32 {
    if length == 0 { FIRST_BITS } else { BITS }
}

impl ParcelTable {
    /// No routes; the words of the first parts are the first of all words.
    pub fn new() -> ParcelTable {
        let mut parcels = vec![Parcel::default(); 1 + (1 << FIRST_BITS)];
        parcels[WHOLE as usize].first_part = 1;
        for (at, parcel) in parcels[1..].iter_mut().enumerate() {
            parcel.at = at as u32;
        }
        ParcelTable { parcels, free: Vec::new(), walk: Walk::default() }
    }

    /// How many routes there are.
    pub fn len(&self) -> usize {
        self.of(WHOLE).count as usize
    }

    pub fn of(&self, number: u32) -> &Parcel {
        &self.parcels[number as usize]
    }

    pub fn of_mut(&mut self, number: u32) -> &mut Parcel {
        &mut self.parcels[number as usize]
    }

    pub fn is_divided(&self, number: u32) -> bool {
        self.of(number).first_part != 0
    }

    /// The parts of a divided parcel that have addresses of `prefix`.
    fn parts(&self, of: Place, prefix: Prefix<u128>) -> impl Iterator<Item = Place> + use<> {
        let first_part = self.of(of.number).first_part;
        let (from, bits) = (of.prefix.length(), stride(of.prefix.length()));
        let last = prefix.address().filled(prefix.length());
        (prefix.address().bits(from, bits)..=last.bits(from, bits)).map(move |part| {
            let address = of.prefix.address() | u128::from(part) << (128 - from - bits);
            let prefix = Prefix::new(address, from + bits).expect("shorter than an address");
            Place { number: first_part + part, prefix }
        })
    }

    /// All parts of a divided parcel.
    pub fn all_parts(&self, of: Place) -> impl Iterator<Item = Place> + use<> {
        self.parts(of, of.prefix)
    }

    /// The parcels that contain `prefix`, from that of all addresses to the one that lists it.
    pub fn path(&self, prefix: Prefix<u128>) -> impl Iterator<Item = Place> + '_ {
        let whole = Place { number: WHOLE, prefix: Prefix::new(0, 0).expect("no bit") };
        core::iter::successors(Some(whole), move |of| {
            let is_inside = prefix.length() > of.prefix.length() + stride(of.prefix.length());
            let goes_on = self.is_divided(of.number) && is_inside;
            goes_on.then(|| self.parts(*of, prefix).next()).flatten()
        })
    }

    /// The parcel that lists `prefix`.
    pub fn place(&self, prefix: Prefix<u128>) -> Place {
        self.path(prefix).last().expect("the parcel of all addresses")
    }

    /// Gives `prefix` the leaf, or withdraws it with 0; returns which it had. The parcels that answer
    /// otherwise from now on are added to `touched`.
    pub fn set(&mut self, prefix: Prefix<u128>, leaf: Leaf, touched: &mut Vec<Place>) -> Leaf {
        let path: Vec<Place> = self.path(prefix).collect();
        let place = path[path.len() - 1];
        let was = set_long(&mut self.of_mut(place.number).routes, prefix, leaf);
        for of in path {
            let count = &mut self.of_mut(of.number).count;
            *count = *count + u32::from(leaf != 0) - u32::from(was != 0);
        }
        if was == leaf {
            return was;
        }
        if self.is_divided(place.number) {
            let length_plus_one = prefix.length() as u8 + 1;
            let cover = match leaf {
                0 => self.covering(place, prefix),
                leaf => Cover { length_plus_one, leaf },
            };
            self.spread(place, prefix, length_plus_one, cover, touched);
        } else {
            touched.push(place);
        }
        was
    }

    /// The longest route that contains `prefix` and is shorter, where a divided parcel lists `prefix`.
    fn covering(&self, place: Place, prefix: Prefix<u128>) -> Cover {
        let Parcel { routes, cover, .. } = self.of(place.number);
        let shortest = if place.number == WHOLE { 0 } else { place.prefix.length() + 1 };
        let by_length = |length| {
            let shorter = Prefix::new(prefix.address(), length)?;
            let at = routes.binary_search_by_key(&shorter, |route| route.prefix).ok()?;
            Some(Cover { length_plus_one: length as u8 + 1, leaf: routes[at].leaf })
        };
        (shortest..prefix.length()).rev().find_map(by_length).unwrap_or(*cover)
    }

    /// Covers the parts of a divided parcel that are in `prefix`, but where longer routes do.
    fn spread(
        &mut self,
        of: Place,
        prefix: Prefix<u128>,
        length_plus_one: u8,
        cover: Cover,
        touched: &mut Vec<Place>,
    ) {
        for part in self.parts(of, prefix) {
            let stands = &mut self.of_mut(part.number).cover;
            if stands.length_plus_one > length_plus_one || *stands == cover {
                continue;
            }
            *stands = cover;
            if self.is_divided(part.number) {
                self.spread(part, part.prefix, length_plus_one, cover, touched);
            } else {
                touched.push(part);
            }
        }
    }

    /// Divides a parcel, whose parts' words begin at word `at`.
    pub fn divide(&mut self, place: Place, at: u32) {
        let end = self.parcels.len() as u32;
        let first_part = self.free.pop().unwrap_or(end);
        if first_part == end {
            self.parcels.resize(self.parcels.len() + PARTS as usize, Parcel::default());
        }
        let parcel = self.of_mut(place.number);
        parcel.first_part = first_part;
        let (cover, all) = (parcel.cover, core::mem::take(&mut parcel.routes));
        for part in 0..PARTS {
            let fresh = Parcel { cover, at: at + part, ..Parcel::default() };
            *self.of_mut(first_part + part) = fresh;
        }
        // Sorted: what covers a part comes before the longer routes that do.
        for route in all {
            let Route { prefix, leaf } = route;
            if prefix.length() <= place.prefix.length() + BITS {
                let cover = Cover { length_plus_one: prefix.length() as u8 + 1, leaf };
                self.parts(place, prefix).for_each(|part| self.of_mut(part.number).cover = cover);
                self.of_mut(place.number).routes.push(route);
            } else if let Some(part) = self.parts(place, prefix).next() {
                let part = self.of_mut(part.number);
                part.routes.push(route);
                part.count += 1;
            }
        }
    }

    /// All routes of a parcel that is divided and none of whose parts is; `None` if one is.
    pub fn gathered(&self, place: Place) -> Option<Vec<Route<u128>>> {
        let mut routes = self.of(place.number).routes.clone();
        for part in self.all_parts(place) {
            if self.is_divided(part.number) {
                return None;
            }
            routes.extend_from_slice(&self.of(part.number).routes);
        }
        routes.sort_unstable_by_key(|route| route.prefix);
        Some(routes)
    }

    /// Joins a divided parcel again; `routes` are all of its routes.
    pub fn join(&mut self, place: Place, routes: Vec<Route<u128>>) {
        for part in self.all_parts(place) {
            *self.of_mut(part.number) = Parcel::default();
        }
        let parcel = self.of_mut(place.number);
        parcel.routes = routes;
        let first_part = core::mem::take(&mut parcel.first_part);
        self.free.push(first_part);
    }

    /// The runs of a parcel that is not divided, had it these routes.
    pub fn runs(&mut self, place: Place, routes: &[Route<u128>], runs: &mut Vec<Run<u128>>) {
        let cover = self.of(place.number).cover.leaf;
        runs_of(place.prefix, cover, routes, &mut self.walk, runs);
    }

    /// Where runs can begin in the parcel whose runs were made last, whatever its routes answer.
    pub fn starts(&self) -> &[u128] {
        &self.walk.starts
    }
}
