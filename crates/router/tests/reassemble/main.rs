//! Fragments of many datagrams, shuffled and repeated, reassembled; and attacks on reassembly.

mod twin;

use std::net::IpAddr;

use nilometer_router::forward::fragment::Fragments;
use nilometer_router::forward::icmp::Problem;
use nilometer_router::forward::reassemble::{
    Expired, Outcome, Reason, Reassembler, ReassemblyCounters, Settings,
};
use nilometer_stat::Rng;
use nilometer_wire::build;
use nilometer_wire::checksum::{internet_checksum, ipv4_header_checksum_ok, transport_checksum_ok};
use nilometer_wire::time::{Span, Time};

use twin::{FragmentFields, Naive};

const PURPOSE: u32 = u32::from_be_bytes(*b"reas");

/// A UDP datagram of IPv4 that may be cut, with this identification.
fn ipv4(id: u16, payload_bytes: usize, rng: &mut Rng) -> Vec<u8> {
    let payload: Vec<u8> = (0..payload_bytes).map(|_| rng.next_u64() as u8).collect();
    let (from, to) = ("198.18.0.1:7", "198.18.0.254:9");
    let mut packet = build::udp(from.parse().expect("one"), to.parse().expect("another"), &payload);
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6] = 0;
    mend(&mut packet);
    packet
}

fn expired(first: Option<Vec<u8>>) -> Option<Expired> {
    Some(Expired { port: 7, first })
}

fn mend(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = internet_checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// One IPv6 fragment of UDP, `payload` at `start`, behind destination options or not.
fn ipv6(id: u32, start: usize, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut inside = vec![17, 0];
    inside.extend((start as u16 | u16::from(more)).to_be_bytes());
    inside.extend(id.to_be_bytes());
    inside.extend(payload);
    let mut first = 44;
    if id % 2 == 1 {
        inside.splice(0..0, [44, 0, 1, 4, 0, 0, 0, 0]);
        first = 60;
    }
    let [from, to] = ["fd00::1", "fd00::fe"].map(|text| text.parse::<IpAddr>().expect("one"));
    build::ip_packet(from, to, first, inside)
}

/// A datagram of IPv6 and its fragments of at most `room` bytes, a multiple of eight.
fn cut_ipv6(id: u32, payload_bytes: usize, room: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (from, to) = ("[fd00::1]:7", "[fd00::fe]:9");
    let data = vec![id as u8; payload_bytes];
    let plain = build::udp(from.parse().expect("one"), to.parse().expect("another"), &data);
    let payload = &plain[40..];
    let count = payload.len().div_ceil(room);
    let pieces = payload.chunks(room).enumerate();
    let pieces = pieces.map(|(n, piece)| ipv6(id, n * room, n + 1 < count, piece)).collect();
    if id.is_multiple_of(2) {
        return (plain, pieces);
    }
    let extended = [&[17, 0, 1, 4, 0, 0, 0, 0], payload].concat();
    let [from, to] = ["fd00::1", "fd00::fe"].map(|text| text.parse::<IpAddr>().expect("one"));
    (build::ip_packet(from, to, 60, extended), pieces)
}

fn assert_conserved(account: ReassemblyCounters) {
    let gone: u64 = account.dropped.iter().sum();
    assert_eq!(
        account.received,
        account.delivered + account.repeated + gone + account.waiting,
        "{account:?}"
    );
}

#[test]
fn shuffled_and_repeated_fragments_are_the_datagrams() {
    let mut rng = Rng::new(1, PURPOSE, 0);
    for round in 0..300u32 {
        let mut table = Reassembler::new(Settings::default());
        let mut wholes = Vec::new();
        let mut pieces = Vec::new();
        for n in 0..8 {
            let bytes = rng.below(4_000) as usize;
            let (whole, cut) = if n % 2 == 0 {
                let whole = ipv4(n, bytes, &mut rng);
                let mtu_bytes = 68 + rng.below(1_000) as u16;
                let cut = Fragments::of(&whole, mtu_bytes).expect("cut").collect();
                (whole, cut)
            } else {
                cut_ipv6(round * 8 + u32::from(n), bytes, 8 + 8 * rng.below(100) as usize)
            };
            wholes.push(whole);
            let repeats = cut.iter().filter(|_| rng.below(8) == 0).cloned();
            pieces.push(repeats.collect::<Vec<Vec<u8>>>());
            pieces.push(cut);
        }
        let mut pieces: Vec<Vec<u8>> = pieces.concat();
        rng.shuffle(&mut pieces);
        let mut found = Vec::new();
        for piece in &pieces {
            if let Outcome::Whole(packet) = table.push(Time(u64::from(round)), 7, piece) {
                assert_eq!(transport_checksum_ok(&packet), Some(true));
                found.push(packet);
            }
        }
        // A repetition of an only fragment, or after the end, is a datagram of its own.
        for whole in &wholes {
            assert!(found.contains(whole));
        }
        assert!(found.iter().all(|packet| wholes.contains(packet)));
        assert_conserved(table.account());
    }
}

#[test]
fn rfc_5722_overlapping_fragments_drop_the_datagram() {
    let settings = Settings { patience: Span::from_secs(60), ..Settings::default() };
    let overlap = |second: Vec<u8>| {
        let mut table = Reassembler::new(settings);
        assert_eq!(table.push(Time::ZERO, 7, &ipv6(2, 0, true, &[1; 64])), Outcome::Waiting);
        let outcome = table.push(Time::ZERO, 7, &second);
        assert_eq!(outcome, Outcome::Dropped(Reason::Overlap, None));
        // Later fragments of it are dropped as well, and no error is sent at the end.
        let late = table.push(Time::ZERO, 7, &ipv6(2, 64, false, &[1; 8]));
        assert_eq!(late, Outcome::Dropped(Reason::Overlap, None));
        assert_eq!(table.waiting_bytes(), 0);
        assert_eq!(table.expire(Time::ZERO + Span::from_secs(60)), expired(None));
        assert_conserved(table.account());
        assert_eq!(table.account().dropped[Reason::Overlap as usize], 3);
    };
    overlap(ipv6(2, 56, true, &[1; 64]));
    overlap(ipv6(2, 8, true, &[1; 8]));
    overlap(ipv6(2, 0, true, &[2; 64]));
    overlap(ipv6(2, 0, true, &[1; 72]));
    overlap(ipv6(2, 32, false, &[1; 16]));
    let mut table = Reassembler::new(settings);
    table.push(Time::ZERO, 7, &ipv6(2, 0, true, &[1; 64]));
    assert_eq!(table.push(Time::ZERO, 7, &ipv6(2, 0, true, &[1; 64])), Outcome::Waiting);
    assert_eq!(table.account().repeated, 1);
}

#[test]
fn reassembly_times_out_sixty_seconds_after_the_first_fragment() {
    let mut rng = Rng::new(2, PURPOSE, 0);
    let whole = ipv4(1, 3_000, &mut rng);
    let pieces: Vec<Vec<u8>> = Fragments::of(&whole, 1_500).expect("cut").collect();
    for (held, quoted) in [(0, Some(pieces[0].clone())), (1, None)] {
        let mut table = Reassembler::new(Settings::default());
        assert_eq!(table.next_timeout(), None);
        table.push(Time::from_nanos(5), 7, &pieces[held]);
        table.push(Time::from_nanos(9), 7, &pieces[held]);
        let end = Time::from_nanos(5) + Span::from_secs(60);
        assert_eq!(table.next_timeout(), Some(end));
        assert_eq!(table.expire(Time(end.0 - 1)), None);
        assert_eq!(table.expire(end), expired(quoted));
        assert_eq!(table.expire(end), None);
        assert_eq!(table.account().dropped[Reason::Expired as usize], 1);
        assert_conserved(table.account());
    }
}

#[test]
fn invalid_fragments_are_dropped() {
    let mut rng = Rng::new(3, PURPOSE, 0);
    let mut table = Reassembler::new(Settings::default());
    let mut dropped = |packet: &[u8]| match table.push(Time::ZERO, 7, packet) {
        Outcome::Dropped(reason, problem) => (reason, problem),
        other => panic!("{other:?}"),
    };
    let at = |pointer| Some(Problem::Parameter { pointer });
    assert_eq!(dropped(&ipv6(2, 0, true, &[1; 9])), (Reason::Unsound, at(4)));
    assert_eq!(dropped(&ipv6(2, 8, false, &[])), (Reason::Unsound, at(4)));
    assert_eq!(dropped(&ipv6(2, 65_528, false, &[1; 8])), (Reason::TooLong, at(42)));
    assert_eq!(dropped(&ipv6(3, 65_528, false, &[1; 8])), (Reason::TooLong, at(50)));
    assert_eq!(dropped(&[]), (Reason::Unsound, None));
    let mut fragment = ipv4(1, 1_000, &mut rng);
    fragment[6..8].copy_from_slice(&0x1fffu16.to_be_bytes());
    mend(&mut fragment);
    assert_eq!(dropped(&fragment), (Reason::TooLong, None), "the ping of death");
}

#[test]
fn rfc_1858_tiny_fragments_of_tcp_are_dropped() {
    let (from, to) = ("198.18.0.1:7", "198.18.0.254:9");
    let (from, to) = (from.parse().expect("one"), to.parse().expect("another"));
    let segment = build::Tcp { payload: &[0; 40], ..build::Tcp::new(from, to) };
    let mut whole = segment.ip_packet();
    whole[6] = 0;
    mend(&mut whole);
    for (mtu_bytes, reason) in [(28, Some(Reason::Tiny)), (36, None)] {
        let mut table = Reassembler::new(Settings::default());
        let outcomes = Fragments::of(&whole, mtu_bytes).expect("cut");
        let outcomes: Vec<Outcome> = outcomes.map(|p| table.push(Time::ZERO, 7, &p)).collect();
        let tiny = Outcome::Dropped(Reason::Tiny, None);
        assert_eq!(outcomes[0] == tiny, reason.is_some());
        assert_eq!(outcomes[1] == tiny, reason.is_some());
        assert_eq!(outcomes.contains(&Outcome::Whole(whole.clone())), reason.is_none());
    }
}

#[test]
fn a_flood_of_fragments_is_bounded() {
    let settings = Settings { datagrams_max: 16, bytes_max: 20_000, ..Settings::default() };
    let mut table = Reassembler::new(settings);
    let mut rng = Rng::new(4, PURPOSE, 0);
    for n in 0..20_000u32 {
        let start = 8 * rng.below(2_000) as usize;
        let bytes = 8 * (1 + rng.below(180) as usize);
        table.push(Time(u64::from(n)), 7, &ipv6(n % 997 * 2, start, true, &vec![1; bytes]));
        assert!(table.waiting_bytes() <= 20_000);
        assert!(table.account().waiting <= 20_000 / 8);
    }
    assert_conserved(table.account());
    assert!(table.account().dropped[Reason::Evicted as usize] > 10_000);
    // And a datagram that arrives all at once still gets through.
    let (whole, pieces) = cut_ipv6(9_998, 9_000, 1_000);
    let last = pieces.iter().map(|piece| table.push(Time(30_000), 7, piece)).last();
    assert_eq!(last, Some(Outcome::Whole(whole)));
}

#[test]
fn hostile_fragments_make_sound_packets_or_none() {
    let mut rng = Rng::new(5, PURPOSE, 0);
    let mut samples: Vec<Vec<u8>> = Vec::new();
    for id in 1..4 {
        let whole = ipv4(id, 300, &mut rng);
        samples.extend(Fragments::of(&whole, 140).expect("cut"));
        samples.extend(cut_ipv6(u32::from(id), 300, 120).1);
    }
    let mut table = Reassembler::new(Settings { datagrams_max: 8, ..Settings::default() });
    let mut wholes = 0;
    for n in 0..300_000u64 {
        let mut packet = samples[rng.below(samples.len() as u64) as usize].clone();
        for _ in 0..rng.below(3) {
            let at = rng.below(60) as usize;
            packet[at] = rng.next_u64() as u8;
        }
        packet.truncate(packet.len() - rng.below(3) as usize * rng.below(9) as usize);
        if let Outcome::Whole(packet) = table.push(Time(n), 7, &packet) {
            if packet[0] >> 4 == 4 {
                assert_eq!(ipv4_header_checksum_ok(&packet), Some(true));
                assert_eq!(packet[6..8], [0, 0]);
                assert_eq!(u16::from_be_bytes([packet[2], packet[3]]) as usize, packet.len());
            } else {
                assert_eq!(u16::from_be_bytes([packet[4], packet[5]]) as usize + 40, packet.len());
            }
            wholes += 1;
        }
        while n % 1_000 == 0 && table.expire(Time(n)).is_some() {}
    }
    assert!(wholes > 1_000, "{wholes}");
    assert_conserved(table.account());
}

/// A fragment of one of few datagrams, so that many collide.
fn some_fragment(rng: &mut Rng) -> FragmentFields {
    let is_v6 = rng.below(2) == 0;
    let mut below = |bound: u64| rng.below(bound) as usize;
    let start = 8 * below(5);
    let bytes = [8, 8, 8, 16, 16, 24, 0, 5][below(8)];
    let content = u8::from(below(20) == 0);
    FragmentFields {
        is_v6,
        source: below(4) * below(2),
        destination: below(4) * below(2),
        id: [1, 1, 2, 0x201][below(4)],
        protocol: [17, 17, 17, 6][below(4)],
        option_bytes: [0, 0, 4, 40][below(4)],
        start,
        more: below(4) != 0,
        payload: (start..start + bytes).map(|at| at as u8 ^ content).collect(),
    }
}

#[test]
fn random_fragments_are_reassembled_as_by_the_naive_twin() {
    let mut rng = Rng::new(6, PURPOSE, 0);
    let mut wholes = [0; 2];
    for (datagrams_max, bytes_max) in [(64, 1 << 20), (6, 1 << 20), (64, 150), (1, 20)] {
        let settings = Settings { datagrams_max, bytes_max, patience: Span::from_nanos(90) };
        let mut table = Reassembler::new(settings);
        let mut naive = Naive::new(settings);
        for n in 0..30_000 {
            let (now, fields) = (Time(n), some_fragment(&mut rng));
            let port = rng.below(3) as u16;
            let outcome = table.push(now, port, &fields.packet());
            assert_eq!(outcome, naive.push(now, port, &fields), "fragment {n}");
            wholes[usize::from(fields.is_v6)] += u32::from(matches!(outcome, Outcome::Whole(_)));
            assert_eq!(table.expire(now), naive.expire(now));
            let next = naive.datagrams.first().map(|one| one.began + settings.patience);
            assert_eq!((table.next_timeout(), table.waiting_bytes()), (next, naive.bytes()));
            assert_eq!(table.account(), naive.account());
        }
        let account = table.account();
        let fields =
            [account.delivered, account.repeated, account.dropped[Reason::Overlap as usize]];
        assert!(fields.iter().all(|&number| number > 30), "{account:?}");
    }
    assert!(wholes.iter().all(|&number| number > 1_000), "{wholes:?}");
}

#[test]
fn a_datagram_holds_65_535_bytes_with_the_header_of_its_first_fragment() {
    let fields = |is_v6, option_bytes, start: usize, end: usize, more| FragmentFields {
        is_v6,
        source: 0,
        destination: 1,
        id: 7,
        protocol: 17,
        option_bytes,
        start,
        more,
        payload: vec![1; end - start],
    };
    // (Bytes before the payload that count: an IPv4 header with options; IPv6 extension headers.)
    for (is_v6, first_options, overhead) in [(false, 40, 60), (false, 0, 20), (true, 8, 8)] {
        for excess in [0, 1] {
            let end = 65_535 - overhead + excess;
            let first = fields(is_v6, first_options, 0, 65_000, true);
            let last = fields(is_v6, 0, 65_000, end, false);
            let mut table = Reassembler::new(Settings::default());
            assert_eq!(table.push(Time::ZERO, 7, &first.packet()), Outcome::Waiting);
            let outcome = table.push(Time::ZERO, 7, &last.packet());
            if excess == 0 {
                assert_eq!(outcome, Outcome::Whole(first.whole(&vec![1; end])));
            } else {
                assert_eq!(outcome, Outcome::Dropped(Reason::TooLong, None));
                // (A header without options is too long of itself, before it is put with the first.)
                let gone = if overhead == 20 { 1 } else { 2 };
                assert_eq!(table.account().dropped[Reason::TooLong as usize], gone);
            }
            assert_conserved(table.account());
        }
    }
}
