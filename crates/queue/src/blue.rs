//! Blue: a drop probability that losses raise and an idle link lowers.
//!
//! Feng, Kandlur, Saha, Shin (University of Michigan, CSE-TR-387-99): instead of reading congestion
//! off the queue's length, Blue reads it off what the queue failed to do. There is one probability p
//! for all arrivals, and a freeze time after each change, during which nothing changes it:
//!
//! * a packet is lost because the buffer is full, or the queue is longer than L:
//!   if now − last change > freeze, p ← p + d₁;
//! * the link is idle: if now − last change > freeze, p ← p − d₂.
//!
//! d₁ is larger than d₂, since an idle link can also mean that there is nothing to send.
//!
//! "Idle" is a state, not a moment, and is treated as one here: as long as the link stays idle, p
//! falls by d₂ once per freeze time. What is due is worked out when the next packet arrives, in one
//! step. The link becomes idle when its last packet has been sent, not when it left the queue. Where
//! p is already 0 or 1, nothing changes and nothing freezes.
//!
//! p is kept as a whole number of 2⁻⁵³, the spacing of the draws that it is compared with, so that
//! many steps at once are exactly as many single steps.

use nilometer_stat::Rng;
use nilometer_wire::{Rate, Span, Time};

use crate::bounded::Bounded;
use crate::capacity::Capacity;
use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::settings_error::SettingsError;

/// A probability of 1.
const ONE: u64 = 1 << 53;

/// Blue's parameters, as CSE-TR-387-99 names them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlueOptions {
    /// d₁: what a loss adds to the probability, 0 to 1.
    pub increment: f64,
    /// d₂: what an idle link takes off it, 0 to 1.
    pub decrement: f64,
    /// The least time between two changes; not zero.
    pub freeze: Span,
    /// L, in percent of the capacity: an arrival that finds more than this counts as a loss.
    /// `None`: only losses count.
    pub threshold_percent: Option<f64>,
    /// Whether packets that are capable of ECN are marked instead of dropped.
    pub ecn: bool,
}

impl BlueOptions {
    /// d₁ 0.02, d₂ 0.002, freeze 100 ms: one of the settings of CSE-TR-387-99, and the one that the
    /// QSDRR study is reconstructed to have used.
    pub const STUDY: BlueOptions = BlueOptions {
        increment: 0.02,
        decrement: 0.002,
        freeze: Span(100_000_000_000),
        threshold_percent: None,
        ecn: false,
    };

    /// d₁ 0.0025, d₂ 0.00025, freeze 100 ms: the other common choice, ten times as slow, also of
    /// CSE-TR-387-99.
    pub const SLOW: BlueOptions =
        BlueOptions { increment: 0.0025, decrement: 0.00025, ..BlueOptions::STUDY };

    fn check(&self) -> Result<(), SettingsError> {
        let in_unit = |value: f64| (0.0..=1.0).contains(&value);
        let wrong = if !in_unit(self.increment) {
            "increment is not in [0, 1]"
        } else if !in_unit(self.decrement) {
            "decrement is not in [0, 1]"
        } else if self.freeze == Span::ZERO {
            "freeze is zero"
        } else if !self.threshold_percent.is_none_or(|percent| percent >= 0.0) {
            "threshold_percent is negative"
        } else {
            return Ok(());
        };
        Err(SettingsError::Blue(wrong))
    }
}

impl Default for BlueOptions {
    fn default() -> BlueOptions {
        BlueOptions::STUDY
    }
}

/// The Blue queue (Feng and others, CSE-TR-387-99).
#[derive(Clone, Debug)]
pub struct Blue<P> {
    waiting: Bounded<P>,
    options: BlueOptions,
    /// L in units of the capacity.
    threshold: f64,
    /// p, d₁ and d₂ in units of 2⁻⁵³.
    probability: u64,
    increment: u64,
    decrement: u64,
    last_change: Option<Time>,
    idle_since: Time,
    rate: Rate,
    rng: Rng,
}

impl<P: Packet> Blue<P> {
    /// An empty queue before a link of `rate`, its chances drawn from `rng`; p is zero.
    ///
    /// # Errors
    /// When the capacity is zero or `options` are out of their ranges.
    pub fn new(
        capacity: Capacity,
        options: BlueOptions,
        rate: Rate,
        rng: Rng,
    ) -> Result<Blue<P>, SettingsError> {
        options.check()?;
        if capacity.limit() == 0 {
            return Err(SettingsError::NoCapacity);
        }
        let percent = options.threshold_percent.unwrap_or(f64::INFINITY);
        Ok(Blue {
            waiting: Bounded::new(capacity),
            options,
            threshold: capacity.limit() as f64 * percent / 100.0,
            probability: 0,
            increment: (options.increment * ONE as f64) as u64,
            decrement: (options.decrement * ONE as f64) as u64,
            last_change: None,
            idle_since: Time::ZERO,
            rate,
            rng,
        })
    }

    /// p: the probability at which an arrival is dropped.
    pub fn probability(&self) -> f64 {
        self.probability as f64 / ONE as f64
    }

    /// The first moment at which p may change again.
    fn thaws(&self) -> Time {
        self.last_change.map_or(Time::ZERO, |last| last + self.options.freeze + Span(1))
    }

    /// A loss, or what counts as one.
    fn congested(&mut self, now: Time) {
        let raised = (self.probability + self.increment).min(ONE);
        if raised > self.probability && now >= self.thaws() {
            self.probability = raised;
            self.last_change = Some(now);
        }
    }

    /// The link has been idle until `now`: every decrease that has become due since it went idle.
    fn idled(&mut self, now: Time) {
        let first = self.thaws().max(self.idle_since);
        if now <= first || self.probability == 0 || self.decrement == 0 {
            return;
        }
        let step = self.options.freeze + Span(1);
        let due = (now.0 - first.0).div_ceil(step.0);
        let steps = due.min(self.probability.div_ceil(self.decrement));
        self.probability = self.probability.saturating_sub(self.decrement * steps);
        self.last_change = Some(first + step * (steps - 1));
    }
}

impl<P: Packet> Discipline<P> for Blue<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, drops: &mut impl Drops<P>) {
        let bytes = packet.bytes();
        let length = self.waiting.occupancy().units();
        if length == 0 {
            self.idled(now);
        }
        let refusal = self.waiting.refusal(bytes);
        if refusal == Some(Reason::Full) || length as f64 > self.threshold {
            self.congested(now);
        }
        if let Some(reason) = refusal {
            return drops.dropped(reason, packet);
        }
        if self.probability > 0 && self.rng.next_u64() >> 11 < self.probability {
            if !(self.options.ecn && packet.ecn().is_capable()) {
                return drops.dropped(Reason::Early, packet);
            }
            packet.mark();
        }
        self.waiting.push(bytes, packet);
    }

    fn dequeue(&mut self, now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        let packet = self.waiting.pop(P::bytes)?;
        if self.waiting.occupancy().units() == 0 {
            self.idle_since = now + self.rate.span_of(u64::from(packet.bytes()));
        }
        Some(packet)
    }

    fn backlog(&self) -> Backlog {
        self.waiting.backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings of CSE-TR-387-99.
    #[test]
    fn the_named_settings_are_the_published_ones() {
        let of = |one: BlueOptions| (one.increment, one.decrement, one.freeze);
        assert_eq!(of(BlueOptions::STUDY), (0.02, 0.002, Span::from_nanos(100_000_000)));
        assert_eq!(of(BlueOptions::SLOW), (0.0025, 0.00025, Span::from_nanos(100_000_000)));
    }
}
