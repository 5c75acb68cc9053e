//! Where a batch lies in a plugin's memory: descriptors, and behind them the packets in rooms of one size.

use nilometer_plugin::interface::{
    CHANGED, DESCRIPTOR_BYTES, Descriptor, NO_PORT, PACKET_ALIGNMENT,
};
use nilometer_router::plugin::{Batch, Fault, PacketFacts, PluginDecision};

/// What a plugin may write of a descriptor: its decision, and its flags.
const WRITTEN: u16 = u16::from_le_bytes([PluginDecision::Drop as u8, CHANGED]);

/// The layout of batches of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rooms {
    seen_bytes: usize,
    room_bytes: usize,
}

impl Rooms {
    /// For packets of which so many bytes are seen.
    pub(super) fn new(seen_bytes: u16) -> Rooms {
        let seen_bytes = usize::from(seen_bytes);
        Rooms { seen_bytes, room_bytes: seen_bytes.next_multiple_of(PACKET_ALIGNMENT) }
    }

    /// Bytes for so many packets.
    pub(super) fn bytes(self, packets: usize) -> usize {
        packets * (DESCRIPTOR_BYTES + self.room_bytes)
    }

    /// Writes a batch to an area at `address` of the plugin's memory.
    #[inline]
    pub(super) fn write(self, batch: &Batch<'_>, area: &mut [u8], address: usize) {
        let facts = batch.packets();
        let (descriptors, rooms) = area.split_at_mut(facts.len() * DESCRIPTOR_BYTES);
        let rooms_at = address + descriptors.len();
        let (descriptors, _) = descriptors.as_chunks_mut::<DESCRIPTOR_BYTES>();
        if self.room_bytes == 0 {
            for (facts, descriptor) in facts.iter().zip(descriptors) {
                *descriptor = described(facts, 0, 0);
            }
            return;
        }
        let rooms = rooms.chunks_exact_mut(self.room_bytes);
        for (at, (descriptor, room)) in descriptors.iter_mut().zip(rooms).enumerate() {
            let packet = batch.packet(at);
            let seen = &packet[..packet.len().min(self.seen_bytes)];
            room[..seen.len()].copy_from_slice(seen);
            let room_at = rooms_at + at * self.room_bytes;
            *descriptor = described(&facts[at], room_at as u32, seen.len() as u16);
        }
    }

    /// Takes the decisions and the changed packets out of the area, all or none.
    ///
    /// # Errors
    /// When a decision or a flag is none. No packet is changed then.
    #[inline]
    pub(super) fn read(self, batch: &mut Batch<'_>, area: &[u8]) -> Result<(), Fault> {
        let count = batch.packets().len();
        let (descriptors, rooms) = area.split_at(count * DESCRIPTOR_BYTES);
        let (descriptors, _) = descriptors.as_chunks::<DESCRIPTOR_BYTES>();
        // Either is a bit, so that all are looked at in one word; only a breach, or a wish, is gone into.
        let written = Descriptor::written_to_any(descriptors);
        if written == 0 {
            return Ok(());
        }
        if written & !WRITTEN != 0 {
            return Err(breach(descriptors));
        }
        for (at, descriptor) in descriptors.iter().enumerate() {
            let (decision, flags) = Descriptor::written(descriptor);
            if decision == PluginDecision::Drop as u8 {
                batch.decide(at, PluginDecision::Drop);
            }
            if flags == CHANGED && self.room_bytes > 0 {
                let packet = batch.packet_mut(at);
                let seen = packet.len().min(self.seen_bytes);
                packet[..seen].copy_from_slice(&rooms[at * self.room_bytes..][..seen]);
            }
        }
        Ok(())
    }
}

/// Which decision or flag is none.
#[cold]
fn breach(descriptors: &[[u8; DESCRIPTOR_BYTES]]) -> Fault {
    let mut all = descriptors.iter().enumerate();
    let found =
        all.find(|(_, descriptor)| Descriptor::written_to_any([*descriptor]) & !WRITTEN != 0);
    let (at, descriptor) = found.expect("one has what none may have");
    let (decision, flags) = Descriptor::written(descriptor);
    Fault::Interface(format!("packet {at} has the decision {decision} and the flags {flags}"))
}

/// A descriptor, without a decision and flags.
#[inline(always)]
fn described(facts: &PacketFacts, address: u32, seen_bytes: u16) -> [u8; DESCRIPTOR_BYTES] {
    Descriptor::undecided(address, seen_bytes, facts.word())
}

// The router's word of a packet is the interface's.
const _: () = assert!(NO_PORT == nilometer_router::plugin::NO_PORT);
