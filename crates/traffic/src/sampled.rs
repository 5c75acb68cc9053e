//! Files and volumes estimated from sampled records.
//!
//! *Volumes* need no inversion: N times the sampled amount is unbiased, and each interval gets its own.
//! *File sizes* are lengths times payload: the law states how many flows have each length, and the inversion which
//! lengths the flow of each record may have had, so that each length gets the mean payload of a packet of such
//! flows. The packets of one flow cannot be distinguished from those of another of its length, so flows are grouped
//! ([`Group`]): into those that carry files and those that return, which are not files (`services`), and both into
//! those with flags and those without, whose number is estimated in another way (`unsampled_flows`). Sizes under
//! 100 bytes are left out, as for other records.
//! *Popularity* of an address is N times its sampled SYNs. Gaps are estimated separately (`thinned`).

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::record::ACK_OPTIONS_BYTES;
use nilometer_stat::inversion::Inversion;

use crate::files::{FILE_MIN_BYTES, payload_bytes};
use crate::sampled_records::{Group, KindTotals, Kinds, RecordKind};
use crate::segments::Segments;
use crate::services::Services;

/// Volumes are summed in units of 2^-32 of a byte or packet.
pub(crate) const UNITS: f64 = (1u64 << 32) as f64;

/// With this many sampled packets on average, a flow's length can be distinguished from other lengths.
const TOLD_PACKETS: f64 = 4.0;

/// The files and bytes of one group's flows, by bins of length.
struct Carried {
    interval: f64,
    records: u64,
    /// For each bin: flows, sizes of files, IP bytes of all flows.
    bins: Vec<Bin>,
    /// For each kind of record: the share that belongs to flows which are files.
    kept: BTreeMap<RecordKind, f64>,
}

#[derive(Clone, Default)]
struct Bin {
    flows: f64,
    /// Equally probable sizes.
    sizes: Vec<f64>,
    octets: f64,
}

/// Files of sampled flows.
pub(crate) struct SampledFiles {
    groups: BTreeMap<Group, Carried>,
    returning: [Amount; 2],
    services: Services,
}

/// Numbers of flows, and their IP bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Amount {
    pub flows: f64,
    pub octets: f64,
}

/// The part of records of several kinds that belongs to one length.
#[derive(Clone, Copy, Default)]
struct Dealt {
    packets: f64,
    payload: f64,
    octets: f64,
}

impl SampledFiles {
    /// The files of each group that carries files, by its inversion.
    pub fn of(
        kinds: &Kinds,
        inversions: &BTreeMap<Group, Inversion>,
        services: Services,
    ) -> SampledFiles {
        let carrying = inversions.iter().filter(|(group, _)| !group.returns);
        let carried = |(&group, inversion): (&Group, &Inversion)| {
            let segments = kinds.segments(group);
            let of_group = (&kinds.of[&group], segments.as_ref());
            (group, Carried::of(group, kinds.roles(group).marks, of_group, inversion))
        };
        let groups = carrying.map(carried).collect();
        let mut returning = [Amount::default(); 2];
        for (group, inversion) in inversions.iter().filter(|(group, _)| group.returns) {
            let mut all = KindTotals::default();
            kinds.of[group].values().for_each(|kind| all.add(kind));
            let asks = all.payload > all.packets * u128::from(ACK_OPTIONS_BYTES);
            let amount = &mut returning[usize::from(asks)];
            amount.flows += inversion.flows.value;
            amount.octets += f64::from(group.interval) * all.octets as f64;
        }
        SampledFiles { groups, returning, services }
    }

    /// Flows that return: those that only acknowledge, and those that also send requests.
    pub fn returning(&self) -> [Amount; 2] {
        self.returning
    }

    fn bins(&self) -> impl Iterator<Item = &Bin> + '_ {
        self.groups.values().flat_map(|group| &group.bins)
    }

    /// File sizes, with the number of files of each.
    pub fn sizes(&self) -> Vec<(f64, f64)> {
        self.bins().flat_map(Bin::files).collect()
    }

    /// Flows that are too small to be files.
    pub fn too_small(&self) -> Amount {
        self.bins().fold(Amount::default(), |sum, bin| Amount {
            flows: sum.flows + bin.flows * (1.0 - bin.share_of_files()),
            octets: sum.octets + bin.octets * (1.0 - bin.share_of_files()),
        })
    }

    /// The number of records behind this estimate.
    pub fn records(&self) -> u64 {
        self.groups.values().map(|group| group.records).sum()
    }

    /// The payload bytes and packets that `record` represents, of flows that are files, in units of which
    /// [`UNITS`] are one: whole numbers, whose sum does not depend on the order.
    pub fn volume(&self, record: &FlowRecord) -> (u128, u128) {
        let Some(group) = self.groups.get(&Group::of(record, &self.services)) else {
            return (0, 0);
        };
        let kept = group.kept[&RecordKind::of(record)] * group.interval;
        let units = |of: u64| libm::round(kept * of as f64 * UNITS) as u128;
        (units(payload_bytes(record)), units(record.packets))
    }
}

fn is_a_file(size_bytes: f64) -> bool {
    libm::round(size_bytes) >= FILE_MIN_BYTES as f64
}

impl Bin {
    /// Sizes that are large enough for files, with the number of files of each.
    fn files(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let flows = self.flows / self.sizes.len() as f64;
        let files = self.sizes.iter().filter(|size| is_a_file(**size));
        files.map(move |size| (libm::round(*size), flows))
    }

    fn share_of_files(&self) -> f64 {
        let files = self.sizes.iter().filter(|size| is_a_file(**size));
        files.count() as f64 / self.sizes.len() as f64
    }
}

impl Dealt {
    fn add(&mut self, part: f64, kind: &KindTotals) {
        self.packets += part * kind.packets as f64;
        self.payload += part * kind.payload as f64;
        self.octets += part * kind.octets as f64;
    }

    fn payload_of_packet(&self) -> f64 {
        if self.packets > 0.0 { self.payload / self.packets } else { 0.0 }
    }
}

impl Carried {
    fn of(
        group: Group,
        marks: u32,
        (kinds, segments): (&BTreeMap<RecordKind, KindTotals>, Option<&Segments>),
        inversion: &Inversion,
    ) -> Carried {
        let interval = f64::from(group.interval);
        let parts: BTreeMap<RecordKind, Vec<(usize, f64)>> = kinds
            .keys()
            .map(|&seen| (seen, inversion.lengths_of(seen.packets, seen.marked(marks))))
            .collect();
        let mut dealt = vec![Dealt::default(); inversion.bins().count()];
        for (key, kind) in kinds {
            parts[key].iter().for_each(|&(at, part)| dealt[at].add(part, kind));
        }
        let sizes = sizes(interval, &dealt, segments, inversion);
        let each = inversion.bins().zip(sizes).zip(&dealt);
        let bins: Vec<Bin> = each
            .map(|(((_, share), sizes), dealt)| Bin {
                flows: inversion.flows.value * share,
                sizes,
                octets: interval * dealt.octets,
            })
            .collect();
        let kept = |parts: &Vec<(usize, f64)>| -> f64 {
            parts.iter().map(|&(at, part)| part * bins[at].share_of_files()).sum()
        };
        let kept = parts.iter().map(|(key, parts)| (*key, kept(parts))).collect();
        Carried { interval, records: kinds.values().map(|kind| kind.records).sum(), bins, kept }
    }
}

/// Sizes of the files of each bin. If it is known how files are divided into packets, these are the sizes that fit the
/// packet count, scaled by the ratio of observed to expected payload: bin by bin for flows that are long enough to be
/// distinguished, and together for all shorter ones. Otherwise a size is the length times the mean payload.
fn sizes(
    interval: f64,
    dealt: &[Dealt],
    segments: Option<&Segments>,
    inversion: &Inversion,
) -> Vec<Vec<f64>> {
    let Some(segments) = segments else {
        let mean = |((length, _), dealt): ((f64, f64), &Dealt)| length * dealt.payload_of_packet();
        return inversion.bins().zip(dealt).map(|each| vec![mean(each)]).collect();
    };
    let parts = |edges| inversion.parts.as_ref()?.get(segments.full_packets(edges)?);
    let each = inversion.edges().zip(inversion.bins());
    let mut sizes: Vec<Vec<f64>> =
        each.map(|(edges, (_, share))| segments.sizes(edges, share, parts(edges))).collect();
    let lengths: Vec<f64> = inversion.bins().map(|(length, _)| length).collect();
    let long = lengths.partition_point(|length| *length < TOLD_PACKETS * interval);
    let carried = |bins: core::ops::Range<usize>| -> f64 {
        let expected = |at: usize| {
            let mean = sizes[at].iter().sum::<f64>() / sizes[at].len() as f64;
            dealt[at].packets * mean / lengths[at]
        };
        let payload = bins.clone().map(|at| dealt[at].payload).sum::<f64>();
        let expected = bins.map(expected).sum::<f64>();
        if expected > 0.0 { payload / expected } else { 1.0 }
    };
    let short = carried(0..long);
    let factor = |at: usize| if at < long { short } else { carried(at..at + 1) };
    let factors: Vec<f64> = (0..sizes.len()).map(factor).collect();
    for (sizes, factor) in sizes.iter_mut().zip(factors) {
        sizes.iter_mut().for_each(|size| *size *= factor);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rounded size of 100 bytes or more is a file.
    #[test]
    fn a_file_has_a_hundred_bytes_when_rounded() {
        assert!(!is_a_file(99.4) && is_a_file(99.5) && is_a_file(100.0));
    }
}
