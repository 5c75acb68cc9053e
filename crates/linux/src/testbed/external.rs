//! A testbed around a device that the lab did not make.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::plan::{LinkEnd, Site};
use super::sysctls::QUIET;
use super::{CLIENT_INTERFACE, PROGRAM_INTERFACES, SERVER_INTERFACE, Testbed};
use crate::borrowed::{Borrowed, Loan};
use crate::bridge;
use crate::namespace::Namespace;
use crate::netlink::{MacAddress, Netlink};
use crate::offload;
use crate::veth::VethEnd;

/// The name of the one interface that both hosts share.
const CARD: &str = "card";
/// What the other ends of hosts' links have in the last byte of their Ethernet addresses.
const INNER_MAC: u8 = 0x10;
/// The least MTU of a link that carries IPv6 (RFC 8200 5).
const MTU_BYTES_MIN: u32 = 1_280;

/// A device that the lab did not make, and its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// The interfaces that lead to it, of the namespace that the lab is started in: the clients', the servers'. The same
    /// twice where the device has one arm.
    pub interfaces: [String; 2],
    /// Its Ethernet addresses there, if they cannot be resolved.
    pub macs: [Option<MacAddress>; 2],
    /// It passes frames on as they are: hosts on both sides are neighbours.
    pub is_transparent: bool,
    /// The words by which this program is made to call [`crate::borrowed::stand_guard`].
    pub guardian: &'static [&'static str],
}

impl External {
    /// Both sides of the device are behind one interface.
    pub fn is_one_armed(&self) -> bool {
        self.interfaces[0] == self.interfaces[1]
    }
}

/// Sets a borrowed interface to the lab's MTU. An interface in front of the device with a path, and a card that hosts
/// share, also receive frames that are addressed to others.
pub(super) fn prepare(loan: &Loan<'_>, mtu_bytes: u32) -> Result<()> {
    loan.namespace.enter(|| {
        let mut netlink = Netlink::open()?;
        let own_bytes = netlink.link(loan.called)?.mtu_bytes;
        ensure!(
            own_bytes >= MTU_BYTES_MIN,
            "{} carries packets of {own_bytes} bytes at most, and IPv6 needs {MTU_BYTES_MIN}: raise its MTU (ip link \
             set {} mtu 1500)",
            loan.interface,
            loan.interface
        );
        if loan.called != CLIENT_INTERFACE && loan.called != SERVER_INTERFACE {
            netlink.set_promiscuous(loan.called, true)?;
        }
        if own_bytes > mtu_bytes {
            netlink.set_mtu(loan.called, mtu_bytes)?;
        }
        Ok(())
    })
}

impl Testbed {
    /// Borrows the interfaces towards an external device.
    pub(super) fn borrow(&mut self, mtu_bytes: u32) -> Result<()> {
        let Some(external) = &self.external else { return Ok(()) };
        // (By its descriptor: the file may have been replaced since it was started.)
        let mut guardian = Command::new("/proc/self/exe");
        guardian.args(external.guardian);
        let [client, server] = &external.interfaces;
        if external.is_one_armed() {
            let card = Namespace::new()?;
            card.write_sysctls(&QUIET)?;
            let loan = Loan { interface: client, namespace: &card, called: CARD };
            self.borrowed = Some(Borrowed::borrow(&[loan], guardian)?);
            prepare(&loan, mtu_bytes)?;
            let own_bytes = card.enter(|| Ok(Netlink::open()?.link(CARD)?.mtu_bytes))?;
            self.share(&card, own_bytes)?;
            self.card = Some(card);
            return Ok(());
        }
        let (namespace, called) = self.client_end();
        let loans = [
            Loan { interface: client, namespace, called },
            Loan { interface: server, namespace: &self.server, called: SERVER_INTERFACE },
        ];
        let borrowed = Borrowed::borrow(&loans, guardian)?;
        loans.iter().try_for_each(|loan| prepare(loan, mtu_bytes))?;
        self.borrowed = Some(borrowed);
        Ok(())
    }

    /// Joins both hosts to the one card by a bridge that passes nothing from one host to the other.
    fn share(&self, card: &Namespace, mtu_bytes: u32) -> Result<()> {
        let (client, client_name) = self.client_end();
        let ends = [(client, client_name), (&self.server, SERVER_INTERFACE)];
        card.enter(|| {
            let mut netlink = Netlink::open()?;
            for ((namespace, name), inner) in ends.into_iter().zip(PROGRAM_INTERFACES) {
                let mut ports = self.plan.of_testbed();
                let port = ports.find(|port| port.name == name && port.site != Site::External);
                let mac = port.context("a host's end of a link is in the plan")?.mac;
                let mut inner_mac = mac;
                inner_mac[5] |= INNER_MAC;
                let host = VethEnd { namespace, name, mac };
                let inner = VethEnd { namespace: card, name: inner, mac: inner_mac };
                netlink.create_veth(host, inner, mtu_bytes)?;
            }
            for name in PROGRAM_INTERFACES.into_iter().chain([CARD]) {
                offload::switch_off(name)?;
                netlink.silence(name)?;
                netlink.set_up(name)?;
            }
            Ok(())
        })?;
        bridge::join(card, &[CARD], &PROGRAM_INTERFACES)
    }

    /// Gives borrowed interfaces back; returns what could not be restored, in a line each.
    ///
    /// # Errors
    /// As [`Borrowed::give_back`].
    pub fn give_back(&mut self) -> Result<Vec<String>> {
        self.borrowed.take().map_or(Ok(Vec::new()), Borrowed::give_back)
    }

    /// The Ethernet address of a port's neighbour, if it need not be resolved.
    pub(super) fn known_mac(&self, port: &LinkEnd, planned: MacAddress) -> Option<MacAddress> {
        match (&self.external, port.site) {
            (Some(external), Site::Client) => external.macs[0],
            (Some(external), Site::Server) => external.macs[1],
            _ => Some(planned),
        }
    }

    /// The name of an interface as on its owner's host.
    pub(super) fn name_for_owner<'a>(&'a self, port: &'a LinkEnd) -> &'a str {
        let (_, client_end) = self.client_end();
        match &self.external {
            Some(external) if port.site == Site::Server => &external.interfaces[1],
            Some(external) if port.name == client_end => &external.interfaces[0],
            _ => port.name,
        }
    }
}
