//! Devices that are nodes: driven by the real clock between two interfaces of the testbed.

pub mod driver;
pub mod fault;
pub mod kernel;
pub mod paths;
pub mod recording;
pub mod rules;
pub mod spec;
mod trace;
pub mod truth;
