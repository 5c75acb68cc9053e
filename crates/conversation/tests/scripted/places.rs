//! More connections, or steps, than there is room for.

use super::*;

#[test]
fn when_places_are_short_the_longest_unseen_makes_room() {
    let mut follower = Follower::new(Limits { connections_max: 2, ..Limits::default() });
    let mut found = Vec::new();
    for turn in 0..3u16 {
        let mut script = Script::new(5);
        script.client_port = 2_000 + turn;
        script.now_ns = u64::from(turn) * 1_000 * MS;
        script.opens();
        script.after(1).says(C, 10);
        for (stamp_ns, bytes) in &script.packets {
            let Parsed::Ip(packet) = parse(LinkType::RawIp, bytes, bytes.len() as u32) else {
                panic!("a packet")
            };
            follower.observe(*stamp_ns, &packet, &mut |one| found.push(one));
        }
    }
    let counts = follower.counts();
    assert_eq!((counts.connections, counts.given, counts.evicted, counts.live), (3, 1, 1, 2));
    follower.flush(&mut |one| found.push(one));
    assert_eq!(found.len(), 3);
}

#[test]
fn beyond_its_steps_a_connection_goes_on_in_the_last_ones() {
    let mut script = Script::new(5);
    script.opens();
    for _ in 0..50 {
        script.after(10).says(C, 10).after(10).says(S, 20);
    }
    let mut follower = Follower::new(Limits { steps_max: 8, ..Limits::default() });
    let mut found = Vec::new();
    for (stamp_ns, bytes) in &script.packets {
        let Parsed::Ip(packet) = parse(LinkType::RawIp, bytes, bytes.len() as u32) else {
            panic!("a packet")
        };
        follower.observe(*stamp_ns, &packet, &mut |one| found.push(one));
    }
    follower.flush(&mut |one| found.push(one));
    assert_eq!(found[0].steps.len(), 8);
    assert_eq!(found[0].carried.clone().map(|side| side.payload_bytes), [500, 1_000]);
}
