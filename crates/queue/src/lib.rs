//! Who waits, who leaves next, who is dropped: queue disciplines and distributed queueing.
#![no_std]

extern crate alloc;

pub mod aal5;
pub mod broadcast;
pub mod discipline;
pub mod distributed;
pub mod dq_plus;
pub mod ledger;
pub mod tail_drop;
pub mod voq;

pub use discipline::{Backlog, Discipline, Drops, Packet, Reason};
pub use tail_drop::TailDrop;
pub use ledger::{Ledger, Tally};
