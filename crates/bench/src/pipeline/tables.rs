//! Routes and filters of the pipeline's bench: read from files, or drawn from a seed.
//!
//! Drawn prefixes have the lengths of a routing table of the Internet in `LENGTHS`, and half of them
//! lie in the /12 of one that was drawn before, as routes of one network do. Drawn filters are those of
//! an access list: some hundred sources, destinations from the routes, ports open, well known or a range,
//! and a last one that matches everything.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use nilometer_router::classifier::classbench;
use nilometer_router::next_hop::{Hop, Member, NextHops};
use nilometer_router::{
    Action, Lookups, NextHop, Octet, Ports, Prefix, Rule, ServingFib, Snapshot,
};

use super::super::addresses::{Drawn, SplitMix64};
use super::super::prefixes::read_prefixes;
use super::Options;
use nilometer_files::document::bounded::{LINES_BYTES_MAX, read_text};
use nilometer_linux::pages::ask_for_large_pages;

/// Next hops, spread over the ports.
pub const NEXT_HOPS: u16 = 64;
/// Prefixes that are drawn where there is no file.
const DRAWN_PREFIXES: usize = 900_000;
/// Filters that are drawn where there is no file.
const DRAWN_RULES: u32 = 1_000;
/// Most filters of a set.
const RULES_MAX: usize = 1 << 20;
/// Where the folder of data has filters.
const RULES_OF_DATA: &str = "classifier/neurocuts/classbench/acl1_1k";
/// Of 10,000 prefixes how many have a length.
const LENGTHS: [(u32, u64); 17] = [
    (10, 1),
    (11, 1),
    (12, 3),
    (13, 6),
    (14, 13),
    (15, 23),
    (16, 150),
    (17, 90),
    (18, 150),
    (19, 280),
    (20, 470),
    (21, 560),
    (22, 1_200),
    (23, 1_070),
    (24, 5_973),
    (28, 1),
    (32, 9),
];
/// What distinguishes the streams of a seed.
const PREFIXES_PURPOSE: u64 = 0x7072_6566;
const RULES_PURPOSE: u64 = 0x7275_6c65;

/// The stream of `seed` for one purpose.
pub(super) fn stream(seed: u64, purpose: u64) -> SplitMix64 {
    SplitMix64::new(SplitMix64::new(seed ^ purpose << 32).output())
}

/// A number below `count`.
pub(super) fn below(stream: &mut SplitMix64, count: usize) -> usize {
    ((u128::from(stream.output()) * count as u128) >> 64) as usize
}

/// The port of a next hop and the address of its gateway.
pub fn gateway(number: u16, ports: usize) -> (u16, Ipv4Addr) {
    let ports = ports as u16;
    (number % ports, Ipv4Addr::new(198, 18, (number % ports) as u8, 2 + (number / ports) as u8))
}

/// A table with its next hops.
pub struct Routes {
    /// Where it is from.
    pub from: String,
    /// Its prefixes, in their order.
    pub prefixes: Vec<Prefix<u32>>,
    /// What the next hops are.
    pub hops: Arc<Snapshot>,
    /// Their numbers: the n-th prefix has number n mod 64 of these.
    pub numbers: Vec<NextHop>,
    fib: Box<dyn ServingFib<u32>>,
}

impl Routes {
    /// The table of a file, or a drawn one.
    ///
    /// # Errors
    /// When the file cannot be read, a line is not a prefix, there is none of IPv4, or the engine has
    /// no room for them.
    pub fn find(options: &Options) -> Result<Routes> {
        let Options { ports, engine, seed, .. } = *options;
        let (from, prefixes) = match &options.table {
            Some(path) => (path.display().to_string(), read_prefixes::<u32>(path)?.prefixes),
            None => ("drawn".to_owned(), drawn_prefixes(&mut stream(seed, PREFIXES_PURPOSE))),
        };
        let mut hops = NextHops::new(usize::from(NEXT_HOPS) + 1, 1 << 12);
        let mut numbers = Vec::new();
        for number in 0..NEXT_HOPS {
            let (port, gateway) = gateway(number, ports);
            let hop = Hop::Via { port, gateway: Some(gateway.into()) };
            numbers.push(hops.define(&[Member { hop, weight: 1 }]).context("next hops")?);
        }
        let mut fib = engine.table::<u32>(prefixes.len())?;
        let numbered = prefixes.iter().copied().zip(numbers.iter().copied().cycle());
        fib.load(&mut numbered.clone())?;
        ask_for_large_pages(fib.span());
        Ok(Routes { from, prefixes, hops: hops.snapshot(), numbers, fib })
    }

    /// Adds a reader.
    ///
    /// # Errors
    /// When there are too many.
    pub fn reader(&self) -> Result<Box<dyn Lookups<u32>>> {
        self.fib.reader().ok_or_else(|| anyhow!("the table has no place for one more reader"))
    }
}

/// Different prefixes of an Internet's lengths.
fn drawn_prefixes(stream: &mut SplitMix64) -> Vec<Prefix<u32>> {
    let total: u64 = LENGTHS.iter().map(|(_, share)| share).sum();
    let mut seen = HashSet::with_capacity(DRAWN_PREFIXES);
    let mut prefixes: Vec<Prefix<u32>> = Vec::with_capacity(DRAWN_PREFIXES);
    while prefixes.len() < DRAWN_PREFIXES {
        let mut share = below(stream, total as usize) as u64;
        let is_it = |(_, count): &&(u32, u64)| {
            let is_it = share < *count;
            share = share.saturating_sub(*count);
            is_it
        };
        let length = LENGTHS.iter().find(is_it).map_or(24, |(length, _)| *length);
        let bits = stream.output();
        let mut address = (bits >> 32) as u32;
        if bits & 1 == 1 && !prefixes.is_empty() {
            let near = prefixes[below(stream, prefixes.len())].address();
            address = near & 0xfff0_0000 | address & 0x000f_ffff;
        }
        // Unicast, and neither network 0 nor 127.
        let is_unicast = (1..224).contains(&(address >> 24)) && address >> 24 != 127;
        let address = address & (u32::MAX << (32 - length));
        if let Some(prefix) = Prefix::new(address, length).filter(|_| is_unicast)
            && seen.insert(prefix)
        {
            prefixes.push(prefix);
        }
    }
    prefixes
}

/// Filters.
pub struct Rules {
    /// Where they are from.
    pub from: String,
    /// They themselves, in their order.
    pub rules: Vec<Rule<u32>>,
}

impl Rules {
    /// The filters of a file; else of the folder that `NILOMETER_DATA` names; else drawn ones.
    ///
    /// # Errors
    /// When a file cannot be read, a line is malformed, or there is nothing in it.
    pub fn find(file: Option<&Path>, seed: u64) -> Result<Rules> {
        let data = || std::env::var_os("NILOMETER_DATA").map(PathBuf::from);
        let kept = || data().map(|folder| folder.join(RULES_OF_DATA)).filter(|path| path.exists());
        let Some(path) = file.map(Path::to_owned).or_else(kept) else {
            let rules = drawn_rules(&mut stream(seed, RULES_PURPOSE));
            return Ok(Rules { from: "drawn".to_owned(), rules });
        };
        let shown = path.display();
        let text = read_text(&path, LINES_BYTES_MAX)?;
        let rules = classbench::read_rules(&text).map_err(|why| anyhow!("{shown}: {why}"))?;
        match rules.len() {
            0 => bail!("{shown}: empty; give a file in ClassBench's format"),
            1..=RULES_MAX => Ok(Rules { from: shown.to_string(), rules }),
            _ => bail!("{shown}: more than {RULES_MAX} filters; cut it"),
        }
    }
}

/// An access list.
fn drawn_rules(stream: &mut SplitMix64) -> Vec<Rule<u32>> {
    const WELL_KNOWN: [u16; 8] = [22, 25, 53, 80, 123, 443, 993, 3_306];
    let network = |stream: &mut SplitMix64, length: u32| {
        let address = u32::any(stream) & (u32::MAX << (32 - length));
        Prefix::new(address, length).expect("the bits behind are cleared")
    };
    let sources: Vec<_> = (0..100)
        .map(|_| {
            let length = [16, 20, 24, 24, 32][below(stream, 5)];
            network(stream, length)
        })
        .collect();
    let mut rules = Vec::new();
    for priority in 0..DRAWN_RULES - 1 {
        let mut rule = Rule::any(priority, Action::Permit);
        if below(stream, 5) > 0 {
            rule.source = sources[below(stream, sources.len())];
        }
        let length = [16, 24, 24, 28, 32, 32][below(stream, 6)];
        rule.destination = network(stream, length);
        rule.destination_ports = match below(stream, 4) {
            0 => Ports::ANY,
            1 => Ports::new(1_024, u16::MAX).expect("in order"),
            _ => Ports::exact(WELL_KNOWN[below(stream, WELL_KNOWN.len())]),
        };
        rule.protocol =
            [Octet::exact(6), Octet::exact(6), Octet::exact(17), Octet::ANY][below(stream, 4)];
        rules.push(rule);
    }
    rules.push(Rule::any(DRAWN_RULES - 1, Action::Permit));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_tables_are_of_their_seed_and_size() {
        let prefixes = |seed| drawn_prefixes(&mut stream(seed, PREFIXES_PURPOSE));
        let one = prefixes(1);
        assert_eq!(one, prefixes(1));
        assert_ne!(one[..100], prefixes(2)[..100]);
        let different: HashSet<_> = one.iter().collect();
        assert_eq!((one.len(), different.len()), (DRAWN_PREFIXES, DRAWN_PREFIXES));
        let long = one.iter().filter(|prefix| prefix.length() == 24).count();
        assert!(long.abs_diff(DRAWN_PREFIXES * 597 / 1_000) < DRAWN_PREFIXES / 50, "{long}");
        let rules = drawn_rules(&mut stream(1, RULES_PURPOSE));
        assert_eq!(rules.len(), DRAWN_RULES as usize);
    }
}
