//! A workload: estimated from flow records, planned as sessions, judged against its model.
#![no_std]

extern crate alloc;
pub mod plan;
