//! The house rules that a program can check, on the sources of the whole workspace.
//!
//! Every rule is a function from text to complaints, so that each can be shown to complain (at the
//! end of this file) before it is applied to the repository. A complaint names the file, the line
//! where there is one, and what to do.

mod circles;
mod documents;
mod doors;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

mod crate_sizes;
mod limits;
mod meanings;

/// No source file may be longer, tests included.
const LINES_CEILING: usize = 600;
/// A file longer than this is listed in `tests/sizes.txt`, and may not grow.
const LINES_COMFORTABLE: usize = 500;
/// Where `unsafe` may stand: the files that call the kernel, their tests, and a measured loop.
const UNSAFE_ROOMS: [&str; 18] = [
    "crates/linux/src/",
    "crates/lab/src/generate/",
    "crates/nilometer/tests/",
    "crates/nilometer/examples/",
    "crates/bench/examples/",
    "crates/sim/examples/wasm.rs",
    "crates/plugin/src/guest/",
    "crates/plugin/src/macros.rs",
    "crates/wire/src/prefetch.rs",
    "crates/router/src/classifier/gathered.rs",
    "crates/router/src/classifier/instructions.rs",
    "crates/router/src/classifier/kernel.rs",
    "crates/router/src/classifier/settled/kernel.rs",
    "crates/router/src/classifier/tuples/kernel.rs",
    "crates/router/src/ipv6_fib/kernel.rs",
    "crates/router/src/slots/kernel.rs",
    "crates/router/src/slots/lines/bursts.rs",
    "crates/router/src/tree_bitmap/search.rs",
];
/// The crates that touch the operating system; all others are pure.
const SHELL: [&str; 8] =
    ["linux", "files", "loader", "report", "routerd", "bench", "lab", "nilometer"];
/// How far above an `unsafe` its `SAFETY:` may begin.
const SAFETY_REACH_LINES: usize = 8;

/// A text file of the repository, its path relative to the root.
#[derive(Clone)]
struct Source {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Every file below the root whose name ends with one of `endings`, in the order of their paths.
fn sources(endings: &[&str]) -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let is_output = name == "target" || name.starts_with("nilometer-");
            if path.is_symlink() || name == ".git" || is_output {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let text = fs::read_to_string(&path).expect("a source is UTF-8 text");
                let path = path.strip_prefix(&root).expect("below the root").to_string_lossy();
                found.push(Source { path: path.into_owned(), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no {endings:?} below {}", root.display());
    found
}

fn hold(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The code of a line, without its comment and the contents of its strings.
fn code(line: &str) -> String {
    let mut kept = String::new();
    let mut in_string = false;
    let mut before = [' ', ' '];
    for letter in line.replace("'\"'", "' '").chars() {
        if letter == '"' && before[1] != '\\' {
            in_string = !in_string;
        } else if !in_string {
            kept.push(letter);
        }
        if kept.ends_with("//") {
            kept.truncate(kept.len() - 2);
            break;
        }
        // A backslash that is itself escaped does not escape what follows.
        before = [before[1], if before == ['\\', '\\'] { ' ' } else { letter }];
    }
    kept
}

/// The words of a name: `FlowRecord` and `flow_record` are both `flow`, `record`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().expect("never empty").extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn contains_word(line: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !part(line[..at].chars().next_back()) && !part(line[at + word.len()..].chars().next())
    })
}

/// The first line of every file says its purpose, and no two files have the same one.
fn purposes(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for Source { path, text } in sources {
        let Some(purpose) = text.strip_prefix("//! ").and_then(|rest| rest.lines().next()) else {
            complaints.push(format!("{path}: begin with `//! ` and the file's one purpose"));
            continue;
        };
        if let Some(other) = seen.insert(purpose.trim(), path) {
            complaints.push(format!("{path}: has the purpose of {other}; one of them is in doubt"));
        }
    }
    complaints
}

/// No file over the ceiling; those past the comfortable size are listed and may not grow.
fn sizes(sources: &[Source], listed: &BTreeMap<String, usize>) -> Vec<String> {
    let mut complaints = Vec::new();
    for Source { path, text } in sources {
        let lines = text.lines().count();
        let advice = match listed.get(path) {
            _ if lines > LINES_CEILING => format!("over {LINES_CEILING}; split it"),
            Some(limit) if lines > *limit => format!("grew from {limit}; split it"),
            Some(_) if lines <= LINES_COMFORTABLE => {
                "has shrunk; take it off the list with UPDATE=1".to_owned()
            }
            None if lines > LINES_COMFORTABLE => {
                format!("over {LINES_COMFORTABLE}; split it, or list it with UPDATE=1")
            }
            _ => continue,
        };
        complaints.push(format!("{path}: {lines} lines, {advice}"));
    }
    complaints
}

/// A pure crate is `no_std`, and speaks of `std` in its tests at most.
fn purity(sources: &[Source]) -> Vec<String> {
    const TESTS: &str = "#[cfg(test)]";
    let mut complaints = Vec::new();
    for Source { path, text } in sources {
        let lines: Vec<&str> = text.lines().collect();
        if path.ends_with("src/lib.rs") && !lines.contains(&"#![no_std]") {
            complaints.push(format!("{path}: a pure crate says #![no_std]"));
        }
        for (number, line) in lines.iter().enumerate() {
            let next = lines.get(number + 1).copied().unwrap_or("");
            if *line == TESTS && next.starts_with("mod ") && next.ends_with('{') {
                break; // the tests, last in every file
            }
            let line = code(line);
            let for_tests = number > 0 && lines[number - 1] == TESTS;
            let names_std = line.contains("extern crate std") || line.contains("std::");
            if names_std && !for_tests {
                complaints.push(format!("{path}:{}: std in a pure crate", number + 1));
            }
        }
    }
    complaints
}

/// `unsafe` stands in its rooms alone, and each says why it is sound.
fn unsafety(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for Source { path, text } in sources {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            if !contains_word(&code(line), "unsafe") {
                continue;
            }
            let above = &lines[number.saturating_sub(SAFETY_REACH_LINES)..=number];
            let at = number + 1;
            if !UNSAFE_ROOMS.iter().any(|room| path.starts_with(room)) {
                complaints.push(format!("{path}:{at}: unsafe outside {UNSAFE_ROOMS:?}"));
            } else if !above.iter().any(|l| l.contains("SAFETY:") || l.contains("# Safety")) {
                complaints.push(format!("{path}:{at}: unsafe without `// SAFETY:` above it"));
            }
        }
    }
    complaints
}

/// Nothing unfinished, and no path of one machine.
fn leftovers(sources: &[Source]) -> Vec<String> {
    // Written in two halves so that this file does not complain of itself.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
        concat!("dbg", "!"),
        concat!("todo", "!"),
        concat!("unimpl", "emented!"),
    ];
    let places =
        [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/t", "mp/"), concat!("/wo", "rk/")];
    let mut complaints = Vec::new();
    for Source { path, text } in sources {
        for (number, line) in text.lines().enumerate() {
            let word = words.iter().find(|word| contains_word(line, word));
            let place = places.iter().find(|place| line.contains(**place));
            if let Some(mark) = word.or(place) {
                complaints.push(format!("{path}:{}: `{mark}` stays out of the tree", number + 1));
            }
        }
    }
    complaints
}

/// Public names and file names say what a thing is, in the field's terms.
fn names(sources: &[Source]) -> Vec<String> {
    let empty = ["manager", "util", "utils", "helper", "helpers"];
    let vague = ["data", "info"];
    let is_bad = |name: &str| {
        vague.contains(&name.to_lowercase().as_str())
            || words(name).iter().any(|word| empty.contains(&word.as_str()))
    };
    let mut complaints = Vec::new();
    for Source { path, text } in sources {
        let stem = Path::new(path).file_stem().expect("a file name").to_string_lossy();
        if is_bad(&stem) {
            complaints.push(format!("{path}: name the file after what it is"));
        }
        for (number, line) in text.lines().enumerate() {
            let line = code(line);
            if let Some(name) = public_name(&line).filter(|name| is_bad(name)) {
                complaints.push(format!("{path}:{}: `{name}` says nothing", number + 1));
            }
        }
    }
    complaints
}

/// The name that a line declares to others, if it does.
fn public_name(line: &str) -> Option<&str> {
    const KINDS: [&str; 9] =
        ["fn", "struct", "enum", "trait", "mod", "const", "static", "type", "union"];
    let item = line.trim_start().strip_prefix("pub ")?;
    let mut rest = item.split_whitespace().skip_while(|word| *word == "unsafe");
    let kind = rest.next()?;
    let next = rest.next()?;
    let name = if kind == "const" && next == "fn" { rest.next()? } else { next };
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    KINDS.contains(&kind).then(|| &name[..end])
}

/// The rows of the table in `document` under `heading`: of each cell, the words in backquotes.
fn table_rows(document: &str, heading: &str) -> Vec<Vec<Vec<String>>> {
    let section = document.split(&format!("\n## {heading}\n")).nth(1).unwrap_or("");
    let section = section.split("\n## ").next().unwrap_or("");
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(quoted).collect())
        .collect()
}

/// A crate depends only on the crates that ARCHITECTURE.md lists for it, and those are upstream of
/// it.
fn edges(manifests: &[(String, String)], architecture: &str) -> Vec<String> {
    let mut allowed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut complaints = Vec::new();
    for row in table_rows(architecture, "Crates") {
        let name = row[0][0].clone();
        let uses: BTreeSet<String> = row.get(2).into_iter().flatten().cloned().collect();
        for downstream in uses.iter().filter(|used| !allowed.contains_key(*used)) {
            complaints.push(format!("ARCHITECTURE.md: {name} may not use {downstream} below it"));
        }
        allowed.insert(name, uses);
    }
    let explained: BTreeSet<String> = table_rows(architecture, "Dependencies")
        .into_iter()
        .flat_map(|row| row[0].clone())
        .collect();
    for (name, manifest) in manifests {
        let Some(allowed) = allowed.get(name) else {
            complaints.push(format!("crates/{name}: has no row under Crates in ARCHITECTURE.md"));
            continue;
        };
        for dependency in dependencies(manifest) {
            let heading = match dependency.strip_prefix("nilometer-") {
                Some(ours) if !allowed.contains(ours) => "Crates",
                None if !explained.contains(&dependency) => "Dependencies",
                _ => continue,
            };
            complaints.push(format!(
                "crates/{name} -> {dependency}: new; say why under {heading} in ARCHITECTURE.md"
            ));
        }
    }
    complaints
}

/// The names under every kind of dependency table of a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let manifest: toml::Table = manifest.parse().expect("a manifest is TOML");
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .into_iter()
        .filter_map(|kind| manifest.get(kind)?.as_table())
        .flat_map(|table| table.keys().cloned())
        .collect()
}

/// Every crate by its folder's name, with the text of its manifest.
fn manifests() -> Vec<(String, String)> {
    sources(&["Cargo.toml"])
        .into_iter()
        .filter_map(|Source { path, text }| {
            let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            Some((name.to_owned(), text))
        })
        .collect()
}

/// Whether a file is of a crate that touches the operating system.
fn is_shell(path: &str) -> bool {
    let name = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
    name.is_some_and(|name| SHELL.contains(&name))
}

/// The sources that end up in pure crates: their tests and benches may use what they like.
fn pure(sources: Vec<Source>) -> Vec<Source> {
    let is_pure = |path: &str| path.starts_with("crates/") && !is_shell(path);
    sources.into_iter().filter(|s| is_pure(&s.path) && s.path.contains("/src/")).collect()
}

#[test]
fn every_file_opens_with_its_own_purpose() {
    hold(purposes(&sources(&[".rs"])));
}

#[test]
fn files_stay_small() {
    let list = root().join("crates/nilometer/tests/sizes.txt");
    let sources = sources(&[".rs"]);
    if std::env::var_os("UPDATE").is_some() {
        let long = sources.iter().map(|s| (&s.path, s.text.lines().count()));
        let long = long.filter(|(_, lines)| *lines > LINES_COMFORTABLE);
        let text: String = long.map(|(path, lines)| format!("{lines} {path}\n")).collect();
        fs::write(&list, text).expect("the list can be written");
    }
    let listed = fs::read_to_string(&list).expect("crates/nilometer/tests/sizes.txt");
    let listed = listed.lines().map(|line| line.split_once(' ').expect("lines path"));
    let listed = listed.map(|(lines, path)| (path.to_owned(), lines.parse().expect("a count")));
    hold(sizes(&sources, &listed.collect()));
}

#[test]
fn pure_crates_are_no_std() {
    hold(purity(&pure(sources(&[".rs"]))));
}

#[test]
fn unsafe_code_stays_in_its_modules() {
    hold(unsafety(&sources(&[".rs"])));
}

#[test]
fn nothing_is_left_over() {
    hold(leftovers(&sources(&[".rs", ".md", ".toml", ".yml", ".sh", ".html"])));
    let ci = fs::read_to_string(root().join(".ci/run")).expect(".ci/run");
    hold(leftovers(&[Source { path: ".ci/run".to_owned(), text: ci }]));
}

#[test]
fn names_are_meaningful() {
    hold(names(&sources(&[".rs"])));
}

#[test]
fn crates_depend_as_documented() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the document");
    hold(edges(&manifests(), &architecture));
}

#[test]
fn every_crate_obeys_the_workspace_lints() {
    for (name, manifest) in manifests() {
        let manifest: toml::Table = manifest.parse().expect("a manifest is TOML");
        let obeys = manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
        assert_eq!(obeys, Some(true), "crates/{name}/Cargo.toml: [lints] workspace = true");
    }
}

/// Each rule on a text that breaks it.
mod complains {
    use super::*;

    fn one(path: &str, text: &str) -> [Source; 1] {
        [Source { path: path.to_owned(), text: text.to_owned() }]
    }

    #[test]
    fn it_complains_of_files_without_a_purpose_of_their_own() {
        assert_eq!(purposes(&one("a.rs", "use core::fmt;\n")).len(), 1);
        let [a] = one("a.rs", "//! Adds.\n");
        let [b] = one("b.rs", "//! Adds.\n");
        assert_eq!(purposes(&[a, b]).len(), 1);
    }

    #[test]
    fn it_complains_of_files_that_are_too_long() {
        let lines = |count: usize| one("a.rs", &"\n".repeat(count));
        let listed = |limit| BTreeMap::from([("a.rs".to_owned(), limit)]);
        assert_eq!(sizes(&lines(501), &BTreeMap::new()).len(), 1);
        assert_eq!(sizes(&lines(550), &listed(550)), Vec::<String>::new());
        assert_eq!(sizes(&lines(551), &listed(550)).len(), 1);
        assert_eq!(sizes(&lines(500), &listed(550)).len(), 1);
        assert_eq!(sizes(&lines(601), &listed(700)).len(), 1);
    }

    #[test]
    fn it_complains_of_impure_crates() {
        assert_eq!(purity(&one("crates/wire/src/lib.rs", "//! Wire.\n")).len(), 1);
        let text = "use std::time::Instant;\nextern crate std;\n";
        assert_eq!(purity(&one("crates/wire/src/a.rs", text)).len(), 2);
        let text = "#[cfg(test)]\nextern crate std;\n#[cfg(test)]\nmod tests {\n use std::fs;\n}\n";
        assert_eq!(purity(&one("crates/wire/src/a.rs", text)), Vec::<String>::new());
    }

    #[test]
    fn it_complains_of_unsafe_out_of_place_or_unexplained() {
        let text = "unsafe { f() }\n";
        assert_eq!(unsafety(&one("crates/wire/src/a.rs", text)).len(), 1);
        assert_eq!(unsafety(&one("crates/linux/src/a.rs", text)).len(), 1);
        let explained = format!("// SAFETY: f has no conditions.\n{text}");
        assert!(unsafety(&one("crates/linux/src/a.rs", &explained)).is_empty());
        assert!(unsafety(&one("a.rs", "let a = \"unsafe\"; // unsafe\n")).is_empty());
    }

    #[test]
    fn it_complains_of_leftovers() {
        let text = concat!("let a = dbg", "!(b);\n// TO", "DO: c\nlet p = \"/t", "mp/x\";\n");
        assert_eq!(leftovers(&one("a.rs", text)).len(), 3);
    }

    #[test]
    fn it_complains_of_meaningless_names() {
        let text =
            "pub struct QueueManager;\npub const fn helper() {}\npub mod info;\nfn util() {}\n";
        assert_eq!(names(&one("a.rs", text)).len(), 3);
        assert_eq!(names(&one("src/utils.rs", "")).len(), 1);
        assert!(names(&one("a.rs", "pub fn data_offset() {}\n")).is_empty());
    }

    #[test]
    fn it_complains_of_unlisted_edges_and_dependencies() {
        let architecture = "\n## Crates\n| `wire` | frames | – |\n| `flow` | records | `wire` |\n\
            \n## Dependencies\n| `libm` | x | y |\n";
        let manifest = |list: &str| vec![("flow".to_owned(), format!("[dependencies]\n{list}"))];
        let complaints = |list: &str| edges(&manifest(list), architecture).len();
        assert_eq!(complaints("nilometer-wire = \"1\"\nlibm = \"1\"\n"), 0);
        assert_eq!(complaints("nilometer-lab = \"1\"\n"), 1);
        assert_eq!(complaints("tokio = \"1\"\n"), 1);
        assert_eq!(complaints("[dev-dependencies]\nproptest = \"1\"\n"), 1);
        let upstream = "\n## Crates\n| `wire` | frames | `flow` |\n| `flow` | records | – |\n";
        assert_eq!(edges(&[], upstream).len(), 1);
    }
}
