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
use nilometer_stat::inversion::{Inversion, InversionError, SampledFlows};

use crate::files::{FILE_MIN_BYTES, payload_bytes, represented_octets};

/// Volumes are added up in 2^-32 of a byte or packet.
pub(crate) const UNITS: f64 = (1u64 << 32) as f64;

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
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    records: u64,
    packets: u128,
    payload: u128,
    octets: u128,
}

/// What of a length is in records of several kinds.
#[derive(Clone, Copy, Default)]
struct Dealt {
    packets: f64,
    payload: f64,
    octets: f64,
}

/// Sampled flows counted by what their records say: by sampling interval, packets, and whether a SYN is among
/// them. There are no more kinds than numbers of packets that differ.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    of: BTreeMap<u32, BTreeMap<(u64, bool), Kind>>,
    /// Records that were joined to earlier ones.
    pub joined: u64,
    /// The bytes that flows stand for.
    pub octets: u64,
}

impl Kinds {
    /// The kinds of joined `records`.
    pub fn of(records: &[FlowRecord], joined: u64) -> Kinds {
        let mut kinds = Kinds { joined, ..Kinds::default() };
        for record in records {
            let of_interval = kinds.of.entry(record.sampling_interval).or_default();
            of_interval.entry((record.packets, record.has_start())).or_default().add(&Kind {
                records: 1,
                packets: record.packets.into(),
                payload: payload_bytes(record).into(),
                octets: record.octets.into(),
            });
            kinds.octets += represented_octets(record);
        }
        kinds
    }

    /// Adds those of other records.
    pub fn merge(&mut self, more: Kinds) {
        for (interval, more) in more.of {
            let of_interval = self.of.entry(interval).or_default();
            for (key, kind) in more {
                of_interval.entry(key).or_default().add(&kind);
            }
        }
        self.joined += more.joined;
        self.octets += more.octets;
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The least and the greatest sampling interval, if there are any.
    pub fn intervals(&self) -> Option<(u32, u32)> {
        Some((*self.of.first_key_value()?.0, *self.of.last_key_value()?.0))
    }

    /// One inversion for each sampling interval.
    pub fn invert(&self) -> Result<BTreeMap<u32, Inversion>, InversionError> {
        let invert = |(&interval, kinds): (&u32, &BTreeMap<(u64, bool), Kind>)| {
            let mut flows = SampledFlows::new(interval)?;
            for (&(packets, has_start), kind) in kinds {
                flows.add_alike(packets, has_start, kind.records);
            }
            Ok((interval, flows.invert()?))
        };
        self.of.iter().map(invert).collect()
    }
}

impl Kind {
    fn add(&mut self, more: &Kind) {
        self.records += more.records;
        self.packets += more.packets;
        self.payload += more.payload;
        self.octets += more.octets;
    }
}

impl SampledFiles {
    /// The files of each sampling interval, by its inversion.
    pub fn of(kinds: &Kinds, inversions: &BTreeMap<u32, Inversion>) -> SampledFiles {
        let group = |(&interval, inversion): (&u32, &Inversion)| {
            (interval, Carried::of(f64::from(interval), &kinds.of[&interval], inversion))
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

    /// The payload bytes and packets that `record` stands for, of flows that are files, in units of which
    /// [`UNITS`] are one: whole numbers, of which the sum does not depend on who is added first.
    pub fn volume(&self, record: &FlowRecord) -> (u128, u128) {
        let group = &self.groups[&record.sampling_interval];
        let kept = group.kept[&(record.packets, record.has_start())] * group.interval;
        let units = |of: u64| libm::round(kept * of as f64 * UNITS) as u128;
        (units(payload_bytes(record)), units(record.packets))
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
        let mut dealt = vec![Dealt::default(); lengths.len()];
        for (key, kind) in kinds {
            for &(at, part) in &parts[key] {
                dealt[at].packets += part * kind.packets as f64;
                dealt[at].payload += part * kind.payload as f64;
                dealt[at].octets += part * kind.octets as f64;
            }
        }
        let flows = inversion.flows.value;
        let bin = |(&(length, share), kind): (&(f64, f64), &Dealt)| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_flow::record::{TCP, tcp_flags};
    use nilometer_flow::{EndReason, FlowKey};

    fn record(number: u64) -> FlowRecord {
        let packets = 1 + number % 3;
        FlowRecord {
            key: FlowKey {
                source: core::net::Ipv4Addr::new(198, 18, 0, 1).into(),
                destination: core::net::Ipv4Addr::new(198, 19, 0, 1).into(),
                source_port: number as u16,
                destination_port: 80,
                protocol: TCP,
            },
            start_ns: number,
            end_ns: number + 5,
            packets,
            octets: packets * (100 + number),
            tcp_flags: if number.is_multiple_of(4) { tcp_flags::SYN } else { tcp_flags::ACK },
            payload_octets: None,
            opened: None,
            end_reason: EndReason::Unknown,
            sampling_interval: [10, 100][usize::from(number.is_multiple_of(5))],
        }
    }

    /// However records are parted, their kinds are the sums over records of as many packets.
    #[test]
    fn kinds_of_parts_are_those_of_all() {
        let records: Vec<FlowRecord> = (0..600).map(record).collect();
        let all = Kinds::of(&records, 7);
        let mut parts = Kinds::default();
        assert!(parts.is_empty() && parts.intervals().is_none());
        records.chunks(70).for_each(|part| parts.merge(Kinds::of(part, 0)));
        parts.joined += 7;
        assert_eq!(alloc::format!("{all:?}"), alloc::format!("{parts:?}"));
        assert_eq!((all.is_empty(), all.intervals()), (false, Some((10, 100))));
        assert_eq!(all.octets, records.iter().map(represented_octets).sum::<u64>());
        for (interval, kinds) in &all.of {
            for ((packets, has_start), kind) in kinds {
                let alike = records.iter().filter(|one| {
                    one.sampling_interval == *interval
                        && one.packets == *packets
                        && one.has_start() == *has_start
                });
                let alike: Vec<&FlowRecord> = alike.collect();
                let sum = |of: fn(&FlowRecord) -> u64| -> u128 {
                    alike.iter().map(|one| u128::from(of(one))).sum()
                };
                assert_eq!(kind.records, alike.len() as u64);
                assert_eq!(kind.packets, sum(|one| one.packets));
                assert_eq!(kind.payload, sum(payload_bytes));
                assert_eq!(kind.octets, sum(|one| one.octets));
            }
        }
    }

    /// A size is a file's from 100 bytes on, once it is rounded.
    #[test]
    fn a_file_has_a_hundred_bytes_when_rounded() {
        assert!(!is_a_file(99.4) && is_a_file(99.5) && is_a_file(100.0));
    }
}
