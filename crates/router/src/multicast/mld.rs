//! MLD, versions 1 and 2, to and from bytes (RFC 2710, RFC 3810).

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::Span;

use super::QUERY_SOURCES_MAX;
use super::code::{decode, encode};
use super::message::{Malformed, Message, Protocol, Query, Record, RecordKind, Version};
use super::message::{addresses, records};
use crate::header::{ETHERNET_BYTES, IPV6_BYTES, protocol};
use crate::neighbour::frame::Ink;
use crate::neighbour::{Family, Mac, discovery};

const QUERY: u8 = 130;
const REPORT_1: u8 = 131;
const DONE: u8 = 132;
const REPORT_2: u8 = 143;
/// All nodes of the link.
const ALL_NODES: u128 = 0xff02 << 112 | 1;
const MILLISECOND: Span = Span::from_nanos(1_000_000);
/// A hop-by-hop header with the router alert for MLD (RFC 2711), and padding.
const ALERT: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
const ROUTER_ALERT: u8 = 5;

fn is_group(address: u128) -> bool {
    address >> 120 == 0xff
}

impl Protocol for u128 {
    fn may_forward(self) -> bool {
        let scope = (self >> 112) as u8 & 0xf;
        is_group(self) && scope > 2 && scope < 0xf
    }

    fn group_mac(self) -> Mac {
        discovery::group_mac(self)
    }

    fn read(frame: &[u8]) -> Result<(u128, Message<u128>), Malformed> {
        let (envelope, header, bytes) = discovery::icmpv6(frame).map_err(|why| match why {
            discovery::Malformed::Checksum => Malformed::Checksum,
            discovery::Malformed::Short => Malformed::Short,
            _ => Malformed::Packet,
        })?;
        if ![QUERY, REPORT_1, DONE, REPORT_2].contains(&bytes[0]) {
            return Err(Malformed::Kind);
        }
        if header.hop_limit != 1 {
            return Err(Malformed::HopLimit);
        }
        if !has_router_alert(&frame[ETHERNET_BYTES..]) {
            return Err(Malformed::RouterAlert);
        }
        // RFC 3810, 5.1.14 and 5.2.13.
        if !envelope.source.is_link_local() {
            return Err(Malformed::Source);
        }
        let message = if bytes[0] == REPORT_2 {
            let head = bytes.first_chunk::<8>().ok_or(Malformed::Short)?;
            let count = usize::from(u16::from_be_bytes([head[6], head[7]]));
            let records = records(&bytes[8..], count, u128::from_be_bytes)?;
            if records.iter().any(|record| !is_group(record.group)) {
                return Err(Malformed::Group);
            }
            Message::Report(Version::Newest, records)
        } else {
            let head = bytes.first_chunk::<24>().ok_or(Malformed::Short)?;
            let group = u128::from_be_bytes(core::array::from_fn(|i| head[8 + i]));
            let is_general = bytes[0] == QUERY && group == 0;
            if !is_group(group) && !is_general {
                return Err(Malformed::Group);
            }
            match bytes[0] {
                QUERY => Message::Query(read_query(bytes, group)?),
                REPORT_1 => single(RecordKind::IsExclude, group),
                _ => single(RecordKind::ToInclude, group),
            }
        };
        Ok((envelope.source, message))
    }

    fn write_query(query: &Query<u128>, from: (Mac, u128), frame: &mut [u8]) -> usize {
        assert!(query.sources.len() <= QUERY_SOURCES_MAX, "sources that fit");
        let destination = if query.group == 0 { ALL_NODES } else { query.group };
        let mut ink = Ink::new(frame, destination.group_mac(), from.0, 0x86dd);
        ink.ipv6(protocol::HOP_BY_HOP, 1, from.1, destination);
        ink.put(&ALERT);
        let at = ink.at();
        let millis = (query.response_interval.0 / MILLISECOND.0).min(u64::from(u32::MAX)) as u32;
        let is_newest = query.version == Version::Newest;
        let code = if is_newest { encode(millis, 12) } else { millis.min(65_535) };
        ink.put(&[QUERY, 0, 0, 0]);
        ink.put(&(code as u16).to_be_bytes());
        ink.put(&[0; 2]);
        ink.put(&query.group.to_be_bytes());
        if is_newest {
            let seconds = (query.query_interval.0 / Span::from_secs(1).0).min(31_744) as u32;
            let flags = u8::from(query.is_suppressed) << 3 | query.robustness & 7;
            ink.put(&[flags, encode(seconds, 4) as u8, 0, query.sources.len() as u8]);
            query.sources.iter().for_each(|source| ink.put(&source.to_be_bytes()));
        }
        ink.close_icmpv6(at);
        ink.close()
    }
}

/// Whether the packet's hop-by-hop header has a router alert.
fn has_router_alert(packet: &[u8]) -> bool {
    if packet.get(6) != Some(&protocol::HOP_BY_HOP) {
        return false;
    }
    let Some(&[_, eights]) = packet.get(IPV6_BYTES..).and_then(|rest| rest.first_chunk()) else {
        return false;
    };
    let end = IPV6_BYTES + (usize::from(eights) + 1) * 8;
    let mut options = packet.get(IPV6_BYTES + 2..end).unwrap_or(&[]);
    while let Some((&kind, rest)) = options.split_first() {
        options = match (kind, rest) {
            (0, _) => rest,
            (ROUTER_ALERT, [2, ..]) => return true,
            (_, [length, rest @ ..]) => rest.get(usize::from(*length)..).unwrap_or(&[]),
            _ => &[],
        };
    }
    false
}

fn read_query(bytes: &[u8], group: u128) -> Result<Query<u128>, Malformed> {
    let code = u32::from(u16::from_be_bytes([bytes[4], bytes[5]]));
    let old = Query {
        group,
        sources: Vec::new(),
        response_interval: MILLISECOND * u64::from(code),
        is_suppressed: false,
        robustness: 0,
        query_interval: Span::ZERO,
        version: Version::Older,
    };
    // RFC 3810, 8.1: the version by length.
    match bytes.len() {
        24 => Ok(old),
        28.. => {
            let count = usize::from(u16::from_be_bytes([bytes[26], bytes[27]]));
            Ok(Query {
                sources: addresses(&bytes[28..], count, u128::from_be_bytes)?,
                response_interval: MILLISECOND * u64::from(decode(code, 12)),
                is_suppressed: bytes[24] & 8 != 0,
                robustness: bytes[24] & 7,
                query_interval: Span::from_secs(u64::from(decode(u32::from(bytes[25]), 4))),
                version: Version::Newest,
                ..old
            })
        }
        _ => Err(Malformed::Short),
    }
}

fn single(kind: RecordKind, group: u128) -> Message<u128> {
    Message::Report(Version::Older, vec![Record { kind, group, sources: Vec::new() }])
}
