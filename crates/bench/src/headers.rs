//! Headers that are matched against filters: those of a trace, or drawn from filters and at random.
//!
//! Drawn headers come from splitmix64, so that any language can draw them again. Three outputs make
//! one: the first chooses, with its two lowest bits zero chance, else the filter whose place is the
//! output taken as a fraction of 1 times their number. By chance, the second output is source (high
//! half) and destination, the third from the top source port, destination port, flags, and two bits that
//! choose a protocol out of TCP, UDP, ICMP and GRE. From a filter, the second output fills the open bits
//! of source and destination; the third places the ports in their ranges (16 bits each, as fractions) and
//! fills, with its lower 16 bits, the open bits of protocol (the higher octet) and flags. A header that
//! was drawn before is left out, until there are enough.

use std::collections::HashSet;

use nilometer_router::{Key, Ports, Rule};

use super::addresses::{Drawn, SplitMix64};

/// Different headers that are drawn.
pub const HEADERS: usize = 1 << 20;
/// Seed of the headers.
const SEED: u64 = 4;
/// Protocols of headers by chance.
const PROTOCOLS: [u8; 4] = [6, 17, 1, 47];

/// [`HEADERS`] different headers.
pub fn drawn(rules: &[Rule<u32>]) -> Vec<Key<u32>> {
    let mut stream = SplitMix64::new(SEED);
    let mut seen = HashSet::with_capacity(HEADERS);
    let mut headers = Vec::with_capacity(HEADERS);
    while headers.len() < HEADERS {
        let header = one(&mut stream, rules);
        if seen.insert(header) {
            headers.push(header);
        }
    }
    headers
}

/// The next header of a stream; `rules` is not empty.
pub fn one(stream: &mut SplitMix64, rules: &[Rule<u32>]) -> Key<u32> {
    let [choice, addresses, rest] = std::array::from_fn(|_| stream.output());
    match choice & 3 {
        0 => by_chance(addresses, rest),
        _ => from_rule(&rules[fraction(choice, rules.len())], addresses, rest),
    }
}

/// How many of the headers differ.
pub fn distinct(headers: &[Key<u32>]) -> usize {
    headers.iter().collect::<HashSet<_>>().len()
}

fn fraction(output: u64, count: usize) -> usize {
    ((u128::from(output) * count as u128) >> 64) as usize
}

fn by_chance(addresses: u64, rest: u64) -> Key<u32> {
    Key {
        source: (addresses >> 32) as u32,
        destination: addresses as u32,
        source_port: (rest >> 48) as u16,
        destination_port: (rest >> 32) as u16,
        protocol: PROTOCOLS[(rest >> 22) as usize & 3],
        flags: (rest >> 24) as u8,
    }
}

fn from_rule(rule: &Rule<u32>, addresses: u64, rest: u64) -> Key<u32> {
    let port = |ports: Ports, part: u64| {
        let count = u64::from(ports.last() - ports.first()) + 1;
        ports.first() + (((part & 0xffff) * count) >> 16) as u16
    };
    Key {
        source: u32::within(rule.source, (addresses >> 32) as u32),
        destination: u32::within(rule.destination, addresses as u32),
        source_port: port(rule.source_ports, rest >> 48),
        destination_port: port(rule.destination_ports, rest >> 32),
        protocol: rule.protocol.value() | (rest >> 8) as u8 & !rule.protocol.mask(),
        flags: rule.flags.value() | rest as u8 & !rule.flags.mask(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_router::classifier::classbench::read_rules;

    #[test]
    fn a_header_from_a_rule_matches_it() {
        let text = "@10.0.0.0/8 20.1.0.0/16 7 : 9 0 : 65535 0x06/0xFF 0x0200/0x1200\n";
        let rules = read_rules(text).expect("a filter");
        let mut stream = SplitMix64::new(9);
        for _ in 0..10_000 {
            let [addresses, rest] = std::array::from_fn(|_| stream.output());
            assert!(rules[0].matches(&from_rule(&rules[0], addresses, rest)));
        }
        let headers = drawn(&rules);
        assert_eq!((headers.len(), distinct(&headers)), (HEADERS, HEADERS));
        let matching = headers.iter().filter(|header| rules[0].matches(header)).count();
        assert!(matching.abs_diff(HEADERS / 4 * 3) < HEADERS / 100, "{matching}");
    }
}
