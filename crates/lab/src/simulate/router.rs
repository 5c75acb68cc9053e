//! The router of a ROUTER.toml in a scenario: the live router's pipeline, between records in place of frames.
//!
//! ```text
//!   record of a packet ── its headers as a frame ── pipeline ── the frame's ECN bits ── the same record
//! ```
//!
//! Ports are named after the links, and are limited to the rates that the scenario gives the links unless the file
//! says otherwise: packets wait in the router and not behind it. The rate counts Ethernet's headers, as it does
//! live. A payload has no bytes here; nothing in the pipeline looks at one.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nilometer_linux::prefix::Prefix;
use nilometer_linux::testbed::DevicePort;
use nilometer_router::node::RouterNode;
use nilometer_routerd::driver::{Lost, Presence};
use nilometer_routerd::machine::Machine;
use nilometer_routerd::routes::Routes;
use nilometer_routerd::tally::{DeviceTally, PortTally, port_of};
use nilometer_routerd::testbed::{RouterFile, testbed_router};
use nilometer_sim::forwarder::{
    Forwarder, GROUP_PREFIX_LENGTH, RouterAccount, RouterSite, network,
};
use nilometer_sim::{Assembly, Packet, Protocol, Refusal, Scenario, assemble_with};
use nilometer_traffic::TrafficModel;
use nilometer_wire::build::{self, Tcp};
use nilometer_wire::memory::{HeapMemory, Memory, Place};
use nilometer_wire::{Ecn, Node, Port, Time};

/// Buffers of packets that are in a router at most.
const BUFFERS: u32 = 1 << 20;
/// The longest packet of a link, bytes.
const MTU_MAX: u16 = 9_000;
const ETHERNET_BYTES: u16 = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// Where IPv4's service byte, with the ECN bits, and its protocol stand in a frame.
const SERVICE_AT: usize = 15;
const PROTOCOL_AT: usize = 23;
/// Length, and header checksum.
const LENGTH_AT: usize = 16;
const CHECKSUM_AT: usize = 24;
const HEADER: std::ops::Range<usize> = 14..34;
/// The first port of clients of TCP; a flow has its own.
const PORT_FIRST: u16 = 1_024;
const SERVER_PORT: u16 = 80;

/// Makes the routers of a scenario's places from files beside its own.
#[derive(Clone, Debug)]
pub struct RouterFiles {
    folder: PathBuf,
    /// The routers' names, and the names and contents of their files.
    read: Vec<(String, String, RouterFile)>,
}

impl RouterFiles {
    /// Files are seen from this folder.
    pub fn new(folder: &Path) -> RouterFiles {
        RouterFiles { folder: folder.to_owned(), read: Vec::new() }
    }

    /// Reads the file of a place, unless it was read before.
    fn read(&mut self, site: &RouterSite) -> Result<()> {
        if self.read.iter().all(|(name, ..)| *name != site.name) {
            let links: Vec<&str> = site.links.iter().map(|link| link.name.as_str()).collect();
            let file = RouterFile::of_scenario(&self.folder.join(&site.file), &links)?;
            self.read.push((site.name.clone(), site.file.clone(), file));
        }
        Ok(())
    }

    /// The files in the folder itself, by their names, and their texts.
    pub fn beside(&self) -> impl Iterator<Item = (&str, &str)> {
        self.read.iter().filter_map(|(_, name, file)| {
            let is_beside = Path::new(name).components().count() == 1;
            is_beside.then_some((name.as_str(), file.text.as_str()))
        })
    }

    /// Sets up a run of a scenario whose routers' files were read.
    ///
    /// # Errors
    /// The first error in the scenario, or a router.
    pub fn assemble(
        &self,
        scenario: &Scenario,
        models: &[TrafficModel],
        seed: u64,
    ) -> Result<Assembly, Refusal> {
        assemble_with(scenario, models, seed, &mut |site| {
            self.make(site, seed).map_err(|why| Refusal::router(&site.name, format!("{why:#}")))
        })
    }

    /// As [`RouterFiles::assemble`], and reads the files first.
    ///
    /// # Errors
    /// As there.
    pub fn read_and_assemble(
        &mut self,
        scenario: &Scenario,
        models: &[TrafficModel],
        seed: u64,
    ) -> Result<Assembly, Refusal> {
        assemble_with(scenario, models, seed, &mut |site| {
            let made = self.read(site).and_then(|()| self.make(site, seed));
            made.map_err(|why| Refusal::router(&site.name, format!("{why:#}")))
        })
    }

    fn make(&self, site: &RouterSite, seed: u64) -> Result<Box<dyn Forwarder>> {
        let file = self.read.iter().find(|(name, ..)| *name == site.name);
        let (_, _, file) = file.context("its file was not read")?;
        let router = SimulatedRouter::new(site, file, seed);
        let router = router.with_context(|| file.path.display().to_string())?;
        Ok(Box::new(router))
    }
}

/// A router between records.
#[derive(Debug)]
struct SimulatedRouter {
    node: RouterNode,
    _routes: KeptRoutes,
    memory: HeapMemory,
    macs: Vec<[u8; 6]>,
    ends: Vec<[Ipv4Addr; 2]>,
    /// By buffer, the packet whose headers are in it.
    packets: Vec<Packet>,
    received: u64,
    sent: u64,
    marked: u64,
    /// Packets for which there was no buffer.
    refused: u64,
    /// Frames that the router made itself, which have no receiver.
    own: u64,
}

/// Keeps the tables that packets are looked up in.
struct KeptRoutes(#[expect(dead_code, reason = "they are held, not read")] Routes);

impl std::fmt::Debug for KeptRoutes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("routes")
    }
}

/// The link-layer address of a port, and that of the other end of its link.
fn mac(port: usize, is_neighbour: bool) -> [u8; 6] {
    [0x02, b'N', b'I', b'L', 0x10 + u8::from(is_neighbour), port as u8]
}

/// A port with addresses that no host has: 172.16.N.1, its neighbour at .2.
fn device_port(site: &RouterSite, number: usize) -> Result<DevicePort> {
    let of = |last: u8| IpAddr::from([172, 16, number as u8, last]);
    let to = |&group: &u32| {
        let text = format!("{}/{GROUP_PREFIX_LENGTH}", network(group));
        anyhow::Ok((text.parse::<Prefix>()?, of(2)))
    };
    let link = &site.links[number];
    Ok(DevicePort {
        interface: link.name.clone(),
        addresses: vec![(of(1), 30)],
        neighbours: vec![(of(2), mac(number, true))],
        routes: link.groups.iter().map(to).collect::<Result<_>>()?,
    })
}

impl SimulatedRouter {
    fn new(site: &RouterSite, file: &RouterFile, seed: u64) -> Result<SimulatedRouter> {
        let ports: Vec<DevicePort> =
            (0..site.links.len()).map(|number| device_port(site, number)).collect::<Result<_>>()?;
        let mut config = testbed_router(&ports, seed, Some(file));
        for (port, link) in config.ports.iter_mut().zip(&site.links) {
            port.rate.get_or_insert(link.rate);
        }
        let mut plugs = Vec::with_capacity(ports.len());
        for (number, link) in site.links.iter().enumerate() {
            let name = &link.name;
            let mtu_bytes = u16::try_from(link.mtu_bytes).ok().filter(|bytes| *bytes <= MTU_MAX);
            let mtu_bytes = mtu_bytes.with_context(|| {
                format!(
                    "link {name:?}: its mtu is {}, and the most here is {MTU_MAX}",
                    link.mtu_bytes
                )
            })?;
            plugs.push((mac(number, false), mtu_bytes));
        }
        let Machine { router, routes } = Machine::without_devices(&config, &plugs)?;
        let buffer_bytes = usize::from(MTU_MAX) + 256;
        Ok(SimulatedRouter {
            node: RouterNode::new(router),
            _routes: KeptRoutes(routes),
            memory: HeapMemory::of_buffers(BUFFERS, buffer_bytes),
            macs: plugs.iter().map(|&(mac, _)| mac).collect(),
            ends: Vec::new(),
            packets: Vec::new(),
            received: 0,
            sent: 0,
            marked: 0,
            refused: 0,
            own: 0,
        })
    }

    /// The headers of a packet that comes by a port, as a frame.
    fn frame(&mut self, port: usize, packet: &Packet) -> Option<Place> {
        let place = self.memory.take(packet.bytes.checked_add(ETHERNET_BYTES)?)?;
        let headers = headers(packet, self.ends[packet.route.flow() as usize]);
        let frame = self.memory.frame_mut(place);
        frame[..6].copy_from_slice(&self.macs[port]);
        frame[6..12].copy_from_slice(&mac(port, true));
        frame[12..14].copy_from_slice(&ETHERTYPE_IPV4);
        let room = (frame.len() - usize::from(ETHERNET_BYTES)).min(headers.len());
        frame[14..14 + room].copy_from_slice(&headers[..room]);
        frame[LENGTH_AT..LENGTH_AT + 2].copy_from_slice(&packet.bytes.to_be_bytes());
        frame[SERVICE_AT] = packet.ecn as u8;
        frame[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        let checksum = nilometer_wire::checksum::internet_checksum(&[&frame[HEADER]]);
        frame[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
        let buffer = place.buffer as usize;
        if self.packets.len() <= buffer {
            self.packets.resize(buffer + 1, Packet::default());
        }
        self.packets[buffer] = *packet;
        Some(place)
    }

    /// Packets that went no further, by reason.
    fn dropped(&self) -> Vec<(String, u64)> {
        let device = || DeviceTally {
            statistics: Default::default(),
            lost: Lost { unsent: 0, unpunted: 0 },
            presence: Presence::Up,
        };
        let router = self.node.router();
        let mut sums = std::collections::BTreeMap::<String, u64>::new();
        for number in 0..router.ports().len() {
            let PortTally { discards, input_drops, output_drops, .. } =
                port_of(router, number, &device());
            for (reason, packets) in discards.into_iter().chain(input_drops).chain(output_drops) {
                *sums.entry(reason).or_default() += packets;
            }
        }
        *sums.entry("no_buffer".to_owned()).or_default() += self.refused;
        sums.into_iter().filter(|&(_, packets)| packets > 0).collect()
    }
}

/// The headers of a packet: IPv4's, and those of TCP or UDP. Each flow has a port of its own, by which disciplines
/// and equal-cost paths distinguish flows.
fn headers(packet: &Packet, [first, second]: [Ipv4Addr; 2]) -> Vec<u8> {
    let flow = packet.route.flow();
    let port = PORT_FIRST + (flow % u32::from(u16::MAX - PORT_FIRST)) as u16;
    let ends = [(first, port).into(), (second, SERVER_PORT).into()];
    let is_back = packet.route.0 % 2 == 1;
    let [source, destination] = if is_back { [ends[1], ends[0]] } else { ends };
    match packet.protocol {
        Protocol::Tcp => {
            let segment = &packet.segment;
            Tcp {
                sequence: segment.sequence,
                acknowledgement: segment.acknowledgement,
                flags: segment.flags,
                window: segment.window,
                ..Tcp::new(source, destination)
            }
            .ip_packet()
        }
        Protocol::Udp => build::udp(source, destination, &[]),
    }
}

impl Node<Packet> for SimulatedRouter {
    fn receive(&mut self, now: Time, port: Port, packet: &Packet, _: &mut ()) {
        self.received += 1;
        match self.frame(port.0 as usize, packet) {
            Some(place) => self.node.receive(now, port, &place, &mut self.memory),
            None => self.refused += 1,
        }
    }

    fn handle_timeout(&mut self, now: Time, _: &mut ()) {
        self.node.handle_timeout(now, &mut self.memory);
    }

    fn poll_transmit(&mut self, now: Time, packet: &mut Packet, _: &mut ()) -> Option<Port> {
        let mut place = Place::default();
        loop {
            let port = self.node.poll_transmit(now, &mut place, &mut self.memory)?;
            let frame = self.memory.frame(place);
            let is_of_a_flow = frame[12..14] == ETHERTYPE_IPV4 && frame[PROTOCOL_AT] != 1;
            let ecn = frame[SERVICE_AT] & 3;
            self.memory.give(place);
            if !is_of_a_flow {
                self.own += 1;
                continue;
            }
            *packet = self.packets[place.buffer as usize];
            if ecn == Ecn::Congestion as u8 && packet.ecn != Ecn::Congestion {
                packet.ecn = Ecn::Congestion;
                self.marked += 1;
            }
            self.sent += 1;
            return Some(port);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        Node::<Place, HeapMemory>::poll_timeout(&self.node)
    }
}

impl Forwarder for SimulatedRouter {
    fn meet(&mut self, ends: &[[Ipv4Addr; 2]]) {
        self.ends = ends.to_vec();
    }

    fn account(&self) -> RouterAccount {
        let router = self.node.router();
        let account = router.account();
        let has_all = self.received == account.received + self.refused
            && self.sent + self.own == account.transmitted;
        RouterAccount {
            received: self.received,
            sent: self.sent,
            dropped: self.dropped(),
            inside: router.inside(),
            marked: self.marked,
            is_balanced: router.balances() && has_all,
        }
    }
}
