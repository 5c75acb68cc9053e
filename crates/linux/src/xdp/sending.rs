//! The two ways out of an AF_XDP port: one by one through the transmit ring, and in batches.

use std::collections::VecDeque;

use super::super::memory::{Packet, PacketMemory};
use super::super::partial_checksum::partial_checksum;
use super::super::port_io::PortError;
use super::XdpPort;
use super::batch::{BatchSender, FRAMES_MAX, NotSent, Sent};
use super::socket::METADATA_BYTES;

/// `XDP_TX_METADATA`: in a descriptor, that metadata stands in front of the frame.
const WITH_METADATA: u32 = 1 << 1;
/// `XDP_TXMD_FLAGS_CHECKSUM`: in the metadata, that a checksum is to be filled in.
const FILL_CHECKSUM: u64 = 1 << 1;
/// How many system calls one flush makes at most.
const CALLS_PER_FLUSH: usize = 64;

impl XdpPort {
    /// Whether the calling thread can send in batches.
    pub(super) fn has_batches(&mut self) -> bool {
        self.batches.as_mut().is_some_and(BatchSender::is_at_home)
    }

    /// Queues the first `count` packets for the next flush.
    pub(super) fn transmit_one_by_one(
        &mut self,
        memory: &mut PacketMemory,
        packets: &mut VecDeque<Packet>,
        count: usize,
    ) {
        for packet in packets.drain(..count) {
            if !self.interface.could_send(&packet, METADATA_BYTES) {
                self.statistics.tx_invalid += 1;
                memory.give(packet);
                continue;
            }
            let options = self.announce(memory, &packet);
            memory.lend(&packet, self.account);
            self.sending += 1;
            let start = u64::from(packet.buffer) * u64::from(memory.chunk_bytes());
            self.sockets[0].transmit.push(libc::xdp_desc {
                addr: start + u64::from(packet.offset),
                len: u32::from(packet.bytes),
                options,
            });
            self.statistics.tx_packets += 1;
            self.statistics.tx_bytes += u64::from(packet.bytes);
        }
        self.sockets[0].transmit.publish();
        self.unsent = true;
    }

    /// Sends the first `count` packets in batches. What the kernel refuses is lost, as on the way that
    /// frames go one by one; the error is the last one that concerns the interface.
    pub(super) fn transmit_batches(
        &mut self,
        memory: &mut PacketMemory,
        packets: &mut VecDeque<Packet>,
        count: usize,
    ) -> Result<(), PortError> {
        let (mut left, mut outcome) = (count, Ok(()));
        while left > 0 {
            let some = left.min(FRAMES_MAX);
            left -= some;
            for packet in packets.drain(..some) {
                if self.interface.could_send(&packet, METADATA_BYTES) {
                    self.push(memory.frame(&packet));
                } else {
                    self.statistics.tx_invalid += 1;
                }
                memory.give(packet);
            }
            outcome = self.send_batch().and(outcome);
        }
        outcome
    }

    fn push(&mut self, frame: &[u8]) {
        let partial = if self.partial_checksums { partial_checksum(frame) } else { None };
        self.statistics.tx_partial_checksum += u64::from(partial.is_some());
        self.statistics.tx_packets += 1;
        self.statistics.tx_bytes += frame.len() as u64;
        self.batches.as_mut().expect("who calls has seen them").push(frame, partial);
    }

    /// Sends what was pushed.
    fn send_batch(&mut self) -> Result<(), PortError> {
        let batches = self.batches.as_mut().expect("who calls has seen them");
        let (refused, error) = match batches.send() {
            Ok(Sent { refused, error }) => (refused, error),
            Err(NotSent { frames, error }) => (frames, Some(error)),
        };
        if refused == 0 {
            return Ok(());
        }
        self.statistics.tx_invalid += u64::from(refused);
        let failure = error.map(|error| self.interface.failure("send to", error));
        match failure {
            Some(failure @ (PortError::Down { .. } | PortError::Gone { .. })) => Err(failure),
            // The kernel was short of a resource or dropped frames that came too fast, and the next
            // frames may well be sent; or it has replaced the queue of a device that is down by one
            // that drops.
            _ if self.interface.is_up()? => Ok(()),
            _ => Err(PortError::Down { name: self.interface.name().to_owned() }),
        }
    }

    /// Calls the kernel until it has taken everything, or will not.
    pub(super) fn send(&mut self) -> Result<(), PortError> {
        let socket = &mut self.sockets[0];
        for _ in 0..CALLS_PER_FLUSH {
            if !socket.transmit.needs_wakeup() {
                break;
            }
            match socket.wake_transmit() {
                Ok(()) => break,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {}
                    // The device's own queue is full: what is left waits for the next flush.
                    Some(libc::EBUSY | libc::ENOBUFS) => break,
                    _ => return Err(self.interface.note_failure("send to", error)),
                },
            }
        }
        self.unsent = !socket.transmit.is_drained();
        Ok(())
    }

    /// The descriptor's options for a packet: whether metadata was written in front of it.
    fn announce(&mut self, memory: &mut PacketMemory, packet: &Packet) -> u32 {
        if !self.partial_checksums {
            return 0;
        }
        let Some(found) = partial_checksum(memory.frame(packet)) else {
            return 0;
        };
        let metadata = memory.head_room_mut(packet, METADATA_BYTES);
        metadata[..8].copy_from_slice(&FILL_CHECKSUM.to_ne_bytes());
        metadata[8..10].copy_from_slice(&found.start.to_ne_bytes());
        metadata[10..12].copy_from_slice(&found.offset.to_ne_bytes());
        metadata[12..].fill(0);
        self.statistics.tx_partial_checksum += 1;
        WITH_METADATA
    }
}
