//! The compiled plan against a naive twin, which walks every field of every record by the template.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nilometer_flow::FlowRecord;
use nilometer_flow::counts::Counts;
use nilometer_flow::template::{Limits, Session};

use crate::capture::somebody;
use crate::hostile::Chance;
use crate::template::{Field, iana, ipfix, set, template, v9};

const VARIABLE: u16 = 0xffff;

/// Elements and the lengths that they come in.
const ELEMENTS: [(u16, &[u16]); 19] = [
    (8, &[4]),
    (12, &[4]),
    (27, &[16]),
    (28, &[16]),
    (7, &[2]),
    (11, &[2]),
    (4, &[1]),
    (6, &[1, 2]),
    (1, &[1, 3, 4, 8]),
    (2, &[2, 4, 5, 8]),
    (85, &[4, 8]),
    (86, &[4, 8]),
    (23, &[4, 8]),
    (24, &[4]),
    (34, &[4]),
    (136, &[1]),
    (56, &[6]),
    (82, &[VARIABLE, 32]),
    (210, &[0, 3]),
];

/// A record's fields, each element's last occurrence.
type Read = BTreeMap<u16, Vec<u8>>;

/// One record of this template, and its fields.
fn record(chance: &mut Chance, of: &[Field]) -> (Vec<u8>, Read) {
    let (mut bytes, mut read) = (Vec::new(), Read::new());
    for (element, length, _) in of {
        let mut length = usize::from(*length);
        if length == usize::from(VARIABLE) {
            length = chance.below(300);
            if length < 255 && chance.below(4) > 0 {
                bytes.push(length as u8);
            } else {
                bytes.extend([255, (length >> 8) as u8, length as u8]);
            }
        }
        // Often zero, so that both absent and zero values occur.
        let is_zero = chance.below(4) == 0;
        let value: Vec<u8> =
            (0..length).map(|_| if is_zero { 0 } else { chance.below(256) as u8 }).collect();
        bytes.extend(&value);
        read.insert(*element, value);
    }
    (bytes, read)
}

fn number(read: &Read, elements: &[u16]) -> u64 {
    let value = elements.iter().find_map(|element| read.get(element));
    value.map_or(0, |value| value.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn address(read: &Read, four: u16, six: u16, is_six: bool) -> IpAddr {
    if is_six {
        IpAddr::from(<[u8; 16]>::try_from(&read[&six][..]).unwrap())
    } else {
        IpAddr::from(<[u8; 4]>::try_from(&read.get(&four).unwrap_or(&vec![0; 4])[..]).unwrap())
    }
}

/// Checks the engine's flow for a record, except for its times.
fn agrees(flow: &FlowRecord, read: &Read) {
    let has_six = read.contains_key(&27) && read.contains_key(&28);
    let is_six = has_six && number(read, &[8]) == 0 && number(read, &[12]) == 0;
    assert_eq!(flow.key.source, address(read, 8, 27, is_six));
    assert_eq!(flow.key.destination, address(read, 12, 28, is_six));
    let protocol = number(read, &[4]) as u8;
    assert_eq!(flow.key.protocol, protocol);
    if [6, 17, 132].contains(&protocol) || !read.contains_key(&4) {
        assert_eq!(u64::from(flow.key.source_port), number(read, &[7]));
        assert_eq!(u64::from(flow.key.destination_port), number(read, &[11]));
    } else {
        assert_eq!((flow.key.source_port, flow.key.destination_port), (0, 0));
    }
    assert_eq!(flow.octets, number(read, &[1, 85, 23]));
    assert_eq!(flow.packets, number(read, &[2, 86, 24]));
    assert_eq!(u64::from(flow.tcp_flags), number(read, &[6]) & 0xff);
    assert_eq!(u64::from(flow.sampling_interval), number(read, &[34]));
    let reason = number(read, &[136]);
    assert_eq!(flow.end_reason as u64, if reason <= 5 { reason } else { 0 });
}

#[test]
fn records_decode_as_by_a_walk_through_every_field() {
    let mut chance = Chance(23);
    let mut compared = 0;
    for round in 0..5_000 {
        let number_of_fields = 3 + chance.below(16);
        let of: Vec<Field> = (0..number_of_fields)
            .map(|_| {
                let (element, lengths) = ELEMENTS[chance.below(ELEMENTS.len())];
                iana(element, lengths[chance.below(lengths.len())])
            })
            .collect();
        let least: usize =
            of.iter().map(|field| if field.1 == VARIABLE { 1 } else { field.1.into() }).sum();
        if least == 0 {
            continue;
        }
        let made: Vec<_> = (0..chance.below(6)).map(|_| record(&mut chance, &of)).collect();
        let body: Vec<u8> = made.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let (mut session, mut counts) = (Session::new(Limits::default()), Counts::default());
        let mut flows = Vec::new();
        let datagram = match round % 2 {
            0 => v9(1, 0, &[set(0, &template(256, &of)), set(256, &body)]),
            _ => ipfix(1, 0, &[set(2, &template(256, &of)), set(256, &body)]),
        };
        let out = &mut |flow| flows.push(flow);
        session.receive(somebody(), &datagram, &mut counts, out).unwrap();
        counts.assert_balanced();
        assert_eq!(counts.records, made.len() as u64, "{of:?}");
        let has = |element: u16| of.iter().any(|field| field.0 == element);
        let is_addressed = has(8) && has(12) || has(27) && has(28);
        let is_counted = [1, 2, 85, 86, 23, 24].into_iter().any(has);
        assert_eq!(flows.len(), if is_addressed && is_counted { made.len() } else { 0 }, "{of:?}");
        for (flow, (_, read)) in flows.iter().zip(&made) {
            agrees(flow, read);
            compared += 1;
        }
    }
    assert!(compared > 3_000, "{compared} compared");
}
