//! Hash-map keys that are hashes already: no second hash, and the same map in every run.

use core::hash::{BuildHasher, Hasher};

/// Builds the hasher for maps whose keys are digests, flow hashes or lengths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keyed;

/// Passes an integer key through, spread over all 64 bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyedHasher(u64);

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher(0)
    }
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, key: u32) {
        self.write_u64(u64::from(key));
    }

    /// The map takes a bucket from the low bits and a tag from the high ones; both come from the
    /// product's middle.
    fn write_u64(&mut self, key: u64) {
        self.0 = (self.0 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: xor, product with 2⁶⁴ over the golden ratio, halves exchanged, for each word in
    /// turn.
    #[test]
    fn words_are_mixed_one_after_the_other() {
        let by_hand = |words: &[u64]| {
            let mix = |state: u64, word: &u64| {
                let product = u128::from(state ^ word) * 0x9e37_79b9_7f4a_7c15;
                let low = product as u64;
                low.rotate_right(32)
            };
            words.iter().fold(0, mix)
        };
        let hashed = |write: &dyn Fn(&mut KeyedHasher)| {
            let mut hasher = Keyed.build_hasher();
            write(&mut hasher);
            hasher.finish()
        };
        let word = 0x0123_4567_89ab_cdef;
        assert_eq!(hashed(&|hasher| hasher.write_u64(word)), by_hand(&[word]));
        let two = |hasher: &mut KeyedHasher| {
            hasher.write_u64(word);
            hasher.write_u32(0xffff_0001);
        };
        assert_eq!(hashed(&two), by_hand(&[word, 0xffff_0001]));
        assert_eq!(hashed(&|hasher| hasher.write(&[7, 255])), by_hand(&[7, 255]));
        assert_eq!(hashed(&|hasher| hasher.write(&[])), 0);
    }
}
