//! What ports do for groups: the queries to their hosts, and the reports.
//!
//! Membership is queried by IGMP where the port has an IPv4 address, and by MLD where it has IPv6.
//! A message of either that comes to a port which serves groups ends here; on other ports it is
//! punted out of the forwarding plane, or discarded.

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::{Span, Time};

use super::port::{PortError, RouterPort};
use super::{Router, RouterError};
use crate::discard::Discard;
use crate::header::{AnyKey, ETHERNET_BYTES, Header, Key, protocol};
use crate::memory::{Memory, Place};
use crate::multicast::{GroupTable, Membership, Protocol, StaticError};
use crate::neighbour::FRAME_BYTES_MAX;

pub use super::multicast_plan::{MulticastError, MulticastPlan, StaticGroup};

/// ICMPv6 types of MLD (RFC 2710, 3; RFC 3810, 5).
const LISTENERS: [u8; 4] = [130, 131, 132, 143];

/// Groups of one family.
#[derive(Debug)]
pub(super) struct Side<A> {
    pub(super) table: GroupTable<A>,
    /// By port.
    memberships: Vec<Option<Membership<A>>>,
}

impl<A: Protocol> Side<A> {
    fn new(ports: usize) -> Side<A> {
        Side { table: GroupTable::new(), memberships: (0..ports).map(|_| None).collect() }
    }

    /// Takes the reports of hosts of `port` into the table.
    fn carry(&mut self, port: usize) {
        let Some(membership) = &mut self.memberships[port] else { return };
        while let Some(group) = membership.poll_changed() {
            self.table.refresh(port as u16, group, membership);
        }
    }

    fn stop(&mut self, port: usize) {
        self.memberships[port] = None;
        self.table.remove_port(port as u16);
    }

    /// The next message of `port` at `now`, and its length.
    fn poll_speech(&mut self, now: Time, port: usize, frame: &mut [u8]) -> Option<usize> {
        let membership = self.memberships[port].as_mut()?;
        if membership.poll_timeout().is_some_and(|due| due <= now) {
            membership.handle_timeout(now);
            self.carry(port);
        }
        self.memberships[port].as_mut()?.poll_transmit(frame)
    }

    fn timeouts(&self) -> impl Iterator<Item = Time> + '_ {
        self.memberships.iter().flatten().filter_map(Membership::poll_timeout)
    }
}

/// Groups of both families, and room to work in.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) side4: Side<u32>,
    pub(super) side6: Side<u128>,
    /// Of the packet in hand: the ports that want it, and its bytes.
    pub(super) outputs: Vec<u16>,
    pub(super) packet: Vec<u8>,
}

impl Groups {
    pub(super) fn new(ports: &[RouterPort]) -> Result<Groups, RouterError> {
        let (side4, side6) = (Side::new(ports.len()), Side::new(ports.len()));
        let mut groups = Groups { side4, side6, outputs: Vec::new(), packet: Vec::new() };
        for (number, port) in ports.iter().enumerate() {
            let Some(plan) = &port.plan.multicast else { continue };
            let started = groups.start(Time::ZERO, number, port, plan);
            let name = || port.plan.name.clone();
            started.map_err(|why| RouterError::Port(name(), PortError::Multicast(why)))?;
        }
        Ok(groups)
    }

    fn start(
        &mut self,
        now: Time,
        number: usize,
        port: &RouterPort,
        plan: &MulticastPlan,
    ) -> Result<(), MulticastError> {
        plan.igmp.check()?;
        plan.mld.check()?;
        if let Some(&(address, _)) = port.plan.addresses4.first() {
            let membership = Membership::new(now, plan.igmp, port.plan.mac, address)?;
            self.side4.memberships[number] = Some(membership);
        }
        if let Some(address) = port.plan.link_local() {
            // Not before the address has been tried (RFC 4862, 5.4).
            let tried = now + Span::from_secs(2) * u64::from(port.plan.address_probes);
            let membership = Membership::new(tried, plan.mld, port.plan.mac, address)?;
            self.side6.memberships[number] = Some(membership);
        }
        plan.groups.iter().try_for_each(|fixed| self.add(number, *fixed))
    }

    fn add(&mut self, port: usize, fixed: StaticGroup) -> Result<(), MulticastError> {
        let port = port as u16;
        let added = match (fixed.group, fixed.source) {
            (IpAddr::V4(group), None) => self.side4.table.add_static(port, group.into(), None),
            (IpAddr::V6(group), None) => self.side6.table.add_static(port, group.into(), None),
            (IpAddr::V4(group), Some(IpAddr::V4(source))) => {
                self.side4.table.add_static(port, group.into(), Some(source.into()))
            }
            (IpAddr::V6(group), Some(IpAddr::V6(source))) => {
                self.side6.table.add_static(port, group.into(), Some(source.into()))
            }
            _ => Err(StaticError::Source),
        };
        added.map_err(|why| MulticastError::Static(fixed, why))
    }

    pub(super) fn stop(&mut self, port: usize) {
        self.side4.stop(port);
        self.side6.stop(port);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.side4.timeouts().chain(self.side6.timeouts()).min()
    }
}

impl Router {
    /// Starts serving groups on a port, in place of earlier settings, or ends it. Memberships start
    /// afresh, and static groups are those of the plan.
    ///
    /// # Errors
    /// [`MulticastError`]; the port does nothing for groups then.
    ///
    /// # Panics
    /// Where there is no such port; also in what follows.
    pub fn set_multicast(
        &mut self,
        now: Time,
        port: usize,
        plan: Option<MulticastPlan>,
    ) -> Result<(), MulticastError> {
        self.groups.stop(port);
        self.ports[port].plan.multicast = None;
        let Some(plan) = plan else { return Ok(()) };
        if let Err(why) = self.groups.start(now, port, &self.ports[port], &plan) {
            self.groups.stop(port);
            return Err(why);
        }
        self.ports[port].plan.multicast = Some(plan);
        Ok(())
    }

    /// Forwards a group by a port whatever its hosts report.
    ///
    /// # Errors
    /// [`MulticastError`]; nothing has changed then.
    pub fn add_group(&mut self, port: usize, fixed: StaticGroup) -> Result<(), MulticastError> {
        let Some(plan) = &mut self.ports[port].plan.multicast else {
            return Err(MulticastError::Off);
        };
        self.groups.add(port, fixed)?;
        if !plan.groups.contains(&fixed) {
            plan.groups.push(fixed);
        }
        Ok(())
    }

    /// Ends what [`Router::add_group`] or the plan began; whether there was anything to end.
    pub fn remove_group(&mut self, port: usize, fixed: StaticGroup) -> bool {
        let Some(plan) = &mut self.ports[port].plan.multicast else { return false };
        plan.groups.retain(|there| *there != fixed);
        let (side4, side6, port) = (&mut self.groups.side4, &mut self.groups.side6, port as u16);
        match (fixed.group, fixed.source) {
            (IpAddr::V4(group), None) => side4.table.remove_static(port, group.into(), None),
            (IpAddr::V6(group), None) => side6.table.remove_static(port, group.into(), None),
            (IpAddr::V4(group), Some(IpAddr::V4(source))) => {
                side4.table.remove_static(port, group.into(), Some(source.into()))
            }
            (IpAddr::V6(group), Some(IpAddr::V6(source))) => {
                side6.table.remove_static(port, group.into(), Some(source.into()))
            }
            _ => false,
        }
    }

    /// The groups of IPv4 that some port wants.
    pub fn groups4(&self) -> &GroupTable<u32> {
        &self.groups.side4.table
    }

    /// The groups of IPv6 that some port wants.
    pub fn groups6(&self) -> &GroupTable<u128> {
        &self.groups.side6.table
    }

    /// The memberships that hosts of a port reported by IGMP; nothing where multicast is off or it
    /// has no IPv4 address.
    pub fn membership4(&self, port: usize) -> Option<&Membership<u32>> {
        self.groups.side4.memberships[port].as_ref()
    }

    /// The memberships that hosts of a port reported by MLD; nothing where multicast is off or it
    /// has no IPv6 address.
    pub fn membership6(&self, port: usize) -> Option<&Membership<u128>> {
        self.groups.side6.memberships[port].as_ref()
    }

    /// A frame for many, or for a group that never leaves its link: whether it was of IGMP or MLD, on a
    /// port that serves groups, and is at its end.
    pub(super) fn take_membership<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        place: Place,
        memory: &mut M,
    ) -> bool {
        let frame = memory.frame(place);
        let Ok(header) = Header::read(frame) else { return false };
        let Groups { side4, side6, .. } = &mut self.groups;
        match (header.key, &mut side4.memberships[input], &mut side6.memberships[input]) {
            (AnyKey::V4(key), Some(membership), _) if key.protocol == protocol::IGMP => {
                membership.receive(now, frame);
                side4.carry(input);
            }
            (AnyKey::V6(key), _, Some(membership)) if is_mld(frame, &key, &header) => {
                membership.receive(now, frame);
                side6.carry(input);
            }
            _ => return false,
        }
        self.absorb(place, memory);
        true
    }

    /// Timers of memberships, and the questions that follow from them.
    pub(super) fn serve_groups<M: Memory>(&mut self, now: Time, memory: &mut M) {
        let mut frame = [0; FRAME_BYTES_MAX];
        for port in 0..self.ports.len() {
            while let Some(bytes) = self.poll_groups(now, port, &mut frame) {
                if !self.ports[port].is_up {
                    self.refuse_copy(port, Discard::PortDown);
                } else if let Some(place) = self.made(port, bytes as u16, memory) {
                    memory.frame_mut(place).copy_from_slice(&frame[..bytes]);
                    self.send_frame(now, (port, port), place, memory);
                }
            }
        }
    }

    fn poll_groups(&mut self, now: Time, port: usize, frame: &mut [u8]) -> Option<usize> {
        let Groups { side4, side6, .. } = &mut self.groups;
        side4.poll_speech(now, port, frame).or_else(|| side6.poll_speech(now, port, frame))
    }
}

/// Whether the packet is of MLD.
pub(super) fn is_mld(frame: &[u8], key: &Key<u128>, header: &Header) -> bool {
    let kind = frame.get(ETHERNET_BYTES + usize::from(header.transport_at));
    key.protocol == protocol::ICMPV6 && kind.is_some_and(|kind| LISTENERS.contains(kind))
}
