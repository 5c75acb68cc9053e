//! The copy against the original: the first sentence of the page, and the table behind it.

use nilometer_likeness::{Likeness, Verdict as LawVerdict};

use super::format::{NOT_MEASURED, percent, significant};
use super::story::Story;
use super::tables::framed;
use super::verdict::Headline;

/// Laws that are named in the sentence at most.
const NAMED_MAX: usize = 5;
/// A share of the original's bytes that is played, below which the sentence says so.
const PLAYED_LOW: f64 = 0.95;

impl Headline {
    /// Whether the copy resembles the original, and in which laws it does not.
    pub(super) fn against_the_original(&mut self, story: &Story) {
        let of =
            |verdict: LawVerdict| story.likeness.iter().filter(move |law| law.verdict == verdict);
        let (differs, alike): (Vec<_>, Vec<_>) =
            (of(LawVerdict::Differs).collect(), of(LawVerdict::Alike).collect());
        let (reported, all) = (differs.len() + alike.len(), story.likeness.len());
        if reported == 0 {
            self.stress("Too little was seen");
            self.say(&format!(
                " to say how closely the copy resembles the original: none of {all} laws could be judged"
            ));
        } else if differs.is_empty() {
            self.say(
                "The copy resembles the original as closely as a second sample of it would, in ",
            );
            self.stress(&if reported == 1 {
                "the one law".into()
            } else {
                format!("all {reported} laws")
            });
            self.say(&format!(" that could be judged, of {all}"));
            let worst = alike.iter().filter_map(|law| Some((law, law.ratio?)));
            if let Some((law, ratio)) = worst.max_by(|one, other| one.1.total_cmp(&other.1)) {
                let ratio = significant(ratio, 2);
                self.say(&format!("; farthest is {}, at {ratio}\u{a0}× the floor", name(law)));
            }
        } else {
            self.say("The copy ");
            self.stress("differs from the original");
            self.say(&format!(" in {} of {reported} laws that could be judged: ", differs.len()));
            let named: Vec<String> = differs.iter().take(NAMED_MAX).map(|law| name(law)).collect();
            self.say(&named.join(", "));
            if differs.len() > NAMED_MAX {
                self.say(&format!(" and {} more", differs.len() - NAMED_MAX));
            }
        }
        if let Some(played) = story.played.filter(|played| *played < PLAYED_LOW) {
            self.say("; it has ");
            self.stress(&percent(played));
            self.say(" of the original’s TCP payload");
        }
        self.say(".");
    }
}

/// The first sentence alone, of a comparison that is no run.
pub fn sentence(likeness: &[Likeness]) -> String {
    let mut verdict = Headline::default();
    verdict.against_the_original(&Story { likeness: likeness.to_vec(), ..Story::default() });
    verdict.plain().trim_end().to_owned()
}

/// The name of a law in a sentence.
fn name(law: &Likeness) -> String {
    law.name.replace('_', " ")
}

/// Every law with its distance, its floor and its verdict; empty where no original was observed.
pub fn table(story: &Story) -> String {
    if story.likeness.is_empty() {
        return String::new();
    }
    let number =
        |value: Option<f64>| value.map_or(NOT_MEASURED.to_owned(), |value| significant(value, 2));
    let row = |law: &Likeness| {
        vec![
            name(law),
            word(law.verdict).to_owned(),
            format!("{} {}", number(law.distance), law.unit),
            number(law.floor),
            number(law.floor_p95),
            significant(law.cap, 2),
        ]
    };
    let rows: Vec<Vec<String>> = story.likeness.iter().map(row).collect();
    let head = ["", "verdict", "distance", "floor", "p95", "cap"];
    let judged = |at: usize, text: &str| {
        let class = match (at, text) {
            (0, "alike") => "good",
            (0, "differs") => "bad",
            _ => "",
        };
        format!("<td class=\"{class}\">{text}</td>")
    };
    framed("laws", "The copy against the original", &head, &rows, &judged)
}

/// What a verdict is called.
pub fn word(verdict: LawVerdict) -> &'static str {
    match verdict {
        LawVerdict::Alike => "alike",
        LawVerdict::Differs => "differs",
        LawVerdict::TooFew => "too few to judge",
        LawVerdict::NotPlayed => "not played",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(name: &str, verdict: LawVerdict) -> Likeness {
        Likeness {
            name: name.to_owned(),
            distance: Some(0.02),
            unit: "ks".to_owned(),
            floor: Some(0.016),
            floor_p5: Some(0.01),
            floor_p95: Some(0.03),
            ratio: Some(1.25),
            p: Some(0.3),
            cap: 0.1,
            samples_original: 100,
            samples_copy: 100,
            verdict,
        }
    }

    fn verdict_text(likeness: Vec<Likeness>, played: f64) -> String {
        let story = Story { likeness, played: Some(played), ..Story::default() };
        Headline::of(&story).plain().split(". Through").next().expect("a sentence").to_owned()
    }

    #[test]
    fn the_first_sentence_states_resemblance_difference_or_too_little_data() {
        let both = vec![law("size_asked", LawVerdict::Alike), law("gap", LawVerdict::TooFew)];
        assert_eq!(
            verdict_text(both, 0.99),
            "The copy resembles the original as closely as a second sample of it would, in the one law that \
             could be judged, of 2; farthest is size asked, at 1.2 × the floor"
        );
        let apart =
            vec![law("size_asked", LawVerdict::Alike), law("think_time", LawVerdict::Differs)];
        assert_eq!(
            verdict_text(apart, 0.5),
            "The copy differs from the original in 1 of 2 laws that could be judged: think time; it has 50 % of the \
             original’s TCP payload"
        );
        let little = verdict_text(vec![law("gap", LawVerdict::TooFew)], 1.0);
        assert!(little.starts_with("Too little was seen to say"), "{little}");
    }
}
