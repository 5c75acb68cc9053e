//! Answers kept for flows that come again.
//!
//! Each header has one set of three places, by its digest: a line of the cache for IPv4. A new answer
//! takes the first place, and what stood in the last is forgotten. A set carries the age of the cache in
//! which it was written, and one of another age is empty: an update of the classifier, known by its
//! generation, begins a new age and so empties the cache without touching it.
//!
//! With many flows a set is rarely in any cache of the processor. So the sets of a whole batch are
//! prefetched before the first is read.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use nilometer_wire::prefetch::prefetch;

use super::by_port::ByPort;
use super::kernel::Classified;
use super::rule::{Classifier, RuleId};
use crate::header::Key;

/// Headers that are looked up together.
const TOGETHER: usize = 64;
/// Answers of a set.
const WAYS: usize = 3;
/// The answer that no rule matches; no rule has this number.
const NO_RULE: u32 = u32::MAX;
/// No answer.
const EMPTY: u32 = u32::MAX - 1;
/// The age of sets that were never written.
const NEVER: u32 = 0;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set<W> {
    keys: [W; WAYS],
    found: [u32; WAYS],
    age: u32,
}

impl<W: Copy + Default + Eq> Set<W> {
    fn new() -> Set<W> {
        Set { keys: [W::default(); WAYS], found: [EMPTY; WAYS], age: NEVER }
    }

    /// The answer for a header and whether it is known at this age. (Which of the places has it changes from
    /// header to header, so all are compared and nothing is decided.)
    #[inline(always)]
    fn get(&self, key: W, age: u32) -> (u32, bool) {
        let is_there = |at: usize| (self.keys[at] == key) & (self.found[at] != EMPTY);
        let places = (0..WAYS).fold(0, |places, at| places | u32::from(is_there(at)) << at);
        let at = (places.trailing_zeros() as usize).min(WAYS - 1);
        (self.found[at], (places != 0) & (self.age == age))
    }

    /// Puts an answer into the first place.
    #[inline]
    fn put(&mut self, key: W, found: u32, age: u32) {
        if self.age != age {
            *self = Set { age, ..Set::new() };
        }
        self.keys.copy_within(..WAYS - 1, 1);
        self.found.copy_within(..WAYS - 1, 1);
        (self.keys[0], self.found[0]) = (key, found);
    }
}

/// Bits in which all of a header has a part: each word is multiplied with what was before it, and both
/// halves of the product are kept.
#[inline(always)]
fn digest(words: impl AsRef<[u64]>) -> u64 {
    const BEGINNING: u64 = 0x6a09_e667_f3bc_c909;
    const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;
    words.as_ref().iter().fold(BEGINNING, |digest, word| {
        let product = u128::from(digest ^ word) * u128::from(FACTOR);
        (product >> 64) as u64 ^ product as u64
    })
}

/// The answers of one classifier, or of one for each port; of several others it would mix them up.
#[derive(Clone, Debug)]
pub struct FlowCache<A: Classified> {
    sets: Vec<Set<A::Words>>,
    age: u32,
    /// The classifier's, at this age.
    generation: u64,
    hits: u64,
    misses: u64,
}

impl<A: Classified> FlowCache<A> {
    /// Headers that were answered from here, and those that were not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// Where its answers lie in memory, so that the caller can put them on large pages.
    pub fn span(&self) -> Range<usize> {
        let span = self.sets.as_ptr_range();
        span.start.addr()..span.end.addr()
    }

    /// Forgets every answer, as it must when another classifier takes the place of its own.
    pub fn clear(&mut self) {
        self.age = match self.age.checked_add(1) {
            Some(age) => age,
            None => {
                self.sets.iter_mut().for_each(|set| set.age = NEVER);
                NEVER + 1
            }
        };
    }
}

impl<A: Classified + Default> FlowCache<A> {
    /// Room for `flows`, rounded up to a power of two of sets of three.
    pub fn new(flows: usize) -> FlowCache<A> {
        FlowCache {
            sets: vec![Set::new(); flows.div_ceil(WAYS).next_power_of_two()],
            age: NEVER + 1,
            generation: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// As [`Classifier::classify_batch`], which is called for headers that are not cached.
    ///
    /// # Panics
    /// When `keys` and `found` differ in length.
    pub fn classify_batch(
        &mut self,
        classifier: &(impl Classifier<A> + ?Sized),
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
    ) {
        let search = |keys: &[Key<A>], found: &mut [_]| classifier.classify_batch(keys, found);
        self.answer((classifier.generation(), 0), keys, found, search);
    }

    /// As [`ByPort::classify_batch`], which is called for headers that are not cached.
    ///
    /// # Panics
    /// When `keys` and `found` differ in length.
    pub fn classify_by_port(
        &mut self,
        classifiers: &ByPort<A>,
        input: usize,
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
    ) {
        let search =
            |keys: &[Key<A>], found: &mut [_]| classifiers.classify_batch(input, keys, found);
        let whose = (classifiers.generation(), classifiers.list_number(input));
        self.answer(whose, keys, found, search);
    }

    /// Answers of this generation, from the list of this number.
    #[inline]
    fn answer(
        &mut self,
        (generation, list): (u64, u16),
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
        search: impl Fn(&[Key<A>], &mut [Option<RuleId>]),
    ) {
        assert_eq!(keys.len(), found.len(), "a place for each answer");
        if self.generation != generation {
            self.generation = generation;
            self.clear();
        }
        for (keys, found) in keys.chunks(TOGETHER).zip(found.chunks_mut(TOGETHER)) {
            self.answer_some(list, keys, found, &search);
        }
    }

    fn answer_some(
        &mut self,
        list: u16,
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
        search: &impl Fn(&[Key<A>], &mut [Option<RuleId>]),
    ) {
        let mut places = [0; TOGETHER];
        for (place, key) in places.iter_mut().zip(keys) {
            *place = digest(A::words(key, list)) as usize & (self.sets.len() - 1);
            prefetch(&raw const self.sets[*place]);
        }
        let mut unknown = [Key::default(); TOGETHER];
        let mut missed_at = [0; TOGETHER];
        let mut misses = 0;
        for (at, (key, found)) in keys.iter().zip(found.iter_mut()).enumerate() {
            let (answer, is_known) = self.sets[places[at]].get(A::words(key, list), self.age);
            *found = (answer != NO_RULE).then_some(RuleId(answer));
            (unknown[misses], missed_at[misses]) = (*key, at);
            misses += usize::from(!is_known);
        }
        let mut answers = [None; TOGETHER];
        search(&unknown[..misses], &mut answers[..misses]);
        for ((key, answer), at) in unknown.iter().zip(answers).zip(missed_at).take(misses) {
            found[at] = answer;
            let answer = answer.map_or(NO_RULE, |rule| rule.0);
            self.sets[places[at]].put(A::words(key, list), answer, self.age);
        }
        self.hits += (keys.len() - misses) as u64;
        self.misses += misses as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::{Action, ClassifierLinear, Rule};
    use crate::prefix::Prefix;
    use nilometer_stat::Rng;

    /// Small caches in front of a changing classifier give its answers, hit for headers seen a moment
    /// ago, and are emptied when their age counter wraps.
    #[test]
    fn the_cache_agrees_with_the_classifier() {
        for flows in [1, 3, 40, 1_000] {
            let mut rng = Rng::new(flows, 3, 0);
            let mut classifier = ClassifierLinear::<u32>::new(8);
            let mut cache = FlowCache::<u32>::new(flows as usize);
            cache.age = u32::MAX - 20;
            for round in 0..300 {
                let id = RuleId(rng.below(8) as u32);
                if rng.below(4) == 0 && classifier.remove(id).is_none() {
                    let source = Prefix::new((rng.below(8) as u32) << 28, 4).expect("sound");
                    let rule = Rule { source, ..Rule::any(rng.below(4) as u32, Action::Permit) };
                    assert_eq!(classifier.insert(id, rule), Ok(()));
                }
                let mut key = || Key {
                    source: (rng.below(16) as u32) << 28,
                    destination_port: rng.below(10) as u16,
                    ..Key::default()
                };
                let keys: [Key<u32>; 100] = core::array::from_fn(|_| key());
                let (mut found, mut expected) = ([None; 100], [None; 100]);
                cache.classify_batch(&classifier, &keys, &mut found);
                classifier.classify_batch(&keys, &mut expected);
                assert_eq!(found, expected, "round {round} of {flows}");
            }
            let (hits, misses) = cache.hits_and_misses();
            assert_eq!(hits + misses, 30_000);
            assert!(flows < 1_000 || hits > 15_000, "{hits}");
        }
    }
}
