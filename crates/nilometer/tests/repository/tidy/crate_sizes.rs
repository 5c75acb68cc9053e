//! Shares: no crate has more than a fifth of the code.

use std::collections::BTreeMap;

use super::{Source, hold, sources};

/// Of a hundred lines of all crates, those that one may have.
const PERCENT_MOST: usize = 20;

/// Crates that have more than their share of all lines, tests included.
fn too_large(sources: &[Source]) -> Vec<String> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for Source { path, text } in sources {
        let name = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
        if let Some((name, _)) = name {
            *lines.entry(name).or_default() += text.lines().count();
        }
    }
    let all: usize = lines.values().sum();
    let large = lines.into_iter().filter(|(_, lines)| 100 * lines > PERCENT_MOST * all);
    large.map(|(name, lines)| format!("crates/{name}: {lines} of {all} lines; cut it")).collect()
}

#[test]
fn no_crate_has_more_than_a_fifth() {
    hold(too_large(&sources(&[".rs"])));
}

#[test]
fn a_crate_that_is_too_large_is_found() {
    let one = |path: &str, lines: usize| Source { path: path.to_owned(), text: "\n".repeat(lines) };
    let all: Vec<Source> = ["a", "b", "c", "d", "e"]
        .map(|name| one(&format!("crates/{name}/src/lib.rs"), 100))
        .into_iter()
        .collect();
    assert!(too_large(&all).is_empty());
    let tests = [one("crates/a/tests/a.rs", 10)];
    assert_eq!(too_large(&[all, tests.into()].concat()).len(), 1);
}
