//! A datagram of NetFlow version 9 or a message of IPFIX: its header, and its body cut into sets.
//!
//! Sets follow one another by their lengths. Where a length is impossible, nothing behind it can be
//! found again, so the rest is one damaged set; what came before it stands. A rest of zeros is
//! padding: some exporters pad their datagrams.

use crate::bytes::{be16, be32};

/// One of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// NetFlow version 9 (RFC 3954).
    NetFlow9,
    /// IPFIX (RFC 7011).
    Ipfix,
}

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The protocol whose rules apply.
    pub dialect: Dialect,
    /// Milliseconds since the exporter started, when the datagram left; version 9 only, else 0.
    pub uptime_ms: u32,
    /// The wall clock at that moment, seconds since 1970.
    pub export_secs: u32,
    /// Datagrams that this source sent before (version 9), or data records (IPFIX).
    pub sequence: u32,
    /// The source ID (RFC 3954, section 5.1) or observation domain (RFC 7011, section 3.1).
    pub domain: u32,
}

impl Header {
    /// The wall clock when the datagram left, ns since 1970.
    pub fn export_ns(&self) -> u64 {
        u64::from(self.export_secs) * 1_000_000_000
    }
}

/// Why bytes are not such a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It ends before its header does, or before the length in it.
    #[error("the export needs {needed_bytes} bytes, {found_bytes} are there: it was cut")]
    Cut {
        /// Bytes it should have.
        needed_bytes: usize,
        /// Bytes that are there.
        found_bytes: usize,
    },
    /// Another version.
    #[error("version {0}, neither NetFlow v9 nor IPFIX: it is another export")]
    Version(u16),
    /// An IPFIX message shorter than its own header.
    #[error("the IPFIX message says it is {0} bytes long, less than its own header: it is damaged")]
    Length(u16),
}

const NETFLOW9_HEADER_BYTES: usize = 20;
const IPFIX_HEADER_BYTES: usize = 16;
/// Bytes before the body of a set: its identifier and its length.
pub(super) const SET_HEADER_BYTES: usize = 4;

/// The length of the IPFIX message that begins with these bytes, for cutting a file of messages
/// (RFC 5655) into them; `None` where none begins.
pub fn message_bytes(first: &[u8]) -> Option<usize> {
    let &[0, 10, high, low, ..] = first else { return None };
    let bytes = usize::from(u16::from_be_bytes([high, low]));
    (bytes >= IPFIX_HEADER_BYTES).then_some(bytes)
}

/// The header of a datagram, and the sets behind it. Bytes beyond an IPFIX message's stated length
/// are not part of it.
pub(super) fn open(datagram: &[u8]) -> Result<(Header, Sets<'_>), Error> {
    let cut = |needed_bytes| Error::Cut { needed_bytes, found_bytes: datagram.len() };
    let version = datagram.get(..2).map(|bytes| be16(bytes, 0)).ok_or(cut(IPFIX_HEADER_BYTES))?;
    match version {
        9 => {
            let (head, body) = (datagram.split_at_checked(NETFLOW9_HEADER_BYTES))
                .ok_or(cut(NETFLOW9_HEADER_BYTES))?;
            let header = Header {
                dialect: Dialect::NetFlow9,
                uptime_ms: be32(head, 4),
                export_secs: be32(head, 8),
                sequence: be32(head, 12),
                domain: be32(head, 16),
            };
            Ok((header, Sets { dialect: header.dialect, rest: body }))
        }
        10 => {
            let head = datagram.get(..IPFIX_HEADER_BYTES).ok_or(cut(IPFIX_HEADER_BYTES))?;
            let length = message_bytes(head).ok_or(Error::Length(be16(head, 2)))?;
            let body = datagram.get(IPFIX_HEADER_BYTES..length).ok_or(cut(length))?;
            let header = Header {
                dialect: Dialect::Ipfix,
                uptime_ms: 0,
                export_secs: be32(head, 4),
                sequence: be32(head, 8),
                domain: be32(head, 12),
            };
            Ok((header, Sets { dialect: header.dialect, rest: body }))
        }
        found => Err(Error::Version(found)),
    }
}

/// Bytes of a header of this kind.
pub(super) fn header_bytes(dialect: Dialect) -> usize {
    match dialect {
        Dialect::NetFlow9 => NETFLOW9_HEADER_BYTES,
        Dialect::Ipfix => IPFIX_HEADER_BYTES,
    }
}

/// A set, without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set<'a> {
    /// Templates of data records.
    Templates(&'a [u8]),
    /// Templates of option records.
    OptionTemplates(&'a [u8]),
    /// Records of the template with this identifier.
    Records(u16, &'a [u8]),
    /// A set with a reserved identifier.
    Reserved(&'a [u8]),
    /// The rest of the datagram, header and all: zeros, or too few bytes for a set.
    Padding(&'a [u8]),
    /// The rest of the datagram, header and all, behind an impossible length.
    Damaged(&'a [u8]),
}

/// The sets of a datagram, in their order.
#[derive(Clone, Debug)]
pub(super) struct Sets<'a> {
    dialect: Dialect,
    rest: &'a [u8],
}

impl Sets<'_> {
    /// Bytes that are left.
    pub(super) fn bytes(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Sets<'a> {
    type Item = Set<'a>;

    fn next(&mut self) -> Option<Set<'a>> {
        let rest = core::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        if rest.len() < SET_HEADER_BYTES {
            return Some(Set::Padding(rest));
        }
        let (id, length) = (be16(rest, 0), usize::from(be16(rest, 2)));
        if length < SET_HEADER_BYTES || length > rest.len() {
            let is_zero = rest.iter().all(|byte| *byte == 0);
            return Some(if is_zero { Set::Padding(rest) } else { Set::Damaged(rest) });
        }
        self.rest = &rest[length..];
        let body = &rest[SET_HEADER_BYTES..length];
        Some(match (self.dialect, id) {
            (Dialect::NetFlow9, 0) | (Dialect::Ipfix, 2) => Set::Templates(body),
            (Dialect::NetFlow9, 1) | (Dialect::Ipfix, 3) => Set::OptionTemplates(body),
            (_, 256..) => Set::Records(id, body),
            _ => Set::Reserved(body),
        })
    }
}
