//! A classifier for each port: rules for all ports in one, those of some ports in their lists.
//!
//! A rule may apply only to packets that arrive at certain ports ([`Inputs`]). Were the port one
//! more field of a rule, a port that no rule names would be searched for among the rules of all
//! others. So the rules that name a port stand in a classifier of this port, its *list*, and those
//! that name none in one classifier for all. A header is looked up in both, and the rule of higher
//! priority wins: the answer is that of one search among all rules which are for the port. A rule
//! that names several ports stands in the list of each. A port that no rule names has no list, and
//! costs one search.
//!
//! A rule has its own number in every list, and a classifier keeps an array up to the greatest
//! number. So lists suit a few ports with rules of their own, not a million rules at each of 128
//! ports.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZero;

use super::kernel::Classified;
use super::rule::{Classifier, Octet, Refused, Rule, RuleId};
use crate::header::Key;

/// Headers that are looked up together in a port's list.
const TOGETHER: usize = 64;

/// The ports by which packets come that a rule is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inputs(Option<NonZero<u128>>);

impl Inputs {
    /// Every port.
    pub const ANY: Inputs = Inputs(None);
    /// Only ports below this number can be named.
    pub const PORTS_MAX: usize = 128;

    /// The ports of these numbers; nothing if none is named, or one that is not below
    /// [`Inputs::PORTS_MAX`].
    pub fn of(ports: impl IntoIterator<Item = usize>) -> Option<Inputs> {
        let bit = |port: usize| 1u128.checked_shl(u32::try_from(port).ok()?);
        let all = ports.into_iter().try_fold(0, |all, port| Some(all | bit(port)?))?;
        NonZero::new(all).map(|all| Inputs(Some(all)))
    }

    /// Whether the port of this number is one of them.
    pub fn contains(self, port: usize) -> bool {
        let Some(named) = self.0 else { return true };
        port < Inputs::PORTS_MAX && named.get() >> port & 1 == 1
    }

    /// Those that are named, in their order; none if it is every port.
    fn named(self) -> impl Iterator<Item = usize> {
        (0..Inputs::PORTS_MAX).filter(move |port| self.0.is_some() && self.contains(*port))
    }
}

/// A classifier, and how many of its rules look at TCP's flags.
struct List<A: Classified> {
    classifier: Box<dyn Classifier<A> + Send>,
    of_flags: usize,
}

impl<A: Classified> List<A> {
    fn insert(&mut self, id: RuleId, rule: Rule<A>) -> Result<(), Refused> {
        self.classifier.insert(id, rule)?;
        self.of_flags += usize::from(rule.flags != Octet::ANY);
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> Option<Rule<A>> {
        let rule = self.classifier.remove(id)?;
        self.of_flags -= usize::from(rule.flags != Octet::ANY);
        Some(rule)
    }
}

/// Rules for all ports and for some; see the module's essay.
pub struct ByPort<A: Classified> {
    every: List<A>,
    /// By port; nothing where no rule names it.
    lists: Vec<Option<List<A>>>,
    /// By number: which ports the rule is for, and its priority.
    known: Vec<Option<(Inputs, u32)>>,
    rules: usize,
    generation: u64,
}

impl<A: Classified> fmt::Debug for ByPort<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = self.lists.iter().flatten().count();
        f.debug_struct("ByPort").field("rules", &self.rules).field("lists", &lists).finish()
    }
}

impl<A: Classified> ByPort<A> {
    /// A classifier without rules. All lists are kept in classifiers like this one, with the same
    /// limit.
    ///
    /// # Panics
    /// When `classifier` has rules.
    pub fn new(classifier: Box<dyn Classifier<A> + Send>) -> ByPort<A> {
        assert!(classifier.is_empty(), "a classifier without rules");
        let every = List { classifier, of_flags: 0 };
        ByPort { every, lists: Vec::new(), known: Vec::new(), rules: 0, generation: 0 }
    }

    /// Adds a rule for packets that come by `inputs`; the next search knows it.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn insert(&mut self, id: RuleId, inputs: Inputs, rule: Rule<A>) -> Result<(), Refused> {
        let at = id.0 as usize;
        if self.known.get(at).is_some_and(Option::is_some) {
            return Err(Refused::Taken);
        }
        if inputs == Inputs::ANY {
            self.every.insert(id, rule)?;
        }
        for port in inputs.named() {
            // All have one limit: if the first takes the number, so do the others.
            self.list_of(port).insert(id, rule).inspect_err(|_| self.close(port))?;
        }
        if self.known.len() <= at {
            self.known.resize(at + 1, None);
        }
        self.known[at] = Some((inputs, rule.priority));
        self.rules += 1;
        self.generation += 1;
        Ok(())
    }

    /// Takes a rule out and returns it, if there was one of this number.
    pub fn remove(&mut self, id: RuleId) -> Option<Rule<A>> {
        let (inputs, _) = self.known.get_mut(id.0 as usize)?.take()?;
        self.rules -= 1;
        self.generation += 1;
        if inputs == Inputs::ANY {
            return self.every.remove(id);
        }
        let mut rule = None;
        for port in inputs.named() {
            rule = self.list_of(port).remove(id);
            self.close(port);
        }
        rule
    }

    /// The list of a port, a new one where it has none.
    fn list_of(&mut self, port: usize) -> &mut List<A> {
        if self.lists.len() <= port {
            self.lists.resize_with(port + 1, || None);
        }
        let every = &self.every.classifier;
        self.lists[port].get_or_insert_with(|| List { classifier: every.empty(), of_flags: 0 })
    }

    /// A list without rules is none.
    fn close(&mut self, port: usize) {
        self.lists[port].take_if(|list| list.classifier.is_empty());
    }

    /// Whether no rule is for packets that come by the port `input`.
    #[inline]
    pub fn is_empty_for(&self, input: usize) -> bool {
        self.every.classifier.is_empty() && self.list(input).is_none()
    }

    /// The list of a port, if it has one.
    #[inline]
    fn list(&self, port: usize) -> Option<&List<A>> {
        self.lists.get(port)?.as_ref()
    }

    /// The rule of this number, and the ports that it is for.
    pub fn rule(&self, id: RuleId) -> Option<(&Rule<A>, Inputs)> {
        let (inputs, _) = (*self.known.get(id.0 as usize)?)?;
        let list = match inputs.named().next() {
            Some(port) => self.list(port)?,
            None => &self.every,
        };
        Some((list.classifier.rule(id)?, inputs))
    }

    /// The first rule for each of `keys`, of packets that came by the port `input`, written in their
    /// order to `found`.
    ///
    /// # Panics
    /// When the two differ in length.
    pub fn classify_batch(&self, input: usize, keys: &[Key<A>], found: &mut [Option<RuleId>]) {
        assert_eq!(keys.len(), found.len(), "a place for each answer");
        match self.every.classifier.is_empty() {
            true => found.fill(None),
            false => self.every.classifier.classify_batch(keys, found),
        }
        let Some(list) = self.list(input) else { return };
        for (keys, found) in keys.chunks(TOGETHER).zip(found.chunks_mut(TOGETHER)) {
            let mut listed = [None; TOGETHER];
            list.classifier.classify_batch(keys, &mut listed[..keys.len()]);
            for (found, listed) in found.iter_mut().zip(listed) {
                *found = self.first(*found, listed);
            }
        }
    }

    /// Of a rule for all ports and one of a list, the one that goes first.
    fn first(&self, one: Option<RuleId>, other: Option<RuleId>) -> Option<RuleId> {
        let order = |id: RuleId| (self.known[id.0 as usize].map(|(_, priority)| priority), id);
        match (one, other) {
            (Some(one), Some(other)) => Some(if order(one) < order(other) { one } else { other }),
            (one, other) => one.or(other),
        }
    }

    /// Whether some rule that is for the port looks at TCP's flags.
    #[inline]
    pub fn looks_at_flags(&self, input: usize) -> bool {
        self.every.of_flags > 0 || self.list(input).is_some_and(|list| list.of_flags > 0)
    }

    /// A number that distinguishes ports whose answers may differ; all ports without a list have 0.
    #[inline]
    pub(super) fn list_number(&self, input: usize) -> u16 {
        if self.list(input).is_some() { input as u16 + 1 } else { 0 }
    }

    /// How many rules there are, each counted once.
    pub fn len(&self) -> usize {
        self.rules
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// Bytes of memory that searches read.
    pub fn bytes(&self) -> usize {
        let all = self.lists.iter().flatten().chain([&self.every]);
        all.map(|list| list.classifier.bytes()).sum::<usize>() + size_of_val(&self.known[..])
    }

    /// A number that every change raises: answers of an older one may be stale.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// After a load: rearranges the rules if that makes searches faster. Answers stay the same.
    pub fn settle(&mut self) {
        let all = self.lists.iter_mut().flatten().chain([&mut self.every]);
        all.for_each(|list| list.classifier.settle());
        self.generation += 1;
    }
}
