//! Files of flow-tools: those of the shared data with the records they were made to have, and by hand.

use std::fs;
use std::io::Read;

use flate2::read::ZlibDecoder;
use nilometer_flow::FlowRecord;
use nilometer_flow::counts::{Counts, Skip};
use nilometer_flow::flow_tools::{ByteOrder, Error, Header};

use crate::capture::shared;
use crate::hostile::Chance;

/// The result of a file: its header, its flows, its counts, and whether its zlib stream was whole.
pub fn decode(bytes: &[u8]) -> Result<(Header, Vec<FlowRecord>, Counts, bool), Error> {
    let header = Header::read(bytes)?;
    let (mut body, mut is_whole) = (bytes[header.header_bytes..].to_vec(), true);
    if header.is_compressed {
        let packed = std::mem::take(&mut body);
        // Bytes unpacked before the damage are kept.
        is_whole = ZlibDecoder::new(&packed[..]).take(4 << 20).read_to_end(&mut body).is_ok();
    }
    let (mut flows, mut counts) = (Vec::new(), Counts::default());
    let taken = header.decode(&body, &mut counts, &mut |flow| flows.push(flow));
    header.finish(&body[taken..], &mut counts);
    counts.assert_balanced();
    assert_eq!(counts.flows, flows.len() as u64);
    Ok((header, flows, counts, is_whole))
}

#[test]
fn files_have_the_records_they_were_made_to_have() {
    let Some(folder) = shared("files of flow-tools") else { return };
    let folder = folder.join("spark-netflow");
    // File, flows, packets and bytes, cut records, whether its stream is whole. The samples count
    // 1 to 1,000 packets; the sums of the others are those of an independent reading of the bytes.
    let thousand = (1_000, 500_500, 500_500, 0, true);
    let table = [
        ("correct/ftv5.2016-01-13.nocompress.bigend.sample", thousand),
        ("correct/ftv5.2016-01-13.compress.9.sample", thousand),
        ("correct/ftv7.2016-02-14.nocompress.bigend.sample", thousand),
        ("correct/ftv7.2016-02-14.compress.9.bigend.sample", thousand),
        ("correct/ftv7.2016-02-14.compress.9.litend.sample", thousand),
        ("anomaly/ftv5.2016-03-15.nocompress.bigend.empty", (0, 0, 0, 0, true)),
        ("anomaly/ftv5.2016-03-15.compress2.bigend.empty", (0, 0, 0, 0, true)),
        ("anomaly/ftv5.2016-03-15.compress9.bigend.empty", (0, 0, 0, 0, true)),
        ("anomaly/ftv5.2016-03-15.compress9.bigend.records1", (1, 1, 1, 0, true)),
        ("anomaly/ftv5.2016-04-09.compress9.large-byte-start", (1_000, 8_247, 3_626_458, 0, true)),
        ("corrupt/ftv5.2016-01-13.compress.9.sample-00", (553, 153_181, 153_181, 1, false)),
    ];
    for (name, expected) in table {
        let (_, flows, counts, is_whole) = decode(&fs::read(folder.join(name)).unwrap()).unwrap();
        let packets: u64 = flows.iter().map(|flow| flow.packets).sum();
        let octets: u64 = flows.iter().map(|flow| flow.octets).sum();
        let cut = counts.skips.of(Skip::RecordDamaged);
        assert_eq!((counts.flows, packets, octets, cut, is_whole), expected, "{name}");
    }
    let half = fs::read(folder.join("corrupt/ftv5.2016-01-13.compress.9.sample-01")).unwrap();
    assert_eq!(decode(&half).unwrap_err(), Error::Magic);
}

#[test]
fn both_byte_orders_and_compressions_decode_alike() {
    let Some(folder) = shared("files of flow-tools") else { return };
    let flows = |name: &str| {
        decode(&fs::read(folder.join("spark-netflow/correct").join(name)).unwrap()).unwrap().1
    };
    let plain = flows("ftv7.2016-02-14.nocompress.bigend.sample");
    // The three files were generated separately, each at its own moment: all but the times is equal.
    let reported = |flows: &[FlowRecord]| -> Vec<_> {
        flows.iter().map(|flow| (flow.key, flow.packets, flow.octets, flow.tcp_flags)).collect()
    };
    for other in ["compress.9.bigend", "compress.9.litend"] {
        let other = flows(&format!("ftv7.2016-02-14.{other}.sample"));
        assert_eq!(reported(&other), reported(&plain));
    }
}

/// A file: fields of the header, then a body.
fn file(order: ByteOrder, fields: &[(u16, &[u8])], body: &[u8]) -> Vec<u8> {
    let short = |number: u16| match order {
        ByteOrder::Little => number.to_le_bytes(),
        ByteOrder::Big => number.to_be_bytes(),
    };
    let mut reported = Vec::new();
    for (kind, value) in fields {
        reported.extend([short(*kind), short(value.len() as u16)].concat());
        reported.extend_from_slice(value);
    }
    let length = 8 + reported.len() as u32;
    let (number, length) = match order {
        ByteOrder::Little => (1, length.to_le_bytes()),
        ByteOrder::Big => (2, length.to_be_bytes()),
    };
    [&[0xcf, 0x10, number, 3][..], &length, &reported, body].concat()
}

/// Words of 32 bits, big-endian: the beginning of every record.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn every_version_has_its_size_and_places() {
    let v4 = |last| u32::from_be_bytes([10, 0, 0, last]);
    let common =
        words(&[1_700_000_000, 0, 90_000, v4(9), v4(1), v4(2), 0, 0, 7, 700, 60_000, 80_000]);
    let tail = [0x9c, 0x40, 0, 80, 6, 0, 0x1b, 0];
    for (version, bytes) in [(1u16, 60), (5, 64), (6, 72), (7, 68), (1005, 72)] {
        let mut record = [&common[..], &tail].concat();
        record.resize(bytes, 0);
        let body = [&record[..], &record, &record[..bytes - 1]].concat();
        let fields = [(2, &version.to_be_bytes()[..]), (10, &[0, 0, 0, 2])];
        let (header, flows, counts, _) = decode(&file(ByteOrder::Big, &fields, &body)).unwrap();
        assert_eq!((header.flows, counts.flows, counts.records), (Some(2), 2, 3));
        assert_eq!(counts.skips.of(Skip::RecordDamaged), 1, "the third is cut");
        let flow = &flows[1];
        assert_eq!(
            (flow.key.source.to_string(), flow.key.source_port),
            ("10.0.0.1".into(), 40_000)
        );
        assert_eq!((flow.key.destination_port, flow.key.protocol, flow.tcp_flags), (80, 6, 0x1b));
        assert_eq!((flow.packets, flow.octets), (7, 700));
        let ages = [flow.start_ns, flow.end_ns].map(|ns| 1_700_000_000_000_000_000 - ns);
        assert_eq!(ages, [30_000_000_000, 10_000_000_000], "version {version}");
    }
}

#[test]
fn version_8_is_flows_by_one_method_alone() {
    let v4 = |last| u32::from_be_bytes([10, 0, 0, last]);
    let full =
        words(&[1_700_000_000, 0, 90_000, v4(9), 7, 700, 60_000, 80_000, v4(2), v4(1), 0, 0]);
    let full = [&full[..], &[0, 80, 0x9c, 0x40, 0, 1, 0, 2, 0, 0, 0, 0, 6, 0, 0, 0]].concat();
    let fields = |method| [(2, vec![0, 8]), (4, vec![method])];
    let decode_8 = |method, body: &[u8]| {
        let reported = fields(method);
        let reported: Vec<_> = reported.iter().map(|(kind, value)| (*kind, &value[..])).collect();
        decode(&file(ByteOrder::Big, &reported, body))
    };
    let (_, flows, counts, _) = decode_8(8, &full).unwrap();
    assert_eq!((counts.flows, flows[0].packets, flows[0].octets), (1, 7, 700));
    assert_eq!(flows[0].key.source.to_string(), "10.0.0.1");
    assert_eq!((flows[0].key.source_port, flows[0].key.destination_port), (40_000, 80));
    assert_eq!(flows[0].end_ns - flows[0].start_ns, 20_000_000_000);
    for (method, bytes) in [(1, 48), (5, 56), (6, 52), (7, 56), (9, 48), (13, 60), (14, 60)] {
        let (_, flows, counts, _) = decode_8(method, &vec![0; 3 * bytes]).unwrap();
        assert_eq!((flows.len(), counts.skips.of(Skip::Aggregate)), (0, 3), "method {method}");
    }
    assert_eq!(decode_8(15, &[]).unwrap_err(), Error::Records { version: 8, aggregation: 15 });
}

#[test]
fn foreign_files_are_refused_with_a_reason() {
    let good = file(ByteOrder::Little, &[(2, &[5, 0])], &[]);
    let changed = |at: usize, value| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Header::read(&bytes).unwrap_err()
    };
    assert_eq!((changed(1, 0), changed(2, 3)), (Error::Magic, Error::ByteOrder(3)));
    assert_eq!((changed(3, 1), changed(4, 7)), (Error::StreamVersion(1), Error::HeaderLength(7)));
    assert_eq!(changed(7, 1), Error::HeaderLength(1 << 24 | 14));
    assert_eq!(changed(12, 4), Error::Records { version: 4, aggregation: 0 });
    for kept in 0..good.len() {
        let needed_bytes = if kept < 8 { 8 } else { 14 };
        let cut = Error::Cut { needed_bytes, found_bytes: kept };
        assert_eq!(Header::read(&good[..kept]).unwrap_err(), cut);
    }
    assert!(Error::Records { version: 4, aggregation: 0 }.to_string().contains("version 4"));
}

/// Files of both byte orders and several versions, to be damaged.
pub fn bases() -> Vec<Vec<u8>> {
    let body: Vec<u8> = (0..400).map(|n| n as u8).collect();
    vec![
        file(ByteOrder::Little, &[(2, &[5, 0]), (8, &[8, 0, 0, 0]), (15, b"router\0")], &body),
        file(ByteOrder::Big, &[(2, &[0, 8]), (4, &[8]), (8, &[0, 0, 0, 0])], &body),
        file(ByteOrder::Big, &[(2, &[0, 7]), (8, &[0, 0, 0, 2])], &body),
    ]
}

#[test]
fn mutated_files_balance() {
    let bases = bases();
    let mut chance = Chance(17);
    for round in 0..60_000 {
        let bytes = chance.mutate(&bases[round % bases.len()]);
        if let Ok((_, flows, _, _)) = decode(&bytes) {
            assert!(flows.len() * 48 <= bytes.len());
        }
    }
}
