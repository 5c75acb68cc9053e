//! The clock of the timestamp option (RFC 7323).

use nilometer_wire::{Span, Time};

/// The clock ticks once in this many picoseconds (a millisecond, as Linux).
const TICK: u64 = 1_000_000_000;

/// Timestamps as they stand in a segment sent at `now`.
#[inline]
pub(crate) fn at(now: Time) -> u32 {
    ((now.0 / TICK) as u32).wrapping_add(1)
}

/// The time since the timestamp `echo`, if it is one of the past.
#[inline]
pub(crate) fn since(now: Time, echo: u32) -> Option<Span> {
    let ticks = at(now).wrapping_sub(echo);
    (ticks < 1 << 31).then(|| Span(u64::from(ticks.max(1)) * TICK))
}
