//! Backlogs of ports over time: time averages and peaks, in steps of a course of bounded length.
//!
//! The driver looks at its queues twice in each turn: when all arrivals are in, where a queue is as long as
//! it gets in this turn, and when all that may leave has left, which is how it stays until the next turn.
//! The second, weighted by time, gives the average, the larger of both the peak. Packets that come and
//! go within one turn without waiting for the link count in the peak alone.
//!
//! A course begins with steps of [`STEP_NS`]. When there are [`STEPS_MAX`], each two become one, so that
//! the course of a run of any length takes the same memory.

use std::time::Instant;

use nilometer_queue::Backlog;
use nilometer_router::pipeline::Router;
use nilometer_wire::Time;

use super::Driver;

/// The length of a first step, nanoseconds.
const STEP_NS: u64 = 10_000_000;
/// Steps that a course has at most; an even number.
const STEPS_MAX: usize = 4_096;

/// What waited in one place for some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waited {
    /// Packets, averaged by time.
    pub mean_packets: f64,
    /// The most packets.
    pub max_packets: u64,
    /// Bytes, averaged by time.
    pub mean_bytes: f64,
    /// The most bytes.
    pub max_bytes: u64,
}

/// One step of a course.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Its beginning, nanoseconds after the watch began.
    pub start_ns: u64,
    /// Its length, nanoseconds.
    pub length_ns: u64,
    /// What waited in it.
    pub waited: Waited,
}

/// Sums of one step: packets and bytes times nanoseconds, and the peaks.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    packet_ns: f64,
    byte_ns: f64,
    peak: Backlog,
}

impl Sum {
    fn add(&mut self, other: &Sum) {
        self.packet_ns += other.packet_ns;
        self.byte_ns += other.byte_ns;
        self.rise(other.peak);
    }

    fn rise(&mut self, peak: Backlog) {
        self.peak.packets = self.peak.packets.max(peak.packets);
        self.peak.bytes = self.peak.bytes.max(peak.bytes);
    }

    fn over(&self, length_ns: u64) -> Waited {
        let length = length_ns.max(1) as f64;
        Waited {
            mean_packets: self.packet_ns / length,
            max_packets: self.peak.packets,
            mean_bytes: self.byte_ns / length,
            max_bytes: self.peak.bytes,
        }
    }
}

/// The course of one place.
#[derive(Clone, Debug)]
pub struct Course {
    sums: Vec<Sum>,
    step_ns: u64,
    /// Until when the course is known, nanoseconds after the watch began.
    told_ns: u64,
    level: Backlog,
}

impl Default for Course {
    fn default() -> Course {
        let (told_ns, level) = (0, Backlog::default());
        Course { sums: vec![Sum::default()], step_ns: STEP_NS, told_ns, level }
    }
}

impl Course {
    /// The level is `level` from `now_ns` on; the previous level lasted until now.
    fn see(&mut self, now_ns: u64, level: Backlog) {
        while self.told_ns < now_ns {
            let step_end_ns = self.sums.len() as u64 * self.step_ns;
            let until = step_end_ns.min(now_ns);
            let passed = (until - self.told_ns) as f64;
            let was = self.level;
            let sum = self.sums.last_mut().expect("a course has a step");
            sum.packet_ns += was.packets as f64 * passed;
            sum.byte_ns += was.bytes as f64 * passed;
            sum.rise(was);
            self.told_ns = until;
            if until == step_end_ns {
                self.begin_step();
            }
        }
        self.level = level;
        self.sums.last_mut().expect("a course has a step").rise(level);
    }

    fn begin_step(&mut self) {
        if self.sums.len() == STEPS_MAX {
            let pairs = self.sums.chunks_exact(2).map(|pair| {
                let mut sum = pair[0];
                sum.add(&pair[1]);
                sum
            });
            self.sums = pairs.collect();
            self.step_ns *= 2;
        }
        self.sums.push(Sum::default());
    }

    /// Its steps, one after the other; the last may be short.
    pub fn steps(&self) -> Vec<Step> {
        let starts = (0..).step_by(usize::try_from(self.step_ns).unwrap_or(usize::MAX));
        let step = |(start, sum): (usize, &Sum)| {
            let start_ns = start as u64;
            let length_ns = self.step_ns.min(self.told_ns.saturating_sub(start_ns));
            Step { start_ns, length_ns, waited: sum.over(length_ns) }
        };
        starts.zip(&self.sums).map(step).filter(|step| step.length_ns > 0).collect()
    }

    /// All of it together.
    pub fn whole(&self) -> Waited {
        let mut all = Sum::default();
        self.sums.iter().for_each(|sum| all.add(sum));
        all.over(self.told_ns)
    }
}

/// What waits at one port.
#[derive(Clone, Debug, Default)]
pub struct PortCourses {
    /// At its input, for all outputs together, until it may cross the fabric.
    pub input: Course,
    /// At its output, in the discipline, without packets on a longer link.
    pub output: Course,
}

/// Watches all ports of a router.
#[derive(Debug)]
pub struct Backlogs {
    zero: Time,
    ports: Vec<PortCourses>,
}

impl Backlogs {
    /// The backlogs of `ports` ports, from `zero` on.
    pub fn new(zero: Time, ports: usize) -> Backlogs {
        Backlogs { zero, ports: vec![PortCourses::default(); ports] }
    }

    /// What waited at each port so far, by number.
    pub fn ports(&self) -> &[PortCourses] {
        &self.ports
    }

    /// Records the backlogs at `now`, which never decreases.
    pub fn look(&mut self, now: Time, router: &Router) {
        if now < self.zero {
            return;
        }
        let (now_ns, fabric) = (now.since(self.zero).as_nanos(), router.fabric());
        for (number, port) in self.ports.iter_mut().enumerate() {
            port.input.see(now_ns, fabric.input_backlog(number));
            port.output.see(now_ns, fabric.output_backlog(number));
        }
    }
}

impl Driver {
    /// Watches the backlogs of its ports from `zero` on, and forgets earlier ones.
    pub fn watch_backlogs(&mut self, zero: Instant) {
        let after = zero.saturating_duration_since(self.began).as_nanos();
        let zero = Time::from_nanos(u64::try_from(after).unwrap_or(u64::MAX));
        self.backlogs = Some(Box::new(Backlogs::new(zero, self.router.ports().len())));
    }

    /// What waited at each port up to now, by number; nothing where the watch is off.
    pub fn backlogs(&mut self) -> Vec<PortCourses> {
        let now = self.now();
        let Some(watch) = &mut self.backlogs else { return Vec::new() };
        watch.look(now, &self.router);
        watch.ports.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(packets: u64) -> Backlog {
        Backlog { packets, bytes: 100 * packets }
    }

    #[test]
    fn backlog_is_averaged_over_time() {
        let mut course = Course::default();
        course.see(0, packets(3));
        course.see(4_000_000, packets(8));
        course.see(4_000_000, packets(1));
        course.see(25_000_000, packets(0));
        course.see(30_000_000, packets(0));
        let steps = course.steps();
        let means: Vec<f64> = steps.iter().map(|step| step.waited.mean_packets).collect();
        assert_eq!(means, [1.8, 1.0, 0.5]);
        assert_eq!(steps[0].waited.max_packets, 8, "what left at once is in the peak");
        assert_eq!((steps[1].waited.max_packets, steps[2].waited.max_bytes), (1, 100));
        assert_eq!((steps[2].start_ns, steps[2].length_ns), (20_000_000, 10_000_000));
        let whole = course.whole();
        assert_eq!(whole.max_bytes, 800);
        assert!((whole.mean_packets - 33.0 / 30.0).abs() < 1e-12, "{whole:?}");
        assert!((whole.mean_bytes - 110.0).abs() < 1e-9, "{whole:?}");
    }

    /// However long it gets, its integral is that of the steps reported to it, and its room is bounded.
    #[test]
    fn a_long_course_stays_short_and_keeps_its_sums() {
        let mut course = Course::default();
        let (mut now_ns, mut integral, mut level) = (0, 0.0, 0);
        course.see(0, packets(0));
        for round in 0..30_000_u64 {
            let passed = 1 + round * 7_919 % 29_000_000;
            integral += level as f64 * passed as f64;
            now_ns += passed;
            level = round * 31 % 97;
            course.see(now_ns, packets(level));
        }
        let steps = course.steps();
        assert!(steps.len() <= STEPS_MAX && steps.len() > STEPS_MAX / 4, "{}", steps.len());
        let total: u64 = steps.iter().map(|step| step.length_ns).sum();
        assert_eq!(total, now_ns);
        let sum: f64 = steps.iter().map(|it| it.waited.mean_packets * it.length_ns as f64).sum();
        assert!((sum / integral - 1.0).abs() < 1e-9, "{sum} of {integral}");
        assert!((course.whole().mean_packets * now_ns as f64 / integral - 1.0).abs() < 1e-9);
        assert_eq!(course.whole().max_packets, 96);
    }
}
