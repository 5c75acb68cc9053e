//! NetFlow version 7: the export of Catalyst switches, decoded to flow records.
//!
//! It is version 5 with four bytes more to a record (52, the router whose shortcut the switch took)
//! and less in the header: no engine and no sampling. What a flow record needs stands at the same
//! places, so the places are those of [`crate::netflow5`], and so are the times.

use crate::bytes::{be16, be32};
use crate::netflow5::{self, Header};
use crate::record::FlowRecord;

/// Bytes of a datagram's header.
pub const HEADER_BYTES: usize = 24;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 52;
/// Records in a datagram, at most.
pub const RECORDS_MAX: usize = 28;

const VERSION: u16 = 7;

/// Why bytes are not a version 7 datagram. Offsets are bytes from the beginning of the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The datagram is shorter than its count of records says.
    #[error(
        "a NetFlow v7 datagram needs {needed_bytes} bytes, {found_bytes} are there: it was cut"
    )]
    Cut {
        /// Bytes it should have.
        needed_bytes: usize,
        /// Bytes that are there.
        found_bytes: usize,
    },
    /// Another version.
    #[error("version {0} where a NetFlow v7 datagram should begin: it is another export")]
    Version(u16),
    /// More records than a datagram can hold.
    #[error(
        "{0} records announced, a NetFlow v7 datagram holds {RECORDS_MAX} at most: it is \
         damaged"
    )]
    Count(u16),
    /// The datagram is longer than its count of records says.
    #[error(
        "{bytes} bytes follow the last record at byte {offset}: the NetFlow v7 datagram is \
         damaged"
    )]
    Trailing {
        /// Where the records end.
        offset: usize,
        /// Bytes that follow.
        bytes: usize,
    },
}

/// Decodes one datagram, which must be all of `datagram`; its records go to `out` in their order.
/// No record is passed on before the whole datagram has been found valid. Returns its header, with
/// engine and sampling zero, and how many records state that their last packet was before their
/// first.
pub fn decode_each(
    datagram: &[u8],
    out: &mut impl FnMut(FlowRecord),
) -> Result<(Header, usize), Error> {
    let cut = |needed_bytes| Error::Cut { needed_bytes, found_bytes: datagram.len() };
    let version = datagram.get(..2).map(|version| be16(version, 0)).ok_or(cut(HEADER_BYTES))?;
    if version != VERSION {
        return Err(Error::Version(version));
    }
    let (head, body) = datagram.split_at_checked(HEADER_BYTES).ok_or(cut(HEADER_BYTES))?;
    let count = be16(head, 2);
    if usize::from(count) > RECORDS_MAX {
        return Err(Error::Count(count));
    }
    let body_bytes = usize::from(count) * RECORD_BYTES;
    if body.len() < body_bytes {
        return Err(cut(HEADER_BYTES + body_bytes));
    }
    if body.len() > body_bytes {
        let bytes = body.len() - body_bytes;
        return Err(Error::Trailing { offset: HEADER_BYTES + body_bytes, bytes });
    }
    let header = Header {
        uptime_ms: be32(head, 4),
        unix_secs: be32(head, 8),
        unix_nsecs: be32(head, 12),
        flow_sequence: be32(head, 16),
        ..Header::default()
    };
    let mut times_reversed = 0;
    for record in body.chunks_exact(RECORD_BYTES) {
        out(netflow5::decode_record(&header, record, &mut times_reversed));
    }
    Ok((header, times_reversed))
}
