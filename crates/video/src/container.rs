//! The container: a file of packets (`.wv`), in the order in which they were sent or have arrived.
//!
//! All numbers are big-endian. A header of 32 bytes, then packets each behind its length, then a length of zero and
//! the number of frames, so that a truncated file is distinguished from one whose last packets were lost:
//!
//! ```text
//!    0            8        10       12       13   14                  16                   20    30        32
//!   │ "WAVEVID1" │width   │height  │levels  │ 0  │packet bytes at most│frames per 1,000 s  │ 0 … │checksum │
//!   │length│packet … │length│packet … │ … │ 0 0 │frames              │
//! ```
//!
//! The checksum is that of RFC 1071 over the header, itself taken as zero.

use nilometer_wire::checksum::internet_checksum;
use thiserror::Error;

use crate::encoder::PACKET_BYTES;
use crate::frame::FrameSize;
use crate::packet::{LABEL_BYTES, PACKET_BYTES_MAX};
use crate::subband::Levels;

/// How a container begins.
pub const MAGIC: &[u8; 8] = b"WAVEVID1";
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of a packet's length.
pub const LENGTH_BYTES: usize = 2;
/// Bytes of what stands behind the length of zero: the number of frames.
pub const END_BYTES: usize = 4;
/// Frames of a clip at most: more than two hours at 12 a second.
pub const FRAMES_MAX: u32 = 100_000;
/// Frames in a thousand seconds at most.
pub const RATE_MAX: u32 = 1_000_000;
const CHECKSUM_OFFSET: usize = 30;

/// The content of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container {
    /// The size of all frames.
    pub size: FrameSize,
    /// Levels of luma.
    pub levels: Levels,
    /// Bytes of a packet at most.
    pub packet_bytes_max: usize,
    /// Frames in a thousand seconds: 12,000 for the paper's twelve a second.
    pub frames_per_1000_s: u32,
}

/// Why bytes are no container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ContainerError {
    /// Something else.
    #[error("not a file of Wave Video packets, which begins with WAVEVID1")]
    Magic,
    /// The header was changed, or is of another version.
    #[error("the header is damaged or of another version")]
    Header,
    /// A value of the header beyond its limits.
    #[error("the header has impossible values: {0}")]
    Limits(&'static str),
    /// A length that no packet has.
    #[error("a packet cannot have {0} bytes")]
    Length(usize),
    /// The file ends before its end mark.
    #[error("the file was cut: its end mark is missing")]
    Cut,
    /// More frames than a clip may have.
    #[error("{0} frames are more than {FRAMES_MAX}")]
    Frames(u32),
    /// Something stands behind the end mark.
    #[error("{0} bytes follow after the end mark")]
    LeftOver(usize),
}

impl Container {
    /// The header's bytes.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..10].copy_from_slice(&self.size.width().to_be_bytes());
        header[10..12].copy_from_slice(&self.size.height().to_be_bytes());
        header[12] = self.levels.luma();
        header[14..16].copy_from_slice(&(self.packet_bytes_max as u16).to_be_bytes());
        header[16..20].copy_from_slice(&self.frames_per_1000_s.to_be_bytes());
        let checksum = internet_checksum(&[&header]);
        header[CHECKSUM_OFFSET..].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    /// Parses a header.
    ///
    /// # Errors
    /// If it is not one, is damaged, or is beyond the limits.
    pub fn read(header: &[u8; HEADER_BYTES]) -> Result<Container, ContainerError> {
        if header[..8] != *MAGIC {
            return Err(ContainerError::Magic);
        }
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let checksum = internet_checksum(&[&header[..CHECKSUM_OFFSET]]);
        if half(CHECKSUM_OFFSET) != checksum || header[13] != 0 || header[20..30] != [0; 10] {
            return Err(ContainerError::Header);
        }
        let size = FrameSize::new(half(8).into(), half(10).into());
        let size = size.map_err(|_| ContainerError::Limits("the size of a frame"))?;
        let levels = Levels::new(header[12]).ok_or(ContainerError::Limits("levels"))?;
        let packet_bytes_max = usize::from(half(14));
        if !PACKET_BYTES.contains(&packet_bytes_max) {
            return Err(ContainerError::Limits("the size of packets"));
        }
        let frames_per_1000_s = u32::from(half(16)) << 16 | u32::from(half(18));
        if !(1..=RATE_MAX).contains(&frames_per_1000_s) {
            return Err(ContainerError::Limits("the frame rate"));
        }
        Ok(Container { size, levels, packet_bytes_max, frames_per_1000_s })
    }
}

/// What stands before a packet.
///
/// # Panics
/// If it is longer than any packet.
pub fn length_of(packet: &[u8]) -> [u8; LENGTH_BYTES] {
    assert!((LABEL_BYTES..=PACKET_BYTES_MAX).contains(&packet.len()));
    (packet.len() as u16).to_be_bytes()
}

/// How many bytes the next packet has; `None` if the end mark follows.
///
/// # Errors
/// If no packet can have that many.
pub fn packet_length(bytes: [u8; LENGTH_BYTES]) -> Result<Option<usize>, ContainerError> {
    match usize::from(u16::from_be_bytes(bytes)) {
        0 => Ok(None),
        length if (LABEL_BYTES..=PACKET_BYTES_MAX).contains(&length) => Ok(Some(length)),
        length => Err(ContainerError::Length(length)),
    }
}

/// The end mark of a file with `frames` frames.
pub fn end_mark(frames: u32) -> [u8; LENGTH_BYTES + END_BYTES] {
    let [a, b, c, d] = frames.to_be_bytes();
    [0, 0, a, b, c, d]
}

/// The number of frames behind the length of zero.
///
/// # Errors
/// If there are more than a clip may have.
pub fn frames_at_end(bytes: [u8; END_BYTES]) -> Result<u32, ContainerError> {
    match u32::from_be_bytes(bytes) {
        frames if frames <= FRAMES_MAX => Ok(frames),
        frames => Err(ContainerError::Frames(frames)),
    }
}

/// Passes the packets of a whole file in memory to `take` one by one; returns the header and the number of frames.
///
/// # Errors
/// If the file is damaged; packets before the damage have been passed on.
pub fn packets(
    file: &[u8],
    take: &mut dyn FnMut(&Container, &[u8]),
) -> Result<(Container, u32), ContainerError> {
    let (header, mut rest) = file.split_first_chunk().ok_or(ContainerError::Cut)?;
    let container = Container::read(header)?;
    loop {
        let (length, after) = rest.split_first_chunk().ok_or(ContainerError::Cut)?;
        let Some(length) = packet_length(*length)? else {
            let (end, after) = after.split_first_chunk().ok_or(ContainerError::Cut)?;
            let frames = frames_at_end(*end)?;
            return match after.len() {
                0 => Ok((container, frames)),
                bytes => Err(ContainerError::LeftOver(bytes)),
            };
        };
        let (packet, after) = after.split_at_checked(length).ok_or(ContainerError::Cut)?;
        take(&container, packet);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn container() -> Container {
        Container {
            size: FrameSize::QCIF,
            levels: Levels::PAPER,
            packet_bytes_max: 1_400,
            frames_per_1000_s: 12_000,
        }
    }

    fn file() -> Vec<u8> {
        let packets = [[1; 20].to_vec(), [2; 33].to_vec()];
        let mut file = container().header().to_vec();
        for packet in &packets {
            file.extend(length_of(packet));
            file.extend(packet);
        }
        file.extend(end_mark(7));
        file
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let mut lengths = Vec::new();
        let read = packets(&file(), &mut |_, packet| lengths.push(packet.len()));
        assert_eq!(read, Ok((container(), 7)));
        assert_eq!(lengths, [20, 33]);
        let fixed = b"WAVEVID1\x00\xb0\x00\x90\x04\x00\x05\x78\x00\x00\x2e\xe0";
        assert_eq!(file()[..20], *fixed);
    }

    #[test]
    fn every_cut_and_every_change_of_the_header_is_noticed() {
        let file = file();
        for length in 0..file.len() {
            let cut = packets(&file[..length], &mut |_, _| {});
            assert_eq!(cut, Err(ContainerError::Cut), "{length} bytes");
        }
        for at in 0..HEADER_BYTES {
            let mut changed = file.clone();
            changed[at] ^= 0x10;
            let refused = packets(&changed, &mut |_, _| {}).expect_err("a change");
            let expected = if at < 8 { ContainerError::Magic } else { ContainerError::Header };
            assert_eq!(refused, expected, "byte {at}");
        }
        let more = [&file[..], &[0]].concat();
        assert_eq!(packets(&more, &mut |_, _| {}), Err(ContainerError::LeftOver(1)));
    }

    #[test]
    fn invalid_values_are_refused() {
        let read = |change: fn(&mut Container)| {
            let mut changed = container();
            change(&mut changed);
            Container::read(&changed.header())
        };
        let refused = |what| Err(ContainerError::Limits(what));
        assert_eq!(read(|it| it.packet_bytes_max = 30), refused("the size of packets"));
        assert_eq!(read(|it| it.frames_per_1000_s = 0), refused("the frame rate"));
        assert_eq!(read(|it| it.frames_per_1000_s = RATE_MAX + 1), refused("the frame rate"));
        assert_eq!(packet_length([0, 19]), Err(ContainerError::Length(19)));
        assert_eq!(packet_length([255, 255]), Err(ContainerError::Length(65_535)));
        let many = FRAMES_MAX + 1;
        assert_eq!(frames_at_end(many.to_be_bytes()), Err(ContainerError::Frames(many)));
    }
}
