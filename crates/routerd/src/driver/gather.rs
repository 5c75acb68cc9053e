//! How long frames gather before the next turn.
//!
//! A turn costs the same sleep, wake and system calls whether it moves one frame or fifty. So when
//! frames come fast enough for several of them to gather in [`REST_MAX`], the driver rests after a turn
//! that took some, as a card moderates its interrupts, until about [`ENOUGH`] have come.
//!
//! No frame is delayed where it would not pay:
//!
//! * where frames are few, each finds the driver asleep and wakes it. The pace of the frames since
//!   the previous turn decides, so a lone packet after silence, or a request and its response, never
//!   wait;
//! * a turn that took [`ENOUGH`] is followed by the next at once: frames arrive as fast as they are
//!   served;
//! * a timer of the pipeline is met as exactly as without a rest;
//! * where a link is held to a rate or has a length, frames are timestamped when they are taken in,
//!   and a link that stands idle loses what it could have sent. So there is no rest while any port is
//!   [`paced`](Gathering::set_paced).

use std::time::Duration;

use nilometer_wire::{Span, Time};

/// The longest rest, which is the most that a frame is delayed.
pub(super) const REST_MAX: Duration = Duration::from_micros(100);
/// Frames of a turn that make its own costs small.
const ENOUGH: usize = 64;
/// Frames that must be expected in the longest rest for it to pay.
const WORTH_WHILE: u64 = 8;
/// A rest shorter than this is not worth its system call.
const REST_MIN: Duration = Duration::from_micros(10);

/// What decides whether to rest.
pub(super) struct Gathering {
    /// Of each port, whether its link has a rate or a length.
    paced: Vec<bool>,
    /// When frames were last taken.
    taken_at: Time,
}

impl Gathering {
    /// For `ports` ports, none of them paced.
    pub(super) fn new(ports: usize) -> Gathering {
        Gathering { paced: vec![false; ports], taken_at: Time::ZERO }
    }

    /// Whether the link of port `number` has a rate or a length. Panics where there is no such port.
    pub(super) fn set_paced(&mut self, number: usize, is_paced: bool) {
        self.paced[number] = is_paced;
    }

    /// After a turn that was over at `now` and took `count` frames: how long to rest, if the pipeline has
    /// nothing to do for `free`.
    pub(super) fn rest(&mut self, now: Time, count: usize, free: Duration) -> Option<Duration> {
        if count == 0 {
            return None;
        }
        let since = now.since(std::mem::replace(&mut self.taken_at, now));
        if count >= ENOUGH || self.paced.contains(&true) {
            return None;
        }
        let apart = Span(since.0 / count as u64).as_nanos();
        if apart * WORTH_WHILE > REST_MAX.as_nanos() as u64 {
            return None;
        }
        let rest = Duration::from_nanos(apart * ENOUGH as u64).min(REST_MAX).min(free);
        (rest >= REST_MIN).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Duration = Duration::from_millis(100);

    /// The decision when `count` frames arrive `micros` after others.
    fn rest(count: usize, micros: u64, free: Duration) -> Option<Duration> {
        let mut gathering = Gathering::new(2);
        let first = Time::from_nanos(5_000_000);
        gathering.rest(first, 1, free);
        gathering.rest(first + Span::from_nanos(micros * 1_000), count, free)
    }

    #[test]
    fn single_frames_are_not_delayed_and_bursts_are_gathered() {
        assert_eq!(rest(1, 1_000, FREE), None);
        assert_eq!(rest(1, 26, FREE), None);
        assert_eq!(rest(3, 30, FREE), Some(REST_MAX));
        assert_eq!(rest(40, 30, FREE), Some(Duration::from_micros(48)));
        assert_eq!(rest(ENOUGH, 30, FREE), None);
        assert_eq!(rest(0, 30, FREE), None);
    }

    #[test]
    fn timers_are_met_and_paced_links_are_not_kept_waiting() {
        assert_eq!(rest(3, 30, Duration::from_micros(40)), Some(Duration::from_micros(40)));
        assert_eq!(rest(3, 30, Duration::ZERO), None);
        let mut gathering = Gathering::new(2);
        gathering.set_paced(1, true);
        assert_eq!(gathering.rest(Time::from_nanos(1_000), 8, FREE), None);
        gathering.set_paced(1, false);
        assert!(gathering.rest(Time::from_nanos(9_000), 8, FREE).is_some());
    }
}
