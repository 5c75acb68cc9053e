//! Limits on a port's link: its rate, its burst, its delay.

use nilometer_router::Fabric;
use nilometer_router::memory::Ticket;
use nilometer_wire::{Rate, Span};

use super::config::PortSection;

/// The largest burst that a link may have, in bytes.
pub const BURST_BYTES_MAX: u64 = 1 << 30;
/// The greatest added delay of a link: packets on it keep their buffers and places.
pub const DELAY_MAX: Span = Span::from_secs(60);

/// The pace of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The rate of the link; without one, only the device limits it.
    pub rate: Option<Rate>,
    /// Bytes that it sends at once beyond the rate when it was served late
    /// ([`nilometer_router::Fabric::set_burst`]).
    pub burst_bytes: Option<u64>,
    /// By how much it is made longer.
    pub delay: Span,
}

impl Pace {
    /// Applies the pace to the link of output `number`.
    pub fn set(self, fabric: &mut Fabric<Ticket>, number: usize) {
        fabric.set_rate(number, self.rate);
        fabric.set_burst(number, self.burst_bytes);
        fabric.set_delay(number, self.delay);
    }
}

impl PortSection {
    /// The pace of its link.
    pub fn pace(&self) -> Pace {
        Pace { rate: self.rate, burst_bytes: self.burst_bytes, delay: self.delay }
    }
}

/// Checks a burst size in bytes.
///
/// # Errors
/// When the burst is out of range.
pub fn checked_burst(bytes: u64) -> Result<(), String> {
    match bytes <= BURST_BYTES_MAX {
        true => Ok(()),
        false => Err(format!("burst_bytes is {bytes}; give 0 to {BURST_BYTES_MAX}")),
    }
}

/// Checks the added delay of a link.
///
/// # Errors
/// When the delay is too long.
pub fn checked_delay(delay: Span) -> Result<Span, String> {
    match delay <= DELAY_MAX {
        true => Ok(delay),
        false => Err(format!("delay is {} s; give 0 to 60 s", delay.as_secs_f64())),
    }
}
