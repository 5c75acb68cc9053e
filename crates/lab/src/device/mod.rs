//! Devices: nodes driven by the real clock between two interfaces of the testbed, the kernel, and
//! third-party programs.

pub mod driver;
pub mod fault;
pub mod kernel;
pub mod paths;
pub mod processes;
pub mod recording;
pub mod rules;
pub mod spec;
mod trace;
pub mod truth;
