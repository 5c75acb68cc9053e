//! The results of a run: goodput of each flow, losses and load of the bottleneck.
//!
//! *Goodput* counts whole packets, headers included, whose payload was delivered in order, once, from
//! the beginning of the run to its end, and is given as a share of the flow's *fair share*: the
//! bottleneck's rate divided by the number of flows that pass it. The *standard deviation over fair
//! share* is taken across the measured flows of one run.

use alloc::vec::Vec;

use nilometer_queue::Reason;
use nilometer_tcp::Connection;
use nilometer_wire::{Span, Time};

use crate::assembly::{Assembly, Flow, FlowKind};
use crate::course::Course;
use crate::forwarder::RouterAccount;
use crate::link::Counters;
use crate::member::Member;
use crate::network::{Journal, Network, Tap};
use crate::stack::packet_bytes;

/// The results of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowOutcome {
    /// What made it.
    pub kind: FlowKind,
    /// Which table of the scenario, counted among its kind.
    pub table: u32,
    /// Bytes delivered in order once, headers included; of a scripted connection both ways.
    pub delivered_bytes: f64,
    /// Those bytes by the length of the run, bits per second.
    pub goodput: f64,
    /// Its part of the bottleneck, bits per second, if it is measured.
    pub share: Option<f64>,
    /// When it began.
    pub start: Time,
    /// When its last byte was delivered, of a flow with an end; when both ends of a scripted connection had done
    /// and received everything.
    pub finished: Option<Time>,
    /// Retransmission timeouts, of a scripted connection those of both ends.
    pub timeouts: u64,
    /// Segments sent again, likewise.
    pub retransmits: u64,
    /// Datagrams: the mean and the longest time from sender to receiver.
    pub delay: Option<(f64, Span)>,
    /// Datagrams: packets sent and received.
    pub datagrams: Option<(u64, u64)>,
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// By number.
    pub flows: Vec<FlowOutcome>,
    /// The digest of each `[[model]]`'s plan.
    pub plan_digests: Vec<[u8; 32]>,
    /// Everything that happened, in one number and in counts.
    pub journal: Journal,
    /// Packets wholly transmitted, on all links together.
    pub packet_hops: u64,
    /// The bottleneck's counters.
    pub bottleneck: Counters,
    /// Bits that the bottleneck transmitted, divided by those that it could have.
    pub utilisation: f64,
    /// Packets that were longer than the MTU of a link on their path, on all links together.
    pub too_big: u64,
    /// Packets that waited at the bottleneck, the mean of random moments.
    pub mean_queue_packets: f64,
    /// Packets that no link, fault box or router can account for: whether there are none.
    pub is_balanced: bool,
    /// What routers with descriptions did, in the order of the scenario.
    pub routers: Vec<RouterAccount>,
    /// The delays of datagrams over time, of each table of them by its number; empty unless requested.
    pub courses: Vec<(u32, Course)>,
}

/// Mean and population standard deviation.
fn moments(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let count = values.clone().count() as f64;
    if count == 0.0 {
        return None;
    }
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    Some((mean, libm::sqrt(variance)))
}

impl Outcome {
    /// Reads the network at the end of its run.
    pub(crate) fn of<T: Tap>(
        network: &Network<Member, T>,
        assembly: &About,
        mean_queue_packets: f64,
    ) -> Outcome {
        let seconds = assembly.duration.as_secs_f64();
        let flow = |flow: &Flow| flow_outcome(network, flow, seconds);
        let counters = network.counters();
        let bottleneck = counters[assembly.bottleneck as usize];
        let capacity = assembly.rate * seconds;
        Outcome {
            flows: assembly.flows.iter().map(flow).collect(),
            plan_digests: assembly.plan_digests.clone(),
            journal: network.journal(),
            packet_hops: counters.iter().map(|link| link.transmitted_packets).sum(),
            bottleneck,
            utilisation: bottleneck.transmitted_bytes as f64 * 8.0 / capacity,
            too_big: counters.iter().map(|link| link.drops.packets(Reason::TooBig)).sum(),
            mean_queue_packets,
            is_balanced: network.balances() && network.members().all(balances),
            routers: network.members().filter_map(account).collect(),
            courses: courses(network, &assembly.flows),
        }
    }

    fn ratios(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        self.flows.iter().filter_map(|flow| flow.share.map(|share| flow.goodput / share))
    }

    /// Mean goodput over fair share, percent; `None` if no flow is measured.
    pub fn fair_share_percent(&self) -> Option<f64> {
        moments(self.ratios()).map(|(mean, _)| 100.0 * mean)
    }

    /// Standard deviation of goodput across the measured flows, over fair share.
    pub fn stddev_over_fair_share(&self) -> Option<f64> {
        moments(self.ratios()).map(|(_, deviation)| deviation)
    }

    /// Packets dropped at the bottleneck, divided by those offered to it.
    pub fn loss_ratio(&self) -> f64 {
        let dropped = self.bottleneck.drops.total_packets() as f64;
        dropped / (self.bottleneck.offered_packets as f64).max(1.0)
    }

    /// Packets dropped at the bottleneck for `reason`.
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.bottleneck.drops.packets(reason)
    }

    /// Retransmission timeouts of all flows.
    pub fn timeouts(&self) -> u64 {
        self.flows.iter().map(|flow| flow.timeouts).sum()
    }

    /// Segments sent again by all flows.
    pub fn retransmits(&self) -> u64 {
        self.flows.iter().map(|flow| flow.retransmits).sum()
    }

    /// Mean delay of all datagrams that arrived, seconds.
    pub fn mean_datagram_delay_s(&self) -> Option<f64> {
        let arrived = |flow: &FlowOutcome| {
            let (_, received) = flow.datagrams?;
            flow.delay.map(|(mean, _)| (mean * received as f64, received as f64))
        };
        let sums = self.flows.iter().filter_map(arrived);
        let (delay, count) = sums.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (count > 0.0).then(|| delay / count)
    }

    /// Everything that a digest of the run is to cover, as words in their order.
    pub fn words(&self, take: &mut dyn FnMut(u64)) {
        for word in [self.journal.digest, self.journal.deliveries, self.packet_hops] {
            take(word);
        }
        for flow in &self.flows {
            take(flow.delivered_bytes.to_bits());
            take(flow.timeouts);
            take(flow.retransmits);
            take(flow.finished.map_or(u64::MAX, |at| at.0));
        }
    }
}

/// What is still known of an assembly when its network runs.
pub(crate) struct About {
    pub(crate) flows: Vec<Flow>,
    pub(crate) plan_digests: Vec<[u8; 32]>,
    pub(crate) bottleneck: u32,
    pub(crate) rate: f64,
    pub(crate) duration: Span,
}

impl About {
    /// Takes `assembly` apart.
    pub(crate) fn split(assembly: Assembly) -> (crate::plan::Plan<Member>, About) {
        let Assembly { plan, flows, plan_digests, bottleneck, rate, duration } = assembly;
        let rate = rate.bits_per_second() as f64;
        (plan, About { flows, plan_digests, bottleneck, rate, duration })
    }
}

/// The delays that the sinks kept, those of a table together.
fn courses<T: Tap>(network: &Network<Member, T>, flows: &[Flow]) -> Vec<(u32, Course)> {
    let mut courses: Vec<(u32, Course)> = Vec::new();
    for flow in flows {
        let Member::Sink(sink) = network.member(flow.receiver as usize) else { continue };
        let Some(course) = &sink.course else { continue };
        match courses.last_mut() {
            Some((table, own)) if *table == flow.table => own.join(course),
            _ => courses.push((flow.table, (**course).clone())),
        }
    }
    courses
}

/// Whether a member can account for all its packets.
fn balances(member: &Member) -> bool {
    match member {
        Member::Fault(fault_box) => fault_box.balances(),
        Member::Router(router) => router.account().is_balanced,
        _ => true,
    }
}

fn account(member: &Member) -> Option<RouterAccount> {
    if let Member::Router(router) = member { Some(router.account()) } else { None }
}

/// What one end has received of the other's payload, in whole packets with their headers.
fn delivered_bytes(sender: &Connection, receiver: &Connection) -> f64 {
    let (packet, payload) = packet_bytes(sender.config());
    receiver.delivered() as f64 / f64::from(payload) * f64::from(packet)
}

fn flow_outcome<T: Tap>(network: &Network<Member, T>, flow: &Flow, seconds: f64) -> FlowOutcome {
    let ends = [flow.sender, flow.receiver].map(|member| network.member(member as usize));
    let mut outcome = FlowOutcome {
        kind: flow.kind,
        table: flow.table,
        delivered_bytes: 0.0,
        goodput: 0.0,
        share: flow.share,
        start: Time::ZERO,
        finished: None,
        timeouts: 0,
        retransmits: 0,
        delay: None,
        datagrams: None,
    };
    if let [Member::Endpoint(sender), Member::Endpoint(receiver)] = ends {
        let (sender_side, receiver_side) = (sender.connection(), receiver.connection());
        outcome.delivered_bytes = delivered_bytes(sender_side, receiver_side);
        outcome.start = sender.start();
        outcome.finished = receiver.finished();
        outcome.timeouts = sender_side.statistics().timeouts;
        outcome.retransmits = sender_side.statistics().retransmitted_segments;
    }
    if let [Member::Scripted(client), Member::Scripted(server)] = ends {
        let sides = [client.connection(), server.connection()];
        let [client_side, server_side] = sides;
        outcome.delivered_bytes =
            delivered_bytes(client_side, server_side) + delivered_bytes(server_side, client_side);
        outcome.start = client.start();
        outcome.finished =
            client.finished().zip(server.finished()).map(|(one, other)| one.max(other));
        outcome.timeouts = sides.iter().map(|side| side.statistics().timeouts).sum();
        outcome.retransmits =
            sides.iter().map(|side| side.statistics().retransmitted_segments).sum();
    }
    if let [Member::Source(source), Member::Sink(sink)] = ends {
        outcome.delivered_bytes = sink.bytes as f64;
        outcome.datagrams = Some((u64::from(source.sent()), sink.packets));
        let mean = sink.delay_picos as f64 / sink.packets.max(1) as f64 / 1e12;
        outcome.delay = (sink.packets > 0).then_some((mean, sink.delay_most));
    }
    outcome.goodput = outcome.delivered_bytes * 8.0 / seconds;
    outcome
}
