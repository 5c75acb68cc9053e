//! Tests of repair, reason by reason, and that a stream is repaired like records in memory.

use super::*;
use crate::record::{FlowKey, TCP, UDP, tcp_flags};
use alloc::vec;
use core::net::Ipv4Addr;
use nilometer_stat::Rng;

const MS: u64 = 1_000_000;
const ACK: u8 = tcp_flags::ACK;
const SYN: u8 = tcp_flags::SYN;
const FIN: u8 = tcp_flags::FIN;
/// A plausible moment for exports.
const THEN: u64 = 1_700_000_000 * SECOND_NS;

fn record(port: u16, start_ms: u64, end_ms: u64, flags: u8) -> FlowRecord {
    FlowRecord {
        key: FlowKey {
            source: Ipv4Addr::new(198, 18, 0, 1).into(),
            destination: Ipv4Addr::new(198, 18, 0, 2).into(),
            source_port: port,
            destination_port: 80,
            protocol: TCP,
        },
        start_ns: THEN + start_ms * MS,
        end_ns: THEN + end_ms * MS,
        packets: 10,
        octets: 1_000,
        tcp_flags: flags | ACK,
        payload_octets: None,
        opened: (flags & SYN != 0).then_some(true),
        end_reason: EndReason::Unknown,
        sampling_interval: 0,
    }
}

fn metered(port: u16, start_ms: u64, end_ms: u64, flags: u8) -> FlowRecord {
    FlowRecord { payload_octets: Some(600), ..record(port, start_ms, end_ms, flags) }
}

/// Repaired both ways, which must agree; and repaired again, which must change nothing.
fn repaired(records: Vec<FlowRecord>) -> (Vec<FlowRecord>, Vec<(Reason, u64)>) {
    let whole = repair(records.clone(), HARPOON_GAP_MAX_NS);
    let mut streamed = Vec::new();
    let mut stream = Repair::new(HARPOON_GAP_MAX_NS, 1_000);
    records.into_iter().for_each(|record| stream.take(record, &mut |one| streamed.push(one)));
    stream.finish(&mut |one| streamed.push(one));
    streamed.sort_by_key(|record| (record.start_ns, record.key));
    assert_eq!(streamed, whole.records);
    assert_eq!(stream.counts(), whole.counts);
    let again = repair(whole.records.clone(), HARPOON_GAP_MAX_NS);
    assert_eq!(again.records, whole.records);
    assert_eq!(again.counts.met().count(), 0, "what is repaired needs no repair");
    (whole.records, whole.counts.met().collect())
}

#[test]
fn a_split_flow_of_harpoon_is_joined() {
    // The two-record flow that the published Harpoon left in two ("surgery performed: 0").
    let (records, done) = repaired(vec![metered(1, 1_005, 2_000, FIN), metered(1, 0, 1_000, SYN)]);
    assert_eq!((records.len(), done), (1, vec![(Reason::Split, 1)]));
    let whole = &records[0];
    assert_eq!((whole.packets, whole.octets, whole.payload_octets), (20, 2_000, Some(1_200)));
    assert_eq!((whole.start_ns, whole.end_ns), (THEN, THEN + 2_000 * MS));
    assert_eq!((whole.tcp_flags, whole.opened), (SYN | FIN | ACK, Some(true)));
}

#[test]
fn many_pieces_become_one_whatever_their_order() {
    let flags = |n: u64| [SYN, 0, FIN][usize::from(n > 0) + usize::from(n > 7)];
    let mut pieces: Vec<_> = (0..9).map(|n| metered(1, n * 100, n * 100 + 95, flags(n))).collect();
    pieces.push(metered(2, 0, 10, SYN | FIN));
    pieces.swap(1, 7);
    pieces.swap(3, 9);
    let (records, done) = repaired(pieces);
    assert_eq!((records.len(), records[0].packets), (2, 90));
    assert_eq!(done, [(Reason::Split, 8)]);
}

#[test]
fn markers_and_gaps_keep_records_apart() {
    let mut idle = [record(1, 0, 100, 0), record(1, 111, 200, 0)];
    idle[0].end_reason = EndReason::IdleTimeout;
    let mut flagless = [record(1, 0, 100, 0), record(1, 111, 200, 0)];
    flagless.iter_mut().for_each(|record| record.tcp_flags = 0);
    let mut other = [record(1, 0, 100, 0), record(1, 111, 200, 0)];
    other.iter_mut().for_each(|record| record.key.protocol = UDP);
    let apart = [
        [record(1, 0, 100, FIN), record(1, 101, 200, 0)],
        [record(1, 0, 100, tcp_flags::RST), record(1, 101, 200, 0)],
        [record(1, 0, 100, 0), record(1, 101, 200, SYN)],
        [record(1, 0, 100, 0), record(1, 15_101, 15_200, 0)],
        [record(1, 0, 100, 0), record(2, 101, 200, 0)],
        idle,
        flagless,
        other,
    ];
    for pair in apart {
        assert_eq!(repaired(pair.to_vec()), (pair.to_vec(), vec![]));
    }
    let touching = vec![record(1, 0, 100, 0), record(1, 110, 200, 0)];
    assert_eq!(repaired(touching).1, [(Reason::Split, 1)]);
}

#[test]
fn the_active_timeout_is_waited_out() {
    for (gap_ms, joined) in [(14_000, true), (15_001, false)] {
        let mut first = record(1, 0, 100, SYN);
        first.end_reason = EndReason::ActiveTimeout;
        let (records, done) = repaired(vec![first, record(1, 100 + gap_ms, 100 + gap_ms, FIN)]);
        assert_eq!(records.len(), if joined { 1 } else { 2 }, "a gap of {gap_ms} ms");
        assert_eq!(done.len(), usize::from(joined));
    }
}

#[test]
fn pieces_with_a_renewed_start_are_joined() {
    // An exporter that forgets a flow at its timeout without stating so: 60 s, then 5 s of silence.
    let pieces = vec![
        record(1, 0, 60_000, SYN),
        record(1, 65_000, 120_000, 0),
        record(1, 121_000, 130_000, FIN),
    ];
    let (records, done) = repaired(pieces);
    assert_eq!((records.len(), done), (1, vec![(Reason::StartRenewed, 2)]));
    assert_eq!((records[0].start_ns, records[0].end_ns), (THEN, THEN + 130_000 * MS));
}

#[test]
fn repeated_openings_are_joined() {
    let tries = |bytes: u64| {
        let mut tries = [record(1, 0, 1_000, SYN), record(1, 3_000, 7_000, SYN)];
        tries.iter_mut().for_each(|one| one.octets = one.packets * bytes);
        repaired(tries.to_vec()).1
    };
    assert_eq!(tries(60), [(Reason::StartRenewed, 1)]);
    assert_eq!(tries(100), [], "something was sent, and this opens another connection");
}

#[test]
fn pieces_with_the_same_start_are_joined() {
    // Stamps of one start may differ in rounding; the flags of the first piece are repeated.
    let mut second = record(1, 0, 120_000, SYN);
    second.start_ns += MS / 2;
    let pieces = vec![second, record(1, 0, 60_000, SYN), record(1, 0, 130_000, SYN | FIN)];
    let (records, done) = repaired(pieces);
    assert_eq!((records.len(), done), (1, vec![(Reason::StartKept, 2)]));
    assert_eq!((records[0].packets, records[0].end_ns), (30, THEN + 130_000 * MS));
}

#[test]
fn flows_exported_for_both_directions_are_counted_once() {
    let mut pieces = Vec::new();
    for (port, start_ms, end_ms, flags) in
        [(2, 0, 5, SYN | FIN), (1, 0, 60_000, SYN), (1, 61_000, 70_000, FIN)]
    {
        pieces.push(record(port, start_ms, end_ms, flags));
        pieces.push(record(port, start_ms + 50, end_ms + 50, flags));
    }
    let mut lossy = pieces[3].clone();
    (pieces[2].packets, pieces[2].octets) = (1_000, 1_000_000);
    (lossy.packets, lossy.octets) = (950, 960_000);
    pieces[3] = lossy;
    let (records, done) = repaired(pieces);
    assert_eq!(done, [(Reason::StartRenewed, 1), (Reason::DirectionDoubled, 3)]);
    assert_eq!((records.len(), records[0].packets, records[1].packets), (2, 1_010, 10));

    let like = |change: fn(&mut FlowRecord)| {
        let mut pair = [record(1, 0, 5, SYN | FIN), record(1, 1, 6, SYN | FIN)];
        change(&mut pair[0]);
        change(&mut pair[1]);
        pair
    };
    let mut more = like(|_| {});
    more[1].packets += 1;
    let mut later = like(|_| {});
    later[1].end_ns += 51 * MS;
    let mut single = like(|record| record.packets = 1);
    single[1].start_ns += MS;
    single.iter_mut().for_each(|record| record.end_ns = record.start_ns);
    let apart = [
        more,
        later,
        single,
        like(|record| record.sampling_interval = 1),
        like(|record| record.payload_octets = Some(600)),
    ];
    // A record that counts only payload is from an exporter, not from our own meter.
    let payload = like(|record| record.payload_octets = Some(record.octets));
    assert_eq!(repaired(payload.to_vec()).1, [(Reason::DirectionDoubled, 1)]);
    for pair in apart {
        let (records, _) = repaired(pair.to_vec());
        let packets: u64 = records.iter().map(|record| record.packets).sum();
        assert_eq!(packets, pair[0].packets + pair[1].packets, "{pair:?}");
    }
}

#[test]
fn a_counter_that_wrapped_is_unwrapped() {
    let with = |packets: u64, octets: u64| {
        let mut one = record(1, 0, 60_000, SYN | FIN);
        (one.packets, one.octets) = (packets, octets);
        let (records, done) = repaired(vec![one]);
        (records[0].octets, done == [(Reason::CounterWrapped, 1)])
    };
    let wrap = 1u64 << 32;
    // 4 million packets of 1,075 bytes are 4.3 GB: 5,032,704 bytes are left of them.
    assert_eq!(with(4_000_000, 5_032_704), (wrap + 5_032_704, true));
    assert_eq!(with(300_000_000, 7), (3 * wrap + 7, true), "as often as it must have");
    assert_eq!(with(4_000_000, 160_000_000), (160_000_000, false), "bare headers do");
    assert_eq!(with(60_000, 7), (7, false), "so few packets wrap nothing");
    assert_eq!(with(4_000_000, 0), (0, false), "bytes are not counted at all");
    assert_eq!(with(u64::MAX, wrap + 7), (wrap + 7, false), "this counter is wider");
    // The side of a long download that acknowledges: its payload is little, and nothing wrapped.
    let mut one = record(1, 0, 60_000, SYN | FIN);
    (one.packets, one.octets, one.payload_octets) = (1_000_000, 500, Some(500));
    assert_eq!(repaired(vec![one.clone()]), (vec![one], vec![]));
}

#[test]
fn an_impossible_duration_is_corrected() {
    let wrap_ms = 1u64 << 32;
    let after = |start_ms: i64, end_ms: i64| {
        let at = |ms: i64| THEN.saturating_add_signed(ms * MS as i64);
        let mut odd = record(2, 0, 0, SYN | FIN);
        (odd.start_ns, odd.end_ns) = (at(start_ms), at(end_ms));
        let (records, done) = repaired(vec![record(1, 0, 1_000, SYN | FIN), odd]);
        let odd = records.into_iter().find(|one| one.key.source_port == 2).expect("it is given");
        ((odd.start_ns, odd.end_ns), done == [(Reason::DurationAbsurd, 1)])
    };
    let at = |ms: u64| THEN + ms * MS;
    // 4294967.238 s, as switches export it: it ended 58 ms before it began.
    let wrap = wrap_ms as i64;
    assert_eq!(after(1_000 - wrap + 58, 1_000), ((at(1_000), at(1_000)), true));
    assert_eq!(after(1_000 - wrap - 300, 1_000), ((at(700), at(1_000)), true));
    // Ten packets in ten days: one stamp is wrong, the one far from the record before.
    let days = 10 * 86_400_000;
    assert_eq!(after(1_000 - days, 1_000), ((at(1_000), at(1_000)), true));
    assert_eq!(after(1_000, 1_000 + days), ((at(1_000), at(1_000)), true));
    let day = 86_400_000;
    assert_eq!(after(0, day), ((at(0), at(day as u64)), false), "a day is believed");
    let mut uncounted = record(1, 0, 2 * day as u64, SYN | FIN);
    uncounted.packets = 0;
    assert_eq!(repaired(vec![uncounted.clone()]), (vec![uncounted], vec![]));
}

#[test]
fn unknown_payload_stays_unknown_and_sums_do_not_overflow() {
    let mut one = metered(1, 0, 100, SYN);
    one.payload_octets = None;
    let (records, done) = repaired(vec![one, metered(1, 50, 200, 0)]);
    assert_eq!((records[0].payload_octets, done), (None, vec![(Reason::Split, 1)]));
    assert_eq!(repaired(vec![]), (vec![], vec![]));
    let mut absurd = record(1, 0, 100, SYN);
    absurd.octets = u64::MAX;
    assert_eq!(repaired(vec![absurd, record(1, 101, 200, 0)]).1, []);
}

#[test]
fn a_stream_is_bounded_and_loses_nothing() {
    let mut rng = Rng::new(5, 0, 0);
    let mut next = |below: u64| rng.below(below);
    for waiting_max in [1, 7, 1_000_000] {
        let mut stream = Repair::new(HARPOON_GAP_MAX_NS, waiting_max);
        let (mut given, mut packets) = (0u64, 0u64);
        for n in 0..20_000 {
            // Now and then a stamp is from another year, and an input begins much earlier.
            let odd = if next(500) == 0 { 1 << 40 } else { 0 };
            let start_ms = (n % 9_000) * 50 + odd;
            let flags = [SYN, 0, FIN, SYN | FIN][next(4) as usize];
            let one = record(next(40) as u16, start_ms, start_ms + next(70_000), flags);
            stream
                .take(one, &mut |record| (given, packets) = (given + 1, packets + record.packets));
            assert!(stream.waiting.len() <= waiting_max);
        }
        stream.finish(&mut |record| (given, packets) = (given + 1, packets + record.packets));
        let counts = stream.counts();
        assert_eq!((counts.given.records, counts.given.packets), (given, packets.into()));
        assert_eq!(counts.offered.records, 20_000);
        assert_eq!(counts.settled_early > 0, waiting_max < 40);
    }
}

#[test]
fn a_stream_settles_finished_flows_and_waits_for_others() {
    let mut stream = Repair::new(HARPOON_GAP_MAX_NS, 1_000);
    let mut given = Vec::new();
    let mut take = |record: FlowRecord| {
        stream.take(record, &mut |one| given.push(one.key.source_port));
        given.clone()
    };
    take(record(1, 0, 1_000, SYN | FIN));
    take(record(2, 0, 60_000, SYN));
    assert!(take(record(3, 0, 61_000, SYN | FIN)).is_empty(), "a double of the first may yet come");
    assert_eq!(take(record(4, 0, 61_002, SYN | FIN)), [1]);
    // The next piece is exported half an hour later.
    assert_eq!(take(record(2, 61_000, 1_860_000, FIN)), [1, 3, 4]);
    assert_eq!(take(record(5, 4_000_000, 4_000_000, SYN)), [1, 3, 4]);
    assert_eq!(take(record(6, 5_461_000, 5_461_000, SYN | FIN)), [1, 3, 4, 2]);
    assert_eq!(stream.counts().of(Reason::StartRenewed), 1);
}

/// Bare headers of each packet: 20 bytes of IPv4 or 40 of IPv6, 20 of TCP or 8 of UDP.
#[test]
fn a_counter_wrapped_where_bytes_do_not_do_for_headers() {
    let v6 = core::net::Ipv6Addr::LOCALHOST;
    for (protocol, is_v4, header_bytes) in [
        (TCP, true, 40),
        (TCP, false, 60),
        (UDP, true, 28),
        (UDP, false, 48),
        (47, true, 20),
        (47, false, 40),
    ] {
        let mut one = record(1, 0, 60_000, 0);
        one.key.protocol = protocol;
        if !is_v4 {
            (one.key.source, one.key.destination) = (v6.into(), v6.into());
        }
        one.packets = 200_000;
        for (less, wrapped) in [(1, 1), (0, 0)] {
            one.octets = 200_000 * header_bytes - less;
            let mut screen = Screen::default();
            let mut found = one.clone();
            screen.set_right(&mut found);
            assert_eq!(screen.counts.of(Reason::CounterWrapped), wrapped, "{protocol}");
            assert_eq!(found.octets, one.octets + (wrapped << 32));
            assert_eq!(screen.counts.octets_unwrapped, u128::from(wrapped) << 32);
        }
    }
}

/// An uptime of 2^32 ms may wrap more than once, and up to an hour to either side is the remainder.
#[test]
fn wrapped_uptimes_are_recognised_by_the_remainder() {
    const WRAP_NS: u64 = (1 << 32) * MS;
    const HOUR_NS: u64 = 3_600 * SECOND_NS;
    let stamps_of = |duration_ns: u64, packets: u64| {
        let mut one = record(1, 0, 0, 0);
        (one.start_ns, one.end_ns, one.packets) = (THEN, THEN + duration_ns, packets);
        stamps(&one)
    };
    for wraps in [1, 2, 3] {
        let (end_ns, wrap_ns) = (THEN + wraps * WRAP_NS, wraps * WRAP_NS);
        assert_eq!(stamps_of(wrap_ns, 9), Stamps::Wrapped(end_ns));
        assert_eq!(stamps_of(wrap_ns + HOUR_NS, 9), Stamps::Wrapped(end_ns));
        assert_eq!(stamps_of(wrap_ns + 77, 0), Stamps::Wrapped(end_ns));
        assert_eq!(stamps_of(wrap_ns - HOUR_NS, 9), Stamps::Wrapped(end_ns - HOUR_NS));
        assert_eq!(stamps_of(wrap_ns + HOUR_NS + 1, 9), Stamps::Doubtful);
        assert_eq!(stamps_of(wrap_ns - HOUR_NS - 1, 9), Stamps::Doubtful);
    }
    // A day is believed, and so is an hour for each gap between packets.
    let day_ns = 24 * HOUR_NS;
    assert_eq!(stamps_of(day_ns, 1), Stamps::Believed);
    assert_eq!(stamps_of(day_ns + 1, 1), Stamps::Doubtful);
    assert_eq!(stamps_of(day_ns + 1, 0), Stamps::Believed);
    assert_eq!(stamps_of(100 * HOUR_NS, 101), Stamps::Believed);
    assert_eq!(stamps_of(100 * HOUR_NS + 1, 101), Stamps::Doubtful);
}

/// Of two stamps of which one must be wrong, the one nearer to the record before is believed.
#[test]
fn a_screen_uses_the_record_before() {
    let day = 86_400_000;
    let doubtful = record(1, 10 * day, 20 * day, 0);
    let at = |days: u64| THEN + days * day * MS;
    let set_right = |screen: &mut Screen| {
        let mut one = doubtful.clone();
        screen.set_right(&mut one);
        (one.start_ns, one.end_ns)
    };
    let mut screen = Screen::default();
    assert_eq!(set_right(&mut screen), (at(20), at(20)), "nothing came before");
    screen.comes_after(Some(at(14)));
    assert_eq!(set_right(&mut screen), (at(10), at(10)));
    screen.comes_after(Some(at(16)));
    assert_eq!(set_right(&mut screen), (at(20), at(20)));
    screen.comes_after(Some(at(15)));
    assert_eq!(set_right(&mut screen), (at(20), at(20)), "as near to both");
    screen.set_right(&mut record(2, 9 * day, 9 * day, 0));
    assert_eq!(set_right(&mut screen), (at(10), at(10)));
    screen.input_ends();
    assert_eq!(set_right(&mut screen), (at(20), at(20)));
    screen.comes_after(None);
    assert_eq!(set_right(&mut screen), (at(20), at(20)));
    assert_eq!(screen.counts.of(Reason::DurationAbsurd), 7);
}

#[test]
fn reasons_have_their_names() {
    let names = Reason::ALL.map(Reason::name);
    let wanted = [
        "split",
        "start_renewed",
        "start_kept",
        "direction_doubled",
        "counter_wrapped",
        "duration_absurd",
    ];
    assert_eq!(names, wanted);
}

fn sound() -> RepairCounts {
    let counts = repair(vec![record(1, 0, 100, SYN), record(1, 105, 200, FIN)], HARPOON_GAP_MAX_NS);
    counts.counts.assert_conserved();
    counts.counts
}

#[test]
#[should_panic(expected = "a record is given, joined or a double")]
fn a_missing_record_fails_the_conservation_check() {
    let mut counts = sound();
    counts.given.records -= 1;
    counts.assert_conserved();
}

#[test]
#[should_panic(expected = "packets are conserved")]
fn missing_packets_fail_the_conservation_check() {
    let mut counts = sound();
    counts.given.packets -= 1;
    counts.assert_conserved();
}

#[test]
#[should_panic(expected = "bytes are conserved")]
fn missing_bytes_fail_the_conservation_check() {
    let mut counts = sound();
    counts.octets_unwrapped += 1;
    counts.assert_conserved();
}
