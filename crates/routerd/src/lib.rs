//! The router daemon: its configuration, the driver of its ports, control (HTTP, SNMP), and routes from daemons and
//! the kernel.

mod address;
pub mod assemble;
mod check;
pub mod claims;
pub mod config;
pub mod control;
pub mod driver;
pub mod filter;
pub mod fpm;
mod hotplug;
pub mod kernel;
pub mod latest;
pub mod machine;
pub mod multicast;
pub mod pace;
pub mod plugins;
pub mod queue_size;
pub mod recording;
pub mod reservations;
pub mod rfc1812;
pub mod rib_thread;
mod route_feed;
pub mod router_file;
pub mod routes;
pub mod rsvp_host;
pub mod running;
pub mod shares;
mod snmp;
pub mod stress;
pub mod tally;
pub mod testbed;
mod worker;

#[cfg(test)]
mod machine_tests;
