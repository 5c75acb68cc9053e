//! Black-box profiling of a device under test, and the validity of its results.
//!
//! The first part is the profiler's ledger: every packet that entered the device under test (DUT)
//! is matched with the packet that left it. A [`Fingerprint`] is what the two have in common, the
//! [`Matcher`] determines the fate of each ([`PacketOutcome`]) and counts them ([`Counts`]), and
//! [`Delays`] turns the fates into delay and loss, as a summary, over time and by size.
#![no_std]

extern crate alloc;

mod claim;
mod config;
mod corruption;
pub mod delay;
pub mod device_faults;
mod entry;
pub mod fingerprint;
mod keyed;
mod line;
pub mod matcher;
mod order;
pub mod outcome;
mod passage;
mod ring;
pub mod stream;
mod usual;

pub use delay::{DelayConfig, DelaySummary, Delays};
pub use fingerprint::Fingerprint;
pub use matcher::{Matcher, MatcherConfig};
pub use outcome::{Counts, Direction, Fate, PacketOutcome};
