//! Which tuples a set of rules is best gathered by: few, so that a search asks few tables.
//!
//! Greedily: the tuple under which most of the rules that are left find room, where a bucket has room
//! for [`BUCKET_RULES`], then the same for the rest. What a further table would take off the last
//! bucket must be worth the question that every header then puts to it.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::kernel::Classified;
use super::rule::Rule;
use super::table::{Mask, Tuple};

/// Rules that a bucket takes before another table is preferred.
pub(super) const BUCKET_RULES: u32 = 32;
/// The most tables.
pub(super) const TABLES_MAX: usize = 24;
/// A table for fewer rules costs more than it saves.
const WORTH_RULES: usize = 64;
/// Up to this length of either prefix, ports too may choose the bucket.
const SHORT_BITS: u8 = 16;

/// The tuples for `rules`, the one that takes most first, the one that takes all last.
pub(super) fn plan<A: Classified>(rules: &[&Rule<A>]) -> Vec<Tuple> {
    let mut left: Vec<&Rule<A>> = rules.to_vec();
    left.sort_by_key(|rule| Reverse(rule.source.length() + rule.destination.length()));
    let mut counts = Counts::new(rules.len());
    let mut tuples = Vec::new();
    while left.len() > WORTH_RULES && tuples.len() < TABLES_MAX - 1 {
        let mut best = (WORTH_RULES, 0, Tuple::default());
        for tuple in candidates::<A>() {
            best = best.max((counts.taken(&tuple, &left).len(), tuple.bits(), tuple));
        }
        let (_, bits, tuple) = best;
        if bits == 0 {
            break;
        }
        tuples.push(tuple);
        let mut taken = counts.taken(&tuple, &left).into_iter().peekable();
        let mut place = 0;
        left.retain(|_| {
            let is_taken = taken.next_if_eq(&place).is_some();
            place += 1;
            !is_taken
        });
    }
    tuples.push(Tuple::default());
    tuples
}

fn candidates<A: Classified>() -> impl Iterator<Item = Tuple> {
    let lengths = || A::LENGTHS.iter().copied();
    let pairs = move || lengths().flat_map(move |source| lengths().map(move |to| (source, to)));
    let ports = [(false, false), (false, true), (true, false), (true, true)];
    ports.into_iter().flat_map(move |(source_port, destination_port)| {
        pairs()
            .filter(move |(source, destination)| {
                let is_short = *source <= SHORT_BITS && *destination <= SHORT_BITS;
                is_short || !(source_port || destination_port)
            })
            .map(move |(source, destination)| Tuple {
                source,
                destination,
                source_port,
                destination_port,
            })
    })
}

/// The longest tuple, of the lengths that are planned with, that takes the rule; `halved` looks for
/// half the lengths, and for no port.
pub(super) fn tuple_for<A: Classified>(rule: &Rule<A>, halved: bool) -> Tuple {
    let part = if halved { 2 } else { 1 };
    let length = |bits: u32| {
        let fitting = A::LENGTHS.iter().rev().find(|length| u32::from(**length) <= bits / part);
        fitting.copied().unwrap_or(0)
    };
    Tuple {
        source: length(rule.source.length()),
        destination: length(rule.destination.length()),
        source_port: !halved && rule.source_ports.is_exact(),
        destination_port: !halved && rule.destination_ports.is_exact(),
    }
}

/// How many rules each bucket would have; buckets that share a count are rare, and only make the plan
/// a little worse.
struct Counts(Vec<u32>);

impl Counts {
    fn new(rules: usize) -> Counts {
        Counts(vec![0; (rules * 4).next_power_of_two()])
    }

    /// The places of those rules that would find room in a table of this tuple.
    fn taken<A: Classified>(&mut self, tuple: &Tuple, rules: &[&Rule<A>]) -> Vec<usize> {
        self.0.fill(0);
        let mask = Mask::new(tuple);
        let last = self.0.len() - 1;
        let mut taken = Vec::new();
        for (place, rule) in rules.iter().enumerate() {
            if !tuple.takes(rule) {
                continue;
            }
            let count = &mut self.0[mask.digest_of_rule(rule) as usize & last];
            if *count < BUCKET_RULES {
                *count += 1;
                taken.push(place);
            }
        }
        taken
    }
}
