//! Tells the binary which commit it was built from, for `--version` and every result file.
//!
//! Twelve hexadecimal digits, `-dirty` behind them when the sources differ from that commit, or
//! `unknown` where there is no repository (an unpacked archive); a packager of such an archive may
//! set `NILOMETER_COMMIT`. Cargo runs this again when the commit changes or a source does, so that
//! the answer never goes stale.

use std::path::{Path, PathBuf};
use std::process::Command;

const COMMIT_DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=NILOMETER_COMMIT");
    let root = workspace_root();
    let commit = match std::env::var("NILOMETER_COMMIT") {
        Ok(given) if !given.is_empty() => given,
        _ => commit_of(&root).unwrap_or_else(|| "unknown".to_owned()),
    };
    println!("cargo::rustc-env=NILOMETER_COMMIT={commit}");
}

fn workspace_root() -> PathBuf {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    here.join("../..").canonicalize().expect("the workspace holds this crate")
}

fn commit_of(root: &Path) -> Option<String> {
    // An archive unpacked inside some other repository must not take that one's commit.
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root {
        println!("cargo::rerun-if-changed=build.rs");
        return None;
    }
    let head = git(root, &["rev-parse", "HEAD"])?;
    watch(root);
    let sources = ["diff", "--quiet", "HEAD", "--", "crates", "Cargo.toml", "Cargo.lock"];
    let suffix = if git(root, &sources).is_some() { "" } else { "-dirty" };
    Some(format!("{}{suffix}", head.get(..COMMIT_DIGITS)?))
}

/// Names the files whose change means another commit or other sources. A file that is missing
/// would make cargo build again every time, so only those that exist are named.
fn watch(root: &Path) {
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    let places = ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref());
    let watched = places
        .filter_map(|place| git(root, &["rev-parse", "--git-path", place]))
        .map(|path| root.join(path))
        .chain(["crates", "Cargo.toml", "Cargo.lock"].map(|source| root.join(source)));
    for path in watched.filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// What git prints, trimmed; nothing when there is no git or it ends with an error.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["-c", "safe.directory=*"])
        .args(args)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
