//! A packet on its way to the meter, with the place where its flow should be.

use nilometer_wire::brief::Brief;

use crate::cache::Slot;

/// A packet on its way to the meter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queued {
    /// When it was seen, ns since 1970.
    pub(crate) stamp_ns: u64,
    /// The packet.
    pub packet: Brief,
    pub(crate) place: Place,
}

/// Where to look for a packet's flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) hash: u64,
    /// The slot where the flow, or another one with the same hash, was a while ago; it may be free
    /// by now.
    pub(crate) slot: Option<Slot>,
}
