//! Entropy coding: a run of coefficients of one sub-band as bytes, and back, without anything from elsewhere.
//!
//! A coefficient is coded as whether it is zero, then the number of binary digits of its magnitude in unary, then
//! the digits below the first, then its sign. All but the lower digits and the sign are coded with probabilities that
//! are learnt within the packet ([`range_coder`]).
//!
//! **Context.** Where neighbours are large, a coefficient is probably large, too. The neighbours that the decoder
//! has by then (W before it, N above it, NW and NE) assign it to one of `CLASSES` classes, each with
//! probabilities of its own:
//!
//! ```text
//!   NW  N  NE          activity = 2|W| + 2|N| + |NW| + |NE|
//!    W  ?              class    = 0 for 0, else two classes for each power of two
//! ```
//!
//! Neighbours before the packet's first coefficient count as the one that is there, or as zero: nothing of another
//! packet is used, so that none is missed when it is lost.
//!
//! **Limits.** A run has at most [`RUN_MAX`] coefficients and a magnitude at most fifteen digits. Any bytes decode to
//! some coefficients within these limits or to an error, in time and memory proportional to the number requested.

pub mod range_coder;

use alloc::vec::Vec;

use thiserror::Error;

use crate::transform::LARGEST;
use range_coder::{Probability, RangeDecoder, RangeEncoder, TAIL_BYTES};

/// Coefficients of one run at most.
pub const RUN_MAX: usize = u16::MAX as usize;
/// Bytes that one coefficient can add at most: 18 bits with probabilities that cost 12 bits each at their worst, 14
/// digits and a sign, rounded up.
pub const COEFFICIENT_BYTES_MAX: usize = 32;
/// Classes of neighbourhoods.
const CLASSES: usize = 20;
/// Binary digits of a magnitude at most.
const DIGITS_MAX: usize = 15;

/// Why bytes are no run of coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EntropyError {
    /// The bytes end before the coefficients do.
    #[error("the packet ends before its coefficients do")]
    Ended,
    /// Bytes are left over behind the last coefficient.
    #[error("{0} bytes follow after the last coefficient")]
    LeftOver(usize),
}

/// The probabilities of one class.
#[derive(Clone, Copy, Debug)]
struct Class {
    is_zero: Probability,
    /// Whether the magnitude has more digits than the index.
    more: [Probability; DIGITS_MAX],
    /// The digit below the first, by the number of digits.
    second: [Probability; DIGITS_MAX],
}

/// What a packet has learnt.
#[derive(Clone, Debug)]
struct Model([Class; CLASSES]);

impl Model {
    fn new() -> Model {
        let even = Probability::EVEN;
        let class = Class { is_zero: even, more: [even; DIGITS_MAX], second: [even; DIGITS_MAX] };
        Model([class; CLASSES])
    }

    fn encode(&mut self, coder: &mut RangeEncoder, class: usize, value: i32) {
        let class = &mut self.0[class];
        let magnitude = value.unsigned_abs();
        coder.encode(&mut class.is_zero, magnitude != 0);
        if magnitude == 0 {
            return;
        }
        let below = magnitude.ilog2() as usize; // digits below the first, which is 1
        for digits in 0..below {
            coder.encode(&mut class.more[digits], true);
        }
        if below + 1 < DIGITS_MAX {
            coder.encode(&mut class.more[below], false);
        }
        if below > 0 {
            coder.encode(&mut class.second[below], (magnitude >> (below - 1)) & 1 == 1);
            coder.encode_even(magnitude, below as u32 - 1);
        }
        coder.encode_even((value < 0).into(), 1);
    }

    fn decode(&mut self, coder: &mut RangeDecoder<'_>, class: usize) -> i32 {
        let class = &mut self.0[class];
        if !coder.decode(&mut class.is_zero) {
            return 0;
        }
        let mut below = 0;
        while below + 1 < DIGITS_MAX && coder.decode(&mut class.more[below]) {
            below += 1;
        }
        let mut magnitude = 1;
        if below > 0 {
            magnitude = 2 | i32::from(coder.decode(&mut class.second[below]));
            let lower = below as u32 - 1;
            magnitude = (magnitude << lower) | coder.decode_even(lower) as i32;
        }
        if coder.decode_even(1) == 1 { -magnitude } else { magnitude }
    }
}

/// The class of the coefficient that follows those `known`, the first of which stands in column `first_column` of
/// a sub-band with rows of `width`.
fn class(known: &[i32], first_column: usize, width: usize) -> usize {
    let at = known.len();
    let column = (first_column + at) % width;
    let back = |places: usize| at.checked_sub(places).map(|at| known[at].unsigned_abs());
    let before = if column > 0 { back(1) } else { None };
    let above = back(width);
    let left = if column > 0 { back(width + 1) } else { None };
    let right = if column + 1 < width { back(width - 1) } else { None };
    let west = before.or(above).unwrap_or(0);
    let north = above.unwrap_or(west);
    let activity = 2 * (west + north) + left.unwrap_or(north) + right.unwrap_or(north);
    let Some(power) = activity.checked_ilog2() else { return 0 };
    let half = if power > 0 { (activity >> (power - 1)) & 1 } else { 0 };
    (1 + 2 * power + half).min(CLASSES as u32 - 1) as usize
}

/// Codes as many of `values` as fit into `bytes_max` bytes, at least one; the first of them stands in column
/// `first_column` of a sub-band with rows of `width`. Returns the bytes and how many values they are.
///
/// # Panics
/// If there is no value, a value is beyond [`LARGEST`], or not even one would fit for certain.
pub fn encode(
    values: &[i32],
    first_column: usize,
    width: usize,
    bytes_max: usize,
) -> (Vec<u8>, usize) {
    assert!(!values.is_empty() && bytes_max >= COEFFICIENT_BYTES_MAX + TAIL_BYTES);
    let (mut model, mut coder) = (Model::new(), RangeEncoder::new());
    let mut count = 0;
    while count < values.len().min(RUN_MAX)
        && coder.bytes_at_most() + COEFFICIENT_BYTES_MAX <= bytes_max
    {
        assert!(values[count].abs() <= LARGEST);
        let class = class(&values[..count], first_column, width);
        model.encode(&mut coder, class, values[count]);
        count += 1;
    }
    (coder.finish(), count)
}

/// The `count` coefficients that `bytes` are, in place of what `values` held.
///
/// # Errors
/// Where they are not exactly that.
pub fn decode(
    bytes: &[u8],
    count: usize,
    first_column: usize,
    width: usize,
    values: &mut Vec<i32>,
) -> Result<(), EntropyError> {
    values.clear();
    let (mut model, mut coder) = (Model::new(), RangeDecoder::new(bytes));
    while values.len() < count {
        let class = class(values, first_column, width);
        values.push(model.decode(&mut coder, class));
        if coder.beyond() > TAIL_BYTES {
            return Err(EntropyError::Ended);
        }
    }
    match coder.unread() {
        0 => Ok(()),
        bytes => Err(EntropyError::LeftOver(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// Values with the two-sided geometric law that details of pictures have, small and large, and a few of any size.
    fn random_values(rng: &mut Rng, count: usize) -> Vec<i32> {
        let mean = libm::pow(10.0, 4.0 * rng.unit() - 2.0);
        let mut one = || {
            let size = rng.exponential(mean) as i32;
            let size = if rng.below(200) == 0 { rng.below(32_768) as i32 } else { size };
            if rng.below(2) == 0 { size.min(LARGEST) } else { -size.min(LARGEST) }
        };
        (0..count).map(|_| one()).collect()
    }

    #[test]
    fn every_run_comes_back() {
        let mut rng = Rng::new(1, 0xc0ef, 0);
        for _ in 0..300 {
            let count = 1 + rng.below(4_000) as usize;
            let values = random_values(&mut rng, count);
            let width = 1 + rng.below(100) as usize;
            let first_column = rng.below(width as u64) as usize;
            let most = COEFFICIENT_BYTES_MAX + TAIL_BYTES + rng.below(3_000) as usize;
            let (bytes, count) = encode(&values, first_column, width, most);
            assert!(bytes.len() <= most && count >= 1);
            let mut decoded = Vec::new();
            decode(&bytes, count, first_column, width, &mut decoded).expect("its own bytes");
            assert_eq!(decoded, values[..count]);
        }
    }

    /// The naive twin: neighbours found by their coordinates in the sub-band, where they are in the packet.
    #[test]
    fn classes_are_those_of_the_neighbours_by_their_places() {
        let mut rng = Rng::new(2, 0xc0ef, 0);
        for _ in 0..200 {
            let width = 1 + rng.below(9) as usize;
            let first = rng.below(40) as usize;
            let count = rng.below(60) as usize;
            let values = random_values(&mut rng, count);
            let (row, column) = ((first + count) / width, (first + count) % width);
            let at = |row: Option<usize>, column: Option<usize>| {
                let column = column.filter(|column| *column < width)?;
                let number = row? * width + column;
                let value = values.get(number.checked_sub(first)?)?;
                Some(value.unsigned_abs())
            };
            let before = at(Some(row), column.checked_sub(1));
            let above = at(row.checked_sub(1), Some(column));
            let left = at(row.checked_sub(1), column.checked_sub(1));
            let right = at(row.checked_sub(1), Some(column + 1));
            let west = before.or(above).unwrap_or(0);
            let north = above.unwrap_or(west);
            let sum = 2 * west + 2 * north + left.unwrap_or(north) + right.unwrap_or(north);
            let expected = match sum {
                0 => 0,
                sum => {
                    let halves = libm::floor(libm::log2(sum.into())) as usize;
                    let upper = f64::from(sum) >= 1.5 * libm::exp2(halves as f64);
                    (1 + 2 * halves + usize::from(upper)).min(CLASSES - 1)
                }
            };
            assert_eq!(class(&values, first % width, width), expected);
        }
    }

    #[test]
    fn probable_values_take_few_bytes() {
        let (bytes, count) = encode(&[0; 6_336], 0, 88, 1_400);
        assert_eq!(count, 6_336);
        assert!(bytes.len() < 20, "{} bytes of nothing", bytes.len());
        // A two-sided geometric law with a mean magnitude of 4 has about 4.4 bits of entropy.
        let mut rng = Rng::new(3, 0xc0ef, 0);
        let sign = |rng: &mut Rng| if rng.below(2) == 0 { 1 } else { -1 };
        let values: Vec<i32> =
            (0..6_000).map(|_| rng.exponential(4.0) as i32 * sign(&mut rng)).collect();
        let (bytes, count) = encode(&values, 0, 88, 10_000);
        let bits_each = (8 * bytes.len()) as f64 / count as f64;
        assert!(bits_each < 4.6, "{bits_each} bits a coefficient");
    }

    #[test]
    fn the_worst_coefficients_fit_the_packet_limit() {
        // Zeros until the probabilities have settled, and then an unseen value.
        for zeros in [0, 1, 100, 5_000] {
            let mut values = alloc::vec![0; zeros];
            values.extend([LARGEST, -LARGEST, 1, LARGEST, 0, 0, 0, LARGEST]);
            for most in 36..200 {
                let (bytes, count) = encode(&values, 0, 50, most);
                assert!(bytes.len() <= most, "{} of {most}", bytes.len());
                let mut decoded = Vec::new();
                decode(&bytes, count, 0, 50, &mut decoded).expect("its own bytes");
                assert_eq!(decoded, values[..count]);
            }
        }
    }

    #[test]
    fn any_bytes_are_values_within_limits_or_an_error() {
        let mut rng = Rng::new(4, 0xc0ef, 0);
        let mut values = Vec::new();
        let (mut fine, mut refused) = (0, 0);
        for _ in 0..3_000 {
            let length = rng.below(200) as usize;
            let bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
            let count = 1 + rng.below(200) as usize;
            match decode(&bytes, count, 0, 1 + rng.below(60) as usize, &mut values) {
                Ok(()) => {
                    fine += 1;
                    assert!(values.len() == count);
                    assert!(values.iter().all(|value| value.abs() <= LARGEST));
                }
                Err(_) => refused += 1,
            }
        }
        assert!(fine > 0 && refused > 100, "{fine} fine, {refused} refused");
    }
}
