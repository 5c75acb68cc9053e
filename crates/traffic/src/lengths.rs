//! Numbers and lengths of TCP flows: counted, or estimated from samples.
//!
//! Where every packet was metered, flows are counted. Where an exporter sampled 1 packet in N, most flows
//! left no record; their number and law come from [`nilometer_stat::inversion`], one inversion for each N
//! among the records, added up. Before that, pieces of one flow are joined: the time between two sampled
//! packets of a flow is N times that between two packets, often more than an exporter's inactive timeout, so
//! that sampling splits flows that would otherwise be whole. Records of one five-tuple are one flow if
//! neither SYN nor FIN lies between them, and the gap is at most three times the mean gap between sampled
//! packets of a record, or a minute if that is longer: a host does not reuse the same ports sooner
//! (TIME-WAIT, RFC 9293, section 3.4.2, which Linux keeps for 60 s).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_stat::inversion::{Estimate, Inversion};
use nilometer_stat::{ConfidenceInterval, Empirical, Form};
use serde::{Deserialize, Serialize};

use crate::sampled_records::Group;

/// Knots of the table of lengths where flows were counted.
const LENGTH_KNOTS: usize = 512;
/// For this long ports are not reused, ns.
const TIME_WAIT_NS: u64 = 60_000_000_000;
/// The longest gap over which sampled records are joined, ns: what is silent for longer is over.
const JOINED_GAP_MAX_NS: u64 = 600_000_000_000;
/// Records are joined over this many mean gaps between sampled packets.
const MEAN_GAPS: f64 = 3.0;
/// No share of a law is below this, or its table would not ascend.
const SHARE_MIN: f64 = 1e-12;

/// How flow counts were obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Method {
    /// Counted: every packet was metered.
    #[serde(rename = "counted")]
    Counted,
    /// Packets were sampled: flow counts estimated from SYNs, and FINs if every flow has one; flow lengths by
    /// expectation-maximisation.
    #[serde(rename = "syn-joint-em")]
    SynJointEm,
    /// Packets were sampled without flags, so that flows are not identified: a lower bound.
    #[serde(rename = "lower-bound")]
    LowerBound,
}

/// The lengths of the original's TCP flows, one-way, in packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FlowLengths {
    /// How the numbers were obtained.
    pub method: Method,
    /// 95 % confidence interval of the number of flows; the count twice if counted.
    pub flow_count_interval: ConfidenceInterval,
    /// 95 % confidence interval of the mean length.
    pub mean_length_interval: ConfidenceInterval,
    /// P(FlowLength): packets of a flow.
    pub law: Empirical,
}

/// Numbers and law of flow lengths.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub flow_count: f64,
    pub mean_length_packets: f64,
    /// The largest sampling interval among the records, 1 where none is sampled.
    pub sampling_interval: u32,
    pub lengths: FlowLengths,
}

/// Is this a record of sampled packets?
pub(crate) fn is_sampled(record: &FlowRecord) -> bool {
    record.sampling_interval >= 2
}

/// The total time between sampled packets of records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    waited_ns: u128,
    waits: u128,
}

impl Waits {
    /// Takes a record.
    pub fn note(&mut self, record: &FlowRecord) {
        if record.packets >= 2 {
            self.waited_ns += u128::from(record.end_ns.saturating_sub(record.start_ns));
            self.waits += u128::from(record.packets - 1);
        }
    }

    /// The gap over which sampled records are joined, ns.
    pub fn gap_ns(&self) -> u64 {
        let (waited_ns, waits) = (self.waited_ns as f64, self.waits as f64);
        let gap_ns = if waits > 0.0 { (MEAN_GAPS * waited_ns / waits) as u64 } else { 0 };
        gap_ns.clamp(TIME_WAIT_NS, JOINED_GAP_MAX_NS)
    }
}

/// The numbers of counted flows, given as (packets of a flow, flows with this many packets).
fn counted(lengths: Vec<(f64, u64)>) -> Option<Measured> {
    let count = lengths.iter().map(|(_, flows)| flows).sum::<u64>() as f64;
    let packets = lengths.iter().map(|(packets, flows)| packets * *flows as f64);
    let mean = packets.sum::<f64>() / count;
    let law = Empirical::step_from_counts(lengths, LENGTH_KNOTS).ok()?;
    Some(Measured {
        flow_count: count,
        mean_length_packets: mean,
        sampling_interval: 1,
        lengths: FlowLengths {
            method: Method::Counted,
            flow_count_interval: ConfidenceInterval::exact(count),
            mean_length_interval: ConfidenceInterval::exact(mean),
            law,
        },
    })
}

fn inverted(group: Group, found: &Inversion, lacks_flags: bool) -> Measured {
    Measured {
        flow_count: found.flows.value,
        mean_length_packets: found.mean_length.value,
        sampling_interval: group.interval,
        lengths: FlowLengths {
            method: if lacks_flags { Method::LowerBound } else { Method::SynJointEm },
            flow_count_interval: found.flows.interval,
            mean_length_interval: found.mean_length.interval,
            law: found.lengths.clone(),
        },
    }
}

/// The numbers of flows that were metered whole, given with their packets, and of sampled ones.
pub(crate) fn measure(
    lengths: Vec<(f64, u64)>,
    sampled: &BTreeMap<Group, Inversion>,
) -> Option<Measured> {
    let counted = counted(lengths);
    let lacks_flags = sampled.keys().all(|group| group.lacks_flags);
    let inverted = sampled.iter().map(|(group, found)| inverted(*group, found, lacks_flags));
    let mut parts: Vec<Measured> = counted.into_iter().chain(inverted).collect();
    if parts.len() < 2 { parts.pop() } else { Some(together(&parts, sampled)) }
}

/// Several exporters' flows: counts and packets are added, and so are the variances.
fn together(parts: &[Measured], sampled: &BTreeMap<Group, Inversion>) -> Measured {
    let variance = |of: &dyn Fn(&Inversion) -> Estimate| -> f64 {
        sampled.values().map(|found| of(found).deviation).map(|d| d * d).sum()
    };
    let flow_count: f64 = parts.iter().map(|part| part.flow_count).sum();
    let of_part = |part: &Measured| part.flow_count * part.mean_length_packets;
    let mean = parts.iter().map(of_part).sum::<f64>() / flow_count;
    let flows_off = 1.96 * libm::sqrt(variance(&|found| found.flows));
    let around = |centre, half, least| {
        ConfidenceInterval::around(centre, half).map(|end| f64::max(end, least))
    };
    // The number of flows dominates the uncertainty of a mean, because packets are many.
    let mean_off = mean * flows_off / flow_count;
    let atoms = parts.iter().flat_map(|part| atoms(&part.lengths.law, part.flow_count)).collect();
    let samples = parts.iter().map(|part| part.lengths.law.samples()).sum();
    Measured {
        flow_count,
        mean_length_packets: mean,
        sampling_interval: parts.iter().map(|part| part.sampling_interval).max().unwrap_or(1),
        lengths: FlowLengths {
            method: parts.last().map_or(Method::SynJointEm, |part| part.lengths.method),
            flow_count_interval: around(flow_count, flows_off, 0.0),
            mean_length_interval: around(mean, mean_off, 1.0),
            law: weighted(atoms, samples).expect("laws have knots"),
        },
    }
}

/// A law as (value, weight) pairs with a total of `weight`; mass that is spread over a range is placed at its
/// middle.
pub(crate) fn atoms(law: &Empirical, weight: f64) -> Vec<(f64, f64)> {
    law.pieces().map(|(share, low, high)| (0.5 * (low + high), weight * share)).collect()
}

/// The discrete law of (value, weight) pairs, in any order; `None` if no weight is positive.
pub(crate) fn weighted(mut atoms: Vec<(f64, f64)>, samples: u64) -> Option<Empirical> {
    atoms.retain(|(_, weight)| *weight > 0.0);
    atoms.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = atoms.iter().map(|(_, weight)| weight).sum();
    let (mut knots, mut below): (Vec<(f64, f64)>, f64) = (Vec::new(), 0.0);
    for (value, weight) in atoms {
        below += weight;
        let cumulative = (below / total).min(1.0);
        match knots.last_mut() {
            // A value too rare for the table is merged with its neighbour.
            Some(last) if last.1 == value || cumulative - last.0 < SHARE_MIN => last.0 = cumulative,
            _ => knots.push((cumulative, value)),
        }
    }
    knots.last_mut()?.0 = 1.0;
    Empirical::new(Form::Step, samples, knots).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weighted_law_has_its_weights_whatever_their_order() {
        let law = weighted(alloc::vec![(5.0, 1.0), (2.0, 3.0), (9.0, 0.0), (5.0, 4.0)], 8)
            .expect("a law");
        assert_eq!(law.knots(), [(0.375, 2.0), (1.0, 5.0)]);
        assert_eq!(weighted(alloc::vec![(5.0, 0.0)], 0), None);
        let rare = weighted(alloc::vec![(1.0, 1.0), (2.0, 1e-15), (3.0, 1.0)], 2).expect("a law");
        assert_eq!(rare.knots().len(), 2);
    }

    /// Three mean gaps between packets of a record, a minute at the least and ten at the most.
    #[test]
    fn records_are_joined_over_three_mean_gaps() {
        let key = nilometer_flow::FlowKey {
            source: core::net::Ipv4Addr::new(198, 18, 0, 1).into(),
            destination: core::net::Ipv4Addr::new(198, 19, 0, 1).into(),
            source_port: 1_024,
            destination_port: 80,
            protocol: 6,
        };
        let gap_s = |records: &[(u64, u64)]| {
            let mut waits = Waits::default();
            for &(packets, seconds) in records {
                waits.note(&FlowRecord {
                    key,
                    start_ns: 5_000_000_000,
                    end_ns: (5 + seconds) * 1_000_000_000,
                    packets,
                    octets: 40 * packets,
                    tcp_flags: 0,
                    payload_octets: None,
                    opened: None,
                    end_reason: nilometer_flow::EndReason::Unknown,
                    sampling_interval: 100,
                });
            }
            waits.gap_ns() as f64 / 1e9
        };
        assert_eq!(gap_s(&[]), 60.0);
        // A single packet has no gap.
        assert_eq!(gap_s(&[(1, 5_000)]), 60.0);
        assert_eq!(gap_s(&[(2, 20)]), 60.0);
        assert_eq!(gap_s(&[(2, 30)]), 90.0);
        assert_eq!(gap_s(&[(4, 90), (2, 90), (1, 1_000)]), 135.0);
        assert_eq!(gap_s(&[(3, 400)]), 600.0);
        assert_eq!(gap_s(&[(2, 201)]), 600.0);
    }

    /// A value rarer than one in 10¹² is merged with its neighbour; one exactly that rare is not.
    #[test]
    fn shares_below_the_minimum_have_no_knot() {
        let knots = |weight: f64| {
            let law = weighted(alloc::vec![(1.0, 1.0), (2.0, weight), (3.0, 1.0)], 2);
            law.expect("a law").knots().len()
        };
        assert_eq!((knots(1e-13), knots(1e-11)), (2, 3));
        assert_eq!(weighted(Vec::new(), 0), None);
        assert_eq!(weighted(alloc::vec![(5.0, -1.0)], 0), None);
    }

    #[test]
    fn atoms_stand_at_the_middle_of_their_piece() {
        let law = Empirical::new(Form::Step, 8, alloc::vec![(0.25, 4.0), (1.0, 6.0)]);
        assert_eq!(atoms(&law.expect("a law"), 8.0), [(4.0, 2.0), (6.0, 6.0)]);
        let law = Empirical::new(Form::Linear, 8, alloc::vec![(0.0, 2.0), (1.0, 6.0)]);
        assert_eq!(atoms(&law.expect("a law"), 8.0), [(2.0, 0.0), (4.0, 8.0)]);
    }
}
