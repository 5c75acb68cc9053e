//! Routing netlink: the requests of `ip link`, `ip address`, `ip route` and `ip neighbour`.
//!
//! A [`Netlink`] socket acts on the network namespace it was opened in, from any thread. Every
//! request waits for its acknowledgement, so an error names the very step that failed, with the
//! kernel's own explanation if there is one.

use std::io;
use std::net::IpAddr;

use anyhow::{Context, Result, anyhow, bail};
use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NlasIterator,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, State, Stats64};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::prefix::Prefix;

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// The routing table of addresses that are the host's own (`RT_TABLE_LOCAL`).
const LOCAL_TABLE: u8 = 255;

/// What an interface has counted since it was made (`IFLA_STATS64`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received, from the Ethernet header on.
    pub rx_bytes: u64,
    /// Received frames that found no room.
    pub rx_dropped: u64,
    /// Received frames that were bad.
    pub rx_errors: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes sent, from the Ethernet header on.
    pub tx_bytes: u64,
    /// Frames that were to be sent and found no room; on a veth, no room at the other end.
    pub tx_dropped: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
}

impl LinkStatistics {
    /// What was counted since these were read.
    pub fn since(&self, before: &LinkStatistics) -> LinkStatistics {
        LinkStatistics {
            rx_packets: self.rx_packets.saturating_sub(before.rx_packets),
            rx_bytes: self.rx_bytes.saturating_sub(before.rx_bytes),
            rx_dropped: self.rx_dropped.saturating_sub(before.rx_dropped),
            rx_errors: self.rx_errors.saturating_sub(before.rx_errors),
            tx_packets: self.tx_packets.saturating_sub(before.tx_packets),
            tx_bytes: self.tx_bytes.saturating_sub(before.tx_bytes),
            tx_dropped: self.tx_dropped.saturating_sub(before.tx_dropped),
            tx_errors: self.tx_errors.saturating_sub(before.tx_errors),
        }
    }
}

/// An interface as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkState {
    /// Its number in its namespace.
    pub index: u32,
    /// Its Ethernet address; empty if it has none.
    pub mac: Vec<u8>,
    /// The greatest IP packet it carries, in bytes.
    pub mtu_bytes: u32,
    /// Whether it was set up administratively.
    pub administratively_up: bool,
    /// Whether it carries traffic: up, and so is the other end (RFC 2863's `ifOperStatus`).
    pub operational: bool,
    /// Its counters.
    pub statistics: LinkStatistics,
}

/// A routing netlink socket in one namespace.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Netlink> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // Both only improve the error texts; kernels before 4.12 do not have them.
            let _ = socket.set_cap_ack(true);
            let _ = socket.set_ext_ack(true);
            Ok::<_, io::Error>(socket)
        };
        let socket = open().context("cannot open a routing netlink socket")?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Takes an interface up.
    pub fn set_up(&mut self, name: &str) -> Result<()> {
        self.set_flags(name, LinkFlags::Up, LinkFlags::empty())
            .with_context(|| format!("cannot set {name} up"))
    }

    /// Takes an interface down.
    pub fn set_down(&mut self, name: &str) -> Result<()> {
        self.set_flags(name, LinkFlags::empty(), LinkFlags::Up)
            .with_context(|| format!("cannot set {name} down"))
    }

    /// Keeps an interface from sending on its own: no ARP, no neighbour discovery and no multicast,
    /// so no group reports. Its neighbours must be entered by hand.
    pub fn silence(&mut self, name: &str) -> Result<()> {
        self.set_flags(name, LinkFlags::Noarp, LinkFlags::Multicast)
            .with_context(|| format!("cannot silence {name}"))
    }

    /// Lets an interface resolve its neighbours and answer them.
    pub(super) fn let_speak(&mut self, name: &str) -> Result<()> {
        self.set_flags(name, LinkFlags::Multicast, LinkFlags::Noarp)
            .with_context(|| format!("cannot let {name} ask for neighbours"))
    }

    /// Gives an interface an address; an IPv6 address is valid at once, without a search for
    /// duplicates (RFC 4862 5.4).
    pub fn add_address(&mut self, name: &str, address: IpAddr, length: u8) -> Result<()> {
        let step = || format!("cannot add the address {address}/{length} to {name}");
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = length;
        message.header.flags = AddressHeaderFlags::Permanent;
        if address.is_ipv6() {
            message.header.flags |= AddressHeaderFlags::Nodad;
        }
        message.header.index = self.index(name).with_context(step)?;
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
            .with_context(step)
            .map(drop)
    }

    /// Sends a prefix through an interface, by a gateway or, without one, straight onto the link.
    pub fn add_route(&mut self, to: &Prefix, via: Option<IpAddr>, name: &str) -> Result<()> {
        let step = || match via {
            Some(gateway) => format!("cannot add the route {to} via {gateway} dev {name}"),
            None => format!("cannot add the route {to} dev {name}"),
        };
        let mut message = route(to);
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.kind = RouteType::Unicast;
        message.header.scope = if via.is_some() { RouteScope::Universe } else { RouteScope::Link };
        message.attributes.push(RouteAttribute::Oif(self.index(name).with_context(step)?));
        message.attributes.extend(via.map(|gateway| RouteAttribute::Gateway(gateway.into())));
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
            .with_context(step)
            .map(drop)
    }

    /// Makes every address of a prefix the host's own, as `ip route add local PREFIX dev lo`.
    pub fn add_local_prefix(&mut self, prefix: &Prefix) -> Result<()> {
        let step = || format!("cannot add the route local {prefix} dev lo");
        let mut message = route(prefix);
        message.header.table = LOCAL_TABLE;
        message.header.kind = RouteType::Local;
        message.header.scope = RouteScope::Host;
        message.attributes.push(RouteAttribute::Oif(self.index("lo").with_context(step)?));
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
            .with_context(step)
            .map(drop)
    }

    /// Enters a neighbour's Ethernet address permanently, so that it is never resolved.
    pub fn add_neighbour(&mut self, name: &str, address: IpAddr, mac: MacAddress) -> Result<()> {
        let step = || format!("cannot add the neighbour {address} to {name}");
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.index(name).with_context(step)?;
        message.header.state = NeighbourState::Permanent;
        let destination = match address {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        };
        message.attributes = vec![
            NeighbourAttribute::Destination(destination),
            NeighbourAttribute::LinkLocalAddress(mac.to_vec()),
        ];
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
            .with_context(step)
            .map(drop)
    }

    /// The kernel's state of an interface.
    pub fn link(&mut self, name: &str) -> Result<LinkState> {
        let step = || format!("cannot read the state of the interface {name}");
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        let answers = self.request(RouteNetlinkMessage::GetLink(message), 0).with_context(step)?;
        for answer in answers {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                return Ok(link_state(&link));
            }
        }
        bail!("{}: the kernel answered nothing", step())
    }

    /// The addresses that the kernel has on an interface, each with the length of its network, except
    /// IPv6 link-local ones, which it gives every interface that is up.
    pub fn addresses(&mut self, name: &str) -> Result<Vec<(IpAddr, u8)>> {
        let step = || format!("cannot read the addresses of {name}");
        let index = self.index(name).with_context(step)?;
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.request(message, NLM_F_DUMP).with_context(step)?;
        let address = |answer: RouteNetlinkMessage| {
            let RouteNetlinkMessage::NewAddress(found) = answer else { return None };
            let length = found.header.prefix_len;
            let own = |attribute: &AddressAttribute| match attribute {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            };
            let whole = |attribute: &AddressAttribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            };
            let all = found.attributes.iter();
            // Of a link that joins two, `Address` is the other end's.
            let address = all.clone().find_map(own).or_else(|| all.clone().find_map(whole))?;
            let is_usual = matches!(address, IpAddr::V6(it) if it.is_unicast_link_local());
            (found.header.index == index && !is_usual).then_some((address, length))
        };
        Ok(answers.into_iter().filter_map(address).collect())
    }

    /// An interface's counters.
    pub fn statistics(&mut self, name: &str) -> Result<LinkStatistics> {
        Ok(self.link(name)?.statistics)
    }

    fn index(&mut self, name: &str) -> Result<u32> {
        Ok(self.link(name)?.index)
    }

    /// Sets the greatest IP packet that an interface carries.
    pub fn set_mtu(&mut self, name: &str, mtu_bytes: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.attributes = vec![LinkAttribute::Mtu(mtu_bytes)];
        self.request(RouteNetlinkMessage::SetLink(message), 0)
            .with_context(|| format!("cannot set the MTU of {name} to {mtu_bytes} bytes"))
            .map(drop)
    }

    /// Turns the reception of frames addressed to others on or off.
    pub fn set_promiscuous(&mut self, name: &str, is_on: bool) -> Result<()> {
        let (on, off) = match is_on {
            true => (LinkFlags::Promisc, LinkFlags::empty()),
            false => (LinkFlags::empty(), LinkFlags::Promisc),
        };
        self.set_flags(name, on, off)
            .with_context(|| format!("cannot set whether {name} is promiscuous"))
    }

    /// The kernel's neighbour table of the namespace, for all interfaces.
    pub(super) fn neighbours(&mut self) -> Result<Vec<NeighbourMessage>> {
        let requested = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self.request(requested, NLM_F_DUMP).context("cannot list the neighbours")?;
        let neighbour = |answer| match answer {
            RouteNetlinkMessage::NewNeighbour(found) => Some(found),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(neighbour).collect())
    }

    /// The Ethernet address of a neighbour, if the kernel has one.
    pub fn neighbour(&mut self, name: &str, address: IpAddr) -> Result<Option<MacAddress>> {
        let index = self.index(name)?;
        let is_meant = |found: &&NeighbourMessage| {
            found.header.ifindex == index
                && found.attributes.iter().any(|attribute| match attribute {
                    NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address == *v4,
                    NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address == *v6,
                    _ => false,
                })
        };
        let neighbours = self.neighbours()?;
        let found = neighbours.iter().find(is_meant);
        Ok(found.and_then(|found| {
            found.attributes.iter().find_map(|attribute| match attribute {
                NeighbourAttribute::LinkLocalAddress(mac) => mac.as_slice().try_into().ok(),
                _ => None,
            })
        }))
    }

    pub(super) fn set_flags(&mut self, name: &str, on: LinkFlags, off: LinkFlags) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.header.flags = on;
        message.header.change_mask = on | off;
        self.request(RouteNetlinkMessage::SetLink(message), 0).map(drop)
    }

    /// Sends one request and collects the kernel's answers until it acknowledges or refuses.
    pub(super) fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0).context("sending to the kernel failed")?;

        let mut answers = Vec::new();
        loop {
            let (received, _) =
                self.socket.recv_from_full().context("no answer from the kernel")?;
            let mut rest = &received[..];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .context("the kernel's answer is not understood")?;
                let length = (answer.header.length as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(refusal(&error));
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }
}

/// The error number's text, then the kernel's own explanation if it gave one.
fn refusal(error: &ErrorMessage) -> anyhow::Error {
    const REQUEST_HEADER_BYTES: usize = 16;
    const EXPLANATION: u16 = 1; // NLMSGERR_ATTR_MSG
    let cause = anyhow!("{}", error.to_io());
    let attributes = error.header.get(REQUEST_HEADER_BYTES..).unwrap_or_default();
    let explanation = NlasIterator::new(attributes)
        .map_while(|attribute| attribute.ok())
        .find(|attribute| attribute.kind() == EXPLANATION);
    match explanation {
        Some(found) => {
            let text = String::from_utf8_lossy(found.value());
            anyhow!("{cause}: {}", text.trim_end_matches('\0'))
        }
        None => cause,
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

/// A route to a prefix, its table, kind and way still open.
fn route(to: &Prefix) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to.address());
    message.header.destination_prefix_length = to.length();
    message.header.protocol = RouteProtocol::Static;
    message.attributes.push(RouteAttribute::Destination(to.address().into()));
    message
}

fn link_state(link: &LinkMessage) -> LinkState {
    let mut state = LinkState {
        index: link.header.index,
        mac: Vec::new(),
        mtu_bytes: 0,
        administratively_up: link.header.flags.contains(LinkFlags::Up),
        operational: false,
        statistics: LinkStatistics::default(),
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Address(mac) => state.mac.clone_from(mac),
            LinkAttribute::Mtu(mtu) => state.mtu_bytes = *mtu,
            LinkAttribute::OperState(found) => state.operational = *found == State::Up,
            LinkAttribute::Stats64(counted) => state.statistics = statistics(counted),
            _ => {}
        }
    }
    state
}

fn statistics(counted: &Stats64) -> LinkStatistics {
    LinkStatistics {
        rx_packets: counted.rx_packets,
        rx_bytes: counted.rx_bytes,
        rx_dropped: counted.rx_dropped,
        rx_errors: counted.rx_errors,
        tx_packets: counted.tx_packets,
        tx_bytes: counted.tx_bytes,
        tx_dropped: counted.tx_dropped,
        tx_errors: counted.tx_errors,
    }
}
