//! The ten bytes in front of a frame in which a kernel and its neighbour describe offloads.
//!
//! `struct virtio_net_hdr` (virtio 1.2, section 5.1.6): flags, the kind of segmentation that is
//! still to be done, three lengths about it, and where a checksum is to be filled in. Packet
//! sockets and TAP devices put it before each frame on request. In the packet memory it lies in the
//! head-room, right before the frame, so that one buffer serves both.

use super::partial_checksum::{PartialChecksum, partial_checksum};

/// Its size, without the count of merged buffers.
pub(super) const HEADER_BYTES: u16 = 10;

const NEEDS_CHECKSUM: u8 = 1;

/// The content of a received header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    /// The frame is still to be cut into segments.
    pub(super) is_unsegmented: bool,
    /// Its checksum is still to be filled in.
    pub(super) needs_checksum: bool,
}

/// Reads a header.
pub(super) fn read(header: &[u8]) -> Received {
    Received { is_unsegmented: header[1] != 0, needs_checksum: header[0] & NEEDS_CHECKSUM != 0 }
}

/// The header for a frame to be sent; if `look`, one with a partial checksum is announced as such.
pub(super) fn for_frame(frame: &[u8], look: bool) -> ([u8; HEADER_BYTES as usize], bool) {
    let mut header = [0; HEADER_BYTES as usize];
    let found = if look { partial_checksum(frame) } else { None };
    if let Some(PartialChecksum { start, offset }) = found {
        header[0] = NEEDS_CHECKSUM;
        header[6..8].copy_from_slice(&start.to_ne_bytes());
        header[8..10].copy_from_slice(&offset.to_ne_bytes());
    }
    (header, found.is_some())
}
