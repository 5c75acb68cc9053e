//! The house rule that a file is read whole only within a limit.

use super::{Source, code, hold, sources};

/// Where files are read whole, within a limit: the system's files, and documents.
const READING_ROOMS: [&str; 2] =
    ["crates/linux/src/system_file.rs", "crates/files/src/document/bounded.rs"];

/// Files are read whole in two places, which hold them to a limit; elsewhere in pieces, or with `take`.
fn endless(sources: &[Source]) -> Vec<String> {
    const WHOLE: [&str; 4] =
        ["fs::read(", "read_to_string(", "read_to_end(", "serde_json::from_reader("];
    let mut complaints = Vec::new();
    for Source { path, text } in
        sources.iter().filter(|s| !READING_ROOMS.contains(&s.path.as_str()))
    {
        // Tests have a file of their own, or come last in one.
        if path.ends_with("/tests.rs") {
            continue;
        }
        let untested = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines: Vec<String> = untested.lines().map(code).collect();
        for (number, line) in lines.iter().enumerate() {
            let above = &lines[number.saturating_sub(1)..=number];
            let is_bounded = above.iter().any(|line| line.contains(".take("));
            let found = WHOLE.iter().find(|call| line.contains(**call));
            if let Some(call) = found.filter(|_| !is_bounded) {
                let at = number + 1;
                complaints.push(format!("{path}:{at}: {call}) without a limit; {READING_ROOMS:?}"));
            }
        }
    }
    complaints
}

#[test]
fn reads_of_files_are_limited() {
    let sources = sources(&[".rs"]);
    for room in READING_ROOMS {
        assert!(sources.iter().any(|source| source.path == room), "{room} is gone");
    }
    let is_built = |path: &str| path.starts_with("crates/") && path.contains("/src/");
    hold(endless(&sources.into_iter().filter(|s| is_built(&s.path)).collect::<Vec<_>>()));
}

#[test]
fn it_complains_of_files_that_are_read_without_a_limit() {
    let text = "let a = fs::read(path)?;\nlet b = std::fs::read_to_string(p)?;\n\
        file\n    .read_to_end(&mut c)?;\nserde_json::from_reader(d)?;\n";
    assert_eq!(endless(&one("crates/lab/src/a.rs", text)).len(), 4);
    assert_eq!(endless(&one(READING_ROOMS[0], text)), Vec::<String>::new());
    let bounded = "file.take(8)\n    .read_to_end(&mut c)?;\nlet d = b\"fs::read(\";\n";
    assert_eq!(endless(&one("crates/lab/src/a.rs", bounded)), Vec::<String>::new());
    let tests = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fs::read(path);\n}\n";
    assert_eq!(endless(&one("crates/lab/src/a.rs", tests)), Vec::<String>::new());
}

fn one(path: &str, text: &str) -> [Source; 1] {
    [Source { path: path.to_owned(), text: text.to_owned() }]
}
