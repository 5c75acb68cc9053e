//! Which program writes: its version and the commit that it was built from, as every file of results names them.
//!
//! The binary says both when it begins ([`name`]). They are not known here at build time on purpose: a library that
//! held the commit would be built anew, and all that use it, with every commit.

use std::sync::OnceLock;

/// What the binary said: version with its commit, and the commit.
static NAMED: OnceLock<[&str; 2]> = OnceLock::new();

/// Says which program this is: the version, with the commit in parentheses, and the commit alone. Only the first call
/// counts.
pub fn name(version: &'static str, commit: &'static str) {
    NAMED.set([version, commit]).ok();
}

/// The version, with the commit in parentheses.
pub fn version() -> &'static str {
    NAMED.get().map_or(concat!(env!("CARGO_PKG_VERSION"), " (unknown)"), |[version, _]| version)
}

/// The commit: twelve digits, `-dirty` behind them when its sources were changed since, or `unknown`.
pub fn commit() -> &'static str {
    NAMED.get().map_or("unknown", |[_, commit]| commit)
}

/// The program as files name it: `nilometer 0.1.0 (...)`.
pub fn tool() -> String {
    format!("nilometer {}", version())
}
