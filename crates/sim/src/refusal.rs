//! Why a scenario cannot be set up: each reason in one line that names the place.

use alloc::string::String;
use core::fmt;

/// Why there is no network for a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// A version that this program does not know.
    Version(u32),
    /// Two things of one name.
    Twice(String),
    /// `place` names something that is not there.
    Unknown {
        /// What kind of thing names it, and which.
        place: String,
        /// The name.
        name: String,
        /// The nearest name that is there.
        nearest: Option<String>,
    },
    /// A value out of its range, or two that contradict each other.
    Value {
        /// What kind of thing has it, and which.
        place: String,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// No links lead from one group to the other.
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

    /// `name`, said at `place`, is none of `known`.
    pub(crate) fn unknown<'a>(
        place: impl Into<String>,
        name: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Refusal {
        let nearest = known.min_by_key(|known| distance(name, known)).map(Into::into);
        Refusal::Unknown { place: place.into(), name: name.into(), nearest }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Version(version) => {
                write!(f, "version {version} is unknown; this program reads version 1")
            }
            Refusal::Twice(name) => write!(f, "the name `{name}` is given twice"),
            Refusal::Unknown { place, name, nearest: None } => {
                write!(f, "{place}: `{name}` is unknown")
            }
            Refusal::Unknown { place, name, nearest: Some(nearest) } => {
                write!(f, "{place}: `{name}` is unknown; did you mean `{nearest}`?")
            }
            Refusal::Value { place, what } => write!(f, "{place}: {what}"),
            Refusal::NoPath { from, to } => write!(f, "no links lead from `{from}` to `{to}`"),
        }
    }
}

impl core::error::Error for Refusal {}

/// Levenshtein's distance: edits that turn one word into the other.
pub fn distance(a: &str, b: &str) -> usize {
    let b: alloc::vec::Vec<char> = b.chars().collect();
    let mut row: alloc::vec::Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
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
    }
}
