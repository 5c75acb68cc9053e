//! TCP without a socket: both ends as state machines whose caller passes in segments and the time.
#![no_std]

extern crate alloc;

pub mod bytes;
pub mod config;
pub mod connection;
pub mod controller;
mod doubt;
mod flight;
mod handshake;
pub mod inspect;
mod nagle;
mod prediction;
pub mod prr;
mod rack;
mod rack_recovery;
mod rack_state;
pub mod ranges;
mod receiver;
mod recovery;
pub mod rtt;
mod sampling;
pub mod scoreboard;
pub mod segment;
mod sender;
pub mod sequence;
mod spurious;
pub mod state;
pub mod statistics;
mod teardown;
mod timestamps;
mod transmit;

pub use config::{Algorithm, Config, Growth, IdleRestart, Recovery};
pub use connection::{Connection, Outgoing};
pub use controller::{Acked, Any, Congestion, Controller, Delivery, Lost, Window};
pub use inspect::Episode;
pub use rack::Sums;
pub use segment::{Extra, Segment};
pub use state::State;
pub use statistics::Statistics;
