//! Round-trip times from the opening of each TCP connection.
//!
//! ```text
//! client ── SYN ──► capture ── SYN ──► server
//!               ◄──         ◄─ SYN+ACK ─
//!        ── ACK ──►         ── ACK ──►
//! ```
//!
//! From the SYN to the SYN+ACK the far half of the path is passed twice, from there to the ACK the near
//! half; together one round trip, wherever the capture was taken (Jiang and Dovrolis, 2002). A SYN that was
//! sent again is timed from its last repetition before the answer, because the earlier ones were most often
//! lost. The times that server and client take to answer are included: both answer from the kernel.

use core::net::IpAddr;

use alloc::vec::Vec;
use nilometer_wire::packet::{IpPacket, TcpSegment, Transport};

use crate::cache::{Cache, Keyed, Order};
use crate::live::key_of;
use crate::record::{FlowKey, tcp_flags};

/// One opening, measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The sender of the SYN.
    pub client: IpAddr,
    /// The host that answered it.
    pub server: IpAddr,
    /// From the SYN to the ACK of its answer, ns.
    pub nanos: u64,
}

/// What is known about an opening.
#[derive(Clone, Copy, Debug)]
struct Opening {
    key: FlowKey,
    syn_ns: u64,
    sequence: u32,
    /// The sequence number of the answer, once there was one.
    answer: Option<u32>,
}

impl Keyed for Opening {
    fn key(&self) -> &FlowKey {
        &self.key
    }
}

/// Measures round trips of a limited number of openings at once, and keeps a limited number of them.
#[derive(Debug)]
pub struct Handshakes {
    openings: Cache<Opening>,
    kept: Vec<RoundTrip>,
    kept_max: usize,
    beyond: u64,
}

impl Handshakes {
    /// Watches at most `openings_max` openings at once, some 100 bytes each (the oldest makes room), and
    /// keeps the first `kept_max` round trips, 48 bytes each.
    pub fn new(openings_max: usize, kept_max: usize) -> Handshakes {
        Handshakes { openings: Cache::new(openings_max), kept: Vec::new(), kept_max, beyond: 0 }
    }

    /// Takes a packet stamped `stamp_ns`.
    pub fn observe(&mut self, stamp_ns: u64, packet: &IpPacket) {
        const BOTH: u8 = tcp_flags::SYN | tcp_flags::ACK;
        let Transport::Tcp(segment) = packet.transport else { return };
        let key = key_of(packet);
        match segment.flags & (BOTH | tcp_flags::RST) {
            tcp_flags::SYN => self.open(stamp_ns, key, &segment),
            BOTH => self.answer(&key.reversed(), &segment),
            tcp_flags::ACK => self.acknowledge(stamp_ns, &key, &segment),
            _ => {}
        }
    }

    fn open(&mut self, stamp_ns: u64, key: FlowKey, segment: &TcpSegment) {
        let opening = Opening { key, syn_ns: stamp_ns, sequence: segment.sequence, answer: None };
        match self.openings.find(&key) {
            // The answer may have been lost behind the capture: the earlier state no longer counts.
            Some(slot) => *self.openings.value_mut(slot) = opening,
            None => {
                if self.openings.is_full()
                    && let Some(oldest) = self.openings.first(Order::Seen)
                {
                    self.openings.remove(oldest);
                }
                self.openings.insert(opening);
            }
        }
    }

    fn answer(&mut self, key: &FlowKey, segment: &TcpSegment) {
        let Some(slot) = self.openings.find(key) else { return };
        let opening = self.openings.value_mut(slot);
        if segment.acknowledgement == opening.sequence.wrapping_add(1) {
            opening.answer = Some(segment.sequence);
        }
    }

    fn acknowledge(&mut self, stamp_ns: u64, key: &FlowKey, segment: &TcpSegment) {
        let Some(slot) = self.openings.find(key) else { return };
        let opening = *self.openings.value(slot);
        let Some(answer) = opening.answer else { return };
        if segment.acknowledgement != answer.wrapping_add(1) {
            return;
        }
        self.openings.remove(slot);
        if self.kept.len() == self.kept_max {
            self.beyond += 1;
            return;
        }
        self.kept.push(RoundTrip {
            client: key.source,
            server: key.destination,
            nanos: stamp_ns.saturating_sub(opening.syn_ns),
        });
    }

    /// Forgets incomplete openings: the next packets are from another input.
    pub fn input_ends(&mut self) {
        while let Some(oldest) = self.openings.first(Order::Seen) {
            self.openings.remove(oldest);
        }
    }

    /// The round trips, in the order of their completion, and how many there was no room for.
    pub fn finish(self) -> (Vec<RoundTrip>, u64) {
        (self.kept, self.beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use nilometer_wire::build::Tcp;
    use nilometer_wire::link::LinkType;
    use nilometer_wire::packet::{Parsed, parse};

    const SYN: u8 = tcp_flags::SYN;
    const ACK: u8 = tcp_flags::ACK;

    fn ends(port: u16) -> [SocketAddr; 2] {
        [([198, 18, 0, 1], port).into(), ([198, 19, 0, 1], 80).into()]
    }

    fn see(
        handshakes: &mut Handshakes,
        stamp_ns: u64,
        [from, to]: [SocketAddr; 2],
        (flags, sequence, acknowledgement): (u8, u32, u32),
    ) {
        let packet = Tcp { flags, sequence, acknowledgement, ..Tcp::new(from, to) }.ip_packet();
        match parse(LinkType::RawIp, &packet, packet.len() as u32) {
            Parsed::Ip(packet) => handshakes.observe(stamp_ns, &packet),
            other => panic!("{other:?}"),
        }
    }

    fn turned([one, other]: [SocketAddr; 2]) -> [SocketAddr; 2] {
        [other, one]
    }

    #[test]
    fn both_halves_of_the_path_are_one_round_trip() {
        let mut handshakes = Handshakes::new(10, 10);
        let ends = ends(1_000);
        see(&mut handshakes, 1_000, ends, (SYN, u32::MAX, 0));
        see(&mut handshakes, 31_000, turned(ends), (SYN | ACK, 70, 0));
        see(&mut handshakes, 41_000, ends, (ACK, 0, 71));
        see(&mut handshakes, 99_000, ends, (ACK, 0, 71));
        let (kept, beyond) = handshakes.finish();
        let [client, server] = ends.map(|end| end.ip());
        assert_eq!((kept, beyond), (alloc::vec![RoundTrip { client, server, nanos: 40_000 }], 0));
    }

    #[test]
    fn a_syn_sent_again_counts_from_its_last_time() {
        let mut handshakes = Handshakes::new(10, 10);
        let ends = ends(1_000);
        for (stamp_ns, from, what) in [
            (0, ends, (SYN, 5, 0)),
            (1_000_000, ends, (SYN, 5, 0)),
            (1_020_000, turned(ends), (SYN | ACK, 9, 6)),
            (1_030_000, ends, (ACK, 6, 10)),
        ] {
            see(&mut handshakes, stamp_ns, from, what);
        }
        assert_eq!(handshakes.finish().0[0].nanos, 30_000);
    }

    #[test]
    fn unrelated_segments_give_no_round_trip() {
        let mut handshakes = Handshakes::new(10, 10);
        let ends = ends(1_000);
        see(&mut handshakes, 0, ends, (ACK, 6, 10));
        see(&mut handshakes, 1, turned(ends), (SYN | ACK, 9, 6));
        see(&mut handshakes, 2, ends, (SYN, 5, 0));
        see(&mut handshakes, 3, turned(ends), (SYN | ACK, 9, 77));
        see(&mut handshakes, 4, ends, (ACK, 6, 10));
        see(&mut handshakes, 5, turned(ends), (SYN | ACK, 9, 6));
        see(&mut handshakes, 6, ends, (ACK, 6, 99));
        assert!(handshakes.finish().0.is_empty());
    }

    #[test]
    fn an_opening_continued_in_another_input_gives_no_round_trip() {
        let mut handshakes = Handshakes::new(10, 10);
        let ends = ends(1_000);
        see(&mut handshakes, 0, ends, (SYN, 5, 0));
        see(&mut handshakes, 1, turned(ends), (SYN | ACK, 9, 6));
        handshakes.input_ends();
        see(&mut handshakes, 2, ends, (ACK, 6, 10));
        assert!(handshakes.finish().0.is_empty());
    }

    #[test]
    fn the_oldest_entry_is_evicted_and_surplus_samples_are_counted() {
        let mut handshakes = Handshakes::new(2, 1);
        for port in 1..=3 {
            see(&mut handshakes, port.into(), ends(port), (SYN, 5, 0));
        }
        for port in 1..=3 {
            see(&mut handshakes, 20, turned(ends(port)), (SYN | ACK, 9, 6));
            see(&mut handshakes, 30, ends(port), (ACK, 6, 10));
        }
        let (kept, beyond) = handshakes.finish();
        assert_eq!((kept.len(), kept[0].nanos, beyond), (1, 28, 1));
    }
}
