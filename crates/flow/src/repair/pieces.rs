//! The records of one five-tuple: doubles are dropped, pieces joined.
//!
//! **Doubles.** A router that meters where packets come in and where they go out, or two routers on one path,
//! export a flow twice. One cache holds a tuple once, so two records with the same flags and counts (except
//! for packets lost in between) that began and ended at the same time are one flow, seen twice. The rule does
//! not apply to sampled records, which are often equal by chance, nor to records metered here.
//!
//! **Pieces** (flow surgery; Harpoon, section 4.1). A timer or a full cache splits a long connection into pieces, and
//! each piece would count as a file of its own. Two consecutive records are pieces of one flow when the earlier has no
//! end marker (FIN or RST), the later no start marker (SYN), and little time lies between them: the paper's 10 ms where
//! nothing else is known, and up to the usual inactive timeout where the earlier record says that the active timeout, a
//! full cache or the end of the metering (as between two files of one capture) cut it. Most exporters do not state
//! that. But where TCP's flags are reported, their absence is equivalent: a connection that has not ended, and
//! continues without having begun, is one connection, and the same wait applies. It also applies to a SYN after nothing
//! but SYNs: it is a repetition. Exporters that keep a flow beyond its timeout repeat its start and its flags: records
//! of one start that overlap are one flow, too. Records whose sum would not fit 64 bits stay apart.

use alloc::vec::Vec;

use super::{CONTINUATION_GAP_MAX_NS, Reason, RepairCounts};
use crate::record::{EndReason, FlowRecord, TCP, tcp_flags};

/// The most by which stamps of two points on a path differ, in one flow of several packets.
const POINTS_APART_NS: u64 = 50_000_000;
/// One packet in this many may have been lost between the two points.
const LOST_BETWEEN_POINTS: u64 = 20;
/// Records of one moment that are searched for a double.
const LOOKED_AT_MAX: usize = 256;
/// The most by which stamps in milliseconds of one moment differ.
const ROUNDING_NS: u64 = 1_000_000;

/// Settles records sorted by five-tuple and start.
pub(super) fn settle(records: &mut Vec<FlowRecord>, gap_max_ns: u64, counts: &mut RepairCounts) {
    let mut kept = 0;
    for at in 0..records.len() {
        if is_double(&records[..kept], &records[at]) {
            counts.count(Reason::DirectionDoubled);
            counts.doubled.add(&records[at]);
        } else {
            records.swap(kept, at);
            kept += 1;
        }
    }
    records.truncate(kept);
    records.dedup_by(|later, earlier| match continues(earlier, later, gap_max_ns) {
        Some(reason) => {
            counts.count(reason);
            join(earlier, later);
            true
        }
        None => false,
    });
}

/// Was it metered from packets here? Exporters that count payload count nothing else.
fn is_metered(record: &FlowRecord) -> bool {
    record.payload_octets.is_some_and(|payload_octets| payload_octets < record.octets)
}

/// Is this record among those before it?
fn is_double(before: &[FlowRecord], record: &FlowRecord) -> bool {
    if record.sampling_interval != 0 || is_metered(record) {
        return false;
    }
    let apart_ns = if record.packets > 1 { POINTS_APART_NS } else { ROUNDING_NS };
    let near = |one: u64, other: u64| one.abs_diff(other) <= apart_ns;
    let together = |one: &&FlowRecord| one.key == record.key && near(one.start_ns, record.start_ns);
    before.iter().rev().take(LOOKED_AT_MAX).take_while(together).any(|one| {
        one.tcp_flags == record.tcp_flags
            && one.sampling_interval == 0
            && !is_metered(one)
            && near(one.end_ns, record.end_ns)
            && about(one.packets, record.packets)
            && about(one.octets, record.octets)
    })
}

/// Equal except for losses between two points.
fn about(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= one.max(other) / LOST_BETWEEN_POINTS
}

/// Why `later` is the next piece of `earlier`; `None` if it is not.
fn continues(earlier: &FlowRecord, later: &FlowRecord, gap_max_ns: u64) -> Option<Reason> {
    let fits = earlier.packets.checked_add(later.packets).is_some()
        && earlier.octets.checked_add(later.octets).is_some();
    if earlier.key != later.key || !fits {
        return None;
    }
    let both_ns = earlier.end_ns.min(later.end_ns).saturating_sub(later.start_ns);
    if later.start_ns.abs_diff(earlier.start_ns) <= ROUNDING_NS && both_ns > ROUNDING_NS {
        return Some(Reason::StartKept);
    }
    let gap_ns = later.start_ns.saturating_sub(earlier.end_ns);
    let has_flags = earlier.key.protocol == TCP && earlier.tcp_flags != 0 && later.tcp_flags != 0;
    if earlier.has_end() || later.has_start() && !only_opens(earlier) {
        None
    } else if gap_ns <= gap_max_ns {
        Some(Reason::Split)
    } else if gap_ns > CONTINUATION_GAP_MAX_NS {
        None
    } else {
        match earlier.end_reason {
            EndReason::ActiveTimeout | EndReason::LackOfResources | EndReason::ForcedEnd => {
                Some(Reason::Split)
            }
            EndReason::Unknown if has_flags => Some(Reason::StartRenewed),
            _ => None,
        }
    }
}

/// Does it hold only the opening of a connection? A SYN that follows repeats it.
fn only_opens(record: &FlowRecord) -> bool {
    let opening_bytes = if record.key.source.is_ipv4() { 80 } else { 100 };
    record.has_start()
        && record.tcp_flags & (tcp_flags::PSH | tcp_flags::FIN | tcp_flags::RST) == 0
        && record.octets <= record.packets.saturating_mul(opening_bytes)
}

fn join(earlier: &mut FlowRecord, later: &FlowRecord) {
    earlier.end_ns = earlier.end_ns.max(later.end_ns);
    earlier.packets += later.packets;
    earlier.octets += later.octets;
    earlier.tcp_flags |= later.tcp_flags;
    earlier.payload_octets = match (earlier.payload_octets, later.payload_octets) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        _ => None,
    };
    earlier.opened = earlier.opened.or(later.opened);
    earlier.end_reason = later.end_reason;
    earlier.sampling_interval = earlier.sampling_interval.max(later.sampling_interval);
}
