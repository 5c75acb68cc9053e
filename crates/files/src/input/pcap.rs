//! The pcap capture file: a header of 24 bytes, then records, read one by one.
//!
//! The magic number gives both the byte order and the unit of the stamps (draft-ietf-opsawg-pcap):
//!
//! | magic        | stamps       | record header            |
//! |--------------|--------------|--------------------------|
//! | `0xa1b2c3d4` | microseconds | 16 bytes                 |
//! | `0xa1b23c4d` | nanoseconds  | 16 bytes                 |
//! | `0xa1b2cd34` | microseconds | 24 bytes (a 1998 variant)|
//!
//! Files before version 2.3 have the two lengths of a record in the other order, and files of 2.3 in
//! either, so there the smaller one is the captured length.

use std::io::Read;

use super::captured::{CapturedPacket, Ending, FRAME_MAX_BYTES, HeaderError, ReadError};
use super::window::Window;

/// Bytes of the file header.
const HEADER_BYTES: usize = 24;

/// Bytes of a record's header that are read; one variant has more.
const RECORD_HEADER_BYTES: usize = 16;

/// The 32-bit magics in the byte order of their writer.
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const MODIFIED: u32 = 0xa1b2_cd34;

/// Bits of the link-type field that hold the link type; the others describe a frame check sequence.
const LINK_TYPE_MASK: u32 = 0x03ff_ffff;

/// A pcap file being read.
pub struct Pcap<R> {
    window: Window<R>,
    big_endian: bool,
    nanos_per_fraction: u64,
    record_header_bytes: usize,
    lengths_may_be_swapped: bool,
    link_type: u32,
    records: u64,
    ending: Ending,
}

/// The header of a record.
#[derive(Clone, Copy)]
struct Head {
    stamp_ns: u64,
    captured: u32,
    original: u32,
}

impl Head {
    #[inline]
    fn is_sane(self) -> bool {
        self.captured.max(self.original) <= FRAME_MAX_BYTES
    }
}

/// The byte order and unit by the magic, if this is the beginning of a pcap file.
fn magic(first: &[u8]) -> Option<(bool, u32)> {
    let four: [u8; 4] = first.get(..4)?.try_into().ok()?;
    let known = |word: &u32| matches!(*word, MICROSECONDS | NANOSECONDS | MODIFIED);
    let little = Some(u32::from_le_bytes(four)).filter(known).map(|word| (false, word));
    little.or(Some(u32::from_be_bytes(four)).filter(known).map(|word| (true, word)))
}

/// Is this the beginning of a pcap file?
pub fn is_pcap(first: &[u8]) -> bool {
    magic(first).is_some()
}

impl<R: Read> Pcap<R> {
    /// Reads the file header.
    ///
    /// # Errors
    /// When the file is cut within its header, has another magic or an unknown version.
    pub fn new(mut window: Window<R>) -> Result<Pcap<R>, HeaderError> {
        let header = window.peek(HEADER_BYTES)?;
        let Some((big_endian, magic)) = magic(header) else {
            return Err(HeaderError::Magic);
        };
        if header.len() < HEADER_BYTES {
            return Err(HeaderError::Cut { present: header.len(), needed: HEADER_BYTES });
        }
        let word = |at: usize| word(header, at, big_endian);
        let (major, minor) = match big_endian {
            true => (word(4) >> 16, word(4) & 0xffff),
            false => (word(4) & 0xffff, word(4) >> 16),
        };
        // A major of 543 is a version 2 written by a capture tool of the 1990s.
        if major != 2 && major != 543 {
            return Err(HeaderError::Version { container: "pcap", major, minor });
        }
        let link_type = word(20) & LINK_TYPE_MASK;
        window.take(HEADER_BYTES);
        Ok(Pcap {
            window,
            big_endian,
            nanos_per_fraction: if magic == NANOSECONDS { 1 } else { 1_000 },
            record_header_bytes: if magic == MODIFIED { 24 } else { 16 },
            lengths_may_be_swapped: major == 543 || minor <= 3,
            link_type,
            records: 0,
            ending: Ending::Whole,
        })
    }

    /// The LINKTYPE number of every frame in the file.
    pub fn link_type(&self) -> u32 {
        self.link_type
    }

    /// How the file ended; known once [`Pcap::next_packet`] has returned `None`.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// The next packet, or `None` at the end or where the rest cannot be read.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket<'_>>, ReadError> {
        let Some(head) = self.fetch()? else { return Ok(None) };
        self.records += 1;
        let from = self.record_header_bytes;
        let record = self.window.next(from + head.captured as usize)?;
        Ok(record.map(|record| CapturedPacket {
            stamp_ns: Some(head.stamp_ns),
            link_type: self.link_type,
            original_bytes: head.original.max(head.captured),
            frame: &record[from..],
        }))
    }

    /// Passes to `take` the packets that have been read ahead, until it fails. Nothing is read, and state
    /// is updated only after the last of them: this is the path of most packets.
    ///
    /// # Errors
    /// When `take` fails.
    #[inline]
    pub fn take_read<E>(
        &mut self,
        mut take: impl FnMut(&CapturedPacket<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut here = self.window.at_hand();
        let (all_bytes, mut records, mut taken) = (here.len(), 0, Ok(()));
        while let Some(first) = here.first_chunk() {
            let head = self.head(first);
            let Some(rest) = here.get(self.record_header_bytes..) else { break };
            let Some((frame, rest)) = rest.split_at_checked(head.captured as usize) else { break };
            if !head.is_sane() {
                break;
            }
            here = rest;
            records += 1;
            taken = take(&CapturedPacket {
                stamp_ns: Some(head.stamp_ns),
                link_type: self.link_type,
                original_bytes: head.original.max(head.captured),
                frame,
            });
            if taken.is_err() {
                break;
            }
        }
        let bytes = all_bytes - here.len();
        self.window.take(bytes);
        self.records += records;
        taken
    }

    /// Reads on until the next record is there; `None` where there is none, or where it is invalid.
    fn fetch(&mut self) -> Result<Option<Head>, ReadError> {
        if self.ending != Ending::Whole {
            return Ok(None);
        }
        let offset = self.window.offset();
        let here = self.window.peek(self.record_header_bytes)?;
        let (present, first) = (here.len(), here.first_chunk().copied());
        let Some(first) = first.filter(|_| present == self.record_header_bytes) else {
            if present > 0 {
                self.ending = Ending::Cut { offset };
            }
            return Ok(None);
        };
        let head = self.head(&first);
        if !head.is_sane() {
            let Head { captured, original, .. } = head;
            let what = format!(
                "record {} claims {captured} bytes of a frame of {original}; no frame is longer \
                 than {FRAME_MAX_BYTES}",
                self.records + 1
            );
            self.ending = Ending::Damaged { offset, what };
            return Ok(None);
        }
        let length = self.record_header_bytes + head.captured as usize;
        if self.window.peek(length)?.len() < length {
            self.ending = Ending::Cut { offset };
            return Ok(None);
        }
        Ok(Some(head))
    }

    #[inline(always)]
    fn head(&self, bytes: &[u8; RECORD_HEADER_BYTES]) -> Head {
        let mut words = [0, 4, 8, 12].map(|at| word(bytes, at, false));
        if self.big_endian {
            words = words.map(u32::swap_bytes);
        }
        let [seconds, fraction, mut captured, mut original] = words;
        if self.lengths_may_be_swapped && captured > original {
            std::mem::swap(&mut captured, &mut original);
        }
        let stamp_ns =
            u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.nanos_per_fraction;
        Head { stamp_ns, captured, original }
    }

    /// Returns the stream, to be read to its end.
    pub fn into_window(self) -> Window<R> {
        self.window
    }
}

#[inline]
fn word(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let four = bytes[at..at + 4].try_into().expect("four bytes");
    if big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet's stamp, link type, original length and frame.
    type Seen = (u64, u32, u32, Vec<u8>);

    fn file(big_endian: bool, magic: u32, version: [u16; 2], records: &[u8]) -> Vec<u8> {
        let w32 = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
        let w16 = |v: u16| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut file = w32(magic).to_vec();
        file.extend(version.into_iter().flat_map(w16));
        file.extend([0u32, 0, 65_535, 0x1400_0001].into_iter().flat_map(w32));
        file.extend(records);
        file
    }

    fn record(big_endian: bool, words: [u32; 4], more: &[u8]) -> Vec<u8> {
        let w32 = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut record: Vec<u8> = words.into_iter().flat_map(w32).collect();
        record.extend(more);
        record
    }

    fn read(file: &[u8]) -> (Vec<Seen>, Ending) {
        let mut pcap = Pcap::new(Window::new(file)).expect("a pcap header");
        let mut seen = Vec::new();
        while let Some(packet) = pcap.next_packet().expect("memory can be read") {
            seen.push(owned(&packet));
        }
        assert_eq!(read_ahead(file), (seen.clone(), pcap.ending().clone()));
        (seen, pcap.ending().clone())
    }

    /// Reads one packet, then takes those that were read ahead.
    fn read_ahead(file: &[u8]) -> (Vec<Seen>, Ending) {
        let mut pcap = Pcap::new(Window::new(file)).expect("a pcap header");
        let mut seen = Vec::new();
        while let Some(packet) = pcap.next_packet().expect("memory can be read") {
            seen.push(owned(&packet));
            pcap.take_read(|packet| {
                seen.push(owned(packet));
                Ok::<(), ()>(())
            })
            .expect("nothing refuses");
        }
        (seen, pcap.ending().clone())
    }

    fn owned(packet: &CapturedPacket<'_>) -> Seen {
        let stamp = packet.stamp_ns.expect("pcap stamps every packet");
        (stamp, packet.link_type, packet.original_bytes, packet.frame.to_vec())
    }

    #[test]
    fn reads_both_byte_orders_and_all_units() {
        for big_endian in [false, true] {
            for (magic, nanos) in [(MICROSECONDS, 7_000), (NANOSECONDS, 7), (MODIFIED, 7_000)] {
                let mut body = if magic == MODIFIED { vec![0; 8] } else { Vec::new() };
                body.extend(b"abc");
                let records = record(big_endian, [5, 7, 3, 60], &body);
                let (seen, ending) = read(&file(big_endian, magic, [2, 4], &records));
                assert_eq!(seen, [(5_000_000_000 + nanos, 1, 60, b"abc".to_vec())]);
                assert_eq!(ending, Ending::Whole);
            }
        }
    }

    #[test]
    fn every_truncation_is_detected_and_earlier_packets_are_kept() {
        let mut records = record(false, [1, 0, 4, 4], b"1234");
        records.extend(record(false, [2, 0, 4, 4], b"5678"));
        let whole = file(false, MICROSECONDS, [2, 4], &records);
        for length in HEADER_BYTES..=whole.len() {
            let (seen, ending) = read(&whole[..length]);
            assert_eq!(seen.len(), (length - HEADER_BYTES) / 20);
            let start = (HEADER_BYTES + seen.len() * 20) as u64;
            let cut = Ending::Cut { offset: start };
            assert_eq!(ending, if length as u64 == start { Ending::Whole } else { cut });
        }
        for length in 4..HEADER_BYTES {
            let cut = Pcap::new(Window::new(&whole[..length]));
            assert!(matches!(cut, Err(HeaderError::Cut { present, .. }) if present == length));
        }
    }

    #[test]
    fn only_the_refused_packet_is_consumed() {
        let records: Vec<u8> = (1..=3).flat_map(|n| record(false, [n, 0, 1, 1], b"x")).collect();
        let file = file(false, MICROSECONDS, [2, 4], &records);
        let mut pcap = Pcap::new(Window::new(&file[..])).expect("a pcap header");
        assert_eq!(pcap.take_read(|packet| Err(packet.stamp_ns)), Err(Some(1_000_000_000)));
        let next = pcap.next_packet().expect("memory can be read").expect("two are left");
        assert_eq!(next.stamp_ns, Some(2_000_000_000));
    }

    #[test]
    fn an_absurd_length_ends_the_file_with_its_offset() {
        let mut records = record(false, [1, 0, 4, 4], b"1234");
        records.extend(record(false, [2, 0, u32::MAX, 4], &[0; 100]));
        let (seen, ending) = read(&file(false, MICROSECONDS, [2, 4], &records));
        assert_eq!(seen.len(), 1);
        assert!(matches!(ending, Ending::Damaged { offset: 44, .. }), "{ending:?}");
    }

    #[test]
    fn old_files_may_swap_the_lengths() {
        let records = record(false, [1, 0, 60, 3], b"abc");
        let (seen, _) = read(&file(false, MICROSECONDS, [2, 2], &records));
        assert_eq!(seen, [(1_000_000_000, 1, 60, b"abc".to_vec())]);
        let version_9 = file(false, MICROSECONDS, [9, 0], &[]);
        let refused = Pcap::new(Window::new(&version_9[..]));
        assert!(matches!(refused, Err(HeaderError::Version { major: 9, minor: 0, .. })));
    }
}
