//! What a device adds to the delay over the bare wire, with bounds.
//!
//! A measured delay is the device's and the instrument's, `D = X + N`. Over the bare wire the instrument's is measured
//! alone; let `n1` and `n99` be its first and last percentiles. Where `N` is above `n99` once in a hundred times,
//! `D ≤ x + n99` for all but a hundredth of the frames with `X ≤ x`, so that the quantile `p` of `X` is at least that of
//! `D` at `p - 1 %` less `n99`; and likewise at most that at `p + 1 %` less `n1`. This holds whatever the device's delay
//! and the noise have to do with each other. It assumes that the noise through the device is that over the wire.

use nilometer_stat::Histogram;
use serde::{Deserialize, Serialize};

/// The part of the noise that is left out at either end.
const TAIL: f64 = 0.01;
/// A quantile of a histogram is within this part of the recorded value.
const BUCKET: f64 = 1.0 / 128.0;

/// A quantile of the delay that a device adds, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddedQuantile {
    /// The measured quantile less the wire's median.
    pub ns: i64,
    /// What it is at least.
    pub low_ns: i64,
    /// What it is at most.
    pub high_ns: i64,
}

/// The delay that a device adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddedDelay {
    /// 5th percentile.
    pub p5: AddedQuantile,
    /// Median.
    pub p50: AddedQuantile,
    /// 95th percentile.
    pub p95: AddedQuantile,
    /// 99th percentile.
    pub p99: AddedQuantile,
}

impl AddedDelay {
    /// Of delays through a device and over the wire, nanoseconds; `None` where one of them has none.
    pub fn of(device: &Histogram, wire: &Histogram) -> Option<AddedDelay> {
        let noise = [TAIL, 0.5, 1.0 - TAIL].map(|at| wire.quantile(at).map(|ns| ns as f64));
        let [n1, middle, n99] = noise;
        let [n1, middle, n99] = [n1?, middle?, n99?];
        let whole = |at: f64| device.quantile(at).map(|ns| ns as f64);
        let quantile = |at: f64| {
            let low = whole(at - TAIL)? * (1.0 - BUCKET) - n99 * (1.0 + BUCKET);
            let high = whole(at + TAIL)? * (1.0 + BUCKET) - n1 * (1.0 - BUCKET);
            let [ns, low_ns, high_ns] = [whole(at)? - middle, low, high].map(|ns| ns as i64);
            Some(AddedQuantile { ns, low_ns, high_ns })
        };
        Some(AddedDelay {
            p5: quantile(0.05)?,
            p50: quantile(0.5)?,
            p95: quantile(0.95)?,
            p99: quantile(0.99)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    const FRAMES: u64 = 20_000;

    /// What was measured of the device's delays and the noise of each frame, and the true quantiles of the former.
    fn measured(frames: &[(u64, u64)]) -> (AddedDelay, [u64; 4]) {
        let (mut device, mut wire) = (Histogram::new(), Histogram::new());
        for (own, noise) in frames {
            device.record(own + noise);
            wire.record(*noise);
        }
        let mut own: Vec<u64> = frames.iter().map(|(own, _)| *own).collect();
        own.sort_unstable();
        let truth = [0.05, 0.5, 0.95, 0.99].map(|at| own[(at * own.len() as f64) as usize]);
        (AddedDelay::of(&device, &wire).expect("frames"), truth)
    }

    fn quantiles(added: &AddedDelay) -> [AddedQuantile; 4] {
        [added.p5, added.p50, added.p95, added.p99]
    }

    #[test]
    fn the_true_delay_lies_within_the_bounds_for_any_dependence_of_the_noise() {
        let mut rng = Rng::new(1, u32::from_be_bytes(*b"adds"), 0);
        let noise =
            |rng: &mut Rng| 900 + rng.below(300) + if rng.below(200) == 0 { 40_000 } else { 0 };
        let devices: [fn(&mut Rng) -> u64; 3] =
            [|rng| 2_000 + rng.below(500), |rng| (700.0 / (rng.unit() + 1e-4)) as u64, |_| 0];
        for device in devices {
            let drawn: Vec<(u64, u64)> =
                (0..FRAMES).map(|_| (device(&mut rng), noise(&mut rng))).collect();
            // As they are drawn; the slowest with the most noise; and the slowest with the least.
            let mut own: Vec<u64> = drawn.iter().map(|(own, _)| *own).collect();
            let mut noises: Vec<u64> = drawn.iter().map(|(_, noise)| *noise).collect();
            own.sort_unstable();
            noises.sort_unstable();
            let same: Vec<_> = own.iter().copied().zip(noises.iter().copied()).collect();
            let opposite: Vec<_> = own.iter().copied().zip(noises.iter().rev().copied()).collect();
            for frames in [drawn, same, opposite] {
                let (added, truth) = measured(&frames);
                for (one, truth) in quantiles(&added).iter().zip(truth) {
                    let within = (one.low_ns..=one.high_ns).contains(&(truth as i64));
                    assert!(within, "{truth} ns: {one:?}");
                }
            }
        }
    }

    #[test]
    fn the_bounds_of_a_steady_device_are_as_wide_as_the_noise() {
        let mut rng = Rng::new(2, u32::from_be_bytes(*b"adds"), 0);
        let frames: Vec<_> = (0..FRAMES).map(|_| (2_000, 900 + rng.below(300))).collect();
        let (added, _) = measured(&frames);
        assert!((added.p50.ns - 2_000).abs() < 30, "{added:?}");
        let width = added.p50.high_ns - added.p50.low_ns;
        assert!((250..400).contains(&width), "{added:?}");
    }

    #[test]
    fn without_frames_there_is_no_added_delay() {
        let mut some = Histogram::new();
        some.record(5);
        assert_eq!(AddedDelay::of(&Histogram::new(), &some), None);
        assert_eq!(AddedDelay::of(&some, &Histogram::new()), None);
    }
}
