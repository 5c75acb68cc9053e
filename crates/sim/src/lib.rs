//! Virtual time: nodes, links and scenarios driven by an event calendar.
#![no_std]

extern crate alloc;

pub mod calendar;
pub mod datagram;
pub mod endpoint;
pub mod fault;
pub mod link;
pub mod network;
pub mod overload;
pub mod packet;
pub mod plan;
pub mod speedup;
pub mod stress;
pub mod stress_fluid;
pub mod switch;
pub mod tournament;

pub use calendar::Calendar;
pub use link::{Counters, Link, Queue};
pub use network::{Journal, Network, Tap};
pub use packet::{Packet, Protocol, Route};
pub use plan::{Hop, Plan};
pub use tournament::Tournament;
