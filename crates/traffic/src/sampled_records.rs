//! Sampled flows counted by kind of record, in groups whose lengths have one law.
//!
//! The number of kinds is limited by the distinct numbers of packets, however many records there are. Each group is
//! inverted by itself (`nilometer_stat::inversion`), with the roles of packets that records of one packet show
//! (`segments`).

use alloc::collections::BTreeMap;

use nilometer_flow::FlowRecord;
use nilometer_stat::inversion::{Inversion, InversionError, PacketRoles, SampledFlows};

use crate::files::{payload_bytes, represented_octets};
use crate::segments::{Segments, Singles};
use crate::services::Services;
use crate::unsampled_flows;

/// A group of flows whose lengths have one law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub interval: u32,
    /// Their exporter does not record flags.
    pub lacks_flags: bool,
    /// They acknowledge files and request them.
    pub returns: bool,
}

impl Group {
    pub fn of(record: &FlowRecord, services: &Services) -> Group {
        let (interval, lacks_flags) = (record.sampling_interval, record.tcp_flags == 0);
        Group { interval, lacks_flags, returns: services.returns(record) }
    }
}

/// The evidence of a record on the length of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordKind {
    pub packets: u64,
    has_start: bool,
    has_end: bool,
}

impl RecordKind {
    pub fn of(record: &FlowRecord) -> RecordKind {
        let (has_start, has_end) = (record.has_start(), record.has_end());
        RecordKind { packets: record.packets, has_start, has_end }
    }

    /// Packets of the record that flags identify, if each flow has `marks` of them: the SYN, or the SYN and
    /// the FIN.
    pub fn marked(self, marks: u32) -> u32 {
        let both = u32::from(self.has_start) + u32::from(self.has_end);
        let marked = if marks == 1 { u32::from(self.has_start) } else { both };
        if self.packets == 1 { marked.min(1) } else { marked }
    }
}

/// Totals of records of one kind: their number, and their packets, payload and IP bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KindTotals {
    pub records: u64,
    pub packets: u128,
    pub payload: u128,
    pub octets: u128,
}

/// Sampled flows by group, and by packets and flags.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    pub of: BTreeMap<Group, BTreeMap<RecordKind, KindTotals>>,
    /// Records of one packet.
    singles: BTreeMap<Group, Singles>,
    /// Records that were joined to earlier ones.
    pub joined: u64,
    /// The bytes that sampled flows represent.
    pub octets: u64,
}

impl Kinds {
    /// The kinds of joined `records`.
    pub fn of(records: &[FlowRecord], joined: u64, services: &Services) -> Kinds {
        let mut kinds = Kinds { joined, ..Kinds::default() };
        for record in records {
            let group = Group::of(record, services);
            kinds.singles.entry(group).or_default().note(record);
            let of_group = kinds.of.entry(group).or_default();
            of_group.entry(RecordKind::of(record)).or_default().add(&KindTotals {
                records: 1,
                packets: record.packets.into(),
                payload: payload_bytes(record).into(),
                octets: record.octets.into(),
            });
            kinds.octets += represented_octets(record);
        }
        kinds
    }

    /// Adds the kinds of other records.
    pub fn merge(&mut self, more: Kinds) {
        for (group, more) in more.of {
            let of_group = self.of.entry(group).or_default();
            for (key, kind) in more {
                of_group.entry(key).or_default().add(&kind);
            }
        }
        for (group, more) in more.singles {
            self.singles.entry(group).or_default().merge(&more);
        }
        self.joined += more.joined;
        self.octets += more.octets;
    }

    /// Are there no records?
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The least and the greatest sampling interval, if there are any.
    pub fn intervals(&self) -> Option<(u32, u32)> {
        Some((self.of.first_key_value()?.0.interval, self.of.last_key_value()?.0.interval))
    }

    /// How flows of a group that carries files divide them into packets; for flows without flags, as for those with
    /// flags. `None` if flows were sampled, and not their packets.
    pub fn segments(&self, group: Group) -> Option<Segments> {
        let with_flags = Group { lacks_flags: false, ..group };
        let are_known = !group.returns && self.flows(with_flags, 1)?.are_of_sampled_packets();
        if are_known { self.singles.get(&with_flags)?.segments() } else { None }
    }

    /// Packets that flags identify in each flow of a group.
    fn marks(&self, group: Group) -> u32 {
        let singles = self.singles.get(&group).filter(|_| self.segments(group).is_some());
        singles.map_or(1, Singles::marks)
    }

    /// The records of a group with `marks` marked packets in each flow, for inversion.
    fn flows(&self, group: Group, marks: u32) -> Option<SampledFlows> {
        let roles = PacketRoles { marks, ..PacketRoles::default() };
        let mut flows = SampledFlows::new(group.interval).ok()?.with_roles(roles);
        for (seen, kind) in self.of.get(&group)? {
            flows.add_alike(seen.packets, seen.marked(marks), kind.records);
        }
        Some(flows)
    }

    /// What is known about the packets of a group's flows.
    pub fn roles(&self, group: Group) -> PacketRoles {
        let known = self.segments(group).map(|Segments { control, remainders, .. }| {
            let marks = if group.lacks_flags { 1 } else { self.marks(group) };
            PacketRoles { control, marks, remainders }
        });
        known.unwrap_or_default()
    }

    /// One inversion for each group that has SYNs, or whose number of flows follows from other groups.
    pub fn invert(&self) -> Result<BTreeMap<Group, Inversion>, InversionError> {
        let mut found = BTreeMap::new();
        for &group in self.of.keys().filter(|group| !group.lacks_flags) {
            let roles = self.roles(group);
            let flows = self.flows(group, roles.marks);
            let flows = flows.ok_or(InversionError::Interval(group.interval))?;
            match flows.with_roles(roles).invert() {
                Err(InversionError::NoSyn(_)) => None,
                other => found.insert(group, other?),
            };
        }
        for (&group, kinds) in &self.of {
            if found.contains_key(&group) {
                continue;
            }
            let like = self.flows_of_seen(group, &found);
            if !group.lacks_flags && like.is_none() {
                return Err(InversionError::NoSyn(kinds.values().map(|kind| kind.records).sum()));
            }
            let mut counts = unsampled_flows::Counts::new();
            for (seen, kind) in kinds {
                *counts.entry(seen.packets).or_default() += kind.records;
            }
            let inversion =
                unsampled_flows::invert(group.interval, self.roles(group), &counts, like)?;
            found.insert(group, inversion);
        }
        Ok(found)
    }

    /// The ratio of flows to seen flows of a group, from other groups with its sampling interval: those with
    /// flags, or those of the other direction, which are as many.
    fn flows_of_seen(&self, group: Group, found: &BTreeMap<Group, Inversion>) -> Option<f64> {
        let records = |group: &Group| -> f64 {
            self.of[group].values().map(|kind| kind.records).sum::<u64>() as f64
        };
        let with_flags = Group { lacks_flags: false, ..group };
        let other_way = Group { returns: !group.returns, ..with_flags };
        match (found.get(&with_flags), found.get(&other_way)) {
            (Some(like), _) if group.lacks_flags => Some(like.flows.value / records(&with_flags)),
            (None, Some(other)) if !group.lacks_flags => Some(other.flows.value / records(&group)),
            _ => None,
        }
    }

    /// Are flows counted by their FINs, too?
    pub fn counts_ends(&self) -> bool {
        self.of.keys().any(|group| self.roles(*group).marks > 1)
    }

    /// Are there no records with flags?
    pub fn lacks_flags(&self) -> bool {
        self.of.keys().all(|group| group.lacks_flags)
    }
}

impl KindTotals {
    pub fn add(&mut self, more: &KindTotals) {
        self.records += more.records;
        self.packets += more.packets;
        self.payload += more.payload;
        self.octets += more.octets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
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

    /// However records are divided, their kinds are the sums over records with equally many packets.
    #[test]
    fn kinds_of_chunks_merge_to_those_of_all_records() {
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
            for (seen, kind) in kinds {
                let alike = records.iter().filter(|one| {
                    one.sampling_interval == group.interval && RecordKind::of(one) == *seen
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
}
