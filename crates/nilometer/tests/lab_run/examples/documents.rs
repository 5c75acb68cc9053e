//! Every command line of the README and of the tutorial, run as a reader types it.
//!
//! A document's `sh` blocks are one script, run by a shell in a folder that has `examples/` and the files
//! which the document calls the reader's own. Lines that no test can run are listed with the reason; runs
//! of a minute are shortened.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::CommandFactory;
use nilometer::cli::Cli;

use super::example;
use crate::common::{BINARY, Room, privileged, text};

const README: &str = "README.md";
const TUTORIAL: &str = "docs/tutorial.md";
/// Its commands are of networks, weeks and interfaces that a test has not; they are parsed.
const GUIDE: &str = "docs/guide.md";
/// How a line begins that is not run, and why.
const NOT_RUN: [(&str, &str); 5] = [
    ("cargo build --release", "the test was built"),
    ("cargo test --release", "it would run this test"),
    ("sudo sysctl ", "it changes the machine"),
    ("docker run ", "it downloads an image"),
    ("sudo install ", "it changes the machine"),
];
/// Lines that play a minute, and what makes them short here.
const SHORTENED: [(&str, &str); 2] = [
    ("nilometer lab run", " --duration 2"),
    ("nilometer lab run yours.pcap --out yours", " --duration 2"),
];
/// How the README starts the binary before it is installed.
const BUILT: &str = "cargo run --release -- ";
/// A document's script may take so long, seconds.
const PATIENCE_S: &str = "180";

/// The lines of all `sh` blocks; a line that ends with a backslash is one with the next.
fn lines_of(document: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
    for line in document.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
            continue;
        }
        if !inside {
            continue;
        }
        let part = line.strip_suffix('\\').unwrap_or(line);
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(part.trim_start()),
            None => lines.push(part.to_owned()),
        }
        goes_on = part.len() < line.len();
    }
    lines
}

fn document(name: &str) -> Vec<String> {
    let text = fs::read_to_string(example("..").join(name)).expect("the document");
    let lines = lines_of(&text);
    assert!(lines.len() > 5, "{name}: {lines:?}");
    lines
}

/// The words of a line's `nilometer`, if it has one.
fn words(line: &str) -> Option<Vec<&str>> {
    let built = line.split_once(BUILT).map(|(_, rest)| rest);
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let rest = built.or_else(|| line.strip_prefix("nilometer "))?;
    let end = |word: &&str| !["#", "|", ">"].contains(word);
    Some(["nilometer"].into_iter().chain(rest.split_whitespace().take_while(end)).collect())
}

/// The line as this test runs it.
fn runnable(line: &str) -> String {
    if NOT_RUN.iter().any(|(start, _)| line.starts_with(start)) {
        return String::new();
    }
    let mut line = line.replace(BUILT, "nilometer ");
    let short = SHORTENED.iter().find(|(whole, _)| *whole == line);
    line.push_str(short.map_or("", |(_, more)| more));
    if line.starts_with("nilometer lab run") {
        line.push_str(" --calibration 0.3");
    }
    if line.contains(" --check ") {
        // A busy machine may break a limit; that is a verdict, and no fault of the document.
        line.push_str(" || [ $? = 1 ]");
    }
    line
}

/// Runs the script of a document in a room; every command has to succeed.
fn run(name: &str, room: &Room) {
    symlink(example("").canonicalize().expect("the examples"), room.path("examples"))
        .expect("a link");
    let script: Vec<String> = document(name).iter().map(|line| runnable(line)).collect();
    let ours = Path::new(BINARY).parent().expect("a folder");
    let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("timeout")
        .args([PATIENCE_S, "sh", "-eux", "-c", &script.join("\n")])
        .current_dir(room.path(""))
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{name}: {}\n{}", output.status, text(&output.stderr));
}

#[test]
fn every_command_of_the_readme_runs() {
    if !privileged("the commands of the README") {
        return;
    }
    let room = Room::new("documents-readme");
    for name in ["yours.pcap", "copy.pcap"] {
        fs::copy(example("sample.pcap.gz"), room.path(name)).expect("a capture");
    }
    run(README, &room);
    assert!(room.path("nilometer-run/report.html").exists(), "as the README says");
}

#[test]
fn every_command_of_the_tutorial_runs() {
    if !privileged("the commands of the tutorial") {
        return;
    }
    let room = Room::new("documents-tutorial");
    run(TUTORIAL, &room);
    let page = "nilometer-hour/nilometer-run/report.html";
    assert!(room.path(page).exists(), "as the tutorial says");
}

/// For those that are not run, and where nothing can be run.
#[test]
fn every_command_of_the_documents_is_understood() {
    let lines = [document(README), document(TUTORIAL)].concat();
    let guide = document(GUIDE);
    for words in lines.iter().chain(&guide).filter_map(|line| words(line)) {
        if let Err(error) = Cli::command().try_get_matches_from(&words) {
            panic!("{words:?}: {error}");
        }
    }
    for (start, why) in NOT_RUN {
        assert!(lines.iter().any(|line| line.starts_with(start)), "{start}: nowhere ({why})");
    }
    let built = |line: &String| line.replace(BUILT, "nilometer ");
    for (whole, _) in SHORTENED {
        assert!(lines.iter().any(|line| built(line) == whole), "{whole}: nowhere");
    }
}

#[test]
fn lines_are_taken_from_their_blocks_alone() {
    let text =
        "    nilometer a\n```sh\nnilometer b \\\n    --c\nd\n```\n```text\nnilometer e\n```\n";
    assert_eq!(lines_of(text), ["nilometer b --c", "d"]);
    assert_eq!(words("nilometer b --c | head"), Some(vec!["nilometer", "b", "--c"]));
    assert_eq!(words("docker x cargo run --release -- lab run").map(|words| words.len()), Some(3));
    assert_eq!(words("cat > router.toml"), None);
    assert_eq!(runnable("cargo build --release"), "");
    let shortened = "nilometer lab run --duration 2 --calibration 0.3";
    assert_eq!(runnable("cargo run --release -- lab run"), shortened);
}
