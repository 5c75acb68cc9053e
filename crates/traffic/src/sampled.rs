//! What sampled records say of files and volumes.
//!
//! *Volumes* need no inversion: N times what was sampled has no bias, and each interval gets its own.
//! *File sizes* are lengths times payload: of each length the law says how many flows have it, and of
//! each record the inversion says which lengths its flow may have had, so that a length gets the mean
//! payload of a packet of such flows. One flow's own packets cannot be told from another's of its
//! length, so flows are parted ([`Group`]): into those that carry files and those that return, which are no files
//! (`services`), and both into those with flags and those without, whose number is had in another way (`unseen`). Sizes under 100 bytes are left out as they are elsewhere.
//! *Popularity* of an address is N times its sampled SYNs. Gaps have a law of their own (`thinned`).

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::record::ACK_OPTIONS_BYTES;
use nilometer_stat::inversion::{Inversion, InversionError, SampledFlows};

use crate::files::{FILE_MIN_BYTES, payload_bytes, represented_octets};
use crate::services::Services;
use crate::unseen;

/// Volumes are added up in 2^-32 of a byte or packet.
pub(crate) const UNITS: f64 = (1u64 << 32) as f64;

/// Flows that are alike, and whose lengths have one law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub interval: u32,
    /// Their exporter does not record flags.
    pub is_bare: bool,
    /// They acknowledge files and ask for them.
    pub returns: bool,
}

impl Group {
    fn of(record: &FlowRecord, services: &Services) -> Group {
        let (interval, is_bare) = (record.sampling_interval, record.tcp_flags == 0);
        Group { interval, is_bare, returns: services.returns(record) }
    }
}

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

/// Sampled flows counted by what their records say: by group, packets, and whether a SYN is among
/// them. There are no more kinds than numbers of packets that differ.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    of: BTreeMap<Group, BTreeMap<(u64, bool), Kind>>,
    /// Records that were joined to earlier ones.
    pub joined: u64,
    /// The bytes that flows stand for.
    pub octets: u64,
}

impl Kinds {
    /// The kinds of joined `records`.
    pub fn of(records: &[FlowRecord], joined: u64, services: &Services) -> Kinds {
        let mut kinds = Kinds { joined, ..Kinds::default() };
        for record in records {
            let of_group = kinds.of.entry(Group::of(record, services)).or_default();
            of_group.entry((record.packets, record.has_start())).or_default().add(&Kind {
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
        for (group, more) in more.of {
            let of_group = self.of.entry(group).or_default();
            for (key, kind) in more {
                of_group.entry(key).or_default().add(&kind);
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
        Some((self.of.first_key_value()?.0.interval, self.of.last_key_value()?.0.interval))
    }

    /// One inversion for each group, where it has SYNs or others tell how many flows it has.
    pub fn invert(&self) -> Result<BTreeMap<Group, Inversion>, InversionError> {
        let mut found = BTreeMap::new();
        for (&group, kinds) in self.of.iter().filter(|(group, _)| !group.is_bare) {
            let mut flows = SampledFlows::new(group.interval)?;
            for (&(packets, has_start), kind) in kinds {
                flows.add_alike(packets, has_start, kind.records);
            }
            match flows.invert() {
                Err(InversionError::NoSyn(_)) => None,
                other => found.insert(group, other?),
            };
        }
        for (&group, kinds) in &self.of {
            if found.contains_key(&group) {
                continue;
            }
            let like = self.flows_of_seen(group, &found);
            if !group.is_bare && like.is_none() {
                return Err(InversionError::NoSyn(kinds.values().map(|kind| kind.records).sum()));
            }
            let mut counts = unseen::Counts::new();
            for ((packets, _), kind) in kinds {
                *counts.entry(*packets).or_default() += kind.records;
            }
            found.insert(group, unseen::invert(group.interval, &counts, like)?);
        }
        Ok(found)
    }

    /// Flows for each that was seen of a group, by others of its sampling interval: those that have flags, or
    /// those of the other direction, of which there are as many.
    fn flows_of_seen(&self, group: Group, found: &BTreeMap<Group, Inversion>) -> Option<f64> {
        let records = |group: &Group| -> f64 {
            self.of[group].values().map(|kind| kind.records).sum::<u64>() as f64
        };
        let with_flags = Group { is_bare: false, ..group };
        let other_way = Group { returns: !group.returns, ..with_flags };
        match (found.get(&with_flags), found.get(&other_way)) {
            (Some(like), _) if group.is_bare => Some(like.flows.value / records(&with_flags)),
            (None, Some(other)) if !group.is_bare => Some(other.flows.value / records(&group)),
            _ => None,
        }
    }

    /// Is there none of which flags are recorded?
    pub fn is_bare(&self) -> bool {
        self.of.keys().all(|group| group.is_bare)
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
    /// The files of each group that carries some, by its inversion.
    pub fn of(
        kinds: &Kinds,
        inversions: &BTreeMap<Group, Inversion>,
        services: Services,
    ) -> SampledFiles {
        let carrying = inversions.iter().filter(|(group, _)| !group.returns);
        let carried = |(&group, inversion): (&Group, &Inversion)| {
            (group, Carried::of(f64::from(group.interval), &kinds.of[&group], inversion))
        };
        let groups = carrying.map(carried).collect();
        let mut returning = [Amount::default(); 2];
        for (group, inversion) in inversions.iter().filter(|(group, _)| group.returns) {
            let mut all = Kind::default();
            kinds.of[group].values().for_each(|kind| all.add(kind));
            let asks = all.payload > all.packets * u128::from(ACK_OPTIONS_BYTES);
            let amount = &mut returning[usize::from(asks)];
            amount.flows += inversion.flows.value;
            amount.octets += f64::from(group.interval) * all.octets as f64;
        }
        SampledFiles { groups, returning, services }
    }

    /// Flows that return: those that only acknowledge, and those that ask as well.
    pub fn returning(&self) -> [Amount; 2] {
        self.returning
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
        let Some(group) = self.groups.get(&Group::of(record, &self.services)) else {
            return (0, 0);
        };
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
        let services = Services::default();
        let all = Kinds::of(&records, 7, &services);
        let mut parts = Kinds::default();
        assert!(parts.is_empty() && parts.intervals().is_none());
        records.chunks(70).for_each(|part| parts.merge(Kinds::of(part, 0, &services)));
        parts.joined += 7;
        assert_eq!(alloc::format!("{all:?}"), alloc::format!("{parts:?}"));
        assert_eq!((all.is_empty(), all.intervals()), (false, Some((10, 100))));
        assert_eq!(all.octets, records.iter().map(represented_octets).sum::<u64>());
        for (group, kinds) in &all.of {
            for ((packets, has_start), kind) in kinds {
                let alike = records.iter().filter(|one| {
                    one.sampling_interval == group.interval
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
