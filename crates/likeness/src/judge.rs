//! The judge: each law of the copy compared with the original's, beside the distance that a second sample of
//! the original would have.
//!
//! For each law the distance of copy and original stands beside its *floor*: two independent second samples of
//! the original (whole sessions drawn again, stretches of time drawn again), of as many units as original
//! and copy have, are as far apart by chance alone. A law
//!
//! * is *too few* where fewer than 44 sessions have values of it, or its floor is so high that hardly any copy
//!   could be distinguished from a second sample,
//! * *differs* where chance alone gives such a distance less often than once in a hundred comparisons of all
//!   laws together (Holm's correction of the shares of second samples that lie as far apart),
//! * is *alike* otherwise, if the distance is also within the law's own cap; beyond the cap there is too
//!   little evidence to call it alike, and it is *too few*.
//!
//! Laws that cannot be measured for one of the two ([`Source`]) are named and not judged.
//!
//! The ratio of distance and floor is printed, but decides nothing.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use nilometer_conversation::Side;
use nilometer_stat::summary::quantile_sorted;
use nilometer_stat::{Rng, floor};
use serde::{Deserialize, Serialize};

use crate::blocks::Blocks;
use crate::evidence::{Scale, Set, apart, are_categories};
use crate::laws::{LAWS, Law, Sampled};
use crate::observed::Observed;
use crate::resample::Strata;
#[cfg(doc)]
use crate::source::Source;

/// Second samples behind each floor.
pub const ROUNDS: usize = 200;
/// Second samples where a distance lies beyond the floor's 95th percentile: as many as Holm's correction needs.
pub const ROUNDS_DEEP: usize = 3_999;
/// Sessions below which no law is judged.
pub const SESSIONS_MIN: usize = 44;
/// The share of comparisons, all laws together, in which a perfect copy is reported to differ.
const LEVEL: f64 = 0.01;
/// The purpose of the streams of second samples.
const PURPOSE: u32 = u32::from_be_bytes(*b"like");

/// The settings of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// After this long without a connection a pair begins another session, ns.
    pub bound_ns: u64,
    /// Seed of the second samples.
    pub seed: u64,
    /// The requested speed of the copy relative to the original, 1 where it kept the original's clock. At another
    /// speed its gaps are shorter by this factor, and its rates are not comparable and left out.
    pub speed: f64,
}

impl Default for Settings {
    /// A minute, as in the paper; seed 1; the original's own speed.
    fn default() -> Settings {
        Settings { bound_ns: 60_000_000_000, seed: 1, speed: 1.0 }
    }
}

/// The verdict on a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As close to the original as a second sample of it.
    Alike,
    /// Farther from it than chance explains.
    Differs,
    /// Too little to tell.
    TooFew,
    /// Not compared, because what made the copy cannot play it.
    NotPlayed,
}

/// A law of the copy against the original's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Likeness {
    /// The law.
    pub name: String,
    /// Distance of copy and original; `None` where one of them has no values.
    pub distance: Option<f64>,
    /// What it is counted in: `ks`, `octaves`, `bits` or `correlation`.
    pub unit: String,
    /// Median distance of two second samples of the original; `None` where none can be drawn.
    pub floor: Option<f64>,
    /// 5th percentile of these distances.
    pub floor_p5: Option<f64>,
    /// 95th percentile of these distances.
    pub floor_p95: Option<f64>,
    /// `distance / floor`.
    pub ratio: Option<f64>,
    /// The share of second samples that lie as far apart; `None` where none were drawn.
    pub p: Option<f64>,
    /// The greatest distance that may be called alike.
    pub cap: f64,
    /// Values of the original.
    pub samples_original: u64,
    /// Values of the copy.
    pub samples_copy: u64,
    /// Its verdict.
    pub verdict: Verdict,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// A verdict for each law that can be measured for both, in the order of [`LAWS`].
    pub likeness: Vec<Likeness>,
    /// The other laws, in the same order: they cannot be measured from what one of the two was read from.
    pub not_measured: Vec<String>,
    /// Sessions of the original.
    pub sessions_original: u64,
    /// Sessions of the copy.
    pub sessions_copy: u64,
}

impl Judgement {
    /// The laws that were judged.
    pub fn judged(&self) -> impl Iterator<Item = &Likeness> {
        self.likeness.iter().filter(|one| matches!(one.verdict, Verdict::Alike | Verdict::Differs))
    }

    /// The verdict on a law, by its name.
    pub fn of(&self, name: &str) -> Option<&Likeness> {
        self.likeness.iter().find(|one| one.name == name)
    }
}

/// One law on its way to a verdict.
struct Case {
    law: Law,
    /// The original's values alone.
    original: Scale,
    distance: Option<f64>,
    samples: [usize; 2],
    /// Units of the original that have values of this law.
    telling: usize,
    null: Vec<f64>,
    floor: Option<floor::Floor>,
    p: Option<f64>,
    is_judged: bool,
    is_played: bool,
    differs: bool,
}

/// Compares a copy with its original. Where the original shows one side only ([`Observed::one_side`]), the
/// copy must be observed from that side, too ([`Observer::of_one_side`](crate::Observer::of_one_side)).
pub fn judge(original: &Observed, copy: &Observed, settings: &Settings) -> Judgement {
    let unseen = original.one_side().map(Side::other);
    let sets = [(original, 1.0), (copy, settings.speed)]
        .map(|(observed, speed)| Set::new(observed, settings.bound_ns, unseen, speed));
    let second = SecondSamples::of(&sets, settings.seed);
    let (laws, others): (Vec<&Law>, Vec<&Law>) =
        LAWS.iter().partition(|law| original.source.can_compare(copy.source, law));
    let mut cases: Vec<Case> = laws.into_iter().map(|law| Case::new(law, &sets)).collect();
    let sample = |cases: &mut [&mut Case], rounds: Range<usize>| {
        for round in rounds {
            let drawn = Sampled::ALL.map(|sampled| second.draw(sampled, round as u64));
            for case in cases.iter_mut() {
                case.measure(drawn[case.law.sampled as usize].as_ref());
            }
        }
    };
    sample(&mut cases.iter_mut().collect::<Vec<_>>(), 0..ROUNDS);
    cases.iter_mut().for_each(|case| case.set_floor(&sets));
    let mut doubtful: Vec<&mut Case> = cases.iter_mut().filter(|case| case.is_doubtful()).collect();
    if !doubtful.is_empty() {
        sample(&mut doubtful, ROUNDS..ROUNDS_DEEP);
    }
    cases.iter_mut().for_each(Case::set_p);
    if settings.speed != 1.0 {
        cases.iter_mut().for_each(Case::leave_rates_out);
    }
    correct(&mut cases);
    Judgement {
        likeness: cases.into_iter().map(Case::judged).collect(),
        not_measured: others.into_iter().map(|law| law.name.to_string()).collect(),
        sessions_original: sets[0].sessions.len() as u64,
        sessions_copy: sets[1].sessions.len() as u64,
    }
}

/// How second samples of the original are drawn, in pairs: one with as many units as the original, one with as
/// many as the copy.
struct SecondSamples {
    seed: u64,
    strata: Strata,
    /// One for each [`Sampled`]; `None` where a series is too short.
    blocks: [Option<Blocks>; 3],
    units: [[usize; 2]; 3],
}

impl SecondSamples {
    fn of(sets: &[Set<'_>; 2], seed: u64) -> SecondSamples {
        SecondSamples {
            seed,
            strata: Strata::of(&sets[0].sessions),
            blocks: Sampled::ALL.map(|sampled| sets[0].blocks(sampled)),
            units: Sampled::ALL.map(|sampled| sets.each_ref().map(|set| set.units(sampled))),
        }
    }

    /// The weights of a round's pair, the same for all laws that are sampled alike.
    fn draw(&self, sampled: Sampled, round: u64) -> Option<[Vec<u32>; 2]> {
        let kind = sampled as usize;
        let mut rng = Rng::new(self.seed, PURPOSE, round << 2 | sampled as u64);
        match (sampled, &self.blocks[kind]) {
            (Sampled::Sessions, _) => {
                Some(self.units[kind].map(|units| self.strata.draw(units, &mut rng)))
            }
            (_, Some(blocks)) => Some(self.units[kind].map(|units| blocks.draw(units, &mut rng))),
            (_, None) => None,
        }
    }
}

/// Holm's correction: the smallest share is compared with the level divided by the number of judged laws, the
/// next with the level divided by one less, until one is not below.
fn correct(cases: &mut [Case]) {
    let mut judged: Vec<&mut Case> = cases.iter_mut().filter(|case| case.is_judged).collect();
    judged.sort_by(|one, other| one.p.unwrap_or(1.0).total_cmp(&other.p.unwrap_or(1.0)));
    let all = judged.len();
    for (before, case) in judged.into_iter().enumerate() {
        if case.p.is_none_or(|p| p > LEVEL / (all - before) as f64) {
            return;
        }
        case.differs = true;
    }
}

impl Case {
    fn new(law: &Law, [original, copy]: &[Set<'_>; 2]) -> Case {
        let evidence = [original.evidence(law), copy.evidence(law)];
        let units = [original.units(law.sampled), copy.units(law.sampled)];
        let samples = evidence.each_ref().map(|one| one.samples());
        let pooled = evidence[0].pooled(&evidence[1], units[0] as u32, are_categories(law));
        let [one, other] = apart(units[0], units[1]);
        let is_there = samples.iter().any(|&samples| samples > 0);
        let distance = is_there.then(|| pooled.scale(law).distance(&one, &other));
        let telling = evidence[0].units();
        let [original_alone, _] = evidence;
        Case {
            law: *law,
            original: original_alone.scale(law),
            distance,
            samples,
            telling,
            null: Vec::new(),
            floor: None,
            p: None,
            is_judged: false,
            is_played: true,
            differs: false,
        }
    }

    /// Takes a pair of second samples of the original, if any can be drawn.
    fn measure(&mut self, drawn: Option<&[Vec<u32>; 2]>) {
        if let Some([one, other]) = drawn
            && self.distance.is_some()
            && self.telling > 0
        {
            self.null.push(self.original.distance(one, other));
        }
    }

    fn set_floor(&mut self, [original, copy]: &[Set<'_>; 2]) {
        if self.null.is_empty() {
            return;
        }
        let mut sorted = self.null.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |q| quantile_sorted(&sorted, q).expect("there are rounds");
        let floor = floor::Floor { median: at(0.5), p5: at(0.05), p95: at(0.95) };
        self.floor = Some(floor);
        let sessions = [original.sessions.len(), copy.sessions.len()];
        // How many sessions with values of this law a copy of this size would have.
        let expected = match self.law.sampled {
            Sampled::Sessions => self.telling.min(self.telling * sessions[1] / sessions[0].max(1)),
            _ => sessions[0].min(sessions[1]),
        };
        self.is_judged = expected >= SESSIONS_MIN && floor.median <= self.law.unit.floor_max();
    }

    /// Does it need more second samples?
    fn is_doubtful(&self) -> bool {
        let beyond = |distance: f64| self.floor.is_some_and(|floor| distance > floor.p95);
        self.is_judged && self.distance.is_some_and(beyond)
    }

    fn set_p(&mut self) {
        if let Some(distance) = self.distance
            && !self.null.is_empty()
        {
            let as_far = self.null.iter().filter(|null| **null >= distance).count();
            self.p = Some((as_far + 1) as f64 / (self.null.len() + 1) as f64);
        }
    }

    /// Rates of a copy that was played at another speed are not comparable.
    fn leave_rates_out(&mut self) {
        if self.law.sampled == Sampled::Bins {
            (self.is_judged, self.is_played) = (false, false);
        }
    }

    fn judged(self) -> Likeness {
        let is_within = self.distance.is_some_and(|distance| distance <= self.law.cap);
        let verdict = match self.is_judged {
            true if self.differs => Verdict::Differs,
            true if is_within => Verdict::Alike,
            _ if !self.is_played => Verdict::NotPlayed,
            _ => Verdict::TooFew,
        };
        let floor = self.floor;
        let ratio =
            self.distance.zip(floor).and_then(|(far, floor)| floor::ratio(far, floor.median));
        Likeness {
            name: self.law.name.to_string(),
            distance: self.distance.filter(|distance| distance.is_finite()),
            unit: self.law.unit.name().to_string(),
            floor: floor.map(|floor| floor.median),
            floor_p5: floor.map(|floor| floor.p5),
            floor_p95: floor.map(|floor| floor.p95),
            ratio,
            p: self.p,
            cap: self.law.cap,
            samples_original: self.samples[0] as u64,
            samples_copy: self.samples[1] as u64,
            verdict,
        }
    }
}
