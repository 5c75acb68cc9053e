//! The version of this program and the commit that it was built from, as every file of results names them.
//!
//! The binary sets both when it starts ([`name`]). They are deliberately not known here at build time: a library
//! that contained the commit would be rebuilt with every commit, and so would all crates that use it.

use std::sync::OnceLock;

/// As set by the binary: the version with its commit, and the commit.
static NAMED: OnceLock<[&str; 2]> = OnceLock::new();

/// Sets the version, with the commit in parentheses, and the commit alone. Only the first call has an effect.
pub fn name(version: &'static str, commit: &'static str) {
    NAMED.set([version, commit]).ok();
}

/// The version, with the commit in parentheses.
pub fn version() -> &'static str {
    NAMED.get().map_or(concat!(env!("CARGO_PKG_VERSION"), " (unknown)"), |[version, _]| version)
}

/// The commit: twelve digits, with `-dirty` behind them when the sources had been changed since, or
/// `unknown`.
pub fn commit() -> &'static str {
    NAMED.get().map_or("unknown", |[_, commit]| commit)
}

/// The program as files name it: `nilometer 0.1.0 (...)`.
pub fn tool() -> String {
    format!("nilometer {}", version())
}
