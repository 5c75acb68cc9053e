//! Segments as they stand on a wire: headers, options and checksum (RFC 9293, 3.1 and 3.2).
//!
//! Payload is counted and not stored, so that zeros are sent for it. The parser accepts any bytes:
//! an option that contradicts its own length makes a segment malformed, an unknown one is skipped,
//! and those that have no meaning in their segment (an MSS without a SYN) are ignored.

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use nilometer_wire::checksum::Checksum;

use crate::segment::{SYN, Segment};

/// The number of TCP in an IP header.
const PROTOCOL: u8 = 6;
/// Bytes of a header without options.
const HEADER_BYTES: usize = 20;

const END: u8 = 0;
const PADDING: u8 = 1;
const MSS: u8 = 2;
const SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// The addresses and ports between which a segment travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Sender's address and port.
    pub source: SocketAddr,
    /// Receiver's address and port; of the same IP version.
    pub destination: SocketAddr,
}

/// Why bytes are no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than a header, or than the header says it has.
    Cut,
    /// More payload than a packet can carry.
    TooLong,
    /// The data offset is below five words.
    DataOffset,
    /// An option's length does not fit the option or the header.
    OptionLength(u8),
    /// The checksum is wrong.
    Checksum,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Cut => write!(f, "the segment ends before its header does"),
            Malformed::TooLong => write!(f, "the segment is longer than 65535 bytes"),
            Malformed::DataOffset => write!(f, "the data offset is below 5"),
            Malformed::OptionLength(kind) => write!(f, "option {kind} has a length it cannot have"),
            Malformed::Checksum => write!(f, "the checksum is wrong"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Appends header, options and as many zeros as the payload has bytes, with the checksum.
pub fn emit(segment: &Segment, ends: &Ends, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&ends.source.port().to_be_bytes());
    out.extend_from_slice(&ends.destination.port().to_be_bytes());
    out.extend_from_slice(&segment.sequence.to_be_bytes());
    out.extend_from_slice(&segment.acknowledgement.to_be_bytes());
    let header_bytes = segment.header_bytes() as usize;
    out.extend_from_slice(&[(header_bytes as u8 / 4) << 4, segment.flags]);
    out.extend_from_slice(&segment.window.to_be_bytes());
    out.extend_from_slice(&[0; 4]); // checksum and urgent pointer
    emit_options(segment, out);
    out.resize(start + header_bytes, END);
    out.resize(start + header_bytes + usize::from(segment.length), 0);
    let checksum = sum(ends, &out[start..]);
    out[start + 16..start + 18].copy_from_slice(&checksum.to_be_bytes());
}

fn emit_options(segment: &Segment, out: &mut Vec<u8>) {
    let is_syn = segment.has(SYN);
    if is_syn {
        if let Some(mss) = segment.mss() {
            out.extend_from_slice(&[MSS, 4]);
            out.extend_from_slice(&mss.to_be_bytes());
        }
        if segment.sack_permitted() {
            out.extend_from_slice(&[SACK_PERMITTED, 2]);
        }
    }
    if segment.has_timestamps() {
        if !is_syn {
            out.extend_from_slice(&[PADDING, PADDING]);
        }
        out.extend_from_slice(&[TIMESTAMPS, 10]);
        out.extend_from_slice(&segment.timestamps[0].to_be_bytes());
        out.extend_from_slice(&segment.timestamps[1].to_be_bytes());
    }
    if let Some(shift) = segment.scale().filter(|_| is_syn) {
        out.extend_from_slice(&[SCALE, 3, shift]);
    }
    let blocks = segment.blocks();
    if blocks.len() > 0 {
        out.extend_from_slice(&[PADDING, PADDING, SACK, 2 + 8 * blocks.len() as u8]);
        for edge in blocks.flatten() {
            out.extend_from_slice(&edge.to_be_bytes());
        }
    }
}

fn sum(ends: &Ends, bytes: &[u8]) -> u16 {
    let mut checksum = Checksum::new();
    let length = bytes.len() as u32;
    checksum.add_pseudo_header(ends.source.ip(), ends.destination.ip(), PROTOCOL, length);
    checksum.add(bytes);
    checksum.finish()
}

/// Source and destination port of a segment.
pub type Ports = [u16; 2];

/// Reads the segment that `bytes` are, payload included, without regard to its checksum.
pub fn parse(bytes: &[u8]) -> Result<(Segment, Ports), Malformed> {
    let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Cut)?;
    let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let long = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
    let header_bytes = usize::from(header[12] >> 4) * 4;
    if header_bytes < HEADER_BYTES {
        return Err(Malformed::DataOffset);
    }
    let options = bytes.get(HEADER_BYTES..header_bytes).ok_or(Malformed::Cut)?;
    let payload = bytes.len() - header_bytes;
    let mut segment = Segment::default();
    segment.sequence = long(4);
    segment.acknowledgement = long(8);
    segment.length = u16::try_from(payload).map_err(|_| Malformed::TooLong)?;
    segment.window = short(14);
    segment.flags = header[13];
    parse_options(options, &mut segment)?;
    Ok((segment, [short(0), short(2)]))
}

/// Like [`parse`], for a segment between `ends`, whose checksum must be right.
pub fn parse_between(bytes: &[u8], ends: &Ends) -> Result<Segment, Malformed> {
    let (segment, _) = parse(bytes)?;
    if sum(ends, bytes) != 0 {
        return Err(Malformed::Checksum);
    }
    Ok(segment)
}

fn parse_options(mut rest: &[u8], segment: &mut Segment) -> Result<(), Malformed> {
    while let Some((&kind, after)) = rest.split_first() {
        match kind {
            END => break,
            PADDING => {
                rest = after;
                continue;
            }
            _ => {}
        }
        let wrong = Malformed::OptionLength(kind);
        let length = usize::from(*after.first().ok_or(wrong)?);
        let body = rest.get(2..length).ok_or(wrong)?;
        rest = &rest[length..];
        parse_option(kind, body, segment).ok_or(wrong)?;
    }
    Ok(())
}

/// `None` if the option's body does not have the length of its kind.
fn parse_option(kind: u8, body: &[u8], segment: &mut Segment) -> Option<()> {
    let is_syn = segment.has(SYN);
    let long = |at: usize| Some(u32::from_be_bytes(*body.get(at..at + 4)?.first_chunk()?));
    match (kind, body) {
        (MSS, [high, low]) if is_syn => segment.set_mss(u16::from_be_bytes([*high, *low])),
        (SCALE, [shift]) if is_syn => segment.set_scale(*shift),
        (SACK_PERMITTED, []) if is_syn => segment.set_sack_permitted(),
        (TIMESTAMPS, _) if body.len() == 8 => segment.set_timestamps(long(0)?, long(4)?),
        (SACK, _) if body.len().is_multiple_of(8) && !body.is_empty() => {
            for at in (0..body.len()).step_by(8) {
                // Beyond four there is no room in a header; on a SYN they mean nothing.
                segment.push_block(long(at)?, long(at + 4)?);
            }
        }
        (MSS, [_, _]) | (SCALE, [_]) | (SACK_PERMITTED, []) => {}
        (MSS | SCALE | SACK_PERMITTED | TIMESTAMPS | SACK, _) => return None,
        _ => {}
    }
    Some(())
}
