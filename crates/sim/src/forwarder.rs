//! The interface between the engine and a router of a scenario that has a description of its own.
//!
//! A router without a description takes no time, and packets pass it by their paths. One with a description is a
//! member with a port for each of its links. It looks packets up by the addresses that the scenario gives to hosts
//! ([`address`]), along routes that follow the scenario's paths: its description brings none of its own, so that
//! what it forwards leaves by the next link of the packet's path. The caller of [`crate::assemble_with`] makes such
//! routers, as the pipeline belongs to another crate.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv4Addr;

use nilometer_wire::{Node, Rate};

use crate::packet::Packet;
use crate::refusal::Refusal;

/// The length of the network of a group of hosts.
pub const GROUP_PREFIX_LENGTH: u8 = 16;
/// Groups of hosts that have networks of their own, at most: 10.1.0.0/16 to 10.255.0.0/16.
pub const GROUPS_MAX: u32 = 255;

/// The address of host `number` of the group that is declared as number `group`, both from 0: 10.G.x.y, where G is
/// one more than the group's number. Beyond 65,534 hosts of a group the addresses repeat.
pub fn address(group: u32, number: u32) -> Ipv4Addr {
    let [high, low] = ((number % 65_534 + 1) as u16).to_be_bytes();
    Ipv4Addr::new(10, group as u8 + 1, high, low)
}

/// The network of a group of hosts.
pub fn network(group: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, group as u8 + 1, 0, 0)
}

/// A link of a router, which is one of its ports.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterLink {
    /// Its name.
    pub name: String,
    /// Its rate, out of the router.
    pub rate: Rate,
    /// The longest packet that it carries, bytes.
    pub mtu_bytes: u32,
    /// The groups of hosts that are reached by it, by their numbers.
    pub groups: Vec<u32>,
}

/// A router that has a description, and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterSite {
    /// Its name.
    pub name: String,
    /// The file of its description.
    pub file: String,
    /// Its links, in the order of its ports.
    pub links: Vec<RouterLink>,
}

/// What a router did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterAccount {
    /// Packets that came.
    pub received: u64,
    /// Packets that left.
    pub sent: u64,
    /// Packets that went no further, by reason.
    pub dropped: Vec<(String, u64)>,
    /// Packets that are in it.
    pub inside: u64,
    /// Packets that left with a mark of congestion (RFC 3168) that they did not bring.
    pub marked: u64,
    /// Whether that is all.
    pub is_balanced: bool,
}

/// A router as a member of a network.
pub trait Forwarder: Node<Packet> + fmt::Debug {
    /// Passes it the addresses of both ends of each flow, by its number: first the end that sends first.
    fn meet(&mut self, ends: &[[Ipv4Addr; 2]]);

    /// What it has done.
    fn account(&self) -> RouterAccount;
}

/// Makes the router of a place.
pub type MakeRouter<'a> = dyn FnMut(&RouterSite) -> Result<Box<dyn Forwarder>, Refusal> + 'a;
