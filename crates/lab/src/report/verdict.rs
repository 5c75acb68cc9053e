//! The verdict: two sentences that a person could repeat.
//!
//! The first says how like the model the generated traffic is, by the worst ratio of a distance to
//! its sampling floor: up to 1.5 it is as like the model as a second sample of it would be, up to 2
//! nearly so, beyond it differs, and the sentence names where. The second says what the device did:
//! by how much its median delay exceeds that of the bare wire, and what became of the packets.

use super::format::{self, count, percent, time_ns, times};
use super::story::{Fidelity, PacketCounts, Percentiles, Story, Trait};

/// Up to this many floors, measured traffic is as like the model as a second sample.
pub const ALIKE_MAX: f64 = 1.5;

/// Up to this many floors, it is nearly so; beyond, it differs.
pub const NEARLY_MAX: f64 = 2.0;

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
pub struct Verdict {
    /// How like the model the traffic is; then what the device did.
    pub sentences: [Vec<Span>; 2],
    /// Which of them is being composed.
    at: usize,
}

impl Verdict {
    /// The verdict of a run.
    pub fn of(story: &Story) -> Verdict {
        let mut verdict = Verdict::default();
        verdict.likeness(story);
        verdict.at = 1;
        verdict.device(story);
        verdict
    }

    /// The sentences as plain text, for a terminal.
    pub fn plain(&self) -> String {
        let words = |spans: &Vec<Span>| spans.iter().map(|s| s.text.as_str()).collect::<String>();
        self.sentences.each_ref().map(words).join(" ").replace('\u{a0}', " ")
    }

    fn say(&mut self, text: &str) {
        self.sentences[self.at].push(Span { text: text.to_owned(), strong: false });
    }

    fn stress(&mut self, text: &str) {
        self.sentences[self.at].push(Span { text: text.to_owned(), strong: true });
    }

    fn likeness(&mut self, story: &Story) {
        if story.header.interrupted {
            let after = format::significant(story.header.duration_s, 3);
            self.stress(&format!("Interrupted after {after}\u{a0}s"));
            self.say("; until then ");
        }
        let the = if story.header.interrupted { "the" } else { "The" };
        let Some((worst, ratio)) = worst(&story.fidelity) else {
            let how = if story.header.interrupted { "how" } else { "How" };
            self.say(&format!("{how} like the model the generated traffic is was "));
            self.stress(format::NOT_MEASURED);
            return self.say(".");
        };
        self.say(&format!("{the} generated traffic "));
        if ratio <= NEARLY_MAX {
            let nearly = if ratio <= ALIKE_MAX { "" } else { "nearly " };
            self.say(&format!("is {nearly}as like the model as "));
            self.stress("a second sample of it");
            self.say(&format!(" would be: worst is {}, ", name(worst.name)));
            self.stress(&format!("{}\u{a0}×", times(ratio)));
            return self.say(" the floor.");
        }
        self.stress("differs from the model");
        self.say(" in ");
        let mut apart: Vec<(&Fidelity, f64)> =
            ratios(&story.fidelity).filter(|(_, ratio)| *ratio > NEARLY_MAX).collect();
        apart.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (i, (fidelity, ratio)) in apart.iter().enumerate() {
            let joint = match (i, apart.len() - i) {
                (0, _) => "",
                (_, 1) => " and ",
                _ => ", ",
            };
            let floor = if i == 0 { " the floor" } else { "" };
            self.say(&format!("{joint}{} (", name(fidelity.name)));
            self.stress(&format!("{}\u{a0}×", times(*ratio)));
            self.say(&format!("{floor})"));
        }
        self.say(".");
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
        let added = delay.p50 - wire.p50;
        self.say("half of the packets took ");
        if added > 0.0 {
            self.stress(&time_ns(added));
            self.say(" more than over the bare wire");
        } else {
            self.stress("no longer");
            self.say(" than over the bare wire");
        }
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

fn ratios(fidelity: &[Fidelity]) -> impl Iterator<Item = (&Fidelity, f64)> {
    fidelity.iter().filter_map(|f| f.ratio.filter(|r| r.is_finite()).map(|r| (f, r)))
}

fn finite(delay: Option<Percentiles>) -> Option<Percentiles> {
    delay.filter(|d| d.p50.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::story::Header;

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

    fn said(story: &Story) -> String {
        Verdict::of(story).plain()
    }

    #[test]
    fn a_good_run() {
        assert_eq!(
            said(&story([Some(0.9), Some(1.3)])),
            "The generated traffic is as like the model as a second sample of it would be: worst \
             is inter-connection time, 1.3 × the floor. Through linux, half of the packets took \
             9.8 µs more than over the bare wire (p99 41 µs against 6.2 µs); 0 of 1,204,112 were \
             lost."
        );
    }

    #[test]
    fn the_three_degrees_of_likeness() {
        let first = |ratios| said(&story(ratios)).split(". Through").next().map(str::to_owned);
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

    #[test]
    fn an_interrupted_run_says_so_first() {
        let mut story = story([Some(1.0), None]);
        story.header.interrupted = true;
        story.header.duration_s = 23.4;
        assert!(said(&story).starts_with(
            "Interrupted after 23.4 s; until then the generated traffic is as like the model"
        ));
        story.fidelity.clear();
        assert!(said(&story).starts_with("Interrupted after 23.4 s; until then how like the"));
    }

    #[test]
    fn delay_with_and_without_the_wire() {
        let second = |story: &Story| said(story).split("Through ").nth(1).map(str::to_owned);
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
        assert!(second(&story).is_some_and(|s| s.contains("took no longer than over the bare")));
        story.delay_ns = None;
        assert!(second(&story).is_some_and(|s| s.starts_with("linux, delay was not measured; 0")));
        story.header.dut = "wire".into();
        story.delay_ns = story.wire_delay_ns;
        assert!(said(&story).contains("Over the bare wire, half of the packets took at most 14.8"));
    }

    #[test]
    fn what_became_of_the_packets() {
        let mut story = story([Some(1.0), None]);
        let fate = |story: &Story| said(story).rsplit("; ").next().map(str::to_owned);
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
            said(&Story::default()),
            "How like the model the generated traffic is was not measured. Through the device, \
             delay was not measured; no packet was seen to enter it."
        );
    }
}
