//! The matcher against its naive twin: whole lists, nested loops, no state.

use nilometer_stat::Rng;
use std::collections::HashSet;

use nilometer_profile::{Direction, Fate, Fingerprint, Matcher, MatcherConfig, PacketOutcome};
use nilometer_wire::{Span, Time};

const WAY: Direction = Direction::ServerToClient;

#[derive(Clone, Copy)]
struct Stamp {
    at: Time,
    print: Fingerprint,
    consumed: bool,
}

/// The usual delay after these, which were certain, and how much they differ.
fn usual(certain: &[u64]) -> Option<(u64, u64)> {
    let mut last = certain[certain.len().saturating_sub(31)..].to_vec();
    last.sort();
    let spread = (last.last()? - last[0]).max(100_000_000);
    Some((last[last.len() / 2], spread))
}

/// The definitions, applied to all stamps at once; how many exits were another packet than the
/// first, and how many a copy although a packet was left.
fn naive(
    entries: &[Stamp],
    exits: &[Stamp],
    config: MatcherConfig,
) -> (Vec<PacketOutcome>, [usize; 2]) {
    let mut origins: Vec<Option<(usize, Fate)>> = vec![None; exits.len()];
    let mut taken = vec![false; entries.len()];
    let mut usual_at = vec![None; exits.len()];
    let (mut certain, mut chosen) = (Vec::new(), [0; 2]);
    let meets = |entry: &Stamp, exit: &Stamp| {
        !entry.consumed
            && entry.at <= exit.at + config.early_max
            && exit.at.since(entry.at) <= config.horizon
    };
    let is_same = |a: &Stamp, b: &Stamp| a.print.digest == b.print.digest;
    let deviation = |entry: usize, exit: &Stamp, usual: Option<(u64, u64)>| {
        usual.map_or(0, |(median, _)| exit.at.since(entries[entry].at).0.abs_diff(median))
    };
    for (number, exit) in exits.iter().enumerate() {
        let now = usual(&certain);
        usual_at[number] = now;
        let free: Vec<usize> = (0..entries.len())
            .filter(|&entry| is_same(&entries[entry], exit) && meets(&entries[entry], exit))
            .filter(|&entry| !taken[entry])
            .collect();
        let last = (0..entries.len())
            .rfind(|&entry| taken[entry] && is_same(&entries[entry], exit))
            .filter(|&entry| exit.at.since(entries[entry].at) <= config.horizon);
        let nearest = free.iter().copied().min_by_key(|&entry| deviation(entry, exit, now));
        let is_copy = |entry: usize| match (last, now) {
            (Some(last), Some((_, spread))) => {
                deviation(entry, exit, now) > 4 * (deviation(last, exit, now) + spread)
            }
            _ => false,
        };
        origins[number] = match nearest.filter(|&entry| !is_copy(entry)) {
            Some(entry) => {
                if free.len() == 1 && last.is_none() {
                    certain.push(exit.at.since(entries[entry].at).0);
                }
                chosen[0] += usize::from(entry != free[0]);
                taken[entry] = true;
                Some((entry, Fate::Forwarded))
            }
            None => {
                chosen[1] += usize::from(nearest.is_some());
                last.map(|entry| (entry, Fate::Duplicated))
            }
        };
    }
    keep_order(exits, &mut origins);
    for (number, exit) in exits.iter().enumerate() {
        let shared = |entry: usize| entries[entry].print.lanes_shared(&exit.print).min(7);
        let nearness =
            |entry: usize| (std::cmp::Reverse(deviation(entry, exit, usual_at[number])), entry);
        let best = (0..entries.len())
            .filter(|&entry| !taken[entry] && meets(&entries[entry], exit) && shared(entry) >= 4)
            .max_by_key(|&entry| (shared(entry), nearness(entry)))
            .filter(|_| origins[number].is_none());
        if let Some(entry) = best {
            taken[entry] = true;
            origins[number] = Some((entry, Fate::Corrupted));
        }
    }
    (tell(entries, exits, &origins, &taken), chosen)
}

/// Identical packets that overtake one another cannot be seen.
fn keep_order(exits: &[Stamp], origins: &mut [Option<(usize, Fate)>]) {
    for first in 0..exits.len() {
        for second in first + 1..exits.len() {
            if let (Some((one, Fate::Forwarded)), Some((other, Fate::Forwarded))) =
                (origins[first], origins[second])
                && exits[first].print.digest == exits[second].print.digest
                && one > other
            {
                origins.swap(first, second);
            }
        }
    }
}

fn tell(
    entries: &[Stamp],
    exits: &[Stamp],
    origins: &[Option<(usize, Fate)>],
    taken: &[bool],
) -> Vec<PacketOutcome> {
    let flow = |origin: Option<(usize, Fate)>| match origin {
        Some((entry, Fate::Forwarded | Fate::Corrupted)) => {
            Some((entries[entry].print.flow, entry))
        }
        _ => None,
    };
    let mut outcomes = Vec::new();
    for (index, (exit, &origin)) in exits.iter().zip(origins).enumerate() {
        let overtook = |&earlier: &Option<(usize, Fate)>| match (flow(earlier), flow(origin)) {
            (Some((a, first)), Some((b, second))) => a == b && first > second,
            _ => false,
        };
        outcomes.push(PacketOutcome {
            direction: WAY,
            fate: origin.map_or(Fate::Originated, |(_, fate)| fate),
            entered_at: origin.map(|(entry, _)| entries[entry].at),
            left_at: Some(exit.at),
            bytes: exit.print.bytes,
            flow: flow(origin).map_or(exit.print.flow, |(flow, _)| flow),
            reordered: origins[..index].iter().any(overtook),
        });
    }
    for (entry, _) in entries.iter().zip(taken).filter(|(_, taken)| !**taken) {
        outcomes.push(PacketOutcome {
            direction: WAY,
            fate: if entry.consumed { Fate::Consumed } else { Fate::Lost },
            entered_at: Some(entry.at),
            left_at: None,
            bytes: entry.print.bytes,
            flow: entry.print.flow,
            reordered: false,
        });
    }
    outcomes.sort();
    outcomes
}

/// A packet out of so few contents and flows that look-alikes are everywhere.
fn packet(rng: &mut Rng) -> Vec<u8> {
    let mut packet = vec![0; 40 + 12 * rng.below(2) as usize];
    let length = packet.len() as u8;
    packet[..4].copy_from_slice(&[0x45, 0, 0, length]);
    packet[9] = 17;
    packet[21] = rng.below(3) as u8;
    packet[30] = rng.below(4) as u8;
    packet[34] = rng.below(2) as u8;
    packet
}

/// The unit of a scenario's times: a chance delay differs from the usual one by more than noise.
const UNIT: u64 = 50_000_000;

/// What enters and what leaves when everything that can go wrong often does.
fn scenario(seed: u64) -> (Vec<Stamp>, Vec<Stamp>) {
    let mut rng = Rng::new(seed, 0, 0);
    let (mut entries, mut exits) = (Vec::new(), Vec::new());
    let mut now = 20;
    for _ in 0..150 {
        now += rng.below(12);
        let mut bytes = packet(&mut rng);
        let consumed = rng.below(20) == 0;
        let stamp = |at: u64, bytes: &[u8]| Stamp {
            at: Time(at * UNIT),
            print: Fingerprint::of(bytes),
            consumed: false,
        };
        entries.push(Stamp { consumed, ..stamp(now, &bytes) });
        if consumed || rng.below(8) == 0 {
            continue;
        }
        if rng.below(8) == 0 {
            for _ in 0..=rng.below(3) {
                let at = 12 + rng.below(28) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        for _ in 0..=u64::from(rng.below(8) == 0) {
            let delay = if rng.below(4) == 0 { rng.below(120) } else { 18 + rng.below(3) };
            exits.push(stamp(now + delay - 8, &bytes));
        }
        if rng.below(12) == 0 {
            exits.push(stamp(now, &packet(&mut rng)));
        }
    }
    exits.sort_by_key(|exit| exit.at);
    (entries, exits)
}

/// Feeds both sides in a random interleaving, `expire` being called whenever that is allowed.
fn matched(
    entries: &[Stamp],
    exits: &[Stamp],
    config: MatcherConfig,
    seed: u64,
) -> Vec<PacketOutcome> {
    let mut rng = Rng::new(seed, 0, 0);
    let mut matcher = Matcher::new(config);
    let mut outcomes = Vec::new();
    let (mut entry, mut exit) = (0, 0);
    while entry < entries.len() || exit < exits.len() {
        if exit == exits.len() || (entry < entries.len() && rng.below(2) == 0) {
            let stamp = &entries[entry];
            matcher.entered(WAY, stamp.at, &stamp.print, stamp.consumed);
            entry += 1;
        } else {
            matcher.left(WAY, exits[exit].at, &exits[exit].print);
            exit += 1;
        }
        if let (Some(next_in), Some(next_out)) = (entries.get(entry), exits.get(exit))
            && rng.below(3) == 0
        {
            matcher.expire(next_in.at.min(next_out.at), &mut |outcome| outcomes.push(outcome));
        }
    }
    matcher.finish(&mut |outcome| outcomes.push(outcome));
    assert_eq!(matcher.held(), 0);
    outcomes.sort();
    outcomes
}

fn config(pending_max: usize) -> MatcherConfig {
    MatcherConfig { horizon: Span(60 * UNIT), early_max: Span(3 * UNIT), pending_max }
}

#[test]
fn agrees_with_its_twin_in_any_interleaving() {
    let config = config(1 << 10);
    let (mut seen, mut chosen) = (HashSet::new(), [0; 2]);
    for seed in 1..=300 {
        let (entries, exits) = scenario(seed);
        let (expected, choices) = naive(&entries, &exits, config);
        chosen.iter_mut().zip(choices).for_each(|(sum, more)| *sum += more);
        for order in 0..3 {
            let outcomes = matched(&entries, &exits, config, seed * 3 + order);
            assert_eq!(outcomes.len(), expected.len(), "seed {seed}");
            for (outcome, expected) in outcomes.iter().zip(&expected) {
                assert_eq!(outcome, expected, "seed {seed}, interleaving {order}");
            }
            seen.extend(outcomes.iter().map(|outcome| (outcome.fate, outcome.reordered)));
        }
    }
    // Every fate, and reordering of both kinds of packets that can be reordered.
    assert_eq!(seen.len(), 8, "the scenarios must show everything: {seen:?}");
    assert!(chosen[0] > 300 && chosen[1] > 15, "and every choice: {chosen:?}");
}

#[test]
fn a_full_matcher_still_balances() {
    let config = config(4);
    for seed in 1..=100 {
        let (entries, exits) = scenario(seed);
        let mut matcher = Matcher::new(config);
        let mut told = 0;
        for stamp in &entries {
            matcher.entered(WAY, stamp.at, &stamp.print, stamp.consumed);
            assert!(matcher.held() <= 8);
        }
        for stamp in &exits {
            matcher.left(WAY, stamp.at, &stamp.print);
            assert!(matcher.held() <= 8);
        }
        matcher.finish(&mut |_| told += 1);
        let counts = matcher.counts(WAY);
        assert_eq!((counts.entered, counts.left), (entries.len() as u64, exits.len() as u64));
        assert!(counts.overflow > 0 && counts.unreported > 0);
        let fates = counts.matched + counts.lost + counts.consumed;
        let all = fates + counts.originated + counts.duplicated;
        assert_eq!(told + counts.unreported, all, "each outcome is told or counted as untold");
    }
}
