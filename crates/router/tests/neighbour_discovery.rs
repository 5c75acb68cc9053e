//! Neighbour discovery between bytes: solicitations, answers, duplicate detection, advertisements,
//! storms.

use core::net::Ipv6Addr;

use nilometer_router::neighbour::{
    Advertising, AdvertisingError, Answer, DetectionOutcome, Discovery, Envelope, FRAME_BYTES_MAX,
    Given, Ignored, Mac, Malformed, Message, OnLinkPrefix, Own, OwnError, Settings, State,
};
use nilometer_stat::Rng;
use nilometer_wire::checksum::transport_checksum_ok;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, Transport, parse};
use nilometer_wire::{Span, Time};

const OURS: Mac = [2, 0, 0, 0, 0, 1];
const PEER: Mac = [2, 0, 0, 0, 0, 2];
const SECOND: Span = Span::from_secs(1);

type Sent = (Envelope, Message);

fn address(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().expect("an address").into()
}

fn port(probes: u8) -> Discovery<u64> {
    let mut own = Own::new(OURS).expect("a station");
    own.add(address("fe80::1"), 64).expect("a host");
    own.add(address("fd00::1"), 64).expect("a host");
    Discovery::new(Settings::discovery(1), own, probes).expect("sound settings")
}

fn envelope(source: &str, destination: &str) -> Envelope {
    let (source, destination) = (address(source), address(destination));
    Envelope { frame_to: OURS, frame_from: PEER, source, destination }
}

fn ask(target: &str, mac: Option<Mac>) -> Message {
    Message::Solicitation { target: address(target), mac }
}

fn say(target: &str, mac: Option<Mac>, is_solicited: bool) -> Message {
    let answer = Answer { mac, is_solicited, overrides: true, is_router: false };
    Message::Advertisement { target: address(target), answer }
}

fn tell(port: &mut Discovery<u64>, now: Time, envelope: Envelope, message: Message) {
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = message.write(&envelope, &mut frame);
    port.receive(now, &frame[..bytes]);
}

/// All frames that it wants to send, read by both readers.
fn sent(port: &mut Discovery<u64>) -> Vec<Sent> {
    let mut frame = [0xee; FRAME_BYTES_MAX];
    let mut messages = Vec::new();
    while let Some(bytes) = port.poll_transmit(&mut frame) {
        let read = Message::read(&frame[..bytes]).expect("what was written");
        let Parsed::Ip(packet) = parse(LinkType::Ethernet, &frame[..bytes], bytes as u32) else {
            panic!("wire reads it");
        };
        assert!(matches!(packet.transport, Transport::Icmp { code: 0, .. }));
        assert_eq!((packet.hop_limit, packet.protocol), (255, 58));
        assert_eq!(transport_checksum_ok(&frame[14..14 + packet.ip_bytes as usize]), Some(true));
        messages.push(read);
    }
    messages
}

fn state(port: &Discovery<u64>, neighbour: &str) -> Option<(State, Option<Mac>, bool)> {
    let entry = port.table.entry(address(neighbour));
    entry.map(|entry| (entry.state, entry.mac, entry.is_router))
}

#[test]
fn section_7_2_2_and_7_2_5_a_question_and_its_answer() {
    let mut port = port(1);
    port.table.hold(Time::ZERO, address("fd00::12:3456"), 5).expect("a seat");
    let question = Envelope {
        frame_to: [0x33, 0x33, 0xff, 0x12, 0x34, 0x56],
        frame_from: OURS,
        source: address("fd00::1"),
        destination: address("ff02::1:ff12:3456"),
    };
    assert_eq!(sent(&mut port), [(question, ask("fd00::12:3456", Some(OURS)))]);
    let answer = say("fd00::12:3456", Some(PEER), true);
    tell(&mut port, Time::ZERO, envelope("fd00::12:3456", "fd00::1"), answer);
    assert_eq!(port.table.poll_packet().expect("the packet").fate, Ok(PEER));
    assert_eq!(state(&port, "fd00::12:3456"), Some((State::Reachable, Some(PEER), false)));
}

#[test]
fn section_7_3_3_probes_are_unicast() {
    let mut port = port(1);
    port.table.set(Time::ZERO, address("fe80::2"), PEER, Given::Stale).expect("room");
    port.table.lookup(Time::ZERO, address("fe80::2"));
    let now = port.poll_timeout().expect("a timer");
    port.handle_timeout(now);
    let requested = Envelope { frame_to: PEER, frame_from: OURS, ..envelope("fe80::1", "fe80::2") };
    assert_eq!(sent(&mut port), [(requested, ask("fe80::2", Some(OURS)))]);
}

#[test]
fn section_7_2_4_answers() {
    let mut port = port(1);
    let advert = |is_solicited| {
        let answer = Answer { mac: Some(OURS), is_solicited, overrides: true, is_router: true };
        Message::Advertisement { target: address("fd00::1"), answer }
    };
    tell(&mut port, Time::ZERO, envelope("fd00::2", "fd00::1"), ask("fd00::1", Some(PEER)));
    let to_peer = Envelope { frame_to: PEER, frame_from: OURS, ..envelope("fd00::1", "fd00::2") };
    assert_eq!(sent(&mut port), [(to_peer, advert(true))]);
    assert_eq!(state(&port, "fd00::2"), Some((State::Stale, Some(PEER), false)));
    // Another node tries our address: the answer goes to all nodes, and nothing is learnt.
    tell(&mut port, Time::ZERO, envelope("::", "ff02::1:ff00:1"), ask("fd00::1", None));
    let frame_to = [0x33, 0x33, 0, 0, 0, 1];
    let to_all = Envelope { frame_to, frame_from: OURS, ..envelope("fd00::1", "ff02::1") };
    assert_eq!(sent(&mut port), [(to_all, advert(false))]);
    assert_eq!(port.table.len(), 1);
    // Another's address, and a question from off the link.
    tell(&mut port, Time::ZERO, envelope("fd00::2", "fd00::9"), ask("fd00::9", Some(PEER)));
    tell(&mut port, Time::ZERO, envelope("fd77::2", "fd00::1"), ask("fd00::1", Some(PEER)));
    tell(&mut port, Time::ZERO, envelope("fd77::2", "fd00::1"), ask("fd00::1", None));
    assert!(sent(&mut port).is_empty());
    let ledger = port.table.ledger();
    assert_eq!((ledger.ignored(Ignored::NotOurs), ledger.ignored(Ignored::OffLink)), (1, 2));
}

#[test]
fn rfc_4862_5_4_an_address_is_tried_first() {
    let try_it = |objection: Option<(Envelope, Message)>| {
        let mut port = port(1);
        let now = Time::ZERO + SECOND;
        port.add_address(now, address("fd00::77"), 64).expect("a host");
        assert_eq!(port.poll_timeout(), Some(now));
        port.handle_timeout(now);
        let (requested, message) = sent(&mut port)[0];
        assert_eq!((requested.source, requested.destination), (0, address("ff02::1:ff00:77")));
        assert_eq!(message, ask("fd00::77", None));
        // While on trial it answers no request.
        tell(&mut port, now, envelope("fd00::2", "fd00::77"), ask("fd00::77", Some(PEER)));
        assert!(sent(&mut port).is_empty() && !port.table.own().has(address("fd00::77")));
        if let Some((envelope, message)) = objection {
            tell(&mut port, now, envelope, message);
        }
        port.handle_timeout(now + SECOND);
        let is_ours = port.table.own().has(address("fd00::77"));
        assert_eq!(
            port.poll_verdict(),
            Some(DetectionOutcome { address: address("fd00::77"), is_ours })
        );
        is_ours
    };
    assert!(try_it(None));
    assert!(!try_it(Some((envelope("::", "ff02::1:ff00:77"), ask("fd00::77", None)))));
    let taken = say("fd00::77", Some(PEER), false);
    assert!(!try_it(Some((envelope("fd00::77", "ff02::1"), taken))));
    // Our own solicitation, coming back by a loop, is no objection.
    let own = Envelope { frame_from: OURS, ..envelope("::", "ff02::1:ff00:77") };
    assert!(try_it(Some((own, ask("fd00::77", None)))));
}

#[test]
fn addresses_that_no_port_can_have() {
    let mut port = port(1);
    assert_eq!(port.add_address(Time::ZERO, address("ff02::1"), 64), Err(OwnError::NotHost));
    assert_eq!(port.add_address(Time::ZERO, address("fd00::5"), 129), Err(OwnError::Length));
    for host in 0..64 {
        port.add_address(Time::ZERO, address("fd00::100") + host, 64).expect("room");
    }
    assert_eq!(port.add_address(Time::ZERO, address("fd00::5"), 64), Err(OwnError::Full));
    assert!(port.remove_address(address("fd00::1")) && !port.remove_address(address("fd00::1")));
    assert!(port.remove_address(address("fd00::101")), "a trial is ended");
}

fn advertising() -> Advertising {
    let mut what = Advertising { mtu: Some(1_500), ..Advertising::default() };
    what.prefixes[0] = Some(OnLinkPrefix {
        prefix: address("fd00::"),
        length: 64,
        is_on_link: true,
        is_autonomous: true,
        valid_s: 2_592_000,
        preferred_s: 604_800,
    });
    what
}

#[test]
fn section_6_2_advertisements() {
    let mut port = port(1);
    let mut now = Time::ZERO;
    let knock = Message::RouterSolicitation { mac: Some(PEER) };
    tell(&mut port, now, envelope("fe80::2", "ff02::2"), knock);
    assert!(sent(&mut port).is_empty(), "off until told");
    port.advertise(now, advertising()).expect("sound");
    let mut moments = Vec::new();
    while moments.len() < 30 {
        now = port.poll_timeout().expect("a timer").max(now);
        port.handle_timeout(now);
        for (sent, message) in sent(&mut port) {
            let Message::RouterAdvertisement(advert) = message else { continue };
            assert_eq!(
                (advert.lifetime_s, advert.mtu, advert.mac),
                (1_800, Some(1_500), Some(OURS))
            );
            assert_eq!(advert.prefixes, advertising().prefixes);
            let to = (address("fe80::1"), address("ff02::1"));
            assert_eq!((sent.source, sent.destination), to);
            moments.push(now);
        }
    }
    let gaps: Vec<Span> = moments.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(gaps[..2].iter().all(|&gap| gap == SECOND * 16), "{:?}", &gaps[..2]);
    assert!(gaps[2..].iter().all(|&gap| gap >= SECOND * 200 && gap <= SECOND * 600));
    // 6.2.6: a knock is answered within half a second, but not within 3 s of the last.
    for (wait, least, most) in
        [(SECOND * 10, Span::ZERO, SECOND / 2), (SECOND, SECOND * 2, SECOND * 3)]
    {
        now += wait;
        tell(&mut port, now, envelope("fe80::2", "ff02::2"), knock);
        let due = port.poll_timeout().expect("a timer");
        assert!(due >= now + least && due <= now + most, "{}", due.since(now));
        port.handle_timeout(due);
        assert_eq!(sent(&mut port).len(), 1);
        now = due;
    }
    port.cease();
    let last = sent(&mut port);
    assert!(
        matches!(last[..], [(_, Message::RouterAdvertisement(advert))] if advert.lifetime_s == 0)
    );
}

#[test]
fn section_6_2_1_ranges() {
    let sound = advertising();
    let mut preferred = sound;
    preferred.prefixes[0].as_mut().expect("one").preferred_s = u32::MAX;
    let checks = [
        (Advertising { interval_max: SECOND * 3, ..sound }, AdvertisingError::Interval),
        (Advertising { interval_min: SECOND * 500, ..sound }, AdvertisingError::Interval),
        (Advertising { lifetime_s: 599, ..sound }, AdvertisingError::Lifetime),
        (Advertising { lifetime_s: 9_001, ..sound }, AdvertisingError::Lifetime),
        (preferred, AdvertisingError::Prefix),
    ];
    for (what, error) in checks {
        assert_eq!(what.check(), Err(error));
    }
    let mut bare: Discovery<u64> =
        Discovery::new(Settings::discovery(1), Own::new(OURS).expect("a station"), 1)
            .expect("sound settings");
    assert_eq!(bare.advertise(Time::ZERO, sound), Err(AdvertisingError::NoLinkLocal));
}

#[test]
fn section_6_2_7_another_router_is_known_as_one() {
    let mut port = port(1);
    let mut other = self::port(1);
    other.advertise(Time::ZERO, advertising()).expect("sound");
    other.handle_timeout(Time::ZERO);
    let (_, message) = sent(&mut other)[0];
    let Message::RouterAdvertisement(mut advert) = message else { panic!("advertised") };
    advert.mac = Some(PEER);
    let message = Message::RouterAdvertisement(advert);
    tell(&mut port, Time::ZERO, envelope("fe80::2", "ff02::1"), message);
    assert_eq!(state(&port, "fe80::2"), Some((State::Stale, Some(PEER), true)));
}

#[test]
fn section_7_1_invalid_messages_are_refused() {
    let write = |envelope: Envelope, message: Message| {
        let mut frame = [0; FRAME_BYTES_MAX];
        let bytes = message.write(&envelope, &mut frame);
        frame[..bytes].to_vec()
    };
    let sound = write(envelope("fd00::2", "fd00::1"), ask("fd00::1", Some(PEER)));
    assert!(Message::read(&sound).is_ok());
    let mut hop = sound.clone();
    hop[21] = 254;
    assert_eq!(Message::read(&hop), Err(Malformed::HopLimit));
    let mut sum = sound.clone();
    sum[60] ^= 1;
    assert_eq!(Message::read(&sum), Err(Malformed::Checksum));
    for cut in 0..sound.len() {
        assert_eq!(Message::read(&sound[..cut]), Err(Malformed::Packet));
    }
    let refused = [
        (envelope("::", "fd00::1"), ask("fd00::1", None), Malformed::Destination),
        (envelope("::", "ff02::1:ff00:1"), ask("fd00::1", Some(PEER)), Malformed::Source),
        (envelope("fd00::2", "fd00::1"), ask("ff02::5", None), Malformed::Target),
        (envelope("fd00::2", "ff02::1"), say("fd00::2", None, true), Malformed::Destination),
        (envelope("ff02::2", "fd00::1"), ask("fd00::1", None), Malformed::Source),
        (
            envelope("::", "ff02::2"),
            Message::RouterSolicitation { mac: Some(PEER) },
            Malformed::Source,
        ),
    ];
    for (envelope, message, error) in refused {
        assert_eq!(Message::read(&write(envelope, message)), Err(error), "{message:?}");
    }
}

/// Changed bytes, with the checksum made right again, never panic and read as they are written.
#[test]
fn mutated_frames_round_trip() {
    let mut rng = Rng::new(12, 1, 0);
    let mut port = port(1);
    port.advertise(Time::ZERO, advertising()).expect("sound");
    let mut kinds = [0u64; 4];
    for step in 0..200_000u64 {
        let message = match rng.below(4) {
            0 => ask("fd00::1", Some(PEER)),
            1 => say("fd00::9", Some(PEER), true),
            2 => Message::RouterSolicitation { mac: Some(PEER) },
            _ => {
                let mut advert = advertising();
                advert.prefixes[1] = advert.prefixes[0];
                Message::RouterAdvertisement(nilometer_router::neighbour::RouterAdvertisement {
                    hop_limit: 64,
                    is_managed: false,
                    is_other: true,
                    lifetime_s: 1_800,
                    reachable_ms: 0,
                    retransmit_ms: 0,
                    mac: Some(PEER),
                    mtu: advert.mtu,
                    prefixes: advert.prefixes,
                })
            }
        };
        let mut frame = [0; FRAME_BYTES_MAX];
        let bytes = message.write(&envelope("fe80::2", "fd00::1"), &mut frame);
        let ip_bytes = 40 + usize::from(frame[19]);
        for _ in 0..rng.below(4) {
            frame[54 + rng.below(ip_bytes as u64 - 40) as usize] = rng.next_u64() as u8;
        }
        repair(&mut frame, ip_bytes);
        if rng.below(4) == 0 {
            frame[rng.below(bytes as u64) as usize] ^= 1 << rng.below(8);
        }
        if let Ok((envelope, message)) = Message::read(&frame[..bytes]) {
            let mut again = [0; FRAME_BYTES_MAX];
            let length = message.write(&envelope, &mut again);
            assert_eq!(Message::read(&again[..length]), Ok((envelope, message)));
            kinds[match message {
                Message::RouterSolicitation { .. } => 0,
                Message::RouterAdvertisement(_) => 1,
                Message::Solicitation { .. } => 2,
                Message::Advertisement { .. } => 3,
            }] += 1;
        }
        port.receive(Time::from_nanos(step * 1_000_000), &frame[..bytes]);
        sent(&mut port);
    }
    assert!(kinds.iter().all(|&count| count > 10_000), "{kinds:?}");
}

fn repair(frame: &mut [u8], ip_bytes: usize) {
    let ip = |at: usize| -> [u8; 16] { core::array::from_fn(|i| frame[at + i]) };
    let (source, destination) = (Ipv6Addr::from(ip(22)), Ipv6Addr::from(ip(38)));
    frame[56..58].fill(0);
    let mut checksum = nilometer_wire::checksum::Checksum::new();
    let length = ip_bytes as u32 - 40;
    checksum.add_pseudo_header(source.into(), destination.into(), 58, length);
    checksum.add(&frame[54..14 + ip_bytes]);
    frame[56..58].copy_from_slice(&checksum.finish().to_be_bytes());
}

/// 100,000 strangers advertise themselves, and as many send solicitations: the first leave no entries,
/// the second a full table in which entries in use stay.
#[test]
fn storms_are_bounded() {
    let mut port = port(0);
    port.table.set(Time::ZERO, address("fd00::2"), PEER, Given::Reachable).expect("room");
    for step in 0..100_000u128 {
        let mut from = envelope("fd00::1:0:0", "fd00::1");
        from.source += step;
        let now = Time::from_nanos(step as u64);
        let answer =
            Answer { mac: Some(PEER), is_solicited: true, overrides: true, is_router: false };
        tell(&mut port, now, from, Message::Advertisement { target: from.source, answer });
    }
    assert_eq!(port.table.len(), 1);
    assert_eq!(port.table.ledger().ignored(Ignored::Unknown), 100_000);
    for step in 0..100_000u128 {
        let mut from = envelope("fd00::1:0:0", "fd00::1");
        from.source += step;
        tell(&mut port, Time::from_nanos(200_000), from, ask("fd00::1", Some(PEER)));
        assert_eq!(sent(&mut port).len(), 1);
    }
    assert_eq!(port.table.len(), 4_096);
    assert_eq!(state(&port, "fd00::2").expect("kept").0, State::Reachable);
}
