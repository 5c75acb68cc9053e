//! A packet on its way to the meter, with where its flow is to be looked for.

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

/// Where a packet's flow is to be looked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) hash: u64,
    /// Where it stood a while ago, or another one with the same hash; perhaps nobody does any more.
    pub(crate) slot: Option<Slot>,
}
