//! The same bytes read by independent crates: `netflow_parser` and `sflow-parser`, record by record.
//!
//! They agree wherever both return records at all. Where one returns more, a table below states how
//! many and why; our own numbers are compared with tshark's and pmacct's elsewhere (`real`).

use std::fs;
use std::net::IpAddr;

use netflow_parser::variable_versions::ipfix::lookup::IANAIPFixField;
use netflow_parser::variable_versions::ipfix::{FlowSetBody as IpfixBody, IPFix};
use netflow_parser::variable_versions::v9::{FlowSetBody as V9Body, V9};
use netflow_parser::{AutoScopedParser, FieldValue, IpfixField, NetflowPacket, NetflowParser};
use nilometer_flow::collector::{Collector, Format};
use nilometer_flow::template::{Exporter, Limits};
use nilometer_flow::{FlowRecord, netflow5, netflow7};
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, parse};
use sflow_parser::SampleData;
use sflow_parser::models::core::FlowData;

use crate::capture::{Datagram, datagrams, shared, somebody};
use crate::hostile::Chance;

/// The fields of a flow that both sides report: addresses, ports, protocol, packets, bytes.
type FlowFields = (IpAddr, IpAddr, u16, u16, u8, u64, u64);

fn ours(flow: &FlowRecord) -> FlowFields {
    let key = &flow.key;
    let (source, destination) = (key.source, key.destination);
    let (source_port, destination_port) = (key.source_port, key.destination_port);
    (source, destination, source_port, destination_port, key.protocol, flow.packets, flow.octets)
}

/// A record of the other crate, by element numbers: a value for each, where there is one.
fn theirs<'a>(value: impl Fn(u16) -> Option<&'a FieldValue>) -> Option<FlowFields> {
    let first = |numbers: &[u16]| numbers.iter().find_map(|number| value(*number));
    let address = |numbers: &[u16]| IpAddr::try_from(first(numbers)?).ok();
    let number = |numbers: &[u16]| first(numbers).and_then(FieldValue::as_u64).unwrap_or(0);
    let protocol = first(&[4]).and_then(FieldValue::as_u8).unwrap_or(0);
    // Exporters write ICMP's type and code in the place of ports.
    let port =
        |element| if matches!(protocol, 6 | 17 | 132) { number(&[element]) as u16 } else { 0 };
    Some((
        address(&[8, 27])?,
        address(&[12, 28])?,
        port(7),
        port(11),
        protocol,
        number(&[2, 86, 24]),
        number(&[1, 85, 23, 231]),
    ))
}

fn of_v9(packet: &V9) -> Vec<FlowFields> {
    let data = packet.flowsets.iter().filter_map(|set| match &set.body {
        V9Body::Data(data) => Some(&data.fields),
        _ => None,
    });
    let reported = |record: &Vec<(netflow_parser::V9Field, FieldValue)>| {
        let named = |number| record.iter().find(|(field, _)| u16::from(*field) == number);
        theirs(|number| named(number).map(|(_, value)| value))
    };
    data.flatten().filter_map(reported).collect()
}

fn of_ipfix(packet: &IPFix) -> Vec<FlowFields> {
    let data = packet.flowsets.iter().filter_map(|set| match &set.body {
        IpfixBody::Data(data) => Some(&data.fields),
        _ => None,
    });
    let reported = |record: &Vec<(IpfixField, FieldValue)>| {
        let named = |number| {
            let wanted = IpfixField::IANA(IANAIPFixField::from(number));
            record.iter().find(|(field, _)| *field == wanted)
        };
        theirs(|number| named(number).map(|(_, value)| value))
    };
    data.flatten().filter_map(reported).collect()
}

/// The flows that both find in datagrams, sorted.
fn both(received: &[Datagram]) -> [Vec<FlowFields>; 2] {
    let (mut collector, mut parser) = (Collector::new(Limits::default()), AutoScopedParser::new());
    let (mut mine, mut yours) = (Vec::new(), Vec::new());
    for Datagram { exporter, stamp_ns, payload } in received {
        let out = &mut |flow: FlowRecord| mine.push(ours(&flow));
        // Damage is counted on both sides, and shows in what is missing.
        let _ = collector.receive(*exporter, *stamp_ns, payload, out);
        let Exporter { address, port } = *exporter;
        for packet in parser.parse_from_source((address, port).into(), payload).packets {
            match packet {
                NetflowPacket::V9(packet) => yours.extend(of_v9(&packet)),
                NetflowPacket::IPFix(packet) => yours.extend(of_ipfix(&packet)),
                _ => {}
            }
        }
    }
    mine.sort_unstable();
    yours.sort_unstable();
    [mine, yours]
}

/// Where the two differ: the first datagram's name, the other crate's records, those that both have,
/// and why.
const DIFFERENT: [(&str, usize, usize, &str); 10] = [
    ("ipfix", 12, 6, "the file is three messages; a datagram is one"),
    ("ipfix_test_ixia_tpldata256", 0, 0, "they give no record of this set"),
    ("ipfix_test_nokia_bras_tpl", 1, 0, "an event without counts is no flow"),
    ("ipfix_test_yaf_tpl45841", 2, 2, "a biflow is two records"),
    ("netflow9_test_cisco_asa_2_tpl_26x", 19, 0, "both directions' bytes are two records"),
    ("netflow9_test_h3c_netstream_varstring_tpl3281", 0, 0, "they refuse the template"),
    ("netflow9_test_macaddr_tpl", 29, 0, "records without counts are no flows"),
    ("netflow9_test_paloalto_81_tpl256-263", 0, 0, "they refuse the padding"),
    ("pmacct/106-IPFIXv10-HUAWEI-vrf_name", 0, 0, "they give no record of this set"),
    ("pmacct/112-IPFIXv10-CISCO-options-map-reassignment", 0, 0, "they give no record of this set"),
];

fn compare(name: &str, received: &[Datagram]) -> usize {
    let [mine, yours] = both(received);
    let common = mine.iter().filter(|one| yours.binary_search(one).is_ok()).count();
    match DIFFERENT.iter().find(|row| row.0 == name) {
        Some((_, theirs, shared, why)) => {
            assert_eq!((yours.len(), common), (*theirs, *shared), "{name}: {why}");
            assert_ne!(mine, yours, "{name} is no exception any more");
        }
        None => assert_eq!(mine, yours, "{name}"),
    }
    common
}

#[test]
fn templates_decode_as_in_another_parser() {
    let Some(folder) = shared("NetFlow v9 and IPFIX read by netflow_parser") else { return };
    let (mut common, mut compared) = (0, 0);
    for line in include_str!("exporters.txt").lines().filter(|line| !line.starts_with('#')) {
        let words = line.split_whitespace().take_while(|word| !word.starts_with('#')).skip(6);
        let names: Vec<&str> = words.collect();
        let read = |name: &&str| {
            let path = folder.join("logstash-codec-netflow").join(format!("{name}.dat"));
            let payload = fs::read(path).expect("a datagram");
            Datagram { exporter: somebody(), stamp_ns: 0, payload }
        };
        let received: Vec<Datagram> = names.iter().map(read).collect();
        common += compare(names[0], &received);
        compared += 1;
    }
    for entry in fs::read_dir(folder.join("pmacct")).expect("a folder") {
        let folder = entry.expect("an entry").path();
        for number in 0..2 {
            let Ok(file) = fs::read(folder.join(format!("traffic-0{number}.pcap"))) else {
                continue;
            };
            let name = format!("pmacct/{}", folder.file_name().expect("a name").display());
            common += compare(&name, &datagrams(&file));
            compared += 1;
        }
    }
    println!("{common} records alike in {compared} of exporters");
    assert!(compared > 48 && common > 430, "{common} in {compared}");
}

/// Random datagrams: valid ones, and ones whose count is larger or smaller than the records that are
/// there.
#[test]
fn fixed_records_decode_as_in_another_parser() {
    let (mut chance, mut alike) = (Chance(23), 0);
    for round in 0..4_000 {
        let (version, record_bytes) = if round % 2 == 0 { (5, 48) } else { (7, 52) };
        let count = chance.below(9);
        let mut datagram = vec![0, version, 0, count as u8];
        datagram.extend((0..20 + count * record_bytes).map(|_| chance.below(256) as u8));
        let mut mine = Vec::new();
        let out = &mut |flow: FlowRecord| mine.push(ours(&flow));
        match version {
            5 => assert!(netflow5::decode_each(&datagram, out).is_ok()),
            _ => assert!(netflow7::decode_each(&datagram, out).is_ok()),
        }
        let mut yours: Vec<FlowFields> = Vec::new();
        for packet in NetflowParser::default().parse_bytes(&datagram).packets {
            // The layouts are alike as far as they are compared; the types are not.
            macro_rules! reported {
                ($packet:expr) => {
                    yours.extend($packet.flowsets.iter().map(|flow| {
                        let has_ports = matches!(flow.protocol_number, 6 | 17 | 132);
                        let port = |port| if has_ports { port } else { 0 };
                        (
                            flow.src_addr.into(),
                            flow.dst_addr.into(),
                            port(flow.src_port),
                            port(flow.dst_port),
                            flow.protocol_number,
                            flow.d_pkts.into(),
                            flow.d_octets.into(),
                        )
                    }))
                };
            }
            match packet {
                NetflowPacket::V5(packet) => reported!(packet),
                NetflowPacket::V7(packet) => reported!(packet),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(mine, yours, "version {version}");
        alike += mine.len();
    }
    assert!(alike > 10_000, "{alike}");
}

/// The flows in the headers that the other crate found in an sFlow datagram, with their sampling
/// rates.
fn sampled(datagram: &[u8]) -> Vec<(FlowFields, u32)> {
    let datagram = sflow_parser::parse_datagram(datagram).expect("a datagram of sFlow");
    let mut reported = Vec::new();
    for sample in &datagram.samples {
        let (rate, records) = match &sample.sample_data {
            SampleData::FlowSample(sample) => (sample.sampling_rate, &sample.flow_records),
            SampleData::FlowSampleExpanded(sample) => (sample.sampling_rate, &sample.flow_records),
            _ => continue,
        };
        for record in records {
            let FlowData::SampledHeader(header) = &record.flow_data else { continue };
            let original = header.frame_length.saturating_sub(header.stripped);
            let original = original.max(header.header.len() as u32);
            if let Parsed::Ip(ip) = parse(LinkType::Ethernet, &header.header, original) {
                let ports = ip.ports();
                let octets = u64::from(ip.ip_bytes);
                let flow = (ip.source, ip.destination, ports.0, ports.1, ip.protocol, 1, octets);
                reported.push((flow, rate));
            }
        }
    }
    reported
}

#[test]
fn samples_decode_as_in_another_parser() {
    let Some(folder) = shared("sFlow read by sflow-parser") else { return };
    let (mut alike, mut files) = (0, 0);
    for name in [
        "nDPI/pcap/sflow.pcap",
        "tcpdump/tests/sflow-print-v6.pcap",
        "tcpdump/tests/sflow_expanded.pcap",
        "tcpdump/tests/sflow_multiple_counter_30_pdus.pcap",
    ] {
        let file = fs::read(folder.join(name)).expect("a capture");
        let received = datagrams(&file).into_iter();
        // One of the captures has NetFlow beside it.
        let is_sflow = |one: &Datagram| Format::of(&one.payload) == Some(Format::Sflow5);
        for Datagram { exporter, stamp_ns, payload } in received.filter(is_sflow) {
            let mut mine = Vec::new();
            let mut collector = Collector::new(Limits::default());
            let out = &mut |flow: FlowRecord| mine.push((ours(&flow), flow.sampling_interval));
            let _ = collector.receive(exporter, stamp_ns, &payload, out);
            assert_eq!(mine, sampled(&payload), "{name}");
            alike += mine.len();
        }
        files += 1;
    }
    assert_eq!((files, alike), (4, 15));
}
