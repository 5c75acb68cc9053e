//! Flow records: metered from packets, decoded from binary exports, repaired where they were split.
#![no_std]

extern crate alloc;

pub mod anonymise;
mod bytes;
mod cache;
pub mod collector;
mod connection_set;
pub mod connections;
pub mod counts;
mod coverage;
pub mod echoes;
pub mod evictions;
pub mod flow_tools;
pub mod framing;
pub mod handshake;
pub mod hash;
mod index;
mod live;
pub mod meter;
pub mod netflow5;
pub mod netflow7;
pub mod nfcapd;
mod order;
pub mod prefetch_queue;
mod queued;
pub mod record;
pub mod repair;
pub mod sequence;
pub mod sflow;
pub mod template;

pub use record::{EndReason, FlowKey, FlowRecord};
