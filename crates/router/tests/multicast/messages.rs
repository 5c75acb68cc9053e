//! Messages encoded and decoded, malformed messages, and which groups leave their link.

use std::net::{Ipv4Addr, Ipv6Addr};

use nilometer_router::multicast::{
    Malformed, Message, Protocol, QUERY_SOURCES_MAX, Query, Record, RecordKind, Version,
};
use nilometer_wire::Span;

use crate::MAC;
use crate::frames::{Hosts, igmp, mld, one};

fn v4(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().expect("an address").into()
}

fn v6(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().expect("an address").into()
}

#[test]
fn rfc_5771_4_and_rfc_4291_2_7_link_scoped_groups() {
    for group in ["224.0.0.1", "224.0.0.255", "198.18.0.1", "255.255.255.255", "240.0.0.1"] {
        assert!(!v4(group).may_forward(), "{group}");
    }
    for group in ["224.0.1.0", "239.1.2.3", "232.0.0.1"] {
        assert!(v4(group).may_forward(), "{group}");
    }
    for group in ["ff02::1", "ff01::5", "ff12::1", "ff00::1", "fd00::1", "ff32::1", "ff0f::1"] {
        assert!(!v6(group).may_forward(), "{group}");
    }
    for group in ["ff03::1", "ff05::2", "ff1e::1", "ff3e::8000:1"] {
        assert!(v6(group).may_forward(), "{group}");
    }
}

#[test]
fn rfc_1112_6_4_and_rfc_2464_7_link_layer_addresses() {
    assert_eq!(v4("239.129.2.3").group_mac(), [1, 0, 0x5e, 1, 2, 3]);
    assert_eq!(v4("224.255.255.255").group_mac(), [1, 0, 0x5e, 0x7f, 0xff, 0xff]);
    assert_eq!(v6("ff0e::1:aabb:ccdd").group_mac(), [0x33, 0x33, 0xaa, 0xbb, 0xcc, 0xdd]);
}

fn query<A: Hosts>(version: Version, group: A, sources: usize) -> Query<A> {
    let is_newest = version == Version::Newest;
    let sources = 0..sources as u64 * u64::from(is_newest);
    Query {
        group,
        sources: sources.map(A::source).collect(),
        response_interval: Span::from_nanos(1_500_000_000),
        is_suppressed: is_newest,
        robustness: 3 * u8::from(is_newest),
        query_interval: Span::from_secs(125 * u64::from(is_newest)),
        version,
    }
}

fn there_and_back<A: Hosts>() {
    for version in [Version::Older, Version::Newest] {
        for group in [A::NONE, A::group(7)] {
            for sources in [0, 1, QUERY_SOURCES_MAX] {
                let query = query::<A>(version, group, sources);
                let mut frame = [0xaa; 256];
                let bytes = A::write_query(&query, (MAC, A::on_link(100)), &mut frame);
                let read = A::read(&frame[..bytes]);
                assert_eq!(read, Ok((A::on_link(100), Message::Query(query))));
            }
        }
    }
    let record = |kind, sources| Record {
        kind,
        group: A::group(1),
        sources: (0..sources).map(A::source).collect(),
    };
    let records = vec![record(RecordKind::Block, 3), record(RecordKind::ToExclude, 0)];
    let read = A::read(&A::report(&records)).expect("a report");
    assert_eq!(read.1, Message::Report(Version::Newest, records));
    for (is_leave, kind) in [(false, RecordKind::IsExclude), (true, RecordKind::ToInclude)] {
        let read = A::read(&A::older(A::group(1), is_leave)).expect("a message");
        assert_eq!(read.1, Message::Report(Version::Older, vec![record(kind, 0)]));
    }
}

#[test]
fn writing_and_reading_round_trip() {
    there_and_back::<u32>();
    there_and_back::<u128>();
    let oldest = query::<u32>(Version::Oldest, 0, 0);
    let mut frame = [0; 256];
    let bytes = u32::write_query(&oldest, (MAC, u32::on_link(100)), &mut frame);
    let Ok((_, Message::Query(read))) = u32::read(&frame[..bytes]) else { panic!("a query") };
    assert_eq!((read.version, read.response_interval), (Version::Oldest, Span::from_secs(10)));
}

/// A general query of IGMPv3 as RFC 3376, 4.1 and RFC 2113 draw it, byte by byte; the two checksums
/// were added up by hand.
#[test]
fn rfc_3376_4_1_a_general_query() {
    let query = Query {
        response_interval: Span::from_secs(10),
        is_suppressed: false,
        robustness: 2,
        ..query::<u32>(Version::Newest, 0, 0)
    };
    let mut frame = [0xff; 256];
    let bytes = u32::write_query(&query, (MAC, v4("198.18.0.1")), &mut frame);
    let mut expected = vec![1, 0, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 1, 8, 0];
    expected.extend([0x46, 0xc0, 0, 36, 0, 0, 0x40, 0, 1, 2, 0x3d, 0xff]);
    expected.extend([198, 18, 0, 1, 224, 0, 0, 1, 0x94, 4, 0, 0]);
    expected.extend([0x11, 100, 0xec, 0x1e, 0, 0, 0, 0, 2, 125, 0, 0]);
    expected.resize(60, 0);
    assert_eq!(frame[..bytes], expected);
}

#[test]
fn invalid_messages_are_refused() {
    let group = u32::group(1);
    let sound = one(RecordKind::Allow, group, &[u32::source(1)]);
    let with = |at: usize, byte: u8| {
        let mut frame = sound.clone();
        frame[at] = byte;
        frame
    };
    let again = |message: &[u8]| igmp(u32::on_link(200), v4("224.0.0.22"), message.to_vec());
    let unicast = {
        let mut message = sound[38..].to_vec();
        message[12] = 10;
        again(&message)
    };
    let cut = again(&sound[38..sound.len() - 4]);
    for (frame, why) in [
        (with(40, 0), Malformed::Checksum),
        (with(24, 9), Malformed::Packet),
        (unicast, Malformed::Group),
        (cut, Malformed::Short),
        (again(&[0x77, 0, 0, 0, 0, 0, 0, 0]), Malformed::Kind),
        (again(&[0x11, 0, 0, 0, 10, 0, 0, 1]), Malformed::Group),
        (again(&[0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::Short),
    ] {
        assert_eq!(u32::read(&frame), Err(why));
    }
    let group = u128::group(1);
    let sound = one(RecordKind::Allow, group, &[u128::source(1)]);
    let message = &sound[62..];
    let from = |source: &str| mld(v6(source), v6("ff02::16"), message.to_vec());
    let mut far = sound.clone();
    far[21] = 64;
    let mut silent = sound.clone();
    silent[56..62].copy_from_slice(&[1, 4, 0, 0, 0, 0]);
    for (frame, why) in [
        (from("fd00::1"), Malformed::Source),
        (from("::"), Malformed::Source),
        (far, Malformed::HopLimit),
        (silent, Malformed::RouterAlert),
    ] {
        assert_eq!(u128::read(&frame), Err(why));
    }
    assert!(u128::read(&from("fe80::7")).is_ok());
    // The router alert (RFC 2711) may stand behind padding, and nowhere else than in its header.
    let with_options = |options: [u8; 6]| {
        let mut frame = sound.clone();
        frame[56..62].copy_from_slice(&options);
        u128::read(&frame).map(|_| ())
    };
    for options in [[5, 2, 0, 0, 0, 0], [0, 5, 2, 0, 0, 0], [0, 0, 5, 2, 0, 0], [1, 0, 5, 2, 0, 0]]
    {
        assert_eq!(with_options(options), Ok(()), "{options:?}");
    }
    let others =
        [[0; 6], [1, 2, 5, 2, 0, 0], [5, 0, 0, 0, 0, 0], [1, 9, 5, 2, 0, 0], [1, 1, 5, 5, 2, 0]];
    for options in others {
        let expected =
            if options == [1, 1, 5, 5, 2, 0] { Ok(()) } else { Err(Malformed::RouterAlert) };
        assert_eq!(with_options(options), expected, "{options:?}");
    }
    let mut no_header = sound.clone();
    no_header[20] = 60;
    assert!(u128::read(&no_header).is_err());
    let short = mld(v6("fe80::7"), v6("ff02::16"), vec![143, 0, 0, 0]);
    assert_eq!(u128::read(&short), Err(Malformed::Short));
}
