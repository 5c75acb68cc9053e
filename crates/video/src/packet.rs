//! Packets: a label of twenty bytes at fixed places, and behind it a run of coefficients of one sub-band.
//!
//! All numbers are big-endian.
//!
//! ```text
//!    0        1        2        3        4                8        10       12               16       18       20
//!   │ 'W'    │version │sub-band│levels  │frame           │width   │height  │first coefficient│count   │checksum│…
//! ```
//!
//! A router that drops by frequency needs the byte at offset 2, and 0 and 1 to recognise the packet: no other
//! packet, no state. The checksum is that of RFC 1071 over the whole packet, itself taken as zero, so that damage is
//! noticed in a file, too, where there is no UDP checksum.

use alloc::vec::Vec;

use nilometer_wire::checksum::Checksum;
use thiserror::Error;

use crate::entropy::{COEFFICIENT_BYTES_MAX, EntropyError};
use crate::frame::FrameSize;
use crate::subband::{Layout, Levels};

/// How a packet begins.
pub const MAGIC: u8 = b'W';
/// The version of label and coding.
pub const VERSION: u8 = 1;
/// Where the number of the sub-band is.
pub const SUBBAND_OFFSET: usize = 2;
/// Bytes of the label.
pub const LABEL_BYTES: usize = 20;
const CHECKSUM_OFFSET: usize = 18;

/// The default limit for bytes of a packet: fits into an Ethernet frame with room for tunnels.
pub const PACKET_BYTES_DEFAULT: usize = 1_400;
/// The smallest limit that can be given: the label and some coefficients.
pub const PACKET_BYTES_MIN: usize = LABEL_BYTES + 2 * COEFFICIENT_BYTES_MAX;
/// The largest limit that can be given: what UDP over IPv4 carries.
pub const PACKET_BYTES_MAX: usize = 65_507;

/// What stands before the coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The number of the sub-band, 0 the lowest frequency.
    pub subband: u8,
    /// Levels of luma, which determine how many sub-bands there are.
    pub levels: Levels,
    /// The number of the frame, from 0.
    pub frame: u32,
    /// The size of the frame.
    pub size: FrameSize,
    /// The place of the first coefficient in its sub-band, row by row.
    pub first: u32,
    /// How many coefficients there are, at least one.
    pub count: u16,
}

/// Why bytes are not a usable packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// Shorter than a label or longer than any packet.
    #[error("{0} bytes are not a packet")]
    Length(usize),
    /// Something else than a packet of Wave Video.
    #[error("not a packet of Wave Video: it begins with {0:#04x}")]
    Magic(u8),
    /// A version that is not known here.
    #[error("version {0} of Wave Video is not known here, only {VERSION}")]
    Version(u8),
    /// Bytes have changed on the way.
    #[error("the checksum is wrong: the packet is damaged")]
    Checksum,
    /// A size or a number of levels that no frame has.
    #[error("a frame of {width}x{height} with {levels} levels is beyond the limits")]
    Limits {
        /// Samples in a row.
        width: u16,
        /// Rows.
        height: u16,
        /// Levels of luma.
        levels: u8,
    },
    /// A packet of a video with another size or other levels.
    #[error("a packet of another video: {0} with {1} levels")]
    OtherVideo(FrameSize, u8),
    /// A sub-band that does not exist.
    #[error("there is no sub-band {0}")]
    Subband(u8),
    /// A run that is not within its sub-band.
    #[error("{count} coefficients from {first} on are not within sub-band {subband}")]
    Run {
        /// The sub-band.
        subband: u8,
        /// Its first coefficient.
        first: u32,
        /// How many.
        count: u16,
    },
    /// Coefficients that have arrived before.
    #[error("coefficients of sub-band {0} that have come before")]
    Repeated(u8),
    /// A packet of another frame than the one that is being rebuilt.
    #[error("a packet of frame {0}, which is not this one")]
    OtherFrame(u32),
    /// A frame so far ahead that all between would be lost.
    #[error("frame {0} is too far ahead")]
    FarAhead(u32),
    /// Coefficients that cannot be decoded.
    #[error("sub-band {subband}: {why}")]
    Coefficients {
        /// The sub-band.
        subband: u8,
        /// What is wrong.
        why: EntropyError,
    },
}

/// The sum of a packet as its label has it.
fn checksum(packet: &[u8]) -> u16 {
    let mut sum = Checksum::new();
    sum.add(&packet[..CHECKSUM_OFFSET]);
    sum.add(&packet[LABEL_BYTES..]);
    sum.finish()
}

impl Label {
    /// The label of a packet, and the bytes behind it.
    ///
    /// # Errors
    /// If it is not a packet, is damaged, or has impossible values.
    pub fn read(packet: &[u8]) -> Result<(Label, &[u8]), PacketError> {
        let length = packet.len();
        let (label, coded) =
            packet.split_first_chunk::<LABEL_BYTES>().ok_or(PacketError::Length(length))?;
        if length > PACKET_BYTES_MAX {
            return Err(PacketError::Length(length));
        }
        let [magic, version, subband, levels, ..] = *label;
        if magic != MAGIC {
            return Err(PacketError::Magic(magic));
        }
        if version != VERSION {
            return Err(PacketError::Version(version));
        }
        let half = |at: usize| u16::from_be_bytes([label[at], label[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        if half(CHECKSUM_OFFSET) != checksum(packet) {
            return Err(PacketError::Checksum);
        }
        let (width, height) = (half(8), half(10));
        let size = FrameSize::new(width.into(), height.into()).ok();
        let (Some(size), Some(levels)) = (size, Levels::new(levels)) else {
            return Err(PacketError::Limits { width, height, levels });
        };
        if subband >= levels.subbands() {
            return Err(PacketError::Subband(subband));
        }
        let (frame, first, count) = (word(4), word(12), half(16));
        Ok((Label { subband, levels, frame, size, first, count }, coded))
    }

    /// The packet of this label and the coefficients behind it.
    pub fn packet(&self, coded: &[u8]) -> Vec<u8> {
        let mut packet = Vec::with_capacity(LABEL_BYTES + coded.len());
        packet.extend([MAGIC, VERSION, self.subband, self.levels.luma()]);
        packet.extend(self.frame.to_be_bytes());
        packet.extend(self.size.width().to_be_bytes());
        packet.extend(self.size.height().to_be_bytes());
        packet.extend(self.first.to_be_bytes());
        packet.extend(self.count.to_be_bytes());
        packet.extend([0; 2]);
        packet.extend(coded);
        let checksum = checksum(&packet);
        packet[CHECKSUM_OFFSET..LABEL_BYTES].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    /// Checks that the label belongs to a video.
    ///
    /// # Errors
    /// If it belongs to another one, or its run is not within its sub-band.
    pub fn within(&self, layout: &Layout) -> Result<(), PacketError> {
        let Label { subband, levels, size, first, count, .. } = *self;
        if size != layout.size() || levels != layout.levels() {
            return Err(PacketError::OtherVideo(size, levels.luma()));
        }
        let coefficients = layout.subbands()[usize::from(subband)].coefficients() as u64;
        if count == 0 || u64::from(first) + u64::from(count) > coefficients {
            return Err(PacketError::Run { subband, first, count });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    fn label() -> Label {
        Label {
            subband: 32,
            levels: Levels::PAPER,
            frame: 0x0102_0304,
            size: FrameSize::QCIF,
            first: 0x10a,
            count: 0x102,
        }
    }

    /// The bytes of a label, for authors of other readers. They must not change within a version.
    #[test]
    fn a_label_stands_where_it_is_documented() {
        let packet = label().packet(&[0xaa, 0xbb, 0xcc]);
        let fixed = [b'W', 1, 32, 4, 1, 2, 3, 4, 0, 176, 0, 144, 0, 0, 1, 10, 1, 2];
        assert_eq!(packet[..18], fixed);
        assert_eq!(packet[SUBBAND_OFFSET], 32);
        assert_eq!(packet[20..], [0xaa, 0xbb, 0xcc]);
        // RFC 1071 by hand: all words with the checksum in its place sum to 0xffff.
        let padded = [&packet[..], &[0]].concat();
        let sum: u32 =
            padded.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(Label::read(&packet), Ok((label(), &[0xaa, 0xbb, 0xcc][..])));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let packet = label().packet(&[1, 2, 3, 4]);
        for at in 0..packet.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = packet.clone();
                changed[at] ^= change;
                let refused = Label::read(&changed).expect_err("a change");
                let expected = match at {
                    0 => PacketError::Magic(changed[0]),
                    1 => PacketError::Version(changed[1]),
                    _ => PacketError::Checksum,
                };
                assert_eq!(refused, expected, "byte {at}");
            }
        }
        for length in 0..LABEL_BYTES {
            assert_eq!(Label::read(&packet[..length]), Err(PacketError::Length(length)));
        }
        let long = label().packet(&[0; PACKET_BYTES_MAX]);
        assert_eq!(Label::read(&long), Err(PacketError::Length(long.len())));
    }

    #[test]
    fn invalid_values_are_refused() {
        let layout = Layout::new(FrameSize::QCIF, Levels::PAPER);
        assert_eq!(label().within(&layout), Ok(()));
        let other = Layout::new(FrameSize::QCIF, Levels::new(3).expect("levels"));
        let refused = PacketError::OtherVideo(FrameSize::QCIF, 4);
        assert_eq!(label().within(&other), Err(refused));
        for (first, count) in [(0, 0), (6_336, 1), (6_335, 2), (u32::MAX, u16::MAX)] {
            let run = Label { first, count, ..label() };
            let refused = PacketError::Run { subband: 32, first, count };
            assert_eq!(run.within(&layout), Err(refused));
        }
        let beyond = Label { subband: 33, ..label() };
        assert_eq!(Label::read(&beyond.packet(&[])), Err(PacketError::Subband(33)));
    }

    #[test]
    fn any_bytes_are_a_label_or_an_error() {
        let mut rng = Rng::new(5, 0x1abe1, 0);
        let mut read = 0;
        for round in 0..20_000 {
            let length = rng.below(60) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
            if round % 2 == 0 && length >= LABEL_BYTES {
                // Near enough to a packet for most of its values to be looked at.
                (bytes[0], bytes[1]) = (MAGIC, VERSION);
                (bytes[3], bytes[8], bytes[10]) = (bytes[3] % 8, bytes[8] % 20, bytes[10] % 20);
                bytes[2] %= 64;
                let sum = checksum(&bytes);
                bytes[CHECKSUM_OFFSET..LABEL_BYTES].copy_from_slice(&sum.to_be_bytes());
            }
            read += u32::from(Label::read(&bytes).is_ok());
        }
        assert!(100 < read && read < 10_000, "{read} of 20000 are labels");
    }
}
