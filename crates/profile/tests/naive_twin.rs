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

/// Which entry an exit was, or was a copy of, and its fate.
type Origin = Option<(usize, Fate)>;

fn is_same(a: &Stamp, b: &Stamp) -> bool {
    a.print.digest == b.print.digest
}

fn meets(entry: &Stamp, exit: &Stamp, config: MatcherConfig) -> bool {
    !entry.consumed
        && entry.at <= exit.at + config.early_max
        && exit.at.since(entry.at) <= config.horizon
}

/// By how much a delay differs from the usual one.
fn differs_by(entry: &Stamp, exit: &Stamp, usual: Option<(u64, u64)>) -> u64 {
    usual.map_or(0, |(median, _)| exit.at.since(entry.at).0.abs_diff(median))
}

/// An unmatched exit, and the usual delay when it left.
type Unmatched = (Stamp, Option<(u64, u64)>);

/// Of these free entries, which all equal `exit`: how many of the first ones are left to unmatched
/// exits, how many of these to exits that can have been no others, and whether all of them are.
fn reserved(
    exit: &Stamp,
    free: &[usize],
    unmatched: &[Unmatched],
    (entries, taken): (&[Stamp], &[bool]),
    config: MatcherConfig,
) -> ([usize; 2], bool) {
    let recent = unmatched.iter().filter(|(other, _)| exit.at.since(other.at) <= config.horizon);
    // For each claim: when it left, the longest delay that it may have had, whether it is certain.
    let (mut claims, mut digests) = (Vec::new(), HashSet::new());
    for (claim, usual) in recent {
        let is_like = |entry: &Stamp| entry.print.lanes_shared(&claim.print) >= 7;
        if !digests.insert(claim.print.digest) || !is_like(exit) {
            continue;
        }
        let (median, spread) = usual.unwrap_or((0, 100_000_000));
        let nearest = |is_wanted: &dyn Fn(&Stamp) -> bool| {
            (0..entries.len())
                .filter(|&entry| !taken[entry] && meets(&entries[entry], claim, config))
                .filter(|&entry| exit.at.since(entries[entry].at) <= config.horizon)
                .filter(|&entry| is_like(&entries[entry]) && is_wanted(&entries[entry]))
                .map(|entry| claim.at.since(entries[entry].at).0.abs_diff(median))
                .min()
        };
        let Some(least) = nearest(&|entry| is_same(entry, exit)) else { continue };
        let others = nearest(&|entry| !is_same(entry, exit)).unwrap_or(u64::MAX);
        if least <= others.saturating_add(spread).saturating_mul(4) {
            let farthest = 4 * (least + spread);
            claims.push((claim.at, median + farthest, others > farthest));
        }
    }
    let is_plausible = |entry: usize, &(at, longest, _): &(Time, u64, bool)| {
        at.since(entries[entry].at).0 <= longest
    };
    let (mut first, mut all, mut next) = ([0; 2], [0; 2], 0);
    let mut count = 0;
    for (place, &entry) in free.iter().enumerate() {
        while next < claims.len() && claims[next].0 + config.early_max < entries[entry].at {
            all[0] = count.min(all[0] + 1);
            all[1] = count.min(all[1] + usize::from(claims[next].2));
            next += 1;
        }
        for (first, all) in first.iter_mut().zip(all) {
            if count > 0 && all == count {
                *first = place;
            }
        }
        count +=
            usize::from(all[0] > 0 || claims.get(next).is_some_and(|it| is_plausible(entry, it)));
    }
    let certain = all[1] + claims[next..].iter().filter(|claim| claim.2).count();
    (first, count > 0 && certain >= count)
}

/// The definitions, applied to all timestamps at once. Also returns how many exits were another packet
/// than the first, how many were a copy although an entry was left, how often an entry was left to a
/// damaged exit, and how often all were.
fn naive(
    entries: &[Stamp],
    exits: &[Stamp],
    config: MatcherConfig,
) -> (Vec<PacketOutcome>, [usize; 4]) {
    let mut origins: Vec<Origin> = vec![None; exits.len()];
    let mut taken = vec![false; entries.len()];
    let mut usual_at = vec![None; exits.len()];
    let (mut certain, mut chosen) = (Vec::new(), [0; 4]);
    let mut unmatched: Vec<Unmatched> = Vec::new();
    let deviation = |entry: usize, exit: &Stamp, usual| differs_by(&entries[entry], exit, usual);
    for (number, exit) in exits.iter().enumerate() {
        let now = usual(&certain);
        usual_at[number] = now;
        let free: Vec<usize> = (0..entries.len())
            .filter(|&entry| is_same(&entries[entry], exit) && meets(&entries[entry], exit, config))
            .filter(|&entry| !taken[entry])
            .collect();
        let last = (0..entries.len())
            .rfind(|&entry| taken[entry] && is_same(&entries[entry], exit))
            .filter(|&entry| exit.at.since(entries[entry].at) <= config.horizon);
        let (first, is_all) = reserved(exit, &free, &unmatched, (entries, &taken), config);
        let nearest = |from: usize| {
            free[from..].iter().copied().min_by_key(|&entry| deviation(entry, exit, now))
        };
        let is_far = |one: usize, other: usize| {
            now.is_some_and(|(_, spread)| {
                deviation(one, exit, now) > 4 * (deviation(other, exit, now) + spread)
            })
        };
        let (mut best, likely) = (nearest(first[0]), nearest(first[1]));
        if best.zip(likely).is_some_and(|(best, likely)| is_far(best, likely)) {
            best = likely;
        }
        chosen[2] += usize::from(best != nearest(0));
        let is_copy = |entry: usize| match last {
            Some(last) if now.is_some() => is_far(entry, last) || (is_all && !is_far(last, entry)),
            _ => false,
        };
        origins[number] = match best.filter(|&entry| !is_copy(entry)) {
            Some(entry) => {
                if free.len() == 1 && last.is_none() {
                    certain.push(exit.at.since(entries[entry].at).0);
                }
                chosen[0] += usize::from(entry != free[0]);
                taken[entry] = true;
                Some((entry, Fate::Forwarded))
            }
            None => {
                chosen[1] += usize::from(best.is_some());
                chosen[3] += usize::from(best.is_some() && is_all);
                last.map(|entry| (entry, Fate::Duplicated))
            }
        };
        if origins[number].is_none() {
            unmatched.push((*exit, now));
        }
    }
    keep_order(exits, &mut origins);
    trace_damaged((entries, exits), &usual_at, (&mut origins, &mut taken), config);
    (tell(entries, exits, &origins, &taken), chosen)
}

/// What is left over on both sides may be a packet and its damaged self.
fn trace_damaged(
    (entries, exits): (&[Stamp], &[Stamp]),
    usual_at: &[Option<(u64, u64)>],
    (origins, taken): (&mut [Origin], &mut [bool]),
    config: MatcherConfig,
) {
    let deviation = |entry: usize, exit: &Stamp, usual| differs_by(&entries[entry], exit, usual);
    for (number, exit) in exits.iter().enumerate() {
        if origins[number].is_some() {
            continue;
        }
        // An earlier packet with the same damage.
        let found = (0..number)
            .rfind(|&before| {
                let is_damaged = matches!(origins[before], Some((_, Fate::Corrupted)));
                is_damaged && is_same(&exits[before], exit)
            })
            .and_then(|before| origins[before])
            .map(|(entry, _)| entry)
            .filter(|&entry| exit.at.since(entries[entry].at) <= config.horizon);
        let shared = |entry: usize| entries[entry].print.lanes_shared(&exit.print).min(7);
        let usual = usual_at[number];
        let nearness = |entry: usize| (std::cmp::Reverse(deviation(entry, exit, usual)), entry);
        let best = (0..entries.len())
            .filter(|&entry| !taken[entry] && meets(&entries[entry], exit, config))
            .filter(|&entry| shared(entry) >= 4)
            .filter(|&entry| found.is_none_or(|found| is_same(&entries[found], &entries[entry])))
            .max_by_key(|&entry| (shared(entry), nearness(entry)))
            .filter(|&entry| {
                let Some((found, (_, spread))) = found.zip(usual) else { return true };
                deviation(entry, exit, usual) <= 4 * (deviation(found, exit, usual) + spread)
            });
        origins[number] = match best {
            Some(entry) => {
                taken[entry] = true;
                Some((entry, Fate::Corrupted))
            }
            None => found.map(|entry| (entry, Fate::Duplicated)),
        };
    }
}

/// Identical packets that overtake one another cannot be seen.
fn keep_order(exits: &[Stamp], origins: &mut [Origin]) {
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
    origins: &[Origin],
    taken: &[bool],
) -> Vec<PacketOutcome> {
    let flow = |origin: Origin| match origin {
        Some((entry, Fate::Forwarded | Fate::Corrupted)) => {
            Some((entries[entry].print.flow, entry))
        }
        _ => None,
    };
    let mut outcomes = Vec::new();
    for (index, (exit, &origin)) in exits.iter().zip(origins).enumerate() {
        let overtook = |&earlier: &Origin| match (flow(earlier), flow(origin)) {
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

/// A packet from so few contents and flows that look-alikes abound.
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
    let (mut seen, mut chosen) = (HashSet::new(), [0; 4]);
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
    let is_often = chosen.iter().zip([300, 15, 15, 15]).all(|(count, least)| *count > least);
    assert!(is_often, "and every choice: {chosen:?}");
}

#[test]
fn a_full_matcher_still_balances() {
    let config = config(4);
    for seed in 1..=100 {
        let (entries, exits) = scenario(seed);
        let mut matcher = Matcher::new(config);
        let mut reported = 0;
        for stamp in &entries {
            matcher.entered(WAY, stamp.at, &stamp.print, stamp.consumed);
            assert!(matcher.held() <= 8);
        }
        for stamp in &exits {
            matcher.left(WAY, stamp.at, &stamp.print);
            assert!(matcher.held() <= 8);
        }
        matcher.finish(&mut |_| reported += 1);
        let counts = matcher.counts(WAY);
        assert_eq!((counts.entered, counts.left), (entries.len() as u64, exits.len() as u64));
        assert!(counts.overflow > 0 && counts.unreported > 0);
        let fates = counts.matched + counts.lost + counts.consumed;
        let all = fates + counts.originated + counts.duplicated;
        assert_eq!(reported + counts.unreported, all, "each outcome is told or counted as untold");
    }
}
