//! The router in its shell.

pub mod assemble;
pub mod bench;
pub mod config;
pub mod driver;
pub mod filter;
mod memory;
pub mod pages;
pub mod routes;
pub mod running;
pub mod tally;
