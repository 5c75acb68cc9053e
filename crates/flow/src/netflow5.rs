//! NetFlow version 5: export datagrams to flow records, and back.
//!
//! A datagram is a header of 24 bytes and up to 30 records of 48, all big-endian. Its flow times
//! count milliseconds since the exporter started; the header states that clock and the wall clock
//! when the datagram left, so that a flow's absolute time is the export time less its age. Ages are
//! signed differences of the 32-bit uptime, which is right both for its wrap (after 49.7 days) and
//! for flows that begin a little before the uptime's zero.
//!
//! Sampled exports are not scaled: [`Header::sampling_interval`] states that 1 in this many packets
//! was counted, and records hold the counts as they are. Multiplying would hide that small flows are
//! missing.
//!
//! [`decode`] gives a whole datagram; [`decode_each`] hands over its records one by one and allocates
//! nothing.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use crate::bytes::{be16, be32};
use crate::record::{EndReason, FlowKey, FlowRecord, has_ports};

/// Bytes of a datagram's header.
pub const HEADER_BYTES: usize = 24;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 48;
/// Records in a datagram, at most.
pub const RECORDS_MAX: usize = 30;

const VERSION: u16 = 5;
const NANOS_PER_MILLI: i64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const SAMPLING_INTERVAL_BITS: u32 = 14;

/// What a datagram's header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Milliseconds since the exporter started, when the datagram left.
    pub uptime_ms: u32,
    /// The wall clock at that moment, whole seconds since 1970.
    pub unix_secs: u32,
    /// Its fraction, nanoseconds.
    pub unix_nsecs: u32,
    /// Flows this engine exported before this datagram.
    pub flow_sequence: u32,
    /// Kind of flow-switching engine.
    pub engine_type: u8,
    /// Its slot number.
    pub engine_id: u8,
    /// Sampling mode, 0 to 3.
    pub sampling_mode: u8,
    /// One packet in this many was counted, 0 to 16,383; 0 where the exporter does not sample, or
    /// does not state it.
    pub sampling_interval: u16,
}

impl Header {
    /// The wall clock when the datagram left, ns since 1970.
    pub fn export_ns(&self) -> u64 {
        u64::from(self.unix_secs) * NANOS_PER_SECOND + u64::from(self.unix_nsecs)
    }

    /// The wall clock when the uptime showed `uptime_ms`; not before 1970.
    pub(crate) fn wall_ns(&self, uptime_ms: u32) -> u64 {
        let age_ms = i64::from(self.uptime_ms.wrapping_sub(uptime_ms) as i32);
        self.export_ns().saturating_add_signed(-age_ms * NANOS_PER_MILLI)
    }

    /// The uptime when the wall clock showed `wall_ns`, to the nearest millisecond.
    fn uptime_at(&self, wall_ns: u64) -> Option<u32> {
        let age_ns = i128::from(self.export_ns()) - i128::from(wall_ns);
        let age_ms = (age_ns + i128::from(NANOS_PER_MILLI) / 2).div_euclid(NANOS_PER_MILLI.into());
        Some(self.uptime_ms.wrapping_sub(i32::try_from(age_ms).ok()? as u32))
    }
}

/// A decoded datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its header.
    pub header: Header,
    /// Its flows, with absolute times. `octets` and `packets` are as counted by the exporter.
    pub records: Vec<FlowRecord>,
    /// Records among them whose last packet is stated to be before their first; they are taken to end
    /// when they began.
    pub times_reversed: usize,
}

/// Why bytes are not a version 5 datagram. Offsets are bytes from the beginning of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The input ends inside a datagram: at the end of a file, the last one was cut.
    #[error(
        "the NetFlow v5 datagram at byte {offset} needs {needed_bytes} bytes, {found_bytes} are \
         there: the input was cut"
    )]
    Cut {
        /// Where the datagram begins.
        offset: usize,
        /// Bytes it should have by its count of records.
        needed_bytes: usize,
        /// Bytes that are there.
        found_bytes: usize,
    },
    /// Another version.
    #[error(
        "version {found} at byte {offset} where a NetFlow v5 datagram should begin: give a file \
         of v5 datagrams alone"
    )]
    Version {
        /// Where the version stands.
        offset: usize,
        /// The version found.
        found: u16,
    },
    /// More records than a datagram can hold.
    #[error(
        "{found} records announced at byte {offset}, a NetFlow v5 datagram holds 30 at most: \
         the input is damaged"
    )]
    Count {
        /// Where the count stands.
        offset: usize,
        /// The count found.
        found: u16,
    },
    /// The datagram is longer than its count of records says.
    #[error(
        "{bytes} bytes follow the last record at byte {offset}: the NetFlow v5 datagram is \
         damaged"
    )]
    Trailing {
        /// Where the records end.
        offset: usize,
        /// Bytes that follow.
        bytes: usize,
    },
}

/// Decodes one datagram, which must be all of `datagram`.
pub fn decode(datagram: &[u8]) -> Result<Datagram, Error> {
    let (decoded, bytes) = decode_first(datagram, 0)?;
    match datagram.len() - bytes {
        0 => Ok(decoded),
        trailing => Err(Error::Trailing { offset: bytes, bytes: trailing }),
    }
}

/// Decodes one datagram, which must be all of `datagram`; its records go to `out` in their order. No
/// record is passed on before the whole datagram has been found valid. Returns its header, and how
/// many records state that their last packet was before their first.
pub fn decode_each(
    datagram: &[u8],
    out: &mut impl FnMut(FlowRecord),
) -> Result<(Header, usize), Error> {
    let (header, body) = open(datagram, 0)?;
    let bytes = HEADER_BYTES + body.len();
    match datagram.len() - bytes {
        0 => Ok((header, decode_body(&header, body, out))),
        trailing => Err(Error::Trailing { offset: bytes, bytes: trailing }),
    }
}

/// Splits datagrams that follow one another without framing, as `nc -u > file` would write them.
///
/// An iterator: it ends after the last datagram, or after the first error.
#[derive(Clone, Debug)]
pub struct Stream<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Stream<'a> {
    /// The datagrams of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Stream<'a> {
        Stream { bytes, offset: 0 }
    }

    /// Where the next datagram begins, bytes from the beginning.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl Iterator for Stream<'_> {
    type Item = Result<Datagram, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
        match decode_first(rest, self.offset) {
            Ok((datagram, bytes)) => {
                self.offset += bytes;
                Some(Ok(datagram))
            }
            Err(error) => {
                self.offset = self.bytes.len();
                Some(Err(error))
            }
        }
    }
}

/// The datagram at the beginning of `bytes`, which stand at `offset` of the input, and its length.
fn decode_first(bytes: &[u8], offset: usize) -> Result<(Datagram, usize), Error> {
    let (header, body) = open(bytes, offset)?;
    let mut records = Vec::with_capacity(body.len() / RECORD_BYTES);
    let times_reversed = decode_body(&header, body, &mut |record| records.push(record));
    Ok((Datagram { header, records, times_reversed }, HEADER_BYTES + body.len()))
}

/// The header at the beginning of `bytes`, and the records behind it.
fn open(bytes: &[u8], offset: usize) -> Result<(Header, &[u8]), Error> {
    let cut = |needed_bytes| Error::Cut { offset, needed_bytes, found_bytes: bytes.len() };
    let version = bytes.get(..2).map(|version| be16(version, 0)).ok_or(cut(HEADER_BYTES))?;
    if version != VERSION {
        return Err(Error::Version { offset, found: version });
    }
    let head = bytes.get(..HEADER_BYTES).ok_or(cut(HEADER_BYTES))?;
    let count = be16(head, 2);
    if usize::from(count) > RECORDS_MAX {
        return Err(Error::Count { offset: offset + 2, found: count });
    }
    let length = HEADER_BYTES + usize::from(count) * RECORD_BYTES;
    let body = bytes.get(HEADER_BYTES..length).ok_or(cut(length))?;
    let sampling = be16(head, 22);
    let header = Header {
        uptime_ms: be32(head, 4),
        unix_secs: be32(head, 8),
        unix_nsecs: be32(head, 12),
        flow_sequence: be32(head, 16),
        engine_type: head[20],
        engine_id: head[21],
        sampling_mode: (sampling >> SAMPLING_INTERVAL_BITS) as u8,
        sampling_interval: sampling & ((1 << SAMPLING_INTERVAL_BITS) - 1),
    };
    Ok((header, body))
}

/// Passes the records of `body` to `out`; returns how many had their times reversed.
fn decode_body(header: &Header, body: &[u8], out: &mut impl FnMut(FlowRecord)) -> usize {
    let mut times_reversed = 0;
    for record in body.chunks_exact(RECORD_BYTES) {
        out(decode_record(header, record, &mut times_reversed));
    }
    times_reversed
}

/// The record that the first 40 bytes of `record` hold; those of version 7 are laid out alike.
pub(crate) fn decode_record(
    header: &Header,
    record: &[u8],
    times_reversed: &mut usize,
) -> FlowRecord {
    let record = &record[..40];
    let protocol = record[38];
    // Exporters write an ICMP type and code where the destination port would be.
    let has_ports = has_ports(protocol);
    let port = |at: usize| if has_ports { be16(record, at) } else { 0 };
    let start_ns = header.wall_ns(be32(record, 24));
    let end_ns = header.wall_ns(be32(record, 28));
    *times_reversed += usize::from(end_ns < start_ns);
    FlowRecord {
        key: FlowKey {
            source: Ipv4Addr::from_bits(be32(record, 0)).into(),
            destination: Ipv4Addr::from_bits(be32(record, 4)).into(),
            source_port: port(32),
            destination_port: port(34),
            protocol,
        },
        start_ns,
        end_ns: end_ns.max(start_ns),
        packets: be32(record, 16).into(),
        octets: be32(record, 20).into(),
        tcp_flags: record[37],
        payload_octets: None,
        opened: None,
        end_reason: EndReason::Unknown,
        sampling_interval: header.sampling_interval.into(),
    }
}

/// Why records cannot be encoded in a version 5 datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// More than [`RECORDS_MAX`] records.
    #[error("{0} records, a NetFlow v5 datagram holds 30 at most: split them")]
    TooManyRecords(usize),
    /// The record at this index has an IPv6 address.
    #[error("record {0} is IPv6, which NetFlow v5 cannot say: leave it out")]
    NotIpv4(usize),
    /// The record at this index counts 2^32 packets or bytes, or more.
    #[error("record {0} counts 2^32 or more, NetFlow v5 cannot: split it")]
    CountTooLarge(usize),
    /// The record at this index is 24.8 days or more away from the export time.
    #[error("record {0} is 24.8 days or more from the export time: set it nearer")]
    TimeTooFar(usize),
}

/// Encodes a datagram. Times are rounded to the exporter's millisecond; next hop, interfaces and
/// autonomous systems are zero. The header's count follows from `records`.
pub fn encode(header: &Header, records: &[FlowRecord]) -> Result<Vec<u8>, EncodeError> {
    if records.len() > RECORDS_MAX {
        return Err(EncodeError::TooManyRecords(records.len()));
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + records.len() * RECORD_BYTES);
    out.extend(VERSION.to_be_bytes());
    out.extend((records.len() as u16).to_be_bytes());
    for word in [header.uptime_ms, header.unix_secs, header.unix_nsecs, header.flow_sequence] {
        out.extend(word.to_be_bytes());
    }
    let interval = header.sampling_interval & ((1 << SAMPLING_INTERVAL_BITS) - 1);
    let sampling = u16::from(header.sampling_mode) << SAMPLING_INTERVAL_BITS | interval;
    out.extend([header.engine_type, header.engine_id]);
    out.extend(sampling.to_be_bytes());
    for (index, record) in records.iter().enumerate() {
        encode_record(header, index, record, &mut out)?;
    }
    Ok(out)
}

fn encode_record(
    header: &Header,
    index: usize,
    record: &FlowRecord,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (record.key.source, record.key.destination)
    else {
        return Err(EncodeError::NotIpv4(index));
    };
    let count = |value: u64| u32::try_from(value).map_err(|_| EncodeError::CountTooLarge(index));
    let uptime = |wall_ns| header.uptime_at(wall_ns).ok_or(EncodeError::TimeTooFar(index));
    out.extend(source.octets());
    out.extend(destination.octets());
    out.extend([0; 8]);
    for word in [
        count(record.packets)?,
        count(record.octets)?,
        uptime(record.start_ns)?,
        uptime(record.end_ns)?,
    ] {
        out.extend(word.to_be_bytes());
    }
    out.extend(record.key.source_port.to_be_bytes());
    out.extend(record.key.destination_port.to_be_bytes());
    out.extend([0, record.tcp_flags, record.key.protocol, 0]);
    out.extend([0; 8]);
    Ok(())
}
