//! Segments survive the wire, and nothing that comes from it breaks the reader.

use crate::pipe::Chance;
use nilometer_tcp::Segment;
use nilometer_tcp::bytes::{Ends, Malformed, emit, parse, parse_between};
use nilometer_tcp::segment::{ACK, SYN};
use nilometer_wire::checksum::transport_checksum_ok;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, Transport, parse as parse_frame};

const PROTOCOL: u8 = 6;

fn ends(chance: &mut Chance) -> Ends {
    let v4 = chance.one_in(2);
    let (source, destination) = if v4 {
        ("10.1.2.3:1000", "192.0.2.77:443")
    } else {
        ("[2001:db8::1]:5", "[2001:db8::ffff:2]:65535")
    };
    Ends { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn segment(chance: &mut Chance) -> Segment {
    let mut segment = Segment::default();
    segment.sequence = chance.next() as u32;
    segment.acknowledgement = chance.next() as u32;
    segment.window = chance.next() as u16;
    segment.length = chance.below(1461) as u16;
    segment.flags = chance.next() as u8;
    if chance.one_in(2) {
        segment.set_timestamps(chance.next() as u32, chance.next() as u32);
    }
    if segment.has(SYN) {
        if chance.one_in(2) {
            segment.set_mss(chance.next() as u16);
        }
        if chance.one_in(2) {
            segment.set_scale(chance.below(15) as u8);
        }
        if chance.one_in(2) {
            segment.set_sack_permitted();
        }
    } else {
        for _ in 0..chance.below(6) {
            segment.push_block(chance.next() as u32, chance.next() as u32);
        }
    }
    segment
}

#[test]
fn every_segment_survives_the_round_trip() {
    let mut chance = Chance::new(1);
    for _ in 0..20_000 {
        let (segment, ends) = (segment(&mut chance), ends(&mut chance));
        let mut bytes = Vec::new();
        emit(&segment, &ends, &mut bytes);
        assert_eq!(bytes.len() as u32, segment.header_bytes() + u32::from(segment.length));
        assert_eq!(parse_between(&bytes, &ends), Ok(segment));
        let ports = [ends.source.port(), ends.destination.port()];
        assert_eq!(parse(&bytes), Ok((segment, ports)));
    }
}

#[test]
fn the_capture_reader_sees_the_same_segment() {
    let mut chance = Chance::new(2);
    for _ in 0..2_000 {
        let (segment, ends) = (segment(&mut chance), ends(&mut chance));
        let mut bytes = Vec::new();
        emit(&segment, &ends, &mut bytes);
        let (source, destination) = (ends.source.ip(), ends.destination.ip());
        // The checksum that `ip_packet` fills in must be the one that stood there.
        let ours = bytes[16..18].to_vec();
        let packet = nilometer_wire::build::ip_packet(source, destination, PROTOCOL, bytes);
        let header = if ends.source.is_ipv4() { 20 } else { 40 };
        assert_eq!(packet[header + 16..header + 18], ours);
        assert_eq!(transport_checksum_ok(&packet), Some(true));
        let Parsed::Ip(ip) = parse_frame(LinkType::RawIp, &packet, packet.len() as u32) else {
            panic!("not IP: {packet:?}");
        };
        let Transport::Tcp(tcp) = ip.transport else { panic!("not TCP: {ip:?}") };
        assert_eq!(
            (tcp.source_port, tcp.destination_port),
            (ends.source.port(), ends.destination.port())
        );
        assert_eq!(
            (tcp.sequence, tcp.acknowledgement),
            (segment.sequence, segment.acknowledgement)
        );
        assert_eq!((tcp.flags, tcp.window), (segment.flags, segment.window));
        assert_eq!(tcp.payload_bytes, u32::from(segment.length));
    }
}

#[test]
fn bit_errors_are_detected_and_random_bytes_are_tolerated() {
    let mut chance = Chance::new(3);
    for _ in 0..20_000 {
        let (segment, ends) = (segment(&mut chance), ends(&mut chance));
        let mut bytes = Vec::new();
        emit(&segment, &ends, &mut bytes);
        let at = chance.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << chance.below(8);
        assert!(parse_between(&bytes, &ends).is_err());
        bytes.truncate(chance.below(bytes.len() as u64 + 1) as usize);
        let _ = parse(&bytes);
        let noise: Vec<u8> = (0..chance.below(80)).map(|_| chance.next() as u8).collect();
        if let Ok((read, _)) = parse(&noise) {
            assert!(noise.len() >= 20 && usize::from(read.length) <= noise.len() - 20);
        }
    }
}

#[test]
fn malformed_headers_are_named() {
    let mut bytes = vec![0; 24];
    assert_eq!(parse(&bytes[..19]), Err(Malformed::Cut));
    assert_eq!(parse(&bytes), Err(Malformed::DataOffset));
    bytes[12] = 7 << 4;
    assert_eq!(parse(&bytes), Err(Malformed::Cut));
    bytes[12] = 6 << 4;
    bytes[13] = SYN | ACK;
    let wrong = [(2, 2), (2, 3), (3, 2), (3, 4), (4, 3), (4, 4), (5, 2), (5, 3), (5, 4), (8, 2)];
    for (option, length) in wrong.into_iter().chain([(8, 4), (254, 0), (254, 1), (254, 5)]) {
        bytes[20..22].copy_from_slice(&[option, length]);
        assert_eq!(parse(&bytes), Err(Malformed::OptionLength(option)));
    }
    bytes[20..24].copy_from_slice(&[254, 4, 1, 2]);
    assert!(parse(&bytes).is_ok(), "an unknown option is skipped");
    bytes.resize(24 + 65_536, 0);
    assert_eq!(parse(&bytes), Err(Malformed::TooLong));
}

#[test]
fn errors_have_messages() {
    let texts = [
        (Malformed::Cut, "the segment ends before its header does"),
        (Malformed::TooLong, "the segment is longer than 65535 bytes"),
        (Malformed::DataOffset, "the data offset is below 5"),
        (Malformed::OptionLength(8), "option 8 has a length it cannot have"),
        (Malformed::Checksum, "the checksum is wrong"),
    ];
    for (malformed, text) in texts {
        assert_eq!(malformed.to_string(), text);
    }
}

/// Options that only a SYN may carry are ignored elsewhere, and blocks are ignored on a SYN.
#[test]
fn options_count_where_they_belong() {
    let options = [2, 4, 5, 180, 3, 3, 7, 4, 2, 1, 1, 1];
    let blocks = [5, 10, 0, 0, 0, 9, 0, 0, 0, 11, 0, 0];
    for (flags, option, is_syn) in [(SYN, options, true), (ACK, options, false)] {
        let mut bytes = vec![0; 20];
        (bytes[12], bytes[13]) = (8 << 4, flags);
        bytes.extend(option);
        let (segment, _) = parse(&bytes).expect("a segment");
        let stated = (segment.mss(), segment.scale(), segment.sack_permitted());
        assert_eq!(stated, if is_syn { (Some(1_460), Some(7), true) } else { (None, None, false) });
        bytes.truncate(20);
        bytes.extend(blocks);
        let (segment, _) = parse(&bytes).expect("a segment");
        let read_blocks: Vec<[u32; 2]> = segment.blocks().collect();
        assert_eq!(read_blocks, if is_syn { vec![] } else { vec![[9, 11]] });
    }
}
