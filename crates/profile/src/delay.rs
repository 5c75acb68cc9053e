//! Delay through the device: a summary, its course over time, and its dependence on packet size.
//!
//! Every statistic comes from histograms of nanoseconds, so memory does not grow with packets: the
//! mean is exact, and a quantile is within the histogram's bucket (1/128 of its value). Packets are
//! booked to the time at which they *entered*, lost ones included, so that a point of the series
//! shows what a packet sent at that moment had to expect. When a run outlasts the series,
//! neighbouring intervals are merged and their length doubles, so the series always covers the
//! whole run.

use alloc::vec::Vec;

use nilometer_stat::Histogram;
use nilometer_wire::{Span, Time};

use crate::outcome::{Direction, Fate, PacketOutcome};

/// The longest packet of each size class in bytes, the last being open: small ones and pure ACKs,
/// up to the IPv4 minimum that every host takes (RFC 791), up to the IPv6 minimum (RFC 8200), full.
pub const SIZE_CLASSES: [u32; 4] = [128, 576, 1280, u32::MAX];

/// The limits of the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayConfig {
    /// Length of an interval at the start; above zero.
    pub interval: Span,
    /// The most intervals kept, at least 2; about 12 KiB for each and direction.
    pub intervals_max: usize,
}

impl Default for DelayConfig {
    /// Seconds, up to ten minutes of them.
    fn default() -> DelayConfig {
        DelayConfig { interval: Span::from_secs(1), intervals_max: 600 }
    }
}

/// Delay as BBP's tables have it (5th percentile, mean, 95th), with the median and the 99th.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelaySummary {
    /// Packets that were forwarded.
    pub count: u64,
    /// 5th percentile in nanoseconds.
    pub p5_ns: u64,
    /// Mean in nanoseconds.
    pub mean_ns: f64,
    /// Median in nanoseconds.
    pub p50_ns: u64,
    /// 95th percentile in nanoseconds.
    pub p95_ns: u64,
    /// 99th percentile in nanoseconds.
    pub p99_ns: u64,
}

impl DelaySummary {
    /// Of all delays in `histogram`, in nanoseconds; `None` when it is empty.
    pub fn of(histogram: &Histogram) -> Option<DelaySummary> {
        Some(DelaySummary {
            count: histogram.count(),
            p5_ns: histogram.quantile(0.05)?,
            mean_ns: histogram.mean()?,
            p50_ns: histogram.quantile(0.50)?,
            p95_ns: histogram.quantile(0.95)?,
            p99_ns: histogram.quantile(0.99)?,
        })
    }
}

/// One interval of the series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayPoint {
    /// When the interval begins.
    pub start: Time,
    /// Packets that entered in it and were lost.
    pub lost: u64,
    /// Packets that entered in it, were forwarded, and left out of order.
    pub reordered: u64,
    /// The delays of those that entered in it and were forwarded; `None` when none was.
    pub delay: Option<DelaySummary>,
}

/// The packets of one size class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeClass {
    /// The longest packet of the class in bytes.
    pub bytes_max: u32,
    /// Packets of the class that were lost.
    pub lost: u64,
    /// Of those that were forwarded, the ones that left out of order.
    pub reordered: u64,
    /// The delays of those that were forwarded; `None` when none was.
    pub delay: Option<DelaySummary>,
}

/// Delays of a run, collected from the outcomes of packets.
#[derive(Clone, Debug)]
pub struct Delays {
    config: DelayConfig,
    ways: [DirectionDelays; 2],
}

#[derive(Clone, Debug, Default)]
struct DirectionDelays {
    sizes: [Tally; SIZE_CLASSES.len()],
    series: Vec<Tally>,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    delays: Histogram,
    lost: u64,
    reordered: u64,
}

impl Tally {
    fn add(&mut self, outcome: &PacketOutcome) {
        match outcome.delay() {
            Some(delay) => self.delays.record(delay.as_nanos()),
            None => self.lost += 1,
        }
        self.reordered += u64::from(outcome.reordered);
    }

    fn merge(&mut self, other: &Tally) {
        self.delays.merge(&other.delays);
        self.lost += other.lost;
        self.reordered += other.reordered;
    }
}

impl Delays {
    /// Nothing collected yet.
    ///
    /// # Panics
    /// When the interval is zero or fewer than two intervals may be kept.
    pub fn new(config: DelayConfig) -> Delays {
        assert!(config.interval > Span::ZERO, "an interval must last");
        assert!(config.intervals_max >= 2, "a series needs two intervals");
        Delays { config, ways: Default::default() }
    }

    /// Books a forwarded or a lost packet; other fates have no place here and are passed over.
    pub fn record(&mut self, outcome: &PacketOutcome) {
        let (Fate::Forwarded | Fate::Lost, Some(entered_at)) = (outcome.fate, outcome.entered_at)
        else {
            return;
        };
        let index = self.interval_of(entered_at);
        let way = &mut self.ways[outcome.direction.index()];
        if index >= way.series.len() {
            way.series.resize_with(index + 1, Tally::default);
        }
        way.series[index].add(outcome);
        let class = SIZE_CLASSES.partition_point(|&bytes_max| bytes_max < outcome.bytes);
        way.sizes[class].add(outcome);
    }

    /// Delays in one direction, or in both together.
    pub fn summary(&self, direction: Option<Direction>) -> Option<DelaySummary> {
        DelaySummary::of(&self.histogram(direction))
    }

    /// All delays in nanoseconds in one direction, or in both together: for a CDF.
    pub fn histogram(&self, direction: Option<Direction>) -> Histogram {
        let mut all = Histogram::new();
        for way in self.chosen(direction) {
            way.sizes.iter().for_each(|size| all.merge(&size.delays));
        }
        all
    }

    /// Delay and loss over time, interval by interval from the run's start, none left out.
    pub fn series(&self, direction: Option<Direction>) -> Vec<DelayPoint> {
        let intervals = self.chosen(direction).map(|way| way.series.len()).max().unwrap_or(0);
        let point = |index: usize| {
            let mut tally = Tally::default();
            self.chosen(direction).filter_map(|way| way.series.get(index)).for_each(|interval| {
                tally.merge(interval);
            });
            let start = Time::ZERO + self.config.interval * index as u64;
            let Tally { delays, lost, reordered } = tally;
            DelayPoint { start, lost, reordered, delay: DelaySummary::of(&delays) }
        };
        (0..intervals).map(point).collect()
    }

    /// Length of an interval of the series: that configured, or doubled as often as was needed.
    pub fn interval(&self) -> Span {
        self.config.interval
    }

    /// Delay and loss by packet size, smallest class first.
    pub fn by_size(&self, direction: Option<Direction>) -> [SizeClass; SIZE_CLASSES.len()] {
        let mut class = 0;
        SIZE_CLASSES.map(|bytes_max| {
            let mut tally = Tally::default();
            self.chosen(direction).for_each(|way| tally.merge(&way.sizes[class]));
            class += 1;
            let Tally { delays, lost, reordered } = tally;
            SizeClass { bytes_max, lost, reordered, delay: DelaySummary::of(&delays) }
        })
    }

    fn chosen(&self, direction: Option<Direction>) -> impl Iterator<Item = &DirectionDelays> {
        Direction::ALL
            .into_iter()
            .filter(move |&each| direction.is_none_or(|wanted| wanted == each))
            .map(|each| &self.ways[each.index()])
    }

    /// The interval in which `at` falls, after as many doublings as make room for it.
    fn interval_of(&mut self, at: Time) -> usize {
        loop {
            let index = at.0 / self.config.interval.0;
            if index < self.config.intervals_max as u64 {
                return index as usize;
            }
            self.config.interval = self.config.interval * 2;
            self.ways.iter_mut().for_each(|way| halve(&mut way.series));
        }
    }
}

/// Merges each pair of neighbours into one.
fn halve(series: &mut Vec<Tally>) {
    let merged = series.chunks_mut(2).map(|pair| {
        let mut tally = core::mem::take(&mut pair[0]);
        pair.get(1).into_iter().for_each(|second| tally.merge(second));
        tally
    });
    *series = merged.collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn outcome(
        direction: Direction,
        at_ns: u64,
        delay_ns: Option<u64>,
        bytes: u32,
    ) -> PacketOutcome {
        PacketOutcome {
            direction,
            fate: if delay_ns.is_some() { Fate::Forwarded } else { Fate::Lost },
            entered_at: Some(Time::from_nanos(at_ns)),
            left_at: delay_ns.map(|delay_ns| Time::from_nanos(at_ns + delay_ns)),
            bytes,
            flow: 0,
            reordered: false,
        }
    }

    /// One packet a millisecond for `seconds`; the delay in ns is its number modulo 100.
    fn steady(config: DelayConfig, seconds: u64) -> Delays {
        let mut delays = Delays::new(config);
        for number in 0..seconds * 1_000 {
            let delay_ns = (number % 10 != 9).then_some(number % 100);
            let at_ns = number * SECOND_NS / 1_000;
            let direction = Direction::ALL[(number % 2) as usize];
            delays.record(&outcome(direction, at_ns, delay_ns, 40 + (number % 1460) as u32));
        }
        delays
    }

    #[test]
    fn summaries_are_exact_below_the_width_of_a_bucket() {
        let delays = steady(DelayConfig::default(), 10);
        let both = delays.summary(None).expect("packets were forwarded");
        // Of the residues 0..100 those ending in 9 are lost: 90 values, 0..=98, each 100 times.
        assert_eq!((both.count, both.p5_ns, both.p50_ns), (9_000, 4, 48));
        assert_eq!((both.p95_ns, both.p99_ns), (94, 98));
        assert!((both.mean_ns - 49.0).abs() < 1e-9, "{}", both.mean_ns);
        let even = delays.summary(Some(Direction::ClientToServer)).expect("packets");
        assert_eq!(even.count, 5_000, "the even numbers, none of them lost");
    }

    #[test]
    fn the_series_books_by_entry_and_keeps_to_its_limit() {
        let config = DelayConfig { interval: Span::from_secs(1), intervals_max: 8 };
        let delays = steady(config, 8);
        assert_eq!(delays.interval(), Span::from_secs(1));
        let series = delays.series(None);
        assert_eq!(series.len(), 8);
        for (index, point) in series.iter().enumerate() {
            assert_eq!(point.start, Time::from_nanos(index as u64 * SECOND_NS));
            assert_eq!((point.lost, point.delay.expect("packets").count), (100, 900));
        }
        let delays = steady(config, 21);
        assert_eq!(delays.interval(), Span::from_secs(4));
        let series = delays.series(Some(Direction::ServerToClient));
        assert_eq!(series.len(), 6);
        assert_eq!(series.iter().map(|point| point.lost).sum::<u64>(), 2_100);
        assert_eq!((series[0].lost, series[5].lost), (400, 100));
        assert!(delays.series(Some(Direction::ClientToServer)).iter().all(|p| p.lost == 0));
    }

    #[test]
    fn sizes_fall_into_their_classes() {
        let mut delays = Delays::new(DelayConfig::default());
        for (bytes, delay_ns) in [(40, 1), (128, 1), (129, 2), (576, 2), (1_280, 3), (1_281, 4)] {
            let direction = Direction::ClientToServer;
            delays.record(&outcome(direction, 5, Some(delay_ns), bytes));
            delays.record(&outcome(direction, 5, None, bytes));
        }
        let classes = delays.by_size(None);
        assert_eq!(classes.map(|class| class.lost), [2, 2, 1, 1]);
        assert_eq!(classes.map(|class| class.delay.expect("packets").p50_ns), [1, 2, 3, 4]);
        assert!(delays.by_size(Some(Direction::ServerToClient)).iter().all(|c| c.delay.is_none()));
    }

    /// Overtaken packets are counted in the same interval and class as others, also when intervals are merged.
    #[test]
    fn reordered_packets_are_counted_in_each_interval_and_class() {
        let config = DelayConfig { interval: Span::from_secs(1), intervals_max: 4 };
        let mut delays = Delays::new(config);
        let mut record = |second: u64, bytes: u32, reordered: bool, way: usize| {
            let one = outcome(Direction::ALL[way], second * SECOND_NS, Some(7), bytes);
            delays.record(&PacketOutcome { reordered, ..one });
        };
        for (second, bytes, count) in [(0, 100, 3), (1, 100, 2), (2, 600, 4), (3, 1_300, 1)] {
            (0..count).for_each(|_| record(second, bytes, true, 0));
            (0..5).for_each(|_| record(second, bytes, false, 0));
            record(second, bytes, true, 1);
        }
        let reordered = |delays: &Delays, way: Option<usize>| -> Vec<u64> {
            let series = delays.series(way.map(|way| Direction::ALL[way]));
            series.iter().map(|point| point.reordered).collect()
        };
        assert_eq!(reordered(&delays, Some(0)), [3, 2, 4, 1]);
        assert_eq!(reordered(&delays, Some(1)), [1, 1, 1, 1]);
        assert_eq!(reordered(&delays, None), [4, 3, 5, 2]);
        assert_eq!(delays.by_size(None).map(|class| class.reordered), [7, 0, 5, 2]);
        assert_eq!(delays.interval(), Span::from_secs(1));
        // The fifth second has no interval left: all become twice as long.
        delays.record(&outcome(Direction::ClientToServer, 4 * SECOND_NS, None, 100));
        assert_eq!(delays.interval(), Span::from_secs(2));
        assert_eq!(reordered(&delays, None), [7, 7, 0]);
        assert_eq!(delays.series(None)[2].lost, 1);
        assert_eq!(delays.series(None)[1].start, Time::from_nanos(2 * SECOND_NS));
    }
}
