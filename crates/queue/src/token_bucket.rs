//! A token bucket: a long-term rate with a bounded burst, exact to the picosecond.
//!
//! The bucket gains tokens at the contracted rate up to its depth; a packet is within the contract
//! if the bucket holds a token for each of its bytes, which it then takes (RFC 2697's committed
//! bucket; the leaky bucket as a meter of Turner 1986 seen from below). So in any span of length t
//! at most rate·t + depth bytes conform.
//!
//! Tokens are counted as bits times 10¹² per second: one bit per second fills one of these units in
//! one picosecond, so that a refill is a product of two integers and nothing is ever rounded.

use nilometer_wire::{Rate, Span, Time};

use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::settings_error::SettingsError;

/// Units of a byte: 8 bits for 10¹² picoseconds.
const UNITS_PER_BYTE: u128 = 8_000_000_000_000;

/// The bucket of a rate and a depth.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    depth: u128,
    level: u128,
    filled_at: Time,
}

impl TokenBucket {
    /// A full bucket of `depth_bytes`, which fills at `rate`.
    ///
    /// # Errors
    /// When the depth is zero: nothing would ever conform.
    pub fn new(rate: Rate, depth_bytes: u32) -> Result<TokenBucket, SettingsError> {
        if depth_bytes == 0 {
            return Err(SettingsError::TokenBucket("depth_bytes is zero"));
        }
        let depth = u128::from(depth_bytes) * UNITS_PER_BYTE;
        Ok(TokenBucket { rate, depth, level: depth, filled_at: Time::ZERO })
    }

    /// Takes tokens for `bytes` at `now` if there are enough; whether there were.
    pub fn take(&mut self, now: Time, bytes: u32) -> bool {
        self.fill(now);
        let cost = u128::from(bytes) * UNITS_PER_BYTE;
        let conforms = cost <= self.level;
        if conforms {
            self.level -= cost;
        }
        conforms
    }

    /// The first moment from `now` on at which there are tokens for `bytes` if none are taken
    /// before. Nothing when there never will be: the packet is larger than the bucket is deep.
    pub fn ready_at(&mut self, now: Time, bytes: u32) -> Option<Time> {
        self.fill(now);
        let cost = u128::from(bytes) * UNITS_PER_BYTE;
        if cost > self.depth {
            return None;
        }
        let missing = cost.saturating_sub(self.level);
        let wait = missing.div_ceil(u128::from(self.rate.bits_per_second()));
        Some(now + Span(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// Whole bytes for which there are tokens at `now`.
    pub fn level_bytes(&mut self, now: Time) -> u32 {
        self.fill(now);
        (self.level / UNITS_PER_BYTE) as u32
    }

    fn fill(&mut self, now: Time) {
        let span = now.since(self.filled_at);
        let gained = u128::from(span.0) * u128::from(self.rate.bits_per_second());
        self.level = (self.level + gained).min(self.depth);
        self.filled_at = self.filled_at.max(now);
    }
}

/// A policer before any discipline: what is beyond its contract is dropped on arrival.
#[derive(Clone, Debug)]
pub struct Policer<D> {
    bucket: TokenBucket,
    inner: D,
}

impl<D> Policer<D> {
    /// Lets through to `inner` what conforms to `bucket`.
    pub fn new(bucket: TokenBucket, inner: D) -> Policer<D> {
        Policer { bucket, inner }
    }

    /// The discipline behind it.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<P: Packet, D: Discipline<P>> Discipline<P> for Policer<D> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) {
        if self.bucket.take(now, packet.bytes()) {
            self.inner.enqueue(now, packet, drops);
        } else {
            drops.dropped(Reason::Policed, packet);
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.inner.dequeue(now, drops)
    }

    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }
}
