//! The class as a table of labels: words of its configuration, times to live, room for labels, messages.

use super::*;

use alloc::vec::Vec;
use nilometer_plugin::context::PortNumbers;
use nilometer_plugin::labels::LabelDecision;
use nilometer_plugin::{Running, Services};

use crate::testing::{Wishes, refused, udp};

fn decided(configuration: &str, bytes: &mut [u8], is_labelled: bool) -> Option<LabelDecision> {
    let mut running = Running::<Mpls>::new(configuration, 1).expect("a configuration");
    let services: &mut dyn Services = &mut Wishes::default();
    let mut packet = Packet::new(bytes, 100);
    if is_labelled {
        packet = packet.labelled();
    }
    let decision = running.process(0, PortNumbers::default(), &mut packet, services);
    assert_eq!(decision, Decision::Forward);
    assert!(!packet.is_changed(), "the router changes it");
    packet.label_decision().copied()
}

/// A stack of (label, time to live).
fn stack(entries: &[(u32, u8)]) -> Vec<u8> {
    let last = entries.len() - 1;
    let bytes = entries.iter().enumerate().flat_map(|(at, &(label, ttl))| {
        LabelEntry { label, traffic_class: 3, is_bottom: at == last, ttl }.to_bytes()
    });
    bytes.chain([0x45; 20]).collect()
}

fn change(configuration: &str, entries: &[(u32, u8)]) -> (u8, Vec<(u32, u8)>, Option<u8>) {
    match decided(configuration, &mut stack(entries), true) {
        Some(LabelDecision::Relabel(change)) => {
            let pushed = change.pushed().iter().map(|entry| (entry.label, entry.ttl)).collect();
            (change.popped, pushed, change.hop_limit)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn times_to_live_are_those_of_the_model() {
    let table = "swap=16:17+18@192.0.2.1 pop=19,20@192.0.2.1";
    let pipe = "swap=16:17+18@192.0.2.1 pop=19,20@192.0.2.1 ttl=pipe";
    assert_eq!(change(table, &[(16, 9)]), (1, [(17, 8), (18, 8)].into(), None));
    assert_eq!(change(pipe, &[(16, 9)]), (1, [(17, 255), (18, 8)].into(), None));
    // What an outer label leaves counts for the inner one in the uniform model (RFC 3443, 3.4), and never adds to it.
    assert_eq!(change(table, &[(19, 9), (16, 90)]), (2, [(17, 8), (18, 8)].into(), None));
    assert_eq!(change(table, &[(19, 90), (16, 9)]), (2, [(17, 8), (18, 8)].into(), None));
    assert_eq!(change(pipe, &[(19, 9), (16, 90)]), (2, [(17, 255), (18, 89)].into(), None));
    assert_eq!(change(table, &[(19, 9)]), (1, [].into(), Some(9)));
    assert_eq!(change(table, &[(20, 9)]), (1, [].into(), Some(8)));
    assert_eq!(change(pipe, &[(20, 9)]), (1, [].into(), None));
    assert_eq!(change(table, &[(20, 9), (30, 90)]), (2, [(30, 8)].into(), None));
    assert_eq!(change(pipe, &[(20, 9), (30, 90)]), (1, [].into(), None));
}

#[test]
fn no_more_labels_go_on_than_there_is_room_for() {
    let table = "swap=16:17+18+19+20@192.0.2.1";
    assert_eq!(change(table, &[(16, 9)]).1.len(), 4);
    let mut alerted = stack(&[(1, 9), (16, 9)]);
    let decision = decided(table, &mut alerted, true);
    assert_eq!(decision, Some(LabelDecision::Refuse(LabelRefusal::Stack)));
}

#[test]
fn an_instance_that_pushes_nothing_lets_packets_pass() {
    let mut packet = udp("10.0.0.1:1", "10.0.0.2:2", 60);
    assert_eq!(decided("pop=16", &mut packet, false), None);
    assert!(decided("push=16@192.0.2.1", &mut packet, false).is_some());
    assert_eq!(decided("push=16@192.0.2.1", &mut [], false), None);
}

#[test]
fn words_are_checked() {
    let ours = "has a meaning of its own (RFC 3032, 2.1)";
    for (words, why) in [
        ("swap=16", "`16` is not `label:labels@next-hop`"),
        ("swap=16:17", "`17` names no next hop, as `200@198.18.1.2` does"),
        ("swap=x:17@192.0.2.1", "`x` is not a label from 0 to 1048575"),
        ("swap=16:1048576@192.0.2.1", "`1048576` is not a label from 0 to 1048575"),
        ("push=16+17+18+19+20@192.0.2.1", "`16+17+18+19+20` are 5 labels, and 4 are the most"),
        ("push=16@gateway", "`gateway` is not an address of a next hop"),
        ("swap=16:3@192.0.2.1", "implicit null, 3, is in no packet: give `pop=` with a next hop"),
        ("delete=16", "label 16 is not known"),
        ("ttl=short", "`ttl=short`: give `uniform` or `pipe`"),
        ("tunnel=1", "there is no setting `tunnel`"),
    ] {
        assert_eq!(refused::<Mpls>(words), why);
    }
    for (words, label) in [
        ("pop=15", 15),
        ("swap=0:16@192.0.2.1", 0),
        ("push=1@192.0.2.1", 1),
        ("push=0+16@192.0.2.1", 0),
    ] {
        assert_eq!(refused::<Mpls>(words), format!("label {label} {ours}"));
    }
    for next in ["fe80::1", "169.254.0.1", "224.0.0.1", "0.0.0.0"] {
        let why = refused::<Mpls>(&format!("push=16@{next}"));
        assert!(why.contains("can be no next hop"), "{why}");
    }
    assert!(
        Running::<Mpls>::new("push=16+2@fd00::1 pop=16", 1).is_ok(),
        "an explicit null beneath"
    );
}

#[test]
fn messages_change_the_table_wholly_or_not_at_all() {
    let mut running = Running::<Mpls>::new("pop=16", 1).expect("a configuration");
    let mut wishes = Wishes::default();
    let mut say = |text: &str| running.message(0, text, &mut wishes);
    assert_eq!(say(""), Ok("labels: 1".into()));
    assert_eq!(say("swap=16:17@192.0.2.1,18:19@192.0.2.1"), Ok("labels: 2".into()));
    assert!(say("pop=20 swap=21").is_err());
    assert_eq!(say("delete=16"), Ok("labels: 1".into()));
}
