//! Round-trip times from TCP's time stamps (RFC 7323), where openings were not seen.
//!
//! ```text
//! one ── data, value 7 ──► capture ──────────► other
//!                             ◄── echo 7 ────
//! ```
//!
//! A segment with data has to be acknowledged, and the acknowledgement echoes its value: between the two lies
//! the far half of the path, passed twice. The other direction's data shows the near half. The
//! least of each half over a connection, added, is its round trip (Nichols, *Listening to Networks*, 2018,
//! which names this passive ping): the least, because receivers may delay an acknowledgement. For each
//! direction the echo of one value is awaited at a time, as TCP itself times one segment at a time (Karn and
//! Partridge, 1987); an echo of a later value shows that the awaited one will not come.

use alloc::vec::Vec;

use nilometer_wire::packet::{IpPacket, TcpSegment, Transport};

use crate::cache::{Cache, Keyed, Order};
use crate::handshake::RoundTrip;
use crate::live::key_of;
use crate::record::{FlowKey, tcp_flags};

/// One direction: the awaited value, and the least time measured.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    /// A value, and when it passed, ns.
    waited: Option<(u32, u64)>,
    /// The last value that passed.
    last: Option<u32>,
    least_ns: Option<u64>,
}

impl Half {
    /// A segment with this value passes. A value that passed before is not awaited, since it may have been
    /// echoed already.
    fn passes(&mut self, value: u32, stamp_ns: u64, is_answered: bool) {
        if self.last.is_some_and(|last| !is_later(value, last)) {
            return;
        }
        self.last = Some(value);
        if is_answered && self.waited.is_none() {
            self.waited = Some((value, stamp_ns));
        }
    }

    /// An echo of this value comes back.
    fn is_echoed(&mut self, echo: u32, stamp_ns: u64) {
        let Some((value, sent_ns)) = self.waited else { return };
        if echo == value {
            let took_ns = stamp_ns.saturating_sub(sent_ns);
            self.least_ns = Some(self.least_ns.map_or(took_ns, |least| least.min(took_ns)));
        }
        if echo == value || is_later(echo, value) {
            self.waited = None;
        }
    }
}

/// Is `one` later than `other`, on a clock of 32 bits that wraps?
fn is_later(one: u32, other: u32) -> bool {
    one != other && one.wrapping_sub(other) < 1 << 31
}

/// A connection, and its two directions: that of its key first.
#[derive(Clone, Copy, Debug)]
struct Watched {
    key: FlowKey,
    halves: [Half; 2],
}

impl Keyed for Watched {
    fn key(&self) -> &FlowKey {
        &self.key
    }
}

/// Measures round trips of a limited number of connections at once, and keeps a limited number of them.
#[derive(Debug)]
pub struct Echoes {
    watched: Cache<Watched>,
    kept: Vec<RoundTrip>,
    kept_max: usize,
    beyond: u64,
}

impl Echoes {
    /// Watches at most `connections_max` at once, some 160 bytes each (the oldest makes room), and keeps the first
    /// `kept_max` round trips, 48 bytes each.
    pub fn new(connections_max: usize, kept_max: usize) -> Echoes {
        Echoes { watched: Cache::new(connections_max), kept: Vec::new(), kept_max, beyond: 0 }
    }

    /// Takes a packet stamped `stamp_ns`.
    pub fn observe(&mut self, stamp_ns: u64, packet: &IpPacket) {
        let Transport::Tcp(segment) = packet.transport else { return };
        let Some(stamps) = segment.time_stamps else { return };
        let key = key_of(packet);
        // Client to server: the server has the lower port.
        let is_up = key.destination_port <= key.source_port;
        let slot = self.slot(if is_up { key } else { key.reversed() });
        let [mine, other] = match (&mut self.watched.value_mut(slot).halves, is_up) {
            ([up, down], true) => [up, down],
            ([up, down], false) => [down, up],
        };
        if segment.flags & tcp_flags::ACK != 0 {
            other.is_echoed(stamps.echo, stamp_ns);
        }
        mine.passes(stamps.value, stamp_ns, is_answered(&segment));
        self.watched.move_last(Order::Seen, slot);
    }

    /// Ends all watched connections: the next packets are from another input.
    pub fn input_ends(&mut self) {
        while self.end_oldest() {}
    }

    /// The round trips, in the order in which connections were forgotten, and how many there was no room for.
    pub fn finish(mut self) -> (Vec<RoundTrip>, u64) {
        self.input_ends();
        (self.kept, self.beyond)
    }

    fn slot(&mut self, key: FlowKey) -> crate::cache::Slot {
        if let Some(slot) = self.watched.find(&key) {
            return slot;
        }
        if self.watched.is_full() {
            self.end_oldest();
        }
        self.watched.insert(Watched { key, halves: Default::default() })
    }

    /// Forgets the least recently seen connection; false where there is none.
    fn end_oldest(&mut self) -> bool {
        let Some(oldest) = self.watched.first(Order::Seen) else { return false };
        let Watched { key, halves: [up, down] } = self.watched.remove(oldest);
        if let (Some(far_ns), Some(near_ns)) = (up.least_ns, down.least_ns) {
            if self.kept.len() == self.kept_max {
                self.beyond += 1;
            } else {
                let nanos = far_ns.saturating_add(near_ns);
                self.kept.push(RoundTrip { client: key.source, server: key.destination, nanos });
            }
        }
        true
    }
}

/// Must this segment be acknowledged?
fn is_answered(segment: &TcpSegment) -> bool {
    segment.payload_bytes > 0 || segment.flags & (tcp_flags::SYN | tcp_flags::FIN) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use nilometer_wire::packet::{Fragment, TimeStamps};

    const ACK: u8 = tcp_flags::ACK;

    fn see(echoes: &mut Echoes, at_ns: u64, is_up: bool, bytes: u32, (value, echo): (u32, u32)) {
        let ends: [(IpAddr, u16); 2] =
            [([198, 18, 0, 1].into(), 40_000), ([198, 19, 0, 1].into(), 80)];
        let [(source, source_port), (destination, destination_port)] =
            if is_up { ends } else { [ends[1], ends[0]] };
        let segment = TcpSegment {
            source_port,
            destination_port,
            sequence: 0,
            acknowledgement: 0,
            flags: ACK,
            window: 9,
            payload_bytes: bytes,
            time_stamps: Some(TimeStamps { value, echo }),
            cut_options_bytes: None,
        };
        let packet = IpPacket {
            source,
            destination,
            protocol: 6,
            traffic_class: 0,
            hop_limit: 64,
            ip_bytes: 52 + bytes,
            fragment: Fragment::Whole,
            transport: Transport::Tcp(segment),
            encapsulated: false,
        };
        echoes.observe(at_ns, &packet);
    }

    fn found(echoes: Echoes) -> Vec<u64> {
        echoes.finish().0.iter().map(|one| one.nanos).collect()
    }

    #[test]
    fn both_halves_at_their_least_are_the_round_trip() {
        let mut echoes = Echoes::new(10, 10);
        see(&mut echoes, 1_000, true, 100, (u32::MAX, 70));
        see(&mut echoes, 1_900, true, 100, (0, 70));
        see(&mut echoes, 5_000, false, 0, (71, u32::MAX));
        see(&mut echoes, 6_000, false, 900, (72, 0));
        see(&mut echoes, 6_300, true, 0, (1, 72));
        // Later, and slower.
        see(&mut echoes, 20_000, true, 100, (5, 72));
        see(&mut echoes, 29_000, false, 0, (90, 5));
        assert_eq!(found(echoes), [4_000 + 300]);
    }

    #[test]
    fn packets_that_require_no_answer_are_not_waited_for() {
        let mut echoes = Echoes::new(10, 10);
        see(&mut echoes, 1_000, true, 0, (1, 70));
        see(&mut echoes, 9_000, false, 10, (71, 1));
        see(&mut echoes, 9_500, true, 0, (2, 71));
        assert!(found(echoes).is_empty(), "one half alone is none");
    }

    #[test]
    fn a_lost_echo_gives_no_long_round_trip() {
        let mut echoes = Echoes::new(10, 10);
        see(&mut echoes, 1_000, true, 100, (1, 70));
        see(&mut echoes, 2_000, true, 100, (2, 70));
        see(&mut echoes, 8_000, false, 10, (71, 2));
        see(&mut echoes, 8_100, true, 100, (2, 71));
        see(&mut echoes, 8_200, true, 100, (3, 71));
        see(&mut echoes, 8_700, false, 0, (72, 3));
        see(&mut echoes, 9_900, false, 0, (73, 1));
        assert_eq!(found(echoes), [500 + 100]);
    }

    #[test]
    fn the_oldest_entry_is_evicted_and_surplus_samples_are_counted() {
        let mut echoes = Echoes::new(1, 1);
        for turn in 0..3u64 {
            see(&mut echoes, turn * 10_000, true, 100, (1, 70));
            see(&mut echoes, turn * 10_000 + 40, false, 10, (71, 1));
            see(&mut echoes, turn * 10_000 + 50, true, 0, (2, 71));
            echoes.input_ends();
        }
        let (kept, beyond) = echoes.finish();
        assert_eq!((kept.len(), kept[0].nanos, beyond), (1, 50, 2));
    }
}
