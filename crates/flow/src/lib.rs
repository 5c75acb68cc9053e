#![no_std]

extern crate alloc;

mod cache;
pub mod connections;
mod coverage;
mod hash;
mod live;
pub mod meter;
pub mod record;

pub use record::{EndReason, FlowKey, FlowRecord};
