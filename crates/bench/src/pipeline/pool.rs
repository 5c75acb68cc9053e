//! Buffers of the pipeline's bench, used round about, and the frames that are put into them.
//!
//! A returned buffer is reused only after all others: no frame is in the first-level cache because
//! its buffer was used a moment ago, as it would be with a stack of free buffers.

use std::collections::VecDeque;

use nilometer_router::Key;
use nilometer_router::header::{ETHERNET_BYTES, IPV4_BYTES, protocol};
use nilometer_router::memory::{Memory, Place};
use nilometer_router::neighbour::Mac;
use nilometer_wire::checksum::internet_checksum;
use nilometer_wire::prefetch::prefetch;

use nilometer_linux::pages::ask_for_large_pages;

/// Bytes of a buffer, as in a device's memory.
pub const BUFFER_BYTES: usize = 2_048;
/// Where in its buffer a frame begins.
const HEAD_ROOM: u16 = 256;
/// Hops that a frame may still make.
const HOP_LIMIT: u8 = 64;

/// The buffers.
#[derive(Debug)]
pub struct Pool {
    bytes: Vec<u8>,
    free: VecDeque<u32>,
}

impl Pool {
    /// `buffers` buffers, all of them free.
    pub fn new(buffers: u32) -> Pool {
        let bytes = vec![0; buffers as usize * BUFFER_BYTES];
        let span = bytes.as_ptr_range();
        ask_for_large_pages(span.start.addr()..span.end.addr());
        Pool { bytes, free: (0..buffers).collect() }
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    #[inline]
    fn range(place: Place) -> std::ops::Range<usize> {
        let start = place.buffer as usize * BUFFER_BYTES + usize::from(place.offset);
        start..start + usize::from(place.bytes)
    }
}

impl Memory for Pool {
    fn take(&mut self, bytes: u16) -> Option<Place> {
        if usize::from(bytes) + usize::from(HEAD_ROOM) > BUFFER_BYTES {
            return None;
        }
        Some(Place { buffer: self.free.pop_front()?, offset: HEAD_ROOM, bytes })
    }

    #[inline]
    fn give(&mut self, place: Place) {
        self.free.push_back(place.buffer);
    }

    #[inline]
    fn frame(&self, place: Place) -> &[u8] {
        &self.bytes[Pool::range(place)]
    }

    #[inline(always)]
    fn expect(&self, place: Place) {
        prefetch(self.bytes.as_ptr().wrapping_add(Pool::range(place).start));
    }

    #[inline]
    fn frame_mut(&mut self, place: Place) -> &mut [u8] {
        &mut self.bytes[Pool::range(place)]
    }
}

/// Writes the frame of `key`, from one station to another.
///
/// # Panics
/// When `frame` is below 60 bytes.
pub fn write(frame: &mut [u8], key: &Key<u32>, to: &Mac, from: &Mac) {
    frame.fill(0);
    frame[..6].copy_from_slice(to);
    frame[6..12].copy_from_slice(from);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let packet = &mut frame[ETHERNET_BYTES..];
    let ip_bytes = packet.len() as u16;
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
    packet[6] = 0x40;
    packet[8] = HOP_LIMIT;
    packet[9] = key.protocol;
    packet[12..16].copy_from_slice(&key.source.to_be_bytes());
    packet[16..20].copy_from_slice(&key.destination.to_be_bytes());
    let sum = internet_checksum(&[&packet[..IPV4_BYTES]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let transport = &mut packet[IPV4_BYTES..];
    transport[..2].copy_from_slice(&key.source_port.to_be_bytes());
    transport[2..4].copy_from_slice(&key.destination_port.to_be_bytes());
    if key.protocol == protocol::TCP {
        transport[13] = key.flags;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_router::{AnyKey, Header};

    #[test]
    fn pool_frames_round_trip() {
        for (protocol, flags) in [(6, 0x12), (17, 0), (1, 0)] {
            let ports = if protocol == 1 { (0, 0) } else { (7, 80) };
            let key = Key {
                source: 0x0a00_0001,
                destination: 0x1400_0001,
                source_port: ports.0,
                destination_port: ports.1,
                protocol,
                flags,
            };
            let mut pool = Pool::new(4);
            let place = pool.take(60).expect("a buffer");
            write(pool.frame_mut(place), &key, &[2, 0, 0, 0, 0, 1], &[2, 0, 0, 0, 0, 2]);
            let header = Header::read(pool.frame(place)).expect("sound");
            assert_eq!((header.key, header.ip_bytes), (AnyKey::V4(key), 46));
        }
    }

    #[test]
    fn pool_buffers_are_reused_in_turn() {
        let mut pool = Pool::new(3);
        let places: Vec<_> = (0..7)
            .map(|_| {
                let place = pool.take(60).expect("a buffer");
                pool.give(place);
                place.buffer
            })
            .collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(pool.take(2_000), None);
    }
}
