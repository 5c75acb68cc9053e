//! What sampled records say of files, gaps and volumes: the model's parts beyond the number of flows.
//!
//! *Volumes* need no inversion: N times what was sampled has no bias, and each interval gets its own.
//! *File sizes* are lengths times payload: of each length the law says how many flows have it, and of
//! each record the inversion says which lengths its flow may have had, so that a length gets the mean
//! payload of a packet of such flows. One flow's own packets cannot be told from another's of its
//! length, and a flow that only acknowledges is one of its length like any other: the paper's test for
//! acknowledgements needs whole flows. Sizes under 100 bytes are left out as they are elsewhere.
//! *Gaps* between sampled SYNs of one address pair are N times too long in the mean (every N-th of a
//! renewal process), so they are divided by N: exact where a pair's connections come at random, too
//! regular where they come in bursts. *Popularity* of an address is N times its sampled SYNs.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_stat::inversion::Inversion;

use crate::files::{FILE_MIN_BYTES, payload_bytes};

/// What the flows of one exporter carried, by the bins of their lengths.
struct Carried {
    interval: f64,
    records: u64,
    /// Of each bin: flows, bytes of payload of one, IP bytes of all.
    bins: Vec<Bin>,
    /// Of each kind of record: the share of it that belongs to flows which are files.
    kept: BTreeMap<(u64, bool), f64>,
}

#[derive(Clone, Copy, Default)]
struct Bin {
    flows: f64,
    size_bytes: f64,
    octets: f64,
}

/// Files of sampled flows.
pub(crate) struct SampledFiles {
    groups: BTreeMap<u32, Carried>,
}

/// Numbers of flows, and their IP bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Amount {
    pub flows: f64,
    pub octets: f64,
}

/// Records of one kind: how many, packets and payload and IP bytes of all.
#[derive(Clone, Copy, Default)]
struct Kind {
    records: u64,
    packets: f64,
    payload: f64,
    octets: f64,
}

impl SampledFiles {
    /// The files of joined `records`, each group by its inversion.
    pub fn of(records: &[FlowRecord], inversions: &BTreeMap<u32, Inversion>) -> SampledFiles {
        let group = |(&interval, inversion): (&u32, &Inversion)| {
            let mut kinds: BTreeMap<(u64, bool), Kind> = BTreeMap::new();
            for record in records.iter().filter(|record| record.sampling_interval == interval) {
                let kind = kinds.entry((record.packets, record.has_start())).or_default();
                kind.records += 1;
                kind.packets += record.packets as f64;
                kind.payload += payload_bytes(record) as f64;
                kind.octets += record.octets as f64;
            }
            (interval, Carried::of(f64::from(interval), &kinds, inversion))
        };
        SampledFiles { groups: inversions.iter().map(group).collect() }
    }

    fn bins(&self, is_file: bool) -> impl Iterator<Item = &Bin> + '_ {
        let all = self.groups.values().flat_map(|group| &group.bins);
        all.filter(move |bin| is_a_file(bin.size_bytes) == is_file)
    }

    /// File sizes with how many there are of each.
    pub fn sizes(&self) -> Vec<(f64, f64)> {
        self.bins(true).map(|bin| (libm::round(bin.size_bytes), bin.flows)).collect()
    }

    /// Flows that are too small to be files.
    pub fn too_small(&self) -> Amount {
        self.bins(false).fold(Amount::default(), |sum, bin| Amount {
            flows: sum.flows + bin.flows,
            octets: sum.octets + bin.octets,
        })
    }

    /// Records that all this was had from.
    pub fn records(&self) -> u64 {
        self.groups.values().map(|group| group.records).sum()
    }

    /// The payload bytes and packets that `record` stands for, of flows that are files.
    pub fn volume(&self, record: &FlowRecord) -> (f64, f64) {
        let group = &self.groups[&record.sampling_interval];
        let kept = group.kept[&(record.packets, record.has_start())] * group.interval;
        (kept * payload_bytes(record) as f64, kept * record.packets as f64)
    }
}

fn is_a_file(size_bytes: f64) -> bool {
    libm::round(size_bytes) >= FILE_MIN_BYTES as f64
}

impl Carried {
    fn of(interval: f64, kinds: &BTreeMap<(u64, bool), Kind>, inversion: &Inversion) -> Carried {
        let lengths: Vec<(f64, f64)> = inversion.bins().collect();
        let parts: BTreeMap<(u64, bool), Vec<(usize, f64)>> = kinds
            .keys()
            .map(|&(packets, syn)| ((packets, syn), inversion.lengths_of(packets, syn)))
            .collect();
        let mut dealt = vec![Kind::default(); lengths.len()];
        for (key, kind) in kinds {
            for &(at, part) in &parts[key] {
                dealt[at].packets += part * kind.packets;
                dealt[at].payload += part * kind.payload;
                dealt[at].octets += part * kind.octets;
            }
        }
        let flows = inversion.flows.value;
        let bin = |(&(length, share), kind): (&(f64, f64), &Kind)| {
            let of_packet = if kind.packets > 0.0 { kind.payload / kind.packets } else { 0.0 };
            Bin {
                flows: flows * share,
                size_bytes: length * of_packet,
                octets: interval * kind.octets,
            }
        };
        let bins: Vec<Bin> = lengths.iter().zip(&dealt).map(bin).collect();
        let kept = |parts: &Vec<(usize, f64)>| -> f64 {
            let files = parts.iter().filter(|&&(at, _)| is_a_file(bins[at].size_bytes));
            files.map(|(_, part)| part).sum()
        };
        let kept = parts.iter().map(|(key, parts)| (*key, kept(parts))).collect();
        Carried { interval, records: kinds.values().map(|kind| kind.records).sum(), bins, kept }
    }
}
