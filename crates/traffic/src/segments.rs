//! The payload of packets of sampled flows: none, a full segment, or the remainder of a file.
//!
//! A file of S bytes travels as ⌈S/m⌉ packets of up to m bytes, all full but the last, beside *control* packets without
//! payload: the SYN, often the FIN. A sampled record of one packet shows the kind of this packet. A kind that occurs
//! once in each flow is sampled alone as often as the SYN is, whatever the law of lengths. Among records of one packet:
//!
//! ```text
//!   without payload, over those of the SYN  →  control packets of a flow, beside the SYN
//!   not full, over those of the SYN         →  the share of flows whose last packet is not full
//!   with a FIN, over those of the SYN       →  the share of flows that have one
//! ```
//!
//! The payload of packets that are not full has the law of the last packet. So a flow of L packets, c of them
//! control, carried (L − c − 1)·m bytes plus the payload of a last packet. Where all packets are full, sizes are
//! whole segments. Otherwise the law of sizes has no steps, and last packets also show how many short files there are
//! (`nilometer_stat::inversion`). Where each flow has a FIN, flows are counted by both SYN and FIN. A full segment is
//! the median payload of packets, each weighted by its payload.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::record::ACK_OPTIONS_BYTES;
use nilometer_stat::inversion::{PARTS, Remainders};

use crate::files::payload_bytes;

/// No IP packet has more payload.
const PAYLOAD_MAX: u64 = 65_535;
/// With more control packets than this, acknowledgements are among them.
const CONTROL_MAX: f64 = 4.0;
/// A packet with this share of a segment is full: options of headers take the rest.
const FULL: f64 = 0.98;
/// The least and the greatest ratio of last packets that are not full to SYNs, if sizes are not whole
/// segments.
const PARTIAL_LEAST: f64 = 0.85;
const PARTIAL_MOST: f64 = 1.1;
/// Counts are equal if they differ by at most this many standard deviations.
const DEVIATIONS: f64 = 3.0;
/// Number of last packets that represent all of them, and the most sizes for one length.
const LASTS: usize = 32;
/// Number of last packets that represent those of one part of a segment.
const OF_PART: usize = 8;
/// Number of sizes that would represent a length shared by all flows.
const SIZES_OF_ALL: f64 = 512.0;
/// The stride through the last packets; odd, so that each is used.
const PACE: usize = 13;

/// Records of one packet: SYNs, and the others by their payload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Singles {
    syns: u64,
    /// Others with a FIN or RST.
    ends: u64,
    by_payload: BTreeMap<u64, u64>,
}

/// How flows divide files into packets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segments {
    /// Packets of a flow without payload.
    pub control: u32,
    /// Payload of a full packet.
    pub full: f64,
    /// Payload of the last packet: equally probable values, ascending.
    pub lasts: Vec<f64>,
    /// Last packets by sixteenths of a segment, if sizes are not whole segments.
    pub remainders: Option<Remainders>,
    /// Last packets of each part, relative to a segment: equally probable values, ascending.
    of_parts: [[f64; OF_PART]; PARTS],
}

impl Singles {
    /// Takes a record, if it has one packet.
    pub fn note(&mut self, record: &FlowRecord) {
        if record.packets != 1 {
            return;
        }
        if record.has_start() {
            self.syns += 1;
        } else {
            self.ends += u64::from(record.has_end());
            let payload = payload_bytes(record).min(PAYLOAD_MAX);
            let payload = if payload <= ACK_OPTIONS_BYTES { 0 } else { payload };
            *self.by_payload.entry(payload).or_default() += 1;
        }
    }

    /// Adds the counts of other records.
    pub fn merge(&mut self, more: &Singles) {
        self.syns += more.syns;
        self.ends += more.ends;
        for (payload, count) in &more.by_payload {
            *self.by_payload.entry(*payload).or_default() += count;
        }
    }

    /// Packets of a flow that flags identify: the SYN, and the FIN if there are as many FINs.
    pub fn marks(&self) -> u32 {
        let (syns, ends) = (self.syns as f64, self.ends as f64);
        let apart = DEVIATIONS * libm::sqrt(syns + ends);
        if syns > 0.0 && libm::fabs(syns - ends) <= apart && ends >= 0.5 * syns { 2 } else { 1 }
    }

    /// The median payload, each packet weighted by its payload.
    fn full(&self) -> Option<f64> {
        let bytes = |(payload, count): (&u64, &u64)| u128::from(*payload) * u128::from(*count);
        let half = self.by_payload.iter().map(bytes).sum::<u128>() / 2;
        let mut below = 0;
        let middle = self.by_payload.iter().find(|&(payload, count)| {
            below += bytes((payload, count));
            below > half
        });
        middle.map(|(payload, _)| *payload as f64)
    }

    /// How flows divide files into packets, if these records show it.
    pub fn segments(&self) -> Option<Segments> {
        let full = self.full()?;
        let syns = self.syns as f64;
        if self.syns == 0 {
            return None;
        }
        let empty = self.by_payload.get(&0).copied().unwrap_or(0) as f64;
        let control = (1.0 + libm::round(empty / syns)).min(CONTROL_MAX);
        let partial: Vec<(f64, f64)> = self
            .by_payload
            .range(1..)
            .map(|(payload, count)| (*payload as f64, *count as f64))
            .filter(|(payload, _)| *payload < FULL * full)
            .collect();
        let partials: f64 = partial.iter().map(|(_, count)| count).sum();
        let all = partials.max(syns);
        let last = |at: usize| {
            let rank = (at as f64 + 0.5) / LASTS as f64 * all;
            let mut below = 0.0;
            let found = partial.iter().find(|(_, count)| {
                below += count;
                below > rank
            });
            found.map_or(full, |(payload, _)| *payload)
        };
        let lasts = (0..LASTS).map(last).collect();
        let apart = DEVIATIONS * libm::sqrt(syns + partials);
        let are_rests = partials >= PARTIAL_LEAST * syns - apart
            && partials <= PARTIAL_MOST * syns + apart
            && partials > 0.5 * syns;
        let remainders = are_rests.then(|| remainders(&partial, full));
        let of_parts = core::array::from_fn(|part| of_part(&partial, full, part));
        Some(Segments { control: control as u32, full, lasts, remainders, of_parts })
    }
}

/// Last packets by the part of a full one that they carry.
fn remainders(partial: &[(f64, f64)], full: f64) -> Remainders {
    let mut found = Remainders::default();
    for (payload, count) in partial {
        found.0[part_of(*payload, full)] += *count as u64;
    }
    found
}

fn part_of(payload: f64, full: f64) -> usize {
    ((payload / full * PARTS as f64) as usize).min(PARTS - 1)
}

/// Last packets of one part, relative to a segment. If there are none, and in the last part, which also has full
/// packets, they are spread evenly.
fn of_part(partial: &[(f64, f64)], full: f64, part: usize) -> [f64; OF_PART] {
    let of_part = || partial.iter().filter(|(payload, _)| part_of(*payload, full) == part);
    let all: f64 = of_part().map(|(_, count)| count).sum();
    core::array::from_fn(|at| {
        let rank = (at as f64 + 0.5) / OF_PART as f64;
        let mut below = 0.0;
        let found = of_part().find(|(_, count)| {
            below += count;
            below > rank * all
        });
        let even = (part as f64 + rank) / PARTS as f64;
        found.filter(|_| part < PARTS - 1).map_or(even, |(payload, _)| payload / full)
    })
}

impl Segments {
    /// Full packets of a file that travels as `from` to `to` packets, if that is a single number.
    pub fn full_packets(&self, (from, to): (f64, f64)) -> Option<usize> {
        let full = from - f64::from(self.control) - 1.0;
        (from == to && full >= 0.0).then_some(full as usize)
    }

    /// Equally probable sizes of files that travel as `from` to `to` packets, more of them if the `share` of these
    /// flows is greater. Last packets are those of such files, if their `parts` of a segment are known, otherwise
    /// those of all files. Lengths and last packets step through their values with different strides, so that they are
    /// independent.
    pub fn sizes(
        &self,
        (from, to): (f64, f64),
        share: f64,
        parts: Option<&[f64; PARTS]>,
    ) -> Vec<f64> {
        let control = f64::from(self.control);
        if to <= control {
            return vec![0.0];
        }
        let count = (1 << libm::ceil(libm::log2(share * SIZES_OF_ALL).max(1.0)) as u32).min(LASTS);
        let size = |at: usize| {
            let length = from + libm::floor((to - from + 1.0) * (at as f64 + 0.5) / count as f64);
            let rank = at * PACE % count;
            let last = match parts {
                Some(parts) => self.full * self.last(parts, (rank as f64 + 0.5) / count as f64),
                None => self.lasts[(rank * 2 + 1) * LASTS / (2 * count)],
            };
            (length - control - 1.0) * self.full + last
        };
        (0..count).map(size).collect()
    }

    /// The quantile `share` of last packets, relative to a segment, if parts have these shares.
    fn last(&self, parts: &[f64; PARTS], share: f64) -> f64 {
        let mut rank = share * parts.iter().sum::<f64>();
        for (of_part, lasts) in parts.iter().zip(&self.of_parts) {
            if rank < *of_part {
                return lasts[(rank / of_part * OF_PART as f64) as usize % OF_PART];
            }
            rank -= of_part;
        }
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn singles(syns: u64, by_payload: &[(u64, u64)]) -> Singles {
        Singles { syns, ends: 0, by_payload: by_payload.iter().copied().collect() }
    }

    /// A hundred SYNs, as many FINs, half as many last packets of 700 bytes, and full packets.
    #[test]
    fn control_packets_are_counted_against_syns() {
        let found = singles(100, &[(0, 104), (700, 50), (1_460, 900)]).segments();
        let found = found.expect("segments");
        assert_eq!((found.control, found.full), (2, 1_460.0));
        let partial = found.lasts.iter().filter(|last| **last == 700.0).count();
        assert_eq!((partial, found.lasts.len()), (LASTS / 2, LASTS));
        let mut sizes = found.sizes((5.0, 5.0), 1.0, None);
        sizes.dedup();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        assert_eq!(sizes, [2.0 * 1_460.0 + 700.0, 3.0 * 1_460.0]);
        assert_eq!(found.sizes((2.0, 2.0), 0.1, None), [0.0]);
    }

    /// The lengths of a bin are equally probable, and so are their last packets.
    #[test]
    fn sizes_of_a_bin_have_its_mean() {
        let found = singles(100, &[(0, 3), (400, 100), (1_000, 900)]).segments().expect("segments");
        for (from, to) in [(3.0, 3.0), (20.0, 21.0), (400.0, 431.0)] {
            for share in [1e-6, 0.01, 0.1, 1.0] {
                let sizes = found.sizes((from, to), share, None);
                let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
                let expected = (0.5 * (from + to) - 2.0) * 1_000.0 + 400.0;
                assert!((mean - expected).abs() <= 501.0, "{from}, {share}: {mean} for {expected}");
            }
        }
    }

    /// Last packets of parts without a sample, and of a part where all had 400 bytes, behind two full packets.
    #[test]
    fn last_packets_follow_the_known_parts() {
        let found = singles(100, &[(0, 100), (400, 60), (900, 45), (1_600, 900)]).segments();
        let found = found.expect("segments");
        let remainders = found.remainders.expect("rests of files");
        assert_eq!((remainders.0[4], remainders.0[9]), (60, 45));
        let mut parts = [0.0; PARTS];
        (parts[0], parts[4], parts[8]) = (0.1, 0.1, 0.2);
        let mut sizes = found.sizes((5.0, 5.0), 1.0, Some(&parts));
        sizes.sort_by(f64::total_cmp);
        assert_eq!(found.full_packets((5.0, 5.0)), Some(2));
        let within =
            |low: f64, high: f64| sizes.iter().filter(|size| (low..high).contains(*size)).count();
        assert_eq!([within(3_200.0, 3_300.0), within(4_000.0, 4_100.0)], [LASTS / 4, LASTS / 2]);
        assert_eq!(within(3_600.0, 3_600.5), LASTS / 4);
    }

    /// As many FINs as SYNs, and half as many.
    #[test]
    fn a_fin_is_counted_where_each_flow_has_one() {
        let with = |syns, ends| Singles { syns, ends, by_payload: BTreeMap::new() };
        assert_eq!([with(900, 940).marks(), with(900, 450).marks(), with(0, 0).marks()], [2, 1, 1]);
    }

    #[test]
    fn there_are_no_segments_without_a_syn_or_payload() {
        assert_eq!(singles(0, &[(1_000, 5)]).segments(), None);
        assert_eq!(singles(5, &[(0, 5)]).segments(), None);
        assert_eq!(singles(5, &[]).segments(), None);
    }
}
