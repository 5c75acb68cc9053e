//! Captures written by hand, whose vectors are known exactly.
//!
//! Vectors are written one step per line. `c 0 +10 400/2~3`: the client waits for 0 bytes, pauses for 10 ms, and
//! sends 400 bytes in 2 segments over 3 ms.

#[path = "scripted/handshakes.rs"]
mod handshakes;
#[path = "scripted/joined.rs"]
mod joined;
#[path = "scripted/one_side.rs"]
mod one_side;
#[path = "scripted/places.rs"]
mod places;
#[path = "scripted/resets.rs"]
mod resets;
#[path = "scripted/script.rs"]
mod script;
#[path = "scripted/snapped.rs"]
mod snapped;
#[path = "scripted/units.rs"]
mod units;

use nilometer_conversation::{Act, Connection, Ending, Follower, Limits, Opening, Side};
use nilometer_wire::build;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, parse};
use script::{C, Packet, S, Script};

const MS: u64 = 1_000_000;

/// Follows captured packets, cut to `snap_bytes` each.
fn follow(packets: &[Packet], snap_bytes: usize) -> Vec<Connection> {
    follow_by(Follower::new(Limits::default()), packets, snap_bytes)
}

fn follow_by(mut follower: Follower, packets: &[Packet], snap_bytes: usize) -> Vec<Connection> {
    let (mut taken, mut found) = (0, Vec::new());
    for (stamp_ns, bytes) in packets {
        let seen = &bytes[..bytes.len().min(snap_bytes)];
        match parse(LinkType::RawIp, seen, bytes.len() as u32) {
            Parsed::Ip(packet) => {
                let is_taken = follower.observe(*stamp_ns, &packet, &mut |one| found.push(one));
                taken += u64::from(is_taken);
            }
            other => panic!("{other:?}"),
        }
    }
    follower.flush(&mut |one| found.push(one));
    assert_eq!(follower.counts().packets, taken);
    let carried: u64 = found.iter().flat_map(|one| &one.carried).map(|side| side.packets).sum();
    assert_eq!(carried, taken, "every packet is one connection's");
    found.sort_by_key(|one| one.start_ns);
    found
}

fn described(connection: &Connection) -> String {
    let rounded = |ns: u64| (ns + MS / 2) / MS;
    let line = |step: &nilometer_conversation::Step| {
        let by = if step.by == Side::Client { "c" } else { "s" };
        let (awaits, pause) = (step.awaits, rounded(step.pause_ns));
        let act = match step.act {
            Act::Send { bytes, segments, took_ns } => {
                format!("{bytes}/{segments}~{}", rounded(took_ns))
            }
            Act::Fin => "fin".to_owned(),
            Act::Reset => "rst".to_owned(),
        };
        format!("{by} {awaits} +{pause} {act}")
    };
    connection.steps.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn one(packets: &[Packet], expected: &str) -> Connection {
    let mut found = follow(packets, usize::MAX);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(described(&found[0]), expected.trim().replace("\n        ", "\n"));
    found.remove(0)
}

/// Two exchanges; the client closes.
fn usual() -> Script {
    let mut script = Script::new(1_000);
    script.opens();
    script.after(10).says(C, 400);
    script.after(30).says(S, 1_460).after(1).says(S, 1_460).after(1).says(S, 80);
    script.after(5).ack(C);
    script.after(200).says(C, 300);
    script.after(40).says(S, 1_000).after(2).ack(C);
    script.after(7).fin(C).after(3).fin(S).after(1).ack(C);
    script
}

/// What the meter sees of [`usual`]. The handshake takes 20 and 5 ms.
const USUAL: &str = "
        c 0 +35 400/1~0
        s 400 +30 3000/3~2
        c 3000 +205 300/1~0
        s 700 +40 1000/1~0
        c 4000 +9 fin
        s 701 +3 fin";

#[test]
fn a_usual_connection() {
    let found = one(&usual().packets, USUAL);
    assert_eq!(found.opening, Opening::Seen);
    assert_eq!(found.ending(), Ending::Closed(Side::Client));
    assert_eq!(found.handshake_ns, [Some(20 * MS), Some(5 * MS)]);
    assert_eq!(
        (found.of(Side::Client).payload_bytes, found.of(Side::Server).payload_bytes),
        (700, 4_000)
    );
    assert_eq!(found.of(Side::Server).segment_max_bytes, 1_460);
    assert!(!found.is_concurrent && found.is_whole());
    let exchanges: Vec<_> = found.exchanges().collect();
    let sizes: Vec<_> = exchanges.iter().map(|one| (one.asked_bytes, one.answered_bytes)).collect();
    assert_eq!(sizes, [(400, 3_000), (300, 1_000)]);
    assert_eq!(exchanges[1].think_ns, Some(205 * MS));
    assert_eq!(
        found.end_ns - found.start_ns,
        (25 + 10 + 32 + 205 + 42 + 10) * MS,
        "to the last FIN"
    );
}

#[test]
fn retransmitted_data_count_once() {
    let mut script = usual();
    // Each packet with data again, a little later, as after a loss behind the meter.
    for (at, packet) in script.data_packets() {
        script.packets.push((at + MS * 2 / 5, packet));
    }
    script.sort();
    let found = one(&script.packets, USUAL);
    assert_eq!(found.of(Side::Server).resent_packets, 4);
    assert_eq!(found.of(Side::Server).data_bytes, 2 * found.of(Side::Server).payload_bytes);
}

#[test]
fn a_span_port_that_doubles_every_packet_changes_no_vector() {
    let mut script = usual();
    let doubled = script.packets.iter().flat_map(|one| [one.clone(), one.clone()]).collect();
    script.packets = doubled;
    let found = one(&script.packets, USUAL);
    assert_eq!(found.syns, 2);
}

#[test]
fn a_lost_segment_that_comes_later_stands_in_its_unit() {
    let mut script = Script::new(7);
    script.opens();
    script.after(10).says(C, 400).after(30);
    // The second of four segments is lost before the meter, and sent again after 40 ms.
    script.says(S, 1_460).skip(S, 1_460).after(1).says(S, 1_460).after(1).says(S, 1_460);
    script.after(40).again(S, 1_460, 1_460).after(1).ack(C);
    script.after(1).rst(C);
    let expected = "
        c 0 +35 400/1~0
        s 400 +30 5840/3~42
        c 5840 +2 rst";
    let found = one(&script.packets, expected);
    assert_eq!(found.ending(), Ending::Reset(Side::Client));
    assert_eq!(found.of(Side::Server).unseen_bytes, 0);
}

#[test]
fn segments_out_of_order_are_in_order() {
    let mut script = usual();
    let datas = script.data_positions(S);
    // The first answer's first two segments change places, stamps and all.
    let (a, b) = (datas[0], datas[1]);
    let (one_bytes, other_bytes) = (script.packets[a].1.clone(), script.packets[b].1.clone());
    (script.packets[a].1, script.packets[b].1) = (other_bytes, one_bytes);
    let found = follow(&script.packets, usize::MAX).remove(0);
    let expected = USUAL.replace("3000/3", "3000/2");
    assert_eq!(described(&found), expected.trim().replace("\n        ", "\n"));
}

/// The answer was captured before the request's last segment: a capture of two interfaces, merged.
#[test]
fn an_answer_captured_before_its_request_comes_after_it() {
    let mut script = Script::new(99);
    script.opens();
    script.after(10).says(C, 1_000).after(1).says(C, 200).after(1).says(S, 500);
    let last = script.packets.len() - 1;
    let (late, answer) = (script.packets[last - 1].1.clone(), script.packets[last].1.clone());
    (script.packets[last - 1].1, script.packets[last].1) = (answer, late);
    let found = one(
        &script.packets,
        "
        c 0 +35 1200/2~1
        s 1200 +0 500/1~0",
    );
    assert_eq!(found.ending(), Ending::Open);
}

#[test]
fn acknowledged_data_missing_from_a_capture_were_sent() {
    let mut script = usual();
    let lost = script.data_positions(S)[2];
    script.packets.remove(lost);
    // Only the ACK, 6 ms after the other segments, shows that these 80 bytes were sent.
    let found = one(
        &script.packets,
        "
        c 0 +35 400/1~0
        s 400 +30 3000/3~7
        c 3000 +200 300/1~0
        s 700 +40 1000/1~0
        c 4000 +9 fin
        s 701 +3 fin",
    );
    assert_eq!(found.of(Side::Server).unseen_bytes, 80);
}

#[test]
fn sequence_numbers_wrap() {
    let mut script = Script::new(u32::MAX - 150);
    script.opens();
    script.after(10).says(C, 400);
    for _ in 0..3 {
        script.after(1).says(S, 1_460);
    }
    script.after(1).ack(C);
    let found = one(
        &script.packets,
        "
        c 0 +35 400/1~0
        s 400 +1 4380/3~2",
    );
    assert_eq!(found.of(Side::Client).payload_bytes, 400);
}

/// More than the 4 GiB of the sequence space, in super-segments that a capture at the sender sees.
#[test]
fn a_file_may_be_longer_than_the_sequence_space() {
    let found = script::numbers(70_000, 65_000);
    assert_eq!(found.of(Side::Server).payload_bytes, 70_000 * 65_000);
    assert!(found.of(Side::Server).payload_bytes > 1 << 32);
}

#[test]
fn super_segments_are_kept_as_captured() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 400).after(1).says(S, 43_800).after(1).says(S, 20_000).after(1).ack(C);
    let found = one(
        &script.packets,
        "
        c 0 +35 400/1~0
        s 400 +1 63800/2~1",
    );
    assert_eq!(found.of(Side::Server).segment_max_bytes, 43_800);
}

#[test]
fn simultaneous_sends_stay_separate_and_await_what_each_end_had_received() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 100).after(20).says(S, 50);
    // Both send before they have received the other's data: the client acknowledges 50, the server 100.
    script.after(5).says(C, 1_000);
    script.after(1).data_acknowledging(S, 700, 100);
    script.after(1).data_acknowledging(C, 1_000, 50);
    script.after(1).data_acknowledging(S, 700, 100);
    script.after(30).says(C, 10);
    let found = one(
        &script.packets,
        "
        c 0 +35 100/1~0
        s 100 +20 50/1~0
        c 50 +5 2000/2~2
        s 100 +6 1400/2~2
        c 1450 +30 10/1~0",
    );
    assert!(found.is_concurrent);
}

#[test]
fn a_server_that_sends_first() {
    let mut script = Script::new(5);
    script.opens();
    script.after(50).says(S, 20).after(10).says(C, 30).after(1).says(S, 200);
    let found = one(
        &script.packets,
        "
        s 0 +75 20/1~0
        c 20 +10 30/1~0
        s 30 +1 200/1~0",
    );
    assert_eq!(found.speaks_first(), Some(Side::Server));
    let exchanges: Vec<_> =
        found.exchanges().map(|one| (one.asked_bytes, one.answered_bytes)).collect();
    assert_eq!(exchanges, [(0, 20), (30, 200)]);
}

#[test]
fn quiet_ends_a_unit() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 10).after(499).says(C, 10).after(500).says(C, 10);
    one(
        &script.packets,
        "
        c 0 +35 20/2~499
        c 0 +500 10/1~0",
    );
}

#[test]
fn half_a_connection_may_be_closed_for_long() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 100).fin(C);
    script.after(2_000).says(S, 5_000).after(1).ack(C).after(9).fin(S).after(1).ack(C);
    let found = one(
        &script.packets,
        "
        c 0 +35 100/1~0
        c 0 +0 fin
        s 101 +2000 5000/1~0
        s 101 +10 fin",
    );
    assert_eq!(found.ending(), Ending::Closed(Side::Client));
}

#[test]
fn a_fin_on_data_and_a_fin_sent_again() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 100).after(5).data_fin(S, 900);
    let last = script.packets.len() - 1;
    let again = (script.packets[last].0 + 300 * MS, script.packets[last].1.clone());
    script.packets.push(again);
    script.after(310).fin(C);
    one(
        &script.packets,
        "
        c 0 +35 100/1~0
        s 100 +5 900/1~0
        s 100 +0 fin
        c 901 +10 fin",
    );
}

#[test]
fn resets_of_either_side_and_later_data() {
    let mut script = Script::new(5);
    script.opens();
    script.after(10).says(C, 100).after(5).rst(S).after(1).rst(S);
    let found = one(
        &script.packets,
        "
        c 0 +35 100/1~0
        s 100 +5 rst",
    );
    assert_eq!(found.ending(), Ending::Reset(Side::Server));
    // Data in flight to the end that resets was sent, and is awaited.
    script.after(1).says(C, 50).after(1).fin(C);
    let found = one(
        &script.packets,
        "
        c 0 +35 100/1~0
        s 151 +0 rst
        c 0 +7 50/1~0
        c 0 +1 fin",
    );
    assert_eq!(found.ending(), Ending::Reset(Side::Server));
}

#[test]
fn refused_and_unanswered() {
    let mut script = Script::new(5);
    script.syn().after(1).rst(S);
    let found = one(&script.packets, "");
    assert_eq!((found.opening, found.ending()), (Opening::Refused, Ending::Refused));
    let mut script = Script::new(5);
    script.syn();
    let syn = script.packets[0].clone();
    script.packets.push((syn.0 + 1_000 * MS, syn.1.clone()));
    script.packets.push((syn.0 + 3_000 * MS, syn.1));
    let found = one(&script.packets, "");
    assert_eq!(
        (found.opening, found.ending(), found.syns),
        (Opening::Unanswered, Ending::Unanswered, 3)
    );
    assert!(found.is_whole());
    // A half-open scan: answered, and reset.
    let mut script = Script::new(5);
    script.syn().after(1).syn_ack().after(1).rst(C);
    let found = one(&script.packets, "c 0 +2 rst");
    assert_eq!((found.opening, found.ending()), (Opening::Seen, Ending::Reset(Side::Client)));
}

#[test]
fn ports_used_again_are_another_connection() {
    let mut script = usual();
    let mut other = Script::new(70_000);
    other.now_ns = script.now_ns + 300 * MS;
    other.opens();
    other.after(1).says(C, 11).after(1).says(S, 22);
    script.packets.extend(other.packets);
    let found = follow(&script.packets, usize::MAX);
    assert_eq!(found.len(), 2);
    assert_eq!(described(&found[1]), "c 0 +26 11/1~0\ns 11 +1 22/1~0");
    // Without a SYN, far away in both sequence spaces.
    let mut script = usual();
    let mut other = Script::new(0x4000_0000);
    other.now_ns = script.now_ns + 300 * MS;
    other.opens();
    other.packets.clear();
    other.after(1).says(C, 11).after(1).says(S, 22);
    script.packets.extend(other.packets);
    let found = follow(&script.packets, usize::MAX);
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[1].opening, described(&found[1])),
        (Opening::Unseen, "c 0 +0 11/1~0\ns 11 +1 22/1~0".to_owned())
    );
}

#[test]
fn silence_ends_nothing() {
    let mut script = Script::new(5);
    script.opens();
    for _ in 0..8 {
        script.after(3_600_000).says(C, 100).after(1).says(S, 900).after(1).ack(C);
    }
    script.after(1).fin(C).after(1).fin(S);
    let found = follow(&script.packets, usize::MAX);
    assert_eq!((found.len(), found[0].exchanges().count()), (1, 8));
}

#[test]
fn under_way_when_the_capture_begins_and_when_it_ends() {
    let whole = usual();
    let begins = whole.data_positions(S)[1];
    let ends = whole.data_positions(S)[3];
    let found = one(
        &whole.packets[begins..ends],
        "
        s 0 +0 1540/2~1
        c 1540 +205 300/1~0",
    );
    assert_eq!((found.opening, found.ending()), (Opening::Unseen, Ending::Open));
    assert!(!found.is_whole());
}

#[test]
fn the_unseen_direction_is_inferred_from_acknowledgements() {
    let mut script = usual();
    let server = script.of(S);
    script.packets.retain(|packet| !server.contains(packet));
    let found = one(
        &script.packets,
        "
        c 0 +35 400/1~0
        s 400 +37 3000/3~0
        c 3000 +200 300/1~0
        s 700 +42 1000/1~0
        c 4000 +7 fin
        s 701 +4 fin",
    );
    let sent = found.of(Side::Server);
    assert_eq!((sent.packets, sent.unseen_bytes, sent.payload_bytes), (0, 4_000, 4_000));
}

#[test]
fn tunnels_and_short_snap_lengths_change_nothing() {
    let mut script = usual();
    let expected = USUAL.trim().replace("\n        ", "\n");
    assert_eq!(described(&follow(&script.packets, 40)[0]), expected);
    let ends = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    for packet in &mut script.packets {
        packet.1 = build::ip_packet(ends[0], ends[1], 4, packet.1.clone());
    }
    let found = follow(&script.packets, 60);
    assert_eq!(described(&found[0]), expected);
    assert_eq!(found[0].of(Side::Client).octets, 8 * 60 + 700);
}

#[test]
fn keepalives_carry_nothing() {
    let mut script = usual();
    let at = script.data_positions(S)[2] + 2;
    let stamp_ns = script.packets[at - 1].0 + MS;
    // One byte, and none, one below the next sequence number.
    script.packets.insert(at, (stamp_ns, script.segment(C, 400 - 1, 1, 3_000)));
    script.packets.insert(at + 1, (stamp_ns, script.segment(C, 400 - 1, 0, 3_000)));
    one(&script.packets, USUAL);
}

#[test]
fn garbage_far_away_invents_no_bytes() {
    let mut script = usual();
    let stamp_ns = script.packets[6].0;
    script.packets.insert(7, (stamp_ns, script.segment(S, 900_000_000, 1_000, 400)));
    script.packets.insert(7, (stamp_ns, script.segment(C, 400, 0, 1_800_000_000)));
    one(&script.packets, USUAL);
}
