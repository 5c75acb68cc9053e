//! The network of the experiment, and a run of it: three routers in a row, each with a receiver on a narrow link.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context, Result, anyhow, ensure};
use nilometer_router::node::RouterNode;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::machine::Machine;
use nilometer_sim::virtual_clock::{Cable, VirtualClock};
use nilometer_video::Frame;
use nilometer_wire::memory::{HeapMemory, Place};
use nilometer_wire::{Node, Port, Rate, Span, Time, Turns};

use super::clip::Clip;
use super::layered::LayeredReceiver;
use super::layers::{CROSS_PORT, LAYER_ENDS, QUEUES, VIDEO_PORT, cross_source, groups};
use super::sources::{CrossSource, VideoSource};
use super::viewer::{FrameSeen, Viewer};
use super::{Contender, RECEIVERS, VideoPlan};

/// All cables; what is narrow is a router's port.
const CABLE: Rate = Rate::from_megabits(155);
const CABLE_DELAY: Span = Span::from_nanos(100_000);
/// When the first frame is sent: groups are joined before.
const BEGINS: Time = Time::from_nanos(200_000_000);
/// How long what waits in queues is awaited after the last frame.
const DRAINS: Span = Span::from_secs(5);
const BUFFERS: u32 = 1 << 16;
const MTU_BYTES: u16 = 1_500;
/// Packets that wait before a narrow link, of all flows.
const BUFFER_PACKETS: u32 = 200;
/// The router's seed, by which it spreads flows.
const ROUTER_SEED: u64 = 1;

/// What one receiver got.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewerOutcome {
    /// Frame by frame.
    pub frames: Vec<FrameSeen>,
    /// The requested frame.
    pub picture: Option<Frame>,
    /// Packets of the video that came, and that were used.
    pub video_packets: u64,
    /// Those that were used for a frame.
    pub used_packets: u64,
    /// Bytes of the video that came in the second half of the burst, as its link counts.
    pub late_burst_bytes: u64,
    /// Packets of cross traffic that came.
    pub cross_packets: u64,
    /// When the number of joined layers changed, since the first frame was sent; empty but for layered multicast.
    pub subscriptions: Vec<(Time, usize)>,
    /// Packets that its router dropped in queues, of cross traffic too, and in the plugin.
    pub dropped_by_queues: u64,
    /// Those that the plugin dropped.
    pub dropped_by_plugin: u64,
}

/// What became of one contender.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// Packets of the video that were sent.
    pub sent_packets: u64,
    /// Of each receiver.
    pub viewers: Vec<ViewerOutcome>,
}

/// Addresses of a network: `198.18.N.1` is the router's, `.2` the host's or the next router's.
fn address(network: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, network, host)
}

fn router_mac(router: usize, port: usize) -> [u8; 6] {
    [2, 0, 0, 0, router as u8 + 1, port as u8]
}

/// The network of the source, those of receivers, of cross traffic and between routers.
const SOURCE_NETWORK: u8 = 0;
fn receiver_network(router: usize) -> u8 {
    1 + router as u8
}
fn cross_network(router: usize) -> u8 {
    101 + router as u8
}
fn between_network(router: usize) -> u8 {
    11 + router as u8
}

/// A router's description: ports `from` and `d`, and where there are such, `next` and `x`.
fn description(router: usize, link: Rate, groups: &[SocketAddrV4], is_active: bool) -> String {
    let from = match router {
        0 => format!("{}/24", address(SOURCE_NETWORK, 1)),
        _ => format!("{}/24", address(between_network(router - 1), 2)),
    };
    let (own, host) = (address(receiver_network(router), 1), address(receiver_network(router), 2));
    let mut text = format!(
        "seed = {ROUTER_SEED}\n[fabric]\nqueueing = \"off\"\n\
         [[port]]\ninterface = \"from\"\naddresses = [\"{from}\"]\n\
         [[port]]\ninterface = \"d\"\naddresses = [\"{own}/24\"]\nrate = \"{} b/s\"\nburst_bytes = 3000\n\
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
            "[[port]]\ninterface = \"next\"\naddresses = [\"{own}/24\"]\n\
             [port.multicast]\ngroups = [{}]\n",
            groups.join(", ")
        );
    }
    if router > 0 {
        text += &format!(
            "[[port]]\ninterface = \"x\"\naddresses = [\"{}/24\"]\n\
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

fn router(
    number: usize,
    link: Rate,
    groups: &[SocketAddrV4],
    is_active: bool,
) -> Result<RouterNode> {
    let text = description(number, link, groups, is_active);
    let config: RouterConfig = toml::from_str(&text).context("the router's description")?;
    let ports: Vec<_> =
        (0..config.ports.len()).map(|port| (router_mac(number, port), MTU_BYTES)).collect();
    Ok(RouterNode::new(Machine::without_devices(&config, &ports)?.router))
}

/// Ports of routers: where the video comes from, the receiver, and then those that there are.
const FROM: Port = Port(0);
const RECEIVER: Port = Port(1);
const NEXT: Port = Port(2);
fn cross_port(router: usize) -> Port {
    Port(if router + 1 < RECEIVERS { 3 } else { 2 })
}

/// Nodes: the source, the routers, the receivers, and the sources of cross traffic behind the first router.
fn cables() -> Vec<Cable> {
    let cable = |one, other| Cable { ends: [one, other], rate: Some(CABLE), delay: CABLE_DELAY };
    let router = |number: usize| 1 + number;
    let mut cables = vec![cable((0, Port(0)), (router(0), FROM))];
    for number in 0..RECEIVERS {
        cables.push(cable((router(number), RECEIVER), (1 + RECEIVERS + number, Port(0))));
        if number > 0 {
            cables.push(cable((router(number - 1), NEXT), (router(number), FROM)));
            let cross = 2 * RECEIVERS + number;
            cables.push(cable((cross, Port(0)), (router(number), cross_port(number))));
        }
    }
    cables
}

/// Everything that stands in the network.
struct Network<'a> {
    source: VideoSource<'a>,
    routers: Vec<RouterNode>,
    viewers: Vec<Viewer<'a>>,
    crossing: Vec<CrossSource>,
}

impl<'a> Network<'a> {
    fn new(clip: &'a Clip, plan: &VideoPlan, contender: Contender) -> Result<Network<'a>> {
        let from = SocketAddrV4::new(address(SOURCE_NETWORK, 2), VIDEO_PORT);
        let is_layered = contender == Contender::Layered;
        let count = if is_layered { LAYER_ENDS.len() } else { 1 };
        let groups = groups(ROUTER_SEED, from, count);
        ensure!(groups.len() == count, "there are no such groups");
        let link = plan.link(clip);
        let is_active = contender == Contender::Active;
        let routers = (0..RECEIVERS).map(|number| router(number, link, &groups, is_active));
        let viewer = |number: usize| {
            let layered = is_layered.then(|| LayeredReceiver::new(count, plan.seed, number as u64));
            let own = address(receiver_network(number), 2);
            Viewer::new(clip, (own, &groups), layered, plan.pictured)
        };
        Ok(Network {
            source: VideoSource::new(clip, (from, &groups), (BEGINS, plan)),
            routers: routers.collect::<Result<_>>()?,
            viewers: (0..RECEIVERS).map(viewer).collect(),
            crossing: (1..RECEIVERS)
                .map(|number| crossing(plan, link, number))
                .collect::<Result<_>>()?,
        })
    }

    fn run(&mut self, until: Time) -> Result<()> {
        let mut memory = HeapMemory::new(BUFFERS);
        let mut nodes: Vec<Box<dyn Node<Place, HeapMemory> + '_>> =
            vec![Box::new(&mut self.source)];
        nodes.extend(self.routers.iter_mut().map(|it| Box::new(it) as Box<dyn Node<_, _>>));
        nodes.extend(self.viewers.iter_mut().map(|it| Box::new(it) as Box<dyn Node<_, _>>));
        nodes.extend(self.crossing.iter_mut().map(|it| Box::new(it) as Box<dyn Node<_, _>>));
        let mut clock = VirtualClock::new(nodes, &cables(), Turns::default());
        clock.run_until(until, &mut memory, &mut ());
        drop(clock);
        let no_room = self.source.sent.no_room
            + self.crossing.iter().map(|it| it.sent.no_room).sum::<u64>()
            + self.viewers.iter().map(|it| it.no_room).sum::<u64>();
        ensure!(no_room == 0, "{no_room} packets found no buffer");
        for router in &self.routers {
            ensure!(router.router().balances(), "a router has lost count of its packets");
            let fault = router.router().plugins().states().find_map(|state| state.fault);
            ensure!(fault.is_none(), "the plugin was cut off: {fault:?}");
        }
        Ok(())
    }
}

/// The cross traffic behind a router: one stream at the second, two at the third.
fn crossing(plan: &VideoPlan, link: Rate, number: usize) -> Result<CrossSource> {
    let to = SocketAddrV4::new(address(receiver_network(number), 2), CROSS_PORT);
    let from = address(cross_network(number), 2);
    let streams = (0..number as u32).map(|stream| cross_source(ROUTER_SEED, from, to, stream));
    let streams: Option<Vec<SocketAddrV4>> = streams.collect();
    let streams = streams.ok_or_else(|| anyhow!("there are no such ports"))?;
    let mac = router_mac(number, cross_port(number).0 as usize);
    let burst = (BEGINS + plan.burst.0, BEGINS + plan.burst.1);
    Ok(CrossSource::new((&streams, to), (mac, link), burst, plan.seed))
}

/// Runs one contender to its end.
///
/// # Errors
/// Where the network cannot be, or a limit of the experiment was reached.
pub(super) fn run(clip: &Clip, plan: &VideoPlan, contender: Contender) -> Result<RunOutcome> {
    let mut network = Network::new(clip, plan, contender)?;
    let ends = BEGINS + clip.frame_time() * u64::from(plan.frames) + DRAINS;
    network.run(ends)?;
    let Network { source, routers, mut viewers, .. } = network;
    let seen = viewers.iter_mut().zip(&routers).map(|(viewer, router)| {
        let counts = viewer.finish(plan.frames).map_err(|why| anyhow!("{why}"))?;
        let router = router.router();
        let plugin = router.plugins().states().next();
        let middle = BEGINS + plan.burst.0 + (plan.burst.1 - plan.burst.0) / 2;
        let late = |at: Time| middle <= at && at < BEGINS + plan.burst.1;
        let late = viewer.video_bytes.iter().filter(|(at, _)| late(*at));
        let is_layered = contender == Contender::Layered;
        let steps = viewer.subscriptions.iter().filter(|_| is_layered);
        Ok(ViewerOutcome {
            picture: viewer.picture.take(),
            video_packets: viewer.video_packets,
            used_packets: counts.used,
            late_burst_bytes: late.map(|(_, bytes)| u64::from(*bytes) + 42).sum(),
            cross_packets: viewer.cross_packets,
            subscriptions: steps.map(|(at, to)| (Time(at.since(BEGINS).0), *to)).collect(),
            dropped_by_queues: router.fabric().dropped_packets(),
            dropped_by_plugin: plugin.map_or(0, |state| state.counters.dropped),
            frames: std::mem::take(&mut viewer.frames),
        })
    });
    Ok(RunOutcome { sent_packets: source.sent.packets, viewers: seen.collect::<Result<_>>()? })
}
