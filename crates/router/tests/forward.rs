//! Hostile bytes through everything that forwarding does: no panic, and sound packets come out.

use std::net::IpAddr;

use nilometer_router::forward::fragment::Fragments;
use nilometer_router::forward::icmp::{IPV4_ERROR_BYTES, IPV6_ERROR_BYTES, Problem};
use nilometer_router::forward::icmp_suppression::Arrival;
use nilometer_router::forward::limit::{Allowance, Allowances, KINDS, Limits};
use nilometer_router::forward::martian::MartianFilter;
use nilometer_router::forward::options::{Options, SourceRouting, Visit};
use nilometer_router::forward::report::{Cause, Reporter};
use nilometer_router::forward::{ecmp, extension, hop};
use nilometer_router::header::{AnyKey, Header};
use nilometer_stat::Rng;
use nilometer_wire::build;
use nilometer_wire::checksum::{internet_checksum, ipv4_header_checksum_ok, transport_checksum_ok};
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{IpPacket, Parsed, Transport, parse};
use nilometer_wire::time::Time;

const PURPOSE: u32 = u32::from_be_bytes(*b"forw");
const PROBLEMS: [Problem; 14] = [
    Problem::NoRoute,
    Problem::AddressUnreachable,
    Problem::ProtocolUnreachable { pointer: 6 },
    Problem::PortUnreachable,
    Problem::TooBig { mtu_bytes: 1280 },
    Problem::SourceRouteFailed,
    Problem::Prohibited,
    Problem::SourcePolicy,
    Problem::Rejected,
    Problem::HopLimit,
    Problem::Reassembly,
    Problem::Parameter { pointer: 20 },
    Problem::Option { pointer: 42 },
    Problem::Redirect { gateway: 1 },
];
const VISIT: Visit<'_> =
    Visit { outgoing: 0xc612_00fe, stamp: 7, is_own: &|address| address & 1 == 0 };

/// Limits that hold nothing back.
fn open() -> Limits {
    let all = Allowance::UNLIMITED;
    Limits([Allowances { router: all, destination: all }; KINDS])
}

fn mend(packet: &mut [u8]) {
    let header_bytes = usize::from(packet.first().copied().unwrap_or(0) & 15) * 4;
    if header_bytes >= 20 && packet.len() >= header_bytes {
        packet[10..12].fill(0);
        let sum = internet_checksum(&[&packet[..header_bytes]]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// An IPv4 packet with options put into it.
fn with_options(plain: &[u8], options: &[u8]) -> Vec<u8> {
    let mut packet = [&plain[..20], options].concat();
    packet.resize(packet.len().next_multiple_of(4), 0);
    packet[0] = 0x40 | (packet.len() / 4) as u8;
    packet.extend(&plain[20..]);
    let total_bytes = packet.len() as u16;
    packet[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    packet[6] = 0; // it may be fragmented
    mend(&mut packet);
    packet
}

/// Packets of all the kinds that are distinguished, short and long.
fn samples() -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for (a, b) in [("198.18.0.1", "198.18.1.2"), ("fd00::1", "fd00:1::2")] {
        let [a, b] = [a, b].map(|text| text.parse::<IpAddr>().expect("an address"));
        packets.push(build::udp((a, 40_000).into(), (b, 53).into(), &[1; 60]));
        packets.push(build::udp((a, 40_000).into(), (b, 53).into(), &[2; 1400]));
        packets.push(build::Tcp::new((a, 9).into(), (b, 80).into()).ip_packet());
        for kind in [0, 3, 8, 11, 128, 129, 1, 3, 137] {
            packets.push(build::icmp(a, b, kind, 0, &[3; 40]));
        }
        let extensions: [(u8, &[u8]); 3] = [
            (0, &[17, 0, 5, 2, 0, 0, 1, 0, 9, 9, 9, 9, 0, 8, 0, 0]),
            (43, &[58, 0, 0, 1, 0, 0, 0, 0, 128, 0, 0, 0, 1, 2, 3, 4]),
            (44, &[58, 0, 0, 1, 0, 0, 0, 0, 128, 0, 0, 0, 1, 2, 3, 4]),
        ];
        for (kind, payload) in extensions.into_iter().filter(|_| a.is_ipv6()) {
            packets.push(build::ip_packet(a, b, kind, payload.to_vec()));
        }
    }
    let options: [&[u8]; 5] = [
        &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        &[131, 11, 4, 198, 18, 7, 7, 198, 18, 8, 8],
        &[137, 7, 8, 198, 18, 7, 7, 68, 12, 5, 3, 198, 18, 0, 254, 0, 0, 0, 0],
        &[148, 4, 0, 0, 130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[68, 4, 5, 0xe0, 1, 7, 3, 4],
    ];
    for options in options {
        packets.push(with_options(&packets[0], options));
        packets.push(with_options(&packets[5], options));
    }
    packets
}

/// A sample with some bytes changed; often mended, sometimes cut.
fn hostile(samples: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut packet = samples[rng.below(samples.len() as u64) as usize].clone();
    for _ in 0..rng.below(4) {
        let at = rng.below(packet.len().min(72) as u64) as usize;
        packet[at] = rng.next_u64() as u8;
    }
    if rng.below(4) > 0 && packet[0] >> 4 == 4 {
        mend(&mut packet);
    }
    if rng.below(16) == 0 {
        packet.truncate(rng.below(packet.len() as u64) as usize);
    }
    packet
}

/// What the meter's parser reads from a packet; it must find an IP packet.
fn parsed(packet: &[u8]) -> IpPacket {
    match parse(LinkType::RawIp, packet, packet.len() as u32) {
        Parsed::Ip(parsed) => parsed,
        other => panic!("{other:?}: {packet:02x?}"),
    }
}

/// Whether a packet is an ICMP error, to the meter's parser.
fn is_icmp_error(packet: &[u8]) -> bool {
    let Parsed::Ip(parsed) = parse(LinkType::RawIp, packet, packet.len() as u32) else {
        return false;
    };
    match (parsed.protocol, parsed.transport) {
        (1, Transport::Icmp { kind, .. }) if packet[0] >> 4 == 4 => {
            matches!(kind, 3 | 4 | 5 | 11 | 12)
        }
        (58, Transport::Icmp { kind, .. }) if packet[0] >> 4 == 6 => kind < 128,
        _ => false,
    }
}

#[test]
fn hostile_packets_get_sound_answers_or_none() {
    let mut rng = Rng::new(11, PURPOSE, 0);
    let samples = samples();
    let mut reporter = Reporter::new(open(), 9);
    let (mut answers, mut echoes, mut errors) = (0, 0, 0);
    for _ in 0..400_000 {
        let packet = hostile(&samples, &mut rng);
        let arrival = Arrival { to_broadcast: rng.below(32) == 0, ..Arrival::default() };
        let cause = Cause { now: Time::ZERO, arrival, packet: &packet };
        let problem = PROBLEMS[rng.below(PROBLEMS.len() as u64) as usize];
        let is_v4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
        let (answer, echo, limit_bytes) = if is_v4 {
            let answer = reporter.error_ipv4(cause, problem, 0xc612_00fe);
            (answer, reporter.echo_ipv4(cause, VISIT), IPV4_ERROR_BYTES)
        } else {
            let answer = reporter.error_ipv6(cause, problem, 0xfd00 << 112 | 9);
            (answer, reporter.echo_ipv6(cause, 0xfd00 << 112 | 9), IPV6_ERROR_BYTES)
        };
        errors += u32::from(is_icmp_error(&packet));
        if let Ok(answer) = answer {
            assert!(!is_icmp_error(&packet), "an answer to an error: {packet:02x?}");
            assert!(!arrival.to_broadcast || !is_v4);
            assert!(answer.len() <= limit_bytes);
            assert!(is_icmp_error(&answer) || problem == Problem::Redirect { gateway: 1 });
            check_answer(&answer, &packet);
            answers += 1;
        }
        if let Ok(echo) = echo {
            assert!(!is_icmp_error(&packet) && !is_icmp_error(&echo));
            check_answer(&echo, &packet);
            echoes += 1;
        }
    }
    assert!(answers > 100_000 && echoes > 10_000 && errors > 20_000, "{answers} {echoes} {errors}");
    assert_eq!(reporter.account().total(), 800_000);
}

/// An answer's lengths and checksums are right, and it goes back to the packet's sender.
fn check_answer(answer: &[u8], packet: &[u8]) {
    let reply = parsed(answer);
    assert_eq!(reply.ip_bytes as usize, answer.len());
    assert_eq!(transport_checksum_ok(answer), Some(true));
    if answer[0] >> 4 == 4 {
        assert_eq!(ipv4_header_checksum_ok(answer), Some(true));
        assert!(Header::read_ipv4(answer).is_ok());
        // Along a source route that was turned around, the sender is not the next to be reached.
        assert!(answer[16..20] == packet[12..16] || answer[0] & 15 > 5);
    } else {
        assert!(Header::read_ipv6(answer).is_ok());
        assert_eq!(answer[24..40], packet[8..24]);
    }
}

#[test]
fn hostile_packets_are_forwarded_sound_or_refused() {
    let mut rng = Rng::new(12, PURPOSE, 0);
    let samples = samples();
    let (mut forwarded, mut refused) = (0, 0);
    for _ in 0..400_000 {
        let mut packet = hostile(&samples, &mut rng);
        let routing = [SourceRouting::Refuse, SourceRouting::Ignore, SourceRouting::Follow];
        let routing = routing[rng.below(3) as usize];
        let options = Options::read(&packet, routing);
        let _ = extension::hop_by_hop(&packet);
        let _ = (extension::unfollowed_route(&packet), extension::type_0_at(&packet));
        let Ok(header) = Header::read_ipv4(&packet) else {
            let is_sound = Header::read_ipv6(&packet).is_ok();
            let before = packet.get(7).copied();
            if hop::decrement_ipv6(&mut packet).is_ok() && is_sound {
                assert_eq!(packet.get(7).copied(), before.map(|hop_limit| hop_limit - 1));
                assert!(Header::read_ipv6(&packet).is_ok());
            }
            continue;
        };
        let Ok(options) = options else {
            refused += 1;
            continue;
        };
        options.follow(&mut packet, 0xc612_00fe);
        options.fill(&mut packet, VISIT);
        if hop::decrement_ipv4(&mut packet).is_ok() {
            let after = Header::read_ipv4(&packet).expect("as sound as it came");
            assert_eq!(after.hop_limit, header.hop_limit - 1);
            assert_eq!((after.ip_bytes, after.notes), (header.ip_bytes, header.notes));
            assert_eq!(after.traffic_class, header.traffic_class);
            // The result may be a fault to the next router: a count that is full, or room for half
            // an entry.
            let next = Options::read(&packet, routing);
            assert!(matches!(next, Ok(_) | Err(Problem::Parameter { .. })));
            forwarded += 1;
        }
    }
    assert!(forwarded > 100_000 && refused > 10_000, "{forwarded} {refused}");
}

/// Options of one packet, applied to quite another: not what a caller should do, and no panic.
#[test]
fn options_of_another_packet_are_tolerated() {
    let mut rng = Rng::new(13, PURPOSE, 0);
    let samples = samples();
    let mut applied = 0;
    for _ in 0..200_000 {
        let one = hostile(&samples, &mut rng);
        let mut other = hostile(&samples, &mut rng);
        if let Ok(options) = Options::read(&one, SourceRouting::Follow) {
            options.follow(&mut other, 1);
            options.fill(&mut other, VISIT);
            applied += 1;
        }
    }
    assert!(applied > 50_000, "{applied}");
}

/// A router fragments hostile packets into sound pieces and finds a path for them.
#[test]
fn hostile_packets_are_cut_and_find_a_path() {
    let mut rng = Rng::new(14, PURPOSE, 0);
    let samples = samples();
    let mut pieces = 0;
    for _ in 0..200_000 {
        let packet = hostile(&samples, &mut rng);
        let header = Header::read_ipv4(&packet).or_else(|_| Header::read_ipv6(&packet));
        let Ok(header) = header else { continue };
        let _ = ecmp::flow_hash(3, &header, Some(rng.below(3) as u32));
        let AnyKey::V4(key) = header.key else { continue };
        let is_martian = MartianFilter::Standard.source_ipv4(key.source).is_some();
        assert!(is_martian || MartianFilter::Least.source_ipv4(key.source).is_none());
        let Ok(fragments) = Fragments::of(&packet, 68 + rng.below(600) as u16) else { continue };
        let mut of_fragments = None;
        for piece in fragments {
            let header = Header::read_ipv4(&piece).expect("a sound piece");
            assert_eq!(usize::from(header.ip_bytes), piece.len());
            if piece.len() < packet.len() {
                let path = ecmp::flow_hash(3, &header, None);
                assert_eq!(*of_fragments.get_or_insert(path), path, "one path for all");
            }
            pieces += 1;
        }
    }
    assert!(pieces > 50_000, "{pieces}");
}
