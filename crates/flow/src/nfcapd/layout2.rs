//! Records of layout 2.
//!
//! A flow record is a list of elements, each with its type and length, so that unknown ones can be
//! skipped. Four hold all that is needed: generic (times, counts, ports, protocol, flags), addresses of
//! either version, miscellany (why the flow ended, which half of a biflow), and counts of a second
//! direction. The last are the reverse half where the miscellany says that the record is a biflow (RFC
//! 5103); elsewhere they count what left the router, the same packets once more. Records in which they
//! differ nevertheless are counted.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{NANOS_PER_MILLI, give};
use crate::bytes::{le16, le32, le64};
use crate::counts::{Counts, Skip};
use crate::record::{EndReason, FlowKey, FlowRecord, has_ports};

/// A flow.
const FLOW: u16 = 11;
/// Exporters, samplers, and names of applications, interfaces and routing tables.
const DESCRIPTIONS: [u16; 7] = [7, 8, 9, 12, 13, 14, 15];
const HEADER_BYTES: usize = 12;
const IS_SAMPLED: u8 = 0x2;

const GENERIC: u16 = 1;
const IPV4: u16 = 2;
const IPV6: u16 = 3;
const MISCELLANY: u16 = 4;
const COUNTS_BACK: u16 = 5;

/// Takes a record, header and all.
pub(super) fn decode(
    kind: u16,
    record: &[u8],
    counts: &mut Counts,
    out: &mut impl FnMut(FlowRecord),
) {
    if kind != FLOW {
        match DESCRIPTIONS.contains(&kind) {
            true => counts.options += 1,
            false => counts.skips.add(Skip::KindUnknown),
        }
        return;
    }
    let found = match Found::in_record(record) {
        Some(found) => found,
        None => return counts.skips.add(Skip::RecordDamaged),
    };
    let Some(addresses) = found.addresses else {
        return counts.skips.add(Skip::NoAddresses);
    };
    let Some(generic) = found.generic else {
        return counts.skips.add(Skip::NoCounts);
    };
    counts.flows += 1;
    counts.scaled += u64::from(record[10] & IS_SAMPLED != 0);
    if found.counts_back.is_none() {
        return give(forward(addresses, generic, found.miscellany), counts, out);
    }
    let flow = forward(addresses, generic, found.miscellany);
    let back = counts_back(&found);
    let reverse = back.filter(|_| is_biflow(&found)).map(|sums| reverse(&flow, &found, sums));
    let is_left_out =
        reverse.is_none() && back.is_some_and(|sums| sums != (flow.packets, flow.octets));
    counts.second_counts += u64::from(is_left_out);
    give(flow, counts, out);
    if let Some(reverse) = reverse {
        counts.reverse_flows += 1;
        out(reverse);
    }
}

/// The addresses of a flow, as bytes of its record: they become values only where the flow is made, to
/// avoid copies.
#[derive(Clone, Copy)]
enum Addresses<'a> {
    V4(&'a [u8; 8]),
    V6(&'a [u8; 32]),
}

impl Addresses<'_> {
    #[inline(always)]
    fn both(self) -> (IpAddr, IpAddr) {
        match self {
            Addresses::V4(both) => {
                let address = |at| Ipv4Addr::from_bits(le32(both, at)).into();
                (address(0), address(4))
            }
            Addresses::V6(both) => {
                let half = |at| u128::from(le64(both, at));
                let address = |at| Ipv6Addr::from_bits(half(at) << 64 | half(at + 8)).into();
                (address(0), address(16))
            }
        }
    }
}

/// The elements of one record.
#[derive(Default)]
struct Found<'a> {
    generic: Option<&'a [u8; 48]>,
    addresses: Option<Addresses<'a>>,
    miscellany: Option<&'a [u8; 16]>,
    counts_back: Option<&'a [u8; 24]>,
}

impl<'a> Found<'a> {
    /// `None` if elements do not fill their record.
    fn in_record(record: &'a [u8]) -> Option<Found<'a>> {
        let (head, mut rest) = record.split_at_checked(HEADER_BYTES)?;
        let mut found = Found::default();
        for _ in 0..le16(head, 4) {
            let (kind, bytes) = (le16(rest.get(..4)?, 0), usize::from(le16(rest.get(..4)?, 2)));
            let element = rest.get(4..bytes)?;
            rest = &rest[bytes..];
            match kind {
                GENERIC => found.generic = Some(element.first_chunk()?),
                IPV4 => found.addresses = Some(Addresses::V4(element.first_chunk()?)),
                IPV6 => found.addresses = Some(Addresses::V6(element.first_chunk()?)),
                MISCELLANY => found.miscellany = Some(element.first_chunk()?),
                COUNTS_BACK => found.counts_back = Some(element.first_chunk()?),
                _ => {}
            }
        }
        Some(found)
    }
}

#[inline(always)]
fn forward(
    addresses: Addresses<'_>,
    generic: &[u8; 48],
    miscellany: Option<&[u8; 16]>,
) -> FlowRecord {
    let protocol = generic[44];
    let port = |at| if has_ports(protocol) { le16(generic, at) } else { 0 };
    let wall_ns = |at| le64(generic, at).saturating_mul(NANOS_PER_MILLI);
    let (source, destination) = addresses.both();
    FlowRecord {
        key: FlowKey {
            source,
            destination,
            source_port: port(40),
            destination_port: port(42),
            protocol,
        },
        start_ns: wall_ns(0),
        end_ns: wall_ns(8),
        packets: le64(generic, 24),
        octets: le64(generic, 32),
        tcp_flags: generic[45],
        payload_octets: None,
        opened: None,
        end_reason: EndReason::from_number(miscellany.map_or(0, |of| of[13])),
        sampling_interval: 0,
    }
}

/// Packets and bytes of the second direction, if it counts any.
fn counts_back(found: &Found<'_>) -> Option<(u64, u64)> {
    let sums = found.counts_back.map(|counts| (le64(counts, 8), le64(counts, 16)))?;
    (sums != (0, 0)).then_some(sums)
}

/// Does the record show a biflow, by its direction or by flags of the reverse direction?
fn is_biflow(found: &Found<'_>) -> bool {
    found.miscellany.is_some_and(|of| of[12] != 0 || of[14] != 0)
}

fn reverse(flow: &FlowRecord, found: &Found<'_>, (packets, octets): (u64, u64)) -> FlowRecord {
    let tcp_flags = found.miscellany.map_or(0, |of| of[14]);
    let end_ns = flow.end_ns.max(flow.start_ns);
    FlowRecord { key: flow.key.reversed(), end_ns, packets, octets, tcp_flags, ..flow.clone() }
}
