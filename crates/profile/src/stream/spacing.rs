//! When frames of an open-loop stream are due: evenly, by chance, in bursts, on and off, or as once recorded.

use alloc::sync::Arc;

use nilometer_stat::Rng;
use nilometer_wire::Span;

use super::capture::Recording;

const PURPOSE_GAP: u32 = 0x5354_0101;
/// How long a self-similar source is on, on average, and off.
const PERIOD_MEAN_NS: f64 = 20e6;
/// The longest that it is either.
const PERIOD_MAX_NS: f64 = 60e9;

/// The times at which frames are due, at a given mean rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Spacing {
    /// All at equal distances.
    Constant,
    /// A Poisson process.
    Poisson,
    /// This many frames at once, and then none until the mean rate is reached (RFC 2285, section 3.4).
    Bursts(u32),
    /// Evenly for a time, at a rate that makes up for the time after it in which there are none.
    OnOff {
        /// How long frames come.
        on: Span,
        /// How long none come.
        off: Span,
    },
    /// On and off for times of a Pareto law, so that counts of frames are long-range dependent with this Hurst
    /// parameter, above 0.5 and below 1 (Taqqu, Willinger and Sherman 1997: the law's shape is 3 − 2H).
    SelfSimilar(f64),
    /// As packets of a capture arrived, repeatedly; faster or slower if a rate is requested.
    Recorded(Arc<Recording>),
}

impl Spacing {
    /// How many frames are due together, if groups of equal size follow one another at one distance; `None` for
    /// other patterns.
    pub fn group(&self) -> Option<u32> {
        match self {
            Spacing::Constant => Some(1),
            Spacing::Bursts(frames) => Some((*frames).max(1)),
            _ => None,
        }
    }
}

/// When the frame with this number is due if groups of `group` frames follow one another, ns after
/// the beginning.
pub(super) fn grouped(number: u64, group: u32, gap_ns: f64) -> u64 {
    let group = u64::from(group);
    ((number / group * group) as f64 * gap_ns) as u64
}

/// Due times, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Times {
    spacing: Spacing,
    gap_ns: f64,
    rng: Rng,
    /// How many there were.
    count: u64,
    /// The time of the next, where it follows from the one before.
    next_ns: f64,
    /// When the period in which frames come ends.
    on_until_ns: f64,
}

impl Times {
    pub(super) fn new(spacing: Spacing, pps: f64, seed: u64, stream: u8) -> Times {
        let rng = Rng::new(seed, PURPOSE_GAP, stream.into());
        let mut times =
            Times { spacing, gap_ns: 1e9 / pps, rng, count: 0, next_ns: 0.0, on_until_ns: 0.0 };
        if let Spacing::SelfSimilar(hurst) = times.spacing {
            times.on_until_ns = times.period(hurst);
        }
        times
    }

    /// When the next frame is due, ns after the beginning.
    pub(super) fn next(&mut self) -> u64 {
        let number = self.count;
        self.count += 1;
        match &self.spacing {
            Spacing::Constant => grouped(number, 1, self.gap_ns),
            Spacing::Bursts(frames) => grouped(number, (*frames).max(1), self.gap_ns),
            Spacing::Poisson => {
                let gap = self.rng.exponential(self.gap_ns);
                self.after(gap)
            }
            Spacing::OnOff { on, off } => {
                let (on, off) = (on.as_nanos() as f64, off.as_nanos() as f64);
                // How much of the time in which frames come has passed.
                let within = number as f64 * self.gap_ns * on / (on + off);
                let periods = (within / on) as u64 as f64;
                (within + periods * off) as u64
            }
            Spacing::SelfSimilar(hurst) => {
                let hurst = *hurst;
                self.self_similar(hurst)
            }
            Spacing::Recorded(recording) => {
                let (rounds, at) = recording.place(number);
                let mean = recording.mean_gap_ns();
                ((rounds as f64 * recording.length_ns() + at as f64) * (self.gap_ns / mean)) as u64
            }
        }
    }

    fn after(&mut self, gap: f64) -> u64 {
        let due = self.next_ns;
        self.next_ns += gap;
        due as u64
    }

    fn self_similar(&mut self, hurst: f64) -> u64 {
        // Half of the time nothing comes, so that in the other half twice as much does.
        let gap = self.gap_ns / 2.0;
        while self.next_ns >= self.on_until_ns {
            let over = self.next_ns - self.on_until_ns;
            let off = self.period(hurst);
            self.next_ns = self.on_until_ns + off + over;
            self.on_until_ns = self.on_until_ns + off + self.period(hurst);
        }
        self.after(gap)
    }

    /// A time of the Pareto law.
    fn period(&mut self, hurst: f64) -> f64 {
        let shape = 3.0 - 2.0 * hurst;
        let least = PERIOD_MEAN_NS * (shape - 1.0) / shape;
        let long = least * libm::pow(1.0 - self.rng.unit(), -1.0 / shape);
        long.min(PERIOD_MAX_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn times(spacing: Spacing, pps: f64, count: usize) -> Vec<u64> {
        let mut times = Times::new(spacing, pps, 7, 0);
        (0..count).map(|_| times.next()).collect()
    }

    #[test]
    fn even_times_do_not_drift() {
        let due = times(Spacing::Constant, 3.0, 3_000_001);
        assert_eq!(due[..4], [0, 333_333_333, 666_666_666, 1_000_000_000]);
        assert_eq!(due[3_000_000], 1_000_000 * 1_000_000_000);
    }

    #[test]
    fn bursts_keep_the_mean_rate() {
        let due = times(Spacing::Bursts(4), 1_000.0, 12);
        let burst = |ms: u64| vec![ms * 1_000_000; 4];
        assert_eq!(due, [burst(0), burst(4), burst(8)].concat());
    }

    #[test]
    fn on_and_off_keep_the_mean_rate() {
        let ms = |ms: u64| Span::from_nanos(ms * 1_000_000);
        let due = times(Spacing::OnOff { on: ms(10), off: ms(30) }, 1_000.0, 4_001);
        assert_eq!(due[4_000], 4_000_000_000);
        assert!(due.iter().all(|ns| ns % 40_000_000 < 10_000_000), "none comes while it is off");
        assert_eq!(due.iter().filter(|&&ns| ns < 40_000_000).count(), 40);
    }

    #[test]
    fn gaps_of_a_poisson_process_are_exponential() {
        let due = times(Spacing::Poisson, 10_000.0, 100_001);
        let gaps: Vec<f64> = due.windows(2).map(|two| (two[1] - two[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let long = gaps.iter().filter(|&&gap| gap > 100_000.0).count() as f64 / gaps.len() as f64;
        assert!((mean / 1e5 - 1.0).abs() < 0.02, "{mean}");
        assert!((long - libm::exp(-1.0)).abs() < 0.01, "{long}");
    }

    /// The variance of counts falls slower with the time over which they are taken than that of a Poisson process
    /// would (slope −1 of their logarithms): by 2H − 2.
    #[test]
    fn counts_of_a_self_similar_stream_vary_at_every_scale() {
        let due = times(Spacing::SelfSimilar(0.85), 2_000.0, 400_000);
        assert!(due.is_sorted());
        let variance = |bin_ns: u64| {
            let bins = (due[due.len() - 1] / bin_ns) as usize;
            let mut counts = vec![0.0; bins];
            due.iter().filter(|&&ns| ns / bin_ns < bins as u64).for_each(|ns| {
                counts[(ns / bin_ns) as usize] += 1.0 / bin_ns as f64;
            });
            let mean = counts.iter().sum::<f64>() / bins as f64;
            counts.iter().map(|count| (count - mean) * (count - mean)).sum::<f64>() / bins as f64
        };
        let slope =
            libm::log10(variance(2_000_000_000) / variance(100_000_000)) / libm::log10(20.0);
        assert!((-0.75..0.0).contains(&slope), "{slope}");
    }

    #[test]
    fn a_recording_is_repeated_at_the_requested_rate() {
        let recording = Arc::new(Recording::new(&[(0, 64), (10, 64), (40, 64)]).expect("three"));
        // Three packets in 60 ns: the last gap is the mean of the others.
        let due = times(Spacing::Recorded(Arc::clone(&recording)), 1e9 / 20.0, 7);
        assert_eq!(due, [0, 10, 40, 60, 70, 100, 120]);
        let twice = times(Spacing::Recorded(recording), 1e9 / 10.0, 4);
        assert_eq!(twice, [0, 5, 20, 30]);
    }
}
