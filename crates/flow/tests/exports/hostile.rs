//! Damage: datagrams and files changed at random never break a decoder, and its counts balance.
//!
//! Bases are made here and, where the shared data is present, taken from real exporters. A
//! decoder's memory is limited; the number of records is limited by the bytes that announced them.

use nilometer_flow::counts::Counts;
use nilometer_flow::template::{Limits, Session};
use nilometer_flow::{netflow5, netflow7};

use crate::capture::{shared, somebody};
use crate::template::{iana, ipfix, options, options_v9, set, template, v9};

/// A small generator with a seed: xorshift (Marsaglia 2003).
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    /// A few changes: bytes set, words set to the values where decoders err, a cut, a doubling.
    pub fn mutate(&mut self, base: &[u8]) -> Vec<u8> {
        const EDGES: [u16; 10] = [0, 1, 2, 3, 4, 5, 255, 256, 0xfffe, 0xffff];
        let mut bytes = base.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len());
            match self.below(8) {
                0 => bytes.truncate(at),
                1 => bytes.extend_from_within(at..),
                2 | 3 if bytes.len() > at + 1 => {
                    let edge = EDGES[self.below(EDGES.len())];
                    bytes[at..at + 2].copy_from_slice(&edge.to_be_bytes());
                }
                _ if !bytes.is_empty() => bytes[at] = self.below(256) as u8,
                _ => {}
            }
        }
        bytes
    }
}

/// Datagrams of version 9 and IPFIX with everything in them.
pub fn described() -> Vec<Vec<u8>> {
    let of = [iana(8, 4), iana(12, 4), iana(2, 4), iana(1, 4), iana(22, 4), iana(21, 4)];
    let reverse = [(1, 4, Some(29_305)), (2, 4, Some(29_305)), (82, 0xffff, None), iana(48, 1)];
    let wide = [&of[..], &reverse, &[iana(27, 16), iana(28, 16), iana(4, 1)]].concat();
    let reported = [iana(48, 1), iana(50, 4), iana(160, 8)];
    let body: Vec<u8> = (0..240).map(|n| (n % 7) as u8).collect();
    vec![
        v9(1, 0, &[set(0, &template(256, &of)), set(256, &body[..72]), set(257, &body[..50])]),
        v9(2, 0, &[set(1, &options_v9(258, &[iana(1, 4)], &reported)), set(258, &body[..34])]),
        v9(3, 0, &[set(0, &template(257, &wide[..8])), set(257, &body)]),
        ipfix(0, 0, &[set(2, &template(256, &wide)), set(256, &body), set(259, &body)]),
        ipfix(9, 0, &[set(3, &options(258, &[iana(149, 4)], &reported)), set(258, &body[..51])]),
        ipfix(9, 0, &[set(2, &[0, 2, 0, 0]), set(3, &[1, 2, 0, 0]), set(256, &body)]),
    ]
}

/// Limits that mutated templates reach.
pub const NARROW: Limits = Limits {
    domains_max: 20,
    domains_of_address_max: 15,
    templates_max: 50,
    templates_of_address_max: 30,
    fields_max: 40,
    held_bytes_max: 5_000,
};

#[test]
fn mutated_templates_and_records_balance() {
    let mut bases = described();
    if let Some(folder) = shared("mutations of real NetFlow v9 and IPFIX") {
        for entry in std::fs::read_dir(folder.join("logstash-codec-netflow")).unwrap() {
            bases.push(std::fs::read(entry.unwrap().path()).unwrap());
        }
    }
    let mut chance = Chance(7);
    for _ in 0..2_000 {
        let (mut session, mut counts) = (Session::new(NARROW), Counts::default());
        let (mut given, mut bytes) = (0, 0);
        for _ in 0..100 {
            let base = chance.below(bases.len());
            let datagram = chance.mutate(&bases[base]);
            bytes += datagram.len() as u64;
            let out = &mut |record: nilometer_flow::FlowRecord| {
                assert!(record.end_ns >= record.start_ns);
                given += 1;
            };
            let taken = session.receive(somebody(), &datagram, &mut counts, out);
            counts.malformed += u64::from(taken.is_err());
            counts.assert_balanced();
            assert!(counts.bytes.held <= 5_000 && session.domains() <= 20);
        }
        session.finish(&mut counts);
        counts.assert_balanced();
        assert_eq!((counts.given(), counts.datagrams + counts.malformed), (given, 100));
        assert!(counts.records <= bytes && counts.bytes.taken <= bytes);
    }
}

#[test]
fn mutated_fixed_datagrams_give_all_or_nothing() {
    let mut five = vec![0, 5, 0, 3];
    five.extend((0..20 + 3 * netflow5::RECORD_BYTES).map(|n| n as u8));
    let mut seven = vec![0, 7, 0, 3];
    seven.extend((0..20 + 3 * netflow7::RECORD_BYTES).map(|n| n as u8));
    let mut chance = Chance(11);
    for _ in 0..100_000 {
        let mut given = 0;
        let datagram = chance.mutate(&five);
        let taken = netflow5::decode_each(&datagram, &mut |_| given += 1);
        let whole = given * 48 + 24 == datagram.len();
        assert!(taken.is_err() && given == 0 || whole);
        let mut given = 0;
        let datagram = chance.mutate(&seven);
        let taken = netflow7::decode_each(&datagram, &mut |_| given += 1);
        assert!(taken.is_err() && given == 0 || given * 52 + 24 == datagram.len());
    }
}
