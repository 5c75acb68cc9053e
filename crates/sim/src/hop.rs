//! The hops of packets: a link or a member, and the hop after each link.

use alloc::boxed::Box;

use nilometer_wire::Port;

use crate::calendar::Group;
use crate::packet::Route;

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// Into the queue of a link.
    Link(u32),
    /// To a member, at one of its ports.
    Member(u32, u16),
}

/// What the engine needs of a link besides its state; twelve bytes, as they stand beside it in one
/// cache line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkFacts {
    /// The next hop, if it is the same for all packets.
    pub onward: Option<Hop>,
    /// Whether what leaves the link goes straight into the next one's flight.
    pub is_fused: bool,
    /// Whether what leaves the link may be delivered to the member at its end in advance.
    pub is_eager: bool,
    /// Whether it is a FIFO whose every packet goes into the calendar: neither fused nor eager.
    pub is_plain: bool,
    /// The lanes of its landings.
    pub group: Group,
}

/// What the engine knows in addition about the few special links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    /// The next hops, by route.
    pub by_route: Box<[Option<Hop>]>,
    /// One more than the timer that makes a fused link decide in time; zero if it decides nothing.
    pub alarm: u32,
}

impl LinkFacts {
    /// The member to which all packets go, and the port there.
    #[inline(always)]
    pub fn member(&self) -> Option<(u32, Port)> {
        match self.onward {
            Some(Hop::Member(member, port)) => Some((member, Port(u32::from(port)))),
            _ => None,
        }
    }

    /// What comes after the link for a packet on `route`.
    #[inline(always)]
    pub fn onward<'a>(&'a self, turns: &'a Turns, route: Route) -> Option<&'a Hop> {
        match &self.onward {
            Some(hop) => Some(hop),
            None => turns.by_route.get(route.0 as usize)?.as_ref(),
        }
    }
}
