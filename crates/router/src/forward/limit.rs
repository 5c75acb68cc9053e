//! Rate limits for ICMP: messages of each kind per second, for the whole router and for each
//! destination.
//!
//! RFC 1812, 4.3.2.8, wants errors limited and the limits configurable; RFC 4443, 2.4 (f), demands it
//! and suggests a token bucket. There are two for each [`IcmpKind`]: one for the router as a whole, and
//! one of a table of [`DESTINATIONS`] that a seeded hash of the destination picks, so that one sender
//! of bad packets cannot use up what all others need. A message passes both or neither, and messages
//! held back are counted. Destinations that share a place in the table share its tokens; under a
//! secret seed no attacker can choose to share another's.
//!
//! A bucket is one moment: when it will be full again. Taking a token moves that moment by the time
//! one token takes to arrive; if it would lie further ahead than a whole bucket takes to fill, there
//! was no token (the virtual scheduling form of the generic cell rate algorithm, ITU-T I.371). The
//! twin counts tokens.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

/// Places for destinations, for each kind.
pub const DESTINATIONS: usize = 1024;
/// Number of kinds.
pub const KINDS: usize = 6;

/// The kinds of messages that are limited separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum IcmpKind {
    /// Destination unreachable, but for fragmentation.
    Unreachable,
    /// Fragmentation needed, Packet Too Big: path MTU discovery waits for it.
    TooBig,
    /// Time exceeded.
    TimeExceeded,
    /// Parameter problem.
    Parameter,
    /// Redirect.
    Redirect,
    /// Echo replies.
    Echo,
}

/// A rate of messages and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Messages per second in the long run; zero for none at all.
    pub per_second: u32,
    /// Messages at once after a pause; zero for none at all.
    pub burst: u32,
}

impl Allowance {
    /// Four thousand million a second is no limit.
    pub const UNLIMITED: Allowance = Allowance { per_second: u32::MAX, burst: u32::MAX };

    const fn span_of_one(self) -> Span {
        Span(1_000_000_000_000 / self.per_second as u64)
    }

    const fn is_none(self) -> bool {
        self.per_second == 0 || self.burst == 0
    }
}

/// What one kind may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowances {
    /// The router as a whole.
    pub router: Allowance,
    /// One destination, or those that share its place.
    pub destination: Allowance,
}

/// What each kind may, in the order of [`IcmpKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits(pub [Allowances; KINDS]);

impl Default for Limits {
    /// 1,000 errors of a kind a second with bursts of 100; 10 to one destination, bursts of 10.
    /// Packet Too Big 100 to one destination, for it may stand for many senders behind one address;
    /// echo 10,000 and 1,000.
    fn default() -> Limits {
        let allowances = |router: (u32, u32), destination: (u32, u32)| Allowances {
            router: Allowance { per_second: router.0, burst: router.1 },
            destination: Allowance { per_second: destination.0, burst: destination.1 },
        };
        let error = allowances((1_000, 100), (10, 10));
        let too_big = allowances((1_000, 100), (100, 100));
        let echo = allowances((10_000, 1_000), (1_000, 100));
        Limits([error, too_big, error, error, error, echo])
    }
}

/// A bucket, as the moment when it is full.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    full_at: Time,
}

impl Bucket {
    fn has_token(self, now: Time, allowance: Allowance) -> bool {
        if allowance.is_none() {
            return false;
        }
        let others = u64::from(allowance.burst - 1);
        self.full_at.since(now).0 <= others.saturating_mul(allowance.span_of_one().0)
    }

    fn take(&mut self, now: Time, allowance: Allowance) {
        self.full_at = self.full_at.max(now) + allowance.span_of_one();
    }
}

/// The buckets of all kinds, and counts of messages passed and held back.
#[derive(Clone, Debug)]
pub struct Limiter {
    limits: Limits,
    seed: u64,
    router: [Bucket; KINDS],
    destinations: Vec<Bucket>,
    passed: [u64; KINDS],
    suppressed: [u64; KINDS],
}

impl Limiter {
    /// Full buckets.
    pub fn new(limits: Limits, seed: u64) -> Limiter {
        Limiter {
            limits,
            seed,
            router: [Bucket::default(); KINDS],
            destinations: vec![Bucket::default(); KINDS * DESTINATIONS],
            passed: [0; KINDS],
            suppressed: [0; KINDS],
        }
    }

    /// Changes the limits from now on; counters stay, and tokens used up before still count.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Whether a message of this kind may be sent to `destination` at `now` (IPv4 addresses as their
    /// number). It is counted either way.
    pub fn allow(&mut self, now: Time, kind: IcmpKind, destination: u128) -> bool {
        let allowances = self.limits.0[kind as usize];
        let place = kind as usize * DESTINATIONS + self.place(destination);
        let router = &mut self.router[kind as usize];
        let destination = &mut self.destinations[place];
        let passes = router.has_token(now, allowances.router)
            && destination.has_token(now, allowances.destination);
        if passes {
            router.take(now, allowances.router);
            destination.take(now, allowances.destination);
            self.passed[kind as usize] += 1;
        } else {
            self.suppressed[kind as usize] += 1;
        }
        passes
    }

    /// Messages that passed, of each kind.
    pub fn passed(&self) -> [u64; KINDS] {
        self.passed
    }

    /// Messages that were held back, of each kind.
    pub fn suppressed(&self) -> [u64; KINDS] {
        self.suppressed
    }

    fn place(&self, destination: u128) -> usize {
        let mut word = self.seed ^ destination as u64;
        for part in [(destination >> 64) as u64, self.seed.rotate_left(32)] {
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ part;
        }
        (word ^ (word >> 31)) as usize % DESTINATIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    const SECOND: u64 = 1_000_000_000_000;

    /// The twin: counts tokens, in a unit where one message costs the number of picoseconds in a
    /// second.
    struct Tokens {
        allowance: Allowance,
        level: u128,
        at: u64,
    }

    impl Tokens {
        fn new(allowance: Allowance) -> Tokens {
            Tokens { allowance, level: u128::from(allowance.burst) * u128::from(SECOND), at: 0 }
        }

        fn has(&mut self, now: u64) -> bool {
            let gained = u128::from(now - self.at) * u128::from(self.allowance.per_second);
            let depth = u128::from(self.allowance.burst) * u128::from(SECOND);
            self.level = (self.level + gained).min(depth);
            self.at = now;
            self.level >= u128::from(SECOND)
        }
    }

    #[test]
    fn buckets_decide_as_counted_tokens_do() {
        let mut rng = Rng::new(1, u32::from_be_bytes(*b"limt"), 0);
        for round in 0..40 {
            // Rates that divide a second, so that neither rounds.
            let allowance = |rates: [u32; 4], pick: u64, burst| Allowance {
                per_second: rates[pick as usize],
                burst: 1 + burst as u32,
            };
            let router = allowance([10, 100, 1_000, 8_000], rng.below(4), rng.below(20));
            let destination = allowance([1, 2, 5, 250], rng.below(4), rng.below(6));
            let limits = Limits([Allowances { router, destination }; KINDS]);
            let mut limiter = Limiter::new(limits, round);
            let mut whole = Tokens::new(router);
            let mut each: Vec<Tokens> = (0..5).map(|_| Tokens::new(destination)).collect();
            let places: Vec<usize> = (0..5).map(|n| limiter.place(n)).collect();
            let is_apart = (0..5).all(|n| !places[..n].contains(&places[n]));
            let (mut now, mut passed) = (0, 0);
            for _ in 0..3_000 * usize::from(is_apart) {
                now += rng.below(SECOND / 200);
                let to = rng.below(5) as usize;
                let conforms = each[to].has(now) & whole.has(now);
                if conforms {
                    each[to].level -= u128::from(SECOND);
                    whole.level -= u128::from(SECOND);
                    passed += 1;
                }
                assert_eq!(limiter.allow(Time(now), IcmpKind::TimeExceeded, to as u128), conforms);
            }
            assert_eq!(limiter.passed()[IcmpKind::TimeExceeded as usize], passed);
            let total = limiter.passed()[2] + limiter.suppressed()[2];
            assert_eq!(total, 3_000 * u64::from(is_apart));
        }
    }

    #[test]
    fn one_sender_does_not_silence_the_router_for_others() {
        let mut limiter = Limiter::new(Limits::default(), 5);
        let mut loud = 0;
        for step in 0..100_000u64 {
            loud +=
                u64::from(limiter.allow(Time(step * SECOND / 10_000), IcmpKind::Unreachable, 1));
        }
        assert!((108..=110).contains(&loud), "10 a second for 10 s and a burst, not {loud}");
        assert_eq!(limiter.suppressed()[0], 100_000 - loud);
        assert!(limiter.allow(Time(10 * SECOND), IcmpKind::Unreachable, 2));
        assert!(limiter.allow(Time(10 * SECOND), IcmpKind::TooBig, 1), "kinds are apart");
    }

    #[test]
    fn an_empty_allowance_passes_none_and_an_unlimited_one_all() {
        let none = Allowance { per_second: 0, burst: 9 };
        let both =
            |allowance| Limits([Allowances { router: allowance, destination: allowance }; KINDS]);
        let mut closed = Limiter::new(both(none), 1);
        let mut open = Limiter::new(both(Allowance::UNLIMITED), 1);
        let kinds = [
            IcmpKind::Unreachable,
            IcmpKind::TooBig,
            IcmpKind::TimeExceeded,
            IcmpKind::Parameter,
            IcmpKind::Redirect,
            IcmpKind::Echo,
        ];
        for kind in kinds {
            assert!(!closed.allow(Time::ZERO, kind, 7));
            for _ in 0..100_000 {
                assert!(open.allow(Time::ZERO, kind, 7));
            }
        }
        assert_eq!((closed.suppressed(), closed.passed()), ([1; KINDS], [0; KINDS]));
    }
}
