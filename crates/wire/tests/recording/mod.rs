//! Recordings: tables of the results of deterministic runs, compared with those in a file.
//!
//! A recording says what was, not what is right; that is for the other tests. It guards the many small
//! decisions that should not change by accident. Where a line differs and the change is meant,
//! `UPDATE=1 cargo test --release -p CRATE` writes the tables anew, and the difference is read: which
//! lines changed, and was that meant? Tests of several crates include this file.

#![allow(dead_code, reason = "each test uses its own part of this file")]

use std::fmt::{Debug, Write};

/// FNV-1a over the debug text of all values added.
#[derive(Clone, Copy, Debug)]
pub struct Digest(pub u64);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

impl Digest {
    /// The digest of no values.
    pub fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    /// Adds the debug text of a value.
    pub fn say(&mut self, what: impl Debug) {
        write!(self, "{what:?}").unwrap();
    }
}

/// The digest of a text, in 32 bits.
pub fn digest(text: &str) -> u32 {
    let mut digest = Digest::new();
    digest.write_str(text).unwrap();
    (digest.0 >> 32) as u32 ^ digest.0 as u32
}

/// Compares a table with the one in a file, line by line.
pub fn compare(file: &str, table: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, table).expect("a recording");
    }
    let recorded = std::fs::read_to_string(file).expect("a recording");
    for (now, then) in table.lines().zip(recorded.lines()) {
        assert_eq!(now, then, "see what a recording is at the top of recording/mod.rs");
    }
    assert_eq!(table.len(), recorded.len(), "lines of {file}");
}
