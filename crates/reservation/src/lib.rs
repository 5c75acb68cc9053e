//! Reservations: RSVP's messages and soft state, admission control, and routes pinned for reserved flows.
//!
//! A flow that needs a bandwidth has it reserved at every router on its way. [`message`] parses and writes the
//! messages of routers and hosts (RSVP, RFC 2205, and a flow setup of one packet), [`packet`] the IP packets around
//! them. [`Admission`] accounts for the bandwidth of a router's ports. An [`RsvpProcess`] holds the soft state of one
//! router or host: it takes messages and the time, and produces packets to send and commands to the forwarding plane.
//! Nothing here forwards a packet of a flow; classifier and queues carry out the commands.
#![no_std]

extern crate alloc;

pub mod admission;
pub mod message;
pub mod packet;
pub mod process;

pub use admission::{Admission, AdmissionError, ReservationId, Side};
pub use process::{Arrival, Command, Reservation, RsvpProcess, Transmit, Upcall};
