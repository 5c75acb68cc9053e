//! The hash of a packet's flow, by which one of several equal next hops is chosen: always the same.
//!
//! All fragments of a datagram must take one path (RFC 2991, 2), but only the first has ports. Any
//! fragment, the first too, is therefore hashed by its addresses alone. Ports of a flow and a flow
//! label (RFC 6438) say the same thing twice; where labels are trusted they stand in for ports and
//! protocol, and fragments need no exception. The choice itself is [`crate::next_hop`]'s.

use crate::header::{AnyKey, FRAGMENT, Header, Key};

/// The hash of a packet's flow under `seed`: each router has its own, lest successive routers make
/// the same choice (RFC 2991, 2; polarisation of flows). `flow_label` is IPv6's, if it shall count
/// and is not zero.
#[inline]
pub fn flow_hash(seed: u64, header: &Header, flow_label: Option<u32>) -> u64 {
    match (header.key, flow_label.filter(|label| *label != 0)) {
        (AnyKey::V4(key), None) => flow_hash_ipv4(seed, &key, header.notes),
        (AnyKey::V6(key), None) => flow_hash_ipv6(seed, &key, header.notes),
        (AnyKey::V4(key), Some(label)) => hashed(seed, of_ipv4(&key), labelled(label)),
        (AnyKey::V6(key), Some(label)) => hashed(seed, of_ipv6(seed, &key), labelled(label)),
    }
}

/// [`flow_hash`] of an IPv4 packet with these notes.
#[inline(always)]
pub(crate) fn flow_hash_ipv4(seed: u64, key: &Key<u32>, notes: u8) -> u64 {
    hashed(seed, of_ipv4(key), flow(key, notes))
}

/// [`flow_hash`] of an IPv6 packet with these notes.
#[inline]
pub(crate) fn flow_hash_ipv6(seed: u64, key: &Key<u128>, notes: u8) -> u64 {
    hashed(seed, of_ipv6(seed, key), flow(key, notes))
}

#[inline(always)]
fn hashed(seed: u64, addresses: u64, flow: u64) -> u64 {
    mixed(mixed(seed ^ 0x9e37_79b9_7f4a_7c15, addresses), flow)
}

#[inline(always)]
fn of_ipv4(key: &Key<u32>) -> u64 {
    u64::from(key.source) << 32 | u64::from(key.destination)
}

#[inline]
fn of_ipv6(seed: u64, key: &Key<u128>) -> u64 {
    let halves = |address: u128| ((address >> 64) as u64, address as u64);
    let (from, to) = (halves(key.source), halves(key.destination));
    let source = mixed(seed ^ from.0, from.1);
    mixed(source ^ to.0, to.1)
}

/// Protocol and ports, of unfragmented packets.
#[inline(always)]
fn flow<A>(key: &Key<A>, notes: u8) -> u64 {
    let ports = u64::from(key.source_port) << 16 | u64::from(key.destination_port);
    if notes & FRAGMENT != 0 { 0 } else { u64::from(key.protocol) << 32 | ports }
}

fn labelled(label: u32) -> u64 {
    1 << 48 | u64::from(label)
}

/// Two words become one: both halves of a product of 128 bits, in which every bit of each word has
/// a part. The constants are the fractions of the square roots of 2 and 3.
#[inline]
fn mixed(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x6a09_e667_f3bc_c909) * u128::from(b ^ 0xbb67_ae85_84ca_a73b);
    let folded = (product >> 64) as u64 ^ product as u64;
    // A product of few bits leaves a mark in few: once more, by an odd constant.
    let again = u128::from(folded) * 0x9fb2_1c65_1e98_df25_u128;
    (again >> 64) as u64 ^ again as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::LATER_FRAGMENT;
    use alloc::vec;
    use alloc::vec::Vec;

    /// The part of a range that a hash lies in.
    fn part(hash: u64, parts: u16) -> usize {
        (((hash >> 32) * u64::from(parts)) >> 32) as usize
    }

    fn header(key: AnyKey, notes: u8) -> Header {
        Header { key, ip_bytes: 40, transport_at: 20, traffic_class: 0, hop_limit: 9, notes }
    }

    /// Flows as they are: neighbouring addresses, neighbouring ports.
    fn flow(index: u32) -> Header {
        let key = Key {
            source: 0xc612_0000 + index % 61,
            destination: 0xc613_0000 + index / 61 % 53,
            source_port: 1024 + (index / (61 * 53)) as u16,
            destination_port: 80,
            protocol: 6,
            flags: 0,
        };
        header(AnyKey::V4(key), 0)
    }

    fn hashes(count: u32, seed: u64) -> Vec<u64> {
        (0..count).map(|index| flow_hash(seed, &flow(index), None)).collect()
    }

    /// The expected numbers come from another program that implements the same rule.
    #[test]
    fn a_flow_has_the_hash_of_its_rule() {
        let (source_port, destination_port, flags) = (1_000, 80, 2);
        let (source, destination) = (0xc612_0009, 0xc613_0109);
        let key = Key { source, destination, source_port, destination_port, protocol: 6, flags };
        let four = |notes| header(AnyKey::V4(key), notes);
        assert_eq!(flow_hash(7, &four(0), None), 0x6775_99b9_280e_c11c);
        assert_eq!(flow_hash(7, &four(FRAGMENT), None), 0x160e_2745_5796_0635);
        assert_eq!(flow_hash(7, &four(0), Some(0xabcde)), 0x5941_2b74_ab81_8448);
        let source = 0xfd00_u128 << 112 | 0x1234 << 64 | 9;
        let destination = 0xfd01_u128 << 112 | 0x77 << 64 | 1 << 63 | 1;
        let key = Key { source, destination, source_port, destination_port, protocol: 17, flags };
        let six = header(AnyKey::V6(key), 0);
        assert_eq!(flow_hash(7, &six, None), 0x1f4f_1f7e_dfac_6c33);
        assert_eq!(flow_hash(7, &six, Some(0xabcde)), 0x3259_d5cb_2f92_cc0c);
    }

    /// Chi-squared over the hops, within five standard deviations of what chance gives.
    fn assert_even(counts: &[u32], what: &str) {
        let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        let squared = counts.iter().map(|n| (f64::from(*n) - mean) * (f64::from(*n) - mean));
        let (chi, freedom) = (squared.sum::<f64>() / mean, counts.len() as f64 - 1.0);
        assert!((chi - freedom) * (chi - freedom) < 25.0 * 2.0 * freedom, "{what}: chi² {chi}");
    }

    #[test]
    fn flows_are_spread_evenly() {
        for seed in 0..8 {
            let hashes = hashes(100_000, seed);
            for hops in [2u16, 3, 5, 8, 16, 64, 256] {
                let mut counts = vec![0; usize::from(hops)];
                for hash in &hashes {
                    counts[part(*hash, hops)] += 1;
                }
                assert_even(&counts, &alloc::format!("seed {seed}, {hops} hops"));
            }
        }
    }

    #[test]
    fn ipv6_flows_and_labels_are_spread_evenly() {
        let mut counts = [vec![0; 16], vec![0; 16]];
        for index in 0..100_000u32 {
            let prefix = 0xfd00u128 << 112;
            let mut key = Key { source: prefix + u128::from(index % 251), ..Key::default() };
            key.destination = prefix + (u128::from(index / 251) << 64);
            let ports = flow_hash(3, &header(AnyKey::V6(key), 0), None);
            let label = flow_hash(3, &header(AnyKey::V6(Key::default()), 0), Some(index + 1));
            counts[0][part(ports, 16)] += 1;
            counts[1][part(label, 16)] += 1;
        }
        assert_even(&counts[0], "addresses");
        assert_even(&counts[1], "labels");
    }

    /// Of the flows that one router sends to one of two hops, the next sends half to each of its own.
    #[test]
    fn routers_in_a_row_choose_apart() {
        let (first, second) = (hashes(50_000, 1), hashes(50_000, 2));
        let mut counts = vec![0; 2];
        for (one, two) in first.iter().zip(&second).filter(|(one, _)| part(**one, 2) == 0) {
            assert_ne!(one, two);
            counts[part(*two, 2)] += 1;
        }
        assert_even(&counts, "the second router");
    }

    #[test]
    fn all_fragments_of_a_datagram_take_one_path() {
        let first = header(flow(7).key, FRAGMENT);
        let AnyKey::V4(key) = first.key else { unreachable!() };
        let bare = Key { source_port: 0, destination_port: 0, flags: 0, ..key };
        let later = header(AnyKey::V4(bare), FRAGMENT | LATER_FRAGMENT);
        assert_eq!(flow_hash(5, &first, None), flow_hash(5, &later, None));
        // Of IPv6, a later fragment may not even know its protocol.
        let key = Key { source: 1, destination: 2, source_port: 3, protocol: 17, ..Key::default() };
        let first = header(AnyKey::V6(key), FRAGMENT);
        let bare = Key { source_port: 0, protocol: 60, ..key };
        let later = header(AnyKey::V6(bare), FRAGMENT | LATER_FRAGMENT);
        assert_eq!(flow_hash(5, &first, None), flow_hash(5, &later, None));
        assert_eq!(flow_hash(5, &first, Some(9)), flow_hash(5, &later, Some(9)));
        assert_ne!(flow_hash(5, &first, Some(9)), flow_hash(5, &first, None));
        assert_eq!(flow_hash(5, &first, Some(0)), flow_hash(5, &first, None));
    }
}
