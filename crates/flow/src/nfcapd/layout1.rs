//! Records of layout 1.
//!
//! A flow record begins with fixed fields and continues with three that every flow has, in this order:
//! addresses, packets, bytes, whose widths are given by bits of the flags. What follows is described
//! by an extension map, a record of its own that the flow names. Nothing behind the bytes is needed
//! here, so extension maps need not be remembered, and a file whose maps are damaged still gives its
//! flows.
//!
//! Records of type 1 (nfdump 1.5 and early 1.6) have no room for the exporter at their end; type 10
//! has four bytes for it. A collector that knew the sampling interval has already multiplied a
//! record's counts, and sets a flag: such records are counted as scaled.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{NANOS_PER_MILLI, give};
use crate::bytes::{le16, le32, le64};
use crate::counts::{Counts, Skip};
use crate::record::{EndReason, FlowKey, FlowRecord, has_ports};

/// A flow, as nfdump 1.5 and early 1.6 wrote it.
const FLOW_EARLY: u16 = 1;
/// A flow, with its exporter.
const FLOW: u16 = 10;
/// Extension maps, histograms, exporters and samplers.
const DESCRIPTIONS: core::ops::RangeInclusive<u16> = 2..=9;

const IS_IPV6: u8 = 0x1;
const HAS_WIDE_PACKETS: u8 = 0x2;
const HAS_WIDE_BYTES: u8 = 0x4;
const IS_SAMPLED: u8 = 0x80;

/// Takes a record, header and all.
pub(super) fn decode(
    kind: u16,
    record: &[u8],
    counts: &mut Counts,
    out: &mut impl FnMut(FlowRecord),
) {
    let fixed_bytes = match kind {
        FLOW_EARLY => 28,
        FLOW => 32,
        _ if DESCRIPTIONS.contains(&kind) => {
            counts.options += 1;
            return;
        }
        _ => return counts.skips.add(Skip::KindUnknown),
    };
    match flow(record, fixed_bytes) {
        Some(flow) => {
            counts.flows += 1;
            counts.scaled += u64::from(record[4] & IS_SAMPLED != 0);
            give(flow, counts, out);
        }
        None => counts.skips.add(Skip::RecordDamaged),
    }
}

fn flow(record: &[u8], fixed_bytes: usize) -> Option<FlowRecord> {
    let (fixed, rest) = record.split_at_checked(fixed_bytes)?;
    let flags = fixed[4];
    let (source, destination, rest): (IpAddr, IpAddr, _) = if flags & IS_IPV6 == 0 {
        let (both, rest) = rest.split_at_checked(8)?;
        let address = |at| Ipv4Addr::from_bits(le32(both, at)).into();
        (address(0), address(4), rest)
    } else {
        let (both, rest) = rest.split_at_checked(32)?;
        let half = |at| u128::from(le64(both, at));
        let address = |at| Ipv6Addr::from_bits(half(at) << 64 | half(at + 8)).into();
        (address(0), address(16), rest)
    };
    let (packets, rest) = count(rest, flags & HAS_WIDE_PACKETS != 0)?;
    let (octets, _) = count(rest, flags & HAS_WIDE_BYTES != 0)?;
    let protocol = fixed[22];
    let port = |at| if has_ports(protocol) { le16(fixed, at) } else { 0 };
    let wall_ns = |seconds_at, millis_at| {
        let millis = u64::from(le32(fixed, seconds_at)) * 1_000 + u64::from(le16(fixed, millis_at));
        millis * NANOS_PER_MILLI
    };
    Some(FlowRecord {
        key: FlowKey {
            source,
            destination,
            source_port: port(24),
            destination_port: port(26),
            protocol,
        },
        start_ns: wall_ns(12, 8),
        end_ns: wall_ns(16, 10),
        packets,
        octets,
        tcp_flags: fixed[21],
        payload_octets: None,
        opened: None,
        end_reason: EndReason::Unknown,
        sampling_interval: 0,
    })
}

/// A number of four bytes, or of eight.
fn count(rest: &[u8], is_wide: bool) -> Option<(u64, &[u8])> {
    if is_wide {
        rest.split_at_checked(8).map(|(number, rest)| (le64(number, 0), rest))
    } else {
        rest.split_at_checked(4).map(|(number, rest)| (le32(number, 0).into(), rest))
    }
}
