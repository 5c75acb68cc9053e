//! Recorded courses: what connections and controllers did on hard paths, figure by figure.
//!
//! These tables say what was, not what is right; that is for the other tests. They stand guard over
//! the many small decisions in a machine of this size that nobody means to change. A row holds
//! figures to read, and a checksum of every segment and of what a connection says of itself after
//! each event. Where a row differs and the change is meant, record the tables anew,
//! `NILOMETER_RECORD=1 cargo test --release -p nilometer-tcp --test courses`, and read in the
//! difference whether it is what was meant.

#[path = "courses/controllers.rs"]
mod controllers;
mod pipe;
#[path = "courses/scenes.rs"]
mod scenes;

use std::path::Path;
use std::{env, fs};

/// A sum that depends on all numbers and their order.
#[derive(Clone, Copy, Default)]
pub struct Checksum(u64);

impl Checksum {
    /// Adds a number.
    pub fn add(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    /// Adds numbers, one after the other.
    pub fn add_all(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.add(*number));
    }
}

/// Compares rows with the table of that name.
fn compare(name: &str, rows: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/courses").join(name);
    if env::var_os("NILOMETER_RECORD").is_some() {
        fs::write(&path, rows.join("\n") + "\n").expect("the table can be written");
    }
    let table = fs::read_to_string(&path).unwrap_or_default();
    let recorded: Vec<&str> = table.lines().collect();
    let differing: Vec<String> = (0..rows.len().max(recorded.len()))
        .filter(|at| rows.get(*at).map(String::as_str) != recorded.get(*at).copied())
        .map(|at| format!("recorded {:?}\n     now {:?}", recorded.get(at), rows.get(at)))
        .collect();
    assert!(differing.is_empty(), "{name} differs:\n{}", differing.join("\n"));
}

#[test]
fn connections_take_the_recorded_course() {
    compare("connections.txt", &scenes::rows());
}

#[test]
fn controllers_take_the_recorded_course() {
    compare("controllers.txt", &controllers::rows());
}
