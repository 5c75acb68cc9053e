//! The router in its shell.

mod address;
pub mod assemble;
pub mod bench;
pub mod claims;
pub mod config;
pub mod control;
pub mod driver;
pub mod filter;
pub mod fpm;
mod hotplug;
pub mod keeper;
pub mod kernel;
pub mod latest;
pub mod manners;
mod memory;
pub mod multicast;
pub mod news;
pub mod pace;
pub mod pages;
pub mod queue_size;
pub mod routes;
pub mod running;
pub mod shares;
mod snmp;
pub mod stress;
pub mod tally;
pub mod testbed;
