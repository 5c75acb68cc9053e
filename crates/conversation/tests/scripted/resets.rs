//! Resets that are not the end, and what comes after those that are.

use super::*;

/// Whoever goes on has not reset it: somebody between the ends did.
#[test]
fn a_reset_in_the_name_of_an_end_that_goes_on_is_none() {
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

/// What comes seconds later was not under way: nobody listens, and nobody waits for it.
#[test]
fn what_is_sent_long_after_a_reset_is_not_awaited() {
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
