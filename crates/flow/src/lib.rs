//! Flow records: metered from packets, decoded from binary exports, repaired where they were split.
#![no_std]

extern crate alloc;

mod cache;
mod coverage;
mod hash;
mod live;
pub mod meter;
pub mod record;

pub use record::{EndReason, FlowKey, FlowRecord};
