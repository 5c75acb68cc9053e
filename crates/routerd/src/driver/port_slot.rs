//! A port of the router and the device behind it.

use std::collections::VecDeque;

use nilometer_router::memory::Place;

use nilometer_linux::memory::PacketMemory;
use nilometer_linux::port::{AnyPort, PortIo, PortStatistics};
use nilometer_linux::tap::TapPort;

nilometer_wire::named! {
    /// Whether a port's device is there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Presence {
        /// It carries traffic.
        Up = "up",
        /// Its link is down.
        Down = "down",
        /// There is no device: it was removed, or not yet given.
        Gone = "gone",
    }
}

/// A port of the router and what stands behind it.
pub(super) struct PortSlot {
    pub(super) device: Option<AnyPort>,
    /// The kernel's side, to which packets for the router itself are punted.
    pub(super) beside: Option<TapPort>,
    pub(super) presence: Presence,
    /// Taken from the router, and not yet by the device.
    pub(super) leaving: VecDeque<Place>,
    /// The device had no room.
    pub(super) is_blocked: bool,
    pub(super) lost: Lost,
    /// The counters of earlier devices.
    before: PortStatistics,
}

/// Packets that left the pipeline and got no further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The device went before it took them.
    pub unsent: u64,
    /// Packets for which the kernel's side of the port had no room or did not exist.
    pub unpunted: u64,
}

impl PortSlot {
    /// A port without a device.
    pub(super) fn empty() -> PortSlot {
        PortSlot {
            device: None,
            beside: None,
            presence: Presence::Gone,
            leaving: VecDeque::new(),
            is_blocked: false,
            lost: Lost::default(),
            before: PortStatistics::default(),
        }
    }

    /// Closes the device behind the port, and gives back the packets that were to leave by it.
    pub(super) fn clear(&mut self, memory: &mut PacketMemory) {
        self.lost.unsent += self.leaving.len() as u64;
        self.leaving.drain(..).for_each(|place| memory.give(place));
        if let Some(mut device) = self.device.take() {
            self.before = added(self.before, device.statistics().unwrap_or_default());
            device.close(memory);
        }
        if let Some(beside) = self.beside.take() {
            beside.close(memory);
        }
    }

    /// What its devices have counted, one after the other.
    pub(super) fn statistics(&mut self) -> PortStatistics {
        let now = self.device.as_mut().and_then(|device| device.statistics().ok());
        added(self.before, now.unwrap_or_default())
    }
}

/// The sums of two accounts.
fn added(a: PortStatistics, b: PortStatistics) -> PortStatistics {
    PortStatistics {
        rx_packets: a.rx_packets + b.rx_packets,
        rx_bytes: a.rx_bytes + b.rx_bytes,
        tx_packets: a.tx_packets + b.tx_packets,
        tx_bytes: a.tx_bytes + b.tx_bytes,
        rx_dropped: a.rx_dropped + b.rx_dropped,
        rx_invalid: a.rx_invalid + b.rx_invalid,
        rx_ring_full: a.rx_ring_full + b.rx_ring_full,
        rx_fill_empty: a.rx_fill_empty + b.rx_fill_empty,
        rx_oversize: a.rx_oversize + b.rx_oversize,
        rx_partial_checksum: a.rx_partial_checksum + b.rx_partial_checksum,
        tx_partial_checksum: a.tx_partial_checksum + b.tx_partial_checksum,
        tx_invalid: a.tx_invalid + b.tx_invalid,
        tx_full: a.tx_full + b.tx_full,
    }
}
