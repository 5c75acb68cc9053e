//! The verdict: two sentences that a person could repeat.
//!
//! The first says how like the model the generated traffic is, by the worst ratio of a distance to
//! its sampling floor: up to 1.5 it is as like the model as a second sample of it would be, up to 2
//! nearly so, beyond it differs, and the sentence names where. The second says what the device did:
//! by how much its median delay exceeds that of the bare wire, and what became of the packets.
//!
//! Few samples have a wide floor, and within two wide floors of the model lies almost anything. The
//! sentence never calls such a distribution like the model: it names it with its count, as too few to
//! judge ([`super::enough`]). What differs by more than two floors differs all the same, however few
//! samples show it. Last, the sentence says when the model covers little of its input, or was itself
//! learnt from few flows: the traffic is then like a model of something else.

pub use super::enough::{ALIKE_MAX, NEARLY_MAX};
use super::enough::{KS_FLOOR_MAX, is_too_few, ks_floor};
use super::format::{self, count, percent, plural, time_ns, times};
use super::story::{Coverage, Fidelity, PacketCounts, Percentiles, Story, Trait};

/// Active sessions that are farther off than this share are worth a word.
pub const SESSIONS_OFF: f64 = 0.25;

/// A model that covers less than this share of its input's bytes is worth a word.
pub const COVERAGE_LOW: f64 = 0.5;

/// A run of words, important or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The words.
    pub text: String,
    /// Whether they are set apart.
    pub strong: bool,
}

/// Two sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headline {
    /// How like the model the traffic is; then what the device did.
    pub sentences: [Vec<Span>; 2],
    /// Which of them is being composed.
    at: usize,
}

impl Headline {
    /// The verdict of a run.
    pub fn of(story: &Story) -> Headline {
        let mut verdict = Headline::default();
        verdict.likeness(story);
        verdict.at = 1;
        verdict.device(story);
        verdict
    }

    /// The sentences as plain text, for a terminal.
    pub fn plain(&self) -> String {
        let words = |spans: &Vec<Span>| spans.iter().map(|s| s.text.as_str()).collect::<String>();
        format::plain(&self.sentences.each_ref().map(words).join(" "))
    }

    pub(super) fn say(&mut self, text: &str) {
        self.sentences[self.at].push(Span { text: text.to_owned(), strong: false });
    }

    pub(super) fn stress(&mut self, text: &str) {
        self.sentences[self.at].push(Span { text: text.to_owned(), strong: true });
    }

    fn likeness(&mut self, story: &Story) {
        if story.header.interrupted {
            let after = format::significant(story.header.duration_s, 3);
            self.stress(&format!("Interrupted after {after}\u{a0}s"));
            self.say("; until then ");
        }
        if !story.likeness.is_empty() {
            return self.against_the_original(story);
        }
        let the = if story.header.interrupted { "the" } else { "The" };
        if ratios(&story.fidelity).next().is_none() {
            let how = if story.header.interrupted { "how" } else { "How" };
            self.say(&format!("{how} like the model the generated traffic is was "));
            self.stress(format::NOT_MEASURED);
            return self.say(".");
        }
        let (few, enough): (Vec<_>, Vec<_>) =
            ratios(&story.fidelity).partition(|(fidelity, _)| is_too_few(fidelity));
        // Where files are too few, the addresses cannot stand for the whole; nor can a trait that takes
        // one value only.
        let few_files = few.iter().any(|(fidelity, _)| fidelity.name == Trait::FileSize);
        let decides = |(fidelity, ratio): &(&Fidelity, f64)| {
            *ratio > NEARLY_MAX || few.is_empty() || !few_files && fidelity.floor > 0.0
        };
        let worst = enough.iter().copied().filter(decides).max_by(|a, b| a.1.total_cmp(&b.1));
        match worst {
            None => self.unjudged(story, &few),
            Some((worst, ratio)) => {
                self.say(&format!("{the} generated traffic "));
                if ratio <= NEARLY_MAX {
                    self.alike(worst, ratio);
                } else {
                    self.apart(enough);
                }
                if !few.is_empty() {
                    self.say("; ");
                    self.list_few(&few);
                    self.say(" are too few to judge");
                }
            }
        }
        if let Some(off) = story.sessions_off.filter(|off| *off > SESSIONS_OFF) {
            self.say("; active sessions, for which no floor is known, are ");
            self.stress(&percent(off));
            self.say(" off");
        }
        self.rests_on(&story.coverage);
        self.say(".");
    }

    fn alike(&mut self, worst: &Fidelity, ratio: f64) {
        let nearly = if ratio <= ALIKE_MAX { "" } else { "nearly " };
        self.say(&format!("is {nearly}as like the model as "));
        self.stress("a second sample of it");
        self.say(&format!(" would be: worst is {}, ", name(worst.name)));
        self.stress(&format!("{}\u{a0}×", times(ratio)));
        self.say(" the floor");
    }

    fn apart(&mut self, mut apart: Vec<(&Fidelity, f64)>) {
        self.stress("differs from the model");
        self.say(" in ");
        apart.retain(|(_, ratio)| *ratio > NEARLY_MAX);
        apart.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (i, (fidelity, ratio)) in apart.iter().enumerate() {
            let floor = if i == 0 { " the floor" } else { "" };
            self.say(&format!("{}{} (", joint(i, apart.len()), name(fidelity.name)));
            self.stress(&format!("{}\u{a0}×", times(*ratio)));
            self.say(&format!("{floor})"));
        }
    }

    /// Says that too little was generated for any verdict.
    fn unjudged(&mut self, story: &Story, few: &[(&Fidelity, f64)]) {
        let made: u64 = story.intervals.iter().map(|interval| interval.flows_generated).sum();
        let too = if story.header.interrupted { "too" } else { "Too" };
        self.stress(&format!("{too} few connections ({})", count(made)));
        self.say(" were made to tell how like the model the generated traffic is: there are ");
        self.list_few(few);
    }

    fn list_few(&mut self, few: &[(&Fidelity, f64)]) {
        for (i, (fidelity, _)) in few.iter().enumerate() {
            let samples = plural(fidelity.count, sample(fidelity.name));
            self.say(&format!("{}{samples} for {}", joint(i, few.len()), name(fidelity.name)));
        }
    }

    /// Says what the model was learnt from, where that is little.
    fn rests_on(&mut self, coverage: &Coverage) {
        // A model written by hand covers no input.
        if coverage.bytes_total == 0 {
            return;
        }
        let rests = ks_floor(coverage.flows_entered) > KS_FLOOR_MAX;
        let performed = coverage.bytes_performed.unwrap_or(coverage.bytes_entered);
        let share = performed as f64 / coverage.bytes_total as f64;
        if rests {
            self.say("; the model itself rests on only ");
            self.stress(&plural(coverage.flows_entered, "flow"));
        }
        if share < COVERAGE_LOW {
            self.say(if rests { ", and covers " } else { "; the model covers " });
            self.stress(&percent(share));
            self.say(" of the input's bytes");
        }
    }

    fn device(&mut self, story: &Story) {
        let dut = match story.header.dut.as_str() {
            "" => "the device",
            dut => dut,
        };
        if dut == "wire" {
            self.say("Over ");
            self.stress("the bare wire");
        } else {
            self.say("Through ");
            self.stress(dut);
        }
        self.say(", ");
        match (finite(story.delay_ns), finite(story.wire_delay_ns)) {
            (None, _) => {
                self.say("delay was ");
                self.stress(format::NOT_MEASURED);
            }
            (Some(delay), _) if dut == "wire" => self.alone(&delay, ""),
            (Some(delay), None) => {
                self.alone(
                    &delay,
                    "; the meter's own share is in it, the bare wire was not measured",
                );
            }
            (Some(delay), Some(wire)) => self.added(&delay, &wire),
        }
        self.say("; ");
        self.fate(&story.packets);
        self.say(".");
    }

    fn alone(&mut self, delay: &Percentiles, aside: &str) {
        self.say("half of the packets took at most ");
        self.stress(&time_ns(delay.p50));
        self.say(&format!(" (p99 {}{aside})", time_ns(delay.p99)));
    }

    fn added(&mut self, delay: &Percentiles, wire: &Percentiles) {
        let (added, slow) = (delay.p50 - wire.p50, time_ns(wire.p50));
        if added <= 0.0 {
            let why = format!("the bare wire was no faster, {slow}");
            return self.alone(delay, &format!("; {why}, so what the device adds is not known"));
        }
        self.say("the median packet took ");
        self.stress(&time_ns(added));
        self.say(" more than that over the bare wire");
        self.say(&format!(" (p99 {} against {})", time_ns(delay.p99), time_ns(wire.p99)));
    }

    fn fate(&mut self, packets: &PacketCounts) {
        if packets.entered == 0 {
            return self.stress("no packet was seen to enter it");
        }
        self.stress(&format!("{} of {}", count(packets.lost), count(packets.entered)));
        self.say(if packets.lost == 1 { " was lost" } else { " were lost" });
        if packets.lost > 0 {
            self.say(&format!(" ({})", percent(packets.lost as f64 / packets.entered as f64)));
        }
        for (what, how_many) in [
            ("out of order", packets.reordered),
            ("duplicated", packets.duplicated),
            ("corrupted", packets.corrupted),
        ] {
            if how_many > 0 {
                self.say(&format!(", {} {what}", count(how_many)));
            }
        }
        if packets.meter_lost > 0 {
            let missed = count(packets.meter_lost);
            self.say(&format!(", but the meter itself missed {missed}"));
        }
    }
}

/// What a distribution is called in a sentence.
pub fn name(of: Trait) -> &'static str {
    match of {
        Trait::FileSize => "file size",
        Trait::InterConnection => "inter-connection time",
        Trait::SourceRank => "source popularity",
        Trait::DestinationRank => "destination popularity",
    }
}

/// The distribution farthest from the model in floors, and how far.
pub fn worst(fidelity: &[Fidelity]) -> Option<(&Fidelity, f64)> {
    ratios(fidelity).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// What is counted behind a distance.
fn sample(of: Trait) -> &'static str {
    match of {
        Trait::FileSize => "file",
        Trait::InterConnection => "gap",
        Trait::SourceRank | Trait::DestinationRank => "session",
    }
}

/// What goes before item `i` of `all`.
fn joint(i: usize, all: usize) -> &'static str {
    match (i, all - i) {
        (0, _) => "",
        (_, 1) => " and ",
        _ => ", ",
    }
}

fn ratios(fidelity: &[Fidelity]) -> impl Iterator<Item = (&Fidelity, f64)> {
    fidelity.iter().filter_map(|f| f.ratio.filter(|r| r.is_finite()).map(|r| (f, r)))
}

fn finite(delay: Option<Percentiles>) -> Option<Percentiles> {
    delay.filter(|d| d.p50.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::{Header, Interval};

    fn fidelity(name: Trait, ratio: Option<f64>) -> Fidelity {
        let floor = 0.01;
        let distance = ratio.unwrap_or(1.0) * floor;
        Fidelity { name, distance, floor, floor_p5: None, floor_p95: None, ratio, count: 100 }
    }

    fn story(ratios: [Option<f64>; 2]) -> Story {
        let wire =
            Percentiles { p5: 4_000.0, mean: 5_000.0, p50: 5_000.0, p95: 6_000.0, p99: 6_200.0 };
        Story {
            header: Header { dut: "linux".into(), duration_s: 60.0, ..Header::default() },
            fidelity: vec![
                fidelity(Trait::FileSize, ratios[0]),
                fidelity(Trait::InterConnection, ratios[1]),
            ],
            delay_ns: Some(Percentiles { p50: 14_800.0, p99: 41_000.0, ..wire }),
            wire_delay_ns: Some(wire),
            packets: PacketCounts { entered: 1_204_112, left: 1_204_112, ..Default::default() },
            ..Story::default()
        }
    }

    fn written(story: &Story) -> String {
        Headline::of(story).plain()
    }

    #[test]
    fn a_good_run() {
        assert_eq!(
            written(&story([Some(0.9), Some(1.3)])),
            "The generated traffic is as like the model as a second sample of it would be: worst \
             is inter-connection time, 1.3 × the floor. Through linux, the median packet took \
             9.8 µs more than that over the bare wire (p99 41 µs against 6.2 µs); 0 of 1,204,112 were \
             lost."
        );
    }

    #[test]
    fn the_three_degrees_of_likeness() {
        let first = |ratios| written(&story(ratios)).split(". Through").next().map(str::to_owned);
        let alike = "The generated traffic is as like the model as a second sample of it would be: \
                     worst is file size, 1.5 × the floor";
        assert_eq!(first([Some(1.5), Some(0.2)]).as_deref(), Some(alike));
        let nearly = "The generated traffic is nearly as like the model as a second sample of it \
                      would be: worst is file size, 2.0 × the floor";
        assert_eq!(first([Some(2.0), None]).as_deref(), Some(nearly));
        let one = "The generated traffic differs from the model in inter-connection time (3.4 × \
                   the floor)";
        assert_eq!(first([Some(1.0), Some(3.41)]).as_deref(), Some(one));
        let both = "The generated traffic differs from the model in inter-connection time (14 × \
                    the floor) and file size (2.1 ×)";
        assert_eq!(first([Some(2.1), Some(14.2)]).as_deref(), Some(both));
        let none = "How like the model the generated traffic is was not measured";
        assert_eq!(first([None, Some(f64::NAN)]).as_deref(), Some(none));
    }

    /// A story of figures with these floors and counts, all at their floors.
    fn with_floors(floors: &[(Trait, f64, u64)]) -> Story {
        let made = |&(name, floor, count): &(Trait, f64, u64)| Fidelity {
            name,
            distance: floor,
            floor,
            count,
            ..fidelity(name, Some(1.0))
        };
        Story { fidelity: floors.iter().map(made).collect(), ..story([None, None]) }
    }

    fn likeness(story: &Story) -> String {
        written(story).split(". Through").next().expect("a sentence").to_owned()
    }

    #[test]
    fn laws_with_a_wide_floor_are_not_judged() {
        use Trait::{DestinationRank, FileSize, InterConnection, SourceRank};
        let mut few =
            with_floors(&[(FileSize, 0.36, 5), (DestinationRank, 0.03, 5), (SourceRank, 0.0, 5)]);
        few.fidelity[2].ratio = Some(0.0);
        few.intervals = vec![Interval { flows_generated: 5, ..Interval::default() }];
        assert_eq!(
            likeness(&few),
            "Too few connections (5) were made to tell how like the model the generated traffic is: \
             there are 5 files for file size"
        );
        // A difference of more than two floors is one, however few show it.
        few.fidelity[0] = Fidelity { ratio: Some(2.5), ..few.fidelity[0].clone() };
        assert!(likeness(&few).starts_with("The generated traffic differs from the model in file"));
        let some = with_floors(&[
            (FileSize, 0.01, 7_000),
            (InterConnection, 0.2, 17),
            (SourceRank, 0.18, 90),
            (DestinationRank, 0.2, 1),
        ]);
        assert_eq!(
            likeness(&some),
            "The generated traffic is as like the model as a second sample of it would be: worst is \
             source popularity, 1.0 × the floor; 17 gaps for inter-connection time and 1 session \
             for destination popularity are too few to judge"
        );
    }

    #[test]
    fn low_coverage_and_deviating_session_counts_are_reported() {
        let mut story = story([Some(1.0), None]);
        let of = |flows_entered, bytes_entered, bytes_performed| Coverage {
            flows_total: 3_011,
            flows_entered,
            bytes_total: 1_000_000,
            bytes_entered,
            bytes_performed,
            ..Coverage::default()
        };
        story.coverage = of(5, 400, None);
        let little = "file size, 1.0 × the floor; the model itself rests on only 5 flows, and covers \
                      0.04 % of the input's bytes";
        assert!(likeness(&story).ends_with(little), "{}", likeness(&story));
        story.coverage = of(500, 400, Some(490_000));
        let half = "the floor; the model covers 49 % of the input's bytes";
        assert!(likeness(&story).ends_with(half), "{}", likeness(&story));
        for enough in [of(500, 400, Some(500_000)), of(44, 900_000, None), Coverage::default()] {
            story.coverage = enough;
            assert!(likeness(&story).ends_with("1.0 × the floor"), "{}", likeness(&story));
        }
        story.sessions_off = Some(0.25);
        assert!(likeness(&story).ends_with("1.0 × the floor"), "{}", likeness(&story));
        story.sessions_off = Some(0.64);
        let off = "floor; active sessions, for which no floor is known, are 64 % off";
        assert!(likeness(&story).ends_with(off), "{}", likeness(&story));
    }

    #[test]
    fn an_interrupted_run_is_stated_first() {
        let mut story = story([Some(1.0), None]);
        story.header.interrupted = true;
        story.header.duration_s = 23.4;
        assert!(written(&story).starts_with(
            "Interrupted after 23.4 s; until then the generated traffic is as like the model"
        ));
        story.fidelity.clear();
        assert!(written(&story).starts_with("Interrupted after 23.4 s; until then how like the"));
    }

    #[test]
    fn delay_with_and_without_the_wire() {
        let second = |story: &Story| written(story).split("Through ").nth(1).map(str::to_owned);
        let mut story = story([Some(1.0), None]);
        story.wire_delay_ns = None;
        assert_eq!(
            second(&story).as_deref(),
            Some(
                "linux, half of the packets took at most 14.8 µs (p99 41 µs; the meter's own share \
                 is in it, the bare wire was not measured); 0 of 1,204,112 were lost."
            )
        );
        story.wire_delay_ns = story.delay_ns;
        let unknown = "(p99 41 µs; the bare wire was no faster, 14.8 µs, so what the device adds is not known);";
        assert!(
            second(&story).is_some_and(|written| written.contains(unknown)),
            "{}",
            written(&story)
        );
        story.delay_ns = None;
        assert!(second(&story).is_some_and(|s| s.starts_with("linux, delay was not measured; 0")));
        story.header.dut = "wire".into();
        story.delay_ns = story.wire_delay_ns;
        assert!(
            written(&story).contains("Over the bare wire, half of the packets took at most 14.8")
        );
    }

    #[test]
    fn the_fate_of_packets_is_stated() {
        let mut story = story([Some(1.0), None]);
        let fate = |story: &Story| written(story).rsplit("; ").next().map(str::to_owned);
        story.packets.lost = 37;
        assert_eq!(fate(&story).as_deref(), Some("37 of 1,204,112 were lost (0.0031 %)."));
        story.packets.lost = 1;
        story.packets.reordered = 12;
        story.packets.duplicated = 2;
        story.packets.corrupted = 3;
        story.packets.meter_lost = 9;
        assert_eq!(
            fate(&story).as_deref(),
            Some(
                "1 of 1,204,112 was lost (0.000083 %), 12 out of order, 2 duplicated, 3 corrupted, \
                 but the meter itself missed 9."
            )
        );
        story.packets = PacketCounts::default();
        assert_eq!(fate(&story).as_deref(), Some("no packet was seen to enter it."));
    }

    #[test]
    fn an_empty_story_still_has_two_sentences() {
        assert_eq!(
            written(&Story::default()),
            "How like the model the generated traffic is was not measured. Through the device, \
             delay was not measured; no packet was seen to enter it."
        );
    }
}
