//! What the matcher does at its limits: the horizon, clock noise, memory, and look-alikes.

use nilometer_profile::{Direction, Fate, Fingerprint, Matcher, MatcherConfig, PacketOutcome};
use nilometer_wire::{Span, Time};

const WAY: Direction = Direction::ClientToServer;
const CONFIG: MatcherConfig =
    MatcherConfig { horizon: Span(1_000), early_max: Span(5), pending_max: 1 << 16 };

/// An IPv4 UDP packet with this identification, of this many bytes.
fn print(id: u16, bytes: usize) -> Fingerprint {
    let mut packet = vec![0; bytes];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[9] = 17;
    for (at, byte) in packet.iter_mut().enumerate().skip(20) {
        *byte = (usize::from(id) * 31 + at * (usize::from(id) + 7)) as u8;
    }
    Fingerprint::of(&packet)
}

/// The fates of packets that enter and leave at these times, by entry.
fn fates(entries: &[(u64, Fingerprint)], exits: &[(u64, Fingerprint)]) -> Vec<PacketOutcome> {
    let mut matcher = Matcher::new(CONFIG);
    entries.iter().for_each(|(at, print)| matcher.entered(WAY, Time(*at), print, false));
    exits.iter().for_each(|(at, print)| matcher.left(WAY, Time(*at), print));
    let mut outcomes = Vec::new();
    matcher.finish(&mut |outcome| outcomes.push(outcome));
    outcomes.sort_by_key(|outcome| (outcome.entered_at, outcome.left_at));
    outcomes
}

fn names(outcomes: &[PacketOutcome]) -> Vec<Fate> {
    outcomes.iter().map(|outcome| outcome.fate).collect()
}

#[test]
fn a_packet_may_take_the_horizon_and_not_longer() {
    let packet = print(1, 100);
    assert_eq!(names(&fates(&[(50, packet)], &[(1_050, packet)])), [Fate::Forwarded]);
    let late = fates(&[(50, packet)], &[(1_051, packet)]);
    assert_eq!(names(&late), [Fate::Originated, Fate::Lost]);
}

#[test]
fn exits_before_entry_are_matched_within_clock_noise_only() {
    let packet = print(1, 100);
    let early = fates(&[(50, packet)], &[(45, packet)]);
    assert_eq!(names(&early), [Fate::Forwarded]);
    assert_eq!(early[0].delay(), Some(Span::ZERO));
    let before = fates(&[(50, packet)], &[(44, packet)]);
    assert_eq!(names(&before), [Fate::Originated, Fate::Lost]);
}

#[test]
fn of_identical_packets_the_last_is_the_lost_one() {
    let packet = print(1, 60);
    let outcomes =
        fates(&[(10, packet), (20, packet), (30, packet)], &[(25, packet), (40, packet)]);
    assert_eq!(names(&outcomes), [Fate::Forwarded, Fate::Forwarded, Fate::Lost]);
    assert_eq!(outcomes[1].left_at, Some(Time(40)));
    let outcomes =
        fates(&[(10, packet), (30, packet)], &[(15, packet), (16, packet), (40, packet)]);
    assert_eq!(names(&outcomes), [Fate::Forwarded, Fate::Duplicated, Fate::Forwarded]);
    assert_eq!(outcomes[1].entered_at, Some(Time(10)), "the copy was made of the first");
}

#[test]
fn damage_needs_half_of_the_lanes_and_the_same_length() {
    let entered = print(1, 200);
    let mut damaged = entered;
    damaged.digest ^= 1;
    for lane in 0..4 {
        damaged.lanes[lane] ^= 1;
    }
    assert_eq!(names(&fates(&[(10, entered)], &[(20, damaged)])), [Fate::Corrupted]);
    damaged.lanes[4] ^= 1;
    assert_eq!(fates(&[(10, entered)], &[(20, damaged)]).len(), 2);
    let mut cut = entered;
    (cut.digest, cut.bytes) = (2, 196);
    assert_eq!(fates(&[(10, entered)], &[(20, cut)]).len(), 2);
    assert_eq!(fates(&[(26, entered)], &[(20, damaged)]).len(), 2, "it left before it entered");
}

#[test]
fn the_most_alike_is_taken_then_the_nearest() {
    let packet = print(1, 200);
    let with = |lanes: usize, digest: u64| {
        let mut other = packet;
        other.digest = digest;
        other.lanes.iter_mut().take(lanes).for_each(|lane| *lane ^= 7);
        other
    };
    let entries = [(10, with(1, 10)), (20, with(3, 20)), (30, with(3, 30)), (40, print(9, 200))];
    let outcomes = fates(&entries, &[(50, with(0, 50)), (60, with(0, 60))]);
    let corrupted = [Fate::Corrupted, Fate::Lost, Fate::Corrupted, Fate::Lost];
    assert_eq!(names(&outcomes), corrupted, "first the seven lanes, then the nearest with five");
    assert_eq!(outcomes[0].left_at, Some(Time(50)));
}

#[test]
fn memory_follows_the_horizon_and_not_the_run() {
    let mut matcher = Matcher::new(CONFIG);
    let (mut reported, mut most) = (0u64, 0);
    // One packet every 10 ps for 100 horizons; of fifty, one is lost, and one is made by the
    // device.
    for number in 0..10_000u64 {
        let at = Time(number * 10);
        let packet = print(number as u16, 60 + number as usize % 7 * 100);
        matcher.entered(WAY, at, &packet, false);
        match number % 50 {
            0 => (),
            1 => {
                matcher.left(WAY, at + Span(3), &packet);
                matcher.left(WAY, at + Span(4), &print(number as u16 ^ 0x8000, 59));
            }
            _ => matcher.left(WAY, at + Span(3), &packet),
        }
        matcher.expire(at, &mut |_| reported += 1);
        most = most.max(matcher.held());
    }
    // Entries of two horizons and exits of one, at 100 packets a horizon.
    assert!((250..=310).contains(&most), "{most} packets were held");
    matcher.finish(&mut |_| reported += 1);
    let counts = matcher.counts(WAY);
    assert_eq!((counts.lost, counts.originated, counts.overflow), (200, 200, 0));
    assert_eq!((reported, counts.reordered, matcher.held()), (10_200, 0, 0));
}

/// An entry that was dropped before it was judged, for lack of room, must not be mistaken for another.
#[test]
fn dropped_entries_leave_nothing_behind() {
    let mut matcher = Matcher::new(MatcherConfig { pending_max: 2, ..CONFIG });
    // Three packets of one flow, the first two of which were written down in the other order.
    let [first, second, third] = [1, 2, 3].map(|id| print(id, 100));
    let of_one_flow = |packet: Fingerprint| Fingerprint { flow: first.flow, ..packet };
    let [second, third] = [second, third].map(of_one_flow);
    matcher.entered(WAY, Time(101), &first, false);
    matcher.entered(WAY, Time(100), &second, false);
    matcher.left(WAY, Time(110), &second);
    matcher.left(WAY, Time(111), &first);
    matcher.entered(WAY, Time(120), &third, false);
    matcher.finish(&mut |_| {});
    assert_eq!((matcher.held(), matcher.total().overflow > 0), (0, true));
}

/// Outcomes decided early wait to be fetched, as many as packets may be held; further ones are only counted.
#[test]
fn queued_verdicts_are_limited_to_the_packets_held() {
    let mut matcher = Matcher::new(MatcherConfig { pending_max: 2, ..CONFIG });
    for number in 0..5 {
        matcher.entered(WAY, Time(100 + number), &print(number as u16, 100), false);
    }
    assert_eq!(matcher.counts(WAY).lost, 3);
    let mut reported = Vec::new();
    matcher.finish(&mut |outcome| reported.push(outcome.entered_at.expect("it entered").0));
    assert_eq!(reported, [100, 101, 103, 104]);
    let counts = matcher.counts(WAY);
    assert_eq!((counts.lost, counts.overflow, counts.unreported), (5, 3, 1));
}

#[test]
fn a_second_run_is_added_to_the_first() {
    let mut matcher = Matcher::new(CONFIG);
    let packet = print(1, 100);
    for run in 0..2 {
        matcher.entered(WAY, Time(run * 100), &packet, false);
        matcher.left(WAY, Time(run * 100 + 10), &packet);
        matcher.finish(&mut |outcome| assert_eq!(outcome.fate, Fate::Forwarded));
    }
    assert_eq!((matcher.total().matched, matcher.total().duplicated), (2, 0));
}

/// A matched exit makes room without an overflow; one that waits is counted.
#[test]
fn only_undecided_exits_count_as_overflow() {
    let mut matcher = Matcher::new(MatcherConfig { pending_max: 3, ..CONFIG });
    let packets = [1, 2, 3].map(|id| print(id, 100));
    for (at, packet) in (100..).zip(&packets) {
        matcher.entered(WAY, Time(at), packet, false);
        matcher.left(WAY, Time(at + 10), packet);
    }
    matcher.left(WAY, Time(120), &print(9, 80));
    assert_eq!((matcher.total().overflow, matcher.total().matched), (0, 1));
    // Those of the second and the third make room likewise, and then the one without an entry.
    matcher.left(WAY, Time(121), &print(10, 80));
    matcher.left(WAY, Time(122), &print(11, 80));
    assert_eq!((matcher.total().overflow, matcher.total().matched), (0, 3));
    matcher.left(WAY, Time(123), &print(12, 80));
    assert_eq!((matcher.total().overflow, matcher.total().originated), (1, 1));
}

/// A matched exit is reported at once; an unmatched one when no entry can match it any more.
#[test]
fn certain_fates_are_reported_at_once() {
    let mut matcher = Matcher::new(CONFIG);
    let packet = print(1, 100);
    matcher.entered(WAY, Time(100), &packet, false);
    matcher.left(WAY, Time(110), &packet);
    matcher.left(WAY, Time(120), &print(2, 80));
    let fates_by = |matcher: &mut Matcher, now: u64| {
        let mut reported = Vec::new();
        matcher.expire(Time(now), &mut |outcome| reported.push(outcome.fate));
        reported
    };
    assert_eq!(fates_by(&mut matcher, 121), [Fate::Forwarded]);
    assert_eq!(fates_by(&mut matcher, 1_130), []);
    assert_eq!(fates_by(&mut matcher, 1_131), [Fate::Originated]);
    assert_eq!(matcher.held(), 1);
    assert_eq!(fates_by(&mut matcher, 2_110), []);
    assert_eq!(matcher.held(), 1);
    assert_eq!(fates_by(&mut matcher, 2_111), []);
    assert_eq!(matcher.held(), 0);
}

/// Of several possible originals of a damaged packet, the most similar; of those, the last.
#[test]
fn damage_is_traced_to_the_most_alike() {
    let shares = |packet: &Fingerprint, lanes: usize, digest: u64| {
        let mut other = *packet;
        other.digest = digest;
        other.lanes.iter_mut().skip(lanes).for_each(|lane| *lane ^= 1);
        other
    };
    let packet = print(1, 200);
    for (lanes, origin) in [
        ([4, 5, 6], 30),
        ([6, 5, 4], 10),
        ([5, 6, 6], 30),
        ([6, 6, 5], 20),
        ([3, 4, 3], 20),
        // All but one are enough: one damaged word changes one of them.
        ([8, 7, 6], 20),
        ([8, 6, 6], 10),
        ([7, 6, 7], 30),
    ] {
        let entries: Vec<(u64, Fingerprint)> =
            (1..).zip(lanes).map(|(at, lanes)| (at * 10, shares(&packet, lanes, at))).collect();
        let outcomes = fates(&entries, &[(40, packet)]);
        let found = outcomes.iter().find(|outcome| outcome.fate == Fate::Corrupted);
        let found = found.expect("one of them").entered_at;
        assert_eq!(found, Some(Time(origin)), "{lanes:?}");
        assert_eq!(outcomes.len(), 3);
    }
}
