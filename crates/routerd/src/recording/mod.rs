//! What a router was told and what it did, kept so that the same can be done again in virtual time.
//!
//! ```text
//!   route run --record FILE      driver ──told──► pipeline ──did──► driver        by the real clock
//!                                   └────────► FILE ◄────────┘
//!   route replay FILE                told ──► pipeline ──did──► compared           without one
//! ```
//!
//! The pipeline has no clock, device or thread, so all that it does follows from its inputs: each `now`, each
//! batch of frames, changes of tables, next hops, links and settings, how much room each device had, and when the
//! memory was exhausted. A recording has these in their order (`event`), and behind each the answer: the frames that
//! left or went no further, and by which counters. `replay` tells them to a router that is made of the same
//! description, and compares answer with answer.
//!
//! While it records, a router takes no shortcuts through the kernel, and its tables change between two turns
//! only.

mod command;
pub mod event;
mod observed;
mod recorder;
pub mod replay;

pub use command::Command;
pub use recorder::{Recorded, Recorder, TableRecorder, Turn, frames};
