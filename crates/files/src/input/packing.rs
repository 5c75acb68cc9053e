//! Files that are compressed as a whole: gzip, Zstandard, bzip2 and LZ4, recognised by their magic, also
//! several of one kind concatenated.

use std::error::Error;
use std::io::{self, BufRead, Read};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::{Error as Lz4Error, FrameDecoder as Lz4Decoder};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

nilometer_wire::named! {
    /// How a file is compressed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Packing {
        /// RFC 1952.
        Gzip = "gzip",
        /// RFC 8878.
        Zstandard = "Zstandard",
        /// As bzip2 writes it.
        Bzip2 = "bzip2",
        /// Frames of LZ4, as its command line writes them.
        Lz4 = "LZ4",
    }
}

impl Packing {
    /// Bytes by which it is recognised.
    pub const MAGIC_BYTES: usize = 4;

    /// The compression of a file with this beginning; `None` if it is not compressed, or in another way.
    pub fn of(first: &[u8]) -> Option<Packing> {
        match first {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd] => Some(Packing::Zstandard),
            [b'B', b'Z', b'h', b'1'..=b'9'] => Some(Packing::Bzip2),
            [0x04, 0x22, 0x4d, 0x18] => Some(Packing::Lz4),
            _ => None,
        }
    }

    /// Decompresses `packed`. Damage is an error without an errno, with a text of its own.
    pub fn unpack(self, packed: impl BufRead + 'static) -> Box<dyn Read> {
        match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Packing::Zstandard => Box::new(Frames::new(packed)),
            Packing::Bzip2 => Box::new(MultiBzDecoder::new(packed)),
            Packing::Lz4 => Box::new(Lz4Frames::new(packed)),
        }
    }
}

/// The text of a decompression error, in one line.
pub fn damage(error: &io::Error) -> String {
    let mut cause = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
    let mut ends_early = error.kind() == io::ErrorKind::UnexpectedEof;
    while let Some(inner) = cause {
        let kind = inner.downcast_ref::<io::Error>().map(io::Error::kind);
        ends_early |= kind == Some(io::ErrorKind::UnexpectedEof);
        cause = inner.source();
    }
    if ends_early { "it ends early".to_owned() } else { error.to_string().replace('\n', " ") }
}

/// Zstandard's frames one after the other; frames without data are skipped, and checksums are verified where
/// there are any.
struct Frames<R> {
    packed: R,
    decoder: FrameDecoder,
    is_open: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(packed: R) -> Frames<R> {
        Frames { packed, decoder: FrameDecoder::new(), is_open: false }
    }

    /// Opens the next frame that holds data; returns whether there is one.
    fn open(&mut self) -> io::Result<bool> {
        while !self.packed.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.packed) {
                Ok(()) => {
                    self.is_open = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.packed).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    /// Ends a frame whose data has all been read.
    fn close(&mut self) -> io::Result<()> {
        self.is_open = false;
        let stated = self.decoder.get_checksum_from_data();
        if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
            return Err(io::Error::other("a frame differs from its checksum"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !into.is_empty() && (self.is_open || self.open()?) {
            let read = self.decoder.read(into)?;
            if read > 0 {
                return Ok(read);
            }
            if self.decoder.is_finished() {
                self.close()?;
            } else {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.packed, one).map_err(io::Error::other)?;
            }
        }
        Ok(0)
    }
}

/// LZ4's frames one after the other: their decoder ends at the end of each. It also ends without an error
/// where a block or the end mark is missing. So at the end it gets one more byte, in a block with a wrong
/// checksum: between two frames that is a wrong magic number, and within a frame it is a different error.
/// (Frames of the legacy format have no end mark. They are not read, and one behind another frame is
/// reported as cut.)
struct Lz4Frames<R: BufRead> {
    decoder: Lz4Decoder<Probed<R>>,
    /// Nothing was read since a frame ended.
    is_between: bool,
    is_over: bool,
}

const PROBE: &[u8] = &[1, 0, 0, 0x80, 0, 0, 0, 0, 0];
/// A header and the end mark.
const FRAME_BYTES_MIN: u64 = 11;

impl<R: BufRead> Lz4Frames<R> {
    fn new(packed: R) -> Lz4Frames<R> {
        let decoder = Lz4Decoder::new(Probed { packed, taken: 0, probe: &[] });
        Lz4Frames { decoder, is_between: true, is_over: false }
    }

    /// Handles the end of the input. The decoder has taken `taken` bytes in its last read.
    fn end(&mut self, taken: u64) -> io::Result<usize> {
        self.is_over = true;
        if self.is_between && (1..FRAME_BYTES_MIN).contains(&taken) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.decoder.get_mut().probe = PROBE;
        let error = self.decoder.read(&mut [0]).err();
        let cause = error.as_ref().and_then(io::Error::get_ref);
        match cause.and_then(|cause| cause.downcast_ref()) {
            Some(Lz4Error::WrongMagicNumber) => Ok(0),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !into.is_empty() && !self.is_over {
            let before = self.decoder.get_ref().taken;
            let read = self.decoder.read(into)?;
            if read > 0 {
                self.is_between = false;
                return Ok(read);
            }
            let probed = self.decoder.get_mut();
            let taken = probed.taken - before;
            if probed.packed.fill_buf()?.is_empty() {
                return self.end(taken);
            }
            self.is_between = true;
        }
        Ok(0)
    }
}

/// The packed bytes, and then the probe.
struct Probed<R> {
    packed: R,
    taken: u64,
    probe: &'static [u8],
}

impl<R: Read> Read for Probed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.packed.read(into)? {
            0 => self.probe.read(into),
            read => {
                self.taken += read as u64;
                Ok(read)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// `plain`, compressed in each way.
    fn packed(plain: &[u8]) -> [(Packing, Vec<u8>); 4] {
        let mut gzip = Vec::new();
        let level = flate2::Compression::default();
        flate2::read::GzEncoder::new(plain, level).read_to_end(&mut gzip).expect("memory");
        let mut bzip2 = Vec::new();
        let level = bzip2::Compression::default();
        bzip2::read::BzEncoder::new(plain, level).read_to_end(&mut bzip2).expect("memory");
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let zstandard = ruzstd::encoding::compress_to_vec(plain, level);
        // As the LZ4 command line writes it.
        let frame = lz4_flex::frame::FrameInfo::new().content_checksum(true);
        let mut lz4 = lz4_flex::frame::FrameEncoder::with_frame_info(frame, Vec::new());
        lz4.write_all(plain).expect("memory");
        let lz4 = lz4.finish().expect("memory");
        [
            (Packing::Gzip, gzip),
            (Packing::Zstandard, zstandard),
            (Packing::Bzip2, bzip2),
            (Packing::Lz4, lz4),
        ]
    }

    fn unpack(how: Packing, packed: Vec<u8>) -> (Vec<u8>, Option<String>) {
        let mut plain = Vec::new();
        let read = how.unpack(io::Cursor::new(packed)).read_to_end(&mut plain);
        (plain, read.err().map(|error| damage(&error)))
    }

    #[test]
    fn compressed_data_are_decompressed_in_pieces() {
        let plain: Vec<u8> = (0..300_000u32).flat_map(|n| (n / 9).to_le_bytes()).collect();
        for (how, one) in packed(&plain) {
            assert_eq!(Packing::of(&one[..Packing::MAGIC_BYTES]), Some(how));
            let twice = [&one[..], &one].concat();
            assert_eq!(unpack(how, one), (plain.clone(), None), "{how:?}");
            assert_eq!(unpack(how, twice), ([&plain[..], &plain].concat(), None), "{how:?}");
        }
        assert_eq!(Packing::of(b"BZh0"), None);
    }

    #[test]
    fn frames_without_data_are_passed_over() {
        let [_, (_, one), ..] = packed(b"some bytes");
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 7, 7, 7];
        let all = [&one[..], &skipped, &one].concat();
        assert_eq!(unpack(Packing::Zstandard, all), (b"some bytessome bytes".to_vec(), None));
        let cut = [&one[..], &skipped[..9]].concat();
        let (plain, message) = unpack(Packing::Zstandard, cut);
        assert_eq!((&plain[..], message.as_deref()), (&b"some bytes"[..], Some("it ends early")));
    }

    #[test]
    fn truncated_data_are_read_up_to_the_cut_and_reported() {
        let plain: Vec<u8> = (0..400_000u32).flat_map(|n| (n * n / 7).to_le_bytes()).collect();
        for (how, one) in packed(&plain) {
            let (before, message) = unpack(how, one[..one.len() / 2].to_vec());
            assert!(plain.starts_with(&before) && before.len() < plain.len(), "{how:?}");
            assert_eq!(message.as_deref(), Some("it ends early"), "{how:?}");
        }
    }

    #[test]
    fn lz4_is_missed_wherever_it_is_cut() {
        let plain: Vec<u8> = (0..200_000u32).map(|n| (n / 5_000) as u8).collect();
        for (has_checksum, checks_blocks) in [(true, false), (false, false), (false, true)] {
            let frame = lz4_flex::frame::FrameInfo::new()
                .block_size(lz4_flex::frame::BlockSize::Max64KB)
                .content_checksum(has_checksum)
                .block_checksums(checks_blocks);
            let mut lz4 = lz4_flex::frame::FrameEncoder::with_frame_info(frame, Vec::new());
            lz4.write_all(&plain).expect("memory");
            let whole = lz4.finish().expect("memory");
            assert_eq!(unpack(Packing::Lz4, whole.clone()), (plain.clone(), None));
            let twice = whole.repeat(2);
            for bytes in (1..twice.len()).filter(|bytes| *bytes != whole.len()) {
                let (before, message) = unpack(Packing::Lz4, twice[..bytes].to_vec());
                assert!(plain.repeat(2).starts_with(&before));
                assert_eq!(message.as_deref(), Some("it ends early"), "{bytes} of {}", twice.len());
            }
        }
    }

    #[test]
    fn damage_is_named_in_one_line() {
        let plain: Vec<u8> = (0..50_000u32).flat_map(|n| (n / 3).to_le_bytes()).collect();
        for (how, one) in packed(&plain) {
            let mut found = 0;
            for at in (8..one.len()).step_by(one.len() / 61 + 1) {
                let mut torn = one.clone();
                torn[at] ^= 0x55;
                let (read, message) = unpack(how, torn);
                assert!(message.is_some() || read == plain, "{how:?}: damage at {at} was not seen");
                found += usize::from(message.is_some_and(|message| !message.contains('\n')));
            }
            assert!(found > 40, "{how:?}: {found}");
        }
    }
}
