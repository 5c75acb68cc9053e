//! The fuzzing corpus, run through the same functions that are fuzzed (`fuzz/`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../../../fuzz/src/pure.rs"]
mod pure;
#[path = "../../../../fuzz/src/shell.rs"]
mod shell;

use pure::Target;

/// No input of a corpus is longer: it is read by people when it breaks something.
const INPUT_BYTES_MAX: u64 = 4_096;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The names in a folder, sorted, hidden ones left out.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().to_string_lossy().into_owned()
    };
    entries.map(name).filter(|name| !name.starts_with('.')).collect()
}

fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = fuzz().join("corpus").join(target);
    let read = |name: &String| {
        let path = folder.join(name);
        let bytes = fs::read(&path).expect("an input");
        assert!(bytes.len() as u64 <= INPUT_BYTES_MAX, "{} is too long", path.display());
        bytes
    };
    names(&folder).iter().map(read).collect()
}

#[test]
fn every_target_has_its_program_and_its_corpus() {
    let targets: BTreeSet<String> =
        pure::TARGETS.iter().chain(&shell::TARGETS).map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&fuzz().join("corpus")), targets);
    let programs = names(&fuzz().join("fuzz_targets"));
    assert_eq!(programs, targets.iter().map(|name| format!("{name}.rs")).collect());
    let script = fs::read_to_string(fuzz().join("run")).expect("the script");
    for name in &targets {
        let text =
            fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).expect("a target");
        assert!(text.contains(&format!("::of_{name}(bytes)")), "{name}");
        assert!(
            script.contains(&format!(" {name}")) || script.contains(&format!("\"{name} ")),
            "{name}"
        );
        assert!(!inputs(name).is_empty(), "{name}");
    }
}

fn replay(targets: &[Target], with_beginnings: bool) {
    for (name, target) in targets {
        for bytes in inputs(name) {
            target(&bytes);
            let least = if with_beginnings { 0 } else { bytes.len() };
            (least..bytes.len()).for_each(|length| target(&bytes[..length]));
        }
    }
}

#[test]
fn decoders_hold_over_the_corpus_and_over_every_beginning_of_it() {
    replay(&pure::TARGETS, true);
}

#[test]
fn files_and_documents_hold_over_the_corpus() {
    replay(&shell::TARGETS, false);
}
