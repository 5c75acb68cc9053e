//! Common types of all capture containers: packets, endings, and errors of headers.

use std::io;

/// The longest frame that is read, captured or not: the longest packet that Linux makes (its
/// GSO_MAX_SIZE, BIG TCP) and room for link headers. A record that claims more is damaged.
pub const FRAME_MAX_BYTES: u32 = 524_280 + 128;

/// One packet of a capture, as the container gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// When it was seen, ns since 1970, saturating; `None` where the container keeps no stamp.
    pub stamp_ns: Option<u64>,
    /// The LINKTYPE number of the frame, as tcpdump.org registers them.
    pub link_type: u32,
    /// Length of the frame on the link; never below what was captured.
    pub original_bytes: u32,
    /// What was captured of the frame, from its link-layer header on.
    pub frame: &'a [u8],
}

/// How a capture ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At the end of a record.
    Whole,
    /// Within the record that begins at this offset: the writer was stopped.
    Cut {
        /// Byte offset of the record in the (uncompressed) file.
        offset: u64,
    },
    /// A record is invalid, and nothing behind it can be found.
    Damaged {
        /// Byte offset of the record in the (uncompressed) file.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
}

/// Why the beginning of a file is not that of a capture.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The first bytes are not those of a known container.
    #[error("not a capture")]
    Magic,
    /// The file ends within its header.
    #[error("cut in its file header: {present} bytes of {needed} are there")]
    Cut {
        /// Bytes that are there.
        present: usize,
        /// Bytes of the header.
        needed: usize,
    },
    /// An unknown version.
    #[error("{container} version {major}.{minor} is not known")]
    Version {
        /// Name of the container.
        container: &'static str,
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// The header contradicts itself.
    #[error("its file header is damaged: {0}")]
    Damaged(String),
    /// The stream cannot be read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
}

impl From<io::Error> for HeaderError {
    fn from(error: io::Error) -> HeaderError {
        HeaderError::Read(error)
    }
}

/// The stream under a capture could not be read.
pub type ReadError = io::Error;
