//! Where an export datagram ends, by its own bytes.
//!
//! A file may hold datagrams one after the other with nothing between them, as a listener wrote them.
//! NetFlow v5 and v7 state their number of records, IPFIX its length (files of it are made so: RFC
//! 5655, section 6), sFlow the number of its samples, each with a length. NetFlow v9 states neither;
//! but it is made of sets, and the identifiers of sets from 2 to 255 are reserved, so a number of 5, 7,
//! 9 or 10 where a set should begin is the version of the next datagram.
//!
//! The same walk checks whether a datagram of known length is whole and well-formed outside of its
//! records; few byte strings that are not exports pass this check.

use crate::bytes::{be16, be32};
use crate::collector::Format;
use crate::{netflow5, netflow7, template};

/// The longest datagram that UDP carries (RFC 768), and the longest IPFIX message.
pub const DATAGRAM_BYTES_MAX: usize = 65_535;

/// Where a datagram ends, according to its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// After this many bytes, which may be more than are there.
    Ends(usize),
    /// Unknown until this many bytes are there.
    Needs(usize),
    /// No datagram begins here.
    NoExport,
}

/// Where the datagram ends that begins with `first`. With `is_all`, there are no further bytes: bytes
/// still needed are then missing.
pub fn extent(first: &[u8], is_all: bool) -> Extent {
    if first.len() < 4 {
        return if first.is_empty() { Extent::NoExport } else { Extent::Needs(4) };
    }
    let counted = |most: usize, head: usize, each: usize| match usize::from(be16(first, 2)) {
        count if count <= most => Extent::Ends(head + count * each),
        _ => Extent::NoExport,
    };
    let found = match Format::of(first) {
        Some(Format::NetFlow5) => {
            counted(netflow5::RECORDS_MAX, netflow5::HEADER_BYTES, netflow5::RECORD_BYTES)
        }
        Some(Format::NetFlow7) => {
            counted(netflow7::RECORDS_MAX, netflow7::HEADER_BYTES, netflow7::RECORD_BYTES)
        }
        Some(Format::Ipfix) => match template::message_bytes(first) {
            Some(bytes) => Extent::Ends(bytes),
            None => Extent::NoExport,
        },
        Some(Format::NetFlow9) => of_sets(first, is_all),
        Some(Format::Sflow5) => of_samples(first),
        None => Extent::NoExport,
    };
    match found {
        Extent::Ends(bytes) | Extent::Needs(bytes) if bytes > DATAGRAM_BYTES_MAX => {
            Extent::NoExport
        }
        found => found,
    }
}

/// What a datagram is, if it is whole and its parts fill it; their content is not looked at.
pub fn well_formed(datagram: &[u8]) -> Option<Format> {
    let format = Format::of(datagram)?;
    let is_whole = extent(datagram, true) == Extent::Ends(datagram.len());
    let is_filled = match format {
        Format::Ipfix => fill(datagram.get(16..)?),
        Format::NetFlow9 => datagram.len() > 20,
        _ => true,
    };
    (is_whole && is_filled).then_some(format)
}

fn of_sets(first: &[u8], is_all: bool) -> Extent {
    let mut at = 20;
    loop {
        let Some(head) = first.get(at..at + 4) else {
            return match is_all {
                // Less than a set's header is padding.
                true if at <= first.len() => Extent::Ends(first.len()),
                true => Extent::Ends(at),
                false => Extent::Needs(at + 4),
            };
        };
        let (id, length) = (be16(head, 0), usize::from(be16(head, 2)));
        // Five bytes hold no template; they are the version of sFlow.
        let is_set = !(2..=255).contains(&id) && length >= 4 && (id, length) != (0, 5);
        match (is_set, id) {
            (true, _) => at += length,
            // A datagram has a set at least.
            (false, _) if at == 20 => return Extent::NoExport,
            (false, 0) if length != 5 => {
                let zeros = first[at..].iter().take_while(|byte| **byte == 0).count();
                return Extent::Ends(at + zeros);
            }
            (false, _) => return Extent::Ends(at),
        }
        if at > DATAGRAM_BYTES_MAX {
            return Extent::NoExport;
        }
    }
}

fn of_samples(first: &[u8]) -> Extent {
    let Some(kind) = first.get(4..8) else { return Extent::Needs(8) };
    let address_bytes = match be32(kind, 0) {
        1 => 4,
        2 => 16,
        _ => return Extent::NoExport,
    };
    let mut at = 24 + address_bytes;
    let Some(count) = first.get(at - 4..at) else { return Extent::Needs(at) };
    for _ in 0..be32(count, 0) {
        let Some(head) = first.get(at..at + 8) else { return Extent::Needs(at + 8) };
        at = at.saturating_add(8).saturating_add(be32(head, 4) as usize);
        if at > DATAGRAM_BYTES_MAX {
            return Extent::NoExport;
        }
    }
    Extent::Ends(at)
}

/// Do sets fill this body of a message, but for a rest too short for one?
fn fill(body: &[u8]) -> bool {
    let mut rest = body;
    while let Some((head, _)) = rest.split_at_checked(4) {
        let length = usize::from(be16(head, 2));
        match rest.get(length..) {
            Some(after) if length >= 4 && be16(head, 0) > 1 => rest = after,
            _ => return rest.iter().all(|byte| *byte == 0),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn nine(sets: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0, 9, 0, 1];
        bytes.resize(20, 7);
        bytes.extend(sets.concat());
        bytes
    }

    /// The lengths of the datagrams that a stream is cut into when bytes come one by one.
    fn cut(stream: &[u8]) -> Vec<usize> {
        let mut rest = stream;
        let mut lengths = Vec::new();
        while !rest.is_empty() {
            let mut there = 1;
            let bytes = loop {
                match extent(&rest[..there], there == rest.len()) {
                    Extent::Ends(bytes) => break bytes,
                    Extent::Needs(bytes) => {
                        assert!(bytes > there, "more is needed");
                        there = bytes.min(rest.len());
                        if bytes > rest.len() && extent(rest, true) == Extent::Needs(bytes) {
                            break bytes;
                        }
                    }
                    Extent::NoExport => return lengths,
                }
            };
            lengths.push(bytes);
            rest = &rest[bytes.min(rest.len())..];
        }
        lengths
    }

    #[test]
    fn a_stream_of_every_format_is_cut_where_datagrams_end() {
        let five = [&[0, 5, 0, 2][..], &[1; 20 + 96]].concat();
        let seven = [&[0, 7, 0, 1][..], &[1; 20 + 52]].concat();
        let set = [1, 0, 0, 8, 9, 9, 9, 9];
        let nine = nine(&[&[0, 0, 0, 8, 1, 0, 0, 0], &set]);
        let ten = [&[0, 10, 0, 24][..], &[1; 12], &set].concat();
        let mut sflow = vec![0, 0, 0, 5, 0, 0, 0, 1];
        sflow.extend([0; 16]);
        sflow.extend([0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 8, 8, 8, 8]);
        let all =
            [&five[..], &nine, &nine, &ten, &nine, &sflow, &nine, &seven, &nine, &five].concat();
        assert_eq!(cut(&all), [120, 36, 36, 24, 36, 40, 36, 76, 36, 120]);
        for datagram in [&five, &seven, &nine, &ten, &sflow] {
            assert_eq!(well_formed(datagram), Format::of(datagram));
            assert_eq!(well_formed(&datagram[..datagram.len() - 1]), None, "cut");
            let longer = [&datagram[..], &[1, 2, 3, 4, 5]].concat();
            assert_eq!(well_formed(&longer), None, "{:?} and more", Format::of(datagram));
        }
        assert_eq!(cut(&five[..100]), [120], "cut, and it says so");
        assert!(cut(b"GET / HTTP/1.1\r\n").is_empty());
    }

    #[test]
    fn zeros_behind_a_datagram_are_its_own() {
        let padded = nine(&[&[1, 0, 0, 8, 9, 9, 9, 9], &[0; 300]]);
        assert_eq!(extent(&padded, true), Extent::Ends(328));
        assert_eq!(extent(&nine(&[&[0; 40]]), true), Extent::NoExport, "nothing but zeros");
        assert_eq!(extent(&nine(&[&[0, 77, 0, 8]]), true), Extent::NoExport);
    }

    /// An agent's address has four bytes or sixteen, and its samples have their lengths.
    #[test]
    fn samples_are_cut_by_the_kind_of_their_agents_address() {
        let sflow = |kind: u8, address_bytes: usize, samples: &[usize]| {
            let mut bytes = vec![0, 0, 0, 5, 0, 0, 0, kind];
            bytes.resize(8 + address_bytes + 12, 3);
            bytes.extend([0, 0, 0, samples.len() as u8]);
            for &length in samples {
                bytes.extend([0, 0, 0, 1, 0, 0, (length >> 8) as u8, length as u8]);
                bytes.resize(bytes.len() + length, 9);
            }
            bytes
        };
        for (kind, address_bytes) in [(1, 4), (2, 16)] {
            for samples in [&[][..], &[0], &[4, 0, 300], &[65_000]] {
                let one = sflow(kind, address_bytes, samples);
                let bytes = 24 + address_bytes + samples.iter().map(|one| 8 + one).sum::<usize>();
                assert_eq!(one.len(), bytes);
                assert_eq!(cut(&[&one[..], &one].concat()), [bytes; 2], "{kind}: {samples:?}");
                assert_eq!(extent(&one[..7], false), Extent::Needs(8));
                assert_eq!(extent(&one[..8], false), Extent::Needs(24 + address_bytes));
            }
            let long = sflow(kind, address_bytes, &[65_000, 600]);
            assert_eq!(extent(&long, true), Extent::NoExport, "no datagram is so long");
        }
        for kind in [0, 3] {
            assert_eq!(extent(&sflow(kind, 4, &[4]), true), Extent::NoExport);
        }
    }
}
