//! Frames of the control protocols, written into a caller's buffer.

use core::net::Ipv6Addr;

use nilometer_wire::checksum::Checksum;

use super::Mac;
use crate::header::protocol::ICMPV6;

/// The shortest Ethernet frame without its check sequence, in bytes.
pub(crate) const SHORTEST_BYTES: usize = 60;

/// A buffer, and how much of it is written.
pub(crate) struct Ink<'a> {
    frame: &'a mut [u8],
    at: usize,
}

impl<'a> Ink<'a> {
    /// A frame from `from` to `to`.
    ///
    /// # Panics
    /// Here and later, if the buffer is too short for what is written.
    pub(crate) fn new(frame: &'a mut [u8], to: Mac, from: Mac, kind: u16) -> Ink<'a> {
        let mut ink = Ink { frame, at: 0 };
        ink.put(&to);
        ink.put(&from);
        ink.put(&kind.to_be_bytes());
        ink
    }

    /// Writes on.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.frame[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Where the next byte goes.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// An IPv6 header; the length is filled in by [`Ink::close_icmpv6`].
    pub(crate) fn ipv6(&mut self, next: u8, hop_limit: u8, source: u128, destination: u128) {
        self.put(&[0x60, 0, 0, 0, 0, 0, next, hop_limit]);
        self.put(&source.to_be_bytes());
        self.put(&destination.to_be_bytes());
    }

    /// Fills in the checksum of the ICMPv6 message from `at` on, and the length of the IPv6 packet
    /// around it, which stands behind 14 bytes of Ethernet.
    pub(crate) fn close_icmpv6(&mut self, at: usize) {
        let end = self.at;
        let length = (end - 54) as u16;
        self.frame[18..20].copy_from_slice(&length.to_be_bytes());
        let octets = |at: usize| -> [u8; 16] { core::array::from_fn(|i| self.frame[at + i]) };
        let (source, destination) = (octets(22), octets(38));
        let checksum = icmpv6_checksum(source, destination, &self.frame[at..end]);
        self.frame[at + 2..at + 4].copy_from_slice(&checksum.to_be_bytes());
    }

    /// The length of the frame, padded with zeros to what a link demands.
    pub(crate) fn close(self) -> usize {
        let end = self.at.max(SHORTEST_BYTES);
        self.frame[self.at..end].fill(0);
        end
    }
}

/// The checksum of an ICMPv6 message (RFC 4443, 2.3): zero if the message has its own in it.
pub(crate) fn icmpv6_checksum(source: [u8; 16], destination: [u8; 16], message: &[u8]) -> u16 {
    let mut checksum = Checksum::new();
    let [source, destination] = [source, destination].map(|octets| Ipv6Addr::from(octets).into());
    checksum.add_pseudo_header(source, destination, ICMPV6, message.len() as u32);
    checksum.add(message);
    checksum.finish()
}
