//! The volume of each interval of the original, and the sessions that carried it.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::Empirical;

use crate::connections::ConnectionVolume;
use crate::estimate_error::EstimateError;
use crate::grid::Grid;
use crate::model::{INTERVALS_MAX, Interval};
use crate::runner::Runner;
use crate::sampled::{SampledFiles, UNITS};
use crate::sessions::{self, Demand};

/// The default number of intervals of an original of up to a day, and of each day of a longer one.
const DAY_INTERVALS: f64 = 12.0;
/// The most days with this many intervals each.
const DAYS_MAX: f64 = 31.0;
/// Seconds of a day.
const DAY_S: f64 = 86_400.0;
/// Payload, flows and packets, by interval.
pub(crate) struct Volumes {
    origin_ns: u64,
    duration_s: f64,
    interval_s: f64,
    counted: Vec<Volume>,
    /// Volumes of whole connections, where they are known.
    whole: Option<Vec<ConnectionVolume>>,
    /// Payload and packets of sampled flows.
    sampled: Vec<(f64, f64)>,
    /// The mean size of their files.
    sampled_mean: f64,
}

/// The volume of the files that start in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Volume {
    pub bytes: u64,
    pub flows: u64,
    pub packets: u64,
}

impl Volume {
    /// Adds the volume of other files.
    pub fn add(&mut self, more: &Volume) {
        self.bytes += more.bytes;
        self.flows += more.flows;
        self.packets += more.packets;
    }
}

/// The default IntervalDuration of an original of `duration_s`, seconds: the paper's five minutes (Harpoon,
/// section 4.1), but at least three and at most twelve intervals.
///
/// Volumes are matched by interval, and variation within an interval is lost. An original of more than a day has
/// twelve intervals in each day, of about two hours, so that a week keeps its daily pattern; one of more than a
/// month has as many as a month. The paper has 2,016 in a week: an interval of five minutes can be requested for
/// that.
pub fn default_interval_s(duration_s: f64) -> f64 {
    let days = (duration_s / DAY_S).clamp(1.0, DAYS_MAX);
    (300.0f64).min(duration_s / 3.0).max(duration_s / libm::round(DAY_INTERVALS * days))
}

impl Volumes {
    /// Empty volumes in the intervals of `span_ns`, of the stated length or of [`default_interval_s`].
    pub fn new(span_ns: (u64, u64), stated_s: Option<f64>) -> Result<Volumes, EstimateError> {
        let duration_s = (span_ns.1.saturating_sub(span_ns.0) as f64 / 1e9).max(1e-3);
        let interval_s = stated_s.unwrap_or_else(|| default_interval_s(duration_s));
        let count = libm::ceil(duration_s / interval_s - 1e-9).max(1.0);
        if count > INTERVALS_MAX as f64 {
            return Err(EstimateError::TooManyIntervals(interval_s));
        }
        let count = count as usize;
        Ok(Volumes {
            origin_ns: span_ns.0,
            duration_s,
            interval_s,
            counted: vec![Volume::default(); count],
            whole: None,
            sampled: vec![(0.0, 0.0); count],
            sampled_mean: 0.0,
        })
    }

    /// The times of the intervals.
    pub fn grid(&self, bound_s: f64) -> Grid {
        let (origin_ns, interval_s, intervals) =
            (self.origin_ns, self.interval_s, self.counted.len());
        Grid { origin_ns, interval_s, intervals, last_s: self.length_s(intervals - 1), bound_s }
    }

    /// The length of an interval, seconds.
    fn length_s(&self, at: usize) -> f64 {
        self.interval_s.min(self.duration_s - at as f64 * self.interval_s)
    }

    /// Sets the volumes of files, by the interval where each starts.
    pub fn of_files(mut self, counted: Vec<Volume>) -> Volumes {
        self.counted = counted;
        self
    }

    /// Sets the volumes of whole connections, by interval.
    pub fn of_connections(mut self, whole: Vec<ConnectionVolume>) -> Volumes {
        self.whole = Some(whole);
        self
    }

    /// Sets the volumes that sampled records represent, by the interval where each starts.
    pub fn of_sampled(mut self, sampled: Vec<(u128, u128)>, files: &SampledFiles) -> Volumes {
        let whole = |units: u128| units as f64 / UNITS;
        for (volume, (bytes, packets)) in self.sampled.iter_mut().zip(sampled) {
            *volume = (whole(bytes), whole(packets));
        }
        let (bytes, flows) = files
            .sizes()
            .iter()
            .fold((0.0, 0.0), |sum, (size, flows)| (sum.0 + size * flows, sum.1 + flows));
        self.sampled_mean = if flows > 0.0 { bytes / flows } else { 0.0 };
        self
    }

    /// The total volume. The number of an interval's sampled flows is computed from its bytes, because it has
    /// few SYNs of its own.
    fn volume(&self, at: usize) -> Volume {
        let (counted, (bytes, packets)) = (self.counted[at], self.sampled[at]);
        let flows =
            if bytes >= 0.5 { libm::round(bytes / self.sampled_mean).max(1.0) } else { 0.0 };
        Volume {
            bytes: counted.bytes + libm::round(bytes) as u64,
            flows: counted.flows + flows as u64,
            packets: counted.packets + libm::round(packets) as u64,
        }
    }

    /// The intervals of the model, from its sizes, its gaps and the number of active address pairs.
    pub fn intervals(
        &self,
        (file_size, gaps, direct): (&Empirical, &Empirical, Vec<f64>),
        runner: &impl Runner,
    ) -> Vec<Interval> {
        let one = |(index, direct): (usize, f64)| {
            let volume = self.volume(index);
            let start_s = index as f64 * self.interval_s;
            let duration_s = self.length_s(index);
            let demand = Demand { interval: index as u32, bytes: volume.bytes, duration_s };
            Interval {
                start_s,
                duration_s,
                bytes: volume.bytes,
                flows: volume.flows,
                packets: volume.packets,
                sessions: sessions::active(demand, file_size, gaps),
                sessions_direct: direct,
                whole: self.whole.as_ref().map(|whole| whole[index]),
            }
        };
        runner.map(direct.into_iter().enumerate().collect(), one)
    }
}
