//! Connections joined from the flow records of their packets.

use super::*;
use nilometer_conversation::{RecordDetail, joined};
use nilometer_flow::FlowRecord;
use nilometer_flow::meter::{Meter, MeterConfig};
use nilometer_flow::record::tcp_flags;
use nilometer_flow::repair::{HARPOON_GAP_MAX_NS, RepairCounts, settle_all};

const SECOND: u64 = 1_000 * MS;

/// Repaired records of packets.
fn records(packets: &[Packet], config: MeterConfig) -> Vec<FlowRecord> {
    let mut meter = Meter::new(config);
    let mut records = Vec::new();
    for (stamp_ns, bytes) in packets {
        match parse(LinkType::RawIp, bytes, bytes.len() as u32) {
            Parsed::Ip(packet) => meter.observe(*stamp_ns, &packet, &mut |one| records.push(one)),
            other => panic!("{other:?}"),
        };
    }
    meter.flush(&mut |one| records.push(one));
    settle_all(records, HARPOON_GAP_MAX_NS, &mut RepairCounts::default())
}

fn joined_of(packets: &[Packet]) -> Vec<Connection> {
    let records = records(packets, MeterConfig::default());
    joined(&records, RecordDetail::of(&records), None)
}

/// What records show of a connection.
fn outline(one: &Connection) -> impl PartialEq + std::fmt::Debug + use<> {
    let ending = match one.ending() {
        // Records do not show which end was first.
        Ending::Closed(_) => Ending::Closed(Side::Client),
        other => other,
    };
    let sides = Side::BOTH.map(|side| {
        let carried = one.of(side);
        (carried.packets, carried.octets, carried.payload_bytes)
    });
    (one.client, one.server, [one.start_ns, one.end_ns], (one.opening, ending), sides)
}

#[track_caller]
fn same(script: &Script) -> Vec<Connection> {
    let (followed, joined) = (follow(&script.packets, usize::MAX), joined_of(&script.packets));
    let outlines = |all: &[Connection]| all.iter().map(outline).collect::<Vec<_>>();
    assert_eq!(outlines(&joined), outlines(&followed));
    joined
}

/// Without the last packet, since records cannot separate it from the end moments before.
fn without_last(mut script: Script) -> Script {
    script.packets.pop();
    script
}

#[test]
fn records_of_a_connection_are_the_connection() {
    assert!(same(&without_last(usual()))[0].exchanges().next().is_none());
    let mut refused = Script::new(5);
    refused.syn().after(1).rst(S);
    assert_eq!(same(&refused)[0].ending(), Ending::Refused);
    let mut unanswered = Script::new(5);
    unanswered.syn().after(1_000).syn().after(20_000).syn();
    assert_eq!(same(&unanswered)[0].ending(), Ending::Unanswered);
    unanswered.after(40_000).opens();
    assert_eq!(same(&unanswered)[0].ending(), Ending::Open);
    let mut reset = Script::new(5);
    reset.opens();
    reset.after(10).says(C, 100).after(5).rst(S);
    assert_eq!(same(&reset)[0].ending(), Ending::Reset(Side::Server));
    let mut half = Script::new(5);
    half.opens();
    half.after(10).says(C, 100).after(5).fin(S).after(700).says(C, 30);
    assert_eq!(same(&half)[0].ending(), Ending::HalfClosed(Side::Server));
    let mut under_way = without_last(usual());
    under_way.packets.drain(..3);
    assert_eq!(same(&under_way)[0].opening, Opening::Unseen);
    // Flows that an inactive timeout cut are joined again.
    let mut silent = Script::new(5);
    silent.opens();
    for _ in 0..8 {
        silent.after(3_600).says(C, 100).after(1).says(S, 900).after(40_000).ack(C);
    }
    silent.after(1).fin(C).after(1).fin(S);
    assert_eq!(same(&silent).len(), 1);
    let mut again = without_last(usual());
    let mut other = Script::new(70_000);
    other.now_ns = again.now_ns + 9 * SECOND;
    other.opens();
    other.after(1).says(C, 11).after(1).says(S, 22);
    again.packets.extend(other.packets);
    assert_eq!(same(&again).len(), 2);
}

/// An exporter that ends a flow at its FIN makes another flow of the acknowledgement. An exporter that
/// keeps the flags of a flow's first packet alone: what carried payload was answered.
#[test]
fn a_syn_that_carried_payload_was_answered() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 700);
    let mut records = records(&script.packets, MeterConfig::default());
    records.retain(|record| record.opened == Some(true));
    records[0].tcp_flags = tcp_flags::SYN;
    let opening =
        |records: &[FlowRecord]| joined(records, RecordDetail::of(records), None)[0].opening;
    assert_eq!(opening(&records), Opening::Seen);
    records[0].payload_octets = Some(0);
    assert_eq!(opening(&records), Opening::Unanswered);
}

#[test]
fn stray_packets_after_an_end_are_no_connection() {
    let script = usual();
    let config = MeterConfig { linger_ns: 0, ..MeterConfig::default() };
    let mut late = script.packets.last().expect("packets").clone();
    late.0 += 20 * SECOND;
    let packets = [&script.packets[..], &[late.clone()]].concat();
    let records = records(&packets, config);
    assert!(records.len() > 2, "{records:#?}");
    let found = joined(&records, RecordDetail::of(&records), None);
    assert_eq!(found.len(), 1, "{found:#?}");
    let bytes: u64 = packets.iter().map(|packet| packet.1.len() as u64).sum();
    assert_eq!(found[0].carried.iter().map(|side| side.octets).sum::<u64>(), bytes);
    assert!(found[0].end_ns < late.0);
}

/// Both sets are reduced to what the less informative one shows.
#[test]
fn only_fields_common_to_both_records_are_used() {
    let mut records = records(&without_last(usual()).packets, MeterConfig::default());
    for record in &mut records {
        // Twelve bytes of options a packet, and stamps of any ns.
        record.octets += 12 * record.packets;
        (record.start_ns, record.end_ns) = (record.start_ns + 123, record.end_ns + 123);
    }
    let all = RecordDetail::of(&records);
    assert_eq!(all, RecordDetail { flags: true, opened: true, payload: true, resolution_ns: 1 });
    let mut coarse = records.clone();
    for record in &mut coarse {
        record.start_ns -= record.start_ns % SECOND;
        record.end_ns -= record.end_ns % SECOND;
        (record.payload_octets, record.opened) = (None, None);
    }
    let less = RecordDetail::of(&coarse);
    let expected = RecordDetail { opened: false, payload: false, resolution_ns: SECOND, ..all };
    assert_eq!((less, all.and(less), less.and(all)), (expected, expected, expected));
    assert_eq!(joined(&records, less, None), joined(&coarse, less, None));
    let described = |detail| {
        let found = joined(&records, detail, None);
        let client = found[0].of(Side::Client);
        (found[0].start_ns, client.payload_bytes, client.packets)
    };
    assert_eq!(described(all), (SECOND + 123, 700, 7));
    assert_eq!(described(less), (SECOND, 700 + 7 * 12, 7), "bytes less headers");
}

/// Without flags only silence separates connections, and ports decide which end is the client.
#[test]
fn without_flags_a_minute_of_silence_ends_a_connection() {
    let whole = records(&without_last(usual()).packets, MeterConfig::default());
    let later = |record: &FlowRecord, seconds: u64| FlowRecord {
        start_ns: record.start_ns + seconds * SECOND,
        end_ns: record.end_ns + seconds * SECOND,
        ..record.clone()
    };
    let at = |seconds: u64| whole.iter().map(move |record| later(record, seconds));
    let mut records: Vec<FlowRecord> = at(0).chain(at(50)).chain(at(200)).collect();
    for record in &mut records {
        (record.tcp_flags, record.opened) = (0, None);
    }
    let detail = RecordDetail::of(&records);
    assert!(!detail.flags);
    let found = joined(&records, detail, None);
    let payload: Vec<u64> = found.iter().map(|one| one.of(Side::Server).payload_bytes).collect();
    assert_eq!(payload, [8_000, 4_000]);
    assert!(found.iter().all(|one| one.server.port() == 80 && one.steps.is_empty()));
}

#[test]
fn one_side_of_records_agrees_with_an_exporter_of_one_direction() {
    let records = records(&without_last(usual()).packets, MeterConfig::default());
    let detail = RecordDetail::of(&records);
    for side in Side::BOTH {
        let is_of = |record: &&FlowRecord| record.is_from_client() == (side == Side::Client);
        let own: Vec<FlowRecord> = records.iter().filter(is_of).cloned().collect();
        let found = joined(&records, detail, Some(side));
        assert_eq!(found, joined(&own, detail, None));
        assert_eq!(found[0].of(side.other()).packets, 0);
    }
}
