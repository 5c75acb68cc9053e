//! A recording: the results of damaged exports of every format, synthetic packets and split
//! records.
//!
//! These numbers were not derived; they are the results at the time of writing, after each decoder
//! had been tested against its document and real exporters. A line that changes on purpose is
//! written anew with `UPDATE=1 cargo test --release -p nilometer-flow`, and then read: which
//! formats changed, and was that meant?

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use nilometer_flow::anonymise::CryptoPan;
use nilometer_flow::collector::Collector;
use nilometer_flow::connections::ConnectionCounter;
use nilometer_flow::counts::Counts;
use nilometer_flow::echoes::Echoes;
use nilometer_flow::framing::{extent, well_formed};
use nilometer_flow::handshake::Handshakes;
use nilometer_flow::meter::{Meter, MeterConfig};
use nilometer_flow::netflow5::{self, Stream};
use nilometer_flow::nfcapd::{Blocks, Compression};
use nilometer_flow::repair::{Repair, Screen, repair, settle_all, stamps};
use nilometer_flow::sequence::Sequences;
use nilometer_flow::template::{Exporter, Limits, Session};
use nilometer_flow::{EndReason, FlowKey, FlowRecord, flow_tools as tools};
use nilometer_wire::packet::{Fragment, IpPacket, TcpSegment, TimeStamps, Transport};

use crate::capture::somebody;
use crate::hostile::{Chance, NARROW, described};
use crate::recording::{self, Digest};
use crate::template::{iana, ipfix, set, template, v9};
use crate::{flow_tools, nfcapd, sflow};

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exports/recorded.txt");

/// The digest so far, and how many flows are in it.
struct Recorded {
    digest: Digest,
    flows: u64,
}

impl Recorded {
    fn new() -> Recorded {
        Recorded { digest: Digest::new(), flows: 0 }
    }

    fn say(&mut self, what: impl std::fmt::Debug) {
        write!(self.digest, "{what:?}").unwrap();
    }

    fn flow(&mut self, flow: &FlowRecord) {
        self.flows += 1;
        self.say(flow);
    }

    fn end(self, name: &str, table: &mut String) {
        writeln!(table, "{name:24} {:6} flows {:016x}", self.flows, self.digest.0).unwrap();
    }
}

/// Datagrams of NetFlow v5 and v7, sound at first.
fn fixed() -> Vec<Vec<u8>> {
    let body = |count: usize, each: usize| (0..20 + count * each).map(|n| (n * 7 % 251) as u8);
    let mut five = vec![0, 5, 0, 3];
    five.extend(body(3, 48));
    let mut seven = vec![0, 7, 0, 2];
    seven.extend(body(2, 52));
    vec![five, seven]
}

fn datagrams(table: &mut String) {
    let kinds = [("fixed", fixed()), ("templates", described()), ("samples", sflow::bases())];
    let all: Vec<Vec<u8>> = kinds.iter().flat_map(|(_, bases)| bases.clone()).collect();
    for (name, bases) in kinds.into_iter().chain([("all formats", all)]) {
        let (mut chance, mut recorded) = (Chance(29), Recorded::new());
        for _ in 0..60 {
            let mut collector = Collector::new(NARROW);
            for number in 0..60 {
                let base = &bases[chance.below(bases.len())];
                let is_sound = chance.below(3) > 0;
                let datagram = if is_sound { base.clone() } else { chance.mutate(base) };
                let address = Ipv4Addr::new(192, 0, 2, chance.below(3) as u8).into();
                let exporter = Exporter { address, ..somebody() };
                let stamp_ns = 1_700_000_000_000_000_000 + number * 1_000_000_000;
                let out = &mut |flow: FlowRecord| recorded.flow(&flow);
                let taken = collector.receive(exporter, stamp_ns, &datagram, out);
                recorded.say(taken.map_err(|error| error.to_string()));
                recorded.say((extent(&datagram, true), extent(&datagram, false)));
                recorded.say(well_formed(&datagram));
                let joined = [&datagram[..], base].concat();
                recorded.say(extent(&joined[..joined.len().min(200)], false));
                recorded.say(Stream::new(&joined).collect::<Vec<_>>());
            }
            collector.finish();
            let evicted = collector.evictions();
            recorded.say((
                evicted.templates(),
                evicted.useful(),
                evicted.addresses(),
                evicted.worst(),
            ));
            recorded.say((collector.counts(), collector.exporters()));
        }
        recorded.end(name, table);
    }
}

/// Every element in every length, beside the minimum of a flow.
fn elements(table: &mut String) {
    const ENTERPRISES: [Option<u32>; 4] = [None, Some(29_305), Some(6_871), Some(9)];
    for enterprise in ENTERPRISES {
        let mut recorded = Recorded::new();
        for element in (1..500).chain([0x4000 | 14, 0x4000 | 15, 0x4000 | 21, 32_767]) {
            for length in [1, 2, 4, 6, 8, 16] {
                let of = [iana(8, 4), iana(12, 4), iana(2, 4), (element, length, enterprise)];
                let body: Vec<u8> = (0..12 + length).map(|n| (n * 5 + 3) as u8).collect();
                let datagram = match (enterprise, element % 2) {
                    (None, 0) => v9(1, 0, &[set(0, &template(256, &of)), set(256, &body)]),
                    _ => ipfix(1, 0, &[set(2, &template(256, &of)), set(256, &body)]),
                };
                let (mut session, mut counts) =
                    (Session::new(Limits::default()), Counts::default());
                let out = &mut |flow: FlowRecord| recorded.flow(&flow);
                let taken = session.receive(somebody(), &datagram, &mut counts, out);
                recorded.say((taken, counts));
            }
        }
        recorded.end(&format!("elements of {enterprise:?}"), table);
    }
}

fn files(table: &mut String) {
    for (number, base) in nfcapd::bases().iter().enumerate() {
        let (mut chance, mut recorded) = (Chance(31), Recorded::new());
        for _ in 0..3_000 {
            let bytes = chance.mutate(base);
            let mut counts = Counts::default();
            let blocks = match Blocks::new(&bytes) {
                Ok(blocks) => blocks,
                Err(error) => {
                    recorded.say(error.to_string());
                    continue;
                }
            };
            let file = *blocks.file();
            recorded.say(file);
            for block in blocks {
                match block {
                    Ok((header, body, is_appendix)) => {
                        recorded.say((header, header.totals(body), is_appendix));
                        let packing = header.compression(&file, is_appendix);
                        recorded.say(packing);
                        if packing == Compression::None {
                            let out = &mut |flow: FlowRecord| recorded.flow(&flow);
                            header.decode(&file, body, &mut counts, out);
                        }
                    }
                    Err(error) => recorded.say(error.to_string()),
                }
            }
            recorded.say(counts);
        }
        recorded.end(&format!("nfcapd {number}"), table);
    }
    for (number, base) in flow_tools::bases().iter().enumerate() {
        let (mut chance, mut recorded) = (Chance(37), Recorded::new());
        for version in [1u8, 5, 6, 7, 8] {
            for _ in 0..600 {
                let mut bytes = chance.mutate(base);
                // The version stands in the first field, in the order of the file.
                if let Some(place) = bytes.get_mut(12 + number.min(1)) {
                    *place = version;
                }
                let mut counts = Counts::default();
                match tools::Header::read(&bytes) {
                    Ok(header) => {
                        recorded.say((header, header.record_bytes()));
                        let body = bytes.get(header.header_bytes..).unwrap_or_default();
                        let out = &mut |flow: FlowRecord| recorded.flow(&flow);
                        let taken = header.decode(body, &mut counts, out);
                        header.finish(&body[taken..], &mut counts);
                    }
                    Err(error) => recorded.say(error.to_string()),
                }
                recorded.say(counts);
            }
        }
        recorded.end(&format!("flow-tools {number}"), table);
    }
}

/// A random packet between few hosts and ports, at any point of a connection.
fn packet(chance: &mut Chance) -> IpPacket {
    const FLAGS: [u8; 9] = [0x02, 0x12, 0x10, 0x10, 0x18, 0x11, 0x14, 0x04, 0x10];
    let is_up = chance.below(2) == 0;
    let host: IpAddr = match chance.below(8) {
        0 => "2001:db8::1".parse().unwrap(),
        host => Ipv4Addr::new(198, 18, 0, host as u8).into(),
    };
    let ends = [(host, 40_000 + chance.below(4) as u16), (Ipv4Addr::new(198, 19, 0, 1).into(), 80)];
    let [(source, source_port), (destination, destination_port)] =
        if is_up { ends } else { [ends[1], ends[0]] };
    let payload_bytes = [0, 0, 100, 1_400][chance.below(4)];
    let flags = FLAGS[chance.below(FLAGS.len())];
    let stamps = TimeStamps { value: chance.below(40) as u32, echo: chance.below(40) as u32 };
    let (protocol, transport) = match chance.below(10) {
        0 => (1, Transport::Icmp { kind: 8, code: 0 }),
        1 => (6, Transport::Cut),
        2 | 3 => (17, Transport::Udp { source_port, destination_port, payload_bytes }),
        _ => {
            let segment = TcpSegment {
                source_port,
                destination_port,
                sequence: 100 * chance.below(6) as u32,
                acknowledgement: 100 * chance.below(6) as u32 + 1,
                flags,
                window: 9,
                payload_bytes,
                time_stamps: (chance.below(3) > 0).then_some(stamps),
                cut_options_bytes: None,
            };
            (6, Transport::Tcp(segment))
        }
    };
    IpPacket {
        source,
        destination,
        protocol,
        traffic_class: 0,
        hop_limit: 64,
        ip_bytes: 52 + payload_bytes,
        fragment: Fragment::Whole,
        transport,
        encapsulated: false,
    }
}

/// Flow records of random packets, with their round trips and connections.
fn packets(table: &mut String) -> Vec<FlowRecord> {
    const SECOND_NS: u64 = 1_000_000_000;
    let config = MeterConfig {
        active_timeout_ns: 20 * SECOND_NS,
        inactive_timeout_ns: 4 * SECOND_NS,
        linger_ns: SECOND_NS,
        flows_max: 24,
    };
    let mut kept = Vec::new();
    for (name, step_ms) in [("packets, dense", 60), ("packets, sparse", 900)] {
        let (mut chance, mut recorded) = (Chance(41), Recorded::new());
        let (mut meter, mut counter) = (Meter::new(config), ConnectionCounter::new(60));
        let (mut handshakes, mut echoes) = (Handshakes::new(9, 900), Echoes::new(9, 900));
        let mut now_ns = 1_700_000_000 * SECOND_NS;
        for _ in 0..20_000 {
            now_ns += chance.below(step_ms) as u64 * 1_000_000;
            let back_ns = if chance.below(20) == 0 { chance.below(3_000_000) as u64 } else { 0 };
            // A clock that is set back, now and then for good.
            now_ns -= if chance.below(2_000) == 0 { 100 * SECOND_NS } else { 0 };
            let (stamp_ns, packet) = (now_ns - back_ns, packet(&mut chance));
            meter.observe(stamp_ns, &packet, &mut |flow| {
                recorded.flow(&flow);
                kept.push(flow);
            });
            counter.observe(&packet);
            handshakes.observe(stamp_ns, &packet);
            echoes.observe(stamp_ns, &packet);
            if chance.below(500) == 0 {
                recorded.say((meter.counts(), counter.counts()));
            }
        }
        meter.flush(&mut |flow| recorded.flow(&flow));
        recorded.say((meter.counts(), counter.counts(), handshakes.finish(), echoes.finish()));
        recorded.end(name, table);
    }
    kept
}

/// Records as exporters split, repeat and mistime them.
fn split(chance: &mut Chance, records: &[FlowRecord]) -> Vec<FlowRecord> {
    let mut made = Vec::new();
    for record in records {
        let mut record = record.clone();
        record.payload_octets = record.payload_octets.filter(|_| chance.below(3) == 0);
        record.opened = record.opened.filter(|_| chance.below(3) == 0);
        match chance.below(12) {
            0 => record.start_ns = record.end_ns.saturating_sub(4_294_967_296_000_000),
            1 => record.start_ns -= 1_700_000_000 * 900_000_000,
            2 => (record.packets, record.octets) = (0, 0),
            3 => record.sampling_interval = 100,
            4 => record.tcp_flags = 0,
            5 | 6 => {
                let mut more = record.clone();
                let gap_ns = [0, 1_000_000, 15_000_000_000, 61_000_000_000][chance.below(4)];
                more.start_ns = record.end_ns + gap_ns;
                more.end_ns = more.start_ns + chance.below(9_000_000) as u64;
                more.tcp_flags = [0x10, 0x11, 0x12, 0][chance.below(4)];
                more.end_reason = EndReason::from_number(chance.below(7) as u8);
                made.push(more);
            }
            7 => made.push(record.clone()),
            _ => {}
        }
        made.push(record);
    }
    made
}

fn repairs(records: &[FlowRecord], table: &mut String) {
    for (name, gap_max_ns) in [("repair, 1 s", 1_000_000_000), ("repair, 60 s", 60_000_000_000)] {
        let (mut chance, mut recorded) = (Chance(43), Recorded::new());
        let records = split(&mut chance, records);
        records.iter().for_each(|record| recorded.say(stamps(record)));
        let whole = repair(records.clone(), gap_max_ns);
        whole.records.iter().for_each(|record| recorded.flow(record));
        recorded.say((whole.counts, whole.counts.joined(), whole.counts.met().collect::<Vec<_>>()));
        let mut passing = Repair::new(gap_max_ns, 50);
        for record in records.clone() {
            passing.take(record, &mut |flow| recorded.flow(&flow));
        }
        passing.finish(&mut |flow| recorded.flow(&flow));
        recorded.say(passing.counts());
        let (mut screen, mut screened) = (Screen::default(), records.clone());
        screened.iter_mut().for_each(|record| screen.set_right(record));
        let mut counts = screen.counts;
        for record in settle_all(screened, gap_max_ns, &mut counts) {
            recorded.flow(&record);
        }
        recorded.say(counts);
        recorded.end(name, table);
    }
    let (pan, mut recorded) =
        (CryptoPan::new(&std::array::from_fn(|at| at as u8)), Recorded::new());
    records.iter().for_each(|record| recorded.flow(&pan.record(record.clone())));
    recorded.end("anonymised", table);
    let mut recorded = Recorded::new();
    let plain: Vec<FlowRecord> =
        records.iter().filter(|one| one.key.source.is_ipv4()).cloned().collect();
    let (mut sequences, mut sequence) = (Sequences::new(), 0u32);
    let mut chance = Chance(47);
    for (number, records) in plain.chunks(17).enumerate() {
        let unix_secs = 1_700_020_000 + number as u32;
        let header = netflow5::Header {
            unix_secs,
            uptime_ms: 3_000_000_000,
            flow_sequence: sequence,
            ..netflow5::Header::default()
        };
        let encoded = netflow5::encode(&header, records);
        recorded.say(&encoded);
        sequence = sequence.wrapping_add(records.len() as u32 + [0, 0, 0, 9][chance.below(4)]);
        if chance.below(9) == 0 {
            sequence = sequence.wrapping_sub(40);
        }
        sequences.observe_header(&header, records.len() as u32);
        recorded.say(sequences.counts());
    }
    recorded.end("encoded", table);
    let mut recorded = Recorded::new();
    for record in records {
        let FlowKey { source, destination, .. } = record.key;
        recorded.say((
            record.key.reversed(),
            record.has_start(),
            record.has_end(),
            source,
            destination,
        ));
    }
    recorded.end("keys", table);
}

#[test]
fn exports_packets_and_repairs_are_as_recorded() {
    let mut table = String::new();
    datagrams(&mut table);
    elements(&mut table);
    files(&mut table);
    let records = packets(&mut table);
    repairs(&records, &mut table);
    recording::compare(RECORDING, &table);
}
