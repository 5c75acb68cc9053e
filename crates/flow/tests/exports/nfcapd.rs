//! Files of nfcapd: those of the shared data against their own totals and nfdump's, and by hand.

use std::fs;

use nilometer_flow::FlowRecord;
use nilometer_flow::counts::{Counts, Skip};
use nilometer_flow::nfcapd::{BlockHeader, Blocks, Compression, Error, FileHeader, Layout, Totals};

use crate::capture::shared;
use crate::hostile::Chance;

/// The result of a file whose blocks are not compressed, and the totals its writer counted.
pub fn decode(bytes: &[u8]) -> Result<(Vec<FlowRecord>, Counts, Option<Totals>), Error> {
    let (mut flows, mut counts) = (Vec::new(), Counts::default());
    let mut blocks = Blocks::new(bytes)?;
    let file = *blocks.file();
    let mut totals = file.totals;
    for block in &mut blocks {
        let Ok((header, body, is_appendix)) = block else {
            counts.malformed += 1;
            continue;
        };
        if is_appendix {
            totals = totals.or(header.totals(body));
        } else if header.compression(&file, false) == Compression::None {
            header.decode(&file, body, &mut counts, &mut |flow| flows.push(flow));
        }
        counts.assert_balanced();
    }
    assert_eq!(counts.given(), flows.len() as u64);
    Ok((flows, counts, totals))
}

fn of_one(flows: &[FlowRecord]) -> Totals {
    Totals {
        flows: flows.len() as u64,
        octets: flows.iter().map(|flow| flow.octets).sum(),
        packets: flows.iter().map(|flow| flow.packets).sum(),
    }
}

#[test]
fn files_have_the_flows_that_nfdump_lists() {
    let Some(folder) = shared("files of nfcapd") else { return };
    // File, flows by nfdump 1.7.1, descriptions, and flows that end before they begin.
    let table = [
        ("nfdump/devtestdata/nfcapd.sample", 3_018, 2, 668),
        ("StratosphereLinuxIPS/test1-malicious.nfdump", 4_593, 4, 0),
        ("nfdump/testdata/nfcapd-empty", 0, 4, 0),
    ];
    for (name, flows_expected, options, reversed) in table {
        let (flows, counts, totals) = decode(&fs::read(folder.join(name)).unwrap()).unwrap();
        assert_eq!(of_one(&flows), totals.unwrap(), "{name}");
        assert_eq!((counts.flows, counts.options), (flows_expected, options), "{name}");
        assert_eq!((counts.skips.met().count(), counts.malformed), (0, 0), "{name}");
        assert_eq!(counts.times_reversed, reversed, "{name}");
    }
    let packed = fs::read(folder.join("nfdump/testdata/nfcapd-small-lzo")).unwrap();
    let file = FileHeader::read(&packed).unwrap();
    assert_eq!((file.compression, file.totals.unwrap().flows), (Compression::Lzo, 10));
    assert_eq!(Blocks::new(&packed).unwrap().filter(|block| block.is_ok()).count(), 1);
}

#[test]
fn the_first_flows_are_those_that_nfdump_prints() {
    let Some(folder) = shared("files of nfcapd") else { return };
    let read = |name| decode(&fs::read(folder.join(name)).unwrap()).unwrap().0;
    let flow = &read("nfdump/devtestdata/nfcapd.sample")[1];
    assert_eq!(
        (flow.start_ns, flow.end_ns),
        (1_674_671_743_894_000_000, 1_674_671_743_894_000_000)
    );
    assert_eq!((flow.key.source.to_string(), flow.key.source_port), ("35.186.224.25".into(), 443));
    assert_eq!((flow.key.protocol, flow.key.destination_port, flow.tcp_flags), (6, 33_560, 0x10));
    assert_eq!((flow.packets, flow.octets), (1, 52));
    let flow = &read("StratosphereLinuxIPS/test1-malicious.nfdump")[0];
    assert_eq!(
        (flow.start_ns, flow.end_ns),
        (1_515_771_450_942_000_000, 1_515_771_450_942_000_000)
    );
    assert_eq!(
        (flow.key.source.to_string(), flow.key.source_port),
        ("147.32.80.119".into(), 52_324)
    );
    assert_eq!((flow.key.destination.to_string(), flow.tcp_flags), ("147.32.82.62".into(), 2));
    assert_eq!((flow.key.destination_port, flow.packets, flow.octets), (902, 1, 60));
}

/// An element of layout 2.
fn element(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &(4 + body.len() as u16).to_le_bytes(), body].concat()
}

fn record(elements: &[Vec<u8>]) -> Vec<u8> {
    let body = elements.concat();
    let bytes = 12 + body.len() as u16;
    let head = [11, bytes, elements.len() as u16].map(u16::to_le_bytes).concat();
    [head, vec![0; 6], body].concat()
}

fn generic(packets: u64, protocol: u8) -> Vec<u8> {
    let numbers = [1_000u64, 2_500, 3_000, packets, 100 * packets].map(u64::to_le_bytes).concat();
    element(1, &[&numbers[..], &[0x50, 0, 0x99, 0x9c, protocol, 0x1b, 0, 0]].concat())
}

fn v6(high: u64, low: u64) -> Vec<u8> {
    [high.to_le_bytes(), low.to_le_bytes()].concat()
}

/// A file of layout 2 with one block.
fn file(records: &[Vec<u8>]) -> Vec<u8> {
    let mut head = [0xa50c_u16, 2].map(u16::to_le_bytes).concat();
    head.resize(36, 0);
    head.extend(1u32.to_le_bytes());
    let body = records.concat();
    let block = [records.len() as u32, body.len() as u32, 3].map(u32::to_le_bytes).concat();
    [head, block, body].concat()
}

/// A record of layout 1: type, flags, and what follows the fixed fields.
fn early(kind: u16, flags: u8, rest: &[u8]) -> Vec<u8> {
    let fixed = if kind == 1 { 28 } else { 32 };
    let mut bytes = [kind, (fixed + rest.len()) as u16].map(u16::to_le_bytes).concat();
    bytes.extend([flags, 0, 0, 0, 250, 0, 3, 0]);
    bytes.extend([1_700_000_000u32, 1_700_000_009].map(u32::to_le_bytes).concat());
    bytes.extend([0, 0x12, 6, 0, 0x50, 0, 0x99, 0x9c]);
    bytes.resize(fixed, 0);
    [&bytes[..], rest].concat()
}

fn file_of_layout_1(records: &[Vec<u8>]) -> Vec<u8> {
    let mut head = [0xa50c_u16, 1].map(u16::to_le_bytes).concat();
    head.resize(276, 0);
    let body = records.concat();
    let block = [records.len() as u32, body.len() as u32, 2].map(u32::to_le_bytes).concat();
    [head, block, body].concat()
}

#[test]
fn a_biflow_of_layout_2_is_two_records() {
    let addresses = element(3, &[v6(0xfd00 << 48, 1), v6(0xfd00 << 48, 2)].concat());
    let back = element(5, &[1u64, 7, 7_000].map(u64::to_le_bytes).concat());
    let miscellany =
        |direction, flags| element(4, &[&[0; 12][..], &[direction, 2, flags, 0]].concat());
    let odd = element(99, b"anything");
    let bytes = file(&[
        record(&[odd, generic(3, 6), addresses.clone(), miscellany(1, 0x13), back.clone()]),
        record(&[generic(4, 17), addresses.clone(), miscellany(0, 0), back]),
        record(&[generic(4, 17)]),
        record(&[addresses]),
    ]);
    let (flows, counts, _) = decode(&bytes).unwrap();
    assert_eq!((counts.records, counts.flows, counts.reverse_flows), (4, 2, 1));
    let reasons = [Skip::NoAddresses, Skip::NoCounts].map(|reason| counts.skips.of(reason));
    assert_eq!(reasons, [1, 1]);
    assert_eq!(flows[0].key.source.to_string(), "fd00::1");
    assert_eq!((flows[0].start_ns, flows[0].end_ns), (1_000_000_000, 2_500_000_000));
    assert_eq!(flows[1].key, flows[0].key.reversed());
    assert_eq!((flows[1].packets, flows[1].octets, flows[1].tcp_flags), (7, 7_000, 0x13));
    assert_eq!(flows[2].packets, 4, "without a sign of a biflow, what left the router is no flow");
    assert_eq!(counts.second_counts, 1, "but these are not the same packets once more");
}

#[test]
fn a_file_that_was_not_closed_has_records_and_no_appendix() {
    let addresses = element(2, &[10, 0, 0, 1, 10, 0, 0, 2]);
    let closed = file(&[record(&[generic(3, 17), addresses])]);
    let with = |blocks: u32, appendix_blocks: u16| {
        let mut bytes = closed.clone();
        bytes[18..20].copy_from_slice(&appendix_blocks.to_le_bytes());
        bytes[36..40].copy_from_slice(&blocks.to_le_bytes());
        bytes.extend_from_slice(&closed[40..]);
        decode(&bytes).unwrap().0.len()
    };
    assert_eq!((with(1, 1), with(2, 0), with(0, 2)), (1, 2, 0));
    assert_eq!(with(0, 0), 2, "nfcapd counts blocks when it closes the file");
}

#[test]
fn widths_of_layout_1_are_given_by_flags() {
    let v4 = [[2, 0, 0, 10], [1, 0, 0, 10]].concat();
    let narrow = [5u32, 500].map(u32::to_le_bytes).concat();
    let wide = [5u64, 1 << 40].map(u64::to_le_bytes).concat();
    let mixed = [&5u64.to_le_bytes()[..], &500u32.to_le_bytes()].concat();
    let six = [v6(0xfd00 << 48, 1), v6(0xfd00 << 48, 2), wide.clone()].concat();
    let bytes = file_of_layout_1(&[
        early(1, 0, &[&v4[..], &narrow].concat()),
        early(10, 0x86, &[&v4[..], &wide].concat()),
        early(10, 0x02, &[&v4[..], &mixed, &[9; 30]].concat()),
        early(10, 0x07, &six),
        early(2, 0, &[]),
        early(10, 0x07, &six[..40]),
        early(77, 0, &[]),
    ]);
    let (flows, counts, _) = decode(&bytes).unwrap();
    assert_eq!((counts.flows, counts.options, counts.scaled), (4, 1, 1));
    let reasons = [Skip::RecordDamaged, Skip::KindUnknown].map(|reason| counts.skips.of(reason));
    assert_eq!(reasons, [1, 1]);
    let octets: Vec<_> = flows.iter().map(|flow| flow.octets).collect();
    assert_eq!(octets, [500, 1 << 40, 500, 1 << 40]);
    let flow = &flows[0];
    assert_eq!((flow.key.source.to_string(), flow.key.source_port), ("10.0.0.2".into(), 80));
    assert_eq!(
        (flow.end_ns - flow.start_ns, flow.start_ns % 1_000_000_000),
        (8_753_000_000, 250_000_000)
    );
    assert_eq!(flows[3].key.destination.to_string(), "fd00::2");
}

#[test]
fn foreign_files_are_refused_with_a_reason() {
    let good = file(&[]);
    let read = |bytes: &[u8]| FileHeader::read(bytes).unwrap_err();
    assert_eq!(read(&good[..39]), Error::Cut { needed_bytes: 40, found_bytes: 39 });
    assert_eq!(read(&[0xa5, 0x0c, 0, 1]), Error::BigEndian);
    assert_eq!(read(b"PAR1"), Error::Magic(0x4150));
    assert_eq!(read(&[0x0c, 0xa5, 3, 0]), Error::Layout(3));
    let changed = |at: usize, value| {
        let mut bytes = good.clone();
        bytes[at] = value;
        read(&bytes)
    };
    assert_eq!((changed(16, 9), changed(17, 1)), (Error::Compression(9), Error::Encrypted));
    let huge = [&[0; 4][..], &u32::MAX.to_le_bytes(), &[3, 0, 0, 0]].concat();
    assert_eq!(BlockHeader::read(&huge).unwrap_err(), Error::BlockLength(u32::MAX));
    assert!(Error::BigEndian.to_string().contains("big-endian"));
}

/// Files of both layouts, to be damaged.
pub fn bases() -> Vec<Vec<u8>> {
    let addresses = element(2, &[10, 0, 0, 1, 10, 0, 0, 2]);
    let miscellany = element(4, &[1; 16]);
    let back = element(5, &[1; 24]);
    let two = record(&[generic(3, 6), addresses, miscellany, back]);
    let one = early(10, 0, &[&[10; 8][..], &[5, 0, 0, 0, 9, 0, 0, 0]].concat());
    vec![
        file(&[two.clone(), two.clone(), two]),
        file_of_layout_1(&[one.clone(), early(2, 0, &[]), one]),
    ]
}

#[test]
fn mutated_files_balance() {
    let mut bases = bases();
    if let Some(folder) = shared("mutations of files of nfcapd") {
        let sample = fs::read(folder.join("nfdump/devtestdata/nfcapd.sample")).unwrap();
        bases.push(sample[..4_000].to_vec());
        bases.push(fs::read(folder.join("nfdump/testdata/nfcapd-empty")).unwrap());
    }
    let mut chance = Chance(13);
    for round in 0..60_000 {
        let bytes = chance.mutate(&bases[round % bases.len()]);
        if let Ok((flows, _, _)) = decode(&bytes) {
            assert!(flows.len() * 20 <= bytes.len());
            assert!(flows.iter().all(|flow| flow.end_ns >= flow.start_ns));
        }
    }
}

/// Appendix blocks are never compressed, and in layout 2 a block may state that it is not.
#[test]
fn block_compression_follows_layout_and_flags() {
    for compression in [Compression::None, Compression::Lzo, Compression::Lz4] {
        for (layout, flags, is_appendix, is_plain) in [
            (Layout::One, 0, false, false),
            (Layout::One, 1, false, false),
            (Layout::One, 1, true, true),
            (Layout::One, 0, true, true),
            (Layout::Two, 0, false, false),
            (Layout::Two, 2, false, false),
            (Layout::Two, 1, false, true),
            (Layout::Two, 3, false, true),
            (Layout::Two, 0, true, true),
        ] {
            let file = FileHeader {
                layout,
                compression,
                header_bytes: 40,
                blocks: 1,
                appendix_blocks: 0,
                totals: None,
            };
            let block = [7, 0, 0, 0, 44, 1, 0, 0, 3, 0, flags, 0];
            let block = BlockHeader::read(&block).unwrap();
            assert_eq!((block.records, block.body_bytes, block.kind), (7, 300, 3));
            let wanted = if is_plain { Compression::None } else { compression };
            assert_eq!(block.compression(&file, is_appendix), wanted, "{layout:?} {flags}");
        }
    }
}
