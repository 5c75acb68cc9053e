//! CoDel: drops at the moment of leaving, by how long packets have waited.
//!
//! RFC 8289. The sign of a bad queue is a waiting time that stays above a target (5 ms) for a whole
//! interval (100 ms, a worst usual round-trip time): good queues empty within one. Once that is
//! seen, a packet is dropped, and another each time that interval/√count has passed since the one
//! before, count being the number of drops so far. A TCP's rate goes with the inverse of the square
//! root of its loss, so this makes the rate fall linearly. The first packet that has waited less
//! than the target ends it; and a queue with at most one largest packet behind is never bad, for it
//! cannot be made shorter.
//!
//! If congestion returns within 16 intervals of the last drop, count starts where it had been left
//! to, less what it started from (section 5.6), not at one.
//!
//! Marking is not in the RFC's pseudocode; here, as in Linux, a packet that is capable of ECN is
//! marked where it would have been dropped, counts as the drop, and leaves. At most one packet is
//! marked per departure.

use nilometer_wire::{Span, Time};

use crate::bounded::Bounded;
use crate::capacity::Capacity;
use crate::discipline::{Backlog, Discipline, Drops, Packet, Reason};
use crate::settings_error::SettingsError;

/// Intervals since the last drop within which the count is taken up again.
const MEMORY_INTERVALS: u64 = 16;

/// CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelOptions {
    /// The waiting time that may stand; not zero.
    pub target: Span,
    /// How long it must have stood before anything is dropped; at least the target.
    pub interval: Span,
    /// Whether packets that are capable of ECN are marked instead of dropped.
    pub ecn: bool,
}

impl Default for CoDelOptions {
    /// RFC 8289, sections 4.2 and 4.3: 5 ms and 100 ms; without marking.
    fn default() -> CoDelOptions {
        CoDelOptions { target: Span(5_000_000_000), interval: Span(100_000_000_000), ecn: false }
    }
}

impl CoDelOptions {
    /// What is wrong with them.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if self.target == Span::ZERO {
            Some("target is zero")
        } else if self.interval < self.target {
            Some("interval is below target")
        } else {
            None
        }
    }
}

/// A packet and when it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped<P> {
    pub(crate) arrived: Time,
    pub(crate) packet: P,
}

/// The queue that a CoDel controls.
pub(crate) trait Source<P> {
    /// Takes out the first packet.
    fn pop(&mut self) -> Option<Stamped<P>>;

    /// Bytes that wait.
    fn bytes(&self) -> u64;
}

/// The state of one CoDel (RFC 8289, section 5.2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Control {
    /// When waiting times will have been above the target for an interval.
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    is_dropping: bool,
}

/// What CoDel's control law depends on: the options and the largest packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    pub(crate) options: CoDelOptions,
    pub(crate) mtu_bytes: u32,
}

impl Law {
    /// When the next drop is due after one at `from`.
    fn next(&self, from: Time, count: u32) -> Time {
        from + Span((self.options.interval.0 as f64 / libm::sqrt(f64::from(count))) as u64)
    }
}

impl Control {
    /// The packet that leaves `source` at `now`; those that are dropped before it go to `drops`.
    pub(crate) fn dequeue<P: Packet>(
        &mut self,
        now: Time,
        law: &Law,
        source: &mut impl Source<P>,
        drops: &mut impl Drops<P>,
    ) -> Option<P> {
        let Some((mut packet, mut is_bad)) = self.take(now, law, source) else {
            self.is_dropping = false;
            return None;
        };
        if !self.is_dropping {
            return if is_bad {
                self.begin(now, law, packet, (source, drops))
            } else {
                Some(packet)
            };
        }
        if !is_bad {
            self.is_dropping = false;
        }
        while self.is_dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            if law.options.ecn && packet.ecn().is_capable() {
                packet.mark();
                self.drop_next = law.next(self.drop_next, self.count);
                return Some(packet);
            }
            drops.dropped(Reason::Sojourn, packet);
            let Some(taken) = self.take(now, law, source) else {
                self.is_dropping = false;
                return None;
            };
            (packet, is_bad) = taken;
            if is_bad {
                self.drop_next = law.next(self.drop_next, self.count);
            } else {
                self.is_dropping = false;
            }
        }
        Some(packet)
    }

    /// Enters the dropping state with `packet` as its first drop or mark.
    fn begin<P: Packet>(
        &mut self,
        now: Time,
        law: &Law,
        mut packet: P,
        (source, drops): (&mut impl Source<P>, &mut impl Drops<P>),
    ) -> Option<P> {
        let leaves = if law.options.ecn && packet.ecn().is_capable() {
            packet.mark();
            Some(packet)
        } else {
            drops.dropped(Reason::Sojourn, packet);
            self.take(now, law, source).map(|(next, _)| next)
        };
        self.is_dropping = true;
        let grown = self.count.wrapping_sub(self.last_count);
        let is_recent = now.since(self.drop_next) < law.options.interval * MEMORY_INTERVALS;
        self.count = if grown > 1 && is_recent { grown } else { 1 };
        self.drop_next = law.next(now, self.count);
        self.last_count = self.count;
        leaves
    }

    /// The first packet, and whether waiting times have been above the target long enough.
    fn take<P: Packet>(
        &mut self,
        now: Time,
        law: &Law,
        source: &mut impl Source<P>,
    ) -> Option<(P, bool)> {
        let Some(Stamped { arrived, packet }) = source.pop() else {
            self.first_above = None;
            return None;
        };
        let waited = now.since(arrived);
        if waited < law.options.target || source.bytes() <= u64::from(law.mtu_bytes) {
            self.first_above = None;
            return Some((packet, false));
        }
        let first_above = *self.first_above.get_or_insert(now + law.options.interval);
        Some((packet, now >= first_above))
    }
}

impl<P: Packet> Source<P> for Bounded<Stamped<P>> {
    #[inline]
    fn pop(&mut self) -> Option<Stamped<P>> {
        Bounded::pop(self, |stamped| stamped.packet.bytes())
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.occupancy().bytes()
    }
}

/// One queue under CoDel.
#[derive(Clone, Debug)]
pub struct CoDel<P> {
    waiting: Bounded<Stamped<P>>,
    control: Control,
    law: Law,
}

impl<P: Packet> CoDel<P> {
    /// An empty queue that holds `capacity` and sends packets of at most `mtu_bytes`.
    ///
    /// # Errors
    /// When the capacity is zero or `options` are out of their ranges.
    pub fn new(
        capacity: Capacity,
        mtu_bytes: u32,
        options: CoDelOptions,
    ) -> Result<CoDel<P>, SettingsError> {
        if let Some(fault) = options.fault() {
            return Err(SettingsError::CoDel(fault));
        }
        if capacity.limit() == 0 {
            return Err(SettingsError::NoCapacity);
        }
        Ok(CoDel {
            waiting: Bounded::new(capacity),
            control: Control::default(),
            law: Law { options, mtu_bytes },
        })
    }
}

impl<P: Packet> Discipline<P> for CoDel<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) {
        let bytes = packet.bytes();
        match self.waiting.refusal(bytes) {
            Some(reason) => drops.dropped(reason, packet),
            None => self.waiting.push(bytes, Stamped { arrived: now, packet }),
        }
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.control.dequeue(now, &self.law, &mut self.waiting, drops)
    }

    fn backlog(&self) -> Backlog {
        self.waiting.backlog()
    }
}
