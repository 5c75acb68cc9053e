//! What an interface is like before it is lent, and how it becomes so again.

use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::{Context, Result, bail, ensure};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    LinkAttribute, LinkFlags, LinkMessage, LinkXdp, State as OperationalState, XdpAttached,
};
use netlink_packet_route::neighbour::{NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteType,
};

use super::settings::{self, Setting};
use crate::netlink::Netlink;
use crate::offload;

/// Queueing disciplines that an interface gets by itself; others hold somebody's settings.
const DEFAULT_DISCIPLINES: [&str; 6] = ["noqueue", "noop", "pfifo_fast", "fq_codel", "mq", "fq"];
/// What a lab changes of an interface, and its owner may have set.
const KEPT_FLAGS: LinkFlags =
    LinkFlags::Promisc.union(LinkFlags::Noarp).union(LinkFlags::Multicast);
/// More interfaces than a message for a person needs to name.
const NAMES_MAX: usize = 12;

/// All of an interface that a move to another namespace takes away.
#[derive(Clone, Debug)]
pub(super) struct InterfaceState {
    name: String,
    mtu_bytes: u32,
    is_up: bool,
    flags: LinkFlags,
    addresses: Vec<AddressMessage>,
    routes: Vec<RouteMessage>,
    neighbours: Vec<NeighbourMessage>,
    settings: Vec<Setting>,
    offloads: Vec<String>,
}

impl InterfaceState {
    /// Reads that of an interface of the calling thread's namespace, or says why it cannot be lent.
    pub(super) fn read(name: &str) -> Result<InterfaceState> {
        let mut netlink = Netlink::open()?;
        let links = netlink.links()?;
        let name_of = |link: &&LinkMessage| link_name(link) == Some(name);
        let Some(link) = links.iter().find(name_of) else {
            let others = links.iter().filter_map(link_name).filter(|other| *other != "lo");
            let others: Vec<&str> = others.take(NAMES_MAX).collect();
            match others.is_empty() {
                true => bail!("there is no interface {name} here, and no other than lo"),
                false => {
                    bail!("there is no interface {name} here; there are {}", others.join(", "))
                }
            }
        };
        refuse(name, link)?;
        let index = link.header.index;
        let routes = netlink.routes_of(index)?;
        let is_default = |route: &RouteMessage| route.header.destination_prefix_length == 0;
        ensure!(
            !routes.iter().any(is_default),
            "{name} has this host's default route: the host would lose its network for the run; choose another \
             interface"
        );
        let mtu_bytes = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu_bytes) => Some(*mtu_bytes),
            _ => None,
        });
        let on = offload::offloads(name)?.into_iter().filter(|it| it.on && it.switchable);
        Ok(InterfaceState {
            name: name.to_owned(),
            mtu_bytes: mtu_bytes.with_context(|| format!("{name} has no MTU"))?,
            is_up: link.header.flags.contains(LinkFlags::Up),
            flags: link.header.flags & KEPT_FLAGS,
            addresses: netlink.addresses_of(index)?,
            routes,
            neighbours: netlink.permanent_neighbours_of(index)?,
            settings: settings::read(name),
            offloads: on.map(|offload| offload.name).collect(),
        })
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Makes an interface of this name, in the calling thread's namespace and down, what it was; what could not be done,
    /// in a line each.
    pub(super) fn restore(&self) -> Vec<String> {
        let name = &self.name;
        let mut problems = Vec::new();
        let mut note = |what: &str, done: Result<()>| {
            problems.extend(done.err().map(|error| format!("{name}: {what}: {error:#}")));
        };
        let mut netlink = match Netlink::open() {
            Ok(netlink) => netlink,
            Err(error) => return vec![format!("{name}: {error:#}")],
        };
        note("MTU", netlink.set_mtu(name, self.mtu_bytes));
        note("offloads", offload::switch_on(name, &self.offloads));
        note("flags", netlink.set_flags(name, self.flags, KEPT_FLAGS - self.flags));
        if self.is_up {
            note("up", netlink.set_up(name));
        }
        let index = match netlink.link(name) {
            Ok(link) => link.index,
            Err(error) => return vec![format!("{name}: {error:#}")],
        };
        for address in &self.addresses {
            note("an address", netlink.restore_address(address.clone(), index));
        }
        for neighbour in &self.neighbours {
            note("a neighbour", netlink.restore_neighbour(neighbour.clone(), index));
        }
        if self.is_up {
            for route in &self.routes {
                note("a route", netlink.restore_route(route.clone(), index));
            }
        }
        problems.extend(settings::write(&self.settings));
        problems
    }
}

fn link_name(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

/// Refuses an interface that cannot be lent for what it is.
fn refuse(name: &str, link: &LinkMessage) -> Result<()> {
    ensure!(
        !link.header.flags.contains(LinkFlags::Loopback),
        "{name} is a loopback: no device can stand behind it; give the interface towards the device"
    );
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Controller(_) => bail!(
                "{name} belongs to a bridge or bond: take it out of it (ip link set {name} nomaster), or give another"
            ),
            LinkAttribute::Qdisc(kind) => ensure!(
                DEFAULT_DISCIPLINES.contains(&kind.as_str()),
                "{name} has a queueing discipline of its own ({kind}), which could not be put back: remove it (tc \
                 qdisc del dev {name} root), or give another interface"
            ),
            LinkAttribute::Xdp(xdp) => {
                let is_attached = |part: &LinkXdp| match part {
                    LinkXdp::Attached(kind) => *kind != XdpAttached::None,
                    _ => false,
                };
                ensure!(
                    !xdp.iter().any(is_attached),
                    "{name} has an XDP program, which could not be put back: remove it (ip link set {name} xdp \
                     off), or give another interface"
                );
            }
            LinkAttribute::OperState(OperationalState::NotPresent) => {
                bail!("{name} is not there at the moment (its card is asleep or gone)")
            }
            _ => {}
        }
    }
    Ok(())
}

impl Netlink {
    fn links(&mut self) -> Result<Vec<LinkMessage>> {
        let asked = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.request(asked, NLM_F_DUMP).context("cannot list the interfaces")?;
        let link = |answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(link).collect())
    }

    /// Addresses but for those that the kernel gives an interface that is up.
    fn addresses_of(&mut self, index: u32) -> Result<Vec<AddressMessage>> {
        let asked = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.request(asked, NLM_F_DUMP).context("cannot list the addresses")?;
        let address = |answer| match answer {
            RouteNetlinkMessage::NewAddress(found) if found.header.index == index => Some(found),
            _ => None,
        };
        let is_usual = |found: &AddressMessage| {
            found.attributes.iter().any(|attribute| match attribute {
                AddressAttribute::Address(std::net::IpAddr::V6(it)) => it.is_unicast_link_local(),
                _ => false,
            })
        };
        Ok(answers.into_iter().filter_map(address).filter(|found| !is_usual(found)).collect())
    }

    /// Routes by the interface but for those that follow from its addresses or from advertisements; those that
    /// others are reached by come first.
    fn routes_of(&mut self, index: u32) -> Result<Vec<RouteMessage>> {
        let asked = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let answers = self.request(asked, NLM_F_DUMP).context("cannot list the routes")?;
        let leads_there = |route: &RouteMessage| {
            route.attributes.iter().any(|attribute| match attribute {
                RouteAttribute::Oif(oif) => *oif == index,
                RouteAttribute::MultiPath(hops) => {
                    hops.iter().any(|hop| hop.interface_index == index)
                }
                _ => false,
            })
        };
        let is_somebodys = |route: &RouteMessage| {
            !matches!(route.header.protocol, RouteProtocol::Kernel | RouteProtocol::Ra)
                && route.header.kind == RouteType::Unicast
        };
        let route = |answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        };
        let mut found: Vec<RouteMessage> = answers
            .into_iter()
            .filter_map(route)
            .filter(|route| leads_there(route) && is_somebodys(route))
            .collect();
        let has_gateway = |route: &RouteMessage| {
            let is_gateway = |it: &RouteAttribute| {
                matches!(it, RouteAttribute::Gateway(_) | RouteAttribute::Via(_))
            };
            route.attributes.iter().any(is_gateway)
        };
        found.sort_by_key(has_gateway);
        Ok(found)
    }

    fn permanent_neighbours_of(&mut self, index: u32) -> Result<Vec<NeighbourMessage>> {
        let neighbours = self.neighbours()?.into_iter();
        let is_kept = |found: &NeighbourMessage| {
            found.header.ifindex == index && found.header.state == NeighbourState::Permanent
        };
        Ok(neighbours.filter(is_kept).collect())
    }

    fn restore_address(&mut self, mut address: AddressMessage, index: u32) -> Result<()> {
        address.header.index = index;
        if address
            .attributes
            .iter()
            .any(|it| matches!(it, AddressAttribute::Address(at) if at.is_ipv6()))
        {
            // It was found to be nobody else's before.
            address.header.flags |= AddressHeaderFlags::Nodad;
        }
        let new = RouteNetlinkMessage::NewAddress(address);
        self.request(new, NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    fn restore_neighbour(&mut self, mut neighbour: NeighbourMessage, index: u32) -> Result<()> {
        neighbour.header.ifindex = index;
        let new = RouteNetlinkMessage::NewNeighbour(neighbour);
        self.request(new, NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    fn restore_route(&mut self, mut route: RouteMessage, index: u32) -> Result<()> {
        route.header.flags &= RouteFlags::Onlink;
        route.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::CacheInfo(_)));
        for attribute in &mut route.attributes {
            if let RouteAttribute::Oif(oif) = attribute {
                *oif = index;
            }
        }
        let new = RouteNetlinkMessage::NewRoute(route);
        self.request(new, NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    /// Moves an interface, and what it is called, into a namespace; it is down there.
    pub(super) fn move_link(&mut self, name: &str, to: BorrowedFd<'_>, called: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.link(name)?.index;
        message.attributes =
            vec![LinkAttribute::NetNsFd(to.as_raw_fd()), LinkAttribute::IfName(called.to_owned())];
        let refused = || format!("cannot move the interface {name} into another namespace");
        let moved = self.request(RouteNetlinkMessage::SetLink(message), 0).with_context(refused);
        moved.map(drop)
    }
}
