//! Decompression of the bodies of nfcapd's blocks: each by itself, in one of four ways, within a
//! limit.
//!
//! nfdump compresses a block as a whole and stores the compressor's output unchanged: LZO1X and LZ4
//! without any frame, bzip2 and Zstandard with their own. None states how long the block was, which
//! is why each gets room for the longest possible block, and no more.

use std::io::Read;

use anyhow::{Result, anyhow, bail};
use bzip2::read::BzDecoder;
use nilometer_flow::nfcapd::{BLOCK_BYTES_MAX, Compression};
use ruzstd::decoding::StreamingDecoder;

/// Decompresses blocks one after the other into one buffer.
#[derive(Debug, Default)]
pub struct Unpacker {
    room: Vec<u8>,
}

impl Unpacker {
    /// Decompresses `body`.
    ///
    /// # Errors
    /// When it is damaged, or decompresses to more than a block can hold.
    pub fn unpack<'a>(&'a mut self, how: Compression, body: &'a [u8]) -> Result<&'a [u8]> {
        let bytes = match how {
            Compression::None => return Ok(body),
            Compression::Lzo => lzo::decompress_into(body, self.whole_room())
                .map_err(|error| anyhow!("LZO: {error}"))?,
            Compression::Lz4 => lz4_flex::block::decompress_into(body, self.whole_room())
                .map_err(|error| anyhow!("LZ4: {error}"))?,
            Compression::Bzip2 => self.fill(BzDecoder::new(body), "bzip2")?,
            Compression::Zstd => {
                let stream = StreamingDecoder::new(body);
                self.fill(stream.map_err(|error| anyhow!("Zstandard: {error}"))?, "Zstandard")?
            }
        };
        Ok(&self.room[..bytes])
    }

    fn whole_room(&mut self) -> &mut [u8] {
        self.room.resize(BLOCK_BYTES_MAX, 0);
        &mut self.room
    }

    fn fill(&mut self, stream: impl Read, name: &str) -> Result<usize> {
        self.room.clear();
        let most = BLOCK_BYTES_MAX as u64 + 1;
        let read = stream.take(most).read_to_end(&mut self.room);
        match read.map_err(|error| anyhow!("{name}: {error}"))? {
            bytes if bytes > BLOCK_BYTES_MAX => bail!("{name}: more than a block can hold"),
            bytes => Ok(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `records`, compressed in every way for which there is a compressor here.
    fn packed(records: &[u8]) -> [(Compression, Vec<u8>); 3] {
        let mut bzip2 = Vec::new();
        let level = bzip2::Compression::best();
        bzip2::read::BzEncoder::new(records, level).read_to_end(&mut bzip2).expect("memory");
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let zstd = ruzstd::encoding::compress_to_vec(records, level);
        let lz4 = lz4_flex::block::compress(records);
        [(Compression::Bzip2, bzip2), (Compression::Zstd, zstd), (Compression::Lz4, lz4)]
    }

    #[test]
    fn blocks_are_decompressed_and_damage_is_reported() {
        let records: Vec<u8> = (0..100_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut unpacker = Unpacker::default();
        for (how, body) in packed(&records) {
            assert!(body.len() < records.len() / 2, "{how:?}");
            assert_eq!(unpacker.unpack(how, &body).expect("sound"), records, "{how:?}");
            let mut damaged = 0;
            for at in (0..body.len()).step_by(body.len() / 97 + 1) {
                let mut torn = body.clone();
                torn[at] ^= 0x55;
                match unpacker.unpack(how, &torn) {
                    Ok(unpacked) => assert!(unpacked.len() <= BLOCK_BYTES_MAX),
                    Err(error) => {
                        let message = error.to_string();
                        damaged += usize::from(!message.is_empty() && !message.contains('\n'));
                    }
                }
            }
            assert!(damaged > 0, "{how:?}");
            // Half of an LZ4 block may be valid, too: nothing marks its end.
            let half = unpacker.unpack(how, &body[..body.len() / 2]);
            assert!(half.is_err() || how == Compression::Lz4, "{how:?}");
        }
        assert_eq!(unpacker.unpack(Compression::None, b"as it is").expect("sound"), b"as it is");
    }

    #[test]
    fn lzo_is_unpacked_as_liblzo_packed_it() {
        // lzo1x_1 of 17 bytes: a literal run and the end of the stream.
        let literal = [&[34][..], b"hello, lzo world!", &[17, 0, 0]].concat();
        let mut unpacker = Unpacker::default();
        let unpacked = unpacker.unpack(Compression::Lzo, &literal).expect("sound");
        assert_eq!(unpacked, b"hello, lzo world!");
        for end in 0..literal.len() {
            assert!(unpacker.unpack(Compression::Lzo, &literal[..end]).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn a_block_that_would_fill_the_memory_is_refused() {
        let zeros = vec![0; BLOCK_BYTES_MAX + 1];
        let mut unpacker = Unpacker::default();
        for (how, body) in packed(&zeros) {
            assert!(unpacker.unpack(how, &body).is_err(), "{how:?}");
        }
        for (how, body) in packed(&zeros[1..]) {
            let unpacked = unpacker.unpack(how, &body).expect("the most there can be");
            assert_eq!(unpacked.len(), BLOCK_BYTES_MAX, "{how:?}");
        }
    }
}
