//! Files of nfcapd, nfdump's collector: layouts 1 (nfdump 1.5 and 1.6) and 2 (nfdump 1.7).
//!
//! A file is a header and then blocks, each a header of 12 bytes and records. In layout 1 the totals of all
//! records follow the file header; in layout 2 they are in appendix blocks behind the others. Bodies of
//! blocks may be compressed, each on its own, in a way that the file header names. Decompression is the
//! caller's task: this module takes slices of the file and decompressed bodies.
//!
//! | file | |
//! |---|---|
//! | this one | the header, the blocks, the totals |
//! | `layout1` | records of layout 1 |
//! | `layout2` | records of layout 2 |
//!
//! The format is documented only by nfdump's headers: `nffile.h` (files, blocks, records of layout 1) and
//! `nfxV3.h` (elements of layout 2).
//!
//! Numbers are in the byte order of the machine that wrote the file, which nfdump itself does not
//! translate. Files of little-endian machines are read here; others are refused by name.

mod layout1;
mod layout2;

use crate::bytes::{le16, le32, le64};
use crate::counts::{Counts, Skip};
use crate::record::FlowRecord;

const MAGIC: u16 = 0xa50c;
/// The first two bytes of every such file.
pub const MAGIC_BYTES: [u8; 2] = MAGIC.to_le_bytes();
/// Bytes of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 12;
/// A block longer than this, packed or not, is damaged: nfcapd makes them of 5 MiB at most.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;

const LAYOUT1_HEADER_BYTES: usize = 140;
const LAYOUT1_TOTALS_BYTES: usize = 136;
const LAYOUT1_BYTES: usize = LAYOUT1_HEADER_BYTES + LAYOUT1_TOTALS_BYTES;
const LAYOUT2_BYTES: usize = 40;
/// The record of an appendix block that holds the totals.
const TOTALS_RECORD: u16 = 0x8002;

/// How the bodies of a file's blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZO1X.
    Lzo,
    /// bzip2.
    Bzip2,
    /// LZ4, one block of it without a frame.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// Which of the two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// nfdump 1.5 and 1.6.
    One,
    /// nfdump 1.7.
    Two,
}

/// Sums over all flows of a file, as its writer counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Flow records.
    pub flows: u64,
    /// Their bytes.
    pub octets: u64,
    /// Their packets.
    pub packets: u64,
}

impl Totals {
    fn read(bytes: &[u8]) -> Totals {
        Totals { flows: le64(bytes, 0), octets: le64(bytes, 8), packets: le64(bytes, 16) }
    }
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// How blocks and records are laid out.
    pub layout: Layout,
    /// How bodies of blocks are compressed.
    pub compression: Compression,
    /// Where the first block begins, bytes from the beginning of the file.
    pub header_bytes: usize,
    /// Blocks of records; 0 where there are none, and where the file was not closed.
    pub blocks: u32,
    /// Appendix blocks behind them (layout 2).
    pub appendix_blocks: u16,
    /// The totals, in layout 1.
    pub totals: Option<Totals>,
}

/// Why bytes are not the beginning of such a file, or of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They end before the header does.
    #[error(
        "a header of nfcapd has {needed_bytes} bytes, {found_bytes} are there: the file was cut"
    )]
    Cut {
        /// Bytes of the header.
        needed_bytes: usize,
        /// Bytes that are there.
        found_bytes: usize,
    },
    /// They begin with other bytes.
    #[error("begins with {0:#06x} where a file of nfcapd has {MAGIC:#06x}")]
    Magic(u16),
    /// A big-endian machine wrote the file.
    #[error(
        "was written by nfcapd on a big-endian machine: read it there with nfdump and give its \
         CSV"
    )]
    BigEndian,
    /// A layout that is neither 1 nor 2.
    #[error("layout {0} of nfcapd, where 1 and 2 are read: convert it with nfdump 1.7")]
    Layout(u16),
    /// A compression that is not known.
    #[error("compression {0} of nfcapd is not known: write the file anew with nfdump -J 0")]
    Compression(u32),
    /// The file is encrypted.
    #[error("the file of nfcapd is encrypted: decrypt it first")]
    Encrypted,
    /// A block whose stated length exceeds [`BLOCK_BYTES_MAX`].
    #[error("a block of {0} bytes, more than nfcapd makes: the file is damaged")]
    BlockLength(u32),
}

impl FileHeader {
    /// Reads the beginning of a file, of which `first` should hold 276 bytes or all there are.
    pub fn read(first: &[u8]) -> Result<FileHeader, Error> {
        let needed = |needed_bytes| {
            let cut = Error::Cut { needed_bytes, found_bytes: first.len() };
            first.get(..needed_bytes).ok_or(cut)
        };
        let begin = needed(4)?;
        match le16(begin, 0) {
            MAGIC => {}
            magic if magic.swap_bytes() == MAGIC => return Err(Error::BigEndian),
            magic => return Err(Error::Magic(magic)),
        }
        match le16(begin, 2) {
            1 => Ok(FileHeader::layout1(needed(LAYOUT1_BYTES)?)?),
            2 => Ok(FileHeader::layout2(needed(LAYOUT2_BYTES)?)?),
            layout => Err(Error::Layout(layout)),
        }
    }

    /// Does the block that follows `others` blocks belong to the appendix, which describes the file? A file
    /// that was not closed has no appendix.
    pub fn is_appendix(&self, others: u32) -> bool {
        let is_closed = self.blocks > 0 || self.appendix_blocks > 0;
        self.layout == Layout::Two && is_closed && others >= self.blocks
    }

    fn layout1(head: &[u8]) -> Result<FileHeader, Error> {
        // Bits of the flags; 0x2 says that addresses are anonymised.
        let compression = match le32(head, 4) & !0x2 {
            0 => Compression::None,
            0x1 => Compression::Lzo,
            0x8 => Compression::Bzip2,
            0x10 => Compression::Lz4,
            found => return Err(Error::Compression(found)),
        };
        Ok(FileHeader {
            layout: Layout::One,
            compression,
            header_bytes: LAYOUT1_BYTES,
            blocks: le32(head, 8),
            appendix_blocks: 0,
            totals: Some(Totals::read(&head[LAYOUT1_HEADER_BYTES..])),
        })
    }

    fn layout2(head: &[u8]) -> Result<FileHeader, Error> {
        let compression = match head[16] {
            0 => Compression::None,
            1 => Compression::Lzo,
            2 => Compression::Bzip2,
            3 => Compression::Lz4,
            4 => Compression::Zstd,
            found => return Err(Error::Compression(found.into())),
        };
        if head[17] != 0 {
            return Err(Error::Encrypted);
        }
        Ok(FileHeader {
            layout: Layout::Two,
            compression,
            header_bytes: LAYOUT2_BYTES,
            blocks: le32(head, 36),
            appendix_blocks: le16(head, 18),
            totals: None,
        })
    }
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Records in it.
    pub records: u32,
    /// Bytes of its body, as it lies in the file.
    pub body_bytes: usize,
    /// Its kind.
    pub kind: u16,
    flags: u16,
}

impl BlockHeader {
    /// Reads the header at the beginning of `first`, [`BLOCK_HEADER_BYTES`] long.
    pub fn read(first: &[u8]) -> Result<BlockHeader, Error> {
        let cut = Error::Cut { needed_bytes: BLOCK_HEADER_BYTES, found_bytes: first.len() };
        let head = first.get(..BLOCK_HEADER_BYTES).ok_or(cut)?;
        let bytes = le32(head, 4);
        let body_bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= BLOCK_BYTES_MAX);
        Ok(BlockHeader {
            records: le32(head, 0),
            body_bytes: body_bytes.ok_or(Error::BlockLength(bytes))?,
            kind: le16(head, 8),
            flags: le16(head, 10),
        })
    }

    /// How the body of this block is compressed: appendix blocks never are, and in layout 2 a block may
    /// state that it is not compressed.
    pub fn compression(&self, file: &FileHeader, is_appendix: bool) -> Compression {
        let is_plain = file.layout == Layout::Two && self.flags & 1 != 0;
        if is_appendix || is_plain { Compression::None } else { file.compression }
    }

    /// Decodes the records of a block from its body, uncompressed; flows go to `out`. Announced records
    /// that the body does not hold are counted as damaged.
    pub fn decode(
        &self,
        file: &FileHeader,
        body: &[u8],
        counts: &mut Counts,
        out: &mut impl FnMut(FlowRecord),
    ) {
        counts.datagrams += 1;
        let is_known = match file.layout {
            Layout::One => self.kind == 2,
            Layout::Two => self.kind == 3,
        };
        if !is_known {
            counts.skips.add(Skip::SetUnknown);
            return;
        }
        counts.records += u64::from(self.records);
        let mut rest = body;
        for found in 0..self.records {
            let Some((kind, record, after)) = next_record(rest) else {
                counts.skips.add_many(Skip::RecordDamaged, (self.records - found).into());
                return;
            };
            rest = after;
            match file.layout {
                Layout::One => layout1::decode(kind, record, counts, out),
                Layout::Two => layout2::decode(kind, record, counts, out),
            }
        }
        if !rest.is_empty() {
            counts.skips.add(Skip::SetDamaged);
        }
    }

    /// The totals, if this is the body of the appendix block that holds them.
    pub fn totals(&self, body: &[u8]) -> Option<Totals> {
        let mut rest = body;
        while let Some((kind, record, after)) = next_record(rest) {
            if kind == TOTALS_RECORD {
                return record
                    .get(RECORD_HEADER_BYTES..)
                    .filter(|of| of.len() >= 24)
                    .map(Totals::read);
            }
            rest = after;
        }
        None
    }
}

/// Type and length, before every record of both layouts.
const RECORD_HEADER_BYTES: usize = 4;

/// The record at the beginning of `rest`, header and all, and what follows it.
fn next_record(rest: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let head = rest.get(..RECORD_HEADER_BYTES)?;
    let (kind, bytes) = (le16(head, 0), usize::from(le16(head, 2)));
    if bytes < RECORD_HEADER_BYTES {
        return None;
    }
    let (record, after) = rest.split_at_checked(bytes)?;
    Some((kind, record, after))
}

const NANOS_PER_MILLI: u64 = 1_000_000;

/// Passes on a flow, with reversed times repaired.
#[inline(always)]
fn give(mut flow: FlowRecord, counts: &mut Counts, out: &mut impl FnMut(FlowRecord)) {
    counts.times_reversed += u64::from(flow.end_ns < flow.start_ns);
    flow.end_ns = flow.end_ns.max(flow.start_ns);
    out(flow);
}

/// Blocks of a file that lies in memory: each with its body as it is stored, and whether it belongs to the
/// appendix. Ends at the first block that is cut, with its error.
#[derive(Clone, Debug)]
pub struct Blocks<'a> {
    file: FileHeader,
    rest: &'a [u8],
    taken: u32,
}

impl<'a> Blocks<'a> {
    /// The blocks behind the header of `bytes`, a whole file.
    pub fn new(bytes: &'a [u8]) -> Result<Blocks<'a>, Error> {
        let file = FileHeader::read(bytes)?;
        Ok(Blocks { file, rest: &bytes[file.header_bytes..], taken: 0 })
    }

    /// What the file's header says.
    pub fn file(&self) -> &FileHeader {
        &self.file
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<(BlockHeader, &'a [u8], bool), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        let block = match BlockHeader::read(rest) {
            Ok(block) => block,
            Err(error) => return Some(Err(error)),
        };
        let (body, after) = match rest[BLOCK_HEADER_BYTES..].split_at_checked(block.body_bytes) {
            Some(split) => split,
            None => {
                let needed_bytes = BLOCK_HEADER_BYTES + block.body_bytes;
                return Some(Err(Error::Cut { needed_bytes, found_bytes: rest.len() }));
            }
        };
        self.rest = after;
        let is_appendix = self.file.is_appendix(self.taken);
        self.taken += 1;
        Some(Ok((block, body, is_appendix)))
    }
}
