//! Bit vectors of a set of rules: for each part of a header, which rules its value leaves standing.
//!
//! A header is cut into parts of 16 bits: the halves of the addresses, the ports, protocol and flags
//! together. A table indexed by value gives the *class* of a part, and each class has a vector of one bit
//! for each rule: whether the rule accepts values of this class there. A prefix, like a range of ports, is
//! a range of values of a part, so there are hardly more classes than rules. The rules that match a header
//! are the conjunction of its parts' vectors, and with the bits in the order of the rules the first one of
//! the conjunction is the answer (Lakshman and Stiliadis 1998; the tables by direct index are the first
//! phase of Gupta and McKeown 1999).
//!
//! Most words of most vectors are empty, because a network's rules are few. So each vector has a *summary*
//! of one bit for each of its words, whether there is anything in it (Baboescu and Varghese 2001: aggregated
//! bit vectors). The conjunction of the summaries names the words in which a rule may stand, and leaves
//! one or two of them where there were sixteen. Summaries stand together and stay in the first cache.
//!
//! A search has no chains, no hashing and hardly a branch: seven independent loads, seven
//! summaries, and a word of each vector until a rule stands. Where every network has rules in most words,
//! as in some firewalls, summaries spare nothing and cost a little. Memory is rules times classes,
//! which is why this is for sets of some thousand rules, and why they are not changed in place: a rule that
//! has gone has its bit taken out of one more vector, and one that comes waits elsewhere for the next
//! building ([`super::ClassifierVectors`]).

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use nilometer_wire::prefetch::prefetch;

use super::kernel::Classified;
use super::rule::{Octet, Ports, Rule};
use crate::header::Key;

/// The most rules: a summary has a bit for each word of a vector.
pub(super) const RULES_MAX: usize = WORD_BITS * Summary::BITS as usize;
/// Rules of a word.
pub(super) const WORD_BITS: usize = u64::BITS as usize;
/// Bits of a part.
const PART_BITS: u32 = 16;
/// Parts of two IPv6 addresses, ports, and protocol with flags.
pub(super) const PARTS_MAX: usize = 19;

/// Which words of a vector are not empty.
type Summary = u32;

/// Values of a part that stand together.
pub(super) const BLOCK: usize = 64;

/// The class of each value of each part, in two steps: most blocks of values are of one class and share
/// one block of the table, which therefore stays in the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    /// By part and block of values, the block of `classes`; and one more word.
    pub blocks: Vec<u16>,
    /// Blocks of classes, counted within their part; and one more word.
    pub classes: Vec<u16>,
    /// Of each part: its first block among `blocks`, and its first class among those of all parts.
    pub firsts: [(u32, u32); PARTS_MAX],
}

impl Classes {
    /// Adds `part`: the classes by value, in whole blocks; `first` is the number of the first class among
    /// those of all parts.
    fn add(&mut self, part: usize, by_value: &[u16], first: u32) {
        let mut known: BTreeMap<[u16; BLOCK], u16> = BTreeMap::new();
        self.firsts[part] = (self.blocks.len() as u32, first);
        let (blocks, _) = by_value.as_chunks::<BLOCK>();
        for block in blocks {
            let number = *known.entry(*block).or_insert_with(|| {
                self.classes.extend_from_slice(block);
                (self.classes.len() / BLOCK - 1) as u16
            });
            self.blocks.push(number);
        }
    }

    /// Where the class of the value of a part stands; the value is below the number of values.
    #[inline(always)]
    fn place(&self, part: usize, value: u32) -> u32 {
        let (first, _) = self.firsts[part];
        let block = self.blocks[(first + value / BLOCK as u32) as usize];
        u32::from(block) * BLOCK as u32 + value % BLOCK as u32
    }

    /// The class at a place of a part, among those of all parts.
    #[inline(always)]
    fn class(&self, part: usize, place: u32) -> usize {
        let (_, first) = self.firsts[part];
        (first + u32::from(self.classes[place as usize])) as usize
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.blocks[..]) + size_of_val(&self.classes[..])
    }
}

/// The vectors of rules in their order.
#[derive(Clone, Debug)]
pub(super) struct Vectors {
    pub classes: Classes,
    /// Of all classes, one behind the other, `words` each.
    pub vectors: Vec<u64>,
    /// Of each class.
    pub summaries: Vec<Summary>,
    pub words: usize,
    /// Rules that have not gone.
    pub alive: Vec<u64>,
}

impl Vectors {
    /// The vectors of `rules`, in the order of priority; [`RULES_MAX`] at most.
    pub fn new<A: Classified>(rules: &[Rule<A>]) -> Vectors {
        let words = rules.len().div_ceil(WORD_BITS);
        let mut alive = vec![0; words];
        for place in 0..rules.len() {
            set(&mut alive, place);
        }
        let (classes, vectors, summaries) = (Classes::default(), Vec::new(), Vec::new());
        let mut built = Vectors { classes, vectors, summaries, words, alive };
        for part in 0..parts::<A>() - 1 {
            let ranges: Vec<_> = rules.iter().map(|rule| accepted(rule, part)).collect();
            let starts = ranges.iter().flat_map(|range| [*range.start(), *range.end() + 1]);
            let sorted = Sorted::new(words, 1 << PART_BITS, starts, |place, value| {
                ranges.get(place).map(|range| range.contains(&value))
            });
            built.add(part, &sorted);
        }
        built.add(parts::<A>() - 1, &Sorted::octets(words, rules));
        // Gathers read two halves of a word where they need one.
        built.classes.blocks.push(0);
        built.classes.classes.push(0);
        built
    }

    /// Adds `part`, whose values are sorted into classes.
    fn add(&mut self, part: usize, sorted: &Sorted) {
        let first = self.summaries.len() as u32;
        self.classes.add(part, &sorted.by_value, first);
        for vector in &sorted.vectors {
            self.vectors.extend_from_slice(vector);
            self.summaries.push(summary(vector));
        }
    }

    /// The places of the first matching rules for several headers at a time. All headers take each step
    /// together, and each step prefetches what the next one reads.
    #[inline(always)]
    pub fn search<A: Classified, const SOME: usize>(
        &self,
        keys: &[Key<A>; SOME],
    ) -> [Option<usize>; SOME] {
        let mut rows = [[0u32; PARTS_MAX]; SOME];
        for (rows, key) in rows.iter_mut().zip(keys) {
            let values = values_of(key).into_iter().enumerate();
            for (row, (part, value)) in rows[..parts::<A>()].iter_mut().zip(values) {
                *row = self.classes.place(part, value);
                prefetch(self.classes.classes.as_ptr().wrapping_add(*row as usize));
            }
        }
        let mut words = [Summary::MAX; SOME];
        for (rows, words) in rows.iter_mut().zip(&mut words) {
            for (part, row) in rows[..parts::<A>()].iter_mut().enumerate() {
                let class = self.classes.class(part, *row);
                *words &= self.summaries[class];
                *row = (class * self.words) as u32;
            }
            let first = words.trailing_zeros() as usize;
            for row in &rows[..parts::<A>()] {
                prefetch(self.vectors.as_ptr().wrapping_add(*row as usize + first));
            }
        }
        core::array::from_fn(|at| self.first(&rows[at][..parts::<A>()], words[at]))
    }

    /// The place of the first bit that is set in all of these `rows`, in one of these `words`.
    #[inline(always)]
    pub fn first(&self, rows: &[u32], mut words: Summary) -> Option<usize> {
        while words != 0 {
            let word = words.trailing_zeros() as usize;
            let standing = |standing, row: &u32| standing & self.vectors[*row as usize + word];
            let standing = rows.iter().fold(self.alive[word], standing);
            if standing != 0 {
                return Some(word * WORD_BITS + standing.trailing_zeros() as usize);
            }
            words &= words - 1;
        }
        None
    }

    /// The rule at `place` has gone, or has come again.
    pub fn set_alive(&mut self, place: usize, is_alive: bool) {
        let word = &mut self.alive[place / WORD_BITS];
        let bit = 1 << (place % WORD_BITS);
        *word = if is_alive { *word | bit } else { *word & !bit };
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let vectors = size_of_val(&self.vectors[..]) + size_of_val(&self.summaries[..]);
        self.classes.bytes() + vectors + size_of_val(&self.alive[..])
    }
}

/// The values of a part in classes: of each class which rules accept it, and of each value the class.
struct Sorted {
    vectors: Vec<Vec<u64>>,
    by_value: Vec<u16>,
}

impl Sorted {
    /// Sorts `values` values into classes, which change at no other values than `starts`. `accepts` says
    /// whether the rule at a place accepts a value; nothing where there is no rule.
    fn new(
        words: usize,
        values: u32,
        starts: impl Iterator<Item = u32>,
        accepts: impl Fn(usize, u32) -> Option<bool>,
    ) -> Sorted {
        let mut is_start = vec![false; values as usize + 1];
        is_start[0] = true;
        starts.for_each(|start| is_start[start as usize] = true);
        let mut known = Known::default();
        let mut by_value = Vec::with_capacity(values as usize);
        let mut class = 0;
        for value in 0..values {
            if is_start[value as usize] {
                let mut vector = vec![0; words];
                let accepted = (0..).map_while(|place| accepts(place, value));
                for (place, _) in accepted.enumerate().filter(|(_, accepts)| *accepts) {
                    set(&mut vector, place);
                }
                class = known.class(vector);
            }
            by_value.push(class);
        }
        Sorted { vectors: known.vectors, by_value }
    }

    /// Protocol and flags, the protocol in the higher octet: the conjunctions of the classes of both.
    fn octets<A: Classified>(words: usize, rules: &[Rule<A>]) -> Sorted {
        let octets = |of: fn(&Rule<A>) -> Octet| {
            let accepts = |place: usize, value| Some(of(rules.get(place)?).contains(value as u8));
            Sorted::new(words, 1 << u8::BITS, 0..1 << u8::BITS, accepts)
        };
        let (protocols, flags) = (octets(|rule| rule.protocol), octets(|rule| rule.flags));
        let mut known = Known::default();
        let mut of_pair = Vec::new();
        for protocol in &protocols.vectors {
            for flags in &flags.vectors {
                let both = protocol.iter().zip(flags).map(|(one, other)| one & other);
                of_pair.push(known.class(both.collect()));
            }
        }
        let row = |class: u16| usize::from(class) * flags.vectors.len();
        let of_row = |row: usize| flags.by_value.iter().map(move |class| row + usize::from(*class));
        let pairs = protocols.by_value.iter().flat_map(|class| of_row(row(*class)));
        let by_value = pairs.map(|pair| of_pair[pair]).collect();
        Sorted { vectors: known.vectors, by_value }
    }
}

/// Vectors, each once.
#[derive(Default)]
struct Known {
    vectors: Vec<Vec<u64>>,
    numbers: BTreeMap<Vec<u64>, u16>,
}

impl Known {
    /// The number of a vector.
    fn class(&mut self, vector: Vec<u64>) -> u16 {
        let vectors = &mut self.vectors;
        *self.numbers.entry(vector).or_insert_with_key(|vector| {
            vectors.push(vector.clone());
            (vectors.len() - 1) as u16
        })
    }
}

fn set(vector: &mut [u64], place: usize) {
    vector[place / WORD_BITS] |= 1 << (place % WORD_BITS);
}

fn summary(vector: &[u64]) -> Summary {
    let words = vector.iter().enumerate();
    words.fold(0, |all, (at, word)| all | Summary::from(*word != 0) << at)
}

/// Parts of an address.
const fn halves<A: Classified>() -> usize {
    (A::BITS / PART_BITS) as usize
}

/// Parts: those of source and destination, the ports, protocol and flags.
pub(super) const fn parts<A: Classified>() -> usize {
    2 * halves::<A>() + 3
}

/// The value of each part of a header.
#[inline(always)]
pub(super) fn values_of<A: Classified>(key: &Key<A>) -> [u32; PARTS_MAX] {
    let mut values = [0; PARTS_MAX];
    for half in 0..halves::<A>() {
        let at = half as u32 * PART_BITS;
        values[half] = key.source.bits(at, PART_BITS);
        values[halves::<A>() + half] = key.destination.bits(at, PART_BITS);
    }
    let (ports, octets) = (2 * halves::<A>(), 2 * halves::<A>() + 2);
    values[ports] = u32::from(key.source_port);
    values[ports + 1] = u32::from(key.destination_port);
    values[octets] = u32::from(key.protocol) << 8 | u32::from(key.flags);
    values
}

/// What a rule accepts at a part that is not the last one.
fn accepted<A: Classified>(rule: &Rule<A>, part: usize) -> RangeInclusive<u32> {
    let halves = halves::<A>();
    let prefix = |address: A, length: u32, half: usize| {
        let at = half as u32 * PART_BITS;
        let open = PART_BITS - length.saturating_sub(at).min(PART_BITS);
        let low = address.bits(at, PART_BITS);
        low..=low | ((1 << open) - 1)
    };
    match part {
        _ if part < halves => prefix(rule.source.address(), rule.source.length(), part),
        _ if part < 2 * halves => {
            prefix(rule.destination.address(), rule.destination.length(), part - halves)
        }
        _ if part == 2 * halves => ports(rule.source_ports),
        _ => ports(rule.destination_ports),
    }
}

fn ports(ports: Ports) -> RangeInclusive<u32> {
    u32::from(ports.first())..=u32::from(ports.last())
}
