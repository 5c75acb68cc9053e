//! Bounded spinning: a thread that has just moved something polls for more for a while before it sleeps.
//!
//! A frame that finds its thread asleep waits until a bell is rung, a processor leaves its idle state and the
//! thread is scheduled: 10 to 30 µs, most of the delay that our router adds under light load. A thread that
//! is awake sees the frame at once. The price is a processor's time, so it is bounded twice: polling ends at
//! its limit after something last moved, and over time at most 60 % of a processor is spent on it, which
//! keeps a thread of a real-time class within its limit ([`crate::scheduling`]) and leaves the other threads
//! their turn.

use std::time::{Duration, Instant};

/// The longest that may be configured.
pub const SPIN_MAX: Duration = Duration::from_millis(10);
/// The share of a processor that is spun at most.
const SHARE_PERCENT: i64 = 60;
/// The most credit that accumulates while the thread does not spin.
const CREDIT_MAX_NS: i64 = 10_000_000;

/// Whether to look once more.
#[derive(Debug)]
pub struct Spinning {
    most: Duration,
    /// When something last moved, and when [`Spinning::after_turn`] was last called.
    moved_at: Option<Instant>,
    asked_at: Option<Instant>,
    /// How long may be spun from now on; below zero, what was spun too long.
    credit_ns: i64,
    /// The time since the last call was spent spinning.
    spins: bool,
}

impl Spinning {
    /// Spins for `most` after something moved; not at all if that is zero.
    pub fn new(most: Duration) -> Spinning {
        let most = most.min(SPIN_MAX);
        Spinning { most, moved_at: None, asked_at: None, credit_ns: CREDIT_MAX_NS, spins: false }
    }

    /// To be called after each turn: whether another is to follow although nothing moved.
    pub fn after_turn(&mut self, has_moved: bool, now: impl FnOnce() -> Instant) -> bool {
        if self.most.is_zero() {
            return false;
        }
        let now = now();
        let since = self.asked_at.replace(now).map_or(Duration::ZERO, |earlier| now - earlier);
        let since_ns = since.as_nanos().min(CREDIT_MAX_NS as u128) as i64;
        let spun_ns = if self.spins { since_ns } else { 0 };
        self.credit_ns += since_ns * SHARE_PERCENT / 100 - spun_ns;
        self.credit_ns = self.credit_ns.min(CREDIT_MAX_NS);
        if has_moved {
            self.moved_at = Some(now);
        }
        let is_recent = self.moved_at.is_some_and(|moved| now - moved < self.most);
        self.spins = !has_moved && is_recent && self.credit_ns > 0;
        self.spins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);

    #[test]
    fn a_thread_spins_for_a_while_after_something_moved_and_then_sleeps() {
        let begin = Instant::now();
        let mut spinning = Spinning::new(50 * MICRO);
        let mut after = |micros: u32, moved| spinning.after_turn(moved, || begin + micros * MICRO);
        assert!(!after(0, false), "nothing has moved yet");
        assert!(!after(10, true));
        assert!(after(11, false) && after(59, false) && !after(60, false) && !after(70, false));
        assert!(!after(100, true) && after(149, false) && !after(150, false));
        let mut never = Spinning::new(Duration::ZERO);
        assert!(!never.after_turn(true, || unreachable!("no clock is read")));
        assert!(!never.after_turn(false, || unreachable!("no clock is read")));
    }

    /// Where something moves all the time, but never at once, all of the time would be spun.
    #[test]
    fn no_more_than_a_share_of_the_time_is_spun() {
        let begin = Instant::now();
        let mut spinning = Spinning::new(SPIN_MAX);
        let (mut now, mut spun) = (begin, 0);
        for turn in 0..100_000 {
            let spins = spinning.after_turn(turn % 10 == 0, || now);
            spun += u32::from(spins);
            now += 10 * MICRO;
        }
        // What was saved is spent first: 10 ms, which is 1,000 turns; for each that is spun, 0.4 of it.
        assert!((59_000..=62_000).contains(&spun), "{spun} of 100,000 turns were spun");
    }
}
