//! The documents: short enough to be read, with every room on the map and every decision in its index.

use std::fs;

use super::{Source, hold, root, sources};

/// The longest that a document may be, in lines.
const LINES_MOST: [(&str, usize); 3] =
    [("README.md", 150), ("ARCHITECTURE.md", 250), ("docs/tutorial.md", 150)];
const INDEX: &str = "docs/decisions/README.md";

/// Documents that are longer than they may be, or not there.
fn too_long(documents: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, most) in LINES_MOST {
        let Some(document) = documents.iter().find(|document| document.path == path) else {
            complaints.push(format!("{path}: not there"));
            continue;
        };
        let lines = document.text.lines().count();
        if lines > most {
            complaints
                .push(format!("{path}: {lines} lines, {most} at the most; move details away"));
        }
    }
    complaints
}

/// Folders directly below a crate's sources that the map does not name.
fn off_the_map(sources: &[Source], map: &str) -> Vec<String> {
    let folder = |path: &str| {
        let (name, below) = path.strip_prefix("crates/")?.split_once("/src/")?;
        let (folder, _) = below.split_once('/')?;
        Some((name.to_owned(), folder.to_owned()))
    };
    let mut folders: Vec<_> = sources.iter().filter_map(|source| folder(&source.path)).collect();
    folders.dedup();
    let named = |folder: &str| map.contains(&format!("`{folder}`"));
    let missing = folders.iter().filter(|(_, folder)| !named(folder));
    missing
        .map(|(name, folder)| format!("crates/{name}/src/{folder}: not in ARCHITECTURE.md"))
        .collect()
}

/// Decisions that the index does not link, and links that lead nowhere.
fn unlisted(documents: &[Source], index: &str) -> Vec<String> {
    let names = documents.iter().filter_map(|document| {
        document.path.strip_prefix("docs/decisions/").filter(|name| *name != "README.md")
    });
    let names: Vec<&str> = names.collect();
    let linked: Vec<&str> = index
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(to, _)| to)
        .collect();
    let lost = names.iter().filter(|name| !linked.contains(name));
    let dead = linked.iter().filter(|to| !names.contains(to));
    let lost = lost.map(|name| format!("docs/decisions/{name}: not in the index"));
    lost.chain(dead.map(|to| format!("{INDEX}: {to} is not there"))).collect()
}

#[test]
fn first_documents_are_short() {
    hold(too_long(&sources(&[".md"])));
}

#[test]
fn every_folder_of_sources_is_on_the_map() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    hold(off_the_map(&sources(&[".rs"]), &map));
}

#[test]
fn every_decision_is_in_the_index() {
    let index = fs::read_to_string(root().join(INDEX)).expect("the index");
    let documents = sources(&[".md"]);
    assert!(documents.iter().filter(|d| d.path.starts_with("docs/decisions/0")).count() > 50);
    hold(unlisted(&documents, &index));
}

#[test]
fn complains_of_documents() {
    let one = |path: &str, lines: usize| Source { path: path.to_owned(), text: "\n".repeat(lines) };
    let three = |first| {
        [one("README.md", first), one("ARCHITECTURE.md", 250), one("docs/tutorial.md", 150)]
    };
    assert!(too_long(&three(150)).is_empty());
    assert_eq!(too_long(&three(151)).len(), 1);
    assert_eq!(too_long(&three(150)[..2]).len(), 1);
    let folder = [one("crates/wire/src/a/b.rs", 1), one("crates/wire/src/c.rs", 1)];
    assert_eq!(off_the_map(&folder, "`b` `c`").len(), 1);
    assert!(off_the_map(&folder, "`a`").is_empty());
    let decision = [one("docs/decisions/0001-a.md", 1), one(INDEX, 1)];
    assert!(unlisted(&decision, "[1](0001-a.md)").is_empty());
    assert_eq!(unlisted(&decision, "[2](0002-b.md)").len(), 2);
}
