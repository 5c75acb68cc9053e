//! A packet laid by until it lands, in half the room.
//!
//! Thousands of packets are under way at a time, and since the engine passes over all of them again
//! and again, they should be small. Of a packet's 64 bytes half are for selective acknowledgements
//! and for the options of a SYN, which few packets have. So a *parcel* holds the rest, and, if
//! there is more, the number of a place in the *annex*, where only that part waits.
//!
//! Its fields are deliberately in another order than the packet's. A packet has just been put
//! together in small stores; if neighbouring fields were the same in both, the compiler would copy
//! several at once by loads wider than those stores, which a processor cannot forward.

use alloc::vec::Vec;

use nilometer_tcp::Extra;
use nilometer_wire::Ecn;

use crate::packet::{Packet, Protocol, Route};

/// A packet as it waits.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Parcel {
    sequence: u32,
    pub route: Route,
    acknowledgement: u32,
    /// The place in the annex, if there are options that need one.
    place: u32,
    timestamps: [u32; 2],
    length: u16,
    flags: u8,
    protocol: Protocol,
    pub bytes: u16,
    options: u8,
    ecn: Ecn,
    window: u16,
}

const _: () = assert!(size_of::<Parcel>() == 36);

impl Parcel {
    /// Whether `packet` equals this one except that its sequence number is `number` times the
    /// payload's length higher.
    #[inline(always)]
    pub fn is_like(&self, packet: &Packet, number: u32) -> bool {
        let segment = &packet.segment;
        let (options, extra) = segment.options();
        let sequence = self.sequence.wrapping_add(number.wrapping_mul(u32::from(self.length)));
        segment.sequence == sequence
            && packet.bytes == self.bytes
            && segment.acknowledgement == self.acknowledgement
            && segment.window == self.window
            && segment.length == self.length
            && segment.flags == self.flags
            && options == self.options
            && extra.is_none()
            && segment.timestamps == self.timestamps
            && packet.route == self.route
            && packet.ecn == self.ecn
            && packet.protocol == self.protocol
    }

    /// Makes it the one after it, which is like it.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.sequence = self.sequence.wrapping_add(u32::from(self.length));
    }
}

/// What of packets has no room in parcels.
#[derive(Debug, Default)]
pub(crate) struct Annex {
    kept: Vec<Extra>,
    free: Vec<u32>,
}

impl Annex {
    /// Lays `packet` by in `parcel`.
    #[inline(always)]
    pub fn stow(&mut self, packet: &Packet, parcel: &mut Parcel) {
        let segment = &packet.segment;
        let (options, extra) = segment.options();
        parcel.sequence = segment.sequence;
        parcel.acknowledgement = segment.acknowledgement;
        parcel.timestamps = segment.timestamps;
        parcel.length = segment.length;
        parcel.window = segment.window;
        parcel.flags = segment.flags;
        parcel.options = options;
        parcel.protocol = packet.protocol;
        parcel.ecn = packet.ecn;
        parcel.route = packet.route;
        parcel.bytes = packet.bytes;
        if let Some(extra) = extra {
            parcel.place = self.keep(extra);
        }
    }

    /// The packet that was laid by in `parcel`, once, in the place of another.
    #[inline(always)]
    pub fn unpack(&mut self, parcel: &Parcel, packet: &mut Packet) {
        let segment = &mut packet.segment;
        segment.sequence = parcel.sequence;
        segment.acknowledgement = parcel.acknowledgement;
        segment.timestamps = parcel.timestamps;
        segment.length = parcel.length;
        segment.window = parcel.window;
        segment.flags = parcel.flags;
        if segment.set_options(parcel.options) {
            segment.set_extra(self.release(parcel.place));
        }
        packet.route = parcel.route;
        packet.bytes = parcel.bytes;
        packet.ecn = parcel.ecn;
        packet.protocol = parcel.protocol;
    }

    #[inline(never)]
    fn keep(&mut self, extra: &Extra) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.kept[place as usize] = *extra;
                place
            }
            None => {
                self.kept.push(*extra);
                self.kept.len() as u32 - 1
            }
        }
    }

    #[inline(never)]
    fn release(&mut self, place: u32) -> &Extra {
        self.free.push(place);
        &self.kept[place as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    fn packet(rng: &mut Rng) -> Packet {
        let mut packet = Packet {
            route: Route(rng.next_u64() as u32),
            bytes: rng.next_u64() as u16,
            ecn: [Ecn::NotCapable, Ecn::Capable0, Ecn::Congestion][rng.below(3) as usize],
            protocol: [Protocol::Tcp, Protocol::Udp][rng.below(2) as usize],
            ..Packet::default()
        };
        let segment = &mut packet.segment;
        segment.sequence = rng.next_u64() as u32;
        segment.acknowledgement = rng.next_u64() as u32;
        segment.length = rng.next_u64() as u16;
        segment.window = rng.next_u64() as u16;
        segment.flags = rng.next_u64() as u8;
        if rng.below(2) == 0 {
            segment.set_timestamps(rng.next_u64() as u32, rng.next_u64() as u32);
        }
        if rng.below(3) == 0 {
            segment.set_mss(rng.next_u64() as u16);
            segment.set_scale(7);
        } else {
            while rng.below(2) == 0 {
                segment.push_block(rng.next_u64() as u32, rng.next_u64() as u32);
            }
        }
        packet
    }

    #[test]
    fn stowed_packets_are_restored() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed, 1, 0);
            let (mut annex, mut waiting) = (Annex::default(), Vec::new());
            let mut back = Packet::default();
            for _ in 0..2_000 {
                if rng.below(2) == 0 {
                    let (packet, mut parcel) = (packet(&mut rng), Parcel::default());
                    annex.stow(&packet, &mut parcel);
                    waiting.push((packet, parcel));
                } else if !waiting.is_empty() {
                    let chosen = rng.below(waiting.len() as u64) as usize;
                    let (packet, parcel) = waiting.swap_remove(chosen);
                    annex.unpack(&parcel, &mut back);
                    assert_eq!(back, packet, "seed {seed}");
                }
            }
            let needing = waiting.iter().filter(|(packet, _)| packet.segment.options().1.is_some());
            assert_eq!(annex.kept.len() - annex.free.len(), needing.count());
        }
    }
}
