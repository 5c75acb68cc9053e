//! The command line of Nilometer.

pub mod cli;
