//! Packet formats: time, rate, link layers, headers and checksums, read from slices.
//!
//! [`packet::parse`] is the door: a captured frame goes in, and what a meter needs of it comes out,
//! after one pass over its headers. Everything else here serves it (`view` to `tunnel`), checks what
//! it read (`checksum`) or makes frames for it to read (`build`). [`Node`] is a state machine that
//! has ports and is given the time.
#![no_std]

extern crate alloc;

pub mod brief;
pub mod build;
pub mod checksum;
mod ecn;
mod ether;
mod extension;
mod ip;
pub mod link;
pub mod memory;
mod named;
pub mod node;
pub mod packet;
mod parsed;
mod plain;
pub mod prefetch;
mod rate;
pub mod time;
mod transport;
mod tunnel;
mod view;

pub use ecn::Ecn;
pub use node::{Node, Order, Port, Turns};
pub use rate::Rate;
pub use time::{Span, Time};
