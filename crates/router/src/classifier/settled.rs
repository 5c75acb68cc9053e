//! A classifier for sets of some thousand rules: bit vectors for settled rules, tables for new ones.
//!
//! `Vectors` answer several times as fast as the tables of [`ClassifierTuples`] for a thousand rules, but
//! cannot take in another rule. So a new rule is put into tables, which take it in less than a
//! microsecond, and a search looks in both and takes the rule of higher priority. [`Classifier::settle`]
//! builds the vectors of all rules there are and empties the tables; that takes some milliseconds, so it
//! belongs after a load or to a quiet moment ([`ClassifierVectors::is_stale`]). A removed rule has its
//! bit cleared wherever it is set; a rule that returns unchanged, as when filters are switched off and
//! on, gets its bits back.
//!
//! Sets beyond [`RULES_SETTLED_MAX`] stay in the tables altogether: vectors grow with the square of the
//! rules, and where they leave the cache the tables win.

mod kernel;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::instructions::Instructions;
use super::kernel::Classified;
use super::rule::{Classifier, Refused, Rule, RuleId};
use super::tuples::ClassifierTuples;
use super::vectors::Vectors;
use crate::header::Key;

/// Rules of a set beyond which it is not settled.
pub const RULES_SETTLED_MAX: usize = super::vectors::RULES_MAX;
/// Young rules beyond which the vectors should be built again.
const YOUNG_MANY: usize = 64;
/// Headers that are classified together.
const TOGETHER: usize = 64;
/// Headers that go through the vectors together.
const SEARCHED: usize = 16;
/// No place among the settled.
const NOWHERE: u32 = u32::MAX;

/// Rules settled in vectors (Lakshman and Stiliadis 1998) and young ones in tables; see the module's essay.
#[derive(Clone, Debug)]
pub struct ClassifierVectors<A> {
    young: ClassifierTuples<A>,
    /// The settled, and at each place of their vectors the rule's order, number and the rule.
    vectors: Vectors,
    places: Vec<(u64, RuleId, Rule<A>)>,
    /// The numbers alone, to be found in few lines of the cache.
    ids: Vec<RuleId>,
    /// By number: the place among the settled rules, and whether the rule still exists.
    settled: Vec<(u32, bool)>,
    /// Settled rules that still exist.
    alive: usize,
    generation: u64,
    pub(super) instructions: Instructions,
}

impl<A: Classified> ClassifierVectors<A> {
    /// No rules yet; their numbers will be below `rules_max`.
    pub fn new(rules_max: u32) -> ClassifierVectors<A> {
        ClassifierVectors {
            young: ClassifierTuples::new(rules_max),
            vectors: Vectors::new::<A>(&[]),
            places: Vec::new(),
            ids: Vec::new(),
            settled: Vec::new(),
            alive: 0,
            generation: 0,
            instructions: Instructions::best(),
        }
    }

    /// Whether enough rules have been added since the last settling to make another worth its time.
    pub fn is_stale(&self) -> bool {
        if self.len() > RULES_SETTLED_MAX {
            return self.alive > 0 || self.young.is_stale();
        }
        self.young.len() > YOUNG_MANY
    }

    fn place(&self, id: RuleId) -> Option<usize> {
        let (place, is_alive) = *self.settled.get(id.0 as usize)?;
        is_alive.then_some(place as usize)
    }

    fn set_alive(&mut self, id: RuleId, place: usize, is_alive: bool) {
        self.vectors.set_alive(place, is_alive);
        self.settled[id.0 as usize].1 = is_alive;
        self.alive = if is_alive { self.alive + 1 } else { self.alive - 1 };
    }

    /// The settled rule of one header.
    fn search(&self, key: &Key<A>) -> Option<RuleId> {
        let [found] = self.vectors.search(&[*key]);
        found.map(|place| self.ids[place])
    }

    /// The settled rules of many headers.
    #[inline(always)]
    pub(super) fn search_all(&self, keys: &[Key<A>], found: &mut [Option<RuleId>]) {
        let (many, rest) = keys.as_chunks::<SEARCHED>();
        let (many_found, rest_found) = found.as_chunks_mut::<SEARCHED>();
        for (keys, found) in many.iter().zip(many_found) {
            let places = self.vectors.search(keys);
            *found = places.map(|place| place.map(|place| self.ids[place]));
        }
        for (key, found) in rest.iter().zip(rest_found) {
            *found = self.search(key);
        }
    }

    /// The vectors of the settled.
    #[inline(always)]
    pub(super) fn vectors(&self) -> &Vectors {
        &self.vectors
    }

    /// The number of the rule at a place of the vectors; none for an invalid place.
    #[inline(always)]
    pub(super) fn id_of(&self, place: u32) -> Option<RuleId> {
        self.ids.get(place as usize).copied()
    }

    /// Of a settled rule and a young one that match, the one that goes first.
    fn first(&self, settled: Option<RuleId>, young: Option<RuleId>) -> Option<RuleId> {
        let order = |id: RuleId| self.rule(id).map(|rule| rule.order(id));
        match (settled, young) {
            (Some(one), Some(other)) => Some(if order(one) < order(other) { one } else { other }),
            (one, other) => one.or(other),
        }
    }
}

impl<A: Classified> Classifier<A> for ClassifierVectors<A> {
    fn insert(&mut self, id: RuleId, rule: Rule<A>) -> Result<(), Refused> {
        if self.place(id).is_some() {
            return Err(Refused::Taken);
        }
        let gone = self.settled.get(id.0 as usize).filter(|(place, _)| *place != NOWHERE);
        let gone = gone.map(|(place, _)| *place as usize);
        match gone.filter(|place| self.places[*place].2 == rule && self.young.rule(id).is_none()) {
            Some(place) => self.set_alive(id, place, true),
            None => self.young.insert(id, rule)?,
        }
        self.generation += 1;
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> Option<Rule<A>> {
        let rule = match self.place(id) {
            Some(place) => {
                self.set_alive(id, place, false);
                self.places[place].2
            }
            None => self.young.remove(id)?,
        };
        self.generation += 1;
        Some(rule)
    }

    fn rule(&self, id: RuleId) -> Option<&Rule<A>> {
        match self.place(id) {
            Some(place) => Some(&self.places[place].2),
            None => self.young.rule(id),
        }
    }

    fn classify(&self, key: &Key<A>) -> Option<RuleId> {
        self.first(self.search(key), self.young.classify(key))
    }

    fn classify_batch(&self, keys: &[Key<A>], found: &mut [Option<RuleId>]) {
        assert_eq!(keys.len(), found.len(), "a place for each answer");
        if self.alive == 0 {
            return self.young.classify_batch(keys, found);
        }
        self.instructions.search_settled(self, keys, found);
        if self.young.len() == 0 {
            return;
        }
        for (keys, found) in keys.chunks(TOGETHER).zip(found.chunks_mut(TOGETHER)) {
            let mut young = [None; TOGETHER];
            self.young.classify_batch(keys, &mut young[..keys.len()]);
            for (found, young) in found.iter_mut().zip(young) {
                *found = self.first(*found, young);
            }
        }
    }

    fn len(&self) -> usize {
        self.alive + self.young.len()
    }

    fn bytes(&self) -> usize {
        let places = size_of_val(&self.places[..])
            + size_of_val(&self.ids[..])
            + size_of_val(&self.settled[..]);
        self.vectors.bytes() + places + self.young.bytes()
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn settle(&mut self) {
        let mut rules: Vec<(u64, RuleId, Rule<A>)> = Vec::with_capacity(self.len());
        for id in (0..self.young.numbers().max(self.settled.len() as u32)).map(RuleId) {
            rules.extend(self.rule(id).map(|rule| (rule.order(id), id, *rule)));
        }
        let numbers = rules.iter().map(|(_, id, _)| id.0 + 1).max().unwrap_or(0);
        self.young.clear();
        self.settled = alloc::vec![(NOWHERE, false); numbers as usize];
        self.places.clear();
        if rules.len() <= RULES_SETTLED_MAX {
            rules.sort_unstable_by_key(|(order, ..)| *order);
            for (place, (_, id, _)) in rules.iter().enumerate() {
                self.settled[id.0 as usize] = (place as u32, true);
            }
            self.places = rules;
        } else {
            for (_, id, rule) in rules {
                let inserted = self.young.insert(id, rule);
                debug_assert!(inserted.is_ok(), "it was in these tables or fitted them");
            }
            self.young.replan();
        }
        self.ids = self.places.iter().map(|(_, id, _)| *id).collect();
        self.alive = self.places.len();
        let rules: Vec<Rule<A>> = self.places.iter().map(|(.., rule)| *rule).collect();
        self.vectors = Vectors::new(&rules);
    }

    fn empty(&self) -> Box<dyn Classifier<A> + Send> {
        Box::new(ClassifierVectors::new(self.young.rules_max()))
    }
}
