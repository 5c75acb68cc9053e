//! The testbed: the namespaces, links, addresses and routes of one lab.
//!
//! ```text
//!   client              device             server
//!   c0 .1 ────────── .2 p0  p1 .5 ────────── .6 s0      device under test: Linux
//!   c0 .1 ────── .2 client  server .5 ────── .6 s0      device under test: a program
//!   c0 .1 ────── client ──── server ────── .2 s0        device under test: transparent
//!   c0 .1 ──────────────────────────────── .2 s0        device under test: a wire
//! ```
//!
//! An external device, which the lab did not make, is wired like a program; `c0` and `s0` are then interfaces of the
//! host, borrowed for the run ([`crate::borrowed`]). ARP and neighbour discovery are on towards it.
//!
//! With a path, a transparent box stands between the client and the device:
//!
//! ```text
//!   c0 .1 ── client (path) device ── .2 client …        any of these devices
//! ```
//!
//! Each host owns whole prefixes of addresses: one route `local PREFIX dev lo` makes every address
//! of a pool its own. Nothing but the lab's traffic is on the links: neighbours are entered
//! permanently on both sides, so no host uses ARP or neighbour discovery, and no interface takes
//! part in multicast, so no group is reported. Segmentation and checksum offloads are off, so that
//! each frame is one that a real link could carry.
//!
//! [`Testbed::build`] leaves the links down. A ring opened then sees every frame that follows;
//! [`Testbed::raise`] takes the links up and returns when they carry traffic. Everything is removed
//! when the value is dropped, or when the process ends, however that happens.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::borrowed::Borrowed;
use super::namespace::Namespace;
use super::netlink::{LinkStatistics, MacAddress, Netlink};
use super::offload;
use super::prefix::Prefix;
use super::veth::VethEnd;
use plan::{LinkEnd, Plan, Site};
use sysctls::{FORWARDING, HOST, QUIET};

mod external;
mod host_side;
mod plan;
mod sysctls;

pub use external::External;
pub use host_side::HostSide;

/// The client's interface, in the client's namespace.
pub const CLIENT_INTERFACE: &str = "c0";
/// The server's interface, in the server's namespace.
pub const SERVER_INTERFACE: &str = "s0";

/// The device's interfaces towards the client and towards the server, where the kernel forwards.
const KERNEL_INTERFACES: [&str; 2] = ["p0", "p1"];
/// The device's interfaces where a program forwards, named after the hosts behind them.
pub const PROGRAM_INTERFACES: [&str; 2] = ["client", "server"];
/// The path's interfaces: towards the client and towards the device, named after what is behind them.
pub const PATH_INTERFACES: [&str; 2] = ["client", "device"];
/// Those of the path behind the device: towards the device and towards the server.
pub const REAR_PATH_INTERFACES: [&str; 2] = ["device", "server"];
/// How long links may take until they carry traffic; milliseconds are usual.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// What stands between the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// Linux, which forwards between two links.
    Linux,
    /// Linux as well, but its routes are installed separately (by FRR, for one), after [`Testbed::raise`].
    LinuxWithoutRoutes,
    /// A program that the caller starts in the device's namespace between [`Testbed::build`] and
    /// [`Testbed::raise`]: the kernel there has no addresses and forwards nothing.
    Program,
    /// A program likewise, that passes frames on as they are: hosts on both sides are neighbours.
    Transparent,
    /// Nothing: a single link, the calibration cable.
    Wire,
    /// A device between two interfaces of this host ([`TestbedConfig::external`]).
    External,
}

/// What a testbed is to look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestbedConfig {
    /// The device under test.
    pub device: DeviceKind,
    /// The addresses of the clients, IPv4 and IPv6 mixed as wanted.
    pub clients: Vec<Prefix>,
    /// The addresses of the servers.
    pub servers: Vec<Prefix>,
    /// The addresses of the links, for at least two networks of four: lengths up to 29 and 125.
    /// Without one of a family, that family is not forwarded.
    pub links: Vec<Prefix>,
    /// The greatest IP packet that the links carry, 1280 to 9000 bytes.
    pub mtu_bytes: u32,
    /// A program that passes frames on stands in a namespace of its own between the client and the device.
    pub has_path: bool,
    /// Another one between the device and the server.
    pub has_rear_path: bool,
    /// The device, where it is external.
    pub external: Option<External>,
    /// Programs are the hosts: the kernel in their namespaces has no addresses and routes, and answers nothing.
    pub hosts_by_program: bool,
}

impl Default for TestbedConfig {
    /// Linux between 65,536 IPv4 clients and 32,768 servers, and as many of IPv6 as anyone likes.
    fn default() -> TestbedConfig {
        let list = |texts: &[&str]| {
            texts.iter().map(|text| text.parse().expect("a prefix as written here")).collect()
        };
        TestbedConfig {
            device: DeviceKind::Linux,
            clients: list(&["198.18.0.0/16", "fd00:c::/64"]),
            servers: list(&["198.19.0.0/17", "fd00:5::/64"]),
            links: list(&["198.19.255.0/24", "fd00:ffff::/64"]),
            mtu_bytes: 1500,
            has_path: false,
            has_rear_path: false,
            external: None,
            hosts_by_program: false,
        }
    }
}

/// The counters of the interfaces at which the device is metered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Those of [`CLIENT_INTERFACE`], or of the path's end towards the device.
    pub client: LinkStatistics,
    /// Those of [`SERVER_INTERFACE`], or of the rear path's end towards the device.
    pub server: LinkStatistics,
}

impl InterfaceCounters {
    /// What was counted since these were read.
    pub fn since(&self, before: &InterfaceCounters) -> InterfaceCounters {
        InterfaceCounters {
            client: self.client.since(&before.client),
            server: self.server.since(&before.server),
        }
    }
}

/// A port of the device under test, with what a forwarding program needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePort {
    /// The interface, in the device's namespace.
    pub interface: String,
    /// Its addresses, with the lengths of their networks.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The hosts at the other end of the link.
    pub neighbours: Vec<(IpAddr, MacAddress)>,
    /// What is behind them: prefix and gateway.
    pub routes: Vec<(Prefix, IpAddr)>,
}

/// What a testbed is to look like, worked out without the kernel: for hosts and devices under another clock.
#[derive(Debug)]
pub struct Layout(Plan);

impl Layout {
    /// The layout that a configuration leads to.
    ///
    /// # Errors
    /// As [`Testbed::build`], where the configuration is at fault.
    pub fn new(config: &TestbedConfig) -> Result<Layout> {
        Plan::new(config).map(Layout)
    }

    /// The link-layer addresses of the client's and the server's interface, each before that of the interface at
    /// the other end of its link, or of its neighbour behind a device that is transparent.
    pub fn hosts(&self) -> [[MacAddress; 2]; 2] {
        [Site::Client, Site::Server].map(|site| {
            let port = self.0.ports.iter().find(|port| port.site == site);
            let port = port.expect("every plan has both hosts");
            let neighbour = port.neighbours.first().map_or([0; 6], |&(_, mac)| mac);
            [port.mac, neighbour]
        })
    }

    /// The addresses of the client's and of the server's interface, with the lengths of their networks.
    pub fn host_addresses(&self) -> [&[(IpAddr, u8)]; 2] {
        [Site::Client, Site::Server].map(|site| {
            let port = self.0.ports.iter().find(|port| port.site == site);
            &port.expect("every plan has both hosts").addresses[..]
        })
    }

    /// The neighbours of the client's host (0) or the server's (1) at the other end of its link, or behind a device
    /// that is transparent.
    pub fn next_hops(&self, host: usize) -> Vec<IpAddr> {
        let site = [Site::Client, Site::Server][host];
        let ports = self.0.ports.iter().filter(|port| port.site == site);
        ports.flat_map(|port| port.neighbours.iter().map(|&(address, _)| address)).collect()
    }

    /// The device's link-layer addresses, the clients' port first.
    pub fn device_macs(&self) -> Vec<MacAddress> {
        self.0.of_device().map(|port| port.mac).collect()
    }

    /// As [`Testbed::device_ports`].
    pub fn device_ports(&self) -> Vec<DevicePort> {
        self.0.device_ports()
    }

    /// As [`Testbed::device_addresses`].
    pub fn device_addresses(&self) -> Vec<IpAddr> {
        self.0.device_addresses()
    }
}

/// A testbed; everything in it is removed when it is dropped.
pub struct Testbed {
    // Given back before the namespaces go.
    borrowed: Option<Borrowed>,
    card: Option<Namespace>,
    external: Option<External>,
    counted_before: InterfaceCounters,
    client: Namespace,
    server: Namespace,
    device: Option<Namespace>,
    path: Option<Namespace>,
    rear_path: Option<Namespace>,
    kind: DeviceKind,
    hosts_by_program: bool,
    plan: Plan,
}

impl Testbed {
    /// Builds the namespaces and links and leaves the links down.
    pub fn build(config: &TestbedConfig) -> Result<Testbed> {
        let plan = Plan::new(config)?;
        let device = match config.device {
            DeviceKind::Wire => None,
            _ => Some(Namespace::new()?),
        };
        let path = config.has_path.then(Namespace::new).transpose()?;
        let rear_path = config.has_rear_path.then(Namespace::new).transpose()?;
        let (client, server) = (Namespace::new()?, Namespace::new()?);
        let mut testbed = Testbed {
            borrowed: None,
            card: None,
            external: config.external.clone(),
            counted_before: InterfaceCounters::default(),
            client,
            server,
            device,
            path,
            rear_path,
            kind: config.device,
            hosts_by_program: config.hosts_by_program,
            plan,
        };
        for host in [&testbed.client, &testbed.server] {
            host.write_sysctls(&QUIET)?;
            host.write_sysctls(&HOST)?;
        }
        for between in [&testbed.device, &testbed.path, &testbed.rear_path].into_iter().flatten() {
            between.write_sysctls(&QUIET)?;
        }
        testbed.create_links(config.mtu_bytes)?;
        testbed.borrow(config.mtu_bytes)?;
        for port in testbed.plan.of_testbed() {
            testbed.namespace(port.site).enter(|| testbed.configure(port))?;
        }
        // Only now: a router joins groups on every link that takes part in multicast.
        if let Some(device) = testbed.device.as_ref().filter(|_| testbed.is_by_kernel()) {
            device.write_sysctls(&FORWARDING)?;
        }
        testbed.counted_before = testbed.counted()?;
        Ok(testbed)
    }

    /// Configures one of our interfaces, which is still down; called in its namespace.
    fn configure(&self, port: &LinkEnd) -> Result<()> {
        let mut netlink = Netlink::open()?;
        offload::switch_off(port.name)?;
        match (self.kind, port.site) {
            // We resolve the device's address, and the device resolves ours.
            (DeviceKind::External, Site::Client | Site::Server) => netlink.let_speak(port.name)?,
            _ => netlink.silence(port.name)?,
        }
        if !self.is_configured(port) {
            return Ok(());
        }
        for &(address, length) in &port.addresses {
            netlink.add_address(port.name, address, length)?;
        }
        for pool in &port.pools {
            netlink.add_local_prefix(pool)?;
        }
        Ok(())
    }

    /// Takes the links up, enters neighbours and routes, and returns when traffic can flow.
    pub fn raise(&self) -> Result<()> {
        for port in self.plan.of_testbed() {
            self.namespace(port.site).enter(|| Netlink::open()?.set_up(port.name))?;
        }
        for port in self.plan.of_testbed() {
            self.namespace(port.site).enter(|| {
                let mut netlink = Netlink::open()?;
                self.wait_until_operational(&mut netlink, port)?;
                if !self.is_configured(port) {
                    return Ok(());
                }
                for &(address, mac) in &port.neighbours {
                    if let Some(mac) = self.known_mac(port, mac) {
                        netlink.add_neighbour(port.name, address, mac)?;
                    }
                }
                if port.site == Site::Device && self.kind == DeviceKind::LinuxWithoutRoutes {
                    return Ok(());
                }
                for (prefix, gateway) in &port.routes {
                    netlink.add_route(prefix, Some(*gateway), port.name)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Lets the ports of what the testbed made between the hosts receive by NAPI, as live frames need it
    /// ([`crate::stamp::live`]).
    pub fn receive_by_napi(&self) -> Result<()> {
        let is_between =
            |port: &&LinkEnd| matches!(port.site, Site::Device | Site::Path | Site::RearPath);
        for port in self.plan.of_testbed().filter(is_between) {
            let on = || offload::switch_on(port.name, &["rx-gro".to_owned()]);
            self.namespace(port.site).enter(on)?;
        }
        Ok(())
    }

    /// The clients' namespace.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// The servers' namespace.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// The namespace of the device under test; `None` if it is a wire.
    pub fn device(&self) -> Option<&Namespace> {
        self.device.as_ref()
    }

    /// The namespace of the path in front of the device, where there is one.
    pub fn path(&self) -> Option<&Namespace> {
        self.path.as_ref()
    }

    /// Where the device is metered towards the clients: the client's interface, or the path's end towards the device.
    pub fn client_end(&self) -> (&Namespace, &'static str) {
        match &self.path {
            Some(path) => (path, PATH_INTERFACES[1]),
            None => (&self.client, CLIENT_INTERFACE),
        }
    }

    /// The namespace of the path behind the device, where there is one.
    pub fn rear_path(&self) -> Option<&Namespace> {
        self.rear_path.as_ref()
    }

    /// Where the device is metered towards the servers: the server's interface, or the rear path's end towards the
    /// device.
    pub fn server_end(&self) -> (&Namespace, &'static str) {
        match &self.rear_path {
            Some(path) => (path, REAR_PATH_INTERFACES[0]),
            None => (&self.server, SERVER_INTERFACE),
        }
    }

    /// The ports of the device under test, the clients' first.
    pub fn device_ports(&self) -> Vec<DevicePort> {
        self.plan.device_ports()
    }

    /// The addresses of the device itself: packets to them are for it, not to be forwarded.
    pub fn device_addresses(&self) -> Vec<IpAddr> {
        self.plan.device_addresses()
    }

    /// What the interfaces at which the device is metered have counted since the testbed was built.
    pub fn interface_counters(&self) -> Result<InterfaceCounters> {
        Ok(self.counted()?.since(&self.counted_before))
    }

    fn counted(&self) -> Result<InterfaceCounters> {
        let read = |host: &Namespace, name| host.enter(|| Netlink::open()?.statistics(name));
        let (client, server) = (self.client_end(), self.server_end());
        Ok(InterfaceCounters {
            client: read(client.0, client.1)?,
            server: read(server.0, server.1)?,
        })
    }

    /// Whether the kernel in the port's namespace gets addresses, neighbours and routes.
    fn is_configured(&self, port: &LinkEnd) -> bool {
        match port.site {
            Site::Client | Site::Server => !self.hosts_by_program,
            Site::Device => self.is_by_kernel(),
            Site::Path | Site::RearPath | Site::External => false,
        }
    }

    /// The Ethernet address that the kernel gets. If a program is the host, it differs from the planned one, which
    /// the program uses: the kernel then regards frames as addressed to another host, and drops them before it reads
    /// them.
    fn mac_for_kernel(&self, port: &LinkEnd) -> MacAddress {
        let mut mac = port.mac;
        if self.hosts_by_program && matches!(port.site, Site::Client | Site::Server) {
            mac[5] |= 0x80;
        }
        mac
    }

    fn is_by_kernel(&self) -> bool {
        matches!(self.kind, DeviceKind::Linux | DeviceKind::LinuxWithoutRoutes)
    }

    fn namespace(&self, site: Site) -> &Namespace {
        match site {
            Site::Client => &self.client,
            Site::Server => &self.server,
            Site::Device => self.device.as_ref().expect("only a plan with a device has its ports"),
            Site::Path => self.path.as_ref().expect("only a plan with a path has its ports"),
            Site::RearPath => {
                self.rear_path.as_ref().expect("only a plan with a rear path has its ports")
            }
            Site::External => unreachable!("an external device is in no namespace of ours"),
        }
    }

    fn wait_until_operational(&self, netlink: &mut Netlink, port: &LinkEnd) -> Result<()> {
        let began = Instant::now();
        while !netlink.link(port.name)?.operational {
            let name = self.name_for_owner(port);
            let hint = match name == port.name {
                true => "",
                false => ": is the device on, the cable in, and its interface up?",
            };
            ensure!(
                began.elapsed() < READY_WITHIN,
                "the link of {name} did not come up within {READY_WITHIN:?}{hint}"
            );
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Ports stand in the plan in pairs: each link's two ends.
    fn create_links(&self, mtu_bytes: u32) -> Result<()> {
        self.client.enter(|| {
            let mut netlink = Netlink::open()?;
            let is_ours = |ends: &&[LinkEnd]| ends.iter().all(|end| end.site != Site::External);
            for ends in self.plan.ports.chunks_exact(2).filter(is_ours) {
                let end = |port: &LinkEnd| self.namespace(port.site);
                let mac = |port: &LinkEnd| self.mac_for_kernel(port);
                let one =
                    VethEnd { namespace: end(&ends[0]), name: ends[0].name, mac: mac(&ends[0]) };
                let other =
                    VethEnd { namespace: end(&ends[1]), name: ends[1].name, mac: mac(&ends[1]) };
                netlink.create_veth(one, other, mtu_bytes)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
