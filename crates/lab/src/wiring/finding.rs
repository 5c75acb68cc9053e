//! Problems of a wiring: each a value, and a sentence that says what to do.

use std::net::{IpAddr, SocketAddr};

use super::{LinkAddress, WiredRoute};

/// The device at one of its two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideName(pub usize);

impl SideName {
    /// The hosts behind that side.
    pub fn hosts(self) -> &'static str {
        ["clients", "servers"][self.0]
    }

    /// The side at the other end.
    pub fn other(self) -> SideName {
        SideName(1 - self.0)
    }
}

fn protocol(address: &IpAddr) -> &'static str {
    if address.is_ipv6() { "neighbour solicitation" } else { "ARP" }
}

/// Something that keeps traffic from passing as it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// A link does not come up.
    #[error("{0}")]
    LinkDown(String),
    /// No host has the address of the device's port.
    #[error(
        "no host at {interface} answers {} for {}, the {}' side of the device: give that port {}/{}",
        protocol(&device.address),
        device.address,
        side.hosts(),
        device.address,
        device.length
    )]
    NoAnswer {
        /// The lab's interface.
        interface: String,
        /// Its side of the device.
        side: SideName,
        /// What the port should have.
        device: LinkAddress,
    },
    /// The host behind a transparent device does not answer.
    #[error(
        "the host at {other} does not answer {} at {interface}: does the device join both of its ports, and pass it?",
        protocol(address)
    )]
    HostSilent {
        /// The interface that probed it.
        interface: String,
        /// Where it is.
        other: String,
        /// Its address.
        address: IpAddr,
    },
    /// The device tries to resolve each host on the link of the other.
    #[error(
        "the interfaces are swapped: at {interface} the device looks for {target}, the host of the {}' \
         side; exchange --client-interface and --server-interface",
        side.other().hosts()
    )]
    Exchanged {
        /// The lab's interface.
        interface: String,
        /// Its side.
        side: SideName,
        /// The address that the device resolves there.
        target: IpAddr,
    },
    /// It sends the packets of both sides back.
    #[error(
        "packets of both sides return to their sender: the interfaces are swapped; exchange \
         --client-interface and --server-interface"
    )]
    BothSentBack,
    /// The device resolves a host that is not there.
    #[error(
        "at {interface} the device looks for {target}, which no host has: one of its routes has the wrong \
         gateway, which should be {via}"
    )]
    WrongGateway {
        /// The lab's interface.
        interface: String,
        /// The address that the device resolves there.
        target: IpAddr,
        /// The right gateway.
        via: IpAddr,
    },
    /// It reports that it has no route.
    #[error("the device ({from}) has no route to {destination}: give it {} via {}", route.prefix, route.via)]
    NoRoute {
        /// The sender of the error.
        from: IpAddr,
        /// The unreachable destination.
        destination: IpAddr,
        /// The route that it needs.
        route: WiredRoute,
    },
    /// It reports that a filter denies the packet.
    #[error("the device ({from}) prohibits packets from {} to {}: make its filters accept the lab's addresses",
        side.hosts(), side.other().hosts())]
    Prohibited {
        /// The sender of the error.
        from: IpAddr,
        /// Where they come from.
        side: SideName,
    },
    /// It reports that the next hop does not answer.
    #[error("the device ({from}) does not reach {destination}: its route there should be {} via {}", route.prefix, route.via)]
    Unreachable {
        /// The sender of the error.
        from: IpAddr,
        /// The unreachable destination.
        destination: IpAddr,
        /// The route that it needs.
        route: WiredRoute,
    },
    /// Packets go round until their hop limit ends.
    #[error("packets for {destination} loop until their hop limit expires (time exceeded from {from}): give \
        the device {} via {}", route.prefix, route.via)]
    Loop {
        /// The sender of the error.
        from: IpAddr,
        /// The packets' destination.
        destination: IpAddr,
        /// The route that it needs.
        route: WiredRoute,
    },
    /// They come back to where they were sent from.
    #[error("the device sends packets for {destination} back to the {} ({interface}): its route there leads the wrong way{}",
        side.hosts(), needed(route.as_ref()))]
    SentBack {
        /// The lab's interface.
        interface: String,
        /// The side that they came from.
        side: SideName,
        /// The packets' destination.
        destination: IpAddr,
        /// The route that it needs, where it has routes.
        route: Option<WiredRoute>,
    },
    /// They are lost without an error.
    #[error("packets from {} to {destination} are lost in the device{}", side.hosts(), vanished(destination, route.as_ref()))]
    Lost {
        /// Where they come from.
        side: SideName,
        /// The packets' destination.
        destination: IpAddr,
        /// The route that it needs, where it has routes.
        route: Option<WiredRoute>,
    },
    /// Each arrives more than once.
    #[error("a packet from {} to {} arrives {copies} times: the device, or a loop beside it, copies packets",
        side.hosts(), side.other().hosts())]
    Copied {
        /// Where they come from.
        side: SideName,
        /// How often one arrived.
        copies: usize,
    },
    /// Addresses or ports are translated.
    #[error("the device changes the {what} of packets from {} ({sent} becomes {arrived}): the lab identifies \
        connections by their addresses; disable address translation", side.hosts())]
    Translated {
        /// Which.
        what: &'static str,
        /// Where they come from.
        side: SideName,
        /// What was sent.
        sent: SocketAddr,
        /// What arrived.
        arrived: SocketAddr,
    },
    /// Long packets are lost.
    #[error("{} packets from {} to {} of more than {passes_bytes} bytes are lost, and the links carry {link_bytes}: raise the \
        MTU of the device's ports to {link_bytes} bytes", if *is_ipv6 { "IPv6" } else { "IPv4" }, side.hosts(), side.other().hosts())]
    SmallMtu {
        /// Where they come from.
        side: SideName,
        /// Whether they are IPv6 packets.
        is_ipv6: bool,
        /// The longest IP packet that arrived.
        passes_bytes: u32,
        /// What the links carry.
        link_bytes: u32,
    },
}

/// The findings to report: for a device that is connected the wrong way round only that, since all
/// others follow from it.
pub fn to_report(mut findings: Vec<Finding>) -> Vec<Finding> {
    let sent_back = |wanted: usize| {
        findings.iter().any(|it| matches!(it, Finding::SentBack { side, .. } if side.0 == wanted))
    };
    if sent_back(0) && sent_back(1) {
        findings.push(Finding::BothSentBack);
    }
    let is_exchanged =
        |it: &Finding| matches!(it, Finding::Exchanged { .. } | Finding::BothSentBack);
    if findings.iter().any(is_exchanged) {
        findings.retain(is_exchanged);
    }
    findings
}

fn needed(route: Option<&WiredRoute>) -> String {
    route.map_or(String::new(), |route| format!("; give it {} via {}", route.prefix, route.via))
}

fn vanished(destination: &IpAddr, route: Option<&WiredRoute>) -> String {
    let Some(route) = route else {
        return ": is it on, and does it join both of its ports?".to_owned();
    };
    let switch = match destination.is_ipv6() {
        true => "net.ipv6.conf.all.forwarding=1",
        false => "net.ipv4.ip_forward=1",
    };
    format!(
        ": does it forward (on Linux: sysctl {switch}), does it have the route {} via {}, and do its filters pass them?",
        route.prefix, route.via
    )
}
