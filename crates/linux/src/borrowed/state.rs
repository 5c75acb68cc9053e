//! The state of an interface before it is lent, and its restoration.

use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::{Context, Result, bail, ensure};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, Nla};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
    LinkXdp, State as OperationalState, XdpAttached,
};
use netlink_packet_route::neighbour::{NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::settings::{self, Setting};
use netlink_packet_route::tc::{TcAttribute, TcMessage};

use crate::netlink::{LinkState, Netlink};
use crate::offload;

/// Queueing disciplines that an interface gets by itself; others hold the operator's settings.
const DEFAULT_DISCIPLINES: [&str; 6] = ["noqueue", "noop", "pfifo_fast", "fq_codel", "mq", "fq"];
/// Where filters are attached.
const HOOKS: [&str; 2] = ["clsact", "ingress"];
/// The attribute of a route that names a nexthop object (`RTA_NH_ID`).
const NEXTHOP_ID: u16 = 30;
/// What a lab changes of an interface, and its owner may have set.
const KEPT_FLAGS: LinkFlags =
    LinkFlags::Promisc.union(LinkFlags::Noarp).union(LinkFlags::Multicast);
/// More interfaces than a message for a person needs to name.
const NAMES_MAX: usize = 12;

/// The parts of an interface's state that a move to another namespace removes.
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
    /// Reads the state of an interface of the calling thread's namespace; an error says why it cannot be lent.
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
        refuse_carrier(name, index, &links)?;
        netlink.refuse_filters(name, index)?;
        let routes = netlink.routes_of(index)?;
        let is_default = |route: &RouteMessage| {
            route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast
        };
        ensure!(
            !routes.iter().any(is_default),
            "{name} has this host's default route: the host would lose its network for the run; choose another \
             interface"
        );
        let has_object = |route: &RouteMessage| {
            route
                .attributes
                .iter()
                .any(|it| matches!(it, RouteAttribute::Other(nla) if nla.kind() == NEXTHOP_ID))
        };
        ensure!(
            !routes.iter().any(has_object),
            "a route by {name} has a nexthop object, which could not be put back: choose another interface"
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

    /// Restores all but the routes of an interface that now has this name, is in the calling thread's namespace, and
    /// is down; returns what could not be done, in a line each.
    pub(super) fn restore(&self, name: &str) -> Vec<String> {
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
        // Before it is up: some of them control which addresses it then assigns itself.
        let not_set = settings::write(&self.settings, name);
        if self.is_up {
            note("up", netlink.set_up(name));
        }
        match netlink.link(name) {
            Ok(LinkState { index, .. }) => {
                for address in &self.addresses {
                    note("an address", netlink.restore_address(address.clone(), index));
                }
                for neighbour in &self.neighbours {
                    note("a neighbour", netlink.restore_neighbour(neighbour.clone(), index));
                }
            }
            Err(error) => note("addresses", Err(error)),
        }
        // (What is refused while it is down may be taken now.)
        if !not_set.is_empty() {
            problems.extend(settings::write(&self.settings, name));
        }
        problems
    }

    /// Puts its routes back, when all interfaces that they lead by are there.
    pub(super) fn restore_routes(&self, name: &str) -> Vec<String> {
        if !self.is_up {
            return Vec::new();
        }
        let restored = Netlink::open().and_then(|mut netlink| {
            let index = netlink.link(name)?.index;
            let restored = self.routes.iter().map(|route| netlink.restore_route(route, index));
            Ok(restored.filter_map(Result::err).collect::<Vec<_>>())
        });
        let problems = restored.unwrap_or_else(|error| vec![error]);
        problems.iter().map(|error| format!("{name}: a route: {error:#}")).collect()
    }
}

fn link_name(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

/// Refuses an interface on which others stand: they would go with it.
fn refuse_carrier(name: &str, index: u32, links: &[LinkMessage]) -> Result<()> {
    let stands_on_it = |link: &&LinkMessage| {
        let of = |wanted: &LinkAttribute| link.attributes.contains(wanted);
        let is_elsewhere =
            link.attributes.iter().any(|it| matches!(it, LinkAttribute::LinkNetNsId(_)));
        let infos = link.attributes.iter().filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
        let mut infos = infos.flatten();
        let is_veth = infos.clone().any(|info| *info == LinkInfo::Kind(InfoKind::Veth));
        let is_tunnel = infos.any(|info| match info {
            LinkInfo::Data(InfoData::Vxlan(vxlan)) => vxlan.contains(&InfoVxlan::Link(index)),
            _ => false,
        });
        is_tunnel || of(&LinkAttribute::Link(index)) && !is_elsewhere && !is_veth
    };
    match links.iter().find(stands_on_it).and_then(link_name) {
        Some(other) => bail!(
            "{other} depends on {name}, and would be lost or changed: remove it, or give another interface"
        ),
        None => Ok(()),
    }
}

/// Refuses an interface that cannot be lent for what it is.
fn refuse(name: &str, link: &LinkMessage) -> Result<()> {
    ensure!(
        !link.header.flags.contains(LinkFlags::Loopback),
        "{name} is a loopback: no device can be attached to it; give the interface towards the device"
    );
    ensure!(
        link.header.link_layer_type == LinkLayerType::Ether,
        "{name} carries no Ethernet frames: give an Ethernet interface"
    );
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::LinkInfo(infos) => ensure!(
                !infos.contains(&LinkInfo::Kind(InfoKind::Bridge)),
                "{name} is a bridge, which cannot be moved: give the interface towards the device"
            ),
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
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.request(request, NLM_F_DUMP).context("cannot list the interfaces")?;
        let link = |answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(link).collect())
    }

    /// Addresses in the order in which they have to be added to be listed in the same order: the kernel puts an IPv6
    /// address before others of its scope.
    fn addresses_of(&mut self, index: u32) -> Result<Vec<AddressMessage>> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.request(request, NLM_F_DUMP).context("cannot list the addresses")?;
        let address = |answer| match answer {
            RouteNetlinkMessage::NewAddress(found) if found.header.index == index => Some(found),
            _ => None,
        };
        let found: Vec<AddressMessage> = answers.into_iter().filter_map(address).collect();
        let is_ipv6 = |found: &AddressMessage| found.header.family == AddressFamily::Inet6;
        let (ipv6, mut ordered): (Vec<_>, Vec<_>) = found.into_iter().partition(is_ipv6);
        ordered.extend(ipv6.into_iter().rev());
        Ok(ordered)
    }

    /// Routes by the interface, except those that follow from its addresses; routes without a gateway come first,
    /// since the gateways of others are reached by them.
    fn routes_of(&mut self, index: u32) -> Result<Vec<RouteMessage>> {
        let request = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let answers = self.request(request, NLM_F_DUMP).context("cannot list the routes")?;
        let leads_there = |route: &RouteMessage| {
            route.attributes.iter().any(|attribute| match attribute {
                RouteAttribute::Oif(oif) => *oif == index,
                RouteAttribute::MultiPath(hops) => {
                    hops.iter().any(|hop| hop.interface_index == index)
                }
                _ => false,
            })
        };
        let is_somebodys = |route: &RouteMessage| route.header.protocol != RouteProtocol::Kernel;
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
            // It was found to have no other user before.
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

    /// Adds a route beside those of others to the same prefix; a multipath route replaces what was left of it, and
    /// one that already exists is right.
    fn restore_route(&mut self, route: &RouteMessage, index: u32) -> Result<()> {
        let mut route = route.clone();
        route.header.flags &= RouteFlags::Onlink;
        route.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::CacheInfo(_)));
        let mut how = NLM_F_APPEND;
        for attribute in &mut route.attributes {
            match attribute {
                RouteAttribute::Oif(oif) => *oif = index,
                RouteAttribute::MultiPath(_) => how = NLM_F_REPLACE,
                _ => {}
            }
        }
        let added = self.request(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | how);
        match added {
            Err(error) if error.to_string().starts_with("File exists") => Ok(()),
            added => added.map(drop),
        }
    }

    /// Refuses an interface that has filters of its own at the traffic control hooks.
    fn refuse_filters(&mut self, name: &str, index: u32) -> Result<()> {
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let answers =
            self.request(request, NLM_F_DUMP).context("cannot list queueing disciplines")?;
        let has_hook = answers.iter().any(|answer| {
            let RouteNetlinkMessage::NewQueueDiscipline(found) = answer else { return false };
            let is_hook = |it: &TcAttribute| matches!(it, TcAttribute::Kind(kind) if HOOKS.contains(&kind.as_str()));
            found.header.index == index as i32 && found.attributes.iter().any(is_hook)
        });
        ensure!(
            !has_hook,
            "{name} has filters of traffic control, which could not be put back: remove them (tc qdisc del dev {name} \
             clsact), or give another interface"
        );
        Ok(())
    }

    /// Moves an interface into a namespace; it is down there.
    pub(super) fn move_link(&mut self, name: &str, to: BorrowedFd<'_>) -> Result<()> {
        let attributes = vec![LinkAttribute::NetNsFd(to.as_raw_fd())];
        self.change_link(name, attributes)
            .with_context(|| format!("cannot move the interface {name} into another namespace"))
    }

    /// Gives an interface that is down another name.
    pub(super) fn rename_link(&mut self, name: &str, called: &str) -> Result<()> {
        self.change_link(name, vec![LinkAttribute::IfName(called.to_owned())])
            .with_context(|| format!("cannot call the interface {name} {called}"))
    }

    fn change_link(&mut self, name: &str, attributes: Vec<LinkAttribute>) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.link(name)?.index;
        message.attributes = attributes;
        self.request(RouteNetlinkMessage::SetLink(message), 0).map(drop)
    }
}
