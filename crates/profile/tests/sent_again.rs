//! Packets that are sent again byte for byte are distinguished by the usual delay.

use nilometer_profile::{Direction, Fate, Fingerprint, Matcher, MatcherConfig, PacketOutcome};
use nilometer_wire::Time;

const WAY: Direction = Direction::ClientToServer;
const MS: u64 = 1_000_000_000;

/// An IPv6 packet with this payload byte.
fn print(content: u8) -> Fingerprint {
    let mut packet = [0; 80];
    (packet[0], packet[5], packet[6], packet[60]) = (0x60, 40, 59, content);
    Fingerprint::of(&packet)
}

/// One whose last byte was damaged.
fn damaged(content: u8) -> Fingerprint {
    let mut packet = [0; 80];
    (packet[0], packet[5], packet[6], packet[60], packet[79]) = (0x60, 40, 59, content, 1);
    Fingerprint::of(&packet)
}

/// The fates of packets that enter and leave at these milliseconds, after nine packets that took 5 ms each, with
/// their entry and exit times, in order of those.
fn fates(
    entries: &[(u64, Fingerprint)],
    exits: &[(u64, Fingerprint)],
) -> Vec<(Fate, Option<u64>, Option<u64>)> {
    let mut matcher = Matcher::new(MatcherConfig::default());
    for turn in 0..9 {
        let other = print(100 + turn);
        matcher.entered(WAY, Time(u64::from(turn) * MS), &other, false);
        matcher.left(WAY, Time((u64::from(turn) + 5) * MS), &other);
    }
    let begin = 1_000;
    for (at, print) in entries {
        matcher.entered(WAY, Time((begin + at) * MS), print, false);
    }
    for (at, print) in exits {
        matcher.left(WAY, Time((begin + at) * MS), print);
    }
    let mut reported: Vec<PacketOutcome> = Vec::new();
    matcher.finish(&mut |outcome| reported.push(outcome));
    reported.retain(|outcome| outcome.entered_at.is_none_or(|at| at.0 >= begin * MS));
    reported.sort_by_key(|outcome| (outcome.entered_at, outcome.left_at));
    let since = |at: Option<Time>| at.map(|at| at.0 / MS - begin);
    reported
        .iter()
        .map(|reported| (reported.fate, since(reported.entered_at), since(reported.left_at)))
        .collect()
}

#[test]
fn the_first_is_the_lost_one_where_the_second_took_as_long_as_usual() {
    let packet = print(1);
    let sent_again = [(0, packet), (200, packet)];
    let lost = [(Fate::Lost, Some(0), None), (Fate::Forwarded, Some(200), Some(206))];
    assert_eq!(fates(&sent_again, &[(206, packet)]), lost);
    let lost = [(Fate::Forwarded, Some(0), Some(6)), (Fate::Lost, Some(200), None)];
    assert_eq!(fates(&sent_again, &[(6, packet)]), lost);
}

#[test]
fn a_late_packet_is_no_lost_one_when_both_leave() {
    let packet = print(1);
    // The first left late: sent again after 3 ms, in order.
    let entries = [(0, packet), (3, packet)];
    let both = [(Fate::Forwarded, Some(0), Some(8)), (Fate::Forwarded, Some(3), Some(9))];
    assert_eq!(fates(&entries, &[(8, packet), (9, packet)]), both);
}

#[test]
fn a_copy_of_the_second_is_not_the_first_come_late() {
    let packet = print(1);
    let fates = fates(&[(0, packet), (200, packet)], &[(205, packet), (206, packet)]);
    let expected = [
        (Fate::Lost, Some(0), None),
        (Fate::Forwarded, Some(200), Some(205)),
        (Fate::Duplicated, Some(200), Some(206)),
    ];
    assert_eq!(fates, expected);
}

#[test]
fn a_damaged_packet_that_is_sent_again_is_damaged_and_not_lost() {
    let packet = print(1);
    let fates = fates(&[(0, packet), (200, packet)], &[(5, damaged(1)), (205, packet)]);
    let expected = [(Fate::Corrupted, Some(0), Some(5)), (Fate::Forwarded, Some(200), Some(205))];
    assert_eq!(fates, expected);
}

/// Two look-alikes did not reach the receiver; the one that would have taken about 5 ms is the damaged one.
#[test]
fn of_look_alikes_the_damaged_one_took_as_long_as_usual() {
    let packet = print(1);
    let fates = fates(&[(0, packet), (4, packet)], &[(6, damaged(1))]);
    assert_eq!(fates, [(Fate::Corrupted, Some(0), Some(6)), (Fate::Lost, Some(4), None)]);
}

/// The packet that left was nearer to the usual delay if it was the first; but that was damaged, and left before the
/// second entered.
#[test]
fn the_second_does_not_leave_as_the_first_that_was_damaged() {
    let packet = print(1);
    let both = [(0, packet), (3, packet)];
    let expected = [(Fate::Corrupted, Some(0), Some(2)), (Fate::Forwarded, Some(3), Some(5))];
    assert_eq!(fates(&both, &[(2, damaged(1)), (5, packet)]), expected);
    // Of three, two were damaged.
    let three = [(0, packet), (2, packet), (6, packet)];
    let expected = [
        (Fate::Corrupted, Some(0), Some(5)),
        (Fate::Corrupted, Some(2), Some(5)),
        (Fate::Forwarded, Some(6), Some(7)),
    ];
    let mut other = damaged(1);
    other.digest ^= 1;
    assert_eq!(fates(&three, &[(5, damaged(1)), (5, other), (7, packet)]), expected);
}

/// The second packet is not matched if the damaged one may have been another packet, and the second would have
/// left at once, which no packet ever did.
#[test]
fn an_ambiguous_claim_does_not_allow_an_implausible_delay() {
    let packet = print(1);
    let both = [(0, packet), (0, print(2)), (5, packet)];
    // (One bit from either.)
    let exits = [(4, print(3)), (5, packet)];
    let reported = fates(&both, &exits);
    let expected = [
        (Fate::Lost, Some(5), None),
        (Fate::Corrupted, Some(0), Some(4)),
        (Fate::Forwarded, Some(0), Some(5)),
    ];
    assert!(
        reported.len() == 3 && expected.iter().all(|one| reported.contains(one)),
        "{reported:?}"
    );
    let both = [(0, packet), (5, packet)];
    let expected = [(Fate::Corrupted, Some(0), Some(4)), (Fate::Forwarded, Some(5), Some(5))];
    assert_eq!(fates(&both, &exits), expected, "there is no other");
}

#[test]
fn a_second_exit_beside_a_damaged_packet_is_a_copy() {
    let packet = print(1);
    let both = [(0, packet), (1, packet)];
    let expected = [
        (Fate::Corrupted, Some(0), Some(5)),
        (Fate::Forwarded, Some(1), Some(6)),
        (Fate::Duplicated, Some(1), Some(6)),
    ];
    assert_eq!(fates(&both, &[(5, damaged(1)), (6, packet), (6, packet)]), expected);
}

#[test]
fn a_copy_of_a_damaged_packet_is_a_copy() {
    let packet = print(1);
    let twice = [(5, damaged(1)), (6, damaged(1))];
    let expected = [(Fate::Corrupted, Some(0), Some(5)), (Fate::Duplicated, Some(0), Some(6))];
    assert_eq!(fates(&[(0, packet)], &twice), expected);
    // Not of another packet, though that was lost.
    let lost = (Fate::Lost, Some(1), None);
    assert_eq!(fates(&[(0, packet), (1, print(3))], &twice), [&expected[..], &[lost]].concat());
    // Two that were damaged likewise, the second when it was sent again.
    let expected = [(Fate::Corrupted, Some(0), Some(5)), (Fate::Corrupted, Some(200), Some(205))];
    let twice = [(5, damaged(1)), (205, damaged(1))];
    assert_eq!(fates(&[(0, packet), (200, packet)], &twice), expected);
    // And one whose copy left at once, the packet that was sent again being lost.
    let expected = [
        (Fate::Corrupted, Some(0), Some(5)),
        (Fate::Duplicated, Some(0), Some(6)),
        (Fate::Lost, Some(6), None),
    ];
    let twice = [(5, damaged(1)), (6, damaged(1))];
    assert_eq!(fates(&[(0, packet), (6, packet)], &twice), expected);
}
