//! One sample of sFlow: a sampled packet becomes a flow record of one packet.
//!
//! A flow sample comes in two forms that differ in how wide its interfaces' numbers are (section 5.3,
//! flow_sample and flow_sample_expanded). Of the records in it, three kinds describe an IP packet:
//! its first bytes, which our own parser reads as if they had been captured with a short snap length,
//! or its addresses, ports and length, of either version. Other records (switching, routing, users,
//! URLs) say nothing about a flow. A sampled packet is metered as a flow of this packet alone.

use nilometer_wire::brief::Brief;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, parse};

use super::{Drops, part, v4_at, v6_at};
use crate::bytes::be32;
use crate::counts::Skip;
use crate::live::{Live, key_of};
use crate::record::{EndReason, FlowKey, FlowRecord, has_ports};

/// Kinds of samples and of records; enterprise 0 is in the upper 20 bits.
const FLOW_SAMPLE: u32 = 1;
const COUNTER_SAMPLE: u32 = 2;
const FLOW_SAMPLE_EXPANDED: u32 = 3;
const COUNTER_SAMPLE_EXPANDED: u32 = 4;
const RAW_PACKET_HEADER: u32 = 1;
const SAMPLED_IPV4: u32 = 3;
const SAMPLED_IPV6: u32 = 4;

/// Why there is no flow in a sample, and the drops of its source, if they are known.
type NoFlow = (Skip, Option<Drops>);

/// The flow in a sample of this kind, and the drops that its source reported.
pub(super) fn decode(kind: u32, body: &[u8], seen_ns: u64) -> Result<(FlowRecord, Drops), NoFlow> {
    let head_bytes = match kind {
        FLOW_SAMPLE => 32,
        FLOW_SAMPLE_EXPANDED => 44,
        COUNTER_SAMPLE | COUNTER_SAMPLE_EXPANDED => return Err((Skip::CounterSample, None)),
        _ => return Err((Skip::KindUnknown, None)),
    };
    let (head, records) = body.split_at_checked(head_bytes).ok_or((Skip::RecordDamaged, None))?;
    let (source, counts_at) = match kind {
        FLOW_SAMPLE => ((be32(head, 4) >> 24, be32(head, 4) & 0xff_ffff), 8),
        _ => ((be32(head, 4), be32(head, 8)), 12),
    };
    let drops = Drops { source, packets: be32(head, counts_at + 8) };
    let (sampling_interval, announced) = (be32(head, counts_at), be32(head, head_bytes - 4));
    match flow(records, announced, seen_ns) {
        Ok(flow) => Ok((FlowRecord { sampling_interval, ..flow }, drops)),
        Err(reason) => Err((reason, Some(drops))),
    }
}

/// The flow of the first record that describes one; or why the last record describes none.
fn flow(mut rest: &[u8], announced: u32, seen_ns: u64) -> Result<FlowRecord, Skip> {
    let mut why = Skip::KindUnknown;
    for _ in 0..announced {
        let (kind, body, after) = part(rest).ok_or(Skip::RecordDamaged)?;
        rest = after;
        let found = match kind {
            RAW_PACKET_HEADER => of_header(body, seen_ns),
            SAMPLED_IPV4 => of_addresses(body, 4, seen_ns),
            SAMPLED_IPV6 => of_addresses(body, 16, seen_ns),
            _ => continue,
        };
        match found {
            Ok(flow) => return Ok(flow),
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

/// From the first bytes of a packet.
fn of_header(body: &[u8], seen_ns: u64) -> Result<FlowRecord, Skip> {
    let (head, rest) = body.split_at_checked(16).ok_or(Skip::RecordDamaged)?;
    let (frame_bytes, stripped_bytes) = (be32(head, 4), be32(head, 8));
    let seen = usize::try_from(be32(head, 12)).ok().and_then(|bytes| rest.get(..bytes));
    let seen = seen.ok_or(Skip::RecordDamaged)?;
    let link = match be32(head, 0) {
        1 => LinkType::Ethernet,
        7 => LinkType::Ppp,
        11 => LinkType::Ipv4,
        12 => LinkType::Ipv6,
        _ => return Err(Skip::NotIp),
    };
    // The frame's length counts what was stripped, as a rule its checksum.
    let original_bytes = frame_bytes.saturating_sub(stripped_bytes).max(seen.len() as u32);
    match parse(link, seen, original_bytes) {
        Parsed::Ip(packet) => {
            let brief = Brief::of(&packet);
            let mut live = Live::new(seen_ns, seen_ns, &brief);
            live.add(seen_ns, seen_ns, &brief);
            Ok(live.into_record(key_of(&packet), EndReason::Unknown))
        }
        Parsed::NotIp(_) | Parsed::Cut => Err(Skip::NotIp),
        Parsed::Malformed(_) => Err(Skip::RecordDamaged),
    }
}

/// From the fields that the agent parsed itself: length, protocol, addresses of `address_bytes`
/// bytes, ports, flags.
fn of_addresses(body: &[u8], address_bytes: usize, seen_ns: u64) -> Result<FlowRecord, Skip> {
    let fixed = body.get(..24 + 2 * address_bytes).ok_or(Skip::RecordDamaged)?;
    let (addresses, rest) = fixed[8..].split_at(2 * address_bytes);
    let address = |at| if address_bytes == 4 { v4_at(addresses, at) } else { v6_at(addresses, at) };
    let protocol = be32(fixed, 4) as u8;
    let port = |at| if has_ports(protocol) { be32(rest, at) as u16 } else { 0 };
    Ok(FlowRecord {
        key: FlowKey {
            source: address(0),
            destination: address(address_bytes),
            source_port: port(0),
            destination_port: port(4),
            protocol,
        },
        start_ns: seen_ns,
        end_ns: seen_ns,
        packets: 1,
        octets: be32(fixed, 0).into(),
        tcp_flags: be32(rest, 8) as u8,
        payload_octets: None,
        opened: None,
        end_reason: EndReason::Unknown,
        sampling_interval: 0,
    })
}
