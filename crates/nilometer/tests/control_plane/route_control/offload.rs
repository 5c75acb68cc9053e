//! Which flows take shortcuts: those whose packets the fabric and the link would let pass untouched, and no
//! others once a change has been answered.

use serde_json::{Value, json};

use super::site::{Flow, Stand, privileged};

/// A fabric whose links have no limit, and the usual discipline at each port.
const UNTOUCHED: &str = "[fabric]\nqueueing = \"off\"\n";
/// Packets between two looks.
const SOME: u64 = 60;

/// Packets that have left port 1: all, and those by a shortcut.
fn left(stand: &Stand) -> [u64; 2] {
    let tally = stand.get("/v1/tally");
    let port = &tally["ports"][1];
    ["out_packets", "shortcut_packets"].map(|key| port[key].as_u64().expect(key))
}

/// Of the packets that leave while some come, those by a shortcut.
fn by_shortcut(stand: &Stand, flow: &Flow) -> u64 {
    let before = left(stand)[1];
    flow.wait_for(SOME);
    left(stand)[1] - before
}

/// Waits until the flow has a shortcut again.
fn resumes(stand: &Stand, flow: &Flow, after: &str) {
    let is_taken = (0..50).any(|_| by_shortcut(stand, flow) > SOME / 2);
    assert!(is_taken, "no packet takes a shortcut after {after}: {}", stand.get("/v1/tally"));
}

#[test]
fn flows_subject_to_queueing_lose_their_shortcut_once_the_change_is_answered() {
    if !privileged("who takes shortcuts") {
        return;
    }
    let stand = Stand::new("control-offload", UNTOUCHED).expect("a router");
    let flow = stand.site.flow().expect("a flow");
    resumes(&stand, &flow, "the start");
    let (rate, delay, fabric) = ("/v1/ports/1/rate", "/v1/ports/1/delay", "/v1/fabric");
    let changes = [
        (fabric, json!({"queueing": "dq_plus"}), json!({"queueing": "off"})),
        (fabric, json!({"queueing": "original"}), json!({"queueing": "off"})),
        (rate, json!({"rate": "900 Mb/s"}), json!({"rate": null})),
        (delay, json!({"delay": "1 ms"}), json!({"delay": "0 s"})),
    ];
    for (path, limit, none) in changes {
        stand.put(path, limit.clone());
        let some = by_shortcut(&stand, &flow);
        assert_eq!(some, 0, "packets by a shortcut with {limit}");
        stand.put(path, none.clone());
        resumes(&stand, &flow, &none.to_string());
    }
    let queue = json!({"discipline": "fq_codel", "buffer_packets": 500});
    stand.put("/v1/ports/1/queue", queue);
    let seen = |queues: &Value| queues["sent_packets"].as_u64().expect("its counter");
    let (before, seen_before) = (left(&stand), seen(&stand.get("/v1/queues/1")));
    flow.wait_for(SOME);
    let queues = stand.get("/v1/queues/1");
    let past = left(&stand)[1] - before[1];
    assert_eq!(past, 0, "packets by a shortcut past a discipline that was asked for");
    let seen = seen(&queues) - seen_before;
    assert!(seen >= SOME, "the discipline has seen {seen} packets of {SOME}: {queues}");
    let (sent, came) = flow.end();
    assert_eq!(sent, came, "{}", stand.get("/v1/tally"));
    stand.end();
}

#[test]
fn a_router_as_usual_regulates_its_fabric_and_offloads_nothing() {
    if !privileged("the usual router's way of packets") {
        return;
    }
    for more in ["", "[fabric]\nlink_rate = \"1 Gb/s\"\n"] {
        let stand = Stand::new("control-usual", more).expect("a router");
        let flow = stand.site.flow().expect("a flow");
        flow.wait_for(3 * SOME);
        let tally: Value = stand.get("/v1/tally");
        assert_eq!(tally["ports"][1]["shortcut_packets"], 0, "{more}: {tally}");
        assert!(tally["ports"][1]["out_packets"].as_u64() >= Some(3 * SOME), "{tally}");
        flow.end();
        stand.end();
    }
}
