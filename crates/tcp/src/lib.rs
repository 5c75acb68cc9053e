//! Two ends of a conversation without a socket: TCP as a state machine that is told the time.
#![no_std]

extern crate alloc;

pub mod config;
pub mod controller;
pub mod segment;

pub use config::{Algorithm, Config, Growth, Recovery};
pub use controller::{Acked, Any, Congestion, Controller, Delivery, Lost, Window};
pub use segment::Segment;
