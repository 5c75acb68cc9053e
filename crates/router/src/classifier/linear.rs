//! The naive twin of every classifier: rules in the order of priority, tested one after the other.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::rule::{Classifier, Refused, Rule, RuleId};
use crate::header::Key;
use crate::prefix::Address;

/// All rules; a search tests each until one matches. It needs no preparation and no memory beyond
/// the rules, and for a dozen of them nothing is faster.
#[derive(Clone, Debug)]
pub struct ClassifierLinear<A> {
    rules_max: u32,
    /// In their order.
    rules: Vec<(u64, Rule<A>)>,
    priorities: BTreeMap<RuleId, u32>,
    generation: u64,
}

impl<A: Address> ClassifierLinear<A> {
    /// No rules yet, and room for `rules_max`.
    pub fn new(rules_max: u32) -> ClassifierLinear<A> {
        ClassifierLinear {
            rules_max,
            rules: Vec::new(),
            priorities: BTreeMap::new(),
            generation: 0,
        }
    }

    fn place(&self, id: RuleId) -> Option<usize> {
        let order = u64::from(*self.priorities.get(&id)?) << 32 | u64::from(id.0);
        self.rules.binary_search_by_key(&order, |(order, _)| *order).ok()
    }
}

impl<A: Address> Classifier<A> for ClassifierLinear<A> {
    fn insert(&mut self, id: RuleId, rule: Rule<A>) -> Result<(), Refused> {
        if id.0 >= self.rules_max {
            return Err(Refused::BeyondLimit { rules_max: self.rules_max });
        }
        if self.priorities.contains_key(&id) {
            return Err(Refused::Taken);
        }
        let order = rule.order(id);
        let place = self.rules.partition_point(|(other, _)| *other < order);
        self.rules.insert(place, (order, rule));
        self.priorities.insert(id, rule.priority);
        self.generation += 1;
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> Option<Rule<A>> {
        let place = self.place(id)?;
        self.priorities.remove(&id);
        self.generation += 1;
        Some(self.rules.remove(place).1)
    }

    fn rule(&self, id: RuleId) -> Option<&Rule<A>> {
        self.place(id).map(|place| &self.rules[place].1)
    }

    fn classify(&self, key: &Key<A>) -> Option<RuleId> {
        let first = self.rules.iter().find(|(_, rule)| rule.matches(key));
        first.map(|(order, _)| RuleId(*order as u32))
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.rules[..])
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn empty(&self) -> Box<dyn Classifier<A> + Send> {
        Box::new(ClassifierLinear::new(self.rules_max))
    }
}
