//! The hosts of the experiment, the same nodes under both clocks, and the outcome of a run from them
//! and their routers.

use std::net::SocketAddrV4;

use anyhow::{Result, anyhow, ensure};
use nilometer_router::pipeline::Router;
use nilometer_wire::{Rate, Time};

use super::clip::Clip;
use super::description::{
    BEGINS, ROUTER_SEED, SOURCE_NETWORK, address, cross_network, cross_port, receiver_network,
    router_mac,
};
use super::layered::LayeredReceiver;
use super::layers::{CROSS_PORT, LAYER_ENDS, VIDEO_PORT, cross_source, groups};
use super::outcome::{RunOutcome, ViewerOutcome};
use super::punctual::ThreadPunctuality;
use super::sources::{CrossSource, VideoSource};
use super::viewer::Viewer;
use super::{Contender, RECEIVERS, VideoPlan};

/// The source, the receivers, and the sources of cross traffic behind the second and the third router.
pub(super) struct Hosts<'a> {
    contender: Contender,
    pub(super) groups: Vec<SocketAddrV4>,
    pub(super) source: VideoSource<'a>,
    pub(super) viewers: Vec<Viewer<'a>>,
    pub(super) crossing: Vec<CrossSource>,
}

/// A router's account at the end.
#[derive(Clone, Debug)]
pub(super) struct RouterAccount {
    balances: bool,
    fault: Option<String>,
    dropped_by_queues: u64,
    dropped_by_plugin: u64,
}

impl RouterAccount {
    pub(super) fn of(router: &Router) -> RouterAccount {
        let plugin = router.plugins().states().next();
        RouterAccount {
            balances: router.balances(),
            fault: plugin
                .as_ref()
                .and_then(|state| state.fault.as_ref().map(|why| format!("{why:?}"))),
            dropped_by_queues: router.fabric().dropped_packets(),
            dropped_by_plugin: plugin.map_or(0, |state| state.counters.dropped),
        }
    }
}

impl<'a> Hosts<'a> {
    /// # Errors
    /// Where there are no groups or ports such as the experiment needs.
    pub(super) fn new(clip: &'a Clip, plan: &VideoPlan, contender: Contender) -> Result<Hosts<'a>> {
        let from = SocketAddrV4::new(address(SOURCE_NETWORK, 2), VIDEO_PORT);
        let is_layered = contender == Contender::Layered;
        let count = if is_layered { LAYER_ENDS.len() } else { 1 };
        let groups = groups(ROUTER_SEED, from, count);
        ensure!(groups.len() == count, "there are no such groups");
        let link = plan.link(clip);
        let viewer = |number: usize| {
            let layered = is_layered.then(|| LayeredReceiver::new(count, plan.seed, number as u64));
            let own = address(receiver_network(number), 2);
            Viewer::new(clip, (own, &groups), layered, plan.pictured)
        };
        let viewers = (0..RECEIVERS).map(viewer).collect();
        let crossing = (1..RECEIVERS).map(|number| crossing(plan, link, number));
        Ok(Hosts {
            contender,
            source: VideoSource::new(clip, (from, &groups), (BEGINS, plan)),
            viewers,
            crossing: crossing.collect::<Result<_>>()?,
            groups,
        })
    }

    /// The outcome.
    ///
    /// # Errors
    /// When a limit of the experiment was reached, or a router or its plugin failed.
    pub(super) fn outcome(
        self,
        plan: &VideoPlan,
        routers: &[RouterAccount],
        threads: Vec<ThreadPunctuality>,
    ) -> Result<RunOutcome> {
        let Hosts { contender, source, viewers, crossing, .. } = self;
        let no_room = source.sent.no_room
            + crossing.iter().map(|it| it.sent.no_room).sum::<u64>()
            + viewers.iter().map(|it| it.no_room).sum::<u64>();
        ensure!(no_room == 0, "{no_room} packets found no buffer");
        let seen = viewers.into_iter().zip(routers).map(|(viewer, router)| {
            ensure!(router.balances, "a router has lost count of its packets");
            ensure!(router.fault.is_none(), "the plugin was disabled: {:?}", router.fault);
            viewed(viewer, plan, (contender, router))
        });
        let viewers = seen.collect::<Result<_>>()?;
        Ok(RunOutcome { sent_packets: source.sent.packets, viewers, threads })
    }
}

/// What a receiver behind its router received.
fn viewed(
    mut viewer: Viewer<'_>,
    plan: &VideoPlan,
    (contender, router): (Contender, &RouterAccount),
) -> Result<ViewerOutcome> {
    let counts = viewer.finish(plan.frames).map_err(|why| anyhow!("{why}"))?;
    let middle = BEGINS + plan.burst.0 + (plan.burst.1 - plan.burst.0) / 2;
    let late = |at: Time| middle <= at && at < BEGINS + plan.burst.1;
    let late = viewer.video_bytes.iter().filter(|(at, _)| late(*at));
    let steps = viewer.subscriptions.iter().filter(|_| contender == Contender::Layered);
    Ok(ViewerOutcome {
        picture: viewer.picture.take(),
        video_packets: viewer.video_packets,
        used_packets: counts.used,
        late_burst_bytes: late.map(|(_, bytes)| u64::from(*bytes) + 42).sum(),
        cross_packets: viewer.cross_packets,
        subscriptions: steps.map(|(at, to)| (Time(at.since(BEGINS).0), *to)).collect(),
        dropped_by_queues: router.dropped_by_queues,
        dropped_by_plugin: router.dropped_by_plugin,
        frames: std::mem::take(&mut viewer.frames),
    })
}

/// The cross traffic behind a router: one stream at the second, two at the third.
fn crossing(plan: &VideoPlan, link: Rate, number: usize) -> Result<CrossSource> {
    let to = SocketAddrV4::new(address(receiver_network(number), 2), CROSS_PORT);
    let from = address(cross_network(number), 2);
    let streams = (0..number as u32).map(|stream| cross_source(ROUTER_SEED, from, to, stream));
    let streams: Option<Vec<SocketAddrV4>> = streams.collect();
    let streams = streams.ok_or_else(|| anyhow!("there are no such ports"))?;
    let mac = router_mac(number, cross_port(number));
    let burst = (BEGINS + plan.burst.0, BEGINS + plan.burst.1);
    Ok(CrossSource::new((&streams, to), (mac, link), burst, plan.seed))
}
