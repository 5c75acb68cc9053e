//! docs/rfc1812.md: every clause of sections 3 to 5 has its row, and every test it names exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The clauses of RFC 1812 in sections 3 to 5 that require something.
const CLAUSES: [&str; 83] = [
    "3.2", "3.3.1", "3.3.2", "3.3.3", "3.3.4", "3.3.5", "3.3.6", "4.2.1", "4.2.2.1", "4.2.2.2",
    "4.2.2.3", "4.2.2.4", "4.2.2.5", "4.2.2.6", "4.2.2.7", "4.2.2.8", "4.2.2.9", "4.2.2.10",
    "4.2.2.11", "4.2.3.1", "4.2.3.2", "4.2.3.3", "4.2.3.4", "4.3.2.1", "4.3.2.2", "4.3.2.3",
    "4.3.2.4", "4.3.2.5", "4.3.2.6", "4.3.2.7", "4.3.2.8", "4.3.3.1", "4.3.3.2", "4.3.3.3",
    "4.3.3.4", "4.3.3.5", "4.3.3.6", "4.3.3.7", "4.3.3.8", "4.3.3.9", "4.3.3.10", "4.4", "5.1",
    "5.2.1.1", "5.2.1.2", "5.2.1.3", "5.2.2", "5.2.3", "5.2.4.1", "5.2.4.2", "5.2.4.3", "5.2.4.4",
    "5.2.4.5", "5.2.5", "5.2.6", "5.2.7.1", "5.2.7.2", "5.2.7.3", "5.2.8", "5.3.1", "5.3.2",
    "5.3.3", "5.3.4", "5.3.6", "5.3.7", "5.3.8", "5.3.9", "5.3.10", "5.3.11", "5.3.13.1",
    "5.3.13.2", "5.3.13.3", "5.3.13.4", "5.3.13.5", "5.3.13.6", "5.3.5.1", "5.3.5.2", "5.3.5.3",
    "5.3.5.4", "5.3.12.1", "5.3.12.2", "5.3.12.3", "5.3.12.4",
];
const STATES: [&str; 4] = ["kept", "pipeline", "not", "elsewhere"];

/// The rows of all tables: five cells each.
fn rows(document: &str) -> Vec<[&str; 5]> {
    let is_row = |line: &&str| {
        line.starts_with("| ") && !line.starts_with("| clause ") && !line.starts_with("|--")
    };
    let cells = |line| -> [&str; 5] {
        let line: &str = line;
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        cells.try_into().unwrap_or_else(|_| panic!("five cells make a row, not this: {line}"))
    };
    document.lines().filter(is_row).map(cells).collect()
}

/// What is wrong with one row. `text_of` reads a file below `crates/`.
fn complaints(row: [&str; 5], text_of: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let [clause, requirement, level, state, held_by] = row;
    let mut found = Vec::new();
    let mut complain = |what: &str| found.push(format!("{clause} ({requirement}): {what}"));
    if !["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY"].contains(&level) {
        complain("its level is none of RFC 2119's");
    }
    if !STATES.contains(&state) {
        complain("its state is none of the four");
    }
    if held_by.len() < 3 {
        complain("it says neither who holds it nor why it is not held");
    }
    let (mut file, mut tests) = (None, 0);
    for word in held_by.split('`').skip(1).step_by(2) {
        if word.ends_with(".rs") {
            file = text_of(word);
            match &file {
                Some(text) if held_by.contains("in whole") => {
                    tests += usize::from(text.contains("#[test]"));
                }
                Some(_) => {}
                None => complain(&format!("{word} is not there")),
            }
        } else if let Some(text) = file.as_ref().filter(|_| is_test_name(word)) {
            let is_test = text
                .match_indices(&format!("fn {word}()"))
                .any(|(at, _)| text[..at].trim_end().ends_with("#[test]"));
            if is_test {
                tests += 1;
            } else {
                complain(&format!("{word} is no test"));
            }
        }
    }
    if state == "kept" && tests == 0 {
        complain("no test keeps it");
    }
    found
}

/// A test's name is several words; what is named besides is a type, a field or a path.
fn is_test_name(word: &str) -> bool {
    word.matches('_').count() >= 2 && word.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}

#[test]
fn the_clauses_name_the_tests_that_keep_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = fs::read_to_string(crates.join("../docs/rfc1812.md")).expect("the document");
    let text_of = |path: &str| fs::read_to_string(crates.join(path)).ok();
    let rows = rows(&document);
    let found: Vec<String> = rows.iter().flat_map(|row| complaints(*row, &text_of)).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    let named: BTreeSet<&str> = rows.iter().map(|row| row[0]).collect();
    let missing: Vec<&&str> = CLAUSES.iter().filter(|clause| !named.contains(**clause)).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
    let mut count = BTreeMap::new();
    for row in &rows {
        *count.entry(row[3]).or_insert(0) += 1;
    }
    println!("{} rows: {count:?}", rows.len());
}

#[test]
fn a_row_that_nothing_keeps_is_found() {
    let text_of = |path: &str| {
        (path == "a.rs").then(|| "#[test]\nfn it_is_so() {}\nfn no_test_here() {}".to_owned())
    };
    let count = |row| complaints(row, &text_of).len();
    assert_eq!(count(["5.1", "x", "MUST", "kept", "`a.rs` `it_is_so`"]), 0);
    assert_eq!(count(["5.1", "x", "MUST", "kept", "`a.rs` in whole"]), 0);
    assert_eq!(count(["5.1", "x", "MUST", "kept", "`a.rs` `no_test_here`"]), 2);
    assert_eq!(count(["5.1", "x", "MUST", "kept", "`a.rs` `it_is_gone`"]), 2);
    assert_eq!(count(["5.1", "x", "MUST", "kept", "`b.rs`"]), 2);
    assert_eq!(count(["5.1", "x", "MUST", "pipeline", "the order of `Some::call`"]), 0);
    assert_eq!(count(["5.1", "x", "MUST", "pending", "soon"]), 1);
    assert_eq!(count(["5.1", "x", "SHALL", "not", "no link has it"]), 1);
    assert_eq!(count(["5.1", "x", "MUST", "not", ""]), 1);
}
