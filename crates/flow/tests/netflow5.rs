//! NetFlow version 5: round trips, damaged datagrams, and those of real exporters.

use nilometer_stat::Rng;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use nilometer_flow::netflow5::{EncodeError, Error, Header, Stream, decode, encode};
use nilometer_flow::sequence::Sequences;
use nilometer_flow::{EndReason, FlowKey, FlowRecord};

const MILLISECOND_NS: u64 = 1_000_000;

fn header() -> Header {
    Header {
        uptime_ms: 40_000_000,
        unix_secs: 1_700_000_000,
        unix_nsecs: 250_000_000,
        flow_sequence: 77,
        engine_type: 1,
        engine_id: 2,
        sampling_mode: 1,
        sampling_interval: 1_000,
    }
}

fn record(number: u32, age_ms: u64, lasted_ms: u64) -> FlowRecord {
    let start_ns = header().export_ns() - age_ms * MILLISECOND_NS;
    FlowRecord {
        key: FlowKey {
            source: Ipv4Addr::from_bits(0xc612_0000 + number).into(),
            destination: Ipv4Addr::new(198, 19, 0, 1).into(),
            source_port: 40_000,
            destination_port: number as u16,
            protocol: 6,
        },
        start_ns,
        end_ns: start_ns + lasted_ms * MILLISECOND_NS,
        packets: 3 + u64::from(number),
        octets: u64::from(u32::MAX - number),
        tcp_flags: 0x1b,
        payload_octets: None,
        opened: None,
        end_reason: EndReason::Unknown,
        sampling_interval: header().sampling_interval.into(),
    }
}

fn full() -> (Vec<FlowRecord>, Vec<u8>) {
    let records: Vec<_> = (0..30).map(|n| record(n, 1_000_000 - u64::from(n), 900)).collect();
    let bytes = encode(&header(), &records).unwrap();
    (records, bytes)
}

#[test]
fn datagrams_round_trip() {
    let (records, bytes) = full();
    assert_eq!(bytes.len(), 24 + 30 * 48);
    assert_eq!(bytes[..4], [0, 5, 0, 30], "big-endian, whatever the host");
    let datagram = decode(&bytes).unwrap();
    assert_eq!((datagram.header, datagram.records), (header(), records));
    assert_eq!(datagram.times_reversed, 0);
    assert_eq!(decode(&encode(&header(), &[]).unwrap()).unwrap().records, []);
}

#[test]
fn times_are_right_across_the_uptimes_wrap() {
    for uptime_ms in [0, 1, 999, 40_000_000, u32::MAX] {
        let header = Header { uptime_ms, ..header() };
        let records = [record(1, 5_000, 4_000), record(2, 2_000_000_000, 1_999_999_000)];
        let datagram = decode(&encode(&header, &records).unwrap()).unwrap();
        assert_eq!(datagram.records, records, "uptime {uptime_ms} ms");
    }
    let mut early = record(1, 0, 0);
    early.end_ns += 20 * MILLISECOND_NS;
    let datagram = decode(&encode(&header(), &[early.clone()]).unwrap()).unwrap();
    assert_eq!(datagram.records, [early], "a little after the datagram left");
}

#[test]
fn reversed_times_are_counted_and_icmp_has_no_ports() {
    let mut reversed = record(1, 1_000, 0);
    reversed.end_ns -= 500 * MILLISECOND_NS;
    reversed.key.protocol = 1;
    let datagram = decode(&encode(&header(), &[reversed.clone()]).unwrap()).unwrap();
    let decoded = &datagram.records[0];
    assert_eq!((datagram.times_reversed, decoded.end_ns), (1, reversed.start_ns));
    assert_eq!((decoded.key.source_port, decoded.key.destination_port), (0, 0));
}

#[test]
fn damage_is_named_with_its_place() {
    let (_, bytes) = full();
    for kept in 0..bytes.len() {
        let needed_bytes = if kept < 24 { 24 } else { bytes.len() };
        let expected = Error::Cut { offset: 0, needed_bytes, found_bytes: kept };
        assert_eq!(decode(&bytes[..kept]), Err(expected));
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(decode(&longer), Err(Error::Trailing { offset: 1_464, bytes: 1 }));
    let mut other = bytes.clone();
    other[1] = 9;
    assert_eq!(decode(&other), Err(Error::Version { offset: 0, found: 9 }));
    let mut crowded = bytes;
    crowded[3] = 31;
    assert_eq!(decode(&crowded), Err(Error::Count { offset: 2, found: 31 }));
    let text = Error::Count { offset: 2, found: 31 }.to_string();
    assert!(text.contains("31 records") && text.contains("byte 2") && !text.contains('\n'));
}

#[test]
fn a_stream_is_split_and_its_cut_end_reported() {
    let (records, bytes) = full();
    let short = encode(&header(), &records[..3]).unwrap();
    let file = [&bytes[..], &short, &bytes[..100]].concat();
    let items: Vec<_> = Stream::new(&file).collect();
    assert_eq!(items.len(), 3);
    assert_eq!(items[0].as_ref().unwrap().records.len(), 30);
    assert_eq!(items[1].as_ref().unwrap().records.len(), 3);
    let offset = bytes.len() + short.len();
    assert_eq!(items[2], Err(Error::Cut { offset, needed_bytes: 1_464, found_bytes: 100 }));
    assert_eq!(Stream::new(&[]).count(), 0);
}

#[test]
fn records_that_version_5_cannot_represent_are_refused() {
    let (records, _) = full();
    let many = [&records[..], &records[..1]].concat();
    assert_eq!(encode(&header(), &many), Err(EncodeError::TooManyRecords(31)));
    let refused = |change: fn(&mut FlowRecord)| {
        let mut record = record(1, 1_000, 0);
        change(&mut record);
        encode(&header(), &[record]).unwrap_err()
    };
    assert_eq!(refused(|r| r.key.source = "fd00::1".parse().unwrap()), EncodeError::NotIpv4(0));
    assert_eq!(refused(|r| r.octets = 1 << 32), EncodeError::CountTooLarge(0));
    assert_eq!(refused(|r| r.start_ns = 0), EncodeError::TimeTooFar(0));
}

#[test]
fn random_bytes_never_panic() {
    let (_, good) = full();
    let mut rng = Rng::new(1, 0, 0);
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..3 {
            bytes[rng.below(200) as usize] = rng.next_u64() as u8;
        }
        bytes.truncate(rng.below(good.len() as u64 * 2) as usize);
        let mut sequences = Sequences::new();
        for datagram in Stream::new(&bytes).flatten() {
            assert!(datagram.records.iter().all(|record| record.end_ns >= record.start_ns));
            sequences.observe(&datagram);
        }
    }
}

#[test]
fn real_exporters_are_understood() {
    let Some(data) = std::env::var_os("NILOMETER_DATA") else {
        println!("skipped: exports of real routers (set NILOMETER_DATA)");
        return;
    };
    let folder = PathBuf::from(data).join("flows/logstash-codec-netflow");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();

    let softflowd = read("netflow5.dat");
    let datagrams: Vec<_> = Stream::new(&softflowd).collect::<Result<_, _>>().unwrap();
    let first = &datagrams[0];
    assert_eq!((first.header.unix_secs, first.records.len()), (0x5545_1990, 2));
    let ssh = &first.records[0];
    assert_eq!(ssh.key.source.to_string(), "10.0.2.2");
    assert_eq!((ssh.key.source_port, ssh.key.destination_port), (54_435, 22));
    assert_eq!((ssh.packets, ssh.octets, ssh.tcp_flags), (5, 230, 0x10));
    // It began 1 ms before the exporter's own clock did, and lasted 2,578 ms.
    assert_eq!(ssh.end_ns - ssh.start_ns, 2_578 * MILLISECOND_NS);
    assert_eq!(first.header.export_ns() - ssh.start_ns, 3_382 * MILLISECOND_NS);
    assert!(datagrams.iter().all(|datagram| datagram.times_reversed == 0));

    for (name, records, sampling) in
        [("netflow5_test_juniper_mx80.dat", 29, 1_000), ("netflow5_test_microtik.dat", 30, 0)]
    {
        let datagram = decode(&read(name)).unwrap();
        assert_eq!(datagram.records.len(), records, "{name}");
        assert_eq!(datagram.header.sampling_interval, sampling, "{name}");
        for record in &datagram.records {
            let day_ns = 86_400_000 * MILLISECOND_NS;
            assert!(datagram.header.export_ns() - record.start_ns < day_ns, "{name}: {record:?}");
        }
    }
    let damaged = [("netflow5_test_invalid01.dat", 55_582), ("netflow5_test_invalid02.dat", 163)];
    for (name, found) in damaged {
        assert_eq!(decode(&read(name)), Err(Error::Count { offset: 2, found }), "{name}");
    }
}
