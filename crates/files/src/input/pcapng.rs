//! The pcapng capture file: sections of blocks, each section in its own byte order.
//!
//! A block is its type, its length, a body and its length again (draft-ietf-opsawg-pcapng). Five
//! types matter here: the Section Header, which sets the byte order and resets all interfaces; the
//! Interface Description, which gives a link type and the unit of stamps; and the three that carry
//! packets (Enhanced, Simple, and the obsolete Packet Block). All others are skipped unread,
//! whatever their length, so that files with future block types stay readable.
//!
//! A stamp is `ticks` of the interface's resolution, 10⁻ⁿ s or 2⁻ⁿ s, plus its offset in whole
//! seconds. It is computed in 128 bits and saturates at both ends of `u64` nanoseconds since 1970.

use std::collections::BTreeSet;
use std::io::Read;

use super::captured::{CapturedPacket, Ending, FRAME_MAX_BYTES, HeaderError, ReadError};
use super::window::Window;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_OFFSET: u16 = 14;

/// Type and length before a block's body.
const BLOCK_START_BYTES: usize = 8;
/// The shortest section header: 8 + magic, version and section length + 4.
const SECTION_HEADER_BYTES: usize = 28;
/// The longest block that is held in memory: a frame and as much again for its options.
const BLOCK_MAX_BYTES: u32 = 2 * FRAME_MAX_BYTES;
/// Interfaces of one section.
const INTERFACES_MAX: usize = 65_536;

/// Is this the beginning of a pcapng file?
pub fn is_pcapng(first: &[u8]) -> bool {
    first.get(..4) == Some(&SECTION_HEADER.to_be_bytes())
}

/// A pcapng file being read.
pub struct Pcapng<R> {
    window: Window<R>,
    big_endian: bool,
    interfaces: Vec<Interface>,
    link_types: BTreeSet<u32>,
    ending: Ending,
}

#[derive(Clone, Copy)]
struct Interface {
    link_type: u32,
    snap_bytes: u32,
    resolution: Resolution,
    offset_s: i64,
}

/// The length of a tick.
#[derive(Clone, Copy)]
enum Resolution {
    /// 10⁻ⁿ seconds.
    Decimal(u8),
    /// 2⁻ⁿ seconds.
    Binary(u8),
}

/// Where a packet lies in the body of its block.
struct Place {
    interface: Interface,
    ticks: Option<u64>,
    original_bytes: u32,
    frame_at: usize,
    frame_bytes: usize,
}

impl<R: Read> Pcapng<R> {
    /// Reads the first section header.
    ///
    /// # Errors
    /// When the file does not begin with a whole section header of version 1.
    pub fn new(mut window: Window<R>) -> Result<Pcapng<R>, HeaderError> {
        let first = window.peek(SECTION_HEADER_BYTES)?;
        if !is_pcapng(first) {
            return Err(HeaderError::Magic);
        }
        if first.len() < SECTION_HEADER_BYTES {
            return Err(HeaderError::Cut { present: first.len(), needed: SECTION_HEADER_BYTES });
        }
        let (big_endian, length) = section(first).map_err(HeaderError::Damaged)?;
        let version = read_u32(first, 12, big_endian);
        let (major, minor) = match big_endian {
            true => (version >> 16, version & 0xffff),
            false => (version & 0xffff, version >> 16),
        };
        if major != 1 {
            return Err(HeaderError::Version { container: "pcapng", major, minor });
        }
        let present = window.peek(length as usize)?.len();
        if present < length as usize {
            return Err(HeaderError::Cut { present, needed: length as usize });
        }
        Ok(Pcapng {
            window,
            big_endian,
            interfaces: Vec::new(),
            link_types: BTreeSet::new(),
            ending: Ending::Whole,
        })
    }

    /// LINKTYPE numbers of the interfaces declared so far.
    pub fn link_types(&self) -> Vec<u32> {
        self.link_types.iter().copied().collect()
    }

    /// How the file ended; known once [`Pcapng::next_packet`] has returned `None`.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Returns the stream, to be read to its end.
    pub fn into_window(self) -> Window<R> {
        self.window
    }

    /// The next packet, or `None` at the end or where the rest cannot be read.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket<'_>>, ReadError> {
        while self.ending == Ending::Whole {
            let Some((kind, length)) = self.frame_block()? else { break };
            let offset = self.window.offset();
            match self.open_block(kind, length) {
                Ok(None) => self.window.take(length),
                Ok(Some(place)) => {
                    let block = self.window.next(length)?.expect("the whole block was framed");
                    let frame = &block[place.frame_at..place.frame_at + place.frame_bytes];
                    return Ok(Some(CapturedPacket {
                        stamp_ns: place.ticks.map(|ticks| place.interface.stamp_ns(ticks)),
                        link_type: place.interface.link_type,
                        original_bytes: place.original_bytes.max(place.frame_bytes as u32),
                        frame,
                    }));
                }
                Err(what) => self.ending = Ending::Damaged { offset, what },
            }
        }
        Ok(None)
    }

    /// Brings the next block of a known type wholly into the window, and returns its type and
    /// length. Blocks of other types are skipped. `None` when there is no further block; the ending
    /// states why.
    fn frame_block(&mut self) -> Result<Option<(u32, usize)>, ReadError> {
        loop {
            let offset = self.window.offset();
            let start = self.window.peek(SECTION_HEADER_BYTES)?;
            if start.len() < 12 {
                if !start.is_empty() {
                    self.ending = Ending::Cut { offset };
                }
                return Ok(None);
            }
            // A section header reads the same in both byte orders, so it may change the order.
            let (order, length) = if is_pcapng(start) {
                match section(start) {
                    Ok(section) => section,
                    Err(what) => {
                        self.ending = Ending::Damaged { offset, what };
                        return Ok(None);
                    }
                }
            } else {
                (self.big_endian, read_u32(start, 4, self.big_endian))
            };
            let kind = read_u32(start, 0, order);
            let held = matches!(
                kind,
                SECTION_HEADER
                    | INTERFACE_DESCRIPTION
                    | OBSOLETE_PACKET
                    | SIMPLE_PACKET
                    | ENHANCED_PACKET
            );
            if length < 12 || !length.is_multiple_of(4) || (held && length > BLOCK_MAX_BYTES) {
                let what = format!("a block of type {kind} claims {length} bytes");
                self.ending = Ending::Damaged { offset, what };
                return Ok(None);
            }
            if held {
                return self.hold_block(offset, kind, length as usize, order);
            }
            if self.window.skip(u64::from(length))? < u64::from(length) {
                self.ending = Ending::Cut { offset };
                return Ok(None);
            }
        }
    }

    fn hold_block(
        &mut self,
        offset: u64,
        kind: u32,
        length: usize,
        big_endian: bool,
    ) -> Result<Option<(u32, usize)>, ReadError> {
        let block = self.window.peek(length)?;
        if block.len() < length {
            self.ending = Ending::Cut { offset };
            return Ok(None);
        }
        let again = read_u32(block, length - 4, big_endian);
        if again as usize != length {
            let what = format!("a block claims {length} bytes before its body and {again} after");
            self.ending = Ending::Damaged { offset, what };
            return Ok(None);
        }
        self.big_endian = big_endian;
        Ok(Some((kind, length)))
    }

    /// Interprets the framed block; returns where its packet lies, if it carries one.
    fn open_block(&mut self, kind: u32, length: usize) -> Result<Option<Place>, String> {
        let big_endian = self.big_endian;
        let block = self.window.peek(length).map_err(|error| error.to_string())?;
        let body = &block[..length - 4];
        match kind {
            SECTION_HEADER => {
                self.interfaces.clear();
                Ok(None)
            }
            INTERFACE_DESCRIPTION => {
                let interface = Interface::from_block(body, big_endian)?;
                if self.interfaces.len() == INTERFACES_MAX {
                    return Err(format!("more than {INTERFACES_MAX} interfaces in one section"));
                }
                self.interfaces.push(interface);
                self.link_types.insert(interface.link_type);
                Ok(None)
            }
            SIMPLE_PACKET => simple_packet(body, &self.interfaces, big_endian).map(Some),
            _ => stamped_packet(kind, body, &self.interfaces, big_endian).map(Some),
        }
    }
}

impl Interface {
    fn from_block(body: &[u8], big_endian: bool) -> Result<Interface, String> {
        if body.len() < BLOCK_START_BYTES + 8 {
            return Err("an interface description is too short".into());
        }
        let mut interface = Interface {
            link_type: u32::from(read_u16(body, BLOCK_START_BYTES, big_endian)),
            snap_bytes: read_u32(body, BLOCK_START_BYTES + 4, big_endian),
            resolution: Resolution::Decimal(6),
            offset_s: 0,
        };
        let mut options = &body[BLOCK_START_BYTES + 8..];
        while options.len() >= 4 {
            let (code, length) =
                (read_u16(options, 0, big_endian), read_u16(options, 2, big_endian));
            let Some(value) = options.get(4..4 + usize::from(length)) else { break };
            match (code, value) {
                (0, _) => break,
                (OPTION_RESOLUTION, &[octet]) if octet & 0x80 != 0 => {
                    interface.resolution = Resolution::Binary(octet & 0x7f);
                }
                (OPTION_RESOLUTION, &[octet]) => interface.resolution = Resolution::Decimal(octet),
                (OPTION_OFFSET, value) if value.len() == 8 => {
                    let eight = value.try_into().expect("eight bytes");
                    interface.offset_s = if big_endian {
                        i64::from_be_bytes(eight)
                    } else {
                        i64::from_le_bytes(eight)
                    };
                }
                _ => {}
            }
            let padded = 4 + usize::from(length).next_multiple_of(4);
            options = options.get(padded..).unwrap_or_default();
        }
        Ok(interface)
    }

    /// Nanoseconds since 1970 of `ticks`, saturating.
    fn stamp_ns(&self, ticks: u64) -> u64 {
        let ticks = u128::from(ticks);
        let since_offset = match self.resolution {
            Resolution::Decimal(n @ 0..=9) => ticks * 10u128.pow(u32::from(9 - n)),
            Resolution::Decimal(n) => {
                10u128.checked_pow(u32::from(n - 9)).map_or(0, |divisor| ticks / divisor)
            }
            Resolution::Binary(n) => (ticks * 1_000_000_000) >> n,
        };
        let offset_ns = i128::from(self.offset_s) * 1_000_000_000;
        (since_offset as i128 + offset_ns).clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// An Enhanced Packet Block, or the obsolete Packet Block, whose interface field is half as long.
fn stamped_packet(
    kind: u32,
    body: &[u8],
    interfaces: &[Interface],
    big_endian: bool,
) -> Result<Place, String> {
    const FRAME_AT: usize = BLOCK_START_BYTES + 20;
    if body.len() < FRAME_AT {
        return Err("a packet block is too short".into());
    }
    let word = |at: usize| read_u32(body, BLOCK_START_BYTES + at, big_endian);
    let number = match kind {
        ENHANCED_PACKET => word(0),
        _ => u32::from(read_u16(body, BLOCK_START_BYTES, big_endian)),
    };
    let Some(&interface) = interfaces.get(number as usize) else {
        return Err(format!(
            "a packet names interface {number} of a section that has {}",
            interfaces.len()
        ));
    };
    let frame_bytes = word(12) as usize;
    if frame_bytes > body.len() - FRAME_AT {
        return Err(format!("a packet claims {frame_bytes} bytes, more than its block has"));
    }
    let ticks = u64::from(word(4)) << 32 | u64::from(word(8));
    let original_bytes = plausible(word(16))?;
    Ok(Place { interface, ticks: Some(ticks), original_bytes, frame_at: FRAME_AT, frame_bytes })
}

fn simple_packet(body: &[u8], interfaces: &[Interface], big_endian: bool) -> Result<Place, String> {
    const FRAME_AT: usize = BLOCK_START_BYTES + 4;
    let Some(&interface) = interfaces.first() else {
        return Err("a simple packet stands before any interface".into());
    };
    if body.len() < FRAME_AT {
        return Err("a simple packet block is too short".into());
    }
    let original_bytes = plausible(read_u32(body, BLOCK_START_BYTES, big_endian))?;
    let snapped = match interface.snap_bytes {
        0 => original_bytes,
        snap_bytes => original_bytes.min(snap_bytes),
    };
    let frame_bytes = (body.len() - FRAME_AT).min(snapped as usize);
    Ok(Place { interface, ticks: None, original_bytes, frame_at: FRAME_AT, frame_bytes })
}

/// The original length of a frame, if a frame can be so long.
fn plausible(original_bytes: u32) -> Result<u32, String> {
    if original_bytes > FRAME_MAX_BYTES {
        return Err(format!("a packet claims a frame of {original_bytes} bytes"));
    }
    Ok(original_bytes)
}

/// Byte order and length of the section header that begins here.
fn section(start: &[u8]) -> Result<(bool, u32), String> {
    let big_endian = match read_u32(start, 8, true) {
        BYTE_ORDER_MAGIC => true,
        word if word.swap_bytes() == BYTE_ORDER_MAGIC => false,
        word => return Err(format!("a section header has byte-order magic {word:#010x}")),
    };
    let length = read_u32(start, 4, big_endian);
    if (length as usize) < SECTION_HEADER_BYTES
        || !length.is_multiple_of(4)
        || length > BLOCK_MAX_BYTES
    {
        return Err(format!("a section header claims {length} bytes"));
    }
    Ok((big_endian, length))
}

fn read_u32(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let four = bytes[at..at + 4].try_into().expect("four bytes");
    if big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

fn read_u16(bytes: &[u8], at: usize, big_endian: bool) -> u16 {
    let two = bytes[at..at + 2].try_into().expect("two bytes");
    if big_endian { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) }
}

#[cfg(test)]
#[path = "pcapng_tests.rs"]
mod tests;
