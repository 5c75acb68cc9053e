//! IGMP, versions 1 to 3, to and from bytes (RFC 1112 appendix I, RFC 2236, RFC 3376).

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::Span;
use nilometer_wire::checksum::internet_checksum;

use super::QUERY_SOURCES_MAX;
use super::code::{decode, encode};
use super::message::{Malformed, Message, Protocol, Query, Record, RecordKind, Version};
use super::message::{addresses, records};
use crate::header::{AnyKey, ETHERNET_BYTES, FRAGMENT, Header, protocol::IGMP};
use crate::neighbour::Mac;
use crate::neighbour::frame::Ink;

const QUERY: u8 = 0x11;
const REPORT_1: u8 = 0x12;
const REPORT_2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_3: u8 = 0x22;
/// All systems, 224.0.0.1.
const ALL_SYSTEMS: u32 = 0xe000_0001;
/// A tenth of a second.
const TENTH: Span = Span::from_nanos(100_000_000);
/// The response interval of a version 1 query (RFC 2236, 4).
const OLDEST_RESPONSE: Span = Span::from_secs(10);
/// Bytes of an IPv4 header with a router alert.
const IP_BYTES: usize = 24;

fn is_group(address: u32) -> bool {
    address >> 28 == 0xe
}

impl Protocol for u32 {
    fn may_forward(self) -> bool {
        is_group(self) && self >> 8 != 0x00e0_0000
    }

    fn group_mac(self) -> Mac {
        let [_, a, b, c] = self.to_be_bytes();
        [1, 0, 0x5e, a & 0x7f, b, c]
    }

    fn read(frame: &[u8]) -> Result<(u32, Message<u32>), Malformed> {
        let header = Header::read(frame).map_err(|_| Malformed::Packet)?;
        let AnyKey::V4(key) = header.key else { return Err(Malformed::Packet) };
        if key.protocol != IGMP || header.notes & FRAGMENT != 0 {
            return Err(Malformed::Packet);
        }
        if header.hop_limit != 1 {
            return Err(Malformed::HopLimit);
        }
        let packet = &frame[ETHERNET_BYTES..ETHERNET_BYTES + usize::from(header.ip_bytes)];
        let bytes = &packet[usize::from(header.transport_at)..];
        let head = bytes.first_chunk::<8>().ok_or(Malformed::Short)?;
        if internet_checksum(&[bytes]) != 0 {
            return Err(Malformed::Checksum);
        }
        let group = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let message = match head[0] {
            QUERY => Message::Query(read_query(bytes, head, group)?),
            REPORT_1 => single(Version::Oldest, RecordKind::IsExclude, group)?,
            REPORT_2 => single(Version::Older, RecordKind::IsExclude, group)?,
            LEAVE => single(Version::Older, RecordKind::ToInclude, group)?,
            REPORT_3 => {
                let count = usize::from(u16::from_be_bytes([head[6], head[7]]));
                let records = records(&bytes[8..], count, u32::from_be_bytes)?;
                if records.iter().any(|record| !is_group(record.group)) {
                    return Err(Malformed::Group);
                }
                Message::Report(Version::Newest, records)
            }
            _ => return Err(Malformed::Kind),
        };
        Ok((key.source, message))
    }

    fn write_query(query: &Query<u32>, from: (Mac, u32), frame: &mut [u8]) -> usize {
        assert!(query.sources.len() <= QUERY_SOURCES_MAX, "sources that fit");
        let destination = if query.group == 0 { ALL_SYSTEMS } else { query.group };
        let mut ink = Ink::new(frame, destination.group_mac(), from.0, 0x0800);
        let is_newest = query.version == Version::Newest;
        let igmp_bytes = if is_newest { 12 + 4 * query.sources.len() } else { 8 };
        let header = header(igmp_bytes, from.1, destination);
        ink.put(&header);
        let tenths = (query.response_interval.0 / TENTH.0).min(u64::from(u32::MAX)) as u32;
        let code = match query.version {
            Version::Oldest => 0,
            Version::Older => tenths.min(255),
            Version::Newest => encode(tenths, 4),
        };
        let mut igmp = Vec::from([QUERY, code as u8, 0, 0]);
        igmp.extend(query.group.to_be_bytes());
        if is_newest {
            let seconds = (query.query_interval.0 / Span::from_secs(1).0).min(31_744) as u32;
            let flags = u8::from(query.is_suppressed) << 3 | query.robustness & 7;
            igmp.extend([flags, encode(seconds, 4) as u8, 0, query.sources.len() as u8]);
            igmp.extend(query.sources.iter().flat_map(|source| source.to_be_bytes()));
        }
        let checksum = internet_checksum(&[&igmp]);
        igmp[2..4].copy_from_slice(&checksum.to_be_bytes());
        ink.put(&igmp);
        ink.close()
    }
}

/// An IPv4 header with TTL 1, precedence of internetwork control and a router alert (RFC 3376, 4).
fn header(igmp_bytes: usize, source: u32, destination: u32) -> [u8; IP_BYTES] {
    let mut header = [0; IP_BYTES];
    header[..2].copy_from_slice(&[0x46, 0xc0]);
    header[2..4].copy_from_slice(&((IP_BYTES + igmp_bytes) as u16).to_be_bytes());
    header[6..10].copy_from_slice(&[0x40, 0, 1, IGMP]);
    header[12..16].copy_from_slice(&source.to_be_bytes());
    header[16..20].copy_from_slice(&destination.to_be_bytes());
    header[20..].copy_from_slice(&[0x94, 4, 0, 0]);
    let checksum = internet_checksum(&[&header]);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

fn read_query(bytes: &[u8], head: &[u8; 8], group: u32) -> Result<Query<u32>, Malformed> {
    if group != 0 && !is_group(group) {
        return Err(Malformed::Group);
    }
    let code = u32::from(head[1]);
    let old = |version, response_interval| Query {
        group,
        sources: Vec::new(),
        response_interval,
        is_suppressed: false,
        robustness: 0,
        query_interval: Span::ZERO,
        version,
    };
    // RFC 3376, 7.1: the version by length and code.
    match bytes.len() {
        8 if code == 0 => Ok(old(Version::Oldest, OLDEST_RESPONSE)),
        8 => Ok(old(Version::Older, TENTH * u64::from(code))),
        12.. => {
            let count = usize::from(u16::from_be_bytes([bytes[10], bytes[11]]));
            Ok(Query {
                sources: addresses(&bytes[12..], count, u32::from_be_bytes)?,
                is_suppressed: bytes[8] & 8 != 0,
                robustness: bytes[8] & 7,
                query_interval: Span::from_secs(u64::from(decode(u32::from(bytes[9]), 4))),
                ..old(Version::Newest, TENTH * u64::from(decode(code, 4)))
            })
        }
        _ => Err(Malformed::Short),
    }
}

fn single(version: Version, kind: RecordKind, group: u32) -> Result<Message<u32>, Malformed> {
    if !is_group(group) {
        return Err(Malformed::Group);
    }
    Ok(Message::Report(version, vec![Record { kind, group, sources: Vec::new() }]))
}
