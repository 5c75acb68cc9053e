//! The router in its shell.

pub mod assemble;
pub mod bench;
pub mod config;
pub mod control;
pub mod driver;
pub mod filter;
pub mod fpm;
pub mod keeper;
pub mod kernel;
pub mod latest;
pub mod manners;
mod memory;
pub mod news;
pub mod pages;
pub mod routes;
pub mod running;
pub mod stress;
pub mod tally;
