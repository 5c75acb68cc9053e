//! The course of a delay: the delays of datagrams by the interval in which they were sent.
//!
//! A mean over a run hides that a call was unbearable for its first five seconds. So the delays are kept,
//! by interval, and percentiles are taken of each; of several runs they are taken of all delays together.
//! Intervals are those in which packets were *sent*, so that the bad seconds are those in which the
//! talker sent into a full queue, and not those in which it had emptied. A packet that never arrived has
//! no delay: the number of those that arrived stands beside the percentiles.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

/// Most intervals of a course.
pub const INTERVALS_MAX: u64 = 10_000;
/// Most delays of all courses of a run.
pub const DELAYS_MAX: f64 = 1_000_000.0;

/// Delays by interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    every: Span,
    delays_ns: Vec<Vec<u64>>,
}

impl Course {
    /// An empty course with intervals of `every`, which is not zero, from the beginning to `duration`.
    pub fn new(every: Span, duration: Span) -> Course {
        let count = duration.0.div_ceil(every.0);
        Course { every, delays_ns: vec![Vec::new(); count as usize] }
    }

    /// How long an interval is.
    pub fn every(&self) -> Span {
        self.every
    }

    /// The delays of each interval, nanoseconds, in the order of arrival.
    pub fn delays_ns(&self) -> &[Vec<u64>] {
        &self.delays_ns
    }

    /// Adds the `delay` of a packet that was `sent` at that moment.
    pub(crate) fn record(&mut self, sent: Time, delay: Span) {
        let interval = sent.since(Time::ZERO).0 / self.every.0;
        if let Some(delays) = self.delays_ns.get_mut(interval as usize) {
            delays.push(delay.0 / 1_000);
        }
    }

    /// Adds the delays of a course with the same intervals.
    pub fn join(&mut self, other: &Course) {
        assert_eq!(self.every, other.every, "courses of the same intervals");
        for (own, others) in self.delays_ns.iter_mut().zip(&other.delays_ns) {
            own.extend(others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_stands_where_its_packet_was_sent() {
        let second = Span::from_secs_f64(1.0);
        let mut course = Course::new(second, Span::from_secs_f64(2.5));
        let at = |seconds| Time::ZERO + Span::from_secs_f64(seconds);
        course.record(at(0.0), Span(5_000));
        course.record(at(0.999), Span::from_secs_f64(3.0)); // arrives when the run is over
        course.record(at(2.4), Span(7_999));
        let expected = [vec![5, 3_000_000_000], vec![], vec![7]];
        assert_eq!(course.delays_ns(), expected);
        let mut both = course.clone();
        both.join(&course);
        assert_eq!(both.delays_ns()[2], [7, 7]);
        assert_eq!(both.delays_ns().len(), 3);
    }
}
