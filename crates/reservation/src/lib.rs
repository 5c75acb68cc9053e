//! Reservations: RSVP's messages and soft state, admission control, and routes pinned for reserved flows.
#![no_std]

extern crate alloc;

pub mod message;
pub mod packet;
