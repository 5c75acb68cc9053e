//! A run of the experiment in virtual time: hosts and routers as nodes, and cables between them.

use anyhow::Result;
use nilometer_router::node::RouterNode;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::machine::Machine;
use nilometer_sim::virtual_clock::{Cable, Plug, VirtualClock};
use nilometer_wire::memory::{HeapMemory, Place};
use nilometer_wire::{Node, Port, Rate, Span, Turns};

use super::clip::Clip;
use super::description::{End, MTU_BYTES, ends, links, router_mac, routers};
use super::hosts::{Hosts, RouterAccount};
use super::outcome::RunOutcome;
use super::{Contender, RECEIVERS, VideoPlan};

/// All cables; only routers' ports are narrow.
const CABLE: Rate = Rate::from_megabits(155);
const CABLE_DELAY: Span = Span::from_nanos(100_000);
const BUFFERS: u32 = 1 << 16;

/// Nodes: the source, the routers, the receivers, and the sources of cross traffic behind the first router.
fn plug(end: End) -> Plug {
    match end {
        End::Source => (0, Port(0)),
        End::Router(number, port) => (1 + number, port),
        End::Receiver(number) => (1 + RECEIVERS + number, Port(0)),
        End::Cross(number) => (2 * RECEIVERS + number, Port(0)),
    }
}

fn router((number, config): (usize, &RouterConfig)) -> Result<RouterNode> {
    let ports: Vec<_> = (0..config.ports.len() as u32)
        .map(|port| (router_mac(number, Port(port)), MTU_BYTES))
        .collect();
    Ok(RouterNode::new(Machine::without_devices(config, &ports)?.router))
}

/// Runs one contender to its end.
///
/// # Errors
/// Where the network cannot be, or a limit of the experiment was reached.
pub(super) fn run(clip: &Clip, plan: &VideoPlan, contender: Contender) -> Result<RunOutcome> {
    let mut hosts = Hosts::new(clip, plan, contender)?;
    let configs = routers(plan.link(clip), &hosts.groups, contender)?;
    let mut routers: Vec<RouterNode> =
        configs.iter().enumerate().map(router).collect::<Result<_>>()?;
    let mut memory = HeapMemory::new(BUFFERS);
    let mut nodes: Vec<Box<dyn Node<Place, HeapMemory> + '_>> = vec![Box::new(&mut hosts.source)];
    nodes.extend(routers.iter_mut().map(|it| Box::new(it) as Box<dyn Node<_, _>>));
    nodes.extend(hosts.viewers.iter_mut().map(|it| Box::new(it) as Box<dyn Node<_, _>>));
    nodes.extend(hosts.crossing.iter_mut().map(|it| Box::new(it) as Box<dyn Node<_, _>>));
    let cables = links().into_iter().map(|ends| Cable {
        ends: ends.map(plug),
        rate: Some(CABLE),
        delay: CABLE_DELAY,
    });
    let mut clock = VirtualClock::new(nodes, &cables.collect::<Vec<_>>(), Turns::default());
    clock.run_until(ends(clip.frame_time(), plan), &mut memory, &mut ());
    drop(clock);
    let accounts: Vec<_> = routers.iter().map(|it| RouterAccount::of(it.router())).collect();
    hosts.outcome(plan, &accounts, Vec::new())
}
