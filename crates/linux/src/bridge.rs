//! The kernel's Ethernet bridge in a namespace: a device that forwards by Ethernet addresses (IEEE 802.1D), without a
//! spanning tree.

use anyhow::{Context, Result};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridgePort, InfoKind, InfoPortData, InfoPortKind, LinkAttribute, LinkInfo, LinkMessage,
};

use super::namespace::Namespace;
use super::netlink::Netlink;

/// What the bridge is called in its namespace.
const BRIDGE: &str = "br0";

/// Joins interfaces of a namespace by a bridge, which is up; they may still be down. Nothing passes between those
/// that are `isolated`.
///
/// # Errors
/// When the kernel has no bridges (CONFIG_BRIDGE), or an interface cannot be a port of one.
pub fn join(namespace: &Namespace, ports: &[&str], isolated: &[&str]) -> Result<()> {
    namespace.enter(|| {
        let mut netlink = Netlink::open()?;
        netlink.create_bridge()?;
        for port in ports {
            netlink.enslave(port)?;
        }
        for port in isolated {
            netlink.enslave(port)?;
            netlink.isolate(port)?;
        }
        netlink.set_up(BRIDGE)
    })
}

impl Netlink {
    fn create_bridge(&mut self) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(BRIDGE.to_owned()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        self.request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
            .context("cannot make a bridge; the kernel needs CONFIG_BRIDGE (modprobe bridge)")
            .map(drop)
    }

    fn enslave(&mut self, port: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.link(port)?.index;
        message.attributes = vec![LinkAttribute::Controller(self.link(BRIDGE)?.index)];
        self.request(RouteNetlinkMessage::SetLink(message), 0)
            .with_context(|| format!("cannot make {port} a port of the bridge"))
            .map(drop)
    }

    /// Isolates a port: nothing passes between isolated ports (Linux 4.18).
    fn isolate(&mut self, port: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.link(port)?.index;
        let isolated = InfoPortData::BridgePort(vec![InfoBridgePort::Isolated(true)]);
        message.attributes = vec![LinkAttribute::LinkInfo(vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(isolated),
        ])];
        self.request(RouteNetlinkMessage::NewLink(message), 0)
            .with_context(|| format!("cannot isolate {port} from other ports of the bridge"))
            .map(drop)
    }
}
