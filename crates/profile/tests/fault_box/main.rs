//! TCP through a fault box: the matcher's verdict on each packet is compared with the box's own account.
//!
//! The matcher reports the fate that the box gave each packet, except where the timestamps of both sides
//! do not determine it, and only in these cases:
//!
//! * *Look-alikes*: packets with the same bytes, or that differ in one lane alone, which entered closer together
//!   than the box's own delays vary. Which of them was lost or damaged is a guess, and so is whether a second exit
//!   is a copy of the first packet (the second being lost) or the second packet arriving late. The sums of their
//!   fates are exact, except that a copy and a loss may stand for a packet that left, or the other way round.
//! * The *order* of a packet, where such a look-alike of its flow, whose fate was guessed, entered
//!   behind it.
//!
//! Where a box both copies and damages look-alikes, the matcher does worse than it could: a matched exit is reported
//! at once, and a later one may show that it was a copy. The test bounds how often this happens.

mod groups;
mod traffic;
mod wire;

use std::collections::{BTreeMap, HashMap};

use nilometer_profile::{Direction, Fate, Fingerprint, Matcher, MatcherConfig, PacketOutcome};
use nilometer_wire::Time;

use groups::groups;
use wire::{Regime, Run, Truth};

const WAY: Direction = Direction::ClientToServer;
const SEEDS: u64 = 20;
const PACKETS: usize = 4_000;

/// A box without a delay of its own, as in the laboratory: a turn takes as long as it takes.
const TURNS: Regime = Regime {
    name: "turns",
    delay_ns: 0,
    jitter_ns: 0,
    turn_ns: 10_000,
    stall_ns: 1_000_000,
    loss: 0.005,
    corrupt: 0.03,
    duplicate: 0.0,
    reorder: 0.0,
    reorder_by_ns: 0,
    gap_ns: 60_000,
    pause_ns: 5_000_000,
};
const DELAY: Regime = Regime { name: "delay", delay_ns: 5_000_000, stall_ns: 300_000, ..TURNS };
const JITTER: Regime =
    Regime { name: "jitter", delay_ns: 10_000_000, jitter_ns: 5_000_000, ..DELAY };

/// The differences between the matcher's account and the box's.
#[derive(Debug, Default)]
struct Differences {
    packets: usize,
    /// Packets without look-alikes, and of those with some the ones whose fate was guessed wrong.
    alone: usize,
    guessed: usize,
    /// Damaged packets that have look-alikes.
    damaged_alike: usize,
    /// Packets without look-alikes that have another fate, or another number of copies.
    fates: Vec<String>,
    /// Packets without look-alikes that are wrongly reported as reordered or not, with no guessed
    /// packet behind them.
    order: Vec<String>,
    /// Look-alikes whose fates have other sums.
    sums: Vec<String>,
    /// Look-alikes of which a copy and a loss stand for a packet that left, or the other way round.
    exchanged: usize,
    originated: usize,
}

fn matched(run: &Run) -> Vec<PacketOutcome> {
    let mut matcher = Matcher::new(MatcherConfig::default());
    let mut reported = Vec::new();
    let mut exits = run.exits.iter().peekable();
    for packet in &run.truth {
        let at = Time::from_nanos(packet.entered_ns);
        while let Some((left_ns, bytes)) = exits.next_if(|exit| exit.0 < packet.entered_ns) {
            matcher.left(WAY, Time::from_nanos(*left_ns), &Fingerprint::of(bytes));
        }
        matcher.entered(WAY, at, &Fingerprint::of(&packet.bytes), false);
        matcher.expire(at, &mut |outcome| reported.push(outcome));
    }
    for (left_ns, bytes) in exits {
        matcher.left(WAY, Time::from_nanos(*left_ns), &Fingerprint::of(bytes));
    }
    matcher.finish(&mut |outcome| reported.push(outcome));
    reported
}

/// By fate, how many more packets are reported than there were; copies are under [`Fate::Duplicated`].
type Sums = BTreeMap<Fate, i64>;

impl Differences {
    fn of(regime: Regime) -> Differences {
        let mut all = Differences::default();
        (1..=SEEDS).for_each(|seed| all.add(regime, seed));
        println!("{}: {all:#?}", regime.name);
        all
    }

    fn add(&mut self, regime: Regime, seed: u64) {
        let run = wire::run(regime, seed, PACKETS);
        let truth = &run.truth;
        let (groups, sizes) = groups(truth, regime.window_ns());
        let by_entry: HashMap<u64, usize> =
            (0..truth.len()).map(|number| (truth[number].entered_ns, number)).collect();
        let mut sums: BTreeMap<usize, Sums> = BTreeMap::new();
        let mut seen: Vec<Option<PacketOutcome>> = vec![None; truth.len()];
        for outcome in matched(&run) {
            let Some(at) = outcome.entered_at else {
                self.originated += 1;
                continue;
            };
            let number = by_entry[&at.as_nanos()];
            *sums.entry(groups[number]).or_default().entry(outcome.fate).or_default() += 1;
            if outcome.fate != Fate::Duplicated {
                seen[number] = Some(outcome);
            }
        }
        let seen: Vec<PacketOutcome> = seen.into_iter().map(|it| it.expect("told")).collect();
        for (number, packet) in truth.iter().enumerate() {
            let of_group = sums.entry(groups[number]).or_default();
            *of_group.entry(packet.fate).or_default() -= 1;
            let copies = i64::from(packet.copy_left_ns.is_some());
            *of_group.entry(Fate::Duplicated).or_default() -= copies;
            let is_alone = sizes[groups[number]] == 1;
            self.alone += usize::from(is_alone);
            self.guessed += usize::from(!is_alone && seen[number].fate != packet.fate);
            self.damaged_alike += usize::from(!is_alone && packet.fate == Fate::Corrupted);
            if is_alone && seen[number].reordered != packet.reordered {
                let is_guess = |other: usize| sizes[groups[other]] > 1;
                if !may_be_misplaced(truth, &seen, number, is_guess) {
                    self.order.push(format!("seed {seed}: {packet} {:?}", seen[number]));
                }
            }
        }
        self.packets += truth.len();
        for (group, sums) in sums {
            self.judge(&truth[group], sizes[group], sums, seed);
        }
    }

    fn judge(&mut self, first: &Truth, size: usize, mut sums: Sums, seed: u64) {
        sums.retain(|_, sum| *sum != 0);
        if sums.is_empty() {
            return;
        }
        let sum = |fate| sums.get(&fate).copied().unwrap_or(0);
        let copies = sum(Fate::Duplicated);
        let [passed, damaged] = [Fate::Forwarded, Fate::Corrupted].map(sum);
        let is_exchange = sum(Fate::Lost) == copies
            && passed + damaged == -copies
            && passed.signum() * damaged.signum() >= 0;
        let line = format!("seed {seed}: {first}, {size} alike: {sums:?}");
        match size {
            1 => self.fates.push(line),
            _ if is_exchange => self.exchanged += 1,
            _ => self.sums.push(line),
        }
    }
}

/// Whether a guessed packet of its flow entered behind this one, before it left.
fn may_be_misplaced(
    truth: &[Truth],
    seen: &[PacketOutcome],
    number: usize,
    is_guess: impl Fn(usize) -> bool,
) -> bool {
    let left_ns = truth[number].left_ns.unwrap_or(u64::MAX);
    (number + 1..truth.len())
        .take_while(|other| truth[*other].entered_ns < left_ns)
        .any(|other| seen[other].flow == seen[number].flow && is_guess(other))
}

#[test]
fn lost_and_damaged_packets_are_reported_as_such() {
    for regime in [TURNS, DELAY, JITTER] {
        let all = Differences::of(regime);
        assert!(all.fates.is_empty() && all.sums.is_empty() && all.order.is_empty());
        assert_eq!(all.originated, 0, "the box makes no packets");
        assert!(all.exchanged <= 2, "{} copies that there are not", all.exchanged);
        // (The test shows little if nothing is guessed, or if everything is.)
        assert!(all.guessed > 100 && all.damaged_alike > 300 && 3 * all.alone > all.packets);
    }
}

#[test]
fn duplicated_packets_are_reported_as_such() {
    for regime in [TURNS, DELAY, JITTER] {
        let all = Differences::of(Regime { corrupt: 0.0, duplicate: 0.02, loss: 0.02, ..regime });
        assert!(all.fates.is_empty() && all.sums.is_empty() && all.order.is_empty());
        assert_eq!(all.originated, 0, "the box makes no packets");
        assert!(all.exchanged > 0 && 500 * all.exchanged < all.packets);
    }
}

#[test]
fn copies_of_damaged_packets_are_copies() {
    for regime in [TURNS, DELAY, JITTER] {
        let all = Differences::of(Regime { duplicate: 0.02, ..regime });
        let wrong = all.fates.len() + all.sums.len() + all.order.len() + all.originated;
        assert!(1_000 * wrong < all.packets, "{wrong} of {}", all.packets);
    }
}
