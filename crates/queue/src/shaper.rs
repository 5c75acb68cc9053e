//! A shaper (RFC 2475, 2.3.3.3): any discipline, released no faster than a token bucket fills.
//!
//! The next packet is taken out of the discipline as soon as the link first requests it, and held
//! until the bucket has tokens for it; it still counts as waiting. That fixes the order one packet
//! early, which is the price of not asking every discipline to show what it would send. A link that
//! is given nothing learns from [`Shaper::ready_at`] when to try again. A packet larger than the
//! bucket's depth would wait for ever, and is dropped on arrival.

use nilometer_wire::Time;

use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::token_bucket::TokenBucket;

/// A discipline behind a token bucket (RFC 2475, 2.3.3.3).
#[derive(Clone, Debug)]
pub struct Shaper<P, D> {
    bucket: TokenBucket,
    inner: D,
    held: Option<P>,
}

impl<P: Packet, D: Discipline<P>> Shaper<P, D> {
    /// Releases what `inner` sends as `bucket` allows.
    pub fn new(bucket: TokenBucket, inner: D) -> Shaper<P, D> {
        Shaper { bucket, inner, held: None }
    }

    /// The discipline behind it.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The first moment from `now` on at which a packet may leave, if any waits. What the
    /// discipline drops in choosing it goes to `drops`.
    pub fn ready_at(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<Time> {
        self.hold(now, drops);
        let bytes = self.held.as_ref()?.bytes();
        self.bucket.ready_at(now, bytes)
    }

    fn hold(&mut self, now: Time, drops: &mut impl Drops<P>) {
        if self.held.is_none() {
            self.held = self.inner.dequeue(now, drops);
        }
    }
}

impl<P: Packet, D: Discipline<P>> Discipline<P> for Shaper<P, D> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) {
        if self.bucket.ready_at(now, packet.bytes()).is_none() {
            return drops.dropped(Reason::TooBig, packet);
        }
        self.inner.enqueue(now, packet, drops);
    }

    /// The next packet if the bucket has tokens for it; otherwise nothing, though packets wait.
    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.hold(now, drops);
        let bytes = self.held.as_ref()?.bytes();
        if self.bucket.take(now, bytes) { self.held.take() } else { None }
    }

    fn backlog(&self) -> Backlog {
        let Backlog { packets, bytes } = self.inner.backlog();
        match &self.held {
            Some(held) => Backlog { packets: packets + 1, bytes: bytes + u64::from(held.bytes()) },
            None => Backlog { packets, bytes },
        }
    }
}
