//! How much a port's queue holds by default.
//!
//! A buffer of a bandwidth-delay product keeps a link busy while one TCP connection halves its window
//! (Villamizar and Song, "High performance TCP in ANSNET", 1994), and what it holds above that only adds
//! delay. The round trip that is provided for is [`HELD`], so a full queue delays by as much at any rate.
//! It is counted in packets of `PACKET_BYTES`, since packets take buffers of the router's memory
//! whatever their size. A slow link has the lower end of `PACKETS`, so that a burst of several flows
//! finds room; a fast one has the upper end, which a port without any queue setting has, too.

use std::ops::RangeInclusive;

use nilometer_sim::queueing::QueueSpec;
use nilometer_wire::{Rate, Span};

use super::config::RouterConfig;

/// The time for which a queue holds what its link carries.
pub const HELD: Span = Span::from_nanos(50_000_000);
/// A full frame of Ethernet.
const PACKET_BYTES: u64 = 1_514;
/// Packets that a queue holds at least and at most.
const PACKETS: RangeInclusive<u64> = 32..=2_048;

/// Packets that a queue before a link of this rate holds.
pub fn packets(rate: Rate) -> u32 {
    let bits = u128::from(rate.bits_per_second()) * u128::from(HELD.as_nanos()) / 1_000_000_000;
    let packets = (bits / 8).div_ceil(PACKET_BYTES.into());
    let packets = u64::try_from(packets).unwrap_or(u64::MAX);
    packets.clamp(*PACKETS.start(), *PACKETS.end()) as u32
}

/// The queue with its size filled in, for a link of this rate.
pub fn sized(queue: QueueSpec, rate: Rate) -> QueueSpec {
    match queue.has_size() {
        true => queue,
        false => QueueSpec { buffer_packets: Some(packets(rate)), ..queue },
    }
}

impl RouterConfig {
    /// The rate for which the queue of a port is sized and configured: its link's, or that of a link of
    /// the fabric where only the device limits it.
    pub fn queue_rate(&self, number: usize) -> Rate {
        let port = self.ports.get(number);
        port.and_then(|port| port.rate).unwrap_or(self.fabric.link_rate)
    }

    /// Fills in the size of every described queue.
    pub fn size_queues(&mut self) {
        for number in 0..self.ports.len() {
            let rate = self.queue_rate(number);
            let queue = &mut self.ports[number].queue;
            *queue = queue.take().map(|queue| sized(queue, rate));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_delays_by_so_much_at_any_rate_between() {
        for (bits, expected) in [
            (64_000, 32),
            (1_000_000, 32),
            (20_000_000, 83),
            (100_000_000, 413),
            (1_000_000_000, 2_048),
            (100_000_000_000_000, 2_048),
        ] {
            assert_eq!(packets(Rate::new(bits).expect("a rate")), expected, "{bits} b/s");
        }
        let stated = QueueSpec { buffer_bytes: Some(9_000), ..QueueSpec::default() };
        assert_eq!(sized(stated.clone(), Rate::from_megabits(20)), stated);
    }
}
