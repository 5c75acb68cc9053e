//! How late timers of the pipeline fire, for measurements through a router.
//!
//! A packet that waits for its link's rate is a timer, as is whatever else the pipeline does at a moment. A thread that
//! the kernel keeps waiting serves its timers late. A link makes up for that by its burst size and no more, so a router
//! only treats packets as its file says while its timers fire within that time.

use nilometer_wire::{Span, Time};

use super::Driver;

/// Timers that were met, and those of them that were met late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerLateness {
    /// One is late that is met by more than this after its moment.
    pub bound: Span,
    /// Timers that were met.
    pub timers: u64,
    /// Those that were late.
    pub late: u64,
    /// By how much the latest was.
    pub latest: Span,
}

impl TimerLateness {
    /// None yet.
    pub fn new(bound: Span) -> TimerLateness {
        TimerLateness { bound, timers: 0, late: 0, latest: Span::ZERO }
    }

    /// A timer was met so long after its moment.
    pub fn record(&mut self, after: Span) {
        self.timers += 1;
        self.late += u64::from(after > self.bound);
        self.latest = self.latest.max(after);
    }
}

/// Looks at the timers of a driver, turn by turn.
#[derive(Debug)]
pub(super) struct Watch {
    found: TimerLateness,
    /// When the last turn began.
    turned: Time,
}

impl Watch {
    /// A turn begins at `now`; `due` is the earliest due time, if anything was due. Work that was due before the last
    /// turn as well waits for another reason, such as a device without room or its place on the slow path: this turn is
    /// late for it only by the time since that one.
    fn turn(&mut self, now: Time, due: Option<Time>) {
        let before = std::mem::replace(&mut self.turned, now);
        if let Some(due) = due.filter(|due| *due <= now) {
            self.found.record(now.since(due.max(before)));
        }
    }
}

impl Driver {
    /// Starts to record how late timers fire; one is late that fires more than `bound` after it was due.
    pub fn watch_lateness(&mut self, bound: Span) {
        self.lateness = Some(Watch { found: TimerLateness::new(bound), turned: self.now() });
    }

    /// The recorded lateness; nothing where recording was not started.
    pub fn lateness(&self) -> Option<TimerLateness> {
        self.lateness.as_ref().map(|watch| watch.found)
    }

    /// One turn, and how late it comes where that is recorded.
    pub(super) fn watched_turn(&mut self) -> bool {
        if self.lateness.is_some() {
            let (now, due) = (self.now(), self.router.poll_timeout());
            if let Some(watch) = &mut self.lateness {
                watch.turn(now, due);
            }
        }
        self.turn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_timer_is_late_by_the_time_since_it_was_due_or_looked_at() {
        let bound = Span::from_nanos(5_000_000);
        let mut watch = Watch { found: TimerLateness::new(bound), turned: ms(0) };
        watch.turn(ms(10), Some(ms(11)));
        assert_eq!(watch.found, TimerLateness::new(bound), "it is not due");
        watch.turn(ms(12), Some(ms(11)));
        watch.turn(ms(30), Some(ms(22)));
        watch.turn(ms(40), None);
        // On the slow path since before the last turn.
        watch.turn(ms(41), Some(Time::ZERO));
        let latest = Span::from_nanos(8_000_000);
        assert_eq!(watch.found, TimerLateness { bound, timers: 3, late: 1, latest });
    }
}
