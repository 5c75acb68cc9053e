//! Links between a router's namespace and its neighbours'.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

use std::net::IpAddr;

use anyhow::Result;
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::veth::VethEnd;

/// A link, up at both ends: `ours` is the router's, `theirs` the other's. Their link-layer addresses are
/// 02:00:00:00:NUMBER:01 and :02.
pub fn link(
    router: &Namespace,
    ours: &str,
    other: &Namespace,
    theirs: &str,
    number: u8,
) -> Result<()> {
    let end = |namespace, name, last| VethEnd { namespace, name, mac: [2, 0, 0, 0, number, last] };
    router.enter(|| {
        let mut netlink = Netlink::open()?;
        netlink.create_veth(end(router, ours, 1), end(other, theirs, 2), 1_500)?;
        netlink.set_up(ours)
    })?;
    other.enter(|| Netlink::open()?.set_up(theirs))
}

/// Gives an interface an address, in a network of 24 bits, and a way to `far` by `gateway`.
pub fn settle(
    host: &Namespace,
    name: &str,
    address: impl Into<IpAddr>,
    way: Option<(&str, IpAddr)>,
) -> Result<()> {
    let address = address.into();
    host.enter(|| {
        let mut netlink = Netlink::open()?;
        netlink.add_address(name, address, 24)?;
        match way {
            Some((far, gateway)) => netlink.add_route(&far.parse()?, Some(gateway), name),
            None => Ok(()),
        }
    })
}
