//! The members of a scenario's network, chosen by a match and not by a pointer.

use alloc::boxed::Box;

use nilometer_wire::{Node, Port, Time};

use crate::datagram::{Sink, Source};
use crate::endpoint::Endpoint;
use crate::fault::FaultBox;
use crate::packet::Packet;

/// A node of any kind that scenarios have.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most members are ends of TCP flows, kept in line")]
pub enum Member {
    /// An end of a TCP flow.
    Endpoint(Endpoint),
    /// Sends datagrams. Apart, because its two random streams are long and others' records are not.
    Source(Box<Source>),
    /// Receives them.
    Sink(Sink),
    /// Stands before a link and does to packets what bad networks do.
    Fault(Box<FaultBox>),
}

/// The same call on whatever the member is.
macro_rules! each {
    ($member:expr, $inner:ident => $call:expr) => {
        match $member {
            Member::Endpoint($inner) => $call,
            Member::Source($inner) => $call,
            Member::Sink($inner) => $call,
            Member::Fault($inner) => $call,
        }
    };
}

impl Node<Packet> for Member {
    #[inline]
    fn receive(&mut self, now: Time, port: Port, packet: Packet) {
        each!(self, inner => inner.receive(now, port, packet))
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time) {
        each!(self, inner => inner.handle_timeout(now))
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time) -> Option<(Port, Packet)> {
        each!(self, inner => inner.poll_transmit(now))
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        each!(self, inner => inner.poll_timeout())
    }
}
