//! Veth pairs: wires whose two ends appear at once, each in its own namespace.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};

use super::namespace::Namespace;
use super::netlink::{MacAddress, Netlink};

/// One end of a veth pair: what it is called and where it goes.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// The namespace in which the end appears.
    pub namespace: &'a Namespace,
    /// The interface's name, at most 15 bytes.
    pub name: &'a str,
    /// Its Ethernet address.
    pub mac: MacAddress,
}

impl Netlink {
    /// Makes a veth pair, each end at once in its own namespace, both down.
    pub fn create_veth(&mut self, one: VethEnd, other: VethEnd, mtu_bytes: u32) -> Result<()> {
        let end = |end: VethEnd| {
            let mut message = LinkMessage::default();
            message.attributes = vec![
                LinkAttribute::IfName(end.name.into()),
                LinkAttribute::Mtu(mtu_bytes),
                LinkAttribute::Address(end.mac.to_vec()),
                LinkAttribute::NetNsFd(end.namespace.as_fd().as_raw_fd()),
            ];
            message
        };
        let mut message = end(one);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(end(other)))),
        ]));
        self.request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
            .with_context(|| format!("cannot create the veth pair {} - {}", one.name, other.name))
            .map(drop)
    }
}
