//! Updates from a source of routes, in its own terms: links of the kernel, next-hop objects by
//! number.

use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use crate::next_hop::{Hop, Member};
use crate::prefix::Prefix;
use crate::rib::Source;

/// A prefix of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnyPrefix {
    /// Of IPv4.
    V4(Prefix<u32>),
    /// Of IPv6.
    V6(Prefix<u128>),
}

impl AnyPrefix {
    /// The prefix of `length` bits of an address; nothing if it has fewer.
    pub fn new(address: IpAddr, length: u32) -> Option<AnyPrefix> {
        match address {
            IpAddr::V4(address) => Prefix::new(u32::from(address), length).map(AnyPrefix::V4),
            IpAddr::V6(address) => Prefix::new(u128::from(address), length).map(AnyPrefix::V6),
        }
    }
}

impl fmt::Display for AnyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyPrefix::V4(prefix) => prefix.fmt(f),
            AnyPrefix::V6(prefix) => prefix.fmt(f),
        }
    }
}

/// One way out, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The interface's index (`ifindex`).
    pub link: u32,
    /// The neighbour, or none where the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// Its share among others, 1 or more.
    pub weight: u16,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// To a next-hop object.
    Object(u32),
    /// To a group of next-hop objects, each with its weight.
    Objects(Vec<(u32, u16)>),
    /// Out by one way.
    Path(Path),
    /// Out by several.
    Paths(Vec<Path>),
    /// To one hop in forwarding's own terms: local, blackhole and the like, or a port of ours.
    Fate(Hop),
    /// To several of them.
    Members(Vec<Member>),
}

/// One update of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteUpdate {
    /// A route, new or in place of an earlier one.
    Announce {
        /// Where to.
        prefix: AnyPrefix,
        /// By which protocol the source has it (`rtm_protocol`).
        protocol: u8,
        /// The source's preference, the less the better.
        metric: u32,
        /// Where it leads.
        way: RouteTarget,
    },
    /// The route is withdrawn.
    Withdraw {
        /// Where to.
        prefix: AnyPrefix,
        /// Which, of a source that has several to one prefix.
        metric: u32,
    },
    /// What a next-hop object stands for, from now on.
    Define {
        /// Its number at the source.
        id: u32,
        /// Where it leads.
        way: RouteTarget,
    },
    /// The next-hop object is removed.
    Forget {
        /// Its number at the source.
        id: u32,
    },
    /// From here on the source announces everything again.
    ReplayBegins,
    /// It has announced everything: what it did not repeat is gone.
    ReplayEnds,
}

/// Several updates of one source, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteBatch {
    /// The route's source.
    pub source: Source,
    /// What.
    pub updates: Vec<RouteUpdate>,
}
