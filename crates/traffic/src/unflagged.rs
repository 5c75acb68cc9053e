//! Records without TCP flags: where their flows begin and end, told by time alone.
//!
//! Some routers do not record TCP flags (Harpoon, section 4.1), above all where hardware forwards. No
//! packet of a connection is without any flag, so a TCP record whose flags are zero is one of these. What
//! a SYN and a FIN would have said is then inferred:
//!
//! 1. Records of one five-tuple are one flow where little time lies between them, and several where
//!    much does. What is little is read off the records themselves: logarithms of the gaps are taken for a
//!    mixture of two normal laws, gaps within flows and gaps between them, and the threshold is where the
//!    second becomes the likelier one. Without two laws to be told apart it is a minute, sooner than which
//!    a host does not use its ports again (TIME-WAIT); never is it under a second, because what
//!    follows the active timeout's cut does so within one.
//! 2. The first record of such a flow has its start, the last one its end; except within a second of the
//!    input's first or last moment, where a flow that is under way has neither.
//!
//! What time cannot tell: a flow that a capture came upon in its middle after a pause, or that was
//! left open before the input ended. With flags these are left out, without they are files. So a trace in
//! which most connections are seen from SYN to FIN comes out alike (KS 0.04 on nDPI's alexa-app), one of
//! connections that are cut or left open does not (0.20 on hundreds of captures laid side by side).
//!
//! What was inferred is counted. A record of sampled packets whose flags are zero is left alone: there
//! not even the first packet of its flow need have been seen.

use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::repair::repair;

use crate::lengths::is_sampled;

/// The threshold where gaps tell none, ns: TIME-WAIT.
const USUAL_NS: f64 = 60e9;
/// The threshold lies between these, ns.
const THRESHOLD_NS: [f64; 2] = [1e9, 600e9];
/// Gaps that a mixture needs, and those looked at.
const GAPS_MIN: usize = 50;
const GAPS_MAX: usize = 100_000;
/// Rounds of the mixture's expectation-maximisation.
const ROUNDS: usize = 200;
/// Two laws are told apart when each has this share, and their means lie so many deviations apart.
const SHARE_MIN: f64 = 0.02;
const APART: f64 = 2.0;
/// So near to the input's ends nothing begins or ends for certain, ns; a hundredth of a short input.
const EDGE_NS: u64 = 1_000_000_000;

/// Records with their starts and ends, and what was done to get them.
#[derive(Clone, Debug, PartialEq)]
pub struct Inferred {
    /// All records; what was inferred stands in their flags, as SYN and FIN.
    pub records: Vec<FlowRecord>,
    /// Records that had no flags.
    pub unflagged: u64,
    /// How many of them were joined to an earlier one.
    pub joined: u64,
    /// Starts and ends inferred.
    pub starts: u64,
    /// See `starts`.
    pub ends: u64,
    /// The gap beyond which two records were two flows, ns.
    pub threshold_ns: u64,
}

/// Whether a record's starts and ends are to be inferred.
pub(crate) fn is_unflagged(record: &FlowRecord) -> bool {
    record.key.protocol == TCP && record.tcp_flags == 0 && !is_sampled(record)
}

/// Infers what is missing of `records`, which were seen from `span_ns.0` to `span_ns.1`. Records with
/// flags, and those that are not TCP, pass as they are.
pub fn infer(records: Vec<FlowRecord>, span_ns: (u64, u64)) -> Inferred {
    let (mut bare, mut records): (Vec<_>, Vec<_>) = records.into_iter().partition(is_unflagged);
    let unflagged = bare.len() as u64;
    bare.sort_unstable_by_key(|record| (record.key, record.start_ns, record.end_ns));
    let threshold_ns = libm::round(threshold_ns(&bare)) as u64;
    let merged = repair(bare, threshold_ns);
    let mut inferred = Inferred {
        records: Vec::new(),
        unflagged,
        joined: merged.counts.joined(),
        starts: 0,
        ends: 0,
        threshold_ns,
    };
    let edge_ns = EDGE_NS.min(span_ns.1.saturating_sub(span_ns.0) / 100);
    for mut record in merged.records {
        if record.start_ns.saturating_sub(span_ns.0) > edge_ns {
            record.tcp_flags |= tcp_flags::SYN;
            inferred.starts += 1;
        }
        if span_ns.1.saturating_sub(record.end_ns) > edge_ns {
            record.tcp_flags |= tcp_flags::FIN;
            inferred.ends += 1;
        }
        records.push(record);
    }
    inferred.records = records;
    inferred
}

/// The gap beyond which two records of one five-tuple are two flows, of records in their order.
fn threshold_ns(sorted: &[FlowRecord]) -> f64 {
    let gap = |two: &[FlowRecord]| {
        let same = two[0].key == two[1].key;
        same.then(|| libm::log(two[1].start_ns.saturating_sub(two[0].end_ns).max(1_000_000) as f64))
    };
    let gaps: Vec<f64> = sorted.windows(2).filter_map(gap).take(GAPS_MAX).collect();
    let usual = libm::log(USUAL_NS);
    let threshold = libm::exp(knee(&gaps).unwrap_or(usual));
    threshold.clamp(THRESHOLD_NS[0], THRESHOLD_NS[1])
}

/// One of the mixture's normal laws.
#[derive(Clone, Copy)]
struct Normal {
    share: f64,
    mean: f64,
    deviation: f64,
}

impl Normal {
    /// The density, times the share and the root of 2π.
    fn density(&self, x: f64) -> f64 {
        let off = (x - self.mean) / self.deviation;
        self.share / self.deviation * libm::exp(-0.5 * off * off)
    }
}

/// Where the larger of two normal laws becomes the likelier one, if `values` show two.
fn knee(values: &[f64]) -> Option<f64> {
    if values.len() < GAPS_MIN {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| sorted[(share * (sorted.len() - 1) as f64) as usize];
    let width = ((at(0.9) - at(0.1)) / 4.0).max(0.05);
    let mut laws = [at(0.1), at(0.9)].map(|mean| Normal { share: 0.5, mean, deviation: width });
    for _ in 0..ROUNDS {
        laws = refit(&laws, &sorted);
    }
    let [low, high] = laws;
    let apart = high.mean - low.mean > APART * (low.deviation + high.deviation) / 2.0;
    if !apart || low.share.min(high.share) < SHARE_MIN {
        return None;
    }
    let step = (high.mean - low.mean) / 1_000.0;
    let mut points = (0..=1_000).map(|n| low.mean + f64::from(n) * step);
    points.find(|&x| high.density(x) >= low.density(x))
}

/// One expectation and maximisation of the mixture.
fn refit(laws: &[Normal; 2], values: &[f64]) -> [Normal; 2] {
    let mut sums = [[0.0; 3]; 2];
    for &x in values {
        let densities = laws.map(|law| law.density(x).max(f64::MIN_POSITIVE));
        let all = densities[0] + densities[1];
        for (sum, density) in sums.iter_mut().zip(densities) {
            let part = density / all;
            *sum = [sum[0] + part, sum[1] + part * x, sum[2] + part * x * x];
        }
    }
    let mut fitted = *laws;
    for (law, [count, sum, squares]) in fitted.iter_mut().zip(sums) {
        let mean = sum / count.max(f64::MIN_POSITIVE);
        let variance = squares / count.max(f64::MIN_POSITIVE) - mean * mean;
        let deviation = libm::sqrt(variance.max(0.0)).max(0.05);
        *law = Normal { share: count / values.len() as f64, mean, deviation };
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use nilometer_flow::{EndReason, FlowKey};
    use nilometer_stat::{Rng, lognormal};

    const SECOND_NS: u64 = 1_000_000_000;

    fn record(port: u16, start_ns: u64, end_ns: u64) -> FlowRecord {
        FlowRecord {
            key: FlowKey {
                source: Ipv4Addr::new(198, 18, 0, 1).into(),
                destination: Ipv4Addr::new(198, 19, 0, 1).into(),
                source_port: port,
                destination_port: 80,
                protocol: TCP,
            },
            start_ns,
            end_ns,
            packets: 10,
            octets: 9_000,
            tcp_flags: 0,
            payload_octets: None,
            opened: None,
            end_reason: EndReason::Unknown,
            sampling_interval: 0,
        }
    }

    #[test]
    fn two_laws_of_gaps_are_told_apart_at_their_knee() {
        let mut rng = Rng::new(1, 0x756e_666c, 0);
        let mut draw = |n: usize, median_s: f64| -> Vec<f64> {
            (0..n).map(|_| libm::log(lognormal(&mut rng, libm::log(median_s * 1e9), 0.6))).collect()
        };
        let mut gaps = draw(700, 1.5);
        gaps.extend(draw(300, 90.0));
        let knee = libm::exp(knee(&gaps).expect("two laws")) / 1e9;
        assert!((4.0..40.0).contains(&knee), "{knee} s");
        assert_eq!(super::knee(&draw(900, 10.0)), None, "one law has no knee");
        assert_eq!(super::knee(&draw(10, 10.0)), None, "ten gaps tell nothing");
    }

    #[test]
    fn pieces_are_joined_and_ends_of_the_input_are_left_open() {
        let minute = 60 * SECOND_NS;
        let records = alloc::vec![
            // Cut by the active timeout, and whole between the ends.
            record(1, 2 * minute, 3 * minute),
            record(1, 3 * minute + SECOND_NS / 10, 4 * minute),
            // The same ports again, much later.
            record(1, 9 * minute, 9 * minute + SECOND_NS),
            // Under way as the input begins, and as it ends.
            record(2, SECOND_NS / 2, minute),
            record(3, 8 * minute, 10 * minute - SECOND_NS / 2),
        ];
        let found = infer(records, (0, 10 * minute));
        assert_eq!((found.unflagged, found.joined, found.starts, found.ends), (5, 1, 3, 3));
        assert_eq!(found.threshold_ns, minute);
        let marks: Vec<(u16, bool, bool)> = found
            .records
            .iter()
            .map(|record| (record.key.source_port, record.has_start(), record.has_end()))
            .collect();
        assert_eq!(marks, [(2, false, true), (1, true, true), (3, true, false), (1, true, true)]);
        assert_eq!(found.records[1].packets, 20);
    }

    #[test]
    fn what_has_flags_or_is_sampled_or_not_tcp_is_left_alone() {
        let mut flagged = record(1, 5 * SECOND_NS, 6 * SECOND_NS);
        flagged.tcp_flags = tcp_flags::ACK;
        let mut sampled = record(2, 5 * SECOND_NS, 6 * SECOND_NS);
        sampled.sampling_interval = 100;
        let mut udp = record(3, 5 * SECOND_NS, 6 * SECOND_NS);
        udp.key.protocol = 17;
        let records = alloc::vec![flagged, sampled, udp];
        let found = infer(records.clone(), (0, 60 * SECOND_NS));
        assert_eq!((found.unflagged, found.records), (0, records));
    }
}
