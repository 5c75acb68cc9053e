//! Doors: messages are printed by one, and files are created and removed by another.

use super::{Source, code, hold, is_shell, sources};

/// Words that may stand only at a door, and its files.
struct Door {
    words: &'static [&'static str],
    rooms: &'static [&'static str],
    advice: &'static str,
}

const MESSAGES: Door = Door {
    words: &["eprintln!(", "eprint!("],
    rooms: &["crates/files/src/terminal.rs", "crates/nilometer/src/cli/stdout.rs"],
    advice: "say it with say!, which shows control characters",
};

/// The kernel's files are not ours; sockets and locks have names and no content.
const FILES: Door = Door {
    words: &[
        "File::create",
        "File::options",
        "OpenOptions",
        "fs::write(",
        "fs::copy(",
        "fs::rename(",
        "create_dir",
        "remove_dir",
        "remove_file(",
    ],
    rooms: &[
        "crates/linux/src/",
        // The directories that it makes for files, and takes back.
        "crates/files/src/document/together.rs",
        // A log that is appended to, for as long as a router runs, and never replaced.
        "crates/routerd/src/control/messages.rs",
        "crates/routerd/src/control/lock.rs",
        "crates/routerd/src/control/socket.rs",
    ],
    advice: "files come about and go in document::draft and document::results",
};

const FIGURES: Door = Door {
    words: &["Svg::default("],
    rooms: &["crates/report/src/plot/", "crates/report/src/figure/mod.rs"],
    advice: "figures are drawn with report::plot",
};

const MAPPINGS: Door = Door {
    words: &["mmap(", "munmap("],
    rooms: &["crates/linux/src/mapping.rs"],
    advice: "memory is mapped by linux::mapping",
};

/// Whether a word is in a line, and not as the end of a longer name.
fn begins_a_name(line: &str, word: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(goes_on))
}

fn around(sources: &[Source], door: &Door) -> Vec<String> {
    let mut complaints = Vec::new();
    for Source { path, text } in sources {
        if door.rooms.iter().any(|room| path.starts_with(room)) || path.ends_with("/tests.rs") {
            continue;
        }
        // The tests, last in every file, make files as they like.
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            let line = code(line);
            if let Some(word) = door.words.iter().find(|word| begins_a_name(&line, word)) {
                complaints.push(format!("{path}:{}: `{word}`: {}", number + 1, door.advice));
            }
        }
    }
    complaints
}

/// Names that go to stdout as they are: `.display()` in a call of `print!` or `println!`.
fn raw_names(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for Source { path, text } in sources {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (at, _) in text.match_indices("print").filter(|(at, _)| !text[..*at].ends_with('e')) {
            let is_call = ["print!(", "println!("].iter().any(|word| text[at..].starts_with(word));
            let call = text[at..].split_once(";\n").map_or("", |(call, _)| call);
            if is_call && call.contains(".display()") {
                let number = text[..at].lines().count();
                complaints.push(format!("{path}:{number}: show names with terminal::shown"));
            }
        }
    }
    complaints
}

fn shell() -> Vec<Source> {
    let is_built = |path: &str| is_shell(path) && path.contains("/src/");
    sources(&[".rs"]).into_iter().filter(|source| is_built(&source.path)).collect()
}

/// Lines in which columns are aligned by hand.
fn aligned(sources: &[Source]) -> Vec<String> {
    let is_width = |line: &str, at: usize| {
        let name = line[..at].trim_end_matches(|c: char| c.is_alphanumeric() || "_.".contains(c));
        name.ends_with('{')
    };
    let mut complaints = Vec::new();
    for Source { path, text } in sources {
        if path.ends_with("cli/table.rs") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let sides = line.match_indices(":<").chain(line.match_indices(":>"));
            if sides.into_iter().any(|(at, _)| is_width(line, at)) {
                complaints.push(format!("{path}:{}: columns are made by cli::table", number + 1));
            }
        }
    }
    complaints
}

#[test]
fn columns_on_the_terminal_are_aligned_in_one_place() {
    let command_line = |source: &Source| source.path.starts_with("crates/nilometer/src/");
    hold(aligned(&shell().into_iter().filter(command_line).collect::<Vec<_>>()));
    let one = |text: &str| [Source { path: "a.rs".to_owned(), text: text.to_owned() }];
    assert_eq!(aligned(&one("format!(\"{:>8} {name:<3}\")\n")).len(), 1);
    assert!(aligned(&one("take::<4>(); let a:<B>::C;\n")).is_empty());
}

#[test]
fn messages_are_printed_in_one_place() {
    hold(around(&shell(), &MESSAGES));
}

#[test]
fn no_name_is_printed_raw() {
    hold(raw_names(&shell()));
}

#[test]
fn files_come_about_in_one_place() {
    hold(around(&shell(), &FILES));
}

#[test]
fn figures_and_mappings_are_made_in_one_place() {
    hold(around(&shell(), &FIGURES));
    hold(around(&shell(), &MAPPINGS));
    let text =
        "fn f() {\n    let mut svg = Svg::default();\n    let start = libc::mmap(null);\n}\n";
    let one = [Source { path: "crates/lab/src/a.rs".to_owned(), text: text.to_owned() }];
    assert_eq!([&FIGURES, &MAPPINGS].map(|door| around(&one, door).len()), [1, 1]);
}

#[test]
fn calls_outside_the_permitted_modules_are_found() {
    let text = "fn f() {\n    eprintln!(\"a\");\n    let _ = fs::write(a, b);\n}\n\n\
                #[cfg(test)]\nmod tests {\n    eprintln!(\"b\");\n}\n";
    let one = |path: &str| [Source { path: path.to_owned(), text: text.to_owned() }];
    assert_eq!(around(&one("crates/lab/src/a.rs"), &MESSAGES).len(), 1);
    assert_eq!(around(&one("crates/lab/src/a.rs"), &FILES).len(), 1);
    assert!(around(&one("crates/files/src/terminal.rs"), &MESSAGES).is_empty());
    assert!(begins_a_name("fs::File::create(path)", "File::create"));
    assert!(!begins_a_name("log.map(ResultFile::create)", "File::create"));
    let text =
        "    println!(\n        \"{}\",\n        path.display()\n    );\n    print!(\"a\");\n";
    let one = [Source { path: "crates/lab/src/a.rs".to_owned(), text: text.to_owned() }];
    assert_eq!(raw_names(&one).len(), 1);
}
