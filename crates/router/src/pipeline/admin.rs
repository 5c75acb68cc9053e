//! Changes to a running router: links that go down and come up, other addresses, ports that come and
//! go.
//!
//! The fabric has as many ports as it was made with, and distributed queueing has a row and a column
//! for each. So a port that is to be plugged in later is reserved from the start
//! ([`PortPlan::vacant`]): it is down, unused, and costs its place in the arrays. What is
//! pulled out becomes vacant again.
//!
//! Packets that wait for a port that goes down are stale when it comes up again. Packets that wait
//! for a neighbour's address are discarded at once. Those in the queues of the fabric are discarded
//! as fast as the link would have sent them, so that the fabric's accounts stay those of a working
//! link. Routes are not the forwarding plane's: the owner of the next hops lets them fail over
//! ([`crate::NextHops::fail`] with [`crate::Point::Port`]) and hands in the new [`crate::Snapshot`].

use nilometer_wire::Time;

use super::port::{self, PortError, PortPlan, RouterPort};
use super::{Rfc1812Settings, Router};
use crate::discard::Discard;
use crate::memory::{Memory, Place};

/// Why a change was refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The router has no port of this number.
    #[error("there is no port {0}")]
    NoPort(usize),
    /// The port is in use: unplug it first.
    #[error("port {0} is in use; unplug it first")]
    Occupied(usize),
    /// The port is vacant: plug it in first.
    #[error("port {0} is vacant; plug it in first")]
    Vacant(usize),
    /// Packets of the port's last user are still on their way out.
    #[error("packets of the last user of port {0} are on their way; try again")]
    Draining(usize),
    /// The port cannot be so.
    #[error(transparent)]
    Port(#[from] PortError),
}

impl Router {
    /// The link of `port` has gone down or come up. When down, it forgets its neighbours except
    /// static ones, and neither sends nor receives ([`Discard::PortDown`]). When up, it announces
    /// its addresses, those of IPv6 after duplicate detection (RFC 4862, 5.4).
    ///
    /// # Errors
    /// Where there is no such port, or it is not plugged in.
    pub fn set_link<M: Memory>(
        &mut self,
        now: Time,
        port: usize,
        is_up: bool,
        memory: &mut M,
    ) -> Result<(), Refusal> {
        let there = self.occupied(port)?;
        match (there.is_up, is_up) {
            (false, true) => {
                there.wake(now)?;
                self.ask_groups(now, port)?;
            }
            (true, false) => self.take_down(port, memory),
            _ => {}
        }
        Ok(())
    }

    /// Gives `port` these addresses in place of those it has, each with the length of its network.
    /// Addresses that stay are not disturbed; new ones are announced, those of IPv6 after duplicate
    /// detection.
    ///
    /// # Errors
    /// Where there is no such port, or the addresses are invalid.
    pub fn set_addresses(
        &mut self,
        now: Time,
        port: usize,
        addresses4: &[(u32, u8)],
        addresses6: &[(u128, u8)],
    ) -> Result<(), Refusal> {
        let there = self.occupied(port)?;
        let plan = PortPlan {
            addresses4: addresses4.to_vec(),
            addresses6: addresses6.to_vec(),
            ..there.plan.clone()
        };
        let speaker = |plan: &PortPlan| (plan.addresses4.first().copied(), plan.link_local());
        let speaks_anew = speaker(&there.plan) != speaker(&plan);
        there.readdress(now, plan)?;
        self.broadcasts = port::broadcasts(&self.ports);
        if speaks_anew { self.ask_groups(now, port) } else { Ok(()) }
    }

    /// Gives the link of `port` another MTU.
    ///
    /// # Errors
    /// Where there is no such port, or it is out of range ([`PortError::Mtu`], [`PortError::Mtu6`]).
    pub fn set_mtu(&mut self, port: usize, mtu_bytes: u16) -> Result<(), Refusal> {
        let there = self.occupied(port)?;
        let plan = PortPlan { mtu_bytes, ..there.plan.clone() };
        plan.own()?;
        there.plan = plan;
        Ok(())
    }

    /// Changes the settings for RFC 1812, except the bounds of reassembly, which stay as they were.
    pub fn set_rfc1812(&mut self, settings: Rfc1812Settings) {
        let reporter = &mut self.slow.reporter;
        reporter.set_hop_limit(settings.hop_limit);
        reporter.set_answers_echo(settings.answers_echo);
        reporter.set_limits(settings.limits);
        let reassembly = self.plan.rfc1812.reassembly;
        self.plan.rfc1812 = Rfc1812Settings { reassembly, ..settings };
    }

    /// Plugs a port in where one is vacant; its link is up. Its counters begin at zero, and its
    /// discipline is that of the place ([`crate::Fabric::set_discipline`] gives it another).
    ///
    /// # Errors
    /// Where there is no vacant port of this number, or the description is invalid.
    pub fn plug(&mut self, now: Time, port: usize, plan: PortPlan) -> Result<(), Refusal> {
        let there = self.ports.get(port).ok_or(Refusal::NoPort(port))?;
        if !there.plan.is_vacant {
            return Err(Refusal::Occupied(port));
        }
        let inputs = 0..self.ports.len();
        let waits = |input: usize| self.fabric.input_backlog_bytes(input)[port] > 0;
        if self.fabric.waiting(port).packets > 0 || inputs.into_iter().any(waits) {
            return Err(Refusal::Draining(port));
        }
        let (rate, burst_bytes, delay) = (plan.rate, plan.burst_bytes, plan.delay);
        let plan = PortPlan { is_vacant: false, ..plan };
        let labels = there.labels;
        self.ports[port] = RouterPort::new(now, plan, self.plan.seed ^ port as u64)?;
        self.ports[port].labels = labels;
        self.fabric.set_rate(port, rate);
        self.fabric.set_burst(port, burst_bytes);
        self.fabric.set_delay(port, delay);
        // Handles of the last user's neighbours could be taken for those of the new one's.
        self.adjacencies.renew(&self.hops);
        self.broadcasts = port::broadcasts(&self.ports);
        let queried = self.ask_groups(now, port);
        if queried.is_err() {
            self.ports[port].vacate();
        }
        queried
    }

    /// Pulls a port out: its link goes down, punted packets that wait are discarded, and its
    /// place is vacant.
    ///
    /// # Errors
    /// Where there is no such port, or it is vacant already.
    pub fn unplug<M: Memory>(&mut self, port: usize, memory: &mut M) -> Result<(), Refusal> {
        self.occupied(port)?;
        self.take_down(port, memory);
        while let Some(place) = self.ports[port].punt.pop_front() {
            self.discard(port, place, Discard::PortDown, memory);
        }
        self.groups.stop(port);
        self.ports[port].vacate();
        self.broadcasts = port::broadcasts(&self.ports);
        Ok(())
    }

    /// Queries the hosts of `port` for their groups as if it had just started, where it serves any.
    fn ask_groups(&mut self, now: Time, port: usize) -> Result<(), Refusal> {
        let plan = self.ports[port].plan.multicast.clone();
        let queried = self.set_multicast(now, port, plan);
        queried.map_err(|why| Refusal::Port(PortError::Multicast(why)))
    }

    fn occupied(&mut self, port: usize) -> Result<&mut RouterPort, Refusal> {
        let there = self.ports.get_mut(port).ok_or(Refusal::NoPort(port))?;
        if there.plan.is_vacant { Err(Refusal::Vacant(port)) } else { Ok(there) }
    }

    fn take_down<M: Memory>(&mut self, port: usize, memory: &mut M) {
        self.ports[port].sleep();
        while let Some(held) = self.ports[port].poll_held() {
            self.discard(usize::from(held.input), held.ticket.place, Discard::PortDown, memory);
        }
    }

    /// Frames that came to a port whose link is down.
    pub(super) fn receive_down<M: Memory>(
        &mut self,
        input: usize,
        frames: &[Place],
        memory: &mut M,
    ) {
        self.account.received += frames.len() as u64;
        for &place in frames {
            self.ports[input].in_packets += 1;
            self.ports[input].in_bytes += u64::from(place.bytes);
            self.discard(input, place, Discard::PortDown, memory);
        }
    }

    /// Discards the packets that links that are down would have sent by `now`.
    pub(super) fn drain_down<M: Memory>(&mut self, now: Time, memory: &mut M) {
        for port in 0..self.ports.len() {
            if self.ports[port].is_up {
                continue;
            }
            while let Some(ticket) =
                self.fabric.transmit(now, port, &mut super::ReturnBuffers(memory))
            {
                self.discard(port, ticket.place, Discard::PortDown, memory);
            }
        }
    }
}
