//! The tables that the pipeline looks up, of any engine; they are exchanged between two batches.
//!
//! A batch is one call, so that a table behind a pointer costs no more than one in place.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use nilometer_wire::prefetch::prefetch;

use crate::classifier::{
    Action, ByPort, Classified, Classifier, FlowCache, Inputs, Refused, Rule, RuleId,
};
use crate::fib::Lookups;
use crate::header::Key;

/// What a filter does to packets, and how many it met.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// What becomes of a packet.
    pub action: Action,
    /// Whether a copy goes to management.
    pub is_copied: bool,
    /// Packets that it decided.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

impl Filter {
    /// It met a packet.
    #[inline(always)]
    pub(super) fn count(&mut self, ip_bytes: u16) {
        self.packets += 1;
        self.bytes += u64::from(ip_bytes);
    }
}

/// The filters of one family.
pub struct Filters<A: Classified> {
    classifier: ByPort<A>,
    /// By number.
    filters: Vec<Filter>,
    /// How many of them are active.
    active: usize,
    cache: Option<FlowCache<A>>,
}

impl<A: Classified> Filters<A> {
    /// No filters yet, and a classifier without rules.
    ///
    /// # Panics
    /// When it has rules.
    pub fn new(classifier: Box<dyn Classifier<A> + Send>) -> Filters<A> {
        Filters { classifier: ByPort::new(classifier), filters: Vec::new(), active: 0, cache: None }
    }

    /// Adds a filter for the packets of every port; the next batch meets it.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn insert(&mut self, id: RuleId, rule: Rule<A>) -> Result<(), Refused> {
        self.insert_at(id, Inputs::ANY, rule)
    }

    /// Adds a filter for the packets that come by `inputs`; the next batch of these ports meets it.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn insert_at(&mut self, id: RuleId, inputs: Inputs, rule: Rule<A>) -> Result<(), Refused> {
        let (action, is_copied) = (rule.action, rule.is_copied);
        self.classifier.insert(id, inputs, rule)?;
        let at = id.0 as usize;
        if self.filters.len() <= at {
            self.filters.resize(at + 1, Filter::default());
        }
        self.filters[at] = Filter { action, is_copied, ..Filter::default() };
        self.active += usize::from(matches!(action, Action::Active(_)));
        Ok(())
    }

    /// Takes a filter out; the next batch does not meet it.
    pub fn remove(&mut self, id: RuleId) -> Option<Rule<A>> {
        let rule = self.classifier.remove(id)?;
        self.active -= usize::from(matches!(rule.action, Action::Active(_)));
        Some(rule)
    }

    /// Whether some filter hands packets to plugins.
    #[inline(always)]
    pub(super) fn has_active(&self) -> bool {
        self.active > 0
    }

    /// Whether some filter that packets of the port `input` meet looks at TCP's flags.
    #[inline]
    pub(super) fn ask_for_flags(&self, input: usize) -> bool {
        self.classifier.looks_at_flags(input)
    }

    /// The rule of this number, and its counters.
    pub fn get(&self, id: RuleId) -> Option<(&Rule<A>, &Filter)> {
        Some((self.classifier.rule(id)?.0, self.filters.get(id.0 as usize)?))
    }

    /// Every rule with its counters, by number.
    pub fn iter(&self) -> impl Iterator<Item = (RuleId, &Rule<A>, &Filter)> + '_ {
        let numbers = (0..self.filters.len() as u32).map(RuleId);
        numbers.filter_map(|id| self.get(id).map(|(rule, filter)| (id, rule, filter)))
    }

    /// Replaces these classifiers by others that were given the same rules beforehand, with the
    /// same numbers and ports. Only pointers change, however many rules there are. Returns the old
    /// classifiers.
    ///
    /// # Errors
    /// The others, if their number of rules differs.
    pub fn exchange_filled(&mut self, filled: ByPort<A>) -> Result<ByPort<A>, ByPort<A>> {
        match filled.len() == self.classifier.len() {
            true => Ok(self.replace(filled)),
            false => Err(filled),
        }
    }

    fn replace(&mut self, classifier: ByPort<A>) -> ByPort<A> {
        // Another classifier counts its generations from another beginning.
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
        core::mem::replace(&mut self.classifier, classifier)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.classifier.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.classifier.is_empty()
    }

    /// After a load: arranges the rules anew if that makes searches faster.
    pub fn settle(&mut self) {
        self.classifier.settle();
    }

    /// Headers that the flow cache knew and did not know, if there is one.
    pub fn flow_cache(&self) -> Option<(u64, u64)> {
        self.cache.as_ref().map(FlowCache::hits_and_misses)
    }

    /// Where the flow cache lies in memory, if there is one.
    pub fn flow_cache_span(&self) -> Option<Range<usize>> {
        self.cache.as_ref().map(FlowCache::span)
    }

    /// Prefetches the counters of the filter that was found.
    #[inline(always)]
    pub(super) fn ask(&self, found: Option<RuleId>) {
        if let Some(id) = found {
            prefetch(self.filters.as_ptr().wrapping_add(id.0 as usize));
        }
    }

    /// The filter that was found, if it is any.
    #[inline(always)]
    pub(super) fn found(&mut self, found: Option<RuleId>) -> Option<&mut Filter> {
        found.and_then(|id| self.filters.get_mut(id.0 as usize))
    }

    /// Counts `packets` packets for the filter that was found.
    #[inline]
    pub(super) fn credit(&mut self, found: Option<RuleId>, packets: u64, bytes: u64) {
        if let Some(filter) = self.found(found) {
            filter.packets += packets;
            filter.bytes += bytes;
        }
    }

    /// The action of the filter that was found; counts the packet.
    #[inline]
    pub(super) fn meet(&mut self, found: Option<RuleId>, ip_bytes: u16) -> (Action, bool) {
        let Some(filter) = self.found(found) else {
            return (Action::Permit, false);
        };
        filter.count(ip_bytes);
        (filter.action, filter.is_copied)
    }
}

impl<A: Classified + Default> Filters<A> {
    /// Keeps answers for as many `flows`, in a new cache; without them, none.
    pub fn set_flow_cache(&mut self, flows: Option<usize>) {
        self.cache = flows.map(FlowCache::new);
    }

    #[inline]
    pub(super) fn classify(&mut self, input: usize, keys: &[Key<A>], found: &mut [Option<RuleId>]) {
        if self.classifier.is_empty_for(input) {
            found.fill(None);
        } else if let Some(cache) = &mut self.cache {
            cache.classify_by_port(&self.classifier, input, keys, found);
        } else {
            self.classifier.classify_batch(input, keys, found);
        }
    }
}

/// All tables of a router.
pub struct Tables {
    /// Routes of IPv4.
    pub routes4: Box<dyn Lookups<u32>>,
    /// Routes of IPv6.
    pub routes6: Box<dyn Lookups<u128>>,
    /// Filters of IPv4.
    pub filters4: Filters<u32>,
    /// Filters of IPv6.
    pub filters6: Filters<u128>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filters = (self.filters4.len(), self.filters6.len());
        f.debug_struct("Tables").field("filters", &filters).finish_non_exhaustive()
    }
}
