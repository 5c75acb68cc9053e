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
