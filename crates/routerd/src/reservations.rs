//! `[reservations]` of ROUTER.toml, and a reservation as the forwarding plane has it.

use std::net::IpAddr;

use anyhow::{Result, anyhow, bail, ensure};
use nilometer_queue::Contract;
use nilometer_reservation::message::plugins::is_class_name;
use nilometer_reservation::process::FlowFilter;
use nilometer_router::classifier::{Action, Classified, Inputs, Octet, Ports, Rule, RuleId};
use nilometer_router::fib::NextHop;
use nilometer_router::memory::Memory;
use nilometer_router::pipeline::Router;
use nilometer_router::pipeline::reserved::ReservedFlow;
use nilometer_router::{Address, Prefix};
use nilometer_sim::quantity::{de_span, ser_span};
use nilometer_wire::{Rate, Span, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A reserved queue holds what its rate carries in this time, its bucket, or a minimum number of bytes, whichever is
/// most.
const HELD: Span = Span::from_nanos(50_000_000);
const CAPACITY_BYTES_MIN: u32 = 16 << 10;
/// The upper limit of `reservations_max`.
const RESERVATIONS_MAX: usize = nilometer_queue::RESERVED_QUEUES_MAX as usize;

/// `[reservations]`: bandwidth that flows may reserve, by the API and by RSVP (RFC 2205).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReservationsSection {
    /// Whether the router takes part in RSVP, and in the one-packet flow setup.
    pub rsvp: bool,
    /// How much of a port's rate may be reserved, 1 to 100; of `fabric.link_rate` where the port has none.
    pub reservable_percent: u8,
    /// RSVP's refresh period R, 1 s to 10 min.
    #[serde(deserialize_with = "de_span", serialize_with = "ser_span")]
    pub refresh: Span,
    /// Which flows stay on their way when routes change: `explicit` are those with an explicit route, `reserved` all
    /// that have a reservation.
    pub pinning: PinningName,
    /// The most reservations, 1 to 4,096.
    pub reservations_max: usize,
    /// The plugin classes that one-packet flow setups may name, without versions; the router binds no others to their
    /// flows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
}

impl Default for ReservationsSection {
    fn default() -> ReservationsSection {
        ReservationsSection {
            rsvp: false,
            reservable_percent: 80,
            refresh: Span::from_secs(30),
            pinning: PinningName::Reserved,
            reservations_max: 1_024,
            plugins: Vec::new(),
        }
    }
}

/// Which flows are pinned to their path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PinningName {
    /// Flows with an explicit route.
    Explicit,
    /// All flows with a reservation.
    #[default]
    Reserved,
}

impl ReservationsSection {
    /// Checks that the numbers are in range.
    ///
    /// # Errors
    /// The first invalid field, by its name.
    pub fn check(&self) -> Result<()> {
        let percent = self.reservable_percent;
        ensure!(
            (1..=100).contains(&percent),
            "reservations.reservable_percent is {percent}; give 1 to 100"
        );
        let most = self.reservations_max;
        ensure!(
            (1..=RESERVATIONS_MAX).contains(&most),
            "reservations.reservations_max is {most}; give 1 to {RESERVATIONS_MAX}"
        );
        let refresh = self.refresh;
        ensure!(
            (Span::from_secs(1)..=Span::from_secs(600)).contains(&refresh),
            "reservations.refresh is {refresh}; give 1 s to 10 min"
        );
        match self.plugins.iter().find(|name| !is_class_name(name)) {
            Some(wrong) => {
                bail!("reservations.plugins: {wrong:?} is not a class; give names without versions")
            }
            None => Ok(()),
        }
    }
}

/// A filter of a reservation, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnteredFlow {
    /// The filter's number.
    pub rule: u32,
    /// Source address; none is any.
    pub source: Option<IpAddr>,
    /// Destination address.
    pub destination: IpAddr,
    /// IANA protocol number.
    pub protocol: u8,
    /// Source port; none is any.
    pub source_port: Option<u16>,
    /// Destination port; none is any.
    pub destination_port: Option<u16>,
}

impl EnteredFlow {
    /// These packets under this number.
    pub fn new(rule: u32, flow: &FlowFilter) -> EnteredFlow {
        let &FlowFilter { source, destination, protocol, source_port, destination_port } = flow;
        EnteredFlow { rule, source, destination, protocol, source_port, destination_port }
    }

    fn rule<A: Classified + Address>(&self, of: impl Fn(IpAddr) -> Option<A>) -> Option<Rule<A>> {
        let host = |address| Prefix::new(of(address)?, A::BITS);
        let ports = |port: Option<u16>| port.map_or(Ports::ANY, Ports::exact);
        let any = Rule::any(0, Action::Permit);
        Some(Rule {
            destination: host(self.destination)?,
            source: self.source.map_or(Some(any.source), host)?,
            protocol: Octet::exact(self.protocol),
            source_ports: ports(self.source_port),
            destination_ports: ports(self.destination_port),
            ..any
        })
    }
}

/// A reservation as the forwarding plane has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnteredReservation {
    /// Its reserved queue.
    pub queue: u16,
    /// The port of the queue.
    pub output: u16,
    /// The rate of its contract.
    pub rate_bps: u64,
    /// The bucket of its contract.
    pub bucket_bytes: u32,
    /// The input ports of its packets; none are all.
    pub inputs: Vec<u16>,
    /// Its filters.
    pub flows: Vec<EnteredFlow>,
    /// The number of the next hop that its route is pinned to.
    pub pinned: Option<u16>,
}

impl EnteredReservation {
    fn contract(&self) -> Result<Contract> {
        let rate = Rate::new(self.rate_bps).ok_or_else(|| anyhow!("a rate of 0"))?;
        let held = rate.bytes_in(HELD) as u32;
        let capacity_bytes = held.max(self.bucket_bytes).max(CAPACITY_BYTES_MIN);
        Ok(Contract { rate, bucket_bytes: self.bucket_bytes, capacity_bytes })
    }

    fn enter(&self, router: &mut Router) -> Result<()> {
        ensure!(usize::from(self.output) < router.ports().len(), "there is no such port");
        let contract = self.contract()?;
        router.reserve(self.output.into(), self.queue, contract)?;
        let inputs = Inputs::of(self.inputs.iter().map(|input| usize::from(*input)));
        let inputs = inputs.unwrap_or(Inputs::ANY);
        let flow = ReservedFlow { queue: self.queue, pinned: self.pinned.map(NextHop) };
        for entered in &self.flows {
            let four = entered.rule::<u32>(|address| match address {
                IpAddr::V4(address) => Some(address.into()),
                IpAddr::V6(_) => None,
            });
            let six = entered.rule::<u128>(|address| match address {
                IpAddr::V4(_) => None,
                IpAddr::V6(address) => Some(address.into()),
            });
            router.reserved_mut().insert(RuleId(entered.rule), inputs, (four, six), flow)?;
        }
        Ok(())
    }
}

/// Replaces `old` by `new` between two packets; either may be absent. A queue that both have keeps its packets.
///
/// # Errors
/// When there is no such port, or no room.
pub fn exchange<M: Memory>(
    (now, router, memory): (Time, &mut Router, &mut M),
    old: Option<&EnteredReservation>,
    new: Option<&EnteredReservation>,
) -> Result<()> {
    if let Some(old) = old {
        for entered in &old.flows {
            router.reserved_mut().remove(RuleId(entered.rule));
        }
        let is_same = |new: &EnteredReservation| (new.output, new.queue) == (old.output, old.queue);
        if !new.is_some_and(is_same) && usize::from(old.output) < router.ports().len() {
            router.unreserve(now, old.output.into(), old.queue, memory);
        }
    }
    new.map_or(Ok(()), |new| new.enter(router))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RouterConfig;
    use crate::machine::{Machine, rsvp_settings};
    use nilometer_wire::memory::HeapMemory;

    fn config() -> RouterConfig {
        let text = "[[port]]\ninterface = \"a\"\naddresses = [\"198.18.0.1/24\"]\nrate = \"10 Mb/s\"\n\
                    overhead_bytes = 24\n[[port]]\ninterface = \"b\"\n[reservations]\nrsvp = true\n";
        toml::from_str(text).expect("a configuration")
    }

    #[test]
    fn the_process_is_made_of_the_ports() {
        let settings = rsvp_settings(&config(), &[1_500, 9_000]);
        let [a, b] = &settings.interfaces[..] else { panic!("two ports") };
        assert_eq!(
            (a.capacity, a.overhead_bytes, a.mtu_bytes),
            (Rate::from_megabits(10), 38, 1_500)
        );
        assert_eq!((b.capacity, b.mtu_bytes), (config().fabric.link_rate, 9_000));
        assert_eq!(a.addresses, ["198.18.0.1".parse::<IpAddr>().expect("an address")]);
    }

    #[test]
    fn invalid_numbers_are_refused_by_name() {
        let section = ReservationsSection::default();
        assert!(section.check().is_ok());
        let bad = [
            (
                ReservationsSection { reservable_percent: 0, ..section.clone() },
                "reservable_percent",
            ),
            (
                ReservationsSection { reservations_max: 5_000, ..section.clone() },
                "reservations_max",
            ),
            (ReservationsSection { refresh: Span::ZERO, ..section.clone() }, "refresh"),
            (ReservationsSection { plugins: vec!["nat@1".into()], ..section.clone() }, "plugins"),
        ];
        for (section, key) in bad {
            let why = section.check().expect_err(key).to_string();
            assert!(why.contains(key), "{why}");
        }
    }

    #[test]
    fn a_reservation_is_entered_exchanged_and_taken_out() {
        let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        let machine = Machine::without_devices(&config(), &macs.map(|mac| (mac, 1_500)));
        let mut router = machine.expect("a router").router;
        let mut memory = HeapMemory::new(16);
        let flow = FlowFilter {
            source: None,
            destination: "198.18.1.9".parse().expect("an address"),
            protocol: 17,
            source_port: None,
            destination_port: Some(5_004),
        };
        let one = EnteredReservation {
            queue: 3,
            output: 1,
            rate_bps: 8_000_000,
            bucket_bytes: 3_000,
            inputs: vec![0],
            flows: vec![EnteredFlow::new(7, &flow)],
            pinned: None,
        };
        let mut change = |old: Option<&EnteredReservation>, new: Option<&EnteredReservation>| {
            exchange((Time::ZERO, &mut router, &mut memory), old, new).expect("room");
            let queues = router.fabric().reserved(1);
            let state = queues.state(3).map(|state| state.contract.rate.bits_per_second());
            (state, queues.contracts(), router.reserved().met(RuleId(7)).is_some())
        };
        assert_eq!(change(None, Some(&one)), (Some(8_000_000), 1, true));
        let other = EnteredReservation { rate_bps: 4_000_000, ..one.clone() };
        assert_eq!(change(Some(&one), Some(&other)), (Some(4_000_000), 1, true));
        let moved = EnteredReservation { output: 0, ..other.clone() };
        assert_eq!(change(Some(&other), Some(&moved)), (None, 0, true));
        assert_eq!(change(Some(&moved), None), (None, 0, false));
        assert!(router.reserved().is_empty());
    }
}
