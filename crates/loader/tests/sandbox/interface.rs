//! What a module that keeps to the interface sees, changes and wants.

use nilometer_router::plugin::Effects;
use nilometer_wire::Time;

use super::{Module, Packets};

/// Runs a body for each packet, with `$d` at its descriptor.
fn each(body: &str) -> &'static str {
    format!(
        "(local $d i32) (local $end i32)
         (local.set $d (local.get $area))
         (local.set $end (i32.add (local.get $area) (i32.mul (local.get $packets) (i32.const 16))))
         (loop $next {body}
           (br_if $next (i32.lt_u (local.tee $d (i32.add (local.get $d) (i32.const 16)))
             (local.get $end))))
         i32.const 0"
    )
    .leak()
}

#[test]
fn changes_come_back_as_far_as_they_are_seen() {
    // Inverts the first and the last byte that are seen.
    let invert =
        "(i32.store8 (local.get $p) (i32.xor (i32.const 255) (i32.load8_u (local.get $p))))";
    let body = format!(
        "(local.set $p (i32.load (local.get $d))) {invert}
         (local.set $p (i32.sub (i32.add (local.get $p) (i32.load16_u offset=4 (local.get $d)))
           (i32.const 1))) {invert}
         (i32.store8 offset=13 (local.get $d) (i32.const 1))"
    );
    let process = each(&body).replacen("(local $d i32)", "(local $d i32) (local $p i32)", 1);
    let module = Module { process: process.leak(), ..Module::default() };
    let mut packets = Packets::of(&[20, 63, 64, 65, 1_500]);
    let before = packets.bytes();
    packets.process(&mut *module.instance()).0.expect("no fault");
    for (after, mut expected) in packets.bytes().into_iter().zip(before) {
        let last = 13 + (expected.len() - 14).min(64);
        expected[14] ^= 255;
        expected[last] ^= 255;
        assert_eq!(after, expected);
    }
}

#[test]
fn changes_without_the_flag_are_not_copied_back() {
    // All are changed, and dropped; the first has the flag.
    let body = "(i32.store8 (i32.load (local.get $d)) (i32.const 1))
        (i32.store8 offset=12 (local.get $d) (i32.const 1))
        (i32.store8 offset=13 (local.get $area) (i32.const 1))";
    let module = Module { process: each(body), ..Module::default() };
    let mut packets = Packets::of(&[40; 5]);
    let mut expected = packets.bytes();
    packets.process(&mut *module.instance()).0.expect("no fault");
    expected[0][14] = 1;
    assert_eq!(packets.bytes(), expected);
}

#[test]
fn each_packet_has_its_facts_and_its_decision() {
    // Drops a packet by its number, which stands in its input port, its output port and its length.
    let odd = "(i32.store8 offset=12 (local.get $d) (i32.and (i32.const 1)
        (i32.load16_u offset=8 (local.get $d))))
        (if (i32.ne (i32.load16_u offset=10 (local.get $d))
              (i32.add (i32.const 100) (i32.load16_u offset=8 (local.get $d)))) (then unreachable))
        (if (i32.ne (i32.load16_u offset=6 (local.get $d))
              (i32.add (i32.const 40) (i32.load16_u offset=8 (local.get $d)))) (then unreachable))";
    let module = Module { process: each(odd), ..Module::default() };
    let lengths: Vec<u16> = (0..200).map(|number| 40 + number).collect();
    let mut packets = Packets::of(&lengths);
    packets.process(&mut *module.instance()).0.expect("no fault");
    let dropped: Vec<usize> = packets.dropped.iter().collect();
    assert_eq!(dropped, (1..200).step_by(2).collect::<Vec<_>>());
    assert!(packets.changed.is_empty());
}

#[test]
fn nothing_is_copied_for_a_plugin_that_sees_nothing() {
    let module = Module {
        description: "name test\\0aversion 1\\0aseen-bytes 0\\0a",
        process: each(
            "(if (i32.or (i32.load (local.get $d)) (i32.load16_u offset=4 (local.get $d)))
               (then unreachable))
             (i32.store8 offset=13 (local.get $d) (i32.const 1))",
        ),
        ..Module::default()
    };
    let mut packets = Packets::of(&[40; 9]);
    let before = packets.bytes();
    packets.process(&mut *module.instance()).0.expect("no fault");
    assert_eq!(packets.bytes(), before);
}

/// A header of IPv4 whose checksum holds, and nothing behind it.
const IPV4: [u8; 20] = [69, 0, 0, 20, 0, 0, 0, 0, 64, 17, 102, 215, 10, 0, 0, 1, 10, 0, 0, 2];

#[test]
fn wishes_reach_the_router() {
    let module = Module {
        imports: "(import \"nilometer\" \"emit\" (func $emit (param i32 i32) (result i32)))
            (import \"nilometer\" \"log\" (func $log (param i32 i32)))
            (import \"nilometer\" \"reply\" (func $reply (param i32 i32)))
            (import \"nilometer\" \"set_timer\" (func $set_timer (param i64)))",
        globals: "(data (i32.const 512) \"\\45\\00\\00\\14\\00\\00\\00\\00\\40\\11\\66\\d7\\0a\\00\\00\\01\\0a\\00\\00\\02\")
            (data (i32.const 600) \"an IPv4\")",
        process: "(if (i32.ne (i32.const 1) (call $emit (i32.const 512) (i32.const 20)))
              (then unreachable))
            (if (call $emit (i32.const 513) (i32.const 20)) (then unreachable))
            (call $log (i32.const 600) (i32.const 7))
            (call $set_timer (i64.add (local.get $now) (i64.const 1000)))
            (i64.store (i32.const 256) (i64.add (i64.const 1) (i64.load (i32.const 256))))
            i32.const 0",
        message: "(call $reply (local.get $at) (local.get $bytes)) i32.const 0",
        timeout: "(call $log (i32.const 600) (i32.const 2)) i32.const 0",
        ..Module::default()
    };
    let mut instance = module.instance();
    assert_eq!(instance.poll_timeout(), None);
    let (outcome, mut effects) = Packets::of(&[40]).process(&mut *instance);
    assert_eq!((outcome, effects.refused()), (Ok(()), 1));
    assert_eq!(effects.take_emitted(), [IPV4.to_vec()]);
    assert_eq!(effects.take_lines(), ["an IPv4".to_owned()]);
    assert_eq!(instance.poll_timeout(), Some(Time::from_nanos(1_005)));
    assert_eq!(instance.counters(), [("packets".to_owned(), 1)]);
    let mut effects = Effects::default();
    let answer = instance.handle_message(Time::ZERO, "who is there?", &mut effects);
    assert_eq!(answer, Ok(Ok("who is there?".to_owned())));
    instance.handle_timeout(Time::from_nanos(1_005), &mut effects).expect("no fault");
    assert_eq!(effects.take_lines(), ["an".to_owned()]);
    assert_eq!(instance.poll_timeout(), None, "a timer runs once");
}

#[test]
fn messages_longer_than_the_first_room_fit() {
    let module = Module {
        imports: "(import \"nilometer\" \"reply\" (func $reply (param i32 i32)))",
        message: "(call $reply (local.get $at) (local.get $bytes)) i32.const 0",
        ..Module::default()
    };
    let mut instance = module.instance();
    let mut effects = Effects::default();
    let long = "m".repeat(65_536);
    assert_eq!(instance.handle_message(Time::ZERO, &long, &mut effects), Ok(Ok(long)));
    let longer = "m".repeat(65_537);
    let line = "a message has at most 65536 bytes".to_owned();
    assert_eq!(instance.handle_message(Time::ZERO, &longer, &mut effects), Ok(Err(line)));
}
