//! A packet that entered the device, while it is held.

use nilometer_wire::Time;

use crate::fingerprint::Fingerprint;

/// A packet that entered.
#[derive(Debug)]
pub struct Entry {
    pub at: Time,
    pub print: Fingerprint,
    /// The one behind it in its line.
    pub next: Option<u64>,
    pub state: EntryState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    Waiting,
    Met,
    /// Met by a damaged exit of this digest.
    Damaged(u64),
    Consumed,
}

impl Entry {
    /// Neither matched nor addressed to the device.
    pub fn is_waiting(&self) -> bool {
        self.state == EntryState::Waiting
    }
}
