//! Resets that do not end the connection, and packets after those that do.

use super::*;

/// An end that continues has not reset the connection: a middlebox did.
#[test]
fn a_reset_spoofed_for_an_end_that_continues_is_ignored() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 100).after(5).rst(S).after(2).says(S, 200).after(3).says(C, 30);
    let found = one(
        &script.packets,
        "
        c 0 +35 100/1~0
        s 100 +7 200/1~0
        c 200 +3 30/1~0",
    );
    assert_eq!(found.ending(), Ending::Open);
}

/// Data that comes seconds later was not in flight: it reaches no socket, and is not awaited.
#[test]
fn data_sent_long_after_a_reset_are_not_awaited() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 100).after(5).says(S, 50).after(5).rst(C);
    let ends_ns = script.now_ns;
    script.after(2_000).says(S, 70).after(1_000).says(S, 80);
    let found = one(
        &script.packets,
        "
        c 0 +35 100/1~0
        s 100 +5 50/1~0
        c 50 +5 rst",
    );
    assert!(found.end_ns <= ends_ns, "{} and {ends_ns}", found.end_ns);
    assert_eq!(found.of(Side::Server).payload_bytes, 50);
}

/// A server that has closed both directions resets whatever arrives later: its socket was gone when it closed,
/// and not when the first of its resets passed.
#[test]
fn an_end_that_answers_with_resets_was_gone_when_it_closed() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 100).after(5).says(S, 50).after(1).fin(S);
    for bytes in [32, 1, 124] {
        script.after(1).says(C, bytes);
    }
    script.after(1).fin(C).after(70);
    for _ in 0..4 {
        script.rst_in_answer(S, 51);
    }
    let found = one(
        &script.packets,
        "
        c 0 +35 100/1~0
        s 100 +5 50/1~0
        s 100 +1 fin
        c 51 +1 32/1~0
        c 51 +1 1/1~0
        c 51 +1 124/1~0
        c 51 +1 fin
        s 100 +0 rst",
    );
    assert_eq!(found.ending(), Ending::Closed(Side::Server));
    // Beside the server each segment is answered before the next one passes.
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 100).after(5).says(S, 50).after(1).fin(S);
    for bytes in [32, 1, 124] {
        script.after(1).says(C, bytes).rst_in_answer(S, 51);
    }
    script.after(1).fin(C).rst_in_answer(S, 51);
    let found = one(
        &script.packets,
        "
        c 0 +35 100/1~0
        s 100 +5 50/1~0
        s 100 +1 fin
        c 51 +1 32/1~0
        s 100 +0 rst
        c 51 +1 1/1~0
        c 51 +1 124/1~0
        c 51 +1 fin",
    );
    assert_eq!(found.ending(), Ending::Closed(Side::Server));
}

/// An end that aborts, and answers later segments by resets, has received what its first reset acknowledges.
#[test]
fn an_aborting_end_has_not_received_data_still_in_flight() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(S, 1_000).after(4).rst(C);
    script.after(1).says(S, 900).rst_in_answer(C, 0).after(1).says(S, 500).rst_in_answer(C, 0);
    let found = one(
        &script.packets,
        "
        s 0 +35 1900/2~5
        c 1000 +4 rst
        s 0 +1 500/1~0",
    );
    assert_eq!(found.ending(), Ending::Reset(Side::Client));
}

/// Each end answers by resets the data that the other one had in flight when it closed.
#[test]
fn both_ends_may_be_gone() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 100).after(5).fin(C);
    script.after(1).data_acknowledging(S, 70, 100).data_acknowledging(S, 30, 100);
    script.fin_acknowledging(S, 100);
    script.after(1).rst_in_answer(C, 101).rst_in_answer(C, 101).rst_in_answer(C, 101);
    script.after(20).rst_in_answer(S, 100);
    let found = one(
        &script.packets,
        "
        c 0 +35 100/1~0
        c 0 +5 fin
        s 100 +6 70/1~0
        s 100 +0 30/1~0
        s 100 +0 fin
        c 0 +0 rst
        s 100 +0 rst",
    );
    assert_eq!(found.ending(), Ending::Closed(Side::Client));
}
