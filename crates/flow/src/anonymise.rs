//! Prefix-preserving anonymisation of addresses: Crypto-PAn (Xu, Fan, Ammar and Moon, *Prefix-preserving IP
//! address anonymization*, ICNP 2002).
//!
//! Two addresses that agree in exactly their first k bits are mapped to two that agree in exactly k bits. So
//! networks stay networks, and estimates from pairs, ranks and prefixes do not change. It works bit by bit:
//! each bit is flipped or not by a function of the bits before it,
//!
//! ```text
//!   a'ᵢ = aᵢ ⊕ f(a₁ … aᵢ₋₁),   f(x) = the first bit of AES(x, filled up with secret padding)
//! ```
//!
//! which is therefore the same for all addresses of a prefix. One half of the key is the cipher's key; the
//! other half, encrypted, is the padding. The inputs for all bits of an address are known at once, and are
//! encrypted in parallel.
//!
//! IPv6 works the same way with 128 bits. No address is special: private, multicast and loopback addresses
//! may be mapped to any others, and IPv4 and IPv6 are independent of each other.
//!
//! **What it does not hide.** The mapping is one to one and the same in all records under a key. An attacker
//! who can send traffic through the network, or knows some of its busiest hosts, learns the addresses that
//! share their prefixes, bit by bit. Ports, times, sizes and flags stay as they are.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use aes::Aes128;
use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockEncrypt, KeyInit};

use crate::FlowRecord;

/// Bytes of a key: those of the cipher, and those of the padding.
pub const KEY_BYTES: usize = 32;
/// Bits that are processed in parallel.
const ABREAST: usize = 32;

/// The mapping of one key.
pub struct CryptoPan {
    cipher: Aes128,
    padding: u128,
}

impl CryptoPan {
    /// The mapping of `key`: 16 bytes for the cipher, 16 for the padding.
    pub fn new(key: &[u8; KEY_BYTES]) -> CryptoPan {
        let (cipher, padding) = key.split_at(KEY_BYTES / 2);
        let cipher = Aes128::new(GenericArray::from_slice(cipher));
        let mut block = GenericArray::clone_from_slice(padding);
        cipher.encrypt_block(&mut block);
        CryptoPan { cipher, padding: u128::from_be_bytes(block.into()) }
    }

    /// The anonymised address, of the same family.
    pub fn address(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) => {
                let bits = u128::from(v4.to_bits()) << 96;
                Ipv4Addr::from_bits(v4.to_bits() ^ (self.flips(bits, 32) >> 96) as u32).into()
            }
            IpAddr::V6(v6) => {
                Ipv6Addr::from_bits(v6.to_bits() ^ self.flips(v6.to_bits(), 128)).into()
            }
        }
    }

    /// `record` with both addresses anonymised; all else is unchanged.
    pub fn record(&self, mut record: FlowRecord) -> FlowRecord {
        record.key.source = self.address(record.key.source);
        record.key.destination = self.address(record.key.destination);
        record
    }

    /// Which of the first `count` bits (a multiple of [`ABREAST`]) are flipped, the first one highest.
    fn flips(&self, bits: u128, count: usize) -> u128 {
        let mut flips = 0;
        for begin in (0..count).step_by(ABREAST) {
            let mut blocks = [GenericArray::from([0; 16]); ABREAST];
            for (at, block) in (begin..).zip(&mut blocks) {
                let rest = u128::MAX >> at;
                *block = ((bits & !rest) | (self.padding & rest)).to_be_bytes().into();
            }
            self.cipher.encrypt_blocks(&mut blocks);
            for (at, block) in (begin..).zip(&blocks) {
                flips |= u128::from(block[0] >> 7) << (127 - at);
            }
        }
        flips
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    /// The key of the sample that came with the authors' program.
    const SAMPLE: [u8; KEY_BYTES] = [
        21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131,
        121, 121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
    ];

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_are_those_of_the_authors_sample() {
        let pan = CryptoPan::new(&SAMPLE);
        // IPv4 from the sample, IPv6 from implementations that agree with each other.
        for (original, expected) in [
            ("128.11.68.132", "135.242.180.132"),
            ("129.118.74.4", "134.136.186.123"),
            ("152.163.225.39", "151.140.114.167"),
            ("192.102.249.13", "252.138.62.131"),
            ("192.41.57.43", "252.222.221.184"),
            ("205.188.147.153", "242.96.16.101"),
            ("205.188.248.25", "242.96.88.27"),
            ("24.0.250.221", "100.15.198.226"),
            ("38.15.67.68", "64.3.66.187"),
            ("4.3.88.225", "124.60.155.63"),
            ("64.39.15.238", "0.219.7.41"),
            ("10.185.25.118", "117.161.29.118"),
            ("::1", "78ff:f001:9fc0:20df:8380:b1f1:704:ed"),
            ("::ffff", "78ff:f001:9fc0:20df:8380:b1f1:704:f838"),
            ("2001:db8::1", "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e"),
        ] {
            assert_eq!(pan.address(address(original)), address(expected), "{original}");
        }
    }

    /// An address as text of bits, the first bit first.
    fn bits(of: IpAddr) -> String {
        match of {
            IpAddr::V4(v4) => format!("{:032b}", v4.to_bits()),
            IpAddr::V6(v6) => format!("{:0128b}", v6.to_bits()),
        }
    }

    fn common(one: IpAddr, two: IpAddr) -> usize {
        let (one, two) = (bits(one), bits(two));
        one.chars().zip(two.chars()).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn prefixes_are_kept_to_the_bit_under_every_key() {
        // Weyl's sequence: cheap, and no bit of it repeats.
        let mut state = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835_u128;
        let mut next = || {
            state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
            state ^ (state >> 61)
        };
        for _ in 0..20 {
            let key: Vec<u8> = (0..KEY_BYTES).map(|_| (next() >> 64) as u8).collect();
            let pan = CryptoPan::new(key[..].try_into().expect("32 bytes"));
            for round in 0..200 {
                let (one, kept) = (next(), next() % 129);
                // Two addresses that agree in about `kept` bits.
                let two = one ^ (u128::MAX.checked_shr(kept as u32).unwrap_or(0) & next());
                let (one, two): (IpAddr, IpAddr) = if round % 2 == 0 {
                    (Ipv6Addr::from_bits(one).into(), Ipv6Addr::from_bits(two).into())
                } else {
                    let v4 = |bits: u128| Ipv4Addr::from_bits((bits >> 96) as u32).into();
                    (v4(one), v4(two))
                };
                let (mapped_one, mapped_two) = (pan.address(one), pan.address(two));
                assert_eq!(common(one, two), common(mapped_one, mapped_two), "{one} {two}");
                assert_eq!(one == two, mapped_one == mapped_two);
                assert_eq!(one.is_ipv4(), mapped_one.is_ipv4());
            }
        }
    }

    /// Bit by bit as in the paper, a block at a time.
    #[test]
    fn side_by_side_is_as_bit_by_bit() {
        let pan = CryptoPan::new(&SAMPLE);
        let padding = format!("{:0128b}", pan.padding);
        for original in
            ["0.0.0.0", "255.255.255.255", "198.51.100.77", "::", "2001:db8:1:2:3:4:5:6"]
        {
            let original = address(original);
            let (plain, mapped) = (bits(original), bits(pan.address(original)));
            for at in 0..plain.len() {
                let input = format!("{}{}", &plain[..at], &padding[at..]);
                let input = u128::from_str_radix(&input, 2).expect("bits");
                let mut block = GenericArray::from(input.to_be_bytes());
                pan.cipher.encrypt_block(&mut block);
                let is_flipped = plain[at..=at] != mapped[at..=at];
                assert_eq!(is_flipped, block[0] >= 128, "{original}, bit {at}");
            }
        }
    }
}
