//! Files of flow-tools, stream version 3: the header.
//!
//! Four bytes say what it is (magic, byte order, version), then where the records begin, then follow
//! fields of type, length and value, in the byte order stated before. Three of them matter here: which
//! NetFlow version the records were made from, how they were aggregated (version 8), and whether
//! everything behind the header is compressed with zlib, which the caller undoes. Records have one
//! size, which depends on the version ([`record`]). The format is that of flow-tools' own
//! `lib/ftlib.h`.

pub mod record;

use crate::bytes::array;

/// The first two bytes of every such file.
pub const MAGIC_BYTES: [u8; 2] = [0xcf, 0x10];
/// A header longer than this is damaged: flow-tools writes well under a kibibyte.
pub const HEADER_BYTES_MAX: usize = 64 << 10;

const FIXED_BYTES: usize = 8;

/// A field of the header: the version of the exports.
const EXPORT_VERSION: u16 = 2;
/// The method of aggregation.
const AGGREGATION_METHOD: u16 = 4;
/// Bits that say how the file was written.
const FLAGS: u16 = 8;
/// The number of flows, written when the file was closed.
const FLOW_COUNT: u16 = 10;
const IS_COMPRESSED: u32 = 0x2;

/// The byte order of numbers, throughout the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The least significant first.
    Little,
    /// The most significant first.
    Big,
}

impl ByteOrder {
    /// The 16-bit number at `at`.
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        match self {
            ByteOrder::Little => u16::from_le_bytes(array(bytes, at)),
            ByteOrder::Big => u16::from_be_bytes(array(bytes, at)),
        }
    }

    /// The 32-bit number at `at`.
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        match self {
            ByteOrder::Little => u32::from_le_bytes(array(bytes, at)),
            ByteOrder::Big => u32::from_be_bytes(array(bytes, at)),
        }
    }
}

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How numbers are written.
    pub byte_order: ByteOrder,
    /// Where the records begin, bytes from the beginning of the file.
    pub header_bytes: usize,
    /// The version of NetFlow that the records were made from: 1, 5, 6, 7, 8, or 1005 with tags.
    pub version: u16,
    /// The method of aggregation, 1 to 14; for version 8 only.
    pub aggregation: u8,
    /// Is what follows compressed with zlib?
    pub is_compressed: bool,
    /// Flows in the file, where its writer closed it and stated them.
    pub flows: Option<u32>,
}

/// Why bytes are not the beginning of such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They end before the header does.
    #[error(
        "the header of flow-tools has {needed_bytes} bytes, {found_bytes} are there: the file \
         was cut"
    )]
    Cut {
        /// Bytes of the header.
        needed_bytes: usize,
        /// Bytes that are there.
        found_bytes: usize,
    },
    /// They begin with other bytes.
    #[error("does not begin as a file of flow-tools: it is another file")]
    Magic,
    /// The byte order is neither little (1) nor big (2).
    #[error("byte order {0} of flow-tools, where 1 and 2 are known: the file is damaged")]
    ByteOrder(u8),
    /// A stream version other than 3.
    #[error("stream version {0} of flow-tools, where 3 is read: write it anew with flow-cat")]
    StreamVersion(u8),
    /// A header that would end within its own beginning, or beyond [`HEADER_BYTES_MAX`].
    #[error("a header of {0} bytes is none that flow-tools writes: the file is damaged")]
    HeaderLength(u32),
    /// Records of a version, or an aggregation of version 8, that is not known.
    #[error(
        "flow-tools records of version {version}, aggregation {aggregation}, are not known: \
         write them as version 5 with flow-xlate"
    )]
    Records {
        /// The version.
        version: u16,
        /// The method of aggregation.
        aggregation: u8,
    },
}

impl Header {
    /// How long the header is that begins with these eight bytes or more.
    pub fn bytes(first: &[u8]) -> Result<usize, Error> {
        let cut = Error::Cut { needed_bytes: FIXED_BYTES, found_bytes: first.len() };
        let fixed = first.get(..FIXED_BYTES).ok_or(cut)?;
        if fixed[..2] != MAGIC_BYTES {
            return Err(Error::Magic);
        }
        if fixed[3] != 3 {
            return Err(Error::StreamVersion(fixed[3]));
        }
        let length = byte_order(fixed[2])?.u32(fixed, 4);
        let bytes = length as usize;
        match bytes {
            FIXED_BYTES..=HEADER_BYTES_MAX => Ok(bytes),
            _ => Err(Error::HeaderLength(length)),
        }
    }

    /// Reads the header, of which `first` must hold all. A field that extends beyond the header ends
    /// the reading of fields.
    pub fn read(first: &[u8]) -> Result<Header, Error> {
        let header_bytes = Header::bytes(first)?;
        let cut = Error::Cut { needed_bytes: header_bytes, found_bytes: first.len() };
        let head = first.get(..header_bytes).ok_or(cut)?;
        let byte_order = byte_order(head[2])?;
        let mut header = Header {
            byte_order,
            header_bytes,
            version: 0,
            aggregation: 0,
            is_compressed: false,
            flows: None,
        };
        let mut rest = &head[FIXED_BYTES..];
        while let Some((kind, value, after)) = field(byte_order, rest) {
            rest = after;
            match (kind, value.len()) {
                (EXPORT_VERSION, 2) => header.version = byte_order.u16(value, 0),
                (AGGREGATION_METHOD, 1) => header.aggregation = value[0],
                (FLAGS, 4) => header.is_compressed = byte_order.u32(value, 0) & IS_COMPRESSED != 0,
                (FLOW_COUNT, 4) => header.flows = Some(byte_order.u32(value, 0)),
                _ => {}
            }
        }
        match header.record_bytes() {
            Some(_) => Ok(header),
            None => {
                let (version, aggregation) = (header.version, header.aggregation);
                Err(Error::Records { version, aggregation })
            }
        }
    }
}

fn byte_order(number: u8) -> Result<ByteOrder, Error> {
    match number {
        1 => Ok(ByteOrder::Little),
        2 => Ok(ByteOrder::Big),
        found => Err(Error::ByteOrder(found)),
    }
}

/// The field at the beginning of `rest`: type, value, and what follows.
fn field(byte_order: ByteOrder, rest: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (head, rest) = rest.split_at_checked(4)?;
    let (value, after) = rest.split_at_checked(byte_order.u16(head, 2).into())?;
    Some((byte_order.u16(head, 0), value, after))
}
