//! Which tuples a set of rules is best gathered by: few, so that a search visits few tables.
//!
//! The plan is greedy: it takes the tuple under which most of the remaining rules find room, with
//! [`BUCKET_RULES`] to a bucket, then repeats this for the rest. A further table must take enough
//! rules off the last bucket to be worth one more lookup for every header.

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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::classifier::{Action, Ports};
    use crate::prefix::{Address, Prefix};
    use alloc::collections::BTreeMap;
    use nilometer_stat::Rng;

    /// A rule as lists have them: prefixes of all lengths under few networks, ports exact, of a range or any.
    pub fn rule(rng: &mut Rng) -> Rule<u32> {
        let mut prefix = || {
            let length = [0, 7, 8, 12, 16, 19, 24, 28, 32][rng.below(9) as usize];
            let address = (rng.below(6) << 24 | rng.below(3) << 16 | rng.below(40)) as u32;
            Prefix::new(address << 2, length).expect("at most 32")
        };
        let (source, destination) = (prefix(), prefix());
        let mut ports = || match rng.below(3) {
            0 => Ports::ANY,
            1 => Ports::exact(rng.below(30) as u16),
            _ => Ports::new(0, 1_023).expect("in order"),
        };
        let (source_ports, destination_ports) = (ports(), ports());
        let any = Rule::any(9, Action::Permit);
        Rule { source, destination, source_ports, destination_ports, ..any }
    }

    /// Which rules find room under a tuple, in buckets by the bits themselves.
    fn taken(tuple: Tuple, rules: &[Rule<u32>]) -> Vec<bool> {
        let mut buckets = BTreeMap::new();
        let takes = |rule: &Rule<u32>| {
            let (source, destination) = (rule.source, rule.destination);
            if source.length() < tuple.source.into()
                || destination.length() < tuple.destination.into()
                || tuple.source_port && !rule.source_ports.is_exact()
                || tuple.destination_port && !rule.destination_ports.is_exact()
            {
                return false;
            }
            let port = |is_in: bool, ports: Ports| is_in.then_some(ports.first());
            let bucket = (
                source.address().truncated(tuple.source.into()),
                destination.address().truncated(tuple.destination.into()),
                port(tuple.source_port, rule.source_ports),
                port(tuple.destination_port, rule.destination_ports),
            );
            let count = buckets.entry(bucket).or_insert(0);
            *count += 1;
            *count <= 32
        };
        rules.iter().map(takes).collect()
    }

    fn planned(rules: &[Rule<u32>]) -> Vec<Tuple> {
        let mut left = rules.to_vec();
        left.sort_by_key(|rule| 64 - rule.source.length() - rule.destination.length());
        let (mut tuples, lengths) = (Vec::new(), [0, 8, 12, 16, 20, 24, 28, 32]);
        while left.len() > 64 {
            let mut found = Vec::new();
            for number in 0..8 * 8 * 4 {
                let (source, destination) = (lengths[number % 8], lengths[number / 8 % 8]);
                let (source_port, destination_port) = (number / 64 == 1, number / 128 == 1);
                let both = number / 64 == 3;
                let (source_port, destination_port) = (source_port | both, destination_port | both);
                let tuple = Tuple { source, destination, source_port, destination_port };
                if (source <= 16 && destination <= 16) || !(source_port || destination_port) {
                    let count = taken(tuple, &left).into_iter().filter(|is| *is).count();
                    let ports = u32::from(source_port) + u32::from(destination_port);
                    let bits = u32::from(source) + u32::from(destination) + 16 * ports;
                    found.push((count, bits, tuple));
                }
            }
            // Ties are broken by the greater tuple, arbitrarily.
            let (count, bits, tuple) = found.into_iter().max().expect("tuples");
            if count < 64 || bits == 0 {
                break;
            }
            let mut is_taken = taken(tuple, &left).into_iter();
            left.retain(|_| is_taken.next() == Some(false));
            tuples.push(tuple);
        }
        tuples.push(Tuple::default());
        tuples
    }

    #[test]
    fn the_tuple_that_takes_most_comes_first() {
        let mut numbers = Vec::new();
        for (seed, count) in [(1, 64), (2, 65), (3, 200), (4, 900), (5, 2_500)] {
            let mut rng = Rng::new(61, 1, seed);
            let rules: Vec<Rule<u32>> = (0..count).map(|_| rule(&mut rng)).collect();
            let found = plan(&rules.iter().collect::<Vec<_>>());
            assert_eq!(found, planned(&rules), "{count} rules");
            numbers.push(found.len());
        }
        assert!(numbers[0] == 1 && numbers[4] > 6, "{numbers:?}");
    }

    #[test]
    fn a_rule_alone_has_the_longest_tuple_of_its_lengths_or_of_half_of_them() {
        let prefix = |length| Prefix::new(0, length).expect("at most 32");
        let rule = Rule {
            source: prefix(27),
            destination: prefix(8),
            source_ports: Ports::exact(5),
            ..Rule::<u32>::any(1, Action::Permit)
        };
        let (source_port, destination_port) = (true, false);
        let tuple = |source, destination, source_port| Tuple {
            source,
            destination,
            source_port,
            destination_port,
        };
        assert_eq!(tuple_for(&rule, false), tuple(24, 8, source_port));
        assert_eq!(tuple_for(&rule, true), tuple(12, 0, false));
        let whole = Rule { source: prefix(32), destination: prefix(31), ..rule };
        assert_eq!(tuple_for(&whole, false), tuple(32, 28, true));
        assert_eq!(tuple_for(&whole, true), tuple(16, 12, false));
    }
}
