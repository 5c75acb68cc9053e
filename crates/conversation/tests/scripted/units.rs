//! Where one unit ends and the next of the same end begins.

use super::script::{C, S, Script};
use super::{MS, described, one};

/// One exchange, whose answer is sent in these segments, each a millisecond after the last.
fn answered_by(segments: &[u32]) -> Script {
    let mut script = Script::new(1_000);
    script.opens();
    script.after(10).says(C, 400).after(30);
    for &bytes in segments {
        script.says(S, bytes).after(1);
    }
    script.after(4).ack(C).after(1).rst(C);
    script
}

/// The server's steps.
#[track_caller]
fn answers(segments: &[u32]) -> Vec<String> {
    let script = answered_by(segments);
    let mut found = super::follow(&script.packets, usize::MAX);
    assert_eq!(found.len(), 1);
    let connection = found.remove(0);
    // However it is divided into units, it is one exchange of the same bytes.
    let exchange = connection.exchanges().next().unwrap();
    assert_eq!(exchange.answered_bytes, segments.iter().map(|&bytes| u64::from(bytes)).sum());
    assert_eq!(connection.exchanges().count(), 1);
    described(&connection)
        .lines()
        .filter_map(|line| line.strip_prefix("s 400 ").map(str::to_owned))
        .collect()
}

#[test]
fn small_segments_of_different_sizes_are_units_of_their_own() {
    let parted = ["+30 32/1~0", "+1 1/1~0", "+1 124/1~0", "+1 3/1~0", "+1 16/1~0"];
    assert_eq!(answers(&[32, 1, 124, 3, 16]), parted);
}

#[test]
fn small_segments_of_one_size_are_one_unit() {
    assert_eq!(answers(&[48, 48, 48, 36]), ["+30 144/3~2", "+1 36/1~0"]);
}

#[test]
fn a_rest_ends_the_unit_of_its_full_segments() {
    let parted = ["+30 2000/2~1", "+1 2000/2~1", "+1 7/1~0"];
    assert_eq!(answers(&[1_460, 540, 1_460, 540, 7]), parted);
    assert_eq!(answers(&[1_448, 200, 200]), ["+30 1648/2~1", "+1 200/1~0"]);
}

#[test]
fn large_segments_are_one_unit_whatever_their_sizes() {
    assert_eq!(answers(&[2_920, 1_460, 5_840, 1_200, 80]), ["+30 11500/5~4"]);
}

/// A small segment that is partly a retransmission is compared by its whole size.
#[test]
fn a_partial_retransmission_is_compared_by_its_whole_size() {
    let mut script = Script::new(7);
    script.opens();
    script.after(10).says(C, 400).after(30).says(S, 100);
    let longer = script.segment(S, 50, 100, 400);
    script.packets.push((script.now_ns + 2 * MS, longer));
    script.skip(S, 50).after(5).ack(C).after(1).rst(C);
    one(
        &script.packets,
        "
        c 0 +35 400/1~0
        s 400 +30 150/2~2
        c 150 +4 rst",
    );
}
