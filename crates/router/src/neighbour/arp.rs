//! ARP packets for IPv4 over Ethernet, to and from bytes (RFC 826).

use super::Mac;
use super::frame::Ink;
use crate::header::ETHERNET_BYTES;

/// The ethertype of ARP.
const ETHERTYPE: u16 = 0x0806;
/// Ethernet, IPv4, and the lengths of their addresses.
const FIXED: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// Bytes of an ARP packet.
const BYTES: usize = 28;

/// What an ARP packet wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// Who has the target's address?
    Request,
    /// The sender has its address.
    Reply,
}

/// An ARP packet in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpPacket {
    /// The frame's destination.
    pub frame_to: Mac,
    /// The frame's source.
    pub frame_from: Mac,
    /// Request or reply.
    pub operation: ArpOperation,
    /// The sender's link-layer address.
    pub sender_mac: Mac,
    /// The sender's address; zero in a probe (RFC 5227, 2.1.1).
    pub sender: u32,
    /// The target's link-layer address; without meaning in a request.
    pub target_mac: Mac,
    /// The target's address.
    pub target: u32,
}

impl ArpPacket {
    /// Reads a frame; nothing if it is no ARP for IPv4 over Ethernet, or another operation.
    pub fn read(frame: &[u8]) -> Option<ArpPacket> {
        let (ethernet, rest) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
        let packet = rest.first_chunk::<BYTES>()?;
        if ethernet[12..] != ETHERTYPE.to_be_bytes() || packet[..6] != FIXED {
            return None;
        }
        let operation = match [packet[6], packet[7]] {
            [0, 1] => ArpOperation::Request,
            [0, 2] => ArpOperation::Reply,
            _ => return None,
        };
        let mac = |bytes: &[u8], at: usize| -> Mac { core::array::from_fn(|i| bytes[at + i]) };
        let address = |at: usize| u32::from_be_bytes(core::array::from_fn(|i| packet[at + i]));
        Some(ArpPacket {
            frame_to: mac(ethernet, 0),
            frame_from: mac(ethernet, 6),
            operation,
            sender_mac: mac(packet, 8),
            sender: address(14),
            target_mac: mac(packet, 18),
            target: address(24),
        })
    }

    /// Writes the frame and returns its length, 60 bytes.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn write(&self, frame: &mut [u8]) -> usize {
        let mut ink = Ink::new(frame, self.frame_to, self.frame_from, ETHERTYPE);
        ink.put(&FIXED);
        ink.put(match self.operation {
            ArpOperation::Request => &[0, 1],
            ArpOperation::Reply => &[0, 2],
        });
        ink.put(&self.sender_mac);
        ink.put(&self.sender.to_be_bytes());
        ink.put(&self.target_mac);
        ink.put(&self.target.to_be_bytes());
        ink.close()
    }
}
