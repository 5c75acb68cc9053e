//! The specification: each promise marked as held names an existing test.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Whether a line is a row of a table of promises: `| B3.1 | ...`.
fn is_row(line: &str) -> bool {
    let mut letters = line.strip_prefix("| ").unwrap_or_default().chars();
    letters.next().is_some_and(|letter| letter.is_ascii_uppercase())
        && letters.next().is_some_and(|digit| digit.is_ascii_digit())
}

/// A row of SPECIFICATION.md that is held names files that exist, and tests that are in them; no two
/// rows have one name. `text_of` reads a file of the repository.
fn promises(document: &str, text_of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut seen = BTreeSet::new();
    for line in document.lines().filter(|line| is_row(line)) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [row, _, _, held_by, state] = cells[..] else {
            complaints.push(format!("SPECIFICATION.md: five cells make a row, not this: {line}"));
            continue;
        };
        if !seen.insert(row) {
            complaints.push(format!("SPECIFICATION.md: {row} stands there twice"));
        }
        let quoted = || held_by.split('`').skip(1).step_by(2);
        if state == "held" && quoted().next().is_none() {
            complaints.push(format!("SPECIFICATION.md: {row} is held by nothing"));
        }
        let mut text = String::new();
        for word in quoted() {
            if let Some(path) = word.strip_suffix(".rs").map(|stem| format!("crates/{stem}.rs")) {
                text = text_of(&path).unwrap_or_default();
                if text.is_empty() {
                    complaints.push(format!("SPECIFICATION.md: {row} names {path}, not there"));
                }
            } else if !text.is_empty() && !text.contains(&format!("fn {word}(")) {
                complaints.push(format!("SPECIFICATION.md: {row} names {word}, which is no test"));
            }
        }
    }
    complaints
}

#[test]
fn promises_name_the_tests_that_hold_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let document = read("SPECIFICATION.md").expect("the document");
    assert!(document.lines().filter(|line| is_row(line)).count() > 100);
    let complaints = promises(&document, read);
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn a_promise_that_nothing_holds_is_found() {
    let read = |path: &str| (path == "crates/a.rs").then(|| "fn holds() {}\n".to_owned());
    let complaints = |rows: &str| promises(rows, read).len();
    assert_eq!(complaints("| A1 | x | y | `a.rs` `holds` | held |\n"), 0);
    assert_eq!(complaints("| A1 | x | y | `a.rs` `gone` | held |\n"), 1);
    assert_eq!(complaints("| A1 | x | y | `b.rs` | held |\n"), 1);
    assert_eq!(complaints("| A1 | x | y | – | held |\n"), 1);
    assert_eq!(complaints("| A1 | x | y | – | pending |\n| A1 | x | y | – | pending |\n"), 1);
}
