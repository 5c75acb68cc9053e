//! Two hashes of a five-tuple: one for tables in memory, and one that is stable across runs.
//!
//! A flow's place in a table must be unpredictable. Otherwise an attacker could send packets whose flows all
//! collide, and finding one of them would mean walking past all others; so that hash ([`Hashing`]) has a
//! random key in every table. No output depends on it: flows leave in orders of their own.
//!
//! Where records are partitioned among files or workers, the partition must not change. That hash (`of`) is the
//! same on every machine and in every run. It multiplies and rotates a word at a time; the last step folds the
//! well-mixed high bits over the low ones.

use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;

use foldhash::quality::RandomState;
use nilometer_wire::brief::Tuple;

use crate::record::FlowKey;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 / golden ratio, odd

/// The hash of one table.
#[derive(Clone, Debug, Default)]
pub struct Hashing(RandomState);

impl Hashing {
    /// The hash of a key.
    #[inline]
    pub fn of(&self, key: &FlowKey) -> u64 {
        match words(key) {
            (ports, Addresses::Both(both)) => self.of_words(ports, [both]),
            (ports, Addresses::Four(words)) => self.of_words(ports, words),
        }
    }

    /// The hash of a key given in words.
    #[inline(always)]
    pub(crate) fn of_tuple(&self, tuple: &Tuple) -> u64 {
        let (ports, words) = (tuple.ports_and_protocol(), tuple.address_words());
        if tuple.is_ipv4() { self.of_words(ports, [words[0]]) } else { self.of_words(ports, words) }
    }

    /// The hash of a word.
    #[inline]
    pub(crate) fn of_word(&self, word: u128) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write_u128(word);
        hasher.finish()
    }

    #[inline(always)]
    fn of_words<const N: usize>(&self, ports: u64, addresses: [u64; N]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write_u64(ports);
        addresses.into_iter().for_each(|word| hasher.write_u64(word));
        hasher.finish()
    }
}

impl FlowKey {
    /// A hash that is the same on every machine and in every run, well mixed in all its bits.
    pub fn hash_word(&self) -> u64 {
        of(self)
    }
}

/// The stable hash of a key.
#[inline]
pub(crate) fn of(key: &FlowKey) -> u64 {
    let mixed = match words(key) {
        (ports, Addresses::Both(both)) => mix(ports, both),
        (ports, Addresses::Four(words)) => words.into_iter().fold(ports, mix),
    };
    let mixed = mix(mixed, MULTIPLIER);
    mixed ^ mixed >> 32
}

/// Addresses in words: two of IPv4 are one.
enum Addresses {
    Both(u64),
    Four([u64; 4]),
}

#[inline]
fn words(key: &FlowKey) -> (u64, Addresses) {
    let ports = u64::from(key.source_port) << 32
        | u64::from(key.destination_port) << 16
        | u64::from(key.protocol);
    let addresses = match (key.source, key.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let both = u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits());
            Addresses::Both(both)
        }
        (source, destination) => {
            let (source, destination) = (wide(source), wide(destination));
            let words = [source >> 64, source, destination >> 64, destination];
            Addresses::Four(words.map(|word| word as u64))
        }
    };
    (ports, addresses)
}

fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(29) ^ word).wrapping_mul(MULTIPLIER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{key_of, key_of_tuple};
    use crate::record::TCP;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;
    use nilometer_wire::brief::Brief;
    use nilometer_wire::packet::{Fragment, IpPacket, Transport};

    #[test]
    fn a_tuple_is_its_key_and_has_its_hash() {
        let addresses: [IpAddr; 4] = ["0.0.0.0", "198.18.0.1", "::c612:1", "2001:db8::1:2"]
            .map(|address| address.parse().unwrap());
        for source in addresses {
            for destination in addresses {
                let packet = IpPacket {
                    source,
                    destination,
                    protocol: 255,
                    traffic_class: 0,
                    hop_limit: 0,
                    ip_bytes: 20,
                    fragment: Fragment::Whole,
                    transport: Transport::Sctp { source_port: u16::MAX, destination_port: 1 },
                    encapsulated: false,
                };
                let (key, tuple) = (key_of(&packet), Brief::of(&packet).tuple);
                assert_eq!(key_of_tuple(&tuple), key);
                let hashing = Hashing::default();
                assert_eq!(hashing.of_tuple(&tuple), hashing.of(&key));
            }
        }
    }

    #[test]
    fn neighbouring_keys_spread_over_both_ends_of_both_hashes() {
        spread(of);
        let hashing = Hashing::default();
        spread(|key| hashing.of(key));
    }

    /// Keys chosen to collide under the public stable hash do not collide in a table.
    #[test]
    fn hash_collisions_in_the_table_cannot_be_predicted() {
        let key = |ports: u32| {
            let key = FlowKey {
                source: Ipv4Addr::UNSPECIFIED.into(),
                destination: Ipv4Addr::UNSPECIFIED.into(),
                source_port: (ports >> 16) as u16,
                destination_port: ports as u16,
                protocol: 17,
            };
            let both = words(&key).0.rotate_left(29) ^ 77;
            let address = |bits: u64| IpAddr::V4(Ipv4Addr::from_bits(bits as u32));
            FlowKey { source: address(both >> 32), destination: address(both), ..key }
        };
        let together: Vec<FlowKey> = (0..10_000).map(|n| key(n * 40_503)).collect();
        assert!(together.iter().all(|one| of(one) == of(&together[0])));
        let hashing = Hashing::default();
        let mut places: Vec<u64> = together.iter().map(|one| hashing.of(one) >> 44).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 9_800, "{} of 10,000", places.len());
    }

    fn spread(of: impl Fn(&FlowKey) -> u64) {
        let (mut low, mut high) = (vec![0u32; 4_096], vec![0u32; 128]);
        for host in 0..256u32 {
            for port in 0..256u16 {
                let key = FlowKey {
                    source: Ipv4Addr::from_bits(0xc612_0000 + host).into(),
                    destination: Ipv4Addr::new(198, 19, 0, 1).into(),
                    source_port: 32_768 + port,
                    destination_port: 80,
                    protocol: TCP,
                };
                low[(of(&key) & 0xfff) as usize] += 1;
                high[(of(&key) >> 57) as usize] += 1;
            }
        }
        // 65,536 keys: 16 and 512 a bucket expected, Poisson; eight standard deviations allowed, since one of
        // these hashes differs in every run.
        assert!(low.iter().all(|&count| count <= 16 + 8 * 4), "{:?}", low.iter().max());
        assert!(high.iter().all(|&count| count.abs_diff(512) <= 8 * 23), "{high:?}");
    }

    /// The stable hash of a key never changes: records partitioned by it are found again.
    #[test]
    fn the_hash_of_a_key_is_the_same_for_good() {
        let key = |source: &str, destination: &str| FlowKey {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: 4_000,
            destination_port: 443,
            protocol: TCP,
        };
        let four = key("198.18.0.1", "198.19.0.2");
        let six = key("2001:db8::1", "2001:db8:1::2");
        let hashes = [four, four.reversed(), six, six.reversed()].map(|key| key.hash_word());
        let wanted: [u64; 4] = [
            0xfa8c_5e07_9daf_69c6,
            0xd792_833a_610c_95ad,
            0xa84c_b1e0_5cd9_3190,
            0xb5a7_b6d0_2771_845f,
        ];
        assert_eq!(hashes, wanted);
    }
}
