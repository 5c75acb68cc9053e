//! One hash of a five-tuple, the same on every machine and in every run.
//!
//! A randomly seeded hash would make runs differ, and the standard one costs more than the rest of
//! the meter. This one multiplies and rotates a word at a time; the last step folds the well-mixed
//! high bits over the low ones, because a hash table looks at both ends.

use core::net::IpAddr;

use crate::record::FlowKey;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 / golden ratio, odd

/// The hash of a key.
#[inline]
pub(crate) fn of(key: &FlowKey) -> u64 {
    let ports = u64::from(key.source_port) << 32
        | u64::from(key.destination_port) << 16
        | u64::from(key.protocol);
    let mixed = match (key.source, key.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            mix(ports, u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()))
        }
        (source, destination) => {
            let (source, destination) = (wide(source), wide(destination));
            [source >> 64, source, destination >> 64, destination]
                .into_iter()
                .fold(ports, |hash, word| mix(hash, word as u64))
        }
    };
    let mixed = mix(mixed, MULTIPLIER);
    mixed ^ mixed >> 32
}

fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(29) ^ word).wrapping_mul(MULTIPLIER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TCP;
    use alloc::vec;
    use core::net::Ipv4Addr;

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
