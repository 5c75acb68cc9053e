//! The binary from a shell: version, completions, manual pages, doctor and refusals.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::CommandFactory;
use nilometer::cli::{COMMIT, Cli, VERSION};

const BINARY: &str = env!("CARGO_BIN_EXE_nilometer");
/// The user and group that own nothing.
const NOBODY: u32 = 65_534;

fn nilometer(args: &[&str]) -> Output {
    Command::new(BINARY).args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// A folder of this test's own, empty.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a scratch folder");
    folder
}

fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Status 2, nothing on stdout, and one line on stderr that names the program; returns the line.
fn refusal(args: &[&str]) -> String {
    let output = nilometer(args);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    assert_eq!(stdout, "", "{args:?}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    assert!(stderr.starts_with("nilometer: "), "{args:?}: {stderr}");
    stderr.trim_end().to_owned()
}

#[test]
fn version_names_the_commit() {
    let output = nilometer(&["--version"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), format!("nilometer {VERSION}\n"));
    assert!(VERSION.starts_with(env!("CARGO_PKG_VERSION")) && VERSION.contains(COMMIT));
    let digits = COMMIT.strip_suffix("-dirty").unwrap_or(COMMIT);
    let is_hash = digits.len() == 12 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let packaged = option_env!("NILOMETER_COMMIT").is_some();
    assert!(is_hash || digits == "unknown" || packaged, "{COMMIT}");
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = nilometer(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let script = text(&output.stdout);
        for command in Cli::command().get_subcommands() {
            assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
        }
    }
}

/// What a shell sees of `nilometer … | head -c1`, and of a disk that is full.
#[test]
fn a_closed_standard_output_ends_a_command_quietly() {
    let run = ["simulate", "qsdrr", "--json", "--seeds", "1", "--set", "duration_s=0.1"];
    let run = [&run[..], &["--set", "discipline=red", "--set", "buffer_packets=100"]].concat();
    for args in [&run[..], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let unread = Command::new(BINARY).args(args).stdout(writer).output().expect("it runs");
        assert_eq!((unread.status.code(), text(&unread.stderr)), (Some(141), ""), "{args:?}");
        let full = fs::File::options().write(true).open("/dev/full").expect("Linux");
        let full = Command::new(BINARY).args(args).stdout(full).output().expect("it runs");
        let message = "nilometer: standard output cannot be written: No space left on device";
        assert_eq!(full.status.code(), Some(2), "{args:?}");
        assert!(text(&full.stderr).starts_with(message), "{}", text(&full.stderr));
        assert_eq!(text(&full.stderr).lines().count(), 1, "{args:?}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = scratch("manual");
    let output = nilometer(&["man", "--out", folder.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
    let pages: BTreeSet<String> = fs::read_dir(&folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let mut expected = BTreeSet::new();
    let mut commands = vec![("nilometer".to_owned(), Cli::command())];
    while let Some((name, command)) = commands.pop() {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            commands.push((format!("{name}-{}", below.get_name()), below.clone()));
        }
        expected.insert(format!("{name}.1"));
    }
    assert_eq!(pages, expected);
    for page in &pages {
        let page = fs::read_to_string(folder.join(page)).expect("a page");
        assert!(page.contains(".TH") && page.contains("NAME"), "{page}");
    }
}

#[test]
fn unknown_arguments_are_refused_in_one_line() {
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        let line = refusal(&[name, "--no-such-flag"]);
        assert!(line.contains("--no-such-flag"), "{line}");
        assert!(line.ends_with(&format!("see `nilometer {name} --help`")), "{line}");
    }
    assert!(refusal(&["laboratory"]).contains("laboratory"));
    assert!(refusal(&["man"]).contains("--out"));
    assert!(refusal(&["man", "--ouT", "x"]).contains("'--out'"), "the nearest flag is suggested");
    let line = refusal(&["completions", "bsh"]);
    assert!(line.contains("'bash'") && line.contains("zsh"), "{line}");
}

#[test]
fn manual_pages_that_cannot_be_written_are_refused_in_one_line() {
    let occupied = scratch("occupied").join("file");
    fs::write(&occupied, "").expect("a file");
    let line = refusal(&["man", "--out", occupied.to_str().expect("UTF-8")]);
    assert!(line.contains("occupied/file"), "{line}");
}

/// What every answer of the doctor must be, for any user: consistent with its exit status, and
/// with advice wherever something is not well.
fn examined(output: &Output) -> serde_json::Value {
    let answer: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON object on stdout");
    let ready = answer["ready"].as_bool().expect("ready");
    assert_eq!(output.status.code(), Some(if ready { 0 } else { 1 }), "{answer}");
    let findings = answer["findings"].as_array().expect("findings");
    for name in ["privileges", "kernel", "clock", "cores", "load", "memory", "congestion"] {
        assert!(findings.iter().any(|finding| finding["name"] == name), "{name}: {answer}");
    }
    for finding in findings {
        assert!(!finding["found"].as_str().expect("found").is_empty(), "{finding}");
        let well = finding["state"] == "ok";
        assert_eq!(finding["consequence"].is_null(), well, "{finding}");
        assert_eq!(finding["remedy"].is_null(), well, "{finding}");
    }
    answer
}

#[test]
fn the_doctor_answers_everyone() {
    let answer = examined(&nilometer(&["doctor", "--json"]));
    assert_eq!(answer["version"], VERSION);
    let table = nilometer(&["doctor"]);
    assert_eq!(table.status.code() == Some(0), answer["ready"] == true);
    for finding in answer["findings"].as_array().expect("findings") {
        let name = finding["name"].as_str().expect("a name");
        assert!(text(&table.stdout).contains(name), "{name} is missing from the table");
    }
}

#[test]
fn the_doctor_answers_an_ordinary_user() {
    // The build's own folder may be closed to others, so the binary goes where every user may run it.
    let folder = std::env::temp_dir().join(format!("nilometer-doctor-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a scratch folder");
    let binary = folder.join("nilometer");
    fs::copy(BINARY, &binary).expect("a copy of the binary");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("a mode");
    let mut doctor = Command::new(&binary);
    doctor.args(["doctor", "--json"]);
    doctor.gid(NOBODY).uid(NOBODY);
    // Another test's child, forked while the copy was being written, holds it open until it execs.
    let mut output = doctor.output();
    for _ in 0..100 {
        let busy = |error: &std::io::Error| error.kind() == ErrorKind::ExecutableFileBusy;
        if !output.as_ref().is_err_and(busy) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        output = doctor.output();
    }
    fs::remove_dir_all(&folder).expect("the scratch folder goes");
    match output {
        Ok(output) => {
            let answer = examined(&output);
            // A user that may open such a socket in a private namespace may still load no program for it.
            let mut findings = answer["findings"].as_array().expect("findings").iter();
            let xdp = findings.find(|finding| finding["name"] == "AF_XDP");
            assert!(xdp.is_none_or(|finding| finding["state"] == "missing"), "{answer}");
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            eprintln!("skipped: only root can become an ordinary user");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn ci_runs_the_test_command_of_the_readme() {
    let line = "cargo test --release";
    assert!(repository("README.md").lines().any(|there| there.trim() == line));
    assert!(repository(".ci/run").lines().any(|there| there == format!("step tests {line}")));
}

#[test]
fn the_readme_lists_exactly_the_commands() {
    let readme = repository("README.md");
    let commands = readme.split("\n## Commands\n").nth(1).expect("a section of commands");
    let commands = commands.split("\n## ").next().expect("its end");
    let listed: BTreeSet<&str> = commands
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nilometer ")?.split(' ').next())
        .collect();
    let cli = Cli::command();
    let known: BTreeSet<&str> = cli.get_subcommands().map(|command| command.get_name()).collect();
    assert_eq!(listed, known);
}

/// Each judged law: its name, its unit, its cap, and what it compares.
#[test]
fn the_laws_of_likeness_are_documented() {
    let text = repository("docs/likeness.md");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let laws: Vec<String> = nilometer_likeness::LAWS
        .iter()
        .map(|law| format!("| `{}` | {} | {} | {} |", law.name, law.unit.name(), law.cap, law.what))
        .collect();
    assert_eq!(rows, laws);
}
