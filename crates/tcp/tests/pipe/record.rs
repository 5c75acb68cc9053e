//! Recorded tables: what they are made of, and how they are compared.
//!
//! Such a table records what happened, not what is right; that is for the other tests. It guards
//! the many small decisions in a state machine of this size against unintended changes. Where a row
//! differs and the change is meant, record the tables anew,
//! `UPDATE=1 cargo test --release -p nilometer-tcp`, and check in the diff that only the intended
//! rows changed.

use std::path::Path;
use std::{env, fs};

use nilometer_tcp::{Connection, Segment};
use nilometer_wire::Time;

/// A sum that depends on all numbers and their order.
#[derive(Clone, Copy, Default)]
pub struct Checksum(pub u64);

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

    /// Adds a segment that left at `at`.
    pub fn add_segment(&mut self, at: Time, segment: &Segment) {
        let [value, echo] = segment.timestamps;
        self.add_all(&[at.0, u64::from(segment.flags), u64::from(segment.window)]);
        for number in [segment.sequence, segment.acknowledgement, value, echo] {
            self.add(u64::from(number));
        }
        self.add_all(&[u64::from(segment.length), u64::from(segment.header_bytes())]);
        for [left, right] in segment.blocks() {
            self.add_all(&[u64::from(left), u64::from(right)]);
        }
    }

    /// Adds a connection's state.
    pub fn add_connection(&mut self, end: &Connection) {
        let window = end.window();
        self.add_all(&[end.state() as u64, window.cwnd, window.ssthresh, end.in_flight()]);
        self.add_all(&[end.readable(), end.delivered(), end.acknowledged(), end.rto().0]);
        self.add(end.smoothed_rtt().map_or(0, |span| span.0));
        self.add(end.poll_timeout().map_or(0, |at| at.0));
        self.add_all(&[end.episode() as u64, u64::from(end.is_recovering())]);
        let of = end.segments().unwrap_or_default();
        self.add_all(&[of.outstanding, of.sacked, of.lost, of.repeated, of.waiting]);
        let (most, often) = end.reordering().unwrap_or_default();
        let counts = end.statistics();
        self.add_all(&[most, often, counts.bytes_sent, counts.retransmitted_bytes]);
        self.add_all(&[counts.segments_sent, counts.retransmitted_segments, counts.timeouts]);
        self.add_all(&[counts.duplicate_bytes, counts.out_of_order_segments]);
        self.add_all(&[counts.undone, counts.marks_answered, counts.marks_received]);
        self.add_all(&[counts.refused_segments, counts.segments_received]);
    }
}

/// Compares rows with the table of that name in `tests/courses`.
pub fn compare(name: &str, rows: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/courses").join(name);
    if env::var_os("UPDATE").is_some() {
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
