//! RSVP messages: what is written is read again, and no bytes make a panic.

mod samples;

use std::net::Ipv4Addr;

use nilometer_reservation::message::*;
use nilometer_stat::Rng;
use samples::{PURPOSE, message};

const DRAWN: u64 = 400;

#[test]
fn every_message_comes_back_as_it_was_written() {
    for kind in MessageType::ALL {
        for index in 0..DRAWN {
            let drawn = message(&mut Rng::new(1, PURPOSE, index), kind);
            let bytes = drawn.write(63);
            let received = Message::read(&bytes).unwrap_or_else(|why| panic!("{drawn:?}: {why}"));
            assert_eq!(received, Received { message: drawn, send_ttl: 63, objects_ignored: 0 });
        }
    }
}

/// The bytes of a Path by RFC 2205, 3.1.3 and appendix A, and RFC 2210, 3.1, laid out by hand.
#[test]
fn a_path_stands_as_the_rfc_has_it() {
    let path = Path {
        session: Session {
            destination: Ipv4Addr::new(192, 0, 2, 9).into(),
            protocol: 17,
            port: 5_004,
        },
        hop: Hop { address: Ipv4Addr::new(192, 0, 2, 1).into(), handle: 3 },
        refresh_ms: 30_000,
        route: None,
        sender: Sender { source: Ipv4Addr::new(192, 0, 2, 7).into(), port: 4_000 },
        tspec: Tspec::new(125_000.0, 3_000.0),
        adspec: None,
    };
    let bytes = Message::Path(path).write(64);
    let expected = [
        &[0x10, 1, 0, 0, 64, 0, 0, 88][..],
        &[0, 12, 1, 1, 192, 0, 2, 9, 17, 0, 0x13, 0x8c],
        &[0, 12, 3, 1, 192, 0, 2, 1, 0, 0, 0, 3],
        &[0, 8, 5, 1, 0, 0, 0x75, 0x30],
        &[0, 12, 11, 1, 192, 0, 2, 7, 0, 0, 0x0f, 0xa0],
        &[0, 36, 12, 2, 0, 0, 0, 7, 1, 0, 0, 6, 127, 0, 0, 5],
        &125_000f32.to_be_bytes(),
        &3_000f32.to_be_bytes(),
        &f32::INFINITY.to_be_bytes(),
        &[0, 0, 0, 64, 0, 0, 0x05, 0xdc],
    ];
    let expected = expected.concat();
    assert_eq!(bytes[..2], expected[..2]);
    assert_eq!(bytes[4..], expected[4..], "all but the checksum");
}

#[test]
fn every_changed_byte_is_noticed() {
    for kind in MessageType::ALL {
        let bytes = message(&mut Rng::new(2, PURPOSE, 0), kind).write(63);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(Message::read(&changed).is_err(), "{kind}: byte {at}");
        }
    }
}

/// Without a checksum, damaged bytes reach the parsers of objects.
#[test]
fn any_bytes_are_a_message_or_an_error() {
    let mut read = 0;
    for kind in MessageType::ALL {
        for index in 0..DRAWN {
            let mut rng = Rng::new(3, PURPOSE, index);
            let mut bytes = message(&mut rng, kind).write(63);
            bytes[2..4].fill(0);
            for _ in 0..1 + rng.below(4) {
                let at = 8 + rng.below(bytes.len() as u64 - 8) as usize;
                bytes[at] = match rng.below(3) {
                    0 => rng.below(256) as u8,
                    1 => bytes[at] ^ 1 << rng.below(8),
                    _ => [0, 255, 4, 127][rng.below(4) as usize],
                };
            }
            let end =
                if rng.below(4) == 0 { rng.below(bytes.len() as u64) } else { bytes.len() as u64 };
            bytes.truncate(end as usize);
            if rng.below(2) == 0 && bytes.len() >= 8 {
                let length = (bytes.len() as u16).to_be_bytes();
                bytes[6..8].copy_from_slice(&length);
            }
            if let Ok(received) = Message::read(&bytes) {
                // What was read can be written, and is read the same again.
                let again = Message::read(&received.message.write(received.send_ttl));
                assert_eq!(again.map(|again| again.message), Ok(received.message));
                read += 1;
            }
        }
    }
    assert!(read > 100, "some of them are messages: {read}");
    for length in 0..64 {
        let mut rng = Rng::new(4, PURPOSE, length);
        let bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
        assert!(Message::read(&bytes).is_err());
    }
}

/// Adds an object in front of all others.
fn with_object(kind: MessageType, object: &[u8]) -> Result<Received, Malformed> {
    let mut bytes = message(&mut Rng::new(5, PURPOSE, 1), kind).write(63);
    bytes.splice(8..8, object.iter().copied());
    bytes[2..4].fill(0);
    let length = (bytes.len() as u16).to_be_bytes();
    bytes[6..8].copy_from_slice(&length);
    Message::read(&bytes)
}

#[test]
fn unknown_classes_are_treated_by_their_high_bits() {
    for kind in MessageType::ALL {
        for class in [0x42, 0x7f] {
            let expected = Malformed::UnknownClass { at: 8, class, c_type: 5 };
            assert_eq!(with_object(kind, &[0, 4, class, 5]), Err(expected));
            assert_eq!(expected.report(), Some((13, u16::from_be_bytes([class, 5]))));
        }
        for class in [0x80, 0xbf, 0xc0, 0xff] {
            let received = with_object(kind, &[0, 8, class, 1, 1, 2, 3, 4]).expect("passed over");
            assert_eq!(received.objects_ignored, 1);
        }
        // POLICY_DATA, INTEGRITY and SCOPE are known.
        for class in [14, 4, 7] {
            assert_eq!(with_object(kind, &[0, 4, class, 1]).expect("known").objects_ignored, 0);
        }
        let unknown = Malformed::UnknownCType { at: 8, class: 1, c_type: 9 };
        assert_eq!(with_object(kind, &[0, 4, 1, 9]), Err(unknown));
    }
}

#[test]
fn errors_are_reported_with_their_place() {
    let bytes = message(&mut Rng::new(6, PURPOSE, 0), MessageType::Path).write(63);
    assert_eq!(Message::read(&bytes[..7]), Err(Malformed::Length(7)));
    let arrived = bytes.len() - 4;
    let claimed = bytes.len();
    assert_eq!(Message::read(&bytes[..arrived]), Err(Malformed::Claimed { claimed, arrived }));
    assert_eq!(
        with_object(MessageType::Path, &[0, 6, 0xff, 1, 0, 0]),
        Err(Malformed::ObjectLength { at: 8, bytes: 6 })
    );
    assert_eq!(
        with_object(MessageType::Path, &[0xff, 0xfc, 0xff, 1]),
        Err(Malformed::ObjectLength { at: 8, bytes: 0xfffc })
    );
    let second = [0, 8, 5, 1, 0, 0, 0, 1];
    let misplaced = with_object(MessageType::Path, &second).expect_err("twice");
    assert!(matches!(misplaced, Malformed::Misplaced { object: "TIME_VALUES", .. }));
    let mut many = Vec::new();
    (0..OBJECTS_MAX).for_each(|_| many.extend([0, 4, 0xff, 1]));
    let refused = with_object(MessageType::Path, &many);
    assert_eq!(refused, Err(Malformed::TooMany { what: "objects", most: OBJECTS_MAX }));
}

/// A setup with this object of plugins at its end, without a checksum.
fn with_plugins(object: &[u8]) -> Result<Option<FlowPlugins>, Malformed> {
    let Message::FlowSetup(setup) = message(&mut Rng::new(10, PURPOSE, 0), MessageType::FlowSetup)
    else {
        panic!("a setup")
    };
    let mut bytes = Message::FlowSetup(FlowSetup { plugins: None, ..setup.clone() }).write(63);
    bytes.extend(object);
    bytes[2..4].fill(0);
    let length = (bytes.len() as u16).to_be_bytes();
    bytes[6..8].copy_from_slice(&length);
    let received = Message::read(&bytes)?;
    let Message::FlowSetup(read) = received.message else { panic!("a setup") };
    assert_eq!(FlowSetup { plugins: None, ..read.clone() }, FlowSetup { plugins: None, ..setup });
    assert_eq!(received.objects_ignored, u32::from(read.plugins.is_none() && !object.is_empty()));
    Ok(read.plugins)
}

/// Two plugins as in docs/reservations.md, laid out by hand.
const PLUGINS: [u8; 28] = [
    0, 28, 252, 1, 0, 0, 0x7e, 0xd9, 2, 6, 4, b'm', b'a', b'r', b'k', b'@', b'1', b'a', b'=', b'2',
    b'0', 3, 1, b'n', b'a', b't', b'x', 0,
];

fn named() -> FlowPlugins {
    let named = [("mark@1", "a=20"), ("nat", "x")].map(|(class, configuration)| NamedPlugin {
        class: class.to_owned(),
        configuration: configuration.to_owned(),
    });
    FlowPlugins::new(named.to_vec()).expect("they fit")
}

#[test]
fn plugins_stand_as_they_are_documented() {
    assert_eq!(with_plugins(&PLUGINS), Ok(Some(named())));
    assert_eq!(with_plugins(&[]), Ok(None));
    let drawn = message(&mut Rng::new(10, PURPOSE, 0), MessageType::FlowSetup);
    let Message::FlowSetup(setup) = drawn else { panic!("a setup") };
    let bytes = Message::FlowSetup(FlowSetup { plugins: Some(named()), ..setup }).write(63);
    assert_eq!(bytes[bytes.len() - PLUGINS.len()..], PLUGINS);
    // Cut anywhere, or with one byte changed, it is refused or has another content.
    for end in (4..PLUGINS.len()).step_by(4) {
        let mut cut = PLUGINS[..end].to_vec();
        cut[1] = end as u8;
        assert!(with_plugins(&cut).is_err(), "cut at {end}");
    }
    for at in 0..PLUGINS.len() {
        for bit in 0..8 {
            let mut changed = PLUGINS;
            changed[at] ^= 1 << bit;
            let read = with_plugins(&changed);
            assert_ne!(read, Ok(Some(named())), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn malformed_plugins_are_refused() {
    let changed = |at: usize, byte: u8| {
        let mut changed = PLUGINS;
        changed[at] = byte;
        with_plugins(&changed)
    };
    assert!(matches!(changed(8, 0), Err(Malformed::ObjectContents { class: 252, .. })));
    let none = [0, 12, 252, 1, 0, 0, 0x7e, 0xd9, 0, 0, 0, 0];
    assert!(matches!(with_plugins(&none), Err(Malformed::Value { what: "no plugin", .. })));
    let most = plugins::FLOW_PLUGINS_MAX;
    assert_eq!(changed(8, 9), Err(Malformed::TooMany { what: "plugins", most }));
    assert!(matches!(changed(9, 200), Err(Malformed::ObjectContents { class: 252, .. })));
    assert!(matches!(changed(11, b'/'), Err(Malformed::Value { .. })), "a letter of no name");
    assert!(matches!(changed(17, 0xff), Err(Malformed::Value { .. })), "not UTF-8");
    assert!(matches!(changed(17, b'\n'), Err(Malformed::Value { .. })), "a control character");
    assert!(matches!(changed(27, 1), Err(Malformed::ObjectContents { .. })), "padding");
    let mut longer = [&PLUGINS[..], &[0; 4]].concat();
    longer[1] += 4;
    assert!(matches!(with_plugins(&longer), Err(Malformed::ObjectContents { .. })), "a word more");
    assert!(matches!(changed(3, 2), Err(Malformed::UnknownCType { class: 252, c_type: 2, .. })));
    let twice = [PLUGINS, PLUGINS].concat();
    assert!(matches!(with_plugins(&twice), Err(Malformed::Misplaced { object: "PLUGINS", .. })));
    let long =
        FlowPlugins::new(vec![
            NamedPlugin { class: "a".to_owned(), configuration: "x".repeat(255) };
            2
        ]);
    assert_eq!(long, Err(PluginsError::Bytes(528)));
    // Of another enterprise it is passed over, and in other messages.
    assert_eq!(changed(7, 0), Ok(None));
    for kind in MessageType::ALL.into_iter().filter(|kind| *kind != MessageType::FlowSetup) {
        assert_eq!(with_object(kind, &PLUGINS).expect("passed over").objects_ignored, 1);
    }
}
