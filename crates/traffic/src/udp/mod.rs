//! UDP: conversations classed, and for each class its own laws and its own series of active sessions.
//!
//! UDP is not elastic: a source decides by itself what it sends, so rate and duration are part of the model
//! and not left to the network. A conversation is the flow of one five-tuple with the flow of the other
//! direction; a conversation that pauses for longer than a flow's inactive timeout counts as several.

mod class;
mod measure;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::record::UDP;
use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_stat::Empirical;
use serde::{Deserialize, Serialize};

pub use class::{Conversation, DirectionTotals, UdpClass, classify};
pub(crate) use measure::{Measure, empty, measure, measure_partial, models};

use crate::biflows::fingerprint;
use crate::coverage::Share;

/// How long after a flow's start its other direction may begin, ns.
const ANSWER_MAX_NS: u64 = 10_000_000_000;
/// The fewest conversations of a pair whose intervals are judged, and the greatest variation of steady ones,
/// as standard deviation over mean.
const PERIODIC_MIN: usize = 4;
const PERIODIC_VARIATION_MAX: f64 = 0.3;

/// One class of UDP traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UdpModel {
    /// The class.
    pub class: UdpClass,
    /// Number of conversations.
    pub conversations: u64,
    /// Share of conversations with at least one packet in the other direction, 0 to 1.
    pub answered_share: f64,
    /// Number of one-way flows and their IP bytes.
    pub carried: Share,
    /// Packets of these flows.
    pub packets: u64,
    /// IP bytes sent by the initiator of a conversation.
    pub request_bytes: Empirical,
    /// IP bytes sent by the responder, in answered conversations; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<Empirical>,
    /// Mean IP bytes per packet, in either direction.
    pub packet_bytes: Empirical,
    /// Duration of a conversation in seconds.
    pub duration_s: Empirical,
    /// Seconds between packets in one direction with more than one packet; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_interval_s: Option<Empirical>,
    /// Seconds between the starts of consecutive conversations of one address pair, up to the bound; absent if no
    /// pair has two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inter_request_s: Option<Empirical>,
    /// Mean number of active conversations, by interval of the model.
    pub sessions: Vec<f64>,
}

/// A conversation as seen in records, with its class.
#[derive(Clone, Debug)]
pub struct Classed {
    /// The flow that began it.
    pub key: FlowKey,
    /// The times of its first and its last packet, ns since 1970.
    pub span_ns: (u64, u64),
    /// What each side sent.
    pub conversation: Conversation,
    /// Its class.
    pub class: UdpClass,
}

/// A pair of hosts and a service: addresses, and the called port.
type Service = (IpAddr, IpAddr, u16);

/// When conversations with each service began, ns since 1970.
pub(crate) type Starts = BTreeMap<Service, Vec<u64>>;

/// The services whose conversations begin at steady intervals.
pub(crate) type PeriodicServices = BTreeSet<Service>;

/// The conversations of UDP records that were not sampled, in an order that depends only on the records.
pub fn conversations(records: &[FlowRecord]) -> Vec<Classed> {
    let mut found = paired(records);
    let periodic = periodic_services(starts(&found));
    classify_all(&mut found, &periodic);
    found
}

/// Conversations without a class yet.
fn paired(records: &[FlowRecord]) -> Vec<Classed> {
    let mut flows: Vec<(u64, &FlowRecord)> = { records.iter() }
        .filter(|record| record.key.protocol == UDP && record.sampling_interval <= 1)
        .map(|record| (fingerprint(&record.key), record))
        .collect();
    flows.sort_unstable_by(|(a, one), (b, other)| {
        (a, one.start_ns).cmp(&(b, other.start_ns)).then_with(|| one.key.cmp(&other.key))
    });
    let mut found: Vec<Classed> = Vec::new();
    for group in flows.chunk_by(|one, other| one.0 == other.0) {
        let group: Vec<&FlowRecord> = group.iter().map(|(_, flow)| *flow).collect();
        pair(&group, &mut found);
    }
    found
}

/// Joins flows of one pair of ends, which must be in the order of their starts.
fn pair(group: &[&FlowRecord], found: &mut Vec<Classed>) {
    let mut is_taken = alloc::vec![false; group.len()];
    for (at, flow) in group.iter().enumerate() {
        if is_taken[at] {
            continue;
        }
        let until = flow.end_ns.max(flow.start_ns.saturating_add(ANSWER_MAX_NS));
        let other = (at + 1..group.len())
            .take_while(|&other| group[other].start_ns <= until)
            .find(|&other| !is_taken[other] && group[other].key == flow.key.reversed());
        if let Some(other) = other {
            is_taken[other] = true;
        }
        let answer = other.map(|other| group[other]);
        let way = |flow: &FlowRecord| DirectionTotals {
            packets: flow.packets,
            octets: flow.octets,
            lasts_s: (flow.end_ns - flow.start_ns) as f64 / 1e9,
        };
        found.push(Classed {
            key: flow.key,
            span_ns: (flow.start_ns, answer.map_or(flow.end_ns, |it| it.end_ns.max(flow.end_ns))),
            conversation: Conversation {
                ports: [flow.key.source_port, flow.key.destination_port],
                ways: [way(flow), answer.map(way).unwrap_or_default()],
            },
            class: UdpClass::Exchange,
        });
    }
}

fn service(classed: &Classed) -> Service {
    (classed.key.source, classed.key.destination, classed.key.destination_port)
}

fn starts<'a>(found: impl IntoIterator<Item = &'a Classed>) -> Starts {
    let mut starts = Starts::new();
    for classed in found {
        starts.entry(service(classed)).or_default().push(classed.span_ns.0);
    }
    starts
}

/// When the conversations of some records began.
pub(crate) fn starts_of(records: &[FlowRecord]) -> Starts {
    starts(&paired(records))
}

/// The services whose conversations begin at steady intervals.
pub(crate) fn periodic_services(starts: Starts) -> PeriodicServices {
    let of =
        |(service, mut starts): (Service, Vec<u64>)| is_periodic(&mut starts).then_some(service);
    starts.into_iter().filter_map(of).collect()
}

fn classify_all(found: &mut [Classed], periodic: &PeriodicServices) {
    for classed in found {
        let is_periodic = periodic.contains(&service(classed));
        classed.class = classify(&classed.conversation, is_periodic);
    }
}

fn is_periodic(starts: &mut [u64]) -> bool {
    if starts.len() < PERIODIC_MIN {
        return false;
    }
    starts.sort_unstable();
    let gaps: Vec<f64> = starts.windows(2).map(|two| (two[1] - two[0]) as f64 / 1e9).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let square = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>();
    mean > 0.1 && libm::sqrt(square / gaps.len() as f64) < PERIODIC_VARIATION_MAX * mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use core::net::Ipv4Addr;
    use nilometer_flow::EndReason;

    fn flow(client: u8, port: u16, start_ms: u64, packets: u64) -> FlowRecord {
        FlowRecord {
            key: FlowKey {
                source: Ipv4Addr::new(192, 0, 2, client).into(),
                destination: Ipv4Addr::new(198, 51, 100, 1).into(),
                source_port: 40_000 + (start_ms % 20_000) as u16,
                destination_port: port,
                protocol: UDP,
            },
            start_ns: start_ms * 1_000_000,
            end_ns: (start_ms + 20 * (packets - 1)) * 1_000_000,
            packets,
            octets: 100 * packets,
            tcp_flags: 0,
            payload_octets: Some(72 * packets),
            opened: None,
            end_reason: EndReason::IdleTimeout,
            sampling_interval: 0,
        }
    }

    fn answer(to: &FlowRecord, octets: u64) -> FlowRecord {
        let (key, start_ns) = (to.key.reversed(), to.start_ns + 5_000_000);
        FlowRecord { key, start_ns, end_ns: to.end_ns + 5_000_000, octets, ..to.clone() }
    }

    const GRID: Grid =
        Grid { origin_ns: 0, interval_s: 10.0, intervals: 6, last_s: 10.0, bound_s: 60.0 };

    #[test]
    fn flows_of_both_ways_are_one_conversation_with_its_class_and_its_laws() {
        let mut records = Vec::new();
        for number in 0..40 {
            let request = flow(number, 53, 1_000 * u64::from(number), 1);
            records.extend([answer(&request, 250), request]);
        }
        let call = flow(77, 9_999, 5_000, 1_001);
        records.extend([answer(&call, 160_160), call]);
        let found = conversations(&records);
        assert_eq!(found.len(), 41);
        let models = models(measure(&records, GRID), GRID);
        let classes: Vec<UdpClass> = models.iter().map(|model| model.class).collect();
        assert_eq!(classes, [UdpClass::RtpLike, UdpClass::DnsLike]);
        let (call, names) = (&models[0], &models[1]);
        assert_eq!((names.conversations, names.answered_share), (40, 1.0));
        assert_eq!(names.carried, Share { flows: 80, octets: 40 * 350 });
        assert_eq!(names.response_bytes.as_ref().map(Empirical::mean), Some(250.0));
        assert!((call.packet_interval_s.as_ref().expect("many").mean() - 0.02).abs() < 1e-9);
        let expected = [0.5, 1.0, 0.5005];
        for (found, expected) in call.sessions.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-3, "{:?}", call.sessions);
        }
    }

    #[test]
    fn conversations_at_steady_intervals_are_periodic() {
        let by_the_clock: Vec<FlowRecord> =
            (0..6).map(|number| flow(1, 7_000, 10_000 * number + 7 * number % 30, 1)).collect();
        let found = conversations(&by_the_clock);
        assert!(found.iter().all(|one| one.class == UdpClass::Periodic), "{found:?}");
        let model = &models(measure(&by_the_clock, GRID), GRID)[0];
        let gaps = model.inter_request_s.as_ref().expect("five gaps");
        assert!((gaps.mean() - 10.0).abs() < 0.1);
        let by_chance: Vec<FlowRecord> =
            [0, 900, 1_000, 17_000, 17_400].map(|at| flow(1, 7_000, at, 1)).to_vec();
        assert!(conversations(&by_chance).iter().all(|one| one.class == UdpClass::Exchange));
    }

    #[test]
    fn sampled_records_and_other_protocols_are_left_alone() {
        let mut sampled = flow(1, 53, 0, 1);
        sampled.sampling_interval = 100;
        let mut other = flow(1, 53, 0, 1);
        other.key.protocol = 132;
        assert!(conversations(&[sampled, other]).is_empty());
    }
}
