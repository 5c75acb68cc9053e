//! Replays the public packetdrill scripts in virtual time, against a committed table.
//!
//! The scripts are read from below `NILOMETER_DATA` (`peers/packetdrill`); a few of our own, in
//! `tests/scripts`, are always run: they pass, or fail where their name says so. `UPDATE=1` rewrites
//! the table; read it then.

use std::fs;
use std::path::{Path, PathBuf};

mod packetdrill {
    pub mod call;
    pub mod expression;
    pub mod host;
    pub mod lexer;
    pub mod matching;
    pub mod packet;
    pub mod run;
    pub mod scope;
    pub mod script;
    pub mod socket;
}

use packetdrill::script::Script;
use packetdrill::{run, scope};

const HEADER: &str = "\
# What came of every public packetdrill script, replayed in virtual time against this TCP.
# Not compared: PSH, the order and padding of options. Several segments may be one of a script.
";

/// All scripts below `folder`, in the order of their paths.
fn scripts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("a folder of scripts");
        for path in entries.map(|entry| entry.expect("a readable entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "pkt") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// `passed`, `failed: ...` or `not applicable: ...`.
fn outcome(text: &str) -> String {
    let script = match Script::parse(text) {
        Ok(script) => script,
        Err(fault) => return format!("failed: cannot be read: {fault}"),
    };
    if let Some(reason) = scope::set_aside(&script) {
        return format!("not applicable: {reason}");
    }
    match run::replay(&script) {
        Ok(()) => "passed".to_string(),
        Err(fault) => format!("failed: {fault}"),
    }
}

#[test]
fn scripts_of_our_own_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let paths = scripts(&folder);
    assert!(paths.len() >= 3, "{} scripts", paths.len());
    for path in paths {
        let text = fs::read_to_string(&path).expect("a script is text");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        // A script whose name says so must be seen to fail, or nothing would be shown by the
        // others.
        let expected = if name.starts_with("fails-") { "failed: line " } else { "passed" };
        let outcome = outcome(&text);
        assert!(outcome.starts_with(expected), "{name}: {outcome}");
    }
}

#[test]
fn the_table_of_public_scripts_is_as_committed() {
    let Some(data) = std::env::var_os("NILOMETER_DATA") else {
        println!("skipped: NILOMETER_DATA is not set, so the public scripts were not replayed");
        return;
    };
    let folder = Path::new(&data).join("peers/packetdrill");
    let mut rows = String::new();
    let mut counts = [0; 3];
    for path in scripts(&folder) {
        let name = path.strip_prefix(&folder).expect("below the folder").to_string_lossy();
        let text = fs::read_to_string(&path).expect("a script is text");
        let outcome = outcome(&text);
        let kinds = ["passed", "failed", "not applicable"];
        let kind = kinds.iter().position(|kind| outcome.starts_with(kind)).expect("a known kind");
        counts[kind] += 1;
        let short = name.strip_prefix("gtests/net/").unwrap_or(&name);
        rows.push_str(&format!("{short}: {outcome}\n"));
    }
    let [passed, failed, aside] = counts;
    let sum = format!("# {passed} passed, {failed} failed, {aside} not applicable\n");
    let table = format!("{HEADER}{sum}{rows}");
    print!("{sum}");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packetdrill.txt");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&golden, &table).expect("a table that can be written");
    }
    let committed = fs::read_to_string(&golden).expect("a committed table");
    let differing: Vec<_> = table.lines().filter(|line| !committed.contains(line)).collect();
    assert!(committed == table, "differs from the table:\n{}", differing.join("\n"));
}
