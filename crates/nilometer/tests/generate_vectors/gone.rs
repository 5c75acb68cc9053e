//! Ends that are gone before the other one has sent its last byte: each later segment is answered by a reset.

use super::*;

/// The server closes both directions; the client, which has received its FIN, sends ten small segments and its
/// own FIN.
fn closed_before_more_came() -> Script {
    seen(vec![
        send(Client, 0, 5, 421),
        send(Server, 421, 10, 300),
        act(Server, 421, 0, Act::Fin),
        sends(Client, 301, 2, (240, 10, 1)),
        act(Client, 301, 1, Act::Fin),
        act(Server, 421, 0, Act::Reset),
    ])
}

/// The client breaks off a transfer with thirty segments still to come.
fn broken_off() -> Script {
    seen(vec![
        send(Client, 0, 5, 100),
        sends(Server, 100, 10, (30_000, 30, 3)),
        act(Client, 20_000, 0, Act::Reset),
    ])
}

/// Neither end receives what the other one had under way when it closed.
fn both_gone() -> Script {
    seen(vec![
        send(Client, 0, 5, 100),
        act(Client, 0, 10, Act::Fin),
        sends(Server, 100, 11, (100, 5, 1)),
        act(Server, 100, 1, Act::Fin),
        act(Client, 0, 0, Act::Reset),
        act(Server, 100, 0, Act::Reset),
    ])
}

#[test]
fn segments_to_an_end_that_is_gone_are_reset_one_by_one() {
    let scripts = [closed_before_more_came(), broken_off(), both_gone()];
    let Some((found, played)) = observed("ends that are gone", &scripts, 1_500) else { return };
    for (script, seen) in scripts.iter().zip(&found) {
        for side in Side::BOTH {
            // An end that no longer ignores resets, and is delayed before its last segment is sent, may receive a
            // reset first.
            let lacks = sent_by(script, side) - seen.of(side).payload_bytes;
            assert!(lacks <= u64::from(script.segment_bytes), "{lacks} of {seen:#?}");
        }
    }
    assert_eq!(outcomes(&played.executions), BTreeMap::from([("Completed".to_owned(), 3)]));
    assert_eq!((played.served.completed, played.served.broken), (3, 0));
    // A SYN+ACK, an acknowledgement, one segment with a FIN, and eleven resets.
    let server = found[0].of(Server);
    assert!((13..=14).contains(&server.packets), "{server:?}");
    assert_eq!(found[0].steps.last().map(|step| (step.by, step.awaits)), Some((Client, 301)));
    let reset = found[0].steps.iter().find(|step| step.act == Act::Reset).expect("a reset");
    assert_eq!((reset.by, reset.awaits, found[0].of(Client).data_packets), (Server, 421, 11));
    // Of thirty segments some ten come after the reset.
    let client = found[1].of(Client);
    assert!(client.packets >= 12, "{client:?}");
    let resets = found[2].steps.iter().filter(|step| step.act == Act::Reset);
    assert_eq!(resets.map(|step| step.by).collect::<Vec<_>>()[0], Client);
}
