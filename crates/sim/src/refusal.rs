//! Why a scenario cannot be set up: each reason in one line that names the place.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

/// The most names to list where none resembles the given one.
const LISTED_MAX: usize = 12;

/// Why there is no network for a scenario.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// A version that this program does not support.
    #[error("version {0} is unknown; this program reads version 1")]
    Version(u32),
    /// Two things of one name.
    #[error("the name `{0}` is given twice")]
    Twice(String),
    /// `place` names something that is not there.
    #[error("{place}: `{name}` is unknown{hint}")]
    Unknown {
        /// What kind of thing names it, and which.
        place: String,
        /// The name.
        name: String,
        /// What to write in its place ([`hint`]).
        hint: String,
    },
    /// A value out of its range, or two that contradict each other.
    #[error("{place}: {what}")]
    Value {
        /// What kind of thing has it, and which.
        place: String,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// No links lead from one group to the other.
    #[error("no links lead from `{from}` to `{to}`")]
    NoPath {
        /// The sender's group.
        from: String,
        /// The receiver's group.
        to: String,
    },
}

impl Refusal {
    /// A value at `place` is wrong.
    pub(crate) fn value(place: impl Into<String>, what: impl Into<String>) -> Refusal {
        Refusal::Value { place: place.into(), what: what.into() }
    }

    /// The router of this name cannot be what it is to be.
    pub fn router(name: &str, what: String) -> Refusal {
        Refusal::value(format!("router `{name}`"), what)
    }

    /// `name`, given at `place`, is none of `known`.
    pub(crate) fn unknown<'a>(
        place: impl Into<String>,
        name: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Refusal {
        Refusal::Unknown { place: place.into(), name: name.into(), hint: hint(name, known) }
    }
}

/// What to write in place of `name`, which is none of `known`, as the end of a sentence: the name that
/// was probably meant; if none resembles it, all known names, up to a dozen; nothing if there are none.
pub fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    if let Some(meant) = meant(name, &known) {
        return format!("; did you mean `{meant}`?");
    }
    let mut listed: Vec<String> =
        known.iter().take(LISTED_MAX).map(|known| format!("`{known}`")).collect();
    if known.len() > LISTED_MAX {
        listed.push(format!("{} more", known.len() - LISTED_MAX));
    }
    match listed.is_empty() {
        true => String::new(),
        false => format!("; there are {}", listed.join(", ")),
    }
}

/// The shortest name of which `name` is the beginning, or else the nearest one, if half of its letters
/// may stay where they are. A name that is farther away was not meant.
fn meant<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let whole = known.iter().filter(|known| name.len() > 1 && known.starts_with(name));
    let length = |word: &str| word.chars().count();
    let near = known.iter().map(|known| (distance(name, known), *known));
    let near = near.filter(|(edits, known)| 2 * edits <= length(name).max(length(known)));
    let whole = whole.min_by_key(|known| known.len()).copied();
    whole.or_else(|| near.min_by_key(|(edits, _)| *edits).map(|(_, known)| known))
}

/// Edits that turn one word into the other: letters put in, left out, changed, or two neighbours
/// exchanged (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let [a, b]: [Vec<char>; 2] = [a, b].map(|word| word.chars().collect());
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1; b.len() + 1];
        for j in 0..b.len() {
            let change = above[j] + usize::from(a[i] != b[j]);
            row[j + 1] = change.min(row[j] + 1).min(above[j + 1] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        before = core::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_nearest_name_is_suggested() {
        let known = ["tail_drop", "red", "blue"];
        let refusal = Refusal::unknown("link `a`", "rde", known.into_iter());
        assert_eq!(refusal.to_string(), "link `a`: `rde` is unknown; did you mean `red`?");
        let none = Refusal::unknown("link `a`", "rde", core::iter::empty());
        assert_eq!(none.to_string(), "link `a`: `rde` is unknown");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!((distance("snik", "sink"), distance("", "abc")), (1, 3));
    }

    #[test]
    fn distant_names_are_not_suggested() {
        let known = || ["discipline", "buffer_packets", "tcp"].into_iter();
        assert_eq!(hint("disc", known()), "; did you mean `discipline`?");
        assert_eq!(hint("xyz", known()), "; there are `discipline`, `buffer_packets`, `tcp`");
        let many: Vec<String> = (0..14).map(|number| format!("host{number}")).collect();
        let message = hint("elsewhere", many.iter().map(String::as_str));
        assert!(message.ends_with("`host11`, 2 more"), "{message}");
    }
}
