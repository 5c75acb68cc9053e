//! Periods in which the driver was not scheduled though frames waited for it.
//!
//! A machine with few processors, or one that shares them, takes a thread off for milliseconds. Frames
//! that arrive meanwhile fill the device's ring and are then lost, and a measurement of loss must know
//! which of them were lost like this. A turn detects a stall by three signs: the previous turn was
//! long ago, little of that time was spent computing, and there were more frames than one turn takes.
//! A thread that slept because nothing arrived finds fewer.
//!
//! The check costs a system call for each turn, so it is made only where stalls are recorded.

use std::time::{Duration, Instant};

use super::{Driver, TAKEN_AT_ONCE};
use nilometer_linux::clock::thread_time;

/// The stalls of a driver in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// How many there were.
    pub count: u64,
    /// How long they were together.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

/// Counts stalls of at least some length.
#[derive(Debug)]
pub(super) struct Watch {
    least: Duration,
    /// When the last turn was, by the clock and by the thread's CPU time.
    before: (Instant, Duration),
    pub(super) found: Stalls,
}

impl Watch {
    /// Counts those of the calling thread that are as long as `least`.
    pub(super) fn new(least: Duration) -> Watch {
        Watch { least, before: (Instant::now(), thread_time()), found: Stalls::default() }
    }

    /// A turn that found `came` frames.
    pub(super) fn turn(&mut self, came: usize) {
        let now = (Instant::now(), thread_time());
        let (passed, computed) = (now.0 - self.before.0, now.1.saturating_sub(self.before.1));
        self.before = now;
        self.observe(passed.saturating_sub(computed), came);
    }

    fn observe(&mut self, idle: Duration, came: usize) {
        if idle >= self.least && came >= TAKEN_AT_ONCE {
            self.found.count += 1;
            self.found.total += idle;
            self.found.longest = self.found.longest.max(idle);
        }
    }
}

impl Driver {
    /// Counts from now on how often the thread, which is the calling one, is kept from running for
    /// `least` while frames wait.
    pub fn watch_stalls(&mut self, least: Duration) {
        self.stalls = Some(Watch::new(least));
    }

    /// The stalls that were counted.
    pub fn stalls(&self) -> Stalls {
        self.stalls.as_ref().map_or(Stalls::default(), |watch| watch.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_idle_while_frames_waited_was_stalled() {
        let mut watch = Watch::new(Duration::from_millis(4));
        watch.observe(Duration::from_millis(50), TAKEN_AT_ONCE - 1);
        watch.observe(Duration::from_millis(3), 2_000);
        assert_eq!(watch.found, Stalls::default(), "it slept, or was hardly held up");
        watch.observe(Duration::from_millis(5), TAKEN_AT_ONCE);
        watch.observe(Duration::from_millis(9), 2 * TAKEN_AT_ONCE);
        let (total, longest) = (Duration::from_millis(14), Duration::from_millis(9));
        assert_eq!(watch.found, Stalls { count: 2, total, longest });
    }
}
