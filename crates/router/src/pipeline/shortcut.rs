//! Shortcuts: what the pipeline would do with the next packet of a flow, said beforehand.
//!
//! Packets of a flow are told apart from each other by little: how long they are, what time they have left
//! to live, whether their headers are sound. Whoever can test that, and knows what the pipeline does with
//! a sound packet of the flow, can forward it in the pipeline's place: closer to the wire, and for less. The
//! pipeline is asked with a flow's addresses and ports, and answers with a [`Shortcut`], or with none where
//! it wants to see the packets itself:
//!
//! ```text
//!   a filter denies, copies, reserves, or looks at TCP's flags
//!   an address is a martian, a group, a broadcast, the router's own; or the way back is another
//!   the route leads nowhere, back to where the packet came from, or its neighbour must be asked for
//!   the link that it leaves by has a rate or a length, so that packets must queue for it
//! ```
//!
//! To ask does what a packet would do to timers of neighbours, and counts nothing. What took the shortcut is
//! told afterwards ([`Router::credit`]), so that every account is as if it had passed here. An answer holds
//! until something changes that it rests on: routes, next hops, filters, ports. Whoever keeps it asks again
//! when one of these has changed, and about a neighbour now and then ([`Router::still_leads`]).

use nilometer_wire::{Span, Time};

use super::Router;
use super::adjacency::Kept;
use super::decide::mac_of;
use super::version::Version;
use crate::classifier::{Action, RuleId};
use crate::forward::ecmp::flow_hash_ipv4;
use crate::header::{ETHERNET_BYTES, Key, protocol};
use crate::neighbour::{Handle, Mac};

/// What becomes of every sound packet of a flow that fits the link and has time left to live.
#[derive(Clone, Copy, Debug)]
pub struct Shortcut {
    /// The port that it leaves by.
    pub output: u16,
    /// The link-layer address that it leaves from.
    pub from: Mac,
    /// The link-layer address that it goes to.
    pub to: Mac,
    /// The largest IP packet of that link, in bytes. A larger one has to pass the pipeline.
    pub mtu_bytes: u16,
    /// The filter that permits it, if one does.
    filter: Option<RuleId>,
    /// The neighbour's entry that `to` is from.
    handle: Handle,
}

/// The same way, by the same filter.
impl PartialEq for Shortcut {
    fn eq(&self, other: &Shortcut) -> bool {
        let what = |one: &Shortcut| (one.output, one.from, one.to, one.mtu_bytes, one.filter);
        what(self) == what(other)
    }
}

impl Router {
    /// The shortcut of a flow of unfragmented IPv4 packets without options that come by `input`, if it may
    /// have one.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn shortcut(&mut self, now: Time, input: usize, key: &Key<u32>) -> Option<Shortcut> {
        let filter = self.permits(input, key)?;
        let next = u32::route(self, key.destination)?;
        if self.ports[input].asks {
            self.admit(input, key.source, Some(next)).ok()?;
        }
        let hash = flow_hash_ipv4(self.plan.seed, key, 0);
        let (output, gateway, hop) = self.way(next, hash).ok()?;
        let number = usize::from(output);
        let is_straight = self.fabric.rate(number).is_none()
            && self.fabric.delay(number) == Span::ZERO
            && self.ports[number].is_open
            && number != input;
        if !is_straight {
            return None;
        }
        let (to, handle) = match gateway {
            Some(gateway) => {
                let to = self.mac_of_gateway(now, output, gateway, hop).ok()?;
                let kept = self.adjacencies.of(hop);
                // (A gateway of IPv6 is no shortcut's: its entry stands in another table.)
                (to, (!kept.is_six).then_some(kept.handle)?)
            }
            None => {
                let table = u32::table(&mut self.ports[number]);
                mac_of(table.lookup(now, key.destination), output, key.destination.address())
                    .ok()?
            }
        };
        let plan = &self.ports[number].plan;
        let (from, mtu_bytes) = (plan.mac, plan.mtu_bytes);
        Some(Shortcut { output, from, to, mtu_bytes, filter, handle })
    }

    /// The filter of a flow that may be forwarded unseen, as far as filters and addresses say.
    fn permits(&mut self, input: usize, key: &Key<u32>) -> Option<Option<RuleId>> {
        let port = self.ports.get(input).expect("who asks knows the ports");
        if !port.is_up || key.protocol == protocol::TCP && self.tables.filters4.ask_for_flags() {
            return None;
        }
        let mut found = [None];
        self.tables.filters4.classify(&[*key], &mut found);
        if let Some(filter) = self.tables.filters4.found(found[0])
            && (filter.action != Action::Permit || filter.is_copied)
        {
            return None;
        }
        let martians = self.plan.martians;
        let is_common = !key.source.is_broadcast(&self.broadcasts)
            && !key.source.is_martian_source(martians)
            && !key.destination.is_multicast()
            && !key.destination.is_martian_destination(martians);
        is_common.then_some(found[0])
    }

    /// Whether the neighbour that a shortcut leads to is still where it was, and the port that it leaves by
    /// open.
    pub fn still_leads(&self, shortcut: &Shortcut) -> bool {
        let port = &self.ports[usize::from(shortcut.output)];
        let Shortcut { handle, output, .. } = *shortcut;
        port.is_open && port.ready(Kept { handle, output, is_six: false, is_any: true }).is_some()
    }

    /// So many packets took a shortcut, of so many bytes from the IP header on.
    ///
    /// # Panics
    /// When there is no port `input`.
    pub fn credit(&mut self, input: usize, shortcut: &Shortcut, packets: u64, ip_bytes: u64) {
        self.account.received += packets;
        self.account.transmitted += packets;
        let frame_bytes = ip_bytes + packets * ETHERNET_BYTES as u64;
        let port = &mut self.ports[input];
        port.in_packets += packets;
        port.in_bytes += frame_bytes;
        let port = &mut self.ports[usize::from(shortcut.output)];
        port.shortcut_packets += packets;
        port.shortcut_bytes += frame_bytes + packets * u64::from(port.plan.overhead_bytes);
        if let Some(filter) = self.tables.filters4.found(shortcut.filter) {
            filter.packets += packets;
            filter.bytes += ip_bytes;
        }
    }
}
