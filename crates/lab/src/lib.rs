//! The laboratory: trials of a device under live traffic, the engine that makes the traffic, simulations from files,
//! and what this machine can do of it.

pub mod device;
pub mod doctor;
pub mod generate;
pub mod simulate;
pub mod stream;
pub mod trial;
pub mod wave_video;
pub mod wiring;
