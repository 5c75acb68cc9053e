//! The common packet: nothing about it is a reason to stop, and all checks are made at once.
//!
//! [`Router::judge`](super::decide) makes one check after the other, each of which may lead somewhere
//! else. Nearly every packet passes all of them in the same way, and none of the checks changes anything.
//! So they can be combined, in any order, and a packet that is found common leaves as `judge` would have
//! let it. A packet that is not common has changed nothing, and `judge` starts it from the beginning.
//! What the loop reads of the router stays at hand from packet to packet, since nothing in the loop can
//! change it.

use alloc::vec::Vec;

use super::Router;
use super::batch::AHEAD;
use super::decide::rewrite;
use super::lane::Lane;
use super::version::Version;
use crate::classifier::Action;
use crate::forward::hop;
use crate::header;
use crate::memory::{Memory, Ticket};

impl Router {
    /// Decides on the packets of a lane from `at` on until one is not common; returns which one that is.
    #[inline(always)]
    pub(super) fn decide_common<A: Version, M: Memory>(
        &mut self,
        input: usize,
        lane: &Lane<A>,
        at: usize,
        decided: &mut Vec<(u16, Ticket)>,
        memory: &mut M,
    ) -> usize {
        let Router { ports, tables, hops, adjacencies, broadcasts, .. } = self;
        let filters = A::filters(tables);
        // (A fragment is odd only where it may hide the flags that a filter matches on.)
        let odd = match filters.ask_for_flags(input) {
            true => header::OPTIONS | header::FRAGMENT,
            false => header::OPTIONS,
        };
        let packets = if ports[input].asks { at } else { lane.packets };
        let (briefs, keys) = (&lane.briefs[..packets], &lane.keys[..packets]);
        let (rules, next_hops) = (&lane.rules[..packets], &lane.next[..packets]);
        for at in at..packets {
            if at + AHEAD < packets {
                memory.expect(briefs[at + AHEAD].place);
                filters.ask(rules[at + AHEAD]);
            }
            let (brief, key) = (&briefs[at], &keys[at]);
            let Some(next) = next_hops[at] else { return at };
            let kept = adjacencies.find(hops, next, brief.hash);
            let Some(port) = ports.get(usize::from(kept.output)) else { return at };
            let Some(link_address) = port.ready(kept) else { return at };
            let filter = filters.found(rules[at]);
            let is_let = |action, is_copied: bool| action != Action::Deny && !is_copied;
            if filter.as_ref().is_some_and(|filter| !is_let(filter.action, filter.is_copied))
                || key.source.is_broadcast(broadcasts)
                || !A::are_plain(key.source, key.destination)
                || brief.notes & odd != 0
                || hop::expires(brief.hop_limit)
                || brief.ip_bytes > port.plan.mtu_bytes
                || !port.is_open
                || A::is_of_redirects(port, key.source)
                    && usize::from(kept.output) == input
                    && port.plan.redirects
            {
                return at;
            }
            if let Some(filter) = filter {
                filter.count(brief.ip_bytes);
            }
            decided.push((kept.output, rewrite::<A, M>(&port.plan, brief, link_address, memory)));
        }
        packets
    }
}
