//! The laboratory: trials of a device under live traffic, the engine that makes the traffic, simulations from files,
//! and checks of what this machine can do.

pub mod device;
pub mod doctor;
pub mod generate;
pub mod simulate;
pub mod stream;
pub mod trial;
pub mod wave_video;
pub mod wiring;
