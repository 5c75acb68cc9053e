//! Sixteen headers through the vectors side by side, on processors that gather fast.
//!
//! A search among vectors loads from tables at independent addresses, which one instruction can
//! do for sixteen headers: a *gather*. It spares what a load costs besides the load, to make its place and
//! to pick up what it brought, and that is most of what a search costs. Not every processor that has the
//! instruction is fast at it: some make it of single loads that take longer than they would by
//! themselves, and Intel's up to the third generation of Xeon Scalable were made slow to mend a leak
//! (gather data sampling, 2023). So this is used where AVX-512 has half-precision numbers (FP16), which are
//! of no use here and came with the generation after.

use core::arch::x86_64::*;

use super::kernel::Classified;
use super::vectors::{BLOCK, PARTS_MAX, Vectors, WORD_BITS, parts, values_of};
use crate::header::Key;

/// Headers that are searched side by side.
pub(super) const GATHERED: usize = 16;
/// Where no rule matches.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Headers that are as fast one by one as side by side.
const FEW: u32 = 2;
/// Values of a block, in bits.
const BLOCK_BITS: u32 = BLOCK.trailing_zeros();

type Lanes = [u32; GATHERED];

/// The places of the first rules that match, of sixteen headers; [`NOWHERE`] where none does.
#[inline]
#[target_feature(enable = "avx512f,avx512cd,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn search<A: Classified>(vectors: &Vectors, keys: &[Key<A>; GATHERED]) -> Lanes {
    let mut values = [[0; GATHERED]; PARTS_MAX];
    for (lane, key) in keys.iter().enumerate() {
        for (values, value) in values[..parts::<A>()].iter_mut().zip(values_of(key)) {
            values[lane] = value;
        }
    }
    let mut rows = [_mm512_setzero_si512(); PARTS_MAX];
    let rows = &mut rows[..parts::<A>()];
    let words = words_that_may(vectors, &values[..parts::<A>()], rows);
    first_of_words(vectors, rows, words)
}

/// Finds where the row of each header's class begins, for all parts, and returns for each header the words
/// that are non-empty in all of its rows. All parts take each step together, so that the loads of one part
/// overlap with those of the others.
#[inline]
#[target_feature(enable = "avx512f,avx512cd,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt,lzcnt")]
fn words_that_may(vectors: &Vectors, values: &[Lanes], rows: &mut [__m512i]) -> __m512i {
    let Vectors { classes, summaries, words: words_of_row, .. } = vectors;
    let half = _mm512_set1_epi32(0xffff);
    for ((values, row), (first_block, _)) in values.iter().zip(&mut *rows).zip(classes.firsts) {
        // SAFETY: sixteen words are 64 bytes, and the load requires no alignment.
        let value = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
        let first = _mm512_set1_epi32(first_block as i32);
        let at = _mm512_add_epi32(_mm512_srli_epi32::<BLOCK_BITS>(value), first);
        // SAFETY: a part has a block for every 64 of its values, and behind the last one stands a word.
        let block = unsafe { _mm512_i32gather_epi32::<2>(at, classes.blocks.as_ptr().cast()) };
        let block = _mm512_slli_epi32::<BLOCK_BITS>(_mm512_and_si512(block, half));
        let within = _mm512_and_si512(value, _mm512_set1_epi32((1 << BLOCK_BITS) - 1));
        *row = _mm512_or_si512(block, within);
    }
    for (row, (_, first_class)) in rows.iter_mut().zip(classes.firsts) {
        // SAFETY: a block is one of the existing ones, each of 64 classes, and behind the last stands a
        // word.
        let class = unsafe { _mm512_i32gather_epi32::<2>(*row, classes.classes.as_ptr().cast()) };
        let first = _mm512_set1_epi32(first_class as i32);
        *row = _mm512_add_epi32(_mm512_and_si512(class, half), first);
    }
    let mut words = _mm512_set1_epi32(-1);
    for row in rows {
        // SAFETY: every class has a summary.
        let summary = unsafe { _mm512_i32gather_epi32::<4>(*row, summaries.as_ptr().cast()) };
        words = _mm512_and_si512(words, summary);
        *row = _mm512_mullo_epi32(*row, _mm512_set1_epi32(*words_of_row as i32));
    }
    words
}

/// The place of the first bit that is set in all of a header's rows, among its words. All headers are
/// tried in the first of their words, those without a bit there in the next, and the last few one by one.
#[inline]
#[target_feature(enable = "avx512f,avx512cd,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt,lzcnt")]
fn first_of_words(vectors: &Vectors, rows: &[__m512i], words: __m512i) -> Lanes {
    let mut found = _mm512_set1_epi32(NOWHERE as i32);
    let (mut words, mut left) = (words, _mm512_test_epi32_mask(words, words));
    while left.count_ones() > FEW {
        let lowest = _mm512_and_si512(words, _mm512_sub_epi32(_mm512_setzero_si512(), words));
        let word = _mm512_sub_epi32(_mm512_set1_epi32(31), _mm512_lzcnt_epi32(lowest));
        let (stands, bit) = first_of_word(vectors, rows, word, left);
        let place = _mm512_slli_epi32::<{ WORD_BITS.trailing_zeros() }>(word);
        found = _mm512_mask_add_epi32(found, stands, place, bit);
        words = _mm512_xor_si512(words, lowest);
        left = _mm512_mask_test_epi32_mask(left & !stands, words, words);
    }
    let mut places = stored(found);
    if left != 0 {
        one_by_one(vectors, rows, stored(words), left, &mut places);
    }
    places
}

/// Which of the headers in `requested` have a bit set in `word` of all rows, and the first such bit of each.
#[inline]
#[target_feature(enable = "avx512f,avx512cd,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt,lzcnt")]
fn first_of_word(
    vectors: &Vectors,
    rows: &[__m512i],
    word: __m512i,
    requested: __mmask16,
) -> (__mmask16, __m512i) {
    let nothing = _mm512_setzero_si512();
    let [low, high] = [0, 1].map(|half| {
        let of = |all: __m512i| match half {
            0 => _mm512_castsi512_si256(all),
            _ => _mm512_extracti64x4_epi64::<1>(all),
        };
        let requested = (requested >> (8 * half)) as __mmask8;
        // SAFETY: a header in `requested` has a word, which is one of those of a row.
        let mut standing = unsafe {
            let alive = vectors.alive.as_ptr().cast();
            _mm512_mask_i32gather_epi64::<8>(nothing, requested, of(word), alive)
        };
        for row in rows {
            let at = _mm256_add_epi32(of(*row), of(word));
            // SAFETY: every class has a row of words.
            let row = unsafe {
                let rows = vectors.vectors.as_ptr().cast();
                _mm512_mask_i32gather_epi64::<8>(nothing, requested, at, rows)
            };
            standing = _mm512_and_si512(standing, row);
        }
        let lowest = _mm512_and_si512(standing, _mm512_sub_epi64(nothing, standing));
        let bit = _mm512_sub_epi64(_mm512_set1_epi64(63), _mm512_lzcnt_epi64(lowest));
        (_mm512_test_epi64_mask(standing, standing), _mm512_cvtepi64_epi32(bit))
    });
    let stands = __mmask16::from(low.0) | __mmask16::from(high.0) << 8;
    (stands, _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low.1), high.1))
}

/// The places of those headers that are `left`, among the words that are.
#[inline]
#[target_feature(enable = "avx512f,avx512cd,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt,lzcnt")]
fn one_by_one(
    vectors: &Vectors,
    rows: &[__m512i],
    words: Lanes,
    mut left: __mmask16,
    places: &mut Lanes,
) {
    let mut columns = [[0; GATHERED]; PARTS_MAX];
    for (column, row) in columns.iter_mut().zip(rows) {
        *column = stored(*row);
    }
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        let mut rows_of_lane = [0; PARTS_MAX];
        for (row, column) in rows_of_lane.iter_mut().zip(&columns[..rows.len()]) {
            *row = column[lane];
        }
        let found = vectors.first(&rows_of_lane[..rows.len()], words[lane]);
        places[lane] = found.map_or(NOWHERE, |place| place as u32);
        left &= left - 1;
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn stored(lanes: __m512i) -> Lanes {
    let mut words = [0; GATHERED];
    // SAFETY: sixteen words are 64 bytes, and the store requires no alignment.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), lanes) };
    words
}
