//! Shortcuts: what the pipeline would do with the next packet of a flow, determined beforehand.
//!
//! Packets of a flow differ from each other in little: their length, their time to live, whether their
//! headers are sound. Code that can test that, and knows what the pipeline does with a sound packet of the
//! flow, can forward it in the pipeline's place: closer to the wire, and for less. This is flow offload.
//! The pipeline is queried with a flow's addresses and ports, and answers with a
//! [`Shortcut`], or with none where it wants to see the packets itself.
//!
//! # The rule
//!
//! **Only what would pass untouched takes a shortcut**: what leaves at once, in the order in which it came,
//! changed in nothing but its hop limit and its link-layer addresses. A packet meets, in this order:
//!
//! ```text
//!   the device         a frame for another address, one cut short or too long: not sound, and not
//!                      the shortcut forwards it but the pipeline takes it
//!   the port           down, or without forwarding (RFC 1812, 5.3.11)              no shortcut
//!   the header         options, fragments, a checksum that is wrong, the last hop: not sound;
//!                      IPv6                                                        no shortcut
//!   the addresses      martians, groups, broadcasts, the router's own              no shortcut
//!   the filters        one of its port that denies, copies, looks at flags or
//!                      hands packets to plugins; any of an output             no shortcut
//!                      one that permits counts: credited afterwards
//!   the reservation    its flow has one                                            no shortcut
//!   the way back       another port than the one that it came by (RFC 3704)        no shortcut
//!   the route          none, one that rejects, or back to where it came from,
//!                      so that the sender may need a redirect                      no shortcut
//!                      several ways: the flow's own, by the same hash
//!   the neighbour      unknown, or its address is to be confirmed                  no shortcut
//!   the MTU            too long: not sound
//!   the fabric         distributed queueing: each link into the fabric has a rate,
//!                      and packets wait for grants                                 no shortcut
//!   the discipline     one that was configured, whichever it is: it counts,
//!                      marks, drops and reorders                                   no shortcut
//!                      the usual one: nothing waits where only the device limits
//!                      the link, so it has nothing to decide
//!   the link           a rate (and its burst), a length, packets on its wire       no shortcut
//! ```
//!
//! What is *not sound* comes to the pipeline packet by packet, whatever the flow has been granted. The last
//! three are one question to the fabric ([`crate::Fabric::is_transparent`]); the whole rule is in
//! [`Router::shortcut`] and nowhere else.
//!
//! A router uses distributed queueing unless its description says otherwise, so by default every packet
//! passes the pipeline. Switching it off, with no discipline and no rate configured, leaves nothing to
//! delay a packet.
//!
//! # Side effects and validity
//!
//! A query has the effect of a packet on neighbours' timers, and counts nothing. Packets that took the
//! shortcut are reported afterwards ([`Router::credit`]), so that every account is as if they had passed
//! here; that they did not is counted as well ([`super::account::Account::by_shortcut`]). An answer holds
//! until something that it depends on changes: routes, next hops, filters, ports, the fabric and its links.
//! A caller that keeps it queries again when one of these has changed, and about neighbour and link now and
//! then ([`Router::still_leads`]).

use nilometer_wire::Time;

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
        if number == input || !self.lets_pass(number) {
            return None;
        }
        let (to, handle) = match gateway {
            Some(gateway) => {
                let to = self.mac_of_gateway(now, output, gateway, hop).ok()?;
                let kept = self.adjacencies.of(hop);
                // (A shortcut cannot use an IPv6 gateway: its entry is in another table.)
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

    /// Whether there is a port to which flows may have shortcuts at all.
    pub fn may_offload(&self) -> bool {
        (0..self.ports.len()).any(|output| self.lets_pass(output))
    }

    /// Whether a packet for `output` leaves as it is and at once, with nothing to wait for.
    fn lets_pass(&self, output: usize) -> bool {
        self.ports[output].is_open && self.outputs.is_empty() && self.fabric.is_transparent(output)
    }

    /// The filter of a flow that may take a shortcut, as far as filters and addresses decide.
    fn permits(&mut self, input: usize, key: &Key<u32>) -> Option<Option<RuleId>> {
        let port = self.ports.get(input).expect("the caller knows the ports");
        if !port.is_up || key.protocol == protocol::TCP && self.tables.filters4.ask_for_flags(input)
        {
            return None;
        }
        let mut found = [None];
        self.tables.filters4.classify(input, &[*key], &mut found);
        if let Some(filter) = self.tables.filters4.found(found[0])
            && (filter.action != Action::Permit || filter.is_copied)
        {
            return None;
        }
        if self.reservation_for(input, *key).is_some() {
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
    /// open and without anything to wait for.
    pub fn still_leads(&self, shortcut: &Shortcut) -> bool {
        let port = &self.ports[usize::from(shortcut.output)];
        let Shortcut { handle, output, .. } = *shortcut;
        let kept = Kept { handle, output, is_six: false, is_any: true };
        self.lets_pass(output.into()) && port.ready(kept).is_some()
    }

    /// Counts `packets` packets that took a shortcut, with `ip_bytes` in all from the IP header on.
    ///
    /// # Panics
    /// When there is no port `input`.
    pub fn credit(&mut self, input: usize, shortcut: &Shortcut, packets: u64, ip_bytes: u64) {
        self.account.received += packets;
        self.account.transmitted += packets;
        self.account.by_shortcut += packets;
        let frame_bytes = ip_bytes + packets * ETHERNET_BYTES as u64;
        let port = &mut self.ports[input];
        port.in_packets += packets;
        port.in_bytes += frame_bytes;
        let port = &mut self.ports[usize::from(shortcut.output)];
        port.shortcut_packets += packets;
        port.shortcut_bytes += frame_bytes + packets * u64::from(port.plan.overhead_bytes);
        self.tables.filters4.credit(shortcut.filter, packets, ip_bytes);
    }
}
