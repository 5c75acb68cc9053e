//! Addresses to look up in tables, drawn so that any language can reproduce them.
//!
//! splitmix64 (Steele, Lea and Flood 2014) is three lines everywhere, so that the peer written in C
//! and the script that checks a sum draw the same addresses as we do.

use nilometer_router::{Address, Prefix};

/// Addresses of a set, and of a checksum.
pub const ADDRESSES: usize = 1 << 20;
/// Seed of the random addresses.
pub const RANDOM_SEED: u64 = 1;
/// Seed of the addresses that are drawn from prefixes.
pub const DRAWN_SEED: u64 = 2;
/// Addresses that are looked up in one call, as many as a driver delivers at once.
pub const BURST: usize = 64;

/// The generator splitmix64.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next 64 bits.
    pub fn output(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// An address that can be drawn.
pub trait Drawn: Address {
    /// Any of all addresses.
    fn any(stream: &mut SplitMix64) -> Self;

    /// The bits of `prefix`, and behind them those of `host`.
    fn within(prefix: Prefix<Self>, host: Self) -> Self;
}

impl Drawn for u32 {
    fn any(stream: &mut SplitMix64) -> u32 {
        (stream.output() >> 32) as u32
    }

    fn within(prefix: Prefix<u32>, host: u32) -> u32 {
        prefix.address() | u32::MAX.checked_shr(prefix.length()).unwrap_or(0) & host
    }
}

impl Drawn for u128 {
    fn any(stream: &mut SplitMix64) -> u128 {
        let high = stream.output();
        u128::from(high) << 64 | u128::from(stream.output())
    }

    fn within(prefix: Prefix<u128>, host: u128) -> u128 {
        prefix.address() | u128::MAX.checked_shr(prefix.length()).unwrap_or(0) & host
    }
}

/// Uniform addresses.
pub fn random<A: Drawn>() -> Vec<A> {
    let mut stream = SplitMix64::new(RANDOM_SEED);
    (0..ADDRESSES).map(|_| A::any(&mut stream)).collect()
}

/// Addresses of uniform prefixes with uniform host bits.
pub fn drawn<A: Drawn>(prefixes: &[Prefix<A>]) -> Vec<A> {
    let mut stream = SplitMix64::new(DRAWN_SEED);
    let one = |_| {
        let fraction = u128::from(stream.output());
        let number = (fraction * prefixes.len() as u128) >> 64;
        A::within(prefixes[number as usize], A::any(&mut stream))
    };
    (0..ADDRESSES).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of seed 1234567 as the generator's authors give them.
    #[test]
    fn the_generator_is_the_published_one() {
        let mut stream = SplitMix64::new(1_234_567);
        let outputs: [u64; 3] = std::array::from_fn(|_| stream.output());
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!(outputs[..2], published);
        assert_eq!(outputs[2], 9_817_491_932_198_370_423);
    }

    #[test]
    fn drawn_addresses_stay_in_their_prefixes() {
        let prefixes = ["10.0.0.0/8", "0.0.0.0/0", "1.2.3.4/32"];
        let prefixes: Vec<Prefix<u32>> =
            prefixes.iter().map(|text| text.parse().expect(text)).collect();
        for prefix in prefixes {
            assert!(drawn(&[prefix]).into_iter().all(|address| prefix.contains(address)));
        }
        assert_eq!(<u32 as Drawn>::within("1.2.3.0/24".parse().expect("sound"), 0xffff_ff07), {
            0x0102_0307
        });
    }
}
