//! A binary range coder with adaptive probabilities, after Martin (1979) and LZMA.
//!
//! The coder narrows an interval [low, low + range) of 32-bit numbers by each bit: to its lower part for a 0, in
//! proportion to the probability of a 0, to the rest for a 1. When the interval is shorter than 2²⁴, its leading
//! byte is settled but for a carry, and is output. Any number of the last interval determines all of the bits; the
//! one with most zeros at its end is taken, and they are left out, because a decoder reads zeros behind the end.
//!
//! A probability adapts: it moves a share of the way to each bit, half at first and a thirty-second in the end, so
//! that the statistics of a packet are found within a few dozen bits. Packets begin with nothing learnt: that is the
//! price of their independence.

use alloc::vec::Vec;

/// Below this, a byte of the interval is settled.
const RANGE_MIN: u32 = 1 << 24;
/// Bits of a probability that divide the interval.
const SCALE_BITS: u32 = 12;
/// A settled probability moves 2⁻⁵ of the way to each bit.
const SLOWEST_SHIFT: u8 = 5;
/// Bytes of the interval that are not yet settled when the last bit is in; those that are zero are left out.
pub(super) const TAIL_BYTES: usize = 4;

/// How probable a 0 is, learnt from the bits so far.
#[derive(Clone, Copy, Debug)]
pub struct Probability {
    /// In units of 2⁻¹⁶; never so near to 0 or 1 that a bit would have no interval.
    of_zero: u16,
    shift: u8,
}

impl Probability {
    /// Nothing is known: both bits are as probable.
    pub const EVEN: Probability = Probability { of_zero: 1 << 15, shift: 1 };

    /// The part of an interval that a 0 has.
    fn bound(self, range: u32) -> u32 {
        (range >> SCALE_BITS) * u32::from(self.of_zero >> (16 - SCALE_BITS))
    }

    fn learn(&mut self, bit: bool) {
        match bit {
            false => {
                self.of_zero += (((1u32 << 16) - u32::from(self.of_zero)) >> self.shift) as u16
            }
            true => self.of_zero -= self.of_zero >> self.shift,
        }
        self.shift = SLOWEST_SHIFT.min(self.shift + 1);
    }
}

/// Bits into bytes.
#[derive(Clone, Debug)]
pub struct RangeEncoder {
    low: u64,
    range: u32,
    /// The last settled byte that is not 255, which a carry may still raise.
    held: Option<u8>,
    /// Bytes of 255 behind it, which a carry would turn over.
    full: usize,
    out: Vec<u8>,
}

impl RangeEncoder {
    /// Nothing was coded yet.
    pub fn new() -> RangeEncoder {
        RangeEncoder { low: 0, range: u32::MAX, held: None, full: 0, out: Vec::new() }
    }

    /// Codes a bit, and lets its probability learn.
    pub fn encode(&mut self, probability: &mut Probability, bit: bool) {
        let bound = probability.bound(self.range);
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        probability.learn(bit);
        while self.range < RANGE_MIN {
            self.range <<= 8;
            self.shift_low();
        }
    }

    /// Codes the lowest `count` bits of a number, each with even probability.
    pub fn encode_even(&mut self, number: u32, count: u32) {
        for place in (0..count).rev() {
            self.range >>= 1;
            if (number >> place) & 1 == 1 {
                self.low += u64::from(self.range);
            }
            while self.range < RANGE_MIN {
                self.range <<= 8;
                self.shift_low();
            }
        }
    }

    /// The most bytes that [`RangeEncoder::finish`] would return now.
    pub fn bytes_at_most(&self) -> usize {
        self.out.len() + usize::from(self.held.is_some()) + self.full + TAIL_BYTES
    }

    /// The bytes that encode all bits.
    pub fn finish(mut self) -> Vec<u8> {
        let end = self.low + u64::from(self.range);
        let rounded = |bits: u32| ((self.low + (1 << bits) - 1) >> bits) << bits;
        let roundest = (0..=32).rev().map(rounded).find(|number| *number < end);
        self.low = roundest.unwrap_or(self.low);
        (0..=TAIL_BYTES).for_each(|_| self.shift_low());
        for _ in 0..TAIL_BYTES {
            self.out.pop_if(|last| *last == 0);
        }
        self.out
    }

    /// Takes the leading byte of the interval.
    fn shift_low(&mut self) {
        let (byte, carry) = ((self.low >> 24) as u8, (self.low >> 32) as u8);
        self.low = (self.low << 8) & 0xffff_ff00;
        let Some(held) = self.held else {
            // There is no byte before the first, and no carry reaches one.
            self.held = Some(byte);
            return;
        };
        if byte == 0xff && carry == 0 {
            self.full += 1;
            return;
        }
        self.out.push(held + carry);
        self.out.extend(core::iter::repeat_n(0xff_u8.wrapping_add(carry), self.full));
        (self.held, self.full) = (Some(byte), 0);
    }
}

impl Default for RangeEncoder {
    fn default() -> RangeEncoder {
        RangeEncoder::new()
    }
}

/// Decodes bytes into bits; any bytes are some bits, so the caller has to know how many there are.
#[derive(Clone, Debug)]
pub struct RangeDecoder<'a> {
    /// How far above the interval's lower end the number is.
    code: u32,
    range: u32,
    rest: &'a [u8],
    /// Zeros that were read behind the end.
    beyond: usize,
}

impl<'a> RangeDecoder<'a> {
    /// Begins to read.
    pub fn new(bytes: &'a [u8]) -> RangeDecoder<'a> {
        let mut decoder = RangeDecoder { code: 0, range: u32::MAX, rest: bytes, beyond: 0 };
        (0..4).for_each(|_| decoder.shift());
        decoder
    }

    /// The next bit, if 0 is as probable as this; the probability learns.
    pub fn decode(&mut self, probability: &mut Probability) -> bool {
        let bound = probability.bound(self.range);
        let bit = self.code >= bound;
        if bit {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        probability.learn(bit);
        self.normalise();
        bit
    }

    /// A number of `count` bits, each with even probability.
    pub fn decode_even(&mut self, count: u32) -> u32 {
        let mut number = 0;
        for _ in 0..count {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            number = (number << 1) | u32::from(bit);
            self.normalise();
        }
        number
    }

    /// Bytes that no bit has needed.
    pub fn unread(&self) -> usize {
        self.rest.len()
    }

    /// Zeros that were made up behind the end.
    pub fn beyond(&self) -> usize {
        self.beyond
    }

    fn normalise(&mut self) {
        while self.range < RANGE_MIN {
            self.range <<= 8;
            self.shift();
        }
    }

    fn shift(&mut self) {
        let byte = match self.rest.split_first() {
            Some((byte, rest)) => {
                self.rest = rest;
                *byte
            }
            None => {
                self.beyond += 1;
                0
            }
        };
        self.code = (self.code << 8) | u32::from(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// A bit, and the model that it is coded with; none: an even chance.
    type Coded = (bool, Option<usize>);

    fn random_bits(rng: &mut Rng, models: usize) -> Vec<Coded> {
        let chance: Vec<f64> = (0..models).map(|_| rng.unit()).collect();
        let one = |rng: &mut Rng| match rng.below(8) {
            0 => (rng.below(2) == 1, None),
            _ => {
                let model = rng.below(models as u64) as usize;
                (rng.unit() < chance[model], Some(model))
            }
        };
        let count = rng.below(3_000);
        (0..count).map(|_| one(rng)).collect()
    }

    fn encoded(bits: &[Coded], models: usize) -> Vec<u8> {
        let mut probabilities = alloc::vec![Probability::EVEN; models];
        let mut encoder = RangeEncoder::new();
        for (bit, model) in bits {
            match model {
                Some(model) => encoder.encode(&mut probabilities[*model], *bit),
                None => encoder.encode_even((*bit).into(), 1),
            }
        }
        let most = encoder.bytes_at_most();
        let bytes = encoder.finish();
        assert!(bytes.len() <= most, "{} of {most}", bytes.len());
        bytes
    }

    /// What the bits would cost with exact arithmetic: the sum of −log₂ of their probabilities.
    fn information_bits(bits: &[Coded], models: usize) -> f64 {
        let mut probabilities = alloc::vec![Probability::EVEN; models];
        let mut cost = |(bit, model): &Coded| {
            let Some(model) = model else { return 1.0 };
            let probability = &mut probabilities[*model];
            let of_zero = f64::from(probability.of_zero >> 4) / 4_096.0;
            probability.learn(*bit);
            -libm::log2(if *bit { 1.0 - of_zero } else { of_zero })
        };
        bits.iter().map(&mut cost).sum()
    }

    #[test]
    fn every_bit_comes_back_at_the_cost_of_its_information() {
        let mut rng = Rng::new(1, 0xc0de, 0);
        for _ in 0..300 {
            let models = 1 + rng.below(20) as usize;
            let bits = random_bits(&mut rng, models);
            let bytes = encoded(&bits, models);
            let information = information_bits(&bits, models);
            let most = information * 1.001 + 16.0;
            assert!((8 * bytes.len()) as f64 <= most, "{} bytes for {information}", bytes.len());
            let mut probabilities = alloc::vec![Probability::EVEN; models];
            let mut decoder = RangeDecoder::new(&bytes);
            for (at, (bit, model)) in bits.iter().enumerate() {
                let decoded = match model {
                    Some(model) => decoder.decode(&mut probabilities[*model]),
                    None => decoder.decode_even(1) == 1,
                };
                assert_eq!(decoded, *bit, "bit {at} of {}", bits.len());
            }
            assert_eq!(decoder.unread(), 0, "what nobody needs is not written");
            assert!(decoder.beyond() <= TAIL_BYTES);
        }
    }

    /// The bits that make a carry run through many bytes of 255.
    #[test]
    fn carries_run_through() {
        for tail in 0..200 {
            let mut encoder = RangeEncoder::new();
            encoder.encode_even(u32::MAX, 32);
            (0..tail).for_each(|_| encoder.encode_even(0xff, 8));
            let mut one = Probability { of_zero: 31, shift: SLOWEST_SHIFT };
            (0..40).for_each(|_| encoder.encode(&mut one, true));
            let bytes = encoder.finish();
            let mut decoder = RangeDecoder::new(&bytes);
            assert_eq!(decoder.decode_even(32), u32::MAX);
            assert!((0..tail).all(|_| decoder.decode_even(8) == 0xff));
            let mut one = Probability { of_zero: 31, shift: SLOWEST_SHIFT };
            assert!((0..40).all(|_| decoder.decode(&mut one)));
        }
    }

    #[test]
    fn probabilities_stay_where_both_bits_are_possible() {
        for bit in [false, true] {
            let mut probability = Probability::EVEN;
            for _ in 0..10_000 {
                probability.learn(bit);
                let bound = probability.bound(RANGE_MIN);
                assert!(0 < bound && bound < RANGE_MIN);
            }
        }
    }
}
