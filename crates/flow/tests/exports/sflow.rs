//! sFlow v5: captures of agents against tshark's counts, and datagrams made by hand.

use std::fs;
use std::net::IpAddr;

use nilometer_flow::FlowRecord;
use nilometer_flow::counts::{Counts, Skip};
use nilometer_flow::sflow::{Agents, Error};
use nilometer_wire::build;

use crate::capture::{datagrams, shared};
use crate::hostile::Chance;

const RECEIVED_NS: u64 = 1_700_000_000_000_000_000;

fn words(words: &[usize]) -> Vec<u8> {
    words.iter().flat_map(|word| (*word as u32).to_be_bytes()).collect()
}

fn part(kind: usize, body: &[u8]) -> Vec<u8> {
    [words(&[kind, body.len()]), body.to_vec()].concat()
}

fn datagram(sequence: usize, uptime_ms: usize, samples: &[Vec<u8>]) -> Vec<u8> {
    let head = words(&[5, 1, 0x0a00_0001, 2, sequence, uptime_ms, samples.len()]);
    [head, samples.concat()].concat()
}

/// A sample of packets: its source's drops, the records.
fn flow_sample(drops: usize, records: &[Vec<u8>]) -> Vec<u8> {
    let head = words(&[1, 7, 512, 90_000, drops, 1, 2, records.len()]);
    part(1, &[head, records.concat()].concat())
}

fn expanded(drops: usize, records: &[Vec<u8>]) -> Vec<u8> {
    let head = words(&[1, 0, 7, 1_000, 90_000, drops, 0, 1, 0, 2, records.len()]);
    part(3, &[head, records.concat()].concat())
}

/// The first 64 bytes of a UDP packet with `payload_bytes` of payload, in a frame whose checksum
/// was stripped.
fn header(payload_bytes: usize) -> Vec<u8> {
    let ends = ["10.1.0.1:4000".parse().unwrap(), "10.1.0.2:53".parse().unwrap()];
    let frame = build::ethernet(&build::udp(ends[0], ends[1], &vec![1; payload_bytes]));
    let seen = &frame[..64];
    part(1, &[&words(&[1, frame.len() + 4, 4, seen.len()])[..], seen].concat())
}

fn hear(datagrams: &[Vec<u8>]) -> (Vec<FlowRecord>, Counts) {
    let (mut agents, mut counts) = (Agents::new(10), Counts::default());
    let mut flows = Vec::new();
    for datagram in datagrams {
        let out = &mut |flow| flows.push(flow);
        let taken = agents.receive(RECEIVED_NS, datagram, &mut counts, out);
        counts.malformed += u64::from(taken.is_err());
        counts.assert_balanced();
    }
    assert_eq!(counts.flows, flows.len() as u64);
    (flows, counts)
}

#[test]
fn captures_have_the_samples_that_tshark_counts() {
    let Some(folder) = shared("captures of sFlow") else { return };
    // Capture, datagrams, flow samples, counter samples; 1 in how many of the last one.
    let table = [
        ("tcpdump/tests/sflow-print-v6.pcap", 25, 13, 48, 1),
        ("tcpdump/tests/sflow_expanded.pcap", 1, 1, 0, 1_000),
        ("tcpdump/tests/sflow_multiple_counter_30_pdus.pcap", 25, 0, 144, 0),
        ("nDPI/pcap/sflow.pcap", 9, 1, 8, 2_048),
    ];
    for (name, received, samples, counters, interval) in table {
        let (mut agents, mut counts) = (Agents::new(100), Counts::default());
        let mut flows = Vec::new();
        for datagram in datagrams(&fs::read(folder.join(name)).unwrap()) {
            let out = &mut |flow| flows.push(flow);
            // One capture has five datagrams of NetFlow v5 among its sFlow.
            let _ = agents.receive(datagram.stamp_ns, &datagram.payload, &mut counts, out);
        }
        let others = counts.skips.records() - counts.skips.of(Skip::CounterSample);
        assert_eq!(counts.datagrams, received, "{name}");
        assert_eq!(
            (counts.flows + others, counts.skips.of(Skip::CounterSample)),
            (samples, counters)
        );
        let last: Option<&FlowRecord> = flows.last();
        assert_eq!(last.map_or(0, |flow| flow.sampling_interval), interval, "{name}");
        for flow in &flows {
            assert_eq!((flow.packets, flow.start_ns), (1, flow.end_ns), "{name}");
        }
    }
    let cut = fs::read(folder.join("tcpdump/tests/sflow_print-segv.pcap")).unwrap();
    let payloads: Vec<_> = datagrams(&cut).into_iter().map(|datagram| datagram.payload).collect();
    let (flows, counts) = hear(&payloads);
    assert_eq!(flows.len(), 0);
    assert!(counts.malformed + counts.skips.records() > 0, "{counts:?}");
}

#[test]
fn a_sampled_packet_is_a_flow_of_one_packet() {
    let v4 = [&words(&[1_500, 6])[..], &[10, 0, 0, 1, 10, 0, 0, 2], &words(&[443, 9, 0x12, 0])];
    let v6 = [&words(&[80, 17])[..], &[0xfd; 32], &words(&[53, 99, 0, 0])];
    let sent = datagram(
        1,
        1_000,
        &[
            flow_sample(0, &[part(1_001, &words(&[0; 4])), header(900)]),
            expanded(0, &[part(3, &v4.concat())]),
            flow_sample(0, &[part(4, &v6.concat())]),
            part(2, &[0; 40]),
            part(1 << 12 | 5, &[0; 8]),
            flow_sample(0, &[part(1_001, &words(&[0; 4]))]),
            flow_sample(0, &[part(1, &words(&[1, 64, 0, 14, 0, 0, 0, 0x0806_0000]))]),
        ],
    );
    let (flows, counts) = hear(&[sent]);
    assert_eq!((counts.records, counts.flows), (7, 3));
    let reasons = [Skip::CounterSample, Skip::KindUnknown, Skip::NotIp, Skip::RecordDamaged];
    assert_eq!(reasons.map(|reason| counts.skips.of(reason)), [1, 2, 1, 0]);
    let octets: Vec<_> = flows.iter().map(|flow| (flow.packets, flow.octets)).collect();
    assert_eq!(octets, [(1, 928), (1, 1_500), (1, 80)]);
    let intervals: Vec<_> = flows.iter().map(|flow| flow.sampling_interval).collect();
    assert_eq!(intervals, [512, 1_000, 512]);
    assert_eq!((flows[0].key.source_port, flows[0].payload_octets), (4_000, Some(900)));
    assert_eq!((flows[1].key.source_port, flows[1].tcp_flags), (443, 0x12));
    assert_eq!(flows[2].key.source, IpAddr::from([0xfd; 16]));
    assert!(flows.iter().all(|flow| flow.start_ns == RECEIVED_NS));
}

#[test]
fn gaps_and_drops_are_counted() {
    let sample = |drops| [flow_sample(drops, &[header(100)])];
    let (_, counts) = hear(&[
        datagram(10, 1_000, &sample(5)),
        datagram(13, 2_000, &sample(9)),
        datagram(12, 1_900, &sample(9)),
        datagram(14, 3_000, &[expanded(2, &[header(100)])]),
        datagram(15, 900_000, &sample(10)),
        datagram(1, 500, &sample(0)),
        datagram(2, 1_500, &sample(3)),
    ]);
    assert_eq!((counts.datagrams_lost, counts.samples_dropped), (1, 4 + 8 + 3));
    let overtaken = [(1, 0), (2, 1_000), (4, 3_000), (3, 2_000), (5, 4_000)];
    let sent = overtaken.map(|(number, drops)| datagram(number, 1_000, &sample(drops)));
    assert_eq!(hear(&sent).1.samples_dropped, 4_000);
}

#[test]
fn without_a_receive_time_the_uptime_gives_packet_times() {
    let mut agents = Agents::new(1);
    let (mut counts, mut times) = (Counts::default(), Vec::new());
    for uptime_ms in [1_000, 61_000] {
        let sent = datagram(uptime_ms, uptime_ms, &[flow_sample(0, &[header(100)])]);
        agents.receive(0, &sent, &mut counts, &mut |flow| times.push(flow.start_ns)).unwrap();
    }
    assert_eq!((times, counts.times_absent), (vec![1_000_000_000, 61_000_000_000], 2));
}

#[test]
fn damage_is_named_or_counted() {
    let good = datagram(1, 1, &[flow_sample(0, &[header(100)])]);
    let refused = |bytes: &[u8]| {
        Agents::new(1).receive(0, bytes, &mut Counts::default(), &mut |_| {}).unwrap_err()
    };
    for kept in 0..28 {
        assert_eq!(refused(&good[..kept]), Error::Cut { found_bytes: kept });
    }
    assert_eq!(refused(&words(&[4, 1])), Error::Version(4));
    assert_eq!(refused(&words(&[5, 3, 0, 0])), Error::AgentAddress(3));
    for kept in 28..good.len() {
        let (flows, counts) = hear(&[good[..kept].to_vec()]);
        assert_eq!((flows.len(), counts.skips.of(Skip::RecordDamaged)), (0, 1));
    }
}

/// Datagrams with samples of all kinds, to be damaged.
pub fn bases() -> Vec<Vec<u8>> {
    let v4 = [&words(&[1_500, 6])[..], &[10; 8], &words(&[443, 9, 0x12, 0])].concat();
    vec![
        datagram(1, 1, &[flow_sample(0, &[header(100), part(3, &v4)]), part(2, &[0; 24])]),
        datagram(2, 2, &[expanded(1, &[part(1_001, &[0; 16]), header(30)])]),
    ]
}

#[test]
fn mutated_datagrams_balance() {
    let mut bases = bases();
    if let Some(folder) = shared("mutations of captured sFlow") {
        let capture = fs::read(folder.join("tcpdump/tests/sflow-print-v6.pcap")).unwrap();
        bases.extend(datagrams(&capture).into_iter().map(|datagram| datagram.payload));
    }
    let mut chance = Chance(19);
    for round in 0..60_000 {
        let bytes = chance.mutate(&bases[round % bases.len()]);
        let (flows, counts) = hear(std::slice::from_ref(&bytes));
        assert!(flows.len() * 8 <= bytes.len() && counts.records * 8 <= bytes.len() as u64 + 8);
    }
}

/// Headers of each protocol that is read, and of one that is not.
#[test]
fn headers_are_read_by_their_protocol() {
    let four = ["10.1.0.1:4000", "10.1.0.2:53"].map(|end| end.parse().unwrap());
    let six = ["[fd00::1]:4000", "[fd00::2]:53"].map(|end| end.parse().unwrap());
    let (four, six) = (build::udp(four[0], four[1], &[1; 9]), build::udp(six[0], six[1], &[1; 9]));
    let ppp = |kind: u16, packet: &[u8]| [&kind.to_be_bytes()[..], packet].concat();
    for (protocol, seen, octets) in [
        (1, build::ethernet(&four), Some(37)),
        (1, build::ethernet(&six), Some(57)),
        (7, ppp(0x0021, &four), Some(37)),
        (7, ppp(0x0057, &six), Some(57)),
        (11, four.clone(), Some(37)),
        (12, six.clone(), Some(57)),
        (2, four, None),
        (13, six, None),
    ] {
        let head = words(&[protocol, seen.len() + 4, 4, seen.len()]);
        let (flows, counts) =
            hear(&[datagram(1, 1, &[flow_sample(0, &[part(1, &[head, seen].concat())])])]);
        assert_eq!(flows.first().map(|flow| flow.octets), octets, "{protocol}");
        assert_eq!(counts.skips.of(Skip::NotIp), u64::from(octets.is_none()), "{protocol}");
        let ports = flows.first().map(|flow| (flow.key.source_port, flow.key.destination_port));
        assert_eq!(ports, octets.map(|_| (4_000, 53)));
    }
}

#[test]
fn agents_are_known_once_they_sent_something() {
    let (mut agents, mut counts) = (Agents::new(2), Counts::default());
    assert!(agents.is_empty());
    let sent = datagram(1, 1, &[flow_sample(0, &[header(100)])]);
    agents.receive(RECEIVED_NS, &sent, &mut counts, &mut |_| {}).unwrap();
    assert_eq!((agents.is_empty(), agents.len()), (false, 1));
    // With a limit of two agents, the third is decoded, but not known.
    for host in [2, 3, 4] {
        let mut other = sent.clone();
        other[11] = host;
        agents.receive(RECEIVED_NS, &other, &mut counts, &mut |_| {}).unwrap();
    }
    assert_eq!((agents.len(), counts.flows), (2, 4));
    assert_eq!(counts.skips.of(Skip::DomainLimit), 2);
}
