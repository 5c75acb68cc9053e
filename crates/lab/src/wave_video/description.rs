//! The description of the experiment's network: addresses, links, and the ROUTER.toml of each
//! router.
//!
//! It is used under both clocks: as nodes and cables in virtual time, and as running routers in
//! namespaces joined by veth pairs in real time.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context, Result};
use nilometer_routerd::config::RouterConfig;
use nilometer_wire::{Port, Rate, Span, Time};

use super::layers::{QUEUES, VIDEO_PORT};
use super::{Contender, RECEIVERS, VideoPlan};

/// When the first frame is sent: groups are joined before.
pub(super) const BEGINS: Time = Time::from_nanos(200_000_000);
/// How long queues may drain after the last frame.
pub(super) const DRAINS: Span = Span::from_secs(5);
pub(super) const MTU_BYTES: u16 = 1_500;
/// Packets that wait before a narrow link, of all flows.
const BUFFER_PACKETS: u32 = 200;
/// The burst of a narrow link, to make up for a late router.
const BURST_BYTES: u64 = 3_000;
/// The router's seed, by which it spreads flows.
pub(super) const ROUTER_SEED: u64 = 1;

/// Addresses of a network: `198.18.N.1` is the router's, `.2` the host's or the next router's.
pub(super) fn address(network: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, network, host)
}

pub(super) fn router_mac(router: usize, port: Port) -> [u8; 6] {
    [2, 0, 0, 0, router as u8 + 1, port.0 as u8]
}

/// The network of the source, those of receivers, of cross traffic and between routers.
pub(super) const SOURCE_NETWORK: u8 = 0;
pub(super) fn receiver_network(router: usize) -> u8 {
    1 + router as u8
}
pub(super) fn cross_network(router: usize) -> u8 {
    101 + router as u8
}
fn between_network(router: usize) -> u8 {
    11 + router as u8
}

/// Ports of routers: where the video comes from, the receiver, and then those that there are.
const FROM: Port = Port(0);
const RECEIVER: Port = Port(1);
const NEXT: Port = Port(2);
pub(super) fn cross_port(router: usize) -> Port {
    Port(if router + 1 < RECEIVERS { 3 } else { 2 })
}

/// Where a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Router(usize, Port),
    Receiver(usize),
    /// The source of cross traffic behind this router.
    Cross(usize),
}

impl End {
    /// The name of its interface, where it has one: a router's is as in its ROUTER.toml.
    pub(super) fn interface(self) -> String {
        match self {
            End::Source => "s".to_owned(),
            End::Router(_, FROM) => "from".to_owned(),
            End::Router(_, RECEIVER) => "d".to_owned(),
            End::Router(number, port) if port == cross_port(number) => "x".to_owned(),
            End::Router(..) => "next".to_owned(),
            End::Receiver(number) => format!("d{}", number + 1),
            End::Cross(number) => format!("x{}", number + 1),
        }
    }
}

/// All links.
pub(super) fn links() -> Vec<[End; 2]> {
    let mut links = vec![[End::Source, End::Router(0, FROM)]];
    for number in 0..RECEIVERS {
        links.push([End::Router(number, RECEIVER), End::Receiver(number)]);
        if number > 0 {
            links.push([End::Router(number - 1, NEXT), End::Router(number, FROM)]);
            links.push([End::Cross(number), End::Router(number, cross_port(number))]);
        }
    }
    links
}

/// What its narrow link makes up for when a router meets a timer late.
pub(super) fn made_up(link: Rate) -> Span {
    link.span_of(BURST_BYTES)
}

/// The routers of the ROUTER.toml files.
///
/// # Errors
/// Where a file is invalid.
pub(super) fn routers(
    link: Rate,
    groups: &[SocketAddrV4],
    contender: Contender,
) -> Result<Vec<RouterConfig>> {
    let is_active = contender == Contender::Active;
    let texts = (0..RECEIVERS).map(|number| description(number, link, groups, is_active));
    texts.map(|text| toml::from_str(&text).context("the router's description")).collect()
}

/// A router's file: ports `from` and `d`, and where there are such, `next` and `x`.
fn description(router: usize, link: Rate, groups: &[SocketAddrV4], is_active: bool) -> String {
    let from = match router {
        0 => format!("{}/24", address(SOURCE_NETWORK, 1)),
        _ => format!("{}/24", address(between_network(router - 1), 2)),
    };
    let (own, host) = (address(receiver_network(router), 1), address(receiver_network(router), 2));
    let mut text = format!(
        "seed = {ROUTER_SEED}\n[memory]\nbuffers = 16384\n\
         [tables]\nroutes_v4 = 1000\nroutes_v6 = 1000\nfilters = 100\n\
         [fabric]\nqueueing = \"off\"\n\
         [[port]]\ninterface = \"from\"\nkind = \"packet\"\naddresses = [\"{from}\"]\n\
         [[port]]\ninterface = \"d\"\nkind = \"packet\"\naddresses = [\"{own}/24\"]\nrate = \"{} b/s\"\n\
         burst_bytes = {BURST_BYTES}\n\
         queue = {{ discipline = \"drr\", buffer_packets = {BUFFER_PACKETS}, drop_from = \"front\", \
         queues = {QUEUES}, hashing = \"direct\" }}\n\
         [port.multicast]\nlast_member_interval = \"100 ms\"\n\
         [[neighbour]]\ninterface = \"d\"\naddress = \"{host}\"\nmac = \"02:00:00:01:00:02\"\n",
        link.bits_per_second()
    );
    if router + 1 < RECEIVERS {
        let own = address(between_network(router), 1);
        let groups: Vec<String> =
            groups.iter().map(|group| format!("{{ group = \"{}\" }}", group.ip())).collect();
        text += &format!(
            "[[port]]\ninterface = \"next\"\nkind = \"packet\"\naddresses = [\"{own}/24\"]\n\
             [port.multicast]\ngroups = [{}]\n",
            groups.join(", ")
        );
    }
    if router > 0 {
        text += &format!(
            "[[port]]\ninterface = \"x\"\nkind = \"packet\"\naddresses = [\"{}/24\"]\n\
             [[route]]\nprefix = \"{}/24\"\nvia = [\"{}\"]\n",
            address(cross_network(router), 1),
            address(SOURCE_NETWORK, 0),
            address(between_network(router - 1), 1)
        );
    }
    if is_active {
        text += &format!(
            "[[plugin]]\nname = \"scale\"\nclass = \"wave-video\"\n\
             [[filter]]\naction = \"active\"\nplugins = [\"scale\"]\noutputs = [\"d\"]\n\
             protocol = \"udp\"\ndestination_ports = \"{VIDEO_PORT}\"\n"
        );
    }
    text
}

/// When everything is over at the latest.
pub(super) fn ends(frame_time: Span, plan: &VideoPlan) -> Time {
    BEGINS + frame_time * u64::from(plan.frames) + DRAINS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_of_each_router_has_one_link_called_as_in_its_file() {
        let configs = routers(Rate::from_megabits(3), &[], Contender::Active).expect("routers");
        for (number, config) in configs.iter().enumerate() {
            for (port, section) in config.ports.iter().enumerate() {
                let end = End::Router(number, Port(port as u32));
                let links = links().into_iter().flatten().filter(|it| *it == end).count();
                assert_eq!((links, end.interface()), (1, section.interface.clone()));
            }
        }
        let ports: usize = configs.iter().map(|config| config.ports.len()).sum();
        let ends = links().len() * 2;
        assert_eq!(ends, ports + 1 + RECEIVERS + (RECEIVERS - 1));
    }
}
