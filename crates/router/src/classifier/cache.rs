//! Answers kept for flows that come again.
//!
//! Each header has one place, by its digest; what another flow left there is overwritten. An answer
//! carries the classifier's generation, and one of an earlier generation is no answer: an update
//! empties the cache without touching it.

use alloc::vec;
use alloc::vec::Vec;

use super::kernel::Classified;
use super::rule::{Classifier, RuleId};
use super::table::{Mask, Tuple};
use crate::header::Key;

/// Headers that are looked for together.
const TOGETHER: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Answer<A> {
    key: Key<A>,
    found: Option<RuleId>,
    generation: u64,
}

/// The answers of one classifier; of several it would mix them up.
#[derive(Clone, Debug)]
pub struct FlowCache<A> {
    mask: Mask<A>,
    answers: Vec<Answer<A>>,
    hits: u64,
    misses: u64,
}

impl<A> FlowCache<A> {
    /// Headers that were answered from here, and those that were not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// Forgets every answer, as it must when another classifier takes the place of its own.
    pub fn clear(&mut self) {
        self.answers.iter_mut().for_each(|answer| answer.generation = u64::MAX);
    }
}

impl<A: Classified + Default> FlowCache<A> {
    /// Room for `flows`, rounded up to a power of two.
    pub fn new(flows: usize) -> FlowCache<A> {
        let bits = A::BITS as u8;
        let all =
            Tuple { source: bits, destination: bits, source_port: true, destination_port: true };
        let none = Answer { key: Key::default(), found: None, generation: u64::MAX };
        FlowCache {
            mask: Mask::new(&all),
            answers: vec![none; flows.next_power_of_two()],
            hits: 0,
            misses: 0,
        }
    }

    /// As [`Classifier::classify_batch`], which is asked what is not known yet.
    ///
    /// # Panics
    /// When `keys` and `found` differ in length.
    pub fn classify_batch(
        &mut self,
        classifier: &(impl Classifier<A> + ?Sized),
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
    ) {
        assert_eq!(keys.len(), found.len(), "a place for each answer");
        for (keys, found) in keys.chunks(TOGETHER).zip(found.chunks_mut(TOGETHER)) {
            self.classify_some(classifier, keys, found);
        }
    }

    fn classify_some(
        &mut self,
        classifier: &(impl Classifier<A> + ?Sized),
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
    ) {
        let generation = classifier.generation();
        let mut unknown = [Key::default(); TOGETHER];
        let mut places = [(0, 0); TOGETHER];
        let mut misses = 0;
        for (at, (key, found)) in keys.iter().zip(found.iter_mut()).enumerate() {
            let place = self.mask.digest(key) as usize & (self.answers.len() - 1);
            let answer = &self.answers[place];
            if answer.generation == generation && answer.key == *key {
                *found = answer.found;
            } else {
                unknown[misses] = *key;
                places[misses] = (at, place);
                misses += 1;
            }
        }
        let mut answers = [None; TOGETHER];
        classifier.classify_batch(&unknown[..misses], &mut answers[..misses]);
        for ((key, answer), (at, place)) in unknown.iter().zip(answers).zip(places).take(misses) {
            found[at] = answer;
            self.answers[place] = Answer { key: *key, found: answer, generation };
        }
        self.hits += (keys.len() - misses) as u64;
        self.misses += misses as u64;
    }
}
