//! The inputs and decisions of a router, recorded live and repeated in virtual time.
//!
//! ```text
//!   route run --record FILE      driver ──inputs──► pipeline ──responses──► driver      by the real clock
//!                                   └───────────► FILE ◄───────────┘
//!   route replay FILE                  inputs ──► pipeline ──responses──► compared      without one
//! ```
//!
//! The pipeline has no clock, device or thread, so its behaviour follows from its inputs: each `now`, each batch
//! of frames, changes of tables, next hops, links and settings, how much room each device had, and when the
//! memory was exhausted. A recording has these in their order (`event`), and behind each the response: the frames
//! that left or were discarded, and the counters that rose. `replay` gives the inputs to a router of the same
//! description, and compares response with response.
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
