//! Where stamped arrivals are read: at an interface of this host, or from a receiver on another one.

use anyhow::Result;
use nilometer_linux::stamp::{Arrival, Arrivals};

use super::remote::{ClockSeen, RemoteArrivals};

/// The arrivals of one stream.
pub(super) enum ArrivalSource {
    /// At an interface of this host.
    Here(Arrivals),
    /// From another host.
    Elsewhere(RemoteArrivals),
}

impl ArrivalSource {
    /// Whether arrivals have stamps; they are only counted otherwise.
    pub fn is_stamped(&self) -> bool {
        !matches!(self, ArrivalSource::Here(Arrivals::Counted(_)))
    }

    /// What takes the stamps, in words.
    pub fn described(&self) -> &str {
        match self {
            ArrivalSource::Here(arrivals) => arrivals.described(),
            ArrivalSource::Elsewhere(arrivals) => arrivals.stamped_by(),
        }
    }

    /// Passes every frame that has arrived to `each`; returns how many there were.
    ///
    /// # Errors
    /// When the interface or the other host is gone.
    pub fn drain(&mut self, each: impl FnMut(Arrival<'_>)) -> Result<usize> {
        match self {
            ArrivalSource::Here(arrivals) => arrivals.drain(each),
            ArrivalSource::Elsewhere(arrivals) => arrivals.drain(each),
        }
    }

    /// Frames that found the receiver's ring full.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn lost(&mut self) -> Result<u64> {
        match self {
            ArrivalSource::Here(arrivals) => arrivals.lost(),
            ArrivalSource::Elsewhere(arrivals) => Ok(arrivals.lost()),
        }
    }

    /// The most frames in the receiver's ring at once.
    pub fn most_waiting(&self) -> u64 {
        match self {
            ArrivalSource::Here(arrivals) => arrivals.most_waiting(),
            ArrivalSource::Elsewhere(arrivals) => arrivals.most_waiting(),
        }
    }

    /// The share of its processors' time that a hypervisor took from another host; known when the trial has ended.
    pub fn stolen_share(&self) -> f64 {
        match self {
            ArrivalSource::Here(_) => 0.0,
            ArrivalSource::Elsewhere(arrivals) => arrivals.stolen_share(),
        }
    }

    /// Ends the trial at another host; whether there is one.
    ///
    /// # Errors
    /// When it is gone.
    pub fn finish(&mut self) -> Result<bool> {
        match self {
            ArrivalSource::Here(_) => Ok(false),
            ArrivalSource::Elsewhere(arrivals) => arrivals.finish().map(|()| true),
        }
    }

    /// The other host's clock, where there is one with a known offset.
    pub fn clock(&self) -> Option<ClockSeen> {
        match self {
            ArrivalSource::Here(_) => None,
            ArrivalSource::Elsewhere(arrivals) => arrivals.clock(),
        }
    }

    /// Whether there is another host whose clock's offset is not known.
    pub fn is_clock_inconsistent(&self) -> bool {
        matches!(self, ArrivalSource::Elsewhere(arrivals) if arrivals.is_clock_inconsistent())
    }
}
