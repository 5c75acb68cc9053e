//! Records without TCP flags: where their flows begin and end, told by what else they say.
//!
//! Some routers do not record TCP flags (Harpoon, section 4.1), above all where hardware forwards. No
//! packet of a connection is without any flag, so a TCP record whose flags are zero is one of these. What
//! a SYN and a FIN would have said is then inferred. With flags, a flow of which either was not seen is no
//! file; so most of the work is to find the flows that were not seen whole, and each step below says of
//! some that they were not:
//!
//! 1. **What was told.** An exporter that gives the reason why a record ended (flowEndReason) has seen the
//!    FIN or RST, though it does not show it: end of flow is an end. If it says so of any record, a record
//!    for which it gives another reason has none.
//! 2. **Silence.** Records of one five-tuple are pieces of one flow where up to 15 s lie between them, the
//!    usual inactive timeout. Over a longer silence they are one connection still, if little time passed:
//!    neither did the earlier one end, nor did the later one begin. What is little is read off the records:
//!    logarithms of the gaps are taken for a mixture of two normal laws, gaps within connections
//!    and gaps between them, and the threshold is where the second becomes the likelier one. Without
//!    two laws to be told apart it is a minute, sooner than which a host does not use its ports again
//!    (TIME-WAIT).
//! 3. **Packets.** Three packets without payload open a connection (SYN, SYN-ACK, ACK), three more close it
//!    (FIN, FIN-ACK, ACK), two of the six or more from either side. A connection that has fewer packets
//!    than its payload takes in full segments, and these, was not seen whole. Of a host of whose
//!    connections most are like that, not all packets were metered, and nothing of it is whole. Where
//!    connections are seen both ways, a flow that nobody answered was none.
//! 4. **The last moment.** A flow may go on that fell silent less than 15 s before the input ended: an
//!    exporter would not have called it over either. So may one that fell silent less than 15 s before
//!    its hosts did, if it was not the last that was seen of them: a host that leaves closes its connections first,
//!    one that is cut off (captures are laid side by side, a host is unplugged) leaves several. Nothing
//!    begins within a second of the input's first moment.
//!
//! What is left cannot be told: a connection that was left open, silent for long, by hosts that are still
//! there; and which side of a closed one sent no FIN, because the other's RST came first. Where ends are
//! told, the law of sizes is that of the same trace with flags (KS at most 0.02 on nine real traces).
//! Where they are not it is near (0.02 to 0.07) on five, and far on four in which such connections
//! abound (0.13 to 0.5). A learner that was shown the flags of the other traces misses these four as well (0.13 to 0.5).
//!
//! Packets tell nothing where most flows of the input lack them: they are not what this exporter counts.
//!
//! What was inferred is counted. A record of sampled packets whose flags are zero is left alone: there
//! not even the first packet of its flow need have been seen.

mod evidence;
mod hosts;
mod ties;

use alloc::vec::Vec;

use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::repair::{CONTINUATION_GAP_MAX_NS, repair};
use nilometer_flow::{EndReason, FlowRecord};

use crate::lengths::is_sampled;
use evidence::Evidence;

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
    bare.iter_mut().filter(|record| record.end_reason == EndReason::EndOfFlow).for_each(end);
    bare.sort_unstable();
    let threshold_ns = libm::round(threshold_ns(&bare)) as u64;
    let mut merged = repair(bare, threshold_ns.min(CONTINUATION_GAP_MAX_NS));
    let mut inferred = Inferred {
        records: Vec::new(),
        unflagged,
        joined: merged.counts.joined(),
        starts: 0,
        ends: 0,
        threshold_ns,
    };
    let evidence = Evidence::of(&merged.records, threshold_ns, span_ns);
    let marks: Vec<(bool, bool)> = (0..merged.records.len())
        .map(|at| (evidence.has_begun(at), evidence.has_ended(at)))
        .collect();
    for (record, (has_begun, has_ended)) in merged.records.iter_mut().zip(marks) {
        if has_begun {
            record.tcp_flags |= tcp_flags::SYN;
            inferred.starts += 1;
        }
        if has_ended {
            end(record);
            inferred.ends += 1;
        }
    }
    records.append(&mut merged.records);
    inferred.records = records;
    inferred
}

fn end(record: &mut FlowRecord) {
    record.tcp_flags |= tcp_flags::FIN;
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
            // Under way as the input begins, and as it ends; the hosts are there throughout.
            record(2, SECOND_NS / 2, minute),
            record(3, 5 * minute, 10 * minute - SECOND_NS / 2),
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
