//! Discrete-event simulation: nodes, links and scenarios driven by an event calendar.
#![no_std]

extern crate alloc;

pub mod assembly;
pub mod calendar;
pub mod course;
pub mod datagram;
pub mod endpoint;
pub mod fault;
pub mod fault_box;
mod followers;
pub mod forwarder;
mod hop;
pub mod host;
mod lanes;
pub mod link;
pub mod member;
pub mod network;
pub mod outcome;
pub mod overload;
pub mod packet;
mod parcel;
pub mod plan;
pub mod quantity;
pub mod queueing;
pub mod refusal;
pub mod run;
pub mod scenario;
pub mod scripted;
mod seat;
pub mod speedup;
pub mod stack;
pub mod stream;
pub mod stress;
pub mod switch;
mod tap;
pub mod topology;
pub mod tournament;
pub mod virtual_clock;
mod wiring;

pub use assembly::{Assembly, FlowKind, assemble, assemble_with};
pub use calendar::Calendar;
pub use link::{Counters, Link, Queue};
pub use network::{Journal, Network, Tap};
pub use outcome::{FlowOutcome, Outcome};
pub use packet::{Packet, Protocol, Route};
pub use plan::{Hop, Plan};
pub use refusal::Refusal;
pub use scenario::Scenario;
pub use tournament::Tournament;
