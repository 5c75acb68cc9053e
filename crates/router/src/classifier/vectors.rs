//! Bit vectors of a set of rules: for each part of a header, which rules its value leaves standing.
//!
//! A header is cut into parts of at most 16 bits: the halves of the addresses, the ports, protocol and
//! flags. A table by value says of which *class* a part is, and each
//! class has a vector of one bit for each rule: whether the rule accepts values of this class there. What
//! a part knows of, say, prefixes is a range of values, so there are hardly more classes than rules. The
//! rules that match a header are the conjunction of its parts' vectors, and with the bits in the order of
//! the rules the first one of the conjunction is the answer (Lakshman and Stiliadis 1998; the tables by
//! direct index are the first phase of Gupta and McKeown 1999).
//!
//! A search has no chains, no hashing and hardly a branch: eight loads that wait for nobody, then a few
//! words of each vector, [`RANK_BITS`] rules at a time until one stands. Memory is rules times classes,
//! which is why this is for sets of some thousand rules, and why they are not changed in place: a rule that
//! has gone has its bit taken out of one more vector, and one that comes waits elsewhere for the next
//! building ([`super::ClassifierVectors`]).

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::kernel::Classified;
use super::rule::{Octet, Rule};
use crate::header::Key;

/// Rules that are looked at together.
pub(super) const RANK_BITS: usize = 256;
/// Their words.
const WORDS: usize = RANK_BITS / 64;
/// Bits of a part.
const PART_BITS: u32 = 16;
/// Parts of two IPv6 addresses, ports, protocol and flags.
const PARTS_MAX: usize = 20;

/// As many bits as are looked at together.
type Rank = [u64; WORDS];

/// Values of a part that stand together.
const BLOCK: usize = 64;

/// Of which class each value of a part is, in two steps: most blocks of values are of one class and
/// share one block of the table, which therefore stays in the cache.
#[derive(Clone, Debug)]
struct Part {
    /// By block of values, the block of `classes`.
    blocks: Vec<u16>,
    /// Blocks of classes.
    classes: Vec<[u16; BLOCK]>,
    /// The number of the first class among the classes of all parts.
    first: usize,
}

impl Part {
    /// The table of classes by value, of which there are whole blocks.
    fn new(by_value: &[u16], first: usize) -> Part {
        let mut known: BTreeMap<[u16; BLOCK], u16> = BTreeMap::new();
        let mut part = Part { blocks: Vec::new(), classes: Vec::new(), first };
        let (blocks, _) = by_value.as_chunks::<BLOCK>();
        for block in blocks {
            let number = *known.entry(*block).or_insert_with(|| {
                part.classes.push(*block);
                (part.classes.len() - 1) as u16
            });
            part.blocks.push(number);
        }
        part
    }

    /// The class of `value`, which is below the number of values.
    #[inline(always)]
    fn class(&self, value: u32) -> usize {
        let value = value as usize;
        let block = self.blocks[value / BLOCK];
        self.first + usize::from(self.classes[usize::from(block)][value % BLOCK])
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.blocks[..]) + size_of_val(&self.classes[..])
    }
}

/// The vectors of rules in their order.
#[derive(Clone, Debug)]
pub(super) struct Vectors {
    parts: Vec<Part>,
    /// Of all classes, one behind the other, `ranks` each.
    vectors: Vec<Rank>,
    classes: usize,
    /// Rules that have not gone.
    alive: Vec<Rank>,
}

/// Where the values of a part's rules lie.
enum Accepted {
    Range(RangeInclusive<u32>),
    Octet(Octet),
}

impl Accepted {
    fn contains(&self, value: u32) -> bool {
        match self {
            Accepted::Range(range) => range.contains(&value),
            Accepted::Octet(octet) => octet.contains(value as u8),
        }
    }
}

impl Vectors {
    /// The vectors of `rules`, the first of which goes first.
    pub fn new<A: Classified>(rules: &[Rule<A>]) -> Vectors {
        let ranks = rules.len().div_ceil(RANK_BITS);
        let mut alive = vec![[0; WORDS]; ranks];
        for place in 0..rules.len() {
            set(&mut alive, place);
        }
        let mut built = Vectors { parts: Vec::new(), vectors: Vec::new(), classes: 0, alive };
        for part in 0..parts::<A>() {
            let accepted: Vec<Accepted> = rules.iter().map(|rule| accepted(rule, part)).collect();
            let part = built.part(&accepted, values::<A>(part));
            built.parts.push(part);
        }
        built
    }

    /// Finds the classes of a part; vectors of classes that are new are added.
    fn part(&mut self, accepted: &[Accepted], values: u32) -> Part {
        let mut starts = vec![false; values as usize];
        starts[0] = true;
        for accepted in accepted {
            match accepted {
                Accepted::Range(range) => {
                    starts[*range.start() as usize] = true;
                    if let Some(start) = starts.get_mut(*range.end() as usize + 1) {
                        *start = true;
                    }
                }
                Accepted::Octet(_) => starts.fill(true),
            }
        }
        let mut known: BTreeMap<Vec<Rank>, u16> = BTreeMap::new();
        let first = self.classes;
        let mut by_value = Vec::with_capacity(values as usize);
        let mut class = 0;
        for value in 0..values {
            if starts[value as usize] {
                let mut vector = vec![[0; WORDS]; self.alive.len()];
                for (place, accepted) in accepted.iter().enumerate() {
                    if accepted.contains(value) {
                        set(&mut vector, place);
                    }
                }
                let Vectors { vectors, classes, .. } = self;
                class = *known.entry(vector).or_insert_with_key(|vector| {
                    vectors.extend_from_slice(vector);
                    *classes += 1;
                    (*classes - 1 - first) as u16
                });
            }
            by_value.push(class);
        }
        Part::new(&by_value, first)
    }

    /// The place of the first rule that matches.
    #[inline(always)]
    pub fn search<A: Classified>(&self, key: &Key<A>) -> Option<usize> {
        let values = values_of(key);
        let mut classes = [0usize; PARTS_MAX];
        let classes = &mut classes[..parts::<A>()];
        for ((class, part), value) in classes.iter_mut().zip(&self.parts).zip(values) {
            *class = part.class(value) * self.alive.len();
        }
        for (rank, alive) in self.alive.iter().enumerate() {
            let mut standing = *alive;
            for class in &*classes {
                let vector = &self.vectors[class + rank];
                for (standing, word) in standing.iter_mut().zip(vector) {
                    *standing &= word;
                }
            }
            if standing != [0; WORDS] {
                return Some(rank * RANK_BITS + first(&standing));
            }
        }
        None
    }

    /// The rule at `place` has gone, or has come again.
    pub fn set_alive(&mut self, place: usize, is_alive: bool) {
        let word = &mut self.alive[place / RANK_BITS][place % RANK_BITS / 64];
        let bit = 1 << (place % 64);
        *word = if is_alive { *word | bit } else { *word & !bit };
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let classes = self.parts.iter().map(Part::bytes).sum::<usize>();
        classes + size_of_val(&self.vectors[..]) + size_of_val(&self.alive[..])
    }
}

fn set(vector: &mut [Rank], place: usize) {
    vector[place / RANK_BITS][place % RANK_BITS / 64] |= 1 << (place % 64);
}

/// The first bit that is set; there is one.
#[inline(always)]
fn first(rank: &Rank) -> usize {
    let word = rank.iter().position(|word| *word != 0).unwrap_or(0);
    word * 64 + rank[word].trailing_zeros() as usize
}

/// Parts of an address.
const fn halves<A: Classified>() -> usize {
    (A::BITS / PART_BITS) as usize
}

/// Parts: those of source and destination, the ports, protocol and flags.
const fn parts<A: Classified>() -> usize {
    2 * halves::<A>() + 4
}

/// How many values a part can have.
const fn values<A: Classified>(part: usize) -> u32 {
    if part < parts::<A>() - 2 { 1 << PART_BITS } else { 1 << u8::BITS }
}

/// What a header has at each part.
#[inline(always)]
fn values_of<A: Classified>(key: &Key<A>) -> [u32; PARTS_MAX] {
    let mut values = [0; PARTS_MAX];
    for half in 0..halves::<A>() {
        let at = half as u32 * PART_BITS;
        values[half] = key.source.bits(at, PART_BITS);
        values[halves::<A>() + half] = key.destination.bits(at, PART_BITS);
    }
    let (ports, octets) = (2 * halves::<A>(), 2 * halves::<A>() + 2);
    values[ports] = u32::from(key.source_port);
    values[ports + 1] = u32::from(key.destination_port);
    values[octets] = u32::from(key.protocol);
    values[octets + 1] = u32::from(key.flags);
    values
}

/// What a rule accepts at a part.
fn accepted<A: Classified>(rule: &Rule<A>, part: usize) -> Accepted {
    let halves = halves::<A>();
    let prefix = |address: A, length: u32, half: usize| {
        let at = half as u32 * PART_BITS;
        let open = PART_BITS - length.saturating_sub(at).min(PART_BITS);
        let low = address.bits(at, PART_BITS);
        Accepted::Range(low..=low | ((1 << open) - 1))
    };
    match part {
        _ if part < halves => prefix(rule.source.address(), rule.source.length(), part),
        _ if part < 2 * halves => {
            prefix(rule.destination.address(), rule.destination.length(), part - halves)
        }
        _ => match part - 2 * halves {
            0 => ports(rule.source_ports),
            1 => ports(rule.destination_ports),
            2 => Accepted::Octet(rule.protocol),
            _ => Accepted::Octet(rule.flags),
        },
    }
}

fn ports(ports: super::rule::Ports) -> Accepted {
    Accepted::Range(u32::from(ports.first())..=u32::from(ports.last()))
}
