//! How a parcel's runs are packed into a block of words, and what the word that refers to it says.
//!
//! Runs are distinguished by the bits behind the parcel's prefix: sixteen of them where no route needs more,
//! else thirty-two. A *line* is the first bits of each run but the first, its *keys*, and behind them the
//! answers of all: 21 keys of two bytes or 12 of four and their answers of one byte are a line of the
//! cache. The number of keys not greater than an address's own bits is the number of runs before its
//! own. Where there are more runs, a *tree* is up to seventeen such lines with one in front of them that
//! has the first key of each line but the first; the last is filled up with keys like the highest
//! address. A *deep* block has runs that differ still later: their starts, whole, and their answers.
//!
//! A word says what it refers to in its lowest seven bits, and where in the others, in steps of four
//! words: with the number of keys in it, a reader knows before it looks what it will find.
//!
//! ```text
//! answer  leaf << 16
//! line    block | keys           line of wide keys   block | 32 + keys
//! tree    block | 64 + lines − 1      of wide keys   block | 96 + lines − 1
//! parts   block | 127            deep                block | 126
//! ```

use alloc::vec::Vec;

use super::parcel_table::{BITS, FIRST_BITS};
use crate::prefix::Address;
use crate::slots::memory::SlotMemory;
use crate::slots::routes::{Leaf, Run};

/// Bits that say what a word refers to, and words of a step of the others.
pub(super) const TAG_BITS: u32 = 7;
pub(super) const STEP_WORDS: u32 = 4;
/// Words that can be referred to.
pub(super) const WORDS_MAX: u32 = STEP_WORDS << (u32::BITS - TAG_BITS);
/// What a word refers to: nothing but an answer; the parts of a divided parcel; whole starts.
pub(super) const ANSWER: u32 = 0;
pub(super) const PARTS: u32 = 127;
pub(super) const DEEP: u32 = 126;
/// Set for keys of four bytes, and for trees; below them the number of keys.
pub(super) const WIDE: u32 = 32;
pub(super) const TREE: u32 = 64;
pub(super) const KEYS: u32 = 31;
/// Bytes of a line, and most lines behind the first of a tree.
const LINE_BYTES: usize = 64;
const LINES_MAX: usize = 17;
/// Words of a start.
const START_WORDS: u32 = 4;

/// Most keys of `width` bytes in a line with answers of `bytes`.
pub(super) const fn keys_max(width: usize, bytes: usize) -> usize {
    (LINE_BYTES - bytes) / (width + bytes)
}

/// A word that refers to the block that begins at word `first`.
pub(super) fn word(first: u32, tag: u32) -> u32 {
    ((first / STEP_WORDS) << TAG_BITS) | tag
}

/// A word that is an answer itself.
pub(super) fn answer(leaf: Leaf) -> u32 {
    u32::from(leaf) << 16
}

pub(super) fn tag(word: u32) -> u32 {
    word & ((1 << TAG_BITS) - 1)
}

/// The word where a block begins.
pub(super) fn first(word: u32) -> u32 {
    (word >> TAG_BITS) * STEP_WORDS
}

/// The most routes a parcel may have if their runs, two for each and one more, are to be packed, when
/// the longest has `bits` more than the parcel's prefix.
pub(super) const fn routes_max(bits: u32, bytes: usize) -> usize {
    let width = if bits <= 16 { 2 } else { 4 };
    (LINES_MAX * (keys_max(width, bytes) + 1) - 1) / 2
}

/// Packs the runs of a parcel with a prefix of `length`, two at least; returns the tag of a word that
/// refers to them.
pub(super) fn pack<const BYTES: usize>(
    length: u32,
    runs: &[Run<u128>],
    block: &mut Vec<u32>,
) -> u32 {
    let longest = runs.iter().map(|run| u128::BITS - run.start.trailing_zeros()).max();
    match longest.unwrap_or(0).saturating_sub(length) {
        0..=16 => pack_lines::<2, BYTES>(length, runs, block),
        17..=32 => WIDE | pack_lines::<4, BYTES>(length, runs, block),
        _ => pack_deep::<BYTES>(runs, block),
    }
}

/// Words of the largest block of a parcel with a prefix of `length` whose runs begin at some of
/// `starts`, at least two addresses, the first of them the prefix's.
pub(super) fn words_max<const BYTES: usize>(length: u32, starts: &[u128]) -> usize {
    let longest = starts.iter().map(|start| u128::BITS - start.trailing_zeros()).max();
    let count = starts.len();
    let lines = |width: usize| {
        let keys_max = keys_max(width, BYTES);
        match count <= keys_max + 1 {
            true => ((count - 1) * width + count * BYTES).div_ceil(4),
            false => (count.div_ceil(keys_max + 1) + 1) * (LINE_BYTES / size_of::<u32>()),
        }
    };
    match longest.unwrap_or(0).saturating_sub(length) {
        0..=16 => lines(2),
        17..=32 => lines(4),
        _ => 1 + count * START_WORDS as usize + (count * BYTES).div_ceil(4),
    }
}

fn pack_lines<const WIDTH: usize, const BYTES: usize>(
    length: u32,
    runs: &[Run<u128>],
    block: &mut Vec<u32>,
) -> u32 {
    let keys_max = const { keys_max(WIDTH, BYTES) };
    let key = |run: &Run<u128>| run.start.bits(length, 8 * WIDTH as u32);
    if runs.len() <= keys_max + 1 {
        push_line::<WIDTH, BYTES>(runs.len() - 1, runs, key, block);
        return runs.len() as u32 - 1;
    }
    let lines = runs.chunks(keys_max + 1);
    assert!(lines.len() <= LINES_MAX, "a parcel with so many runs is divided");
    let mut first_keys = [0; LINE_BYTES];
    let places = first_keys.chunks_exact_mut(WIDTH);
    places.zip(lines.clone().skip(1)).for_each(|(place, line)| write(place, key(&line[0])));
    push_bytes(&first_keys, block);
    for (number, line) in lines.clone().enumerate() {
        push_line::<WIDTH, BYTES>(keys_max, line, key, block);
        block.resize((number + 2) * (LINE_BYTES / size_of::<u32>()), 0);
    }
    TREE | (lines.len() as u32 - 1)
}

/// Appends a line of `keys` keys. The keys behind the last run's have the highest value and that run's
/// answer.
fn push_line<const WIDTH: usize, const BYTES: usize>(
    keys: usize,
    runs: &[Run<u128>],
    key: impl Fn(&Run<u128>) -> u32,
    block: &mut Vec<u32>,
) {
    let mut line = [0; LINE_BYTES];
    let (front, back) = line.split_at_mut(keys * WIDTH);
    let all_keys = runs[1..].iter().map(key).chain(core::iter::repeat(u32::MAX));
    front.chunks_exact_mut(WIDTH).zip(all_keys).for_each(|(place, key)| write(place, key));
    let last = runs[runs.len() - 1].leaf;
    let leaves = runs.iter().map(|run| run.leaf).chain(core::iter::repeat(last)).take(keys + 1);
    back.chunks_exact_mut(BYTES)
        .zip(leaves)
        .for_each(|(place, leaf)| write(place, u32::from(leaf)));
    push_bytes(&line[..keys * WIDTH + (keys + 1) * BYTES], block);
}

fn pack_deep<const BYTES: usize>(runs: &[Run<u128>], block: &mut Vec<u32>) -> u32 {
    block.push(runs.len() as u32);
    let words = |run: &Run<u128>| [96, 64, 32, 0].map(|bits| (run.start >> bits) as u32);
    block.extend(runs.iter().flat_map(words));
    for some in runs.chunks(LINE_BYTES / BYTES) {
        let mut leaves = [0; LINE_BYTES];
        let places = leaves.chunks_exact_mut(BYTES);
        places.zip(some).for_each(|(place, run)| write(place, u32::from(run.leaf)));
        push_bytes(&leaves[..some.len() * BYTES], block);
    }
    DEEP
}

/// Writes the lowest bytes of a number, the lowest first.
#[inline(always)]
fn write(place: &mut [u8], number: u32) {
    place.copy_from_slice(&number.to_le_bytes()[..place.len()]);
}

fn push_bytes(bytes: &[u8], block: &mut Vec<u32>) {
    let (words, rest) = bytes.as_chunks::<4>();
    block.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        block.push(last);
    }
}

/// The answer for an address, by one step after the other.
pub(super) fn find<const BYTES: usize>(memory: &SlotMemory, address: u128) -> Leaf {
    let mut word = memory.root(address.bits(0, FIRST_BITS) as usize);
    let mut length = FIRST_BITS;
    while tag(word) == PARTS {
        word = memory.root((first(word) + address.bits(length, BITS)) as usize);
        length += BITS;
    }
    match tag(word) {
        ANSWER => (word >> 16) as Leaf,
        DEEP => find_deep::<BYTES>(memory, first(word), address),
        tag if tag & WIDE == 0 => find_line::<2, BYTES>(memory, word, address.bits(length, 16)),
        _ => find_line::<4, BYTES>(memory, word, address.bits(length, 32)),
    }
}

fn find_line<const WIDTH: usize, const BYTES: usize>(
    memory: &SlotMemory,
    word: u32,
    key: u32,
) -> Leaf {
    let (mut block, mut keys) = (first(word), tag(word) & KEYS);
    let passed = |block: u32, keys: u32| {
        let is_passed = |number: &u32| number_at::<WIDTH>(memory, block, *number) <= key;
        (0..keys).take_while(is_passed).count() as u32
    };
    if tag(word) & TREE != 0 {
        block += (1 + passed(block, keys)) * const { (LINE_BYTES / size_of::<u32>()) as u32 };
        keys = const { keys_max(WIDTH, BYTES) as u32 };
    }
    let answers = keys * const { (WIDTH / BYTES) as u32 };
    number_at::<BYTES>(memory, block, answers + passed(block, keys)) as Leaf
}

/// A number of `BYTES` bytes, counted from the beginning of a block.
fn number_at<const BYTES: usize>(memory: &SlotMemory, block: u32, number: u32) -> u32 {
    let byte = number * BYTES as u32;
    let word = memory.word(block + byte / 4) >> (byte % 4 * 8);
    word & const { u32::MAX >> (32 - 8 * BYTES) }
}

/// The runs of a deep block are searched by halves.
#[cold]
fn find_deep<const BYTES: usize>(memory: &SlotMemory, block: u32, address: u128) -> Leaf {
    let start = |run: u32| {
        let at = block + 1 + run * START_WORDS;
        (0..START_WORDS).fold(0, |start, i| start << 32 | u128::from(memory.word(at + i)))
    };
    let runs = memory.word(block);
    let (mut low, mut high) = (0, runs);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if start(middle) <= address {
            low = middle;
        } else {
            high = middle;
        }
    }
    number_at::<BYTES>(memory, block + 1 + runs * START_WORDS, low) as Leaf
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn hold<const BYTES: usize>(length: u32, step: u32, counts: &[(usize, usize)]) {
        for &(count, words) in counts {
            let first = 0x2001 << 112;
            let start = |run: usize| first + ((run as u128) << step);
            let runs: Vec<_> =
                (0..count).map(|run| Run { start: start(run), leaf: run as Leaf % 200 }).collect();
            let starts: Vec<u128> = runs.iter().map(|run| run.start).collect();
            let mut block = vec![];
            pack::<BYTES>(length, &runs, &mut block);
            let most = words_max::<BYTES>(length, &starts);
            assert_eq!(most, words, "{count} runs {step} bits apart");
            assert!(block.len() <= most, "{} words of {most}", block.len());
        }
    }

    /// By hand: (keys x width + answers x bytes) / 4 of a line; lines and one more of a tree, of sixteen
    /// words; a count, four words for each start and the answers of what is deep.
    #[test]
    fn the_largest_block_is_the_size_of_its_runs() {
        let lines = [(2, 1), (3, 2), (22, 16), (23, 48), (44, 48), (45, 64)];
        hold::<1>(16, 112 - 16, &lines);
        hold::<1>(16, 112 - 32, &[(2, 2), (13, 16), (14, 48), (26, 48), (27, 64)]);
        hold::<1>(16, 0, &[(2, 10), (5, 23), (100, 426)]);
        hold::<2>(16, 112 - 16, &[(2, 2), (16, 16), (17, 48)]);
        hold::<2>(16, 112 - 32, &[(2, 2), (11, 16), (12, 48)]);
        hold::<2>(16, 0, &[(2, 10), (5, 24)]);
    }
}
