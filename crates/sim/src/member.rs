//! The members of a scenario's network, chosen by a match and not by a pointer.

use alloc::boxed::Box;

use nilometer_wire::{Node, Port, Time};

use crate::datagram::{Sink, Source};
use crate::endpoint::Endpoint;
use crate::fault::FaultBox;
use crate::packet::Packet;
use crate::scripted::Scripted;

/// A node of any kind that scenarios have.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most members are ends of TCP flows, kept in line")]
pub enum Member {
    /// An end of a TCP flow.
    Endpoint(Endpoint),
    /// An end of a scripted connection. Apart, as it is longer than the others.
    Scripted(Box<Scripted>),
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
            Member::Scripted($inner) => $call,
            Member::Source($inner) => $call,
            Member::Sink($inner) => $call,
            Member::Fault($inner) => $call,
        }
    };
}

/// Nearly all members are endpoints. Each call asks for that first, and leaves the others to a function
/// of their own, or it would be made a jump through a table.
impl Node<Packet> for Member {
    #[inline(always)]
    fn receive(&mut self, now: Time, port: Port, packet: &Packet) {
        #[inline(never)]
        fn other(member: &mut Member, now: Time, port: Port, packet: &Packet) {
            each!(member, inner => inner.receive(now, port, packet))
        }
        match self {
            Member::Endpoint(endpoint) => endpoint.receive(now, port, packet),
            _ => other(self, now, port, packet),
        }
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time) {
        each!(self, inner => inner.handle_timeout(now))
    }

    #[inline(always)]
    fn poll_transmit(&mut self, now: Time, packet: &mut Packet) -> Option<Port> {
        #[inline(never)]
        fn other(member: &mut Member, now: Time, packet: &mut Packet) -> Option<Port> {
            each!(member, inner => inner.poll_transmit(now, packet))
        }
        match self {
            Member::Endpoint(endpoint) => endpoint.poll_transmit(now, packet),
            _ => other(self, now, packet),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        #[inline(never)]
        fn other(member: &Member) -> Option<Time> {
            each!(member, inner => inner.poll_timeout())
        }
        match self {
            Member::Endpoint(endpoint) => endpoint.poll_timeout(),
            _ => other(self),
        }
    }
}
