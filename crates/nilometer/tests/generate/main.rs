//! The engine that makes live traffic, from the command line and beside slow readers.

mod cli;
#[path = "../common/mod.rs"]
mod common;
mod open;
