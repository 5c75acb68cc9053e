//! What a sender transmits and what it holds back, in numbers; and when its short path applies.

use alloc::boxed::Box;
use alloc::format;

use nilometer_wire::Span;

use super::*;
use crate::config::{Algorithm, Config};
use crate::flight::Flight;
use crate::rack_state::RackState;

const MSS: u64 = 1_000;
const NOW: Time = Time(5_000_000_000_000);

/// What is different.
type Change = fn(&mut Sender);

/// After the handshake: a window of ten segments, a peer without bounds, and nothing written.
fn sender(config: &Config) -> Sender {
    let config = Config { initial_window: 10, ..*config };
    let mut sender = Sender::new(&config, 0);
    sender.begin(MSS as u32, &config);
    (sender.una, sender.next, sender.max) = (1, 1, 1);
    (sender.edge, sender.peer_window_max) = (1 << 30, 1 << 30);
    sender.rtt.sample(Span::from_nanos(50_000_000));
    sender
}

/// What `transmit` returns: offset and length.
fn ask(sender: &mut Sender, now: Time) -> Option<(u64, u64)> {
    let chunk = sender.transmit(now, &mut Statistics::default())?;
    Some((chunk.start, u64::from(chunk.length)))
}

/// With one segment under way and so much more written that the short path applies.
fn under_way() -> Sender {
    let mut sender = sender(&Config::ns2_reno());
    sender.write(6 * MSS);
    assert_eq!(ask(&mut sender, NOW), Some((1, MSS)));
    sender
}

#[test]
fn the_short_path_takes_the_next_full_segment() {
    let mut sender = under_way();
    let mut counts = Statistics::default();
    assert_eq!(sender.transmit_plain(NOW, &mut counts), Some(1_001));
    assert_eq!((sender.next, sender.max, counts.bytes_sent), (2_001, 2_001, MSS));
    let changes: [(&str, Change); 4] = [
        ("the data ends with it", |sender| sender.end = 2_001),
        ("the peer's window ends with it", |sender| sender.edge = 2_001),
        ("the window ends with it", |sender| sender.window.cwnd = 2 * MSS),
        ("the pace lets it go now", |sender| sender.paced_until = NOW),
    ];
    for (why, change) in changes {
        let mut sender = under_way();
        change(&mut sender);
        assert_eq!(sender.transmit_plain(NOW, &mut counts), Some(1_001), "{why}");
    }
}

#[test]
fn the_short_path_changes_nothing_when_it_does_not_apply() {
    let changes: [(&str, Change); 22] = [
        ("two of what follows", |sender| (sender.repeat_first, sender.has_fin) = (true, true)),
        ("two others", |sender| (sender.has_fin, sender.cwr) = (true, true)),
        ("and two others", |sender| (sender.cwr, sender.is_persisting) = (true, true)),
        ("something is to be repeated", |sender| sender.repeat_first = true),
        ("a FIN may go with it", |sender| sender.has_fin = true),
        ("the peer is to be told of a reduction", |sender| sender.cwr = true),
        ("the persist timer runs", |sender| sender.is_persisting = true),
        ("F-RTO asks", |sender| sender.probes = 1),
        ("losses are repaired", |sender| sender.phase = Phase::Recovery),
        ("a timeout's losses are repaired", |sender| sender.phase = Phase::Loss),
        ("a record is kept for repairs", |sender| {
            sender.rack_state = Some(Box::new(RackState::new(&Config::linux(), 1_000)));
        }),
        ("a record is kept of the flight", |sender| {
            sender.flight = Some(Box::new(Flight::new(true)));
        }),
        ("the pace holds it", |sender| sender.paced_until = Time(NOW.0 + 1)),
        ("the controller paces", |sender| {
            let config = Config { algorithm: Algorithm::Bbr, ..Config::rfc() };
            sender.controller = Any::new(&config, &sender.window, 1);
        }),
        ("it was sent before", |sender| sender.max = 2_001),
        ("nothing is under way", |sender| sender.una = 1_001),
        ("no timer runs", |sender| sender.deadline = NEVER),
        ("the data ends before it does", |sender| sender.end = 2_000),
        ("the peer's window ends before it does", |sender| sender.edge = 2_000),
        ("the window ends before it does", |sender| sender.window.cwnd = 2 * MSS - 1),
        ("the window is full", |sender| sender.window.cwnd = MSS),
        ("more than the window is under way", |sender| sender.window.cwnd = 1),
    ];
    for (why, change) in changes {
        let mut sender = under_way();
        change(&mut sender);
        let before = format!("{sender:?}");
        assert_eq!(sender.transmit_plain(NOW, &mut Statistics::default()), None, "{why}");
        assert_eq!(format!("{sender:?}"), before, "{why}");
    }
}

#[test]
fn a_sender_with_a_full_window_is_silent() {
    let mut sender = sender(&Config::ns2_reno());
    sender.write(30 * MSS);
    for count in 1..=10 {
        assert!(!sender.is_spent && !sender.is_silent());
        ask(&mut sender, NOW);
        assert_eq!(sender.is_spent, count == 10, "after {count}");
    }
    assert!(sender.is_silent() && sender.is_window_limited && !sender.rests());
    assert_eq!(ask(&mut sender, NOW), None);
    // Where all that was written went, it is the application that has no more.
    let mut sender = self::sender(&Config::ns2_reno());
    sender.write(10 * MSS);
    (0..10).for_each(|_| assert!(ask(&mut sender, NOW).is_some()));
    assert!(!sender.is_spent && !sender.is_silent());
}

#[test]
fn a_sender_rests_when_all_is_acknowledged_and_nothing_is_pending() {
    let mut sender = sender(&Config::ns2_reno());
    assert!(sender.rests() && sender.is_silent());
    let changes: [Change; 7] = [
        |sender| sender.write(1),
        |sender| sender.has_fin = true,
        |sender| sender.is_paced = true,
        |sender| sender.repeat_first = true,
        |sender| sender.probe = true,
        |sender| sender.flight = Some(Box::new(Flight::new(true))),
        |sender| sender.rack_state = Some(Box::new(RackState::new(&Config::linux(), 1_000))),
    ];
    for change in changes {
        let mut sender = sender.clone();
        change(&mut sender);
        assert!(!sender.rests() && !sender.is_silent());
        sender.is_spent = true;
        assert!(!sender.rests() && sender.is_silent());
    }
    sender.is_spent = true;
    assert!(sender.is_silent());
}

/// RFC 9293, 3.8.6.2.1: a full segment, or half of the largest window ever offered, or the rest.
#[test]
fn a_small_window_is_used_from_half_of_the_largest_on() {
    let usable = |most: u64, written: u64, usable: u64| {
        let mut sender = sender(&Config::ns2_reno());
        sender.write(written);
        (sender.peer_window_max, sender.edge) = (most, 1 + usable);
        let sent = ask(&mut sender, NOW);
        assert!(!sender.is_window_limited);
        assert_eq!(sender.is_persisting, sent.is_none());
        assert_eq!(sender.deadline, NOW + sender.rtt.rto(), "one timer or the other runs");
        sent.map(|(_, length)| length)
    };
    assert_eq!(usable(1_200, 5_000, 599), None);
    assert_eq!(usable(1_200, 5_000, 600), Some(600));
    assert_eq!(usable(1_201, 5_000, 600), None, "half is rounded up");
    assert_eq!(usable(1_201, 5_000, 601), Some(601));
    assert_eq!(usable(9_000, 5_000, 999), None);
    assert_eq!(usable(9_000, 5_000, 1_000), Some(1_000));
    assert_eq!(usable(9_000, 300, 299), None);
    assert_eq!(usable(9_000, 300, 300), Some(300), "the rest");
    assert_eq!(usable(0, 300, 0), None, "nothing is not worth it");
}

#[test]
fn the_persist_timer_runs_only_if_nothing_else_can_open_the_window() {
    let mut sender = under_way();
    sender.edge = 1_001;
    let deadline = sender.deadline;
    assert_eq!(ask(&mut sender, NOW), None);
    assert_eq!((sender.is_persisting, sender.deadline), (false, deadline));
    // All is acknowledged, and the window stays closed.
    (sender.una, sender.deadline) = (1_001, NEVER);
    assert_eq!(ask(&mut sender, NOW), None);
    let rto = sender.rtt.rto();
    assert_eq!((sender.is_persisting, sender.deadline), (true, NOW + rto));
    // It probes again after twice the time, with what little fits if anything does.
    let later = NOW + rto;
    sender.on_persist(later);
    assert_eq!((sender.retries, sender.deadline), (1, later + rto * 2));
    assert!(sender.probe && !sender.rests());
    assert_eq!(ask(&mut sender, later), None);
    sender.edge = 1_011;
    assert_eq!(ask(&mut sender, later), Some((1_001, 10)));
    assert!(!sender.probe && !sender.is_persisting);
    assert_eq!((sender.retries, sender.deadline), (0, later + rto * 2), "not yet measured anew");
}

/// RFC 5681, 4.1, and 2861: a pause counts from beyond the timeout on, which is here 200 ms.
#[test]
fn a_pause_is_one_from_beyond_the_timeout_on() {
    let after = |idle_restart, idle_ms: u64, extra: u64| {
        let config = Config { idle_restart, ..Config::ns2_reno() };
        let mut sender = sender(&config);
        sender.window.cwnd = 64 * MSS;
        sender.window.ssthresh = 20 * MSS;
        sender.last_sent = NOW;
        assert_eq!(sender.rtt.rto(), Span::from_nanos(200_000_000));
        sender.write(MSS);
        ask(&mut sender, NOW + Span::from_nanos(idle_ms * 1_000_000) + Span(extra));
        (sender.window.cwnd / MSS, sender.window.ssthresh / MSS)
    };
    use IdleRestart::{Decay, Initial, Never};
    assert_eq!(after(Initial, 200, 0), (64, 20));
    assert_eq!(after(Initial, 200, 1), (10, 20));
    assert_eq!(after(Never, 9_000, 0), (64, 20));
    assert_eq!(after(Decay, 200, 0), (64, 20));
    assert_eq!(after(Decay, 200, 1), (32, 48));
    assert_eq!(after(Decay, 399, 0), (32, 48));
    assert_eq!(after(Decay, 400, 0), (16, 48));
    assert_eq!(after(Decay, 600, 0), (10, 48), "not below the initial window");
    assert_eq!(after(Decay, 60_000, 0), (10, 48));
}

/// NextSeg's rule 4: one segment at the end of what is under way, once per recovery.
#[test]
fn the_tail_is_rescued_once() {
    let mut sender = sender(&Config::rfc());
    sender.has_sack = true;
    (sender.next, sender.max, sender.end) = (8_001, 8_001, 8_001);
    assert_eq!(sender.rescue(), None, "nothing was reported");
    sender.scoreboard.record(2_001, 3_001);
    let chunk = sender.rescue().map(|chunk| (chunk.start, chunk.length));
    assert_eq!(chunk, Some((7_001, 1_000)));
    assert_eq!(sender.rescue(), None);
    sender.rescued = false;
    sender.scoreboard.record(3_001, 7_501);
    let chunk = sender.rescue().map(|chunk| (chunk.start, chunk.length));
    assert_eq!(chunk, Some((7_501, 500)), "what was reported is not sent again");
    sender.rescued = false;
    sender.scoreboard.record(7_501, 8_001);
    assert_eq!(sender.rescue(), None, "the tail has arrived");
}

/// A round trip has passed when what was under way at its beginning is acknowledged.
#[test]
fn a_round_ends_when_the_data_in_flight_at_its_start_are_acknowledged() {
    let mut sender = sender(&Config::ns2_reno());
    for (una, max, expected) in [
        (1, 1, true), // nothing is under way: the next byte will tell
        (1, 5_001, false),
        (2, 5_001, true),
        (5_000, 9_001, false),
        (5_001, 9_001, true),
        (9_000, 9_001, false),
        (9_001, 9_001, true),
        (9_001, 12_001, false),
        (9_002, 12_001, true),
    ] {
        (sender.una, sender.max) = (una, max);
        assert_eq!(sender.end_round(), expected, "{una} of {max}");
    }
}

/// What is sent again first is entered in the scoreboard to its end, a FIN's offset with it.
#[test]
fn the_first_segment_sent_again_is_entered_to_its_end() {
    for (end, has_fin, reported, expected) in [
        (601, true, None, (1, 600, true, 602)),
        (601, false, None, (1, 600, false, 601)),
        (3_001, true, None, (1, 1_000, false, 1_001)),
        (3_001, true, Some((501, 1_001)), (1, 500, false, 501)),
        (1, true, None, (1, 0, true, 2)),
    ] {
        let mut sender = sender(&Config::rfc());
        (sender.has_sack, sender.has_fin) = (true, has_fin);
        sender.end = end;
        (sender.next, sender.max) = (sender.last(), sender.last());
        sender.scoreboard.begin(1);
        if let Some((left, right)) = reported {
            sender.scoreboard.record(left, right);
        }
        let chunk = sender.first();
        let entered = sender.scoreboard.retransmitted();
        assert_eq!((chunk.start, chunk.length, chunk.has_fin, entered), expected, "{end}");
    }
}

/// A FIN goes with the last data only if the chunk reaches it.
#[test]
fn a_chunk_ends_at_the_requested_offset() {
    let mut sender = sender(&Config::ns2_reno());
    (sender.end, sender.has_fin, sender.max) = (1_501, true, 1_001);
    let of = |start, right| {
        let chunk = sender.chunk(start, right);
        (chunk.length, chunk.has_fin, chunk.is_repeat)
    };
    assert_eq!(of(1, 9_000), (1_000, false, true));
    assert_eq!(of(1, 400), (399, false, true));
    assert_eq!(of(501, 1_501), (1_000, false, true));
    assert_eq!(of(501, 1_502), (1_000, true, true));
    assert_eq!(of(1_000, 1_502), (501, true, true));
    assert_eq!(of(1_001, 1_502), (500, true, false));
    assert_eq!(of(1_501, 1_502), (0, true, false));
}

/// RFC 3168, 6.1.2: a loss of the window that a mark has reduced does not reduce it again; the first
/// segment after that window is of another.
#[test]
fn a_loss_beyond_the_marked_window_reduces_it_again() {
    use crate::config::Recovery;
    use crate::segment::Segment;
    use crate::sender::Arrival;
    let cut = |marked_until: u64| {
        let config = Config { recovery: Recovery::NewReno, ..Config::ns2_reno() };
        let mut sender = sender(&config);
        sender.write(8 * MSS);
        while ask(&mut sender, NOW).is_some() {}
        (sender.window.ssthresh, sender.marked_until) = (10 * MSS, marked_until);
        let segment = Segment::default();
        let arrival = Arrival { now: NOW, segment: &segment, echoed: None, is_bare: true };
        for _ in 0..3 {
            sender.on_ack(1, &arrival, &mut Statistics::default());
        }
        assert_eq!(sender.phase, Phase::Recovery);
        sender.window.ssthresh / MSS
    };
    assert_eq!([0, 1, 2, 8_001].map(cut), [4, 4, 10, 10]);
}
