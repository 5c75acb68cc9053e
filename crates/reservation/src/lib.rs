//! Reservations: RSVP's messages and soft state, admission control, and routes pinned for reserved flows.
//!
//! A flow that needs a bandwidth has it reserved at every router on its way. [`message`] reads and writes what routers
//! and hosts say to each other (RSVP, RFC 2205, and a flow setup of one packet), [`packet`] the IP packets around it.
//! [`Admission`] keeps the books of a router's ports. An [`RsvpProcess`] holds the soft state of one router or host: it
//! is given messages and the time, and gives out packets to send and orders to the forwarding plane. Nothing here
//! forwards a packet of a flow; what an order says, classifier and queues carry out.
#![no_std]

extern crate alloc;

pub mod admission;
pub mod message;
pub mod packet;
pub mod process;

pub use admission::{Admission, AdmissionError, ReservationId, Side};
pub use process::{Arrival, Command, Reservation, RsvpProcess, Transmit, Upcall};
