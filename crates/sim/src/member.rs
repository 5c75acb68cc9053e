//! The members of a scenario's network, chosen by a match and not by a pointer.

use alloc::boxed::Box;

use nilometer_wire::{Node, Port, Time};

use crate::datagram::{Sink, Source};
use crate::endpoint::Endpoint;
use crate::fault_box::FaultBox;
use crate::forwarder::Forwarder;
use crate::packet::Packet;
use crate::scripted::Scripted;

/// A node of any kind that scenarios have.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most members are ends of TCP flows, kept in line")]
pub enum Member {
    /// An end of a TCP flow.
    Endpoint(Endpoint),
    /// An end of a scripted connection. Boxed, as it is longer than the others.
    Scripted(Box<Scripted>),
    /// Sends datagrams. Boxed, because its two random streams are long and the other variants are not.
    Source(Box<Source>),
    /// Receives them.
    Sink(Sink),
    /// Stands before a link and does to packets what bad networks do.
    Fault(Box<FaultBox>),
    /// A router with a description of its own.
    Router(Box<dyn Forwarder>),
}

/// The same call on any kind of member.
macro_rules! each {
    ($member:expr, $inner:ident => $call:expr) => {
        match $member {
            Member::Endpoint($inner) => $call,
            Member::Scripted($inner) => $call,
            Member::Source($inner) => $call,
            Member::Sink($inner) => $call,
            Member::Fault($inner) => $call,
            Member::Router($inner) => $call,
        }
    };
}

/// Nearly all members are endpoints. The hot calls test for that first, and leave the others to a
/// function of their own; otherwise they would be compiled to a jump through a table.
impl Node<Packet> for Member {
    #[inline(always)]
    fn receive(&mut self, now: Time, port: Port, packet: &Packet, none: &mut ()) {
        #[inline(never)]
        fn other(member: &mut Member, now: Time, port: Port, packet: &Packet) {
            each!(member, inner => inner.receive(now, port, packet, &mut ()))
        }
        match self {
            Member::Endpoint(endpoint) => endpoint.receive(now, port, packet, none),
            _ => other(self, now, port, packet),
        }
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time, none: &mut ()) {
        each!(self, inner => inner.handle_timeout(now, none))
    }

    #[inline(always)]
    fn poll_transmit(&mut self, now: Time, packet: &mut Packet, none: &mut ()) -> Option<Port> {
        #[inline(never)]
        fn other(member: &mut Member, now: Time, packet: &mut Packet) -> Option<Port> {
            each!(member, inner => inner.poll_transmit(now, packet, &mut ()))
        }
        match self {
            Member::Endpoint(endpoint) => endpoint.poll_transmit(now, packet, none),
            _ => other(self, now, packet),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        #[inline(never)]
        fn other(member: &Member) -> Option<Time> {
            match member {
                Member::Endpoint(inner) => inner.poll_timeout(),
                Member::Scripted(inner) => inner.poll_timeout(),
                Member::Source(inner) => inner.poll_timeout(),
                Member::Sink(inner) => inner.poll_timeout(),
                // (A node of any memory, whose moment is the same in each.)
                Member::Fault(inner) => inner.due(),
                Member::Router(inner) => inner.poll_timeout(),
            }
        }
        match self {
            Member::Endpoint(endpoint) => endpoint.poll_timeout(),
            _ => other(self),
        }
    }
}
