//! The slow path: the work that the fast path does not do.
//!
//! A bounded queue stands before it, and it is served between batches, [`SERVED_AT_ONCE`] packets at a
//! time. So a flood of packets with options, or to absent hosts, costs those packets and not the
//! plain ones: when the queue is full they are discarded and counted as such, at the cheapest point.
//! Messages of ARP and neighbour discovery have a queue of their own: without them nothing is
//! forwarded for long, and a flood of anything else must not crowd them out. Each is served its share
//! in every turn, so that neither can be starved by the other.

use alloc::collections::VecDeque;

use nilometer_wire::Time;

use super::port::PUNT_MAX;
use super::{Rfc1812Settings, Router};
use crate::discard::Discard;
use crate::forward::reassemble::{self, Reassembler};
use crate::forward::report::Reporter;
use crate::memory::{Memory, Place};

/// Packets that may wait for the slow path.
pub const SLOW_MAX: usize = 512;
/// Packets that it serves between two batches.
pub const SERVED_AT_ONCE: usize = 64;
/// Frames of ARP and neighbour discovery that may wait beside them.
pub const NEIGHBOURLY_MAX: usize = 512;
/// How many of those are served between two batches, before the others.
pub const NEIGHBOURLY_AT_ONCE: usize = 32;
/// Copies that may wait for management.
pub const COPIES_MAX: usize = 512;

/// Why a packet left the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowPathReason {
    /// An ARP frame.
    Arp,
    /// A message of neighbour discovery.
    Discovery,
    /// An IP packet in a frame for many.
    LinkBroadcast,
    /// For a group of receivers.
    Group,
    /// For the router itself.
    Local,
    /// For a link that is no port, which only the kernel has.
    KernelLink,
    /// Options or a hop-by-hop header.
    Options,
    /// Its time to live is used up.
    Expired,
    /// It does not fit the link of this port.
    TooBig(u16),
    /// No route.
    NoRoute,
    /// An unreachable route, or one whose ways are all down.
    Unreachable,
    /// A prohibited route.
    Prohibited,
    /// The next hop does not answer.
    HostUnreachable,
    /// A filter denies it, and its sender is to get an ICMP error.
    Denied,
    /// From an address of one link to one beyond it (RFC 4007, 9).
    BeyondScope,
}

/// The queue, and the writer of ICMP messages.
#[derive(Debug)]
pub(super) struct SlowPath {
    queue: VecDeque<(usize, Place, SlowPathReason)>,
    /// Of ARP and neighbour discovery.
    neighbourly: VecDeque<(usize, Place, SlowPathReason)>,
    /// Copies for management, with the port that they came by.
    copies: VecDeque<(usize, Place)>,
    pub(super) reporter: Reporter,
    /// For fragments addressed to the router.
    pub(super) reassembler: Reassembler,
    /// Packets of IPv6 that were sent in fragments.
    pub(super) identification: u64,
}

impl SlowPath {
    pub(super) fn new(seed: u64, settings: &Rfc1812Settings) -> SlowPath {
        let mut reporter = Reporter::new(settings.limits, seed);
        reporter.set_hop_limit(settings.hop_limit);
        reporter.set_answers_echo(settings.answers_echo);
        let reassembler = Reassembler::new(settings.reassembly);
        SlowPath {
            queue: VecDeque::new(),
            neighbourly: VecDeque::new(),
            copies: VecDeque::new(),
            reporter,
            reassembler,
            identification: 0,
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let is_idle = self.queue.is_empty() && self.neighbourly.is_empty();
        let waits = (!is_idle).then_some(Time::ZERO);
        waits.into_iter().chain(self.reassembler.next_timeout()).min()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.neighbourly.len() + self.copies.len()
    }
}

impl Router {
    /// A packet leaves the fast path for the queue of the slow one.
    pub(super) fn shunt<M: Memory>(
        &mut self,
        input: usize,
        place: Place,
        why: SlowPathReason,
        memory: &mut M,
    ) {
        let (queue, most) = match why {
            SlowPathReason::Arp | SlowPathReason::Discovery => {
                (&mut self.slow.neighbourly, NEIGHBOURLY_MAX)
            }
            _ => (&mut self.slow.queue, SLOW_MAX),
        };
        if queue.len() >= most {
            return self.discard(input, place, Discard::SlowPathFull, memory);
        }
        queue.push_back((input, place, why));
        self.account.by_slow_path += 1;
    }

    /// Serves some of those that wait.
    pub(super) fn serve_slow<M: Memory>(&mut self, now: Time, memory: &mut M) {
        self.expire_fragments(now, memory);
        for _ in 0..NEIGHBOURLY_AT_ONCE {
            let Some((input, place, why)) = self.slow.neighbourly.pop_front() else { break };
            self.serve(now, input, place, why, memory);
        }
        for _ in 0..SERVED_AT_ONCE {
            let Some((input, place, why)) = self.slow.queue.pop_front() else { break };
            self.serve(now, input, place, why, memory);
        }
    }

    fn serve<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        why: SlowPathReason,
        memory: &mut M,
    ) {
        if matches!(why, SlowPathReason::Local | SlowPathReason::Options)
            && self.take_signalling(why == SlowPathReason::Local, (input, place), memory)
        {
            return;
        }
        match why {
            SlowPathReason::Arp => self.take_arp(now, input, place, memory),
            SlowPathReason::Local => self.take_own(now, input, place, memory),
            SlowPathReason::Discovery => self.take_discovery(now, input, place, memory),
            SlowPathReason::LinkBroadcast => self.take_for_many(now, input, place, memory),
            SlowPathReason::Group => self.punt(input, place, Discard::NoGroup, memory),
            SlowPathReason::Options => self.process_options(now, input, place, memory),
            SlowPathReason::TooBig(output) => self.fit(now, input, output, place, memory),
            _ => self.complain(now, input, place, why, memory),
        }
    }

    /// Punts a packet out of the forwarding plane; where punting is off it is discarded for `why`.
    pub(super) fn punt<M: Memory>(
        &mut self,
        input: usize,
        place: Place,
        why: Discard,
        memory: &mut M,
    ) {
        let port = &mut self.ports[input];
        if !port.plan.is_punting {
            return self.discard(input, place, why, memory);
        }
        if port.punt.len() >= PUNT_MAX {
            return self.discard(input, place, Discard::PuntFull, memory);
        }
        port.punt.push_back(place);
    }

    /// The next punted packet of `port`; the caller then owns its buffer.
    /// Panics where there is no such port.
    pub fn poll_punted(&mut self, port: usize) -> Option<Place> {
        let place = self.ports[port].punt.pop_front()?;
        self.account.punted += 1;
        Some(place)
    }

    /// A frame injected from beside the forwarding plane, to be sent by `port` as it is. Panics where
    /// there is no such port.
    pub fn inject<M: Memory>(&mut self, now: Time, port: usize, place: Place, memory: &mut M) {
        self.account.injected += 1;
        self.send_frame(now, (port, port), place, memory);
    }

    /// A copy that a filter requested, with the port by which the packet came; the caller has its
    /// buffer then.
    pub fn poll_copy(&mut self) -> Option<(usize, Place)> {
        let copy = self.slow.copies.pop_front()?;
        self.account.punted += 1;
        Some(copy)
    }

    /// Copies a packet for management, if there is room for a copy.
    pub(super) fn copy_to_management<M: Memory>(
        &mut self,
        input: usize,
        place: Place,
        memory: &mut M,
    ) {
        if self.slow.copies.len() < COPIES_MAX
            && let Some(copy) = self.made(input, place.bytes, memory)
        {
            let bytes = memory.frame(place).to_vec();
            memory.frame_mut(copy).copy_from_slice(&bytes);
            self.slow.copies.push_back((input, copy));
        }
    }

    /// What became of all fragments addressed to the router.
    pub fn reassembly(&self) -> reassemble::ReassemblyCounters {
        self.slow.reassembler.account()
    }

    /// What became of all the ICMP messages that were requested.
    pub fn reports(&self) -> crate::forward::report::IcmpErrorCounters {
        self.slow.reporter.account()
    }
}

/// Milliseconds since the run began, marked as not standard: the router has no time of day.
pub(super) fn stamp(now: Time) -> u32 {
    (now.as_nanos() / 1_000_000) as u32 | crate::forward::options::NOT_STANDARD
}
