//! Checks by a few packets whether a device is set up as the lab needs it.
//!
//! On each side the Ethernet address of the device's port is requested. Then a datagram is sent between two hosts in
//! each direction, once as short and once as long as the links allow. A missing packet is explained by what else is
//! seen at the two ends: the packet itself, sent back; an ICMP error; a request for an address that no host there has.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::{MacAddress, Netlink};
use nilometer_linux::testbed::{CLIENT_INTERFACE, SERVER_INTERFACE, Testbed, TestbedConfig};

use super::finding::{Finding, SideName, to_report};
use super::probe::{IcmpError, Probe, ProbePort, Seen};
use super::{LinkAddress, WiredRoute, Wiring};

/// How long a port may take to answer: a device's IPv6 addresses are tentative for a second or two after its link has
/// come up (RFC 4862 5.4).
const ANSWER_WITHIN: Duration = Duration::from_secs(6);
/// How often the request is repeated.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// How long a probe may take.
const ARRIVE_WITHIN: Duration = Duration::from_millis(400);
/// A device may drop the first packets while it resolves the next hop.
const TRIES: u32 = 4;
/// Tries for lengths between one that passes and one that does not: there are many, and each failure costs a wait.
const LENGTH_TRIES: u32 = 2;
/// How long a device may suppress an error for the next packet that it cannot forward (RFC 1812 4.3.2.8; Linux: a
/// second).
const ERROR_WITHIN: Duration = Duration::from_millis(1_200);
/// How long copies of a probe that has arrived are waited for.
const COPIES_WITHIN: Duration = Duration::from_millis(50);

/// Which versions of IP are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

impl Families {
    /// Those of these addresses.
    pub fn of(addresses: impl IntoIterator<Item = IpAddr>) -> Families {
        let none = Families { ipv4: false, ipv6: false };
        addresses.into_iter().fold(none, |all, address| Families {
            ipv4: all.ipv4 || address.is_ipv4(),
            ipv6: all.ipv6 || address.is_ipv6(),
        })
    }

    fn has(self, address: &IpAddr) -> bool {
        if address.is_ipv6() { self.ipv6 } else { self.ipv4 }
    }
}

/// Borrows the interfaces, tests the device, and gives them back; returns the problems, and what could not be
/// restored.
///
/// # Errors
/// Where the interfaces cannot be lent, or the kernel refuses something.
pub fn try_wiring(config: &TestbedConfig) -> Result<(Vec<Finding>, Vec<String>)> {
    let wiring = Wiring::of(config)?;
    let mut testbed = Testbed::build(config)?;
    if let Err(why) = testbed.raise() {
        return Ok((vec![Finding::LinkDown(format!("{why:#}"))], testbed.give_back()?));
    }
    let pools = config.clients.iter().chain(&config.servers);
    let families = Families::of(pools.map(|pool| pool.address()));
    let findings = find(&wiring, &testbed, config, families);
    let not_restored = testbed.give_back()?;
    Ok((findings?, not_restored))
}

/// Refuses a device that does not pass the traffic of these families.
///
/// # Errors
/// The first problem, and how to see the rest.
pub fn ensure_wired(testbed: &Testbed, config: &TestbedConfig, families: Families) -> Result<()> {
    let wiring = Wiring::of(config)?;
    let findings = find(&wiring, testbed, config, families)?;
    let Some(first) = findings.first() else { return Ok(()) };
    let more = match findings.len() {
        1 => String::new(),
        count => format!(" (and {} more, see nilometer lab wiring --check)", count - 1),
    };
    bail!("dut external: {first}{more}")
}

/// All that is wrong between the ends of a testbed that is up.
fn find(
    wiring: &Wiring,
    testbed: &Testbed,
    config: &TestbedConfig,
    families: Families,
) -> Result<Vec<Finding>> {
    let hosts = [(testbed.client(), CLIENT_INTERFACE), (testbed.server(), SERVER_INTERFACE)];
    let mut ends = Vec::new();
    for (namespace, interface) in hosts {
        let port = ProbePort::open(namespace, interface)?;
        ends.push(End { namespace, interface, port, seen: Vec::new() });
    }
    let [client, server] = <[End<'_>; 2]>::try_from(ends).ok().expect("two hosts have two ends");
    let ends = [client, server];
    // Probes of an earlier check in the device's queues must not be taken for ours.
    let number = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_micros() as u64);
    let mut check = Check { wiring, ends, next_hops: [[None; 2]; 2], number, findings: Vec::new() };
    // A box in front of the device may lose probes by itself; then its presence has to suffice.
    let pools = [&config.clients, &config.servers];
    let hosts_at = |number: usize, is_ipv6: bool| {
        let mut prefixes = pools[number].iter();
        let prefix = prefixes.find(|it| it.is_ipv6() == is_ipv6)?;
        let bits = if is_ipv6 { 128 } else { 32 } - u32::from(prefix.length());
        let last = 1_u128.checked_shl(bits).map_or(1, |size| size.saturating_sub(2).max(1));
        Some([prefix.nth(1)?, prefix.nth(last)?])
    };
    let hosts_of = |is_ipv6| {
        let [clients, servers] = [hosts_at(0, is_ipv6)?, hosts_at(1, is_ipv6)?];
        let pairs = [[clients[0], servers[0]], [clients[1], servers[1]]];
        families.has(&clients[0]).then_some((is_ipv6, pairs))
    };
    let tried: Vec<(bool, [[IpAddr; 2]; 2])> =
        [false, true].into_iter().filter_map(hosts_of).collect();
    let versions: Vec<bool> = tried.iter().map(|(is_ipv6, _)| *is_ipv6).collect();
    check.resolve(&versions)?;
    for (is_ipv6, hosts) in tried {
        if let Some(next_hops) = check.next_hops(is_ipv6)
            && !config.has_path
        {
            check.try_both_ways(hosts, next_hops)?;
        }
    }
    Ok(to_report(check.findings))
}

/// A host's end of its link to the device.
struct End<'a> {
    namespace: &'a Namespace,
    interface: &'static str,
    port: ProbePort,
    /// Frames received and not examined yet.
    seen: Vec<Seen>,
}

impl End<'_> {
    /// The owner of the address on this link, as far as is known; requests it where it is not.
    fn ask(&self, address: IpAddr) -> Result<Option<MacAddress>> {
        let interface = self.interface;
        self.namespace.enter(|| {
            let found = Netlink::open()?.neighbour(interface, address)?;
            if found.is_none() {
                let any = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
                let socket = UdpSocket::bind(any).context("cannot open a socket")?;
                // (The kernel resolves the neighbour first; it may know already that no host answers, which is no
                // error.)
                let _ = socket.send_to(&[0], (address, 9));
            }
            Ok(found)
        })
    }

    fn look(&mut self) -> Result<()> {
        let seen = self.port.seen()?;
        self.seen.extend(seen.into_iter().filter(|seen| *seen != Seen::Other));
        Ok(())
    }
}

struct Check<'a> {
    wiring: &'a Wiring,
    ends: [End<'a>; 2],
    /// By version of IP and side.
    next_hops: [[Option<MacAddress>; 2]; 2],
    number: u64,
    findings: Vec<Finding>,
}

/// What came of a probe.
#[derive(Debug, Default)]
struct Fate {
    /// The source and destination in it, each time that it arrived.
    arrived: Vec<[SocketAddr; 2]>,
    /// The source and destination when it was last sent.
    sent: Option<[SocketAddr; 2]>,
    came_back: bool,
    error: Option<(IpAddr, IcmpError)>,
}

/// One direction that is tried.
#[derive(Clone, Copy)]
struct Way {
    /// The side that sends.
    side: SideName,
    hosts: [IpAddr; 2],
    next_hop: MacAddress,
}

impl Way {
    fn source(&self) -> IpAddr {
        self.hosts[self.side.0]
    }

    fn destination(&self) -> IpAddr {
        self.hosts[self.side.other().0]
    }
}

impl Check<'_> {
    /// Adds a finding, which may have been made by packets of the other version of IP.
    fn add(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Resolves the next hops of both sides, until all have answered or the time is up.
    fn resolve(&mut self, families: &[bool]) -> Result<()> {
        let began = Instant::now();
        loop {
            let mut is_whole = true;
            for (side, &is_ipv6) in
                [0, 1].into_iter().flat_map(|side| families.iter().map(move |it| (side, it)))
            {
                let wired = self.wiring.sides()[side];
                let hop = &mut self.next_hops[usize::from(is_ipv6)][side];
                *hop = hop.or(wired.device_mac);
                if hop.is_some() {
                    continue;
                }
                if let Some(it) = next_hop_address(self.wiring, SideName(side), is_ipv6) {
                    *hop = self.ends[side].ask(it.address)?;
                }
                is_whole &= hop.is_some();
            }
            self.ends.iter_mut().try_for_each(End::look)?;
            if is_whole || began.elapsed() > ANSWER_WITHIN {
                return Ok(());
            }
            thread::sleep(ASK_EVERY);
        }
    }

    /// The next hops of both sides; where one does not answer none, and a finding.
    fn next_hops(&mut self, is_ipv6: bool) -> Option<[MacAddress; 2]> {
        let found = self.next_hops[usize::from(is_ipv6)];
        for side in [SideName(0), SideName(1)] {
            let device = next_hop_address(self.wiring, side, is_ipv6)?;
            if found[side.0].is_none() {
                let sides = self.wiring.sides();
                let interface = sides[side.0].interface.clone();
                let silent = match sides[side.0].device_addresses.is_empty() {
                    false => Finding::NoAnswer { interface, side, device },
                    true => Finding::HostSilent {
                        interface,
                        other: sides[side.other().0].interface.clone(),
                        address: device.address,
                    },
                };
                self.add(self.strays(side).unwrap_or(silent));
            }
        }
        Some([found[0]?, found[1]?])
    }

    /// The address that the device tries to resolve at one side, where no host has it.
    fn strays(&self, side: SideName) -> Option<Finding> {
        // (On one interface both hosts see all requests.)
        if self.wiring.is_one_armed() {
            return None;
        }
        let sides = self.wiring.sides();
        let interface = || sides[side.0].interface.clone();
        let own = &sides[side.0].host_addresses;
        let others = &sides[side.other().0].host_addresses;
        let device = &sides[side.0].device_addresses;
        let has =
            |list: &[LinkAddress], address: IpAddr| list.iter().any(|it| it.address == address);
        let via = own.iter().find(|it| it.address.is_ipv4())?.address;
        let net = |address: IpAddr| match address {
            IpAddr::V4(v4) => Some(u32::from(v4) >> 2),
            IpAddr::V6(_) => None,
        };
        self.ends[side.0].seen.iter().find_map(|seen| {
            let Seen::ArpRequest { target, .. } = seen else { return None };
            let target = IpAddr::V4(*target);
            if has(others, target) {
                return Some(Finding::Exchanged { interface: interface(), side, target });
            }
            let is_on_link = net(target) == net(via) && !has(own, target) && !has(device, target);
            is_on_link.then(|| Finding::WrongGateway { interface: interface(), target, via })
        })
    }

    /// Sends both ways between the first two hosts and between the last two, and adds the problems found.
    fn try_both_ways(
        &mut self,
        [hosts, last]: [[IpAddr; 2]; 2],
        next_hops: [MacAddress; 2],
    ) -> Result<()> {
        for side in [SideName(0), SideName(1)] {
            let next_hop = next_hops[side.0];
            let way = Way { side, hosts, next_hop };
            let finding = match self.try_short(&way)? {
                Some(finding) => Some(finding),
                None => self.try_long(&way)?,
            };
            let finding = match finding {
                Some(finding) => Some(finding),
                None => self.try_short(&Way { hosts: last, ..way })?,
            };
            finding.into_iter().for_each(|finding| self.add(finding));
        }
        Ok(())
    }

    fn try_short(&mut self, way: &Way) -> Result<Option<Finding>> {
        let fate = self.send(way, 0, TRIES)?;
        let (side, destination) = (way.side, way.destination());
        let interface = self.wiring.sides()[side.0].interface.clone();
        let route =
            self.wiring.routes.iter().find(|route| route.prefix.contains(destination)).copied();
        let Some(&arrived) = fate.arrived.first() else {
            return Ok(Some(self.why_lost(way, &fate, route)));
        };
        for (number, what) in ["source", "destination"].into_iter().enumerate() {
            let sent = fate.sent.context("what arrived was sent")?[number];
            let arrived = arrived[number];
            if arrived != sent {
                return Ok(Some(Finding::Translated { side, what, sent, arrived }));
            }
        }
        if fate.arrived.len() > 1 {
            return Ok(Some(Finding::Copied { side, copies: fate.arrived.len() }));
        }
        let sent_back = Finding::SentBack { interface, side, destination, route };
        Ok(fate.came_back.then_some(sent_back))
    }

    fn why_lost(&self, way: &Way, fate: &Fate, route: Option<WiredRoute>) -> Finding {
        let (side, destination) = (way.side, way.destination());
        let interface = self.wiring.sides()[side.0].interface.clone();
        if let (Some((from, what)), Some(route)) = (fate.error, route) {
            match what {
                IcmpError::NoRoute => return Finding::NoRoute { from, destination, route },
                IcmpError::Prohibited => return Finding::Prohibited { from, side },
                IcmpError::TimeExceeded => return Finding::Loop { from, destination, route },
                IcmpError::HostUnreachable => {
                    let stray = self.strays(side.other()).or_else(|| self.strays(side));
                    let unreachable = Finding::Unreachable { from, destination, route };
                    return stray.unwrap_or(unreachable);
                }
                IcmpError::TooBig => {}
            }
        }
        if fate.came_back {
            return Finding::SentBack { interface, side, destination, route };
        }
        let stray = self.strays(side.other()).or_else(|| self.strays(side));
        stray.unwrap_or(Finding::Lost { side, destination, route })
    }

    /// Whether packets as long as the links allow pass; the longest that do, where they do not.
    fn try_long(&mut self, way: &Way) -> Result<Option<Finding>> {
        let mut links = [0; 2];
        for (bytes, end) in links.iter_mut().zip(&self.ends) {
            *bytes = end.namespace.enter(|| Ok(Netlink::open()?.link(end.interface)?.mtu_bytes))?;
        }
        let (link_bytes, is_ipv6) = (links[0].min(links[1]), way.source().is_ipv6());
        if !self.send(way, link_bytes, TRIES)?.arrived.is_empty() {
            return Ok(None);
        }
        let (mut passes, mut fails) = (Probe::ip_bytes_min(is_ipv6), link_bytes);
        while passes + 1 < fails {
            let middle = passes.midpoint(fails);
            match self.send(way, middle, LENGTH_TRIES)?.arrived.is_empty() {
                true => fails = middle,
                false => passes = middle,
            }
        }
        // (Random loss does not depend on length.)
        if !self.send(way, link_bytes, TRIES)?.arrived.is_empty() {
            return Ok(None);
        }
        Ok(Some(Finding::SmallMtu { side: way.side, is_ipv6, passes_bytes: passes, link_bytes }))
    }

    /// Sends a probe of that many bytes, again until one arrives.
    fn send(&mut self, way: &Way, ip_bytes: u32, tries: u32) -> Result<Fate> {
        let mut fate = Fate::default();
        for again in 0..tries {
            if again > 1 && again + 1 == tries && fate.error.is_none() {
                thread::sleep(ERROR_WITHIN);
            }
            self.number += 1;
            let number = self.number;
            let (source, destination) = (way.source(), way.destination());
            let probe = Probe { number, source, destination, ip_bytes };
            fate.sent = Some([probe.from(), probe.to()]);
            self.ends.iter_mut().try_for_each(End::look)?;
            self.ends[way.side.0].port.send(&probe, way.next_hop)?;
            self.follow(way.side, &probe, &mut fate)?;
            if !fate.arrived.is_empty() {
                break;
            }
        }
        Ok(fate)
    }

    /// Looks for a probe at both ends.
    fn follow(&mut self, side: SideName, probe: &Probe, fate: &mut Fate) -> Result<()> {
        let mut until = Instant::now() + ARRIVE_WITHIN;
        while Instant::now() < until {
            self.ends.iter_mut().try_for_each(End::look)?;
            let is_probe =
                |seen: &Seen| matches!(seen, Seen::Probe { number, .. } if *number == probe.number);
            let arrived = &mut self.ends[side.other().0].seen;
            for seen in arrived.extract_if(.., |seen| is_probe(seen)) {
                if fate.arrived.is_empty() {
                    until = Instant::now() + COPIES_WITHIN;
                }
                if let Seen::Probe { source, destination, .. } = seen {
                    fate.arrived.push([source, destination]);
                }
            }
            let back = &mut self.ends[side.0].seen;
            fate.came_back |= back.extract_if(.., |seen| is_probe(seen)).count() > 0;
            let quoted = probe.source_port();
            let is_error =
                |seen: &mut Seen| matches!(seen, Seen::Error { port, .. } if *port == quoted);
            for seen in back.extract_if(.., is_error) {
                // (The host itself may report that nothing listens at the port of probes.)
                if let Seen::Error { from, what, .. } = seen
                    && from != probe.destination
                {
                    fate.error = Some((from, what));
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// The neighbour that a host must find on its link: the device's port, or the other host where the device has none.
fn next_hop_address(wiring: &Wiring, side: SideName, is_ipv6: bool) -> Option<LinkAddress> {
    let sides = wiring.sides();
    let device = &sides[side.0].device_addresses;
    let list = if device.is_empty() { &sides[side.other().0].host_addresses } else { device };
    list.iter().find(|it| it.address.is_ipv6() == is_ipv6).copied()
}
