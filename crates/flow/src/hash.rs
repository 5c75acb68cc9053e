//! One hash of a five-tuple, the same on every machine and in every run.
//!
//! A randomly seeded hash would make runs differ, and the standard one costs more than the rest of
//! the meter. This one multiplies and rotates a word at a time; the last step folds the well-mixed
//! high bits over the low ones, because a hash table looks at both ends.

use core::net::IpAddr;

use nilometer_wire::brief::Tuple;

use crate::record::FlowKey;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 / golden ratio, odd

/// The hash of a key.
#[inline]
pub(crate) fn of(key: &FlowKey) -> u64 {
    let ports = u64::from(key.source_port) << 32
        | u64::from(key.destination_port) << 16
        | u64::from(key.protocol);
    match (key.source, key.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let both = u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits());
            of_words(ports, [both])
        }
        (source, destination) => {
            let (source, destination) = (wide(source), wide(destination));
            let words = [source >> 64, source, destination >> 64, destination];
            of_words(ports, words.map(|word| word as u64))
        }
    }
}

/// The hash of a key that is given in words.
#[inline]
pub(crate) fn of_tuple(tuple: &Tuple) -> u64 {
    let ports = tuple.ports_and_protocol();
    let words = tuple.address_words();
    if tuple.is_ipv4() { of_words(ports, [words[0]]) } else { of_words(ports, words) }
}

#[inline]
fn of_words<const N: usize>(ports: u64, addresses: [u64; N]) -> u64 {
    let mixed = addresses.into_iter().fold(ports, mix);
    let mixed = mix(mixed, MULTIPLIER);
    mixed ^ mixed >> 32
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
                assert_eq!(of_tuple(&tuple), of(&key));
            }
        }
    }

    #[test]
    fn neighbouring_keys_spread_over_both_ends_of_the_hash() {
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
        // 65,536 keys: 16 and 512 a bucket expected, Poisson; five standard deviations allowed.
        assert!(low.iter().all(|&count| count <= 16 + 5 * 4), "{:?}", low.iter().max());
        assert!(high.iter().all(|&count| count.abs_diff(512) <= 5 * 23), "{high:?}");
    }
}
