//! Lists of routes, made in pieces, between which changes are applied.
//!
//! Going over a full table takes some ten milliseconds, in which no route could change and no port fail
//! over. So the thread that makes a list releases the table after each [`HELD`], or, where that is longer,
//! after one part of a family's prefixes ([`Rib::PARTS`]), and continues when the waiting threads have had
//! their turn. The first pass finds which prefixes come first in order; the second reads their ways.
//!
//! A route that changes meanwhile is listed as it was or as it is. A prefix that has a route all the time is
//! listed once, with the ways that it had at one moment; one that comes or goes meanwhile is listed or not.

use std::ops::Deref;
use std::thread;
use std::time::{Duration, Instant};

use nilometer_router::{Address, AnyPrefix, Prefix, Rib, Route, Source};

use super::Table;
use super::view::{RouteView, view};

/// How long a list keeps the table before it lets changes in.
const HELD: Duration = Duration::from_micros(200);
/// How long it then stays away: until the waiting threads have been woken.
const AWAY: Duration = Duration::from_micros(50);

/// Which routes are requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this source alone.
    pub source: Option<Source>,
    /// Within this prefix, itself included; without one, of both families.
    pub within: Option<AnyPrefix>,
    /// Behind this prefix in the order of prefixes, IPv4 before IPv6.
    pub after: Option<AnyPrefix>,
    /// At most this many, the first in that order.
    pub most: usize,
}

/// Routes that were requested, and how many more there are of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The first, by prefix.
    pub routes: Vec<RouteView>,
    /// Those behind them.
    pub more: usize,
    /// The last prefix listed; the next request starts behind it.
    pub last: Option<AnyPrefix>,
    /// How long the table was kept, all pieces together.
    pub held: Duration,
}

/// The routes in use among those selected. `table` is called for each piece.
pub(super) fn list<T: Deref<Target = Table>>(
    selection: Selection,
    mut table: impl FnMut() -> T,
) -> Listing {
    let mut walk = Walk::new(selection);
    walk.in_pieces(&mut table, Walk::gather);
    walk.choose();
    walk.in_pieces(&mut table, Walk::tell);
    let (last, more) = (walk.chosen.last().copied(), walk.count() - walk.chosen.len());
    Listing { routes: walk.routes, more, last, held: walk.held }
}

/// The first prefixes of a family, and how many were selected in all.
struct First<A> {
    within: Option<Prefix<A>>,
    after: Option<Prefix<A>>,
    prefixes: Vec<Prefix<A>>,
    /// Behind this one none is among the first.
    end: Option<Prefix<A>>,
    count: usize,
}

impl<A: Address> First<A> {
    fn new(within: Option<Prefix<A>>, after: Option<Prefix<A>>) -> First<A> {
        First { within, after, prefixes: Vec::new(), end: None, count: 0 }
    }

    /// Goes over one part, with room for twice as many as are wanted: whenever it is full, prefixes that
    /// cannot be among the first are dropped, and none behind them is taken any more.
    fn gather(&mut self, rib: &Rib<A>, part: usize, selection: &Selection) {
        let Some(within) = self.within else { return };
        let (after, most) = (self.after, selection.most);
        let is_selected = |route: &Route<A>| {
            route.prefix.length() >= within.length()
                && within.contains(route.prefix.address())
                && after.is_none_or(|after| after < route.prefix)
                && selection.source.is_none_or(|source| source == route.source)
        };
        for route in rib.best_in(part).filter(is_selected) {
            self.count += 1;
            if most == 0 || self.end.is_some_and(|end| end < route.prefix) {
                continue;
            }
            self.prefixes.push(route.prefix);
            if self.prefixes.len() >= most.saturating_mul(2) {
                self.prefixes.select_nth_unstable(most - 1);
                self.prefixes.truncate(most);
                self.end = self.prefixes.last().copied();
            }
        }
    }

    fn sorted(&mut self) -> &[Prefix<A>] {
        self.prefixes.sort_unstable();
        &self.prefixes
    }
}

/// A list that is being made.
struct Walk {
    selection: Selection,
    v4: First<u32>,
    v6: First<u128>,
    /// Parts that were gone over, of IPv4 and then of IPv6.
    parts: usize,
    /// The prefixes of the list.
    chosen: Vec<AnyPrefix>,
    /// The number of them whose ways were read.
    read: usize,
    routes: Vec<RouteView>,
    held: Duration,
}

impl Walk {
    fn new(selection: Selection) -> Walk {
        let (within4, within6) = match selection.within {
            None => (Prefix::new(0, 0), Prefix::new(0, 0)),
            Some(AnyPrefix::V4(within)) => (Some(within), None),
            Some(AnyPrefix::V6(within)) => (None, Some(within)),
        };
        let (within4, after4, after6) = match selection.after {
            None => (within4, None, None),
            Some(AnyPrefix::V4(after)) => (within4, Some(after), None),
            Some(AnyPrefix::V6(after)) => (None, None, Some(after)),
        };
        Walk {
            selection,
            v4: First::new(within4, after4),
            v6: First::new(within6, after6),
            parts: 0,
            chosen: Vec::new(),
            read: 0,
            routes: Vec::new(),
            held: Duration::ZERO,
        }
    }

    /// Takes one step after the other, holding the table for [`HELD`] at a time, until a step reports that
    /// it was the last.
    fn in_pieces<T: Deref<Target = Table>>(
        &mut self,
        mut table: impl FnMut() -> T,
        step: fn(&mut Walk, &Table) -> bool,
    ) {
        loop {
            let kept = table();
            let began = Instant::now();
            let mut goes_on = true;
            while goes_on && began.elapsed() < HELD {
                goes_on = step(self, &kept);
            }
            self.held += began.elapsed();
            drop(kept);
            if !goes_on {
                return;
            }
            thread::sleep(AWAY);
        }
    }

    /// Goes over the next part; whether there is one more.
    fn gather(&mut self, table: &Table) -> bool {
        const PARTS: usize = Rib::<u32>::PARTS;
        match self.parts.checked_sub(PARTS) {
            None => self.v4.gather(table.rib_v4(), self.parts, &self.selection),
            Some(part) => self.v6.gather(table.rib_v6(), part, &self.selection),
        }
        self.parts += 1;
        self.parts < PARTS + Rib::<u128>::PARTS
    }

    fn choose(&mut self) {
        let v4 = self.v4.sorted().iter().copied().map(AnyPrefix::V4);
        let v6 = self.v6.sorted().iter().copied().map(AnyPrefix::V6);
        self.chosen = v4.chain(v6).take(self.selection.most).collect();
    }

    /// Reads the ways of the next prefix, if it still has a route; whether there is one more.
    fn tell(&mut self, table: &Table) -> bool {
        let Some(&prefix) = self.chosen.get(self.read) else { return false };
        let reported = match prefix {
            AnyPrefix::V4(prefix) => {
                table.rib_v4().best_of(prefix).map(|route| view(table, route, AnyPrefix::V4, true))
            }
            AnyPrefix::V6(prefix) => {
                table.rib_v6().best_of(prefix).map(|route| view(table, route, AnyPrefix::V6, true))
            }
        };
        let is_selected = |reported: &RouteView| {
            self.selection.source.is_none_or(|source| source == reported.source)
        };
        self.routes.extend(reported.filter(is_selected));
        self.read += 1;
        self.read < self.chosen.len()
    }

    fn count(&self) -> usize {
        self.v4.count + self.v6.count
    }
}
