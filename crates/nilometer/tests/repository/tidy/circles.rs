//! Circles: within a crate modules use each other in one direction, except a module and those below it.
//!
//! A module is a file. It uses another where it names its path (`crate::a::b`, `super::b`) outside of its tests.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, code, sources};

/// The path of a module within its crate; empty for the crate's root.
type Module = Vec<String>;
/// Which modules a module uses.
type Uses = BTreeMap<Module, BTreeSet<Module>>;

/// The crate and the module that a source file is, where it is of a library.
fn module(path: &str) -> Option<(String, Module)> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let mut parts: Module = file.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    match parts.last().map(String::as_str) {
        Some("main") => return None,
        Some("mod" | "lib") => _ = parts.pop(),
        _ => {}
    }
    Some((name.to_owned(), parts))
}

/// Every path in a text that begins with `crate`, `super` or `self`, in parts; those in braces one by one.
fn paths(text: &str) -> Vec<Module> {
    let untested = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let text: String = untested.lines().map(|line| code(line) + "\n").collect();
    let mut found = Vec::new();
    for word in ["crate", "super", "self"] {
        for (at, _) in text.match_indices(&format!("{word}::")) {
            let before = text[..at].chars().next_back();
            // In the middle of a path, or of a name.
            if before.is_some_and(|c| c == ':' || c == '_' || c.is_alphanumeric()) {
                continue;
            }
            expand(Vec::new(), &text[at..], &mut found);
        }
    }
    found
}

/// Adds the paths that a path stands for: itself, or one for each item in its braces.
fn expand(mut begun: Module, text: &str, found: &mut Vec<Module>) {
    let mut rest = text.trim_start();
    loop {
        let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
        if end > 0 {
            begun.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
        let Some(next) = rest.strip_prefix("::") else { return found.push(begun) };
        rest = next;
        if let Some(list) = rest.strip_prefix('{') {
            return members(list).for_each(|one| expand(begun.clone(), one, found));
        }
    }
}

/// The members of a list in braces whose first brace is open already.
fn members(list: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut begins, mut found) = (0, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(&list[begins..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[begins..at]);
                begins = at + 1;
            }
            _ => {}
        }
    }
    found.into_iter().filter(|one| !one.trim().is_empty())
}

/// The module that a path in another one leads to: the deepest that there is.
fn led_to(path: &[String], from: &[String], all: &BTreeSet<Module>) -> Module {
    let mut at = if path[0] == "crate" { Module::new() } else { from.to_vec() };
    for part in path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => _ = at.pop(),
            name => at.push(name.to_owned()),
        }
    }
    while !at.is_empty() && !all.contains(&at) {
        at.pop();
    }
    at
}

/// The modules that each module of a crate uses, except parents and children.
fn uses(sources: &[Source]) -> BTreeMap<String, Uses> {
    let mut all: BTreeMap<String, BTreeSet<Module>> = BTreeMap::new();
    for (name, module) in sources.iter().filter_map(|source| module(&source.path)) {
        all.entry(name).or_default().insert(module);
    }
    let mut made: BTreeMap<String, Uses> = BTreeMap::new();
    for Source { path, text } in sources {
        let Some((name, from)) = module(path) else { continue };
        let to = paths(text).into_iter().map(|path| led_to(&path, &from, &all[&name]));
        let to: BTreeSet<Module> =
            to.filter(|to| !from.starts_with(to) && !to.starts_with(&from)).collect();
        made.entry(name).or_default().insert(from, to);
    }
    made
}

/// The modules that can be reached from one.
fn reached(from: &Module, uses: &Uses) -> BTreeSet<Module> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        for to in uses.get(at).into_iter().flatten() {
            if seen.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    seen
}

/// Each use that is part of a circle, as `crate: from -> to`.
fn circles(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, uses) in uses(sources) {
        let reach: BTreeMap<&Module, _> =
            uses.keys().map(|from| (from, reached(from, &uses))).collect();
        for (from, to) in uses.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to))) {
            if reach.get(to).is_some_and(|reach| reach.contains(from)) {
                found.push(format!("{name}: {} -> {}", from.join("::"), to.join("::")));
            }
        }
    }
    found
}

#[test]
fn modules_have_no_cyclic_dependencies() {
    let found = circles(&sources(&[".rs"]));
    assert!(found.is_empty(), "modules use each other in a circle: {found:#?}");
}

#[test]
fn a_cycle_is_found_and_a_parent_is_none() {
    let one = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let root = || one("crates/a/src/lib.rs", "//! A.\npub mod b;\npub mod c;\n");
    let all = [
        root(),
        one("crates/a/src/b.rs", "use crate::{c::{self, D}, e};\n"),
        one("crates/a/src/c.rs", "use super::b::E;\n"),
        one("crates/a/src/e/mod.rs", "pub use self::f::G;\n"),
        one("crates/a/src/e/f.rs", "// crate::b\nuse super::H;\nuse super::super::c;\n"),
    ];
    assert_eq!(circles(&all), ["a: b -> c", "a: c -> b"]);
    let tests = "fn d() {}\n\n#[cfg(test)]\nmod tests {\n    use crate::b::E;\n}\n";
    let all =
        [root(), one("crates/a/src/b.rs", "use crate::c::D;\n"), one("crates/a/src/c.rs", tests)];
    assert_eq!(circles(&all), [""; 0]);
}
