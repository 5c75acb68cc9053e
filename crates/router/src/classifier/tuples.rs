//! The classifier: a few hash tables of blocks of rules (tuple space search, Srinivasan and others 1999).

mod kernel;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::block::{Blocks, NONE};
use super::instructions::Instructions;
use super::kernel::Classified;
use super::plan::{BUCKET_RULES, TABLES_MAX, plan, tuple_for};
use super::rule::{Classifier, Refused, Rule, RuleId};
use super::table::{Slot, Table, Tuple};
use crate::header::Key;

/// Headers that are classified together.
const TOGETHER: usize = 16;
/// Rules that a bucket takes before a table is opened for the next.
const CROWDED_RULES: u32 = 4 * BUCKET_RULES;
/// No rule: an order behind all others. Rule 2^32 - 1 would have it too, and cannot be.
const NO_RULE: u64 = u64::MAX;

/// Rules in hash tables by tuple (Srinivasan, Suri and Varghese 1999); see the module's essay.
#[derive(Clone, Debug)]
pub struct ClassifierTuples<A> {
    rules_max: u32,
    rules: Vec<Option<Rule<A>>>,
    /// In which table each rule is.
    places: Vec<u8>,
    tables: Vec<Table<A>>,
    blocks: Blocks<A>,
    count: usize,
    generation: u64,
    /// Rules at the last plan.
    planned: usize,
    /// Insertions since.
    unplanned: usize,
    instructions: Instructions,
}

impl<A: Classified> ClassifierTuples<A> {
    /// No rules yet; their numbers will be below `rules_max`.
    pub fn new(rules_max: u32) -> ClassifierTuples<A> {
        ClassifierTuples {
            rules_max: rules_max.min(u32::MAX - 1),
            rules: Vec::new(),
            places: Vec::new(),
            tables: Vec::new(),
            blocks: Blocks::new(),
            count: 0,
            generation: 0,
            planned: 0,
            unplanned: 0,
            instructions: Instructions::best(),
        }
    }

    /// Every number that a rule has is below this one.
    pub(super) fn numbers(&self) -> u32 {
        self.rules.len() as u32
    }

    /// The limit given at construction.
    pub(super) fn rules_max(&self) -> u32 {
        self.rules_max
    }

    /// Takes all rules out.
    pub(super) fn clear(&mut self) {
        *self = ClassifierTuples { generation: self.generation + 1, ..Self::new(self.rules_max) };
    }

    /// Whether enough rules have been added since the tables were planned that a new plan may be
    /// better.
    pub fn is_stale(&self) -> bool {
        self.unplanned > self.planned / 2 + BUCKET_RULES as usize
    }

    /// Plans new tables for the present rules, and fills them. Answers stay the same; it takes some
    /// tens of milliseconds for 10,000 rules, so it belongs after a load and not between batches.
    pub fn replan(&mut self) {
        let mut rules: Vec<(RuleId, Rule<A>)> = Vec::with_capacity(self.count);
        for (id, rule) in self.rules.iter().enumerate() {
            rules.extend(rule.map(|rule| (RuleId(id as u32), rule)));
        }
        let plan = plan(&rules.iter().map(|(_, rule)| rule).collect::<Vec<_>>());
        self.tables = plan.into_iter().map(Table::new).collect();
        self.blocks.clear();
        // Those that could go nowhere else first; in one bucket, in their order.
        rules.sort_by_key(|(id, rule)| {
            (Reverse(rule.source.length() + rule.destination.length()), rule.order(*id))
        });
        for (id, rule) in &rules {
            self.file(*id, rule);
        }
        self.order_tables();
        self.planned = self.count;
        self.unplanned = 0;
    }

    /// Whether rules, tables and blocks agree on how much there is: for tests.
    pub fn balances(&self) -> bool {
        let mut chained = (0, 0);
        let tables_agree = self.tables.iter().all(|table| {
            let mut rules = 0;
            for slot in table.buckets() {
                let (in_chain, blocks) = self.blocks.count(slot.head);
                let first = (self.blocks.first_order(slot.head) >> 32) as u32;
                if in_chain != slot.rules || slot.priority != first || first < table.priority {
                    return false;
                }
                chained = (chained.0 + in_chain, chained.1 + blocks);
                rules += in_chain;
            }
            rules == table.rules
        });
        let rules = self.rules.iter().flatten().count();
        let (in_chains, blocks) = chained;
        tables_agree
            && rules == self.count
            && rules == in_chains as usize
            && blocks == self.blocks.in_use()
    }

    /// Drops empty tables and puts first those with the rules that go first.
    fn order_tables(&mut self) {
        let mut by_priority: Vec<usize> = (0..self.tables.len()).collect();
        by_priority.retain(|at| self.tables[*at].rules > 0);
        by_priority.sort_by_key(|at| self.tables[*at].priority);
        let mut places = vec![0; self.tables.len()];
        for (to, at) in by_priority.iter().enumerate() {
            places[*at] = to as u8;
        }
        self.tables = by_priority.iter().map(|at| self.tables[*at].clone()).collect();
        for place in &mut self.places {
            *place = places.get(usize::from(*place)).copied().unwrap_or(0);
        }
    }

    /// Puts a rule into a table.
    fn file(&mut self, id: RuleId, rule: &Rule<A>) {
        let place = self.table_for(rule);
        let table = &mut self.tables[place];
        let digest = table.mask.digest_of_rule(rule);
        let was = table.bucket(digest);
        table.set(Slot {
            digest,
            head: self.blocks.insert(was.head, id.0, rule, rule.order(id)),
            priority: was.priority.min(rule.priority),
            rules: was.rules + 1,
        });
        self.places[id.0 as usize] = place as u8;
    }

    /// The first table whose bucket has room; else one that is not crowded; else a new one.
    fn table_for(&mut self, rule: &Rule<A>) -> usize {
        let mut shortest = None;
        for (place, table) in self.tables.iter().enumerate() {
            if !table.tuple.takes(rule) {
                continue;
            }
            let rules = table.bucket(table.mask.digest_of_rule(rule)).rules;
            if rules < BUCKET_RULES {
                return place;
            }
            if shortest.is_none_or(|(fewest, _)| rules < fewest) {
                shortest = Some((rules, place));
            }
        }
        let is_full = self.tables.len() >= TABLES_MAX;
        let tuple = match shortest {
            Some((rules, place)) if rules < CROWDED_RULES || is_full => return place,
            Some((_, place)) => {
                let longest = tuple_for(rule, false);
                if self.tables.iter().any(|table| table.tuple == longest) {
                    return place;
                }
                longest
            }
            None if is_full => Tuple::default(),
            None => tuple_for(rule, true),
        };
        self.tables.push(Table::new(tuple));
        self.tables.len() - 1
    }

    /// The first rule of one header.
    #[inline(always)]
    pub(super) fn search<const WIDE: bool>(&self, key: &Key<A>) -> Option<RuleId> {
        let mut best = NO_RULE;
        for table in &self.tables {
            if u64::from(table.priority) <= best >> 32 {
                let bucket = table.bucket(table.mask.digest(key));
                if bucket.head != NONE && u64::from(bucket.priority) <= best >> 32 {
                    best = self.blocks.search::<WIDE>(bucket.head, key, best);
                }
            }
        }
        rule_of(best)
    }

    /// The first rules of many headers, several at a time, so that their cache misses overlap.
    #[inline(always)]
    pub(super) fn search_all<const WIDE: bool>(
        &self,
        keys: &[Key<A>],
        found: &mut [Option<RuleId>],
    ) {
        let (many, rest) = keys.as_chunks::<TOGETHER>();
        let (many_found, rest_found) = found.as_chunks_mut::<TOGETHER>();
        for (keys, found) in many.iter().zip(many_found) {
            self.search_together::<WIDE>(keys, found);
        }
        for (key, found) in rest.iter().zip(rest_found) {
            *found = self.search::<WIDE>(key);
        }
    }

    #[inline(always)]
    fn search_together<const WIDE: bool>(
        &self,
        keys: &[Key<A>; TOGETHER],
        found: &mut [Option<RuleId>; TOGETHER],
    ) {
        let mut best = [NO_RULE; TOGETHER];
        for table in &self.tables {
            let heads: [u32; TOGETHER] = core::array::from_fn(|at| {
                let bucket = table.bucket(table.mask.digest(&keys[at]));
                if u64::from(bucket.priority) <= best[at] >> 32 { bucket.head } else { NONE }
            });
            for at in 0..TOGETHER {
                if heads[at] != NONE {
                    best[at] = self.blocks.search::<WIDE>(heads[at], &keys[at], best[at]);
                }
            }
        }
        *found = best.map(rule_of);
    }
}

#[inline(always)]
fn rule_of(order: u64) -> Option<RuleId> {
    (order != NO_RULE).then_some(RuleId(order as u32))
}

impl<A: Classified> Classifier<A> for ClassifierTuples<A> {
    fn insert(&mut self, id: RuleId, rule: Rule<A>) -> Result<(), Refused> {
        if id.0 >= self.rules_max {
            return Err(Refused::BeyondLimit { rules_max: self.rules_max });
        }
        let at = id.0 as usize;
        if self.rules.len() <= at {
            self.rules.resize(at + 1, None);
            self.places.resize(at + 1, 0);
        }
        if self.rules[at].is_some() {
            return Err(Refused::Taken);
        }
        self.rules[at] = Some(rule);
        self.file(id, &rule);
        self.count += 1;
        self.unplanned += 1;
        self.generation += 1;
        Ok(())
    }

    fn remove(&mut self, id: RuleId) -> Option<Rule<A>> {
        let at = id.0 as usize;
        let rule = self.rules.get_mut(at)?.take()?;
        let table = &mut self.tables[usize::from(self.places[at])];
        let digest = table.mask.digest_of_rule(&rule);
        let was = table.bucket(digest);
        let head = self.blocks.remove(was.head, id.0);
        let priority = match head {
            NONE => u32::MAX,
            _ => (self.blocks.first_order(head) >> 32) as u32,
        };
        table.set(Slot { digest, head, priority, rules: was.rules - 1 });
        self.count -= 1;
        self.generation += 1;
        Some(rule)
    }

    fn rule(&self, id: RuleId) -> Option<&Rule<A>> {
        self.rules.get(id.0 as usize)?.as_ref()
    }

    fn classify(&self, key: &Key<A>) -> Option<RuleId> {
        self.search::<false>(key)
    }

    fn classify_batch(&self, keys: &[Key<A>], found: &mut [Option<RuleId>]) {
        assert_eq!(keys.len(), found.len(), "a place for each answer");
        self.instructions.search_all(self, keys, found);
    }

    fn len(&self) -> usize {
        self.count
    }

    fn bytes(&self) -> usize {
        self.blocks.bytes()
            + self.tables.iter().map(Table::bytes).sum::<usize>()
            + size_of_val(&self.rules[..])
            + self.places.len()
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn empty(&self) -> Box<dyn Classifier<A> + Send> {
        Box::new(ClassifierTuples::new(self.rules_max))
    }

    fn settle(&mut self) {
        self.replan();
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::rule;
    use super::*;
    use crate::classifier::Action;
    use alloc::string::String;
    use core::fmt::Write;
    use nilometer_stat::Rng;

    /// Bits of source and destination, ports, and how many rules, of each table.
    fn tables(classifier: &ClassifierTuples<u32>) -> String {
        let mut text = String::new();
        for table in &classifier.tables {
            let Tuple { source, destination, source_port, destination_port } = table.tuple;
            let port = |is_in: bool| if is_in { "p" } else { "" };
            let (sp, dp) = (port(source_port), port(destination_port));
            write!(text, "{source}{sp},{destination}{dp}:{} ", table.rules).expect("text");
        }
        text
    }

    /// Recorded, not derived: rules that come one by one open tables, a plan has others, and rules that
    /// come after it go where there is room.
    #[test]
    fn the_tables_of_a_thousand_rules() {
        let mut rng = Rng::new(67, 1, 0);
        let mut classifier = ClassifierTuples::<u32>::new(6_000);
        let mut reported = alloc::vec![];
        for id in 0..3_000 {
            // Every other rule belongs to a crowd that no prefix distinguishes.
            let crowd = if id % 2 == 0 { rule(&mut rng) } else { Rule::any(1, Action::Permit) };
            let ports = rule(&mut rng).destination_ports;
            let next = Rule { destination_ports: ports, ..crowd };
            classifier.insert(RuleId(id), next).expect("room");
            if id == 999 || id == 2_999 {
                reported.push(tables(&classifier));
            }
        }
        classifier.replan();
        reported.push(tables(&classifier));
        for id in 0..1_000 {
            if id % 3 == 0 {
                classifier.remove(RuleId(id)).expect("it is there");
            }
            classifier.insert(RuleId(3_000 + id), rule(&mut rng)).expect("room");
        }
        reported.push(tables(&classifier));
        assert!(classifier.balances());
        let expected = [
            "12,0:193 0,0:392 8,0:172 0,24:30 0,0p:171 0,8:34 0p,0:8 ",
            "12,0:245 0,0:1093 8,0:244 0,24:362 0,0p:712 0,8:243 0p,0:101 ",
            "0,0p:690 0,0:1063 8,8:907 0,8:170 8,0:164 0p,0:6 ",
            "0,0p:896 0,0:961 8,8:1168 0,8:248 8,0:254 0p,0:139 ",
        ];
        assert_eq!(reported, expected);
    }
}
