//! A testbed around a device that the lab did not make.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::plan::{LinkEnd, Site};
use super::{CLIENT_INTERFACE, SERVER_INTERFACE, Testbed};
use crate::borrowed::{Borrowed, Loan};
use crate::netlink::{MacAddress, Netlink};

/// The least MTU of a link that carries IPv6 (RFC 8200 5).
const MTU_BYTES_MIN: u32 = 1_280;

/// A device that the lab did not make, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// The interfaces that lead to it, of the namespace that the lab is started in: the clients', the servers'.
    pub interfaces: [String; 2],
    /// Its Ethernet addresses there, where it cannot be asked for them.
    pub macs: [Option<MacAddress>; 2],
    /// It passes frames on as they are: hosts on both sides are neighbours.
    pub is_transparent: bool,
    /// The words by which this program is made to call [`crate::borrowed::stand_guard`].
    pub guardian: &'static [&'static str],
}

impl Testbed {
    /// Borrows the interfaces towards an external device. What stands in front of it with a path passes on frames
    /// that are addressed to others.
    pub(super) fn borrow(&mut self, mtu_bytes: u32) -> Result<()> {
        let Some(external) = &self.external else { return Ok(()) };
        let (namespace, called) = self.client_end();
        let [client, server] = &external.interfaces;
        let loans = [
            Loan { interface: client, namespace, called },
            Loan { interface: server, namespace: &self.server, called: SERVER_INTERFACE },
        ];
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let mut guardian = Command::new(program);
        guardian.args(external.guardian);
        let borrowed = Borrowed::borrow(&loans, guardian)?;
        for loan in loans {
            loan.namespace.enter(|| {
                let mut netlink = Netlink::open()?;
                let own_bytes = netlink.link(loan.called)?.mtu_bytes;
                ensure!(
                    own_bytes >= MTU_BYTES_MIN,
                    "{} carries packets of {own_bytes} bytes at most, and IPv6 needs {MTU_BYTES_MIN}: raise its MTU (ip \
                     link set {} mtu 1500)",
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
            })?;
        }
        self.borrowed = Some(borrowed);
        Ok(())
    }

    /// Gives what was borrowed back; what could not be made as it was before, in a line each.
    ///
    /// # Errors
    /// As [`Borrowed::give_back`].
    pub fn give_back(&mut self) -> Result<Vec<String>> {
        self.borrowed.take().map_or(Ok(Vec::new()), Borrowed::give_back)
    }

    /// The Ethernet address of a port's neighbour, where it need not be asked for.
    pub(super) fn known_mac(&self, port: &LinkEnd, planned: MacAddress) -> Option<MacAddress> {
        match (&self.external, port.site) {
            (Some(external), Site::Client) => external.macs[0],
            (Some(external), Site::Server) => external.macs[1],
            _ => Some(planned),
        }
    }

    /// The name of an interface as its owner knows it.
    pub(super) fn name_for_owner<'a>(&'a self, port: &'a LinkEnd) -> &'a str {
        let (_, client_end) = self.client_end();
        match &self.external {
            Some(external) if port.site == Site::Server => &external.interfaces[1],
            Some(external) if port.name == client_end => &external.interfaces[0],
            _ => port.name,
        }
    }
}
