//! RED: drops at a probability that follows the average queue, before the buffer is full.
//!
//! Floyd and Jacobson (IEEE/ACM Transactions on Networking 1(4), 1993), their Figure 2. At each
//! arrival the average is brought up to date,
//!
//! * the queue not empty: avg ← (1 − w)·avg + w·q;
//! * the queue empty for some time: avg ← (1 − w)^m·avg, where m is the number of packets of
//!   typical size that the link could have sent in that time (section 11). The link falls idle when
//!   the last packet has been sent, not when it leaves the queue, and idle time that one arrival
//!   has counted is not counted again by the next, if the first was dropped (as in ns-2 and Linux);
//!
//! and with min ≤ avg < max the packet is dropped at the probability p/(1 − count·p), where
//! p = max_p·(avg − min)/(max − min) and count is the number of packets let through since the last
//! drop: the gaps between drops become uniform over 1 … 1/p instead of geometric, so drops neither
//! cluster nor fail to come. From max on every packet is dropped; with `gentle` (Floyd 2000) the
//! probability rises from max_p at max to 1 at twice max first.
//!
//! Where marking is enabled, packets that are capable of ECN are marked instead of dropped as long
//! as the drop would have been one of probability; beyond that they are dropped (RFC 3168, section
//! 7). A packet that finds the buffer itself full is dropped whatever the average says, and counts
//! as a drop.

use nilometer_stat::Rng;
use nilometer_wire::{Rate, Time};

use crate::bounded::Bounded;
use crate::capacity::Capacity;
use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::settings_error::SettingsError;

/// RED's parameters. The defaults are Table 3 of the router paper of 2005.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedOptions {
    /// max_p: the probability at the maximum threshold, above 0 and at most 1.
    pub max_probability: f64,
    /// w: the weight of the newest queue length in the average, above 0 and at most 1.
    pub weight: f64,
    /// The minimum threshold, in percent of the capacity.
    pub min_percent: f64,
    /// The maximum threshold, in percent of the capacity; above the minimum.
    pub max_percent: f64,
    /// Whether the probability rises from max_p to 1 between one and two maximum thresholds.
    pub gentle: bool,
    /// Whether packets that are capable of ECN are marked instead of dropped.
    pub ecn: bool,
    /// The size of a typical packet, the unit in which idle time is counted; not zero.
    pub typical_bytes: u32,
}

impl Default for RedOptions {
    fn default() -> RedOptions {
        RedOptions {
            max_probability: 0.01,
            weight: 0.001,
            min_percent: 20.0,
            max_percent: 100.0,
            gentle: false,
            ecn: false,
            typical_bytes: 1_500,
        }
    }
}

impl RedOptions {
    fn check(&self) -> Result<(), SettingsError> {
        let in_unit = |value: f64| value > 0.0 && value <= 1.0;
        let wrong = if !in_unit(self.max_probability) {
            "max_probability is not in (0, 1]"
        } else if !in_unit(self.weight) {
            "weight is not in (0, 1]"
        } else if !(self.min_percent >= 0.0 && self.max_percent > self.min_percent) {
            "min_percent is not below max_percent"
        } else if !self.max_percent.is_finite() {
            "max_percent is not finite"
        } else if self.typical_bytes == 0 {
            "typical_bytes is zero"
        } else {
            return Ok(());
        };
        Err(SettingsError::Red(wrong))
    }
}

/// The decision of the average on an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrivalDecision {
    Pass,
    /// Unlucky: mark or drop.
    Chosen,
    /// Beyond the range in which marking applies.
    Drop,
}

/// Random early detection.
#[derive(Clone, Debug)]
pub struct Red<P> {
    waiting: Bounded<P>,
    options: RedOptions,
    /// Thresholds and average in units of the capacity.
    min: f64,
    max: f64,
    average: f64,
    /// Packets since the last drop with the average between the thresholds; −1 when it was outside.
    count: i64,
    /// The moment up to which idle time has been counted, or from which the link will be idle.
    idle_since: Time,
    rate: Rate,
    rng: Rng,
}

impl<P: Packet> Red<P> {
    /// An empty queue before a link of `rate`, its chances drawn from `rng`.
    ///
    /// # Errors
    /// When the capacity is zero or `options` are out of their ranges.
    pub fn new(
        capacity: Capacity,
        options: RedOptions,
        rate: Rate,
        rng: Rng,
    ) -> Result<Red<P>, SettingsError> {
        options.check()?;
        if capacity.limit() == 0 {
            return Err(SettingsError::NoCapacity);
        }
        let limit = capacity.limit() as f64;
        Ok(Red {
            waiting: Bounded::new(capacity),
            options,
            min: limit * options.min_percent / 100.0,
            max: limit * options.max_percent / 100.0,
            average: 0.0,
            count: -1,
            idle_since: Time::ZERO,
            rate,
            rng,
        })
    }

    /// The average queue, in units of the capacity.
    pub fn average(&self) -> f64 {
        self.average
    }

    fn update_average(&mut self, now: Time) {
        let length = self.waiting.occupancy().units();
        let weight = self.options.weight;
        if length > 0 {
            self.average += weight * (length as f64 - self.average);
            return;
        }
        let typical = self.rate.span_of(u64::from(self.options.typical_bytes));
        let missed = now.since(self.idle_since).0 as f64 / (typical.0 as f64).max(1.0);
        self.average *= libm::pow(1.0 - weight, missed);
        self.idle_since = self.idle_since.max(now);
    }

    /// The probability of a drop before its spacing, with the average at the minimum or beyond; 1
    /// means without choice.
    fn probability(&self) -> f64 {
        let RedOptions { max_probability, gentle, .. } = self.options;
        if self.average < self.max {
            max_probability * (self.average - self.min) / (self.max - self.min)
        } else if gentle && self.average < 2.0 * self.max {
            max_probability + (1.0 - max_probability) * (self.average - self.max) / self.max
        } else {
            1.0
        }
    }

    fn judge(&mut self) -> ArrivalDecision {
        if self.average < self.min {
            self.count = -1;
            return ArrivalDecision::Pass;
        }
        let probability = self.probability();
        if probability >= 1.0 {
            self.count = 0;
            return ArrivalDecision::Drop;
        }
        self.count += 1;
        let left = 1.0 - self.count as f64 * probability;
        // At count = 1/p the spaced probability reaches 1 and the drop is due.
        let is_chosen = left <= probability || self.rng.unit() < probability / left;
        if is_chosen {
            self.count = 0;
            ArrivalDecision::Chosen
        } else {
            ArrivalDecision::Pass
        }
    }
}

impl<P: Packet> Discipline<P> for Red<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, drops: &mut impl Drops<P>) {
        let bytes = packet.bytes();
        let refusal = self.waiting.refusal(bytes);
        if refusal == Some(Reason::TooBig) {
            drops.dropped(Reason::TooBig, packet);
            return;
        }
        self.update_average(now);
        let may_mark = self.options.ecn && packet.ecn().is_capable();
        match self.judge() {
            ArrivalDecision::Chosen if may_mark && refusal.is_none() => packet.mark(),
            ArrivalDecision::Pass => {}
            _ => return drops.dropped(Reason::Early, packet),
        }
        if let Some(reason) = refusal {
            self.count = 0;
            return drops.dropped(reason, packet);
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
