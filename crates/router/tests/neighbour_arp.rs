//! ARP between bytes, alone with a peer and in storms of strangers.

use nilometer_router::neighbour::{
    Arp, ArpOperation, ArpPacket, BROADCAST, FRAME_BYTES_MAX, Given, Ignored, Lookup, Mac, Own,
    Reason, Settings, State,
};
use nilometer_stat::Rng;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, parse};
use nilometer_wire::{Span, Time};

const OURS: Mac = [2, 0, 0, 0, 0, 1];
const PEER: Mac = [2, 0, 0, 0, 0, 2];
const BASE: u32 = 0xc612_0000;
const US: u32 = BASE + 1;

fn speaker(length: u32, settings: Settings) -> Arp<u64> {
    let mut own = Own::new(OURS).expect("a station");
    own.add(US, length).expect("a host");
    Arp::new(settings, own).expect("sound settings")
}

fn port() -> Arp<u64> {
    speaker(16, Settings::arp(1))
}

fn request(sender_mac: Mac, sender: u32, target: u32) -> ArpPacket {
    ArpPacket {
        frame_to: BROADCAST,
        frame_from: sender_mac,
        operation: ArpOperation::Request,
        sender_mac,
        sender,
        target_mac: [0; 6],
        target,
    }
}

fn reply(sender_mac: Mac, sender: u32) -> ArpPacket {
    ArpPacket {
        frame_to: OURS,
        operation: ArpOperation::Reply,
        target_mac: OURS,
        ..request(sender_mac, sender, US)
    }
}

fn tell(arp: &mut Arp<u64>, now: Time, packet: ArpPacket) {
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = packet.write(&mut frame);
    arp.receive(now, &frame[..bytes]);
}

/// All frames that it wants to send, read by both readers.
fn sent(arp: &mut Arp<u64>) -> Vec<ArpPacket> {
    let mut frame = [0xee; FRAME_BYTES_MAX];
    let mut packets = Vec::new();
    while let Some(bytes) = arp.poll_transmit(&mut frame) {
        let parsed = parse(LinkType::Ethernet, &frame[..bytes], bytes as u32);
        assert_eq!((parsed, bytes), (Parsed::NotIp(Some(0x0806)), 60));
        assert!(frame[42..60].iter().all(|&byte| byte == 0), "padding is zeros");
        packets.push(ArpPacket::read(&frame[..bytes]).expect("what was written"));
    }
    packets
}

#[test]
fn rfc_826_a_conversation() {
    let mut arp = port();
    let now = Time::ZERO;
    arp.table.hold(now, BASE + 2, 5).expect("a seat");
    assert_eq!(sent(&mut arp), [request(OURS, US, BASE + 2)]);
    tell(&mut arp, now, reply(PEER, BASE + 2));
    assert_eq!(arp.table.poll_packet().expect("the packet").fate, Ok(PEER));
    assert_eq!(arp.table.entry(BASE + 2).expect("an entry").state, State::Reachable);
    // A request by another: answered, and its sender learnt without a request.
    tell(&mut arp, now, request([2, 9, 9, 9, 9, 9], BASE + 3, US));
    let answer = ArpPacket {
        frame_to: [2, 9, 9, 9, 9, 9],
        frame_from: OURS,
        operation: ArpOperation::Reply,
        sender_mac: OURS,
        sender: US,
        target_mac: [2, 9, 9, 9, 9, 9],
        target: BASE + 3,
    };
    assert_eq!(sent(&mut arp), [answer]);
    assert!(matches!(arp.table.lookup(now, BASE + 3), Lookup::Resolved([2, 9, ..], _)));
}

#[test]
fn rfc_1122_2_3_2_1_probes_are_unicast() {
    let mut arp = port();
    let mut now = Time::ZERO;
    arp.table.set(now, BASE + 2, PEER, Given::Stale).expect("room");
    arp.table.lookup(now, BASE + 2);
    now = arp.poll_timeout().expect("a timer");
    arp.handle_timeout(now);
    assert_eq!(sent(&mut arp), [ArpPacket { frame_to: PEER, ..request(OURS, US, BASE + 2) }]);
}

#[test]
fn rfc_5227_probes_claims_and_announcements() {
    let mut arp = port();
    let now = Time::ZERO;
    tell(&mut arp, now, request(PEER, 0, US));
    let answers = sent(&mut arp);
    assert_eq!((answers.len(), answers[0].target, answers[0].frame_to), (1, 0, PEER));
    assert!(arp.table.is_empty(), "a probe teaches nothing");
    // A claim is a conflict, defended once in ten seconds.
    for second in 0..11 {
        let now = now + Span::from_secs(second);
        tell(&mut arp, now, request(PEER, US, US));
        let defence = sent(&mut arp);
        assert_eq!(defence.len(), usize::from(second % 10 == 0), "second {second}");
        assert!(defence.iter().all(|packet| *packet == request(OURS, US, US)));
    }
    assert_eq!(arp.table.ledger().ignored(Ignored::Conflict), 11);
    // Our own announcement, coming back by a loop, is a conflict that cannot be answered.
    tell(&mut arp, now + Span::from_secs(60), request(OURS, US, US));
    assert!(sent(&mut arp).is_empty());
    // Announcements of strangers make no entry, and change one that is there.
    tell(&mut arp, now, request(PEER, BASE + 9, BASE + 9));
    assert!(arp.table.is_empty());
    tell(&mut arp, now, request([2, 1, 1, 1, 1, 1], BASE + 9, US));
    tell(&mut arp, now, request(PEER, BASE + 9, BASE + 9));
    let mac = |arp: &Arp<u64>| arp.table.entry(BASE + 9).expect("an entry").mac;
    assert_eq!(mac(&arp), Some([2, 1, 1, 1, 1, 1]), "the first within a second counts");
    tell(&mut arp, now + Span::from_secs(1), request(PEER, BASE + 9, BASE + 9));
    assert_eq!(mac(&arp), Some(PEER));
}

#[test]
fn only_our_own_addresses_are_answered_for_without_proxy_arp() {
    let mut arp = port();
    tell(&mut arp, Time::ZERO, request(PEER, BASE + 2, BASE + 7));
    assert!(sent(&mut arp).is_empty());
    tell(&mut arp, Time::ZERO, request(PEER, 0x0a00_0001, US));
    assert!(sent(&mut arp).is_empty(), "off the link");
    arp.add_proxied("198.19.0.0/16".parse().expect("a prefix")).expect("room");
    tell(&mut arp, Time::ZERO, request(PEER, BASE + 2, 0xc613_0001));
    assert_eq!(sent(&mut arp)[0].sender, 0xc613_0001);
}

#[test]
fn invalid_arp_is_malformed_and_arp_for_others_is_ignored() {
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = request(PEER, BASE + 2, US).write(&mut frame);
    for cut in 0..42 {
        assert_eq!(ArpPacket::read(&frame[..cut]), None);
    }
    for at in 12..21 {
        let mut other = frame;
        other[at] ^= 0x40;
        assert_eq!(ArpPacket::read(&other[..bytes]), None, "byte {at}");
    }
    let mut arp = port();
    arp.receive(Time::ZERO, &frame[..20]);
    tell(&mut arp, Time::ZERO, ArpPacket { frame_to: PEER, ..request(PEER, BASE + 2, US) });
    let ledger = arp.table.ledger();
    assert_eq!((ledger.ignored(Ignored::Malformed), ledger.ignored(Ignored::NotOurs)), (1, 1));
}

/// Mutated bytes never panic, and a parsed message is written back as the same bytes.
#[test]
fn mutated_frames_round_trip() {
    let mut rng = Rng::new(11, 1, 0);
    let mut arp = port();
    let mut read = 0;
    for step in 0..200_000u64 {
        let mut frame = [0; FRAME_BYTES_MAX];
        let host = BASE + rng.below(300) as u32;
        let packet = if step % 2 == 0 { request(PEER, host, US) } else { reply(PEER, host) };
        let bytes = packet.write(&mut frame);
        for _ in 0..rng.below(4) {
            frame[rng.below(bytes as u64) as usize] = rng.next_u64() as u8;
        }
        let length = if rng.below(8) == 0 { rng.below(61) as usize } else { bytes };
        if let Some(packet) = ArpPacket::read(&frame[..length]) {
            let mut again = [0; FRAME_BYTES_MAX];
            packet.write(&mut again);
            assert_eq!(again[..42], frame[..42]);
            read += 1;
        }
        arp.receive(Time::from_nanos(step * 1_000_000), &frame[..length]);
        sent(&mut arp);
    }
    assert!(read > 100_000, "{read}");
}

/// 100,000 strangers send requests for our address: the table stays at its limit, entries in use
/// stay, and every request is answered.
#[test]
fn a_storm_of_requests_is_bounded() {
    let mut rng = Rng::new(2, 1, 0);
    let settings = Settings { entries_max: 512, ..Settings::arp(2) };
    let mut arp = speaker(15, settings);
    for host in 0..100 {
        arp.table.set(Time::ZERO, BASE + 2 + host, PEER, Given::Reachable).expect("room");
    }
    let mut answered = 0;
    for step in 0..100_000u64 {
        let mac = [2, 1, step as u8, (step >> 8) as u8, (step >> 16) as u8, 0];
        let host = BASE + 1_000 + rng.below(120_000) as u32;
        tell(&mut arp, Time::from_nanos(step), request(mac, host, US));
        answered += sent(&mut arp).len();
        assert!(arp.table.len() <= 512);
    }
    assert_eq!(answered, 100_000);
    assert_eq!(arp.table.len(), 512);
    for host in 0..100 {
        let entry = arp.table.entry(BASE + 2 + host).expect("kept");
        assert_eq!(entry.state, State::Reachable);
    }
}

/// A scan of 131,072 addresses, few of which answer: packets, entries and requests stay few, and
/// every packet comes back or is refused.
#[test]
fn a_scan_of_a_prefix_is_bounded_and_conserves_packets() {
    let mut rng = Rng::new(3, 1, 0);
    let mut arp = speaker(15, Settings::arp(3));
    let mut now = Time::ZERO;
    let (mut requests, mut released, mut unreachable) = (0u64, 0u64, 0u64);
    for packet in 0..200_000u64 {
        now += Span::from_nanos(100_000);
        let address = BASE + 2 + rng.below(131_000) as u32;
        if arp.table.lookup(now, address) == Lookup::Queue {
            let _ = arp.table.hold(now, address, packet);
        }
        if arp.poll_timeout().is_some_and(|due| due <= now) {
            arp.handle_timeout(now);
        }
        for request in sent(&mut arp) {
            requests += 1;
            if request.target % 16 == 0 {
                tell(&mut arp, now, reply(PEER, request.target));
            }
        }
        while let Some(outcome) = arp.table.poll_packet() {
            match outcome.fate {
                Ok(mac) => {
                    assert_eq!((mac, outcome.address % 16), (PEER, 0));
                    released += 1;
                }
                Err(Reason::Unreachable) => unreachable += 1,
                Err(reason) => assert_eq!(reason, Reason::Overflow),
            }
        }
        let ledger = *arp.table.ledger();
        let held = arp.table.held() as u64;
        assert_eq!(ledger.offered, ledger.released + ledger.dropped_total() + held);
        assert!(arp.table.unresolved() <= 256 && held <= 1_024 && arp.table.len() <= 4_096);
    }
    let ledger = arp.table.ledger();
    assert_eq!((ledger.requests, ledger.released), (requests, released));
    assert!(ledger.dropped(Reason::UnresolvedFull) > 50_000 && unreachable > 1_000);
    // In 20 s each of at most 256 entries sends one request a second, and an answer makes room.
    assert!(requests <= 256 * 21 + released, "{requests} requests");
}
