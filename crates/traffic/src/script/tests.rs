//! What each end does next, moment by moment.

use super::*;
use alloc::vec;

pub(super) fn step(by: Side, awaits: u64, pause_ns: u64, act: Act) -> Step {
    Step { by, awaits, pause_ns, act }
}

pub(super) fn send(bytes: u64, segments: u32, took_ns: u64) -> Act {
    Act::Send { bytes, segments, took_ns }
}

pub(super) fn script(steps: Vec<Step>) -> Script {
    Script {
        opening: Opening::Seen,
        steps,
        tried_ns: 0,
        has_time_stamps: true,
        segment_bytes: 1_448,
        acks_each: [false; 2],
    }
}

/// Two exchanges: the client thinks for 100 after an answer that comes 30 after each request.
pub(super) fn two_exchanges() -> Script {
    script(vec![
        step(Side::Client, 0, 10, send(400, 1, 0)),
        step(Side::Server, 400, 30, send(900, 1, 0)),
        step(Side::Client, 900, 100, send(300, 1, 0)),
        step(Side::Server, 700, 30, send(50, 1, 0)),
        step(Side::Client, 950, 5, Act::Fin),
        step(Side::Server, 701, 1, Act::Fin),
    ])
}

const fn whole(bytes: u64) -> Next {
    Next::Write { bytes, is_segment: false, pace: None }
}

#[test]
fn each_end_waits_for_the_data_it_answers_and_then_for_its_pause() {
    let script = two_exchanges();
    let (mut client, mut server) =
        (Speaker::new(&script, Side::Client, 0), Speaker::new(&script, Side::Server, 2));
    assert_eq!(client.next(&script, 0), Next::Wait(10));
    assert_eq!(server.next(&script, 2), Next::Listen);
    assert_eq!(client.next(&script, 10), whole(400));
    client.wrote(&script, 400, 10);
    assert_eq!(client.next(&script, 10), Next::Listen);
    server.hear(&script, 150, 12);
    assert_eq!(server.next(&script, 60), Next::Listen, "not all of it");
    server.hear(&script, 250, 13);
    assert_eq!(server.next(&script, 13), Next::Wait(43));
    // Ten ns late, in two writes.
    assert_eq!(server.next(&script, 53), whole(900));
    server.wrote(&script, 500, 53);
    assert_eq!(server.next(&script, 60), whole(400));
    server.wrote(&script, 400, 60);
    assert_eq!((server.late_ns(), client.late_ns()), (10, 0));
    client.hear(&script, 900, 70);
    assert_eq!(client.next(&script, 70), Next::Wait(170));
    client.wrote(&script, 300, 170);
    server.hear(&script, 300, 171);
    assert_eq!(server.next(&script, 201), whole(50));
    server.wrote(&script, 50, 201);
    client.hear(&script, 50, 202);
    assert_eq!(client.next(&script, 207), Next::Close);
    client.closed(&script, 207);
    assert_eq!(client.next(&script, 207), Next::Done);
    assert_eq!(server.next(&script, 207), Next::Listen);
    server.hear(&script, 1, 208);
    assert_eq!(server.next(&script, 209), Next::Close);
    server.closed(&script, 209);
    assert_eq!(server.next(&script, 209), Next::Done);
}

#[test]
fn a_step_that_begins_late_makes_no_later_one_late() {
    let script = script(vec![
        step(Side::Client, 0, 0, send(32, 1, 0)),
        step(Side::Client, 0, 100, send(1, 1, 0)),
        step(Side::Client, 0, 100, send(124, 1, 0)),
    ]);
    let mut client = Speaker::new(&script, Side::Client, 0);
    // Each is done 30 late, of which the last 10 are due to TCP.
    for (number, bytes) in [32, 1, 124].into_iter().enumerate() {
        let due_ns = number as u64 * 110;
        let before = due_ns.checked_sub(1).map(|before| client.next(&script, before));
        assert!(before.is_none_or(|next| next == Next::Wait(due_ns)), "{before:?}");
        assert_eq!(client.next(&script, due_ns + 20), whole(bytes));
        client.wrote(&script, bytes, due_ns + 30);
    }
    assert_eq!((client.late_ns(), client.next(&script, 400)), (20, Next::Done));
}

#[test]
fn a_slow_handshake_delays_all_that_comes_after_it() {
    let sends = |bytes| step(Side::Client, 0, 50, send(bytes, 1, 0));
    let script = script(vec![sends(32), sends(1), sends(124)]);
    let mut client = Speaker::new(&script, Side::Client, 0);
    client.stands(1_000);
    let mut sent = Vec::new();
    let mut now_ns = 1_000;
    while let next @ (Next::Write { .. } | Next::Wait(_)) = client.next(&script, now_ns) {
        match next {
            Next::Write { bytes, .. } => {
                client.wrote(&script, bytes, now_ns);
                sent.push((now_ns, bytes));
            }
            Next::Wait(until_ns) => now_ns = until_ns,
            _ => unreachable!(),
        }
    }
    assert_eq!(sent, [(1_000, 32), (1_050, 1), (1_100, 124)]);
}

/// A step begins late, and the data that the next one awaits came only then.
#[test]
fn a_pause_begins_when_the_awaited_data_arrive() {
    let script = script(vec![
        step(Side::Client, 0, 0, send(32, 1, 0)),
        step(Side::Client, 100, 50, send(1, 1, 0)),
    ]);
    let mut client = Speaker::new(&script, Side::Client, 0);
    client.hear(&script, 100, 15);
    assert_eq!(client.next(&script, 20), whole(32));
    client.wrote(&script, 32, 20);
    assert_eq!(client.next(&script, 20), Next::Wait(65));
}

#[test]
fn small_segments_go_out_one_by_one_over_the_time_they_took() {
    assert_eq!(sent(send(10, 4, 300)), [(1_000, 2), (1_100, 3), (1_200, 2), (1_300, 3)]);
    // Full segments and a last one are kept.
    assert_eq!(sent(send(3_000, 3, 200)), [(1_000, 1_448), (1_100, 1_448), (1_200, 104)]);
    assert_eq!(sent(send(2_400, 3, 200)), [(1_000, 800), (1_100, 800), (1_200, 800)]);
}

/// When, and how much, a client writes that sends one unit from 1,000 ns on.
fn sent(unit: Act) -> Vec<(u64, u64)> {
    let script = script(vec![step(Side::Client, 0, 0, unit)]);
    let mut client = Speaker::new(&script, Side::Client, 1_000);
    let mut sent = Vec::new();
    let mut now_ns = 1_000;
    loop {
        match client.next(&script, now_ns) {
            Next::Write { bytes, is_segment, pace } => {
                assert!(is_segment && pace.is_none());
                client.wrote(&script, bytes, now_ns);
                sent.push((now_ns, bytes));
            }
            Next::Wait(until_ns) => now_ns = until_ns,
            Next::Done => break,
            other => panic!("{other:?}"),
        }
    }
    sent
}

/// The server has closed both directions when the client, which has received its FIN, sends two more
/// units.
#[test]
fn an_end_that_is_gone_does_not_receive_the_last_data() {
    let script = script(vec![
        step(Side::Client, 0, 0, send(100, 1, 0)),
        step(Side::Server, 100, 5, Act::Fin),
        step(Side::Client, 1, 1, send(30, 1, 0)),
        step(Side::Client, 1, 600, send(20, 1, 0)),
        step(Side::Server, 100, 0, Act::Reset),
    ]);
    assert_eq!(Side::BOTH.map(|side| script.is_gone(side)), [false, true]);
    let (mut client, mut server) =
        (Speaker::new(&script, Side::Client, 0), Speaker::new(&script, Side::Server, 0));
    assert!(client.is_deaf(&script) && !server.is_deaf(&script));
    client.wrote(&script, 100, 0);
    server.hear(&script, 100, 1);
    server.closed(&script, 6);
    assert_eq!(server.next(&script, 6), Next::Leave);
    let mut late = server;
    late.hear(&script, 30, 6);
    assert_eq!(late.next(&script, 6), Next::Reset, "too late to be gone");
    client.hear(&script, 1, 7);
    client.wrote(&script, 30, 8);
    assert!(client.is_deaf(&script), "its last is not under way");
    client.wrote(&script, 20, 608);
    assert!(!client.is_deaf(&script));
}

#[test]
fn a_bulk_is_left_to_tcp_with_its_pace() {
    let script = script(vec![step(Side::Server, 0, 0, send(1_460_000, 1_000, 2_000_000_000))]);
    let mut server = Speaker::new(&script, Side::Server, 0);
    let pace = Some(730_000);
    let next = Next::Write { bytes: 1_460_000, is_segment: false, pace };
    assert_eq!(server.next(&script, 0), next);
    server.wrote(&script, 1_000_000, 5);
    assert_eq!(server.next(&script, 6), Next::Write { bytes: 460_000, is_segment: false, pace });
}

#[test]
fn with_simultaneous_sends_each_end_acts_on_what_it_has_received() {
    let script = script(vec![
        step(Side::Client, 0, 0, send(100, 1, 0)),
        step(Side::Server, 0, 7, send(50, 1, 0)),
        step(Side::Server, 100, 0, send(60, 1, 0)),
        step(Side::Client, 50, 3, Act::Reset),
    ]);
    let (mut client, mut server) =
        (Speaker::new(&script, Side::Client, 0), Speaker::new(&script, Side::Server, 0));
    assert_eq!(client.next(&script, 0), whole(100));
    assert_eq!(server.next(&script, 0), Next::Wait(7), "it awaits nothing");
    client.wrote(&script, 100, 0);
    server.hear(&script, 100, 1);
    assert_eq!(server.next(&script, 7), whole(50));
    server.wrote(&script, 50, 7);
    assert_eq!(server.next(&script, 7), whole(60), "what it awaits had come before");
    client.hear(&script, 50, 8);
    assert_eq!(client.next(&script, 11), Next::Reset);
}
