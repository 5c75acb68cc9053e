//! Simulation from the shell: scenario files, sweeps over threads, results.

pub mod claims;
pub mod delays;
pub mod page;
pub mod pages;
pub mod paper;
pub mod perform;
pub mod points;
pub mod result;
pub mod router;
pub mod shipped;
pub mod stress;
pub mod substitute;
pub mod sweep;
pub mod template;
pub mod trace;
pub mod warning;
