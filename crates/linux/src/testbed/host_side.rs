//! One host's side of a testbed that two machines share: the client here and the server there, or the other way round.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::external::prepare;
use super::plan::{Plan, Site};
use super::sysctls::{HOST, QUIET};
use super::{CLIENT_INTERFACE, READY_WITHIN, SERVER_INTERFACE, TestbedConfig};
use crate::borrowed::{Borrowed, Loan};
use crate::namespace::Namespace;
use crate::netlink::{MacAddress, Netlink};
use crate::offload;

/// How long the device may take to answer ARP.
const ANSWER_WITHIN: Duration = Duration::from_secs(6);
/// How often the request is repeated.
const REQUEST_EVERY: Duration = Duration::from_millis(200);

/// A host behind one interface of this machine, with the addresses that a whole testbed would give it.
pub struct HostSide {
    // Given back before the namespace goes.
    borrowed: Option<Borrowed>,
    namespace: Namespace,
    /// What the owner calls the interface.
    owners_name: String,
    name: &'static str,
    next_hops: Vec<IpAddr>,
    known_mac: Option<MacAddress>,
}

impl HostSide {
    /// Borrows the interface of a testbed's external device at the clients' side (0) or the servers' (1), and sets it
    /// up. Its link may take a while ([`HostSide::wait_until_up`]), and needs the other host's where there is but a cable.
    ///
    /// # Errors
    /// When the interface cannot be lent.
    pub fn build(config: &TestbedConfig, side: usize) -> Result<HostSide> {
        let external = config.external.as_ref().context("the testbed has no external device")?;
        let plan = Plan::new(config)?;
        let (site, name) =
            [(Site::Client, CLIENT_INTERFACE), (Site::Server, SERVER_INTERFACE)][side];
        let host = plan.ports.iter().find(|port| port.site == site);
        let host = host.context("every plan has both hosts")?;
        let namespace = Namespace::new()?;
        namespace.write_sysctls(&QUIET)?;
        namespace.write_sysctls(&HOST)?;
        let mut guardian = Command::new("/proc/self/exe");
        guardian.args(external.guardian);
        let interface = &external.interfaces[side];
        let loan = Loan { interface, namespace: &namespace, called: name };
        let borrowed = Borrowed::borrow(&[loan], guardian)?;
        prepare(&loan, config.mtu_bytes)?;
        namespace.enter(|| {
            let mut netlink = Netlink::open()?;
            offload::switch_off(name)?;
            netlink.let_speak(name)?;
            for &(address, length) in &host.addresses {
                netlink.add_address(name, address, length)?;
            }
            netlink.set_up(name)?;
            Ok(())
        })?;
        Ok(HostSide {
            borrowed: Some(borrowed),
            next_hops: host.neighbours.iter().map(|&(address, _)| address).collect(),
            owners_name: interface.clone(),
            known_mac: external.macs[side],
            namespace,
            name,
        })
    }

    /// Returns when its link is up.
    ///
    /// # Errors
    /// When it stays down.
    pub fn wait_until_up(&self) -> Result<()> {
        self.namespace.enter(|| {
            let (mut netlink, began) = (Netlink::open()?, Instant::now());
            while !netlink.link(self.name)?.operational {
                ensure!(
                    began.elapsed() < READY_WITHIN,
                    "the link of {} did not come up within {READY_WITHIN:?}: is the device on, the cable in, and its \
                     interface up?",
                    self.owners_name
                );
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
    }

    /// Where the host is.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The name of its interface there.
    pub fn interface(&self) -> &'static str {
        self.name
    }

    /// The link-layer addresses of its interface and of the device behind it, which is resolved by ARP unless it is known.
    ///
    /// # Errors
    /// When nothing answers.
    pub fn link_addresses(&self) -> Result<[MacAddress; 2]> {
        self.namespace.enter(|| {
            let mut netlink = Netlink::open()?;
            let own = netlink.link(self.name)?.mac;
            let own = own.try_into().ok().context("the interface has no Ethernet address")?;
            if let Some(mac) = self.known_mac {
                return Ok([own, mac]);
            }
            let device = self.next_hops.iter().find(|address| address.is_ipv4());
            let device = *device.context("a host without an IPv4 next hop")?;
            let socket = UdpSocket::bind("0.0.0.0:0").context("cannot open a socket")?;
            let began = Instant::now();
            while began.elapsed() < ANSWER_WITHIN {
                if let Some(mac) = netlink.neighbour(self.name, device)? {
                    return Ok([own, mac]);
                }
                // (The kernel resolves the neighbour first; it may know already that no host answers, which is no
                // error.)
                let _ = socket.send_to(&[0], (device, 9));
                thread::sleep(REQUEST_EVERY);
            }
            bail!(
                "{}: no answer to ARP for {device}: is the device set up as lab wiring shows?",
                self.owners_name
            )
        })
    }

    /// Gives the interface back; returns what could not be restored, in a line each.
    ///
    /// # Errors
    /// As [`Borrowed::give_back`].
    pub fn give_back(&mut self) -> Result<Vec<String>> {
        self.borrowed.take().map_or(Ok(Vec::new()), Borrowed::give_back)
    }
}
