//! Random streams addressed by name: (seed, purpose, index).
//!
//! A generator that is shared makes every draw depend on all the draws before it: add a thread,
//! reorder two loops, draw once more for a new feature, and the whole run changes. Here no state is
//! shared. ChaCha8 (Bernstein 2008) is a function of a key and a position, so
//!
//! * the key holds the seed of the run and the *purpose* of the draws (a number that the caller
//!   fixes once for "sizes", "gaps", "floor" and so on),
//! * the 64-bit nonce holds the *index* (a session, an interval, a round),
//!
//! and the stream of session 4711 can be opened directly, by any thread, before or after any other.
//! That is why a plan is the same on one thread and on sixteen. Streams of different names are as
//! independent as a cipher's outputs under different keys; skipping ahead in one long stream would
//! need to know how much each session draws.
//!
//! The mapping is fixed for ever by a known-answer test: a seed written in a report of today must
//! mean the same traffic in ten years. `normal` and `exponential` take a constant number of words
//! per draw and use `libm`, not the platform's, so they repeat bit for bit across machines too.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Fills the part of the key that seed and purpose leave over; its last byte counts versions of the
/// mapping.
const KEY_TAG: [u8; 20] = *b"nilometer.stat.rng.1";

/// 2⁻⁵³: the spacing of [`Rng::unit`].
pub(crate) const UNIT_STEP: f64 = 1.0 / (1u64 << 53) as f64;

/// A stream of random numbers, reproducible from its name alone.
#[derive(Clone, Debug)]
pub struct Rng {
    words: ChaCha8Rng,
}

impl Rng {
    /// The stream named by the run's `seed`, the `purpose` of its draws and an `index` within that
    /// purpose. Streams with different names are independent; the same name gives the same stream.
    pub fn new(seed: u64, purpose: u32, index: u64) -> Rng {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..12].copy_from_slice(&purpose.to_le_bytes());
        key[12..].copy_from_slice(&KEY_TAG);
        let mut words = ChaCha8Rng::from_seed(key);
        words.set_stream(index);
        Rng { words }
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.words.next_u64()
    }

    /// Uniform in [0, 1): one of 2⁵³ equally spaced values, never 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * UNIT_STEP
    }

    /// Uniform in 0..n, without bias: Lemire's multiply-and-reject (ACM TOMACS 29(1), 2019).
    ///
    /// # Panics
    /// If `n` is zero: nothing can be chosen from nothing.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a choice needs at least one alternative");
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let reject_under = n.wrapping_neg() % n;
            while (product as u64) < reject_under {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// Puts `items` in an order drawn uniformly from all orders (Fisher–Yates, Knuth's Algorithm
    /// P).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }

    /// An exponential variable with the given mean, in the mean's unit: −mean·ln(1 − u), at most
    /// 36.8 means. One word per draw.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log1p(-self.unit())
    }

    /// A standard normal variable by Box–Muller (1958), within ±8.6. Two words per draw: the second
    /// variable of the pair is not kept, so that the stream's position gives the number of draws.
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log1p(-self.unit()));
        radius * libm::cos(2.0 * core::f64::consts::PI * self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Words 0, 1, 2 and 39, from an implementation of ChaCha8 written for this in another
    /// language: key = seed (64 bits, little-endian) ‖ purpose (32) ‖ tag, nonce = index, counter
    /// from 0. These must never change.
    #[test]
    fn seeds_give_fixed_words() {
        type Name = (u64, u32, u64);
        let known: [(Name, [u64; 4]); 3] = [
            (
                (0, 0, 0),
                [0xc453f476eca168dd, 0xba0e5d32db44be9c, 0x241b358b144eb2c7, 0xd4aca60d7a36f2c5],
            ),
            (
                (7, 1, 2),
                [0xc48e5f78d8df5efb, 0xeab35b2d5c140d5c, 0x5e1928da93834d53, 0x21cbb56780e1119b],
            ),
            (
                (u64::MAX, u32::MAX, u64::MAX),
                [0x75bdfe65f6ef27e0, 0xde6eda94d01ed204, 0x8af90fca0e337365, 0x235134de4cc8b8e8],
            ),
        ];
        for ((seed, purpose, index), expected) in known {
            let mut rng = Rng::new(seed, purpose, index);
            let words: Vec<u64> = (0..40).map(|_| rng.next_u64()).collect();
            assert_eq!([words[0], words[1], words[2], words[39]], expected);
        }
    }

    /// The transformations are part of the promise, to the bit.
    #[test]
    fn draws_give_fixed_values() {
        let rng = || Rng::new(7, 1, 2);
        assert_eq!(rng().unit(), (0xc48e5f78d8df5efb_u64 >> 11) as f64 / (1u64 << 53) as f64);
        assert_eq!(rng().below(1_000), 767);
        assert_eq!(rng().exponential(1.0).to_bits(), 0x3ff7_5cc1_30eb_2e02);
        assert_eq!(rng().normal().to_bits(), 0x3ff7_b0bd_cb6a_337b);
        let mut items = [0, 1, 2, 3, 4, 5, 6, 7];
        rng().shuffle(&mut items);
        assert_eq!(items, [5, 3, 4, 1, 0, 2, 7, 6]);
    }

    #[test]
    fn streams_of_different_names_differ_and_of_one_name_agree() {
        let first = |seed, purpose, index| Rng::new(seed, purpose, index).next_u64();
        assert_eq!(first(1, 2, 3), first(1, 2, 3));
        let mut seen: Vec<u64> = Vec::new();
        for seed in 0..10 {
            for purpose in 0..10 {
                for index in 0..10 {
                    seen.push(first(seed, purpose, index));
                }
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
    }

    #[test]
    fn unit_is_uniform_and_never_one() {
        let mut rng = Rng::new(11, 0, 0);
        let (mut sum, mut square, mut most) = (0.0, 0.0, 0.0f64);
        let n = 200_000;
        for _ in 0..n {
            let u = rng.unit();
            assert!((0.0..1.0).contains(&u));
            sum += u;
            square += u * u;
            most = most.max(u);
        }
        let n = f64::from(n);
        assert!((sum / n - 0.5).abs() < 0.003, "mean {}", sum / n);
        assert!((square / n - 1.0 / 3.0).abs() < 0.003, "second moment {}", square / n);
        assert!(most > 0.9999);
    }

    #[test]
    fn below_is_unbiased_where_a_plain_product_is_not() {
        // 3·2⁶² alternatives: truncating without rejection makes every third value twice as likely.
        let n = 3u64 << 62;
        let mut rng = Rng::new(5, 0, 0);
        let mut residues = [0u32; 3];
        for _ in 0..90_000 {
            let drawn = rng.below(n);
            assert!(drawn < n);
            residues[(drawn % 3) as usize] += 1;
        }
        for count in residues {
            assert!((29_000..31_000).contains(&count), "residues {residues:?}");
        }
        assert_eq!(rng.below(1), 0);
    }

    #[test]
    fn shuffles_every_order_equally() {
        let mut rng = Rng::new(6, 0, 0);
        let mut orders = [0u32; 27];
        for _ in 0..60_000 {
            let mut items = [0usize, 1, 2];
            rng.shuffle(&mut items);
            orders[items[0] * 9 + items[1] * 3 + items[2]] += 1;
        }
        let seen: Vec<u32> = orders.into_iter().filter(|&count| count > 0).collect();
        assert_eq!(seen.len(), 6);
        assert!(seen.iter().all(|count| (9_600..10_400).contains(count)), "{seen:?}");
    }

    #[test]
    fn exponential_and_normal_have_their_moments() {
        let mut rng = Rng::new(8, 0, 0);
        let n = 200_000;
        let (mut exp, mut exp_square, mut norm, mut norm_square, mut norm_fourth) =
            (0.0, 0.0, 0.0, 0.0, 0.0);
        for _ in 0..n {
            let e = rng.exponential(2.0);
            assert!(e >= 0.0);
            exp += e;
            exp_square += e * e;
            let z = rng.normal();
            norm += z;
            norm_square += z * z;
            norm_fourth += z * z * z * z;
        }
        let n = f64::from(n);
        assert!((exp / n - 2.0).abs() < 0.03);
        assert!((exp_square / n - 8.0).abs() < 0.3);
        assert!((norm / n).abs() < 0.01);
        assert!((norm_square / n - 1.0).abs() < 0.02);
        assert!((norm_fourth / n - 3.0).abs() < 0.15);
    }
}
