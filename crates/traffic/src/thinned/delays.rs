//! Delays of the first sampled packets of connections, and their effect on the lags between these.
//!
//! If a connection's SYN was sampled, its next sampled packet shows a delay: exactly, but there are few of them.
//! *Spans* between the first two sampled packets of a connection whose SYN was not sampled are many, and contain
//! information about delays as well. If a connection of the duration w sends evenly and is sampled sparsely, its
//! delay is uniform up to w, and the span x between two of its packets has the density 2(w - x)/w². Two packets are
//! sampled of a long connection more often than one, in proportion to w: over all connections with a sampled
//! packet, the density of spans is proportional to the mean of (1 - x/w) where x < w. Its slope is the mean of -1/w
//! where x < w, the density of delays. So the density of spans, which falls, is proportional to the chance that a
//! delay is longer.
//!
//! Connections do not send evenly, so this is a prior, with the weight of [`PRIOR_DELAYS`] observed delays.

use alloc::vec;
use alloc::vec::Vec;

use super::renewal::{BINS, Bins};

/// The number of delays that the law by spans counts as.
const PRIOR_DELAYS: f64 = 4.0;
/// The fewest delays and spans that are used.
const DELAYS_MIN: u64 = 4;
const SPANS_MIN: u64 = 20;
/// The shortest spans whose density is pooled: at least this many, and this share of all.
const SHORTEST_MIN: f64 = 8.0;
const SHORTEST_SHARE: f64 = 1.0 / 32.0;

/// The effect of delays on a lag.
#[derive(Clone, Debug)]
pub(crate) struct Blur {
    /// For each bin of the lag between starts, the shares of the lag between sampled packets.
    to: Vec<Vec<f64>>,
}

impl Blur {
    /// The effect of these delays and spans, counted by bins; `None` if there are too few. `at_once` is the share
    /// of connections without a delay.
    pub fn new(bins: &Bins, (delays, spans): (&[u64], &[u64]), at_once: f64) -> Option<Blur> {
        let (seen, pairs) = (delays.iter().sum::<u64>(), spans.iter().sum::<u64>());
        if seen < DELAYS_MIN && pairs < SPANS_MIN {
            return None;
        }
        let mut law = if pairs < SPANS_MIN { vec![0.0; BINS] } else { by_spans(bins, spans) };
        law.iter_mut().zip(delays).for_each(|(share, count)| {
            *share = PRIOR_DELAYS * *share + *count as f64;
        });
        let total: f64 = law.iter().sum();
        let delayed = law.iter().enumerate().filter(|(_, share)| **share > 0.0);
        let mut values = vec![(0.0, at_once)];
        values.extend(
            delayed.map(|(at, share)| (bins.middle_s(at), (1.0 - at_once) * share / total)),
        );
        let row = |from: usize| {
            let mut row = vec![0.0; BINS];
            for (first, share) in &values {
                for (second, more) in &values {
                    let lag_s = libm::fabs(bins.middle_s(from) + second - first);
                    if lag_s <= bins.bound_s() {
                        row[bins.at(lag_s)] += share * more;
                    }
                }
            }
            row
        };
        Some(Blur { to: (0..BINS).map(row).collect() })
    }

    /// The shares of lags between sampled packets, given those of lags between starts.
    pub fn of(&self, lags: &[f64]) -> Vec<f64> {
        let mut made = vec![0.0; BINS];
        for (row, lag) in self.to.iter().zip(lags) {
            made.iter_mut().zip(row).for_each(|(sum, share)| *sum += lag * share);
        }
        made
    }
}

/// The law of delays by spans: the decrease of the density of spans from bin to bin, after neighbours that rise have
/// been pooled, and so have the shortest spans, whose density in narrow bins is too uncertain.
fn by_spans(bins: &Bins, spans: &[u64]) -> Vec<f64> {
    // Spans, seconds, and the bin where each group begins.
    let mut groups: Vec<(f64, f64, usize)> = Vec::new();
    let least = SHORTEST_MIN.max(spans.iter().sum::<u64>() as f64 * SHORTEST_SHARE);
    for (at, &count) in spans.iter().enumerate() {
        let mut group = (count as f64, bins.begin_s(at + 1) - bins.begin_s(at), at);
        while let Some(&(before, width_s, from)) = groups.last() {
            if before >= least && before / width_s > group.0 / group.1 {
                break;
            }
            group = (before + group.0, width_s + group.1, from);
            groups.pop();
        }
        groups.push(group);
    }
    let density = |at: usize| groups.get(at).map_or(0.0, |group| group.0 / group.1);
    let mut law = vec![0.0; BINS];
    for at in 0..groups.len() {
        let end = groups.get(at + 1).map_or(BINS - 1, |next| next.2);
        law[end] += (density(at) - density(at + 1)) / density(0);
    }
    law
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// Connections of many durations that send evenly, sampled sparsely.
    #[test]
    fn the_law_of_delays_follows_from_spans() {
        let bins = Bins::new(60.0);
        let mut rng = Rng::new(1, 0x7470, 0);
        let (mut spans, mut delays) = (vec![0; BINS], vec![0.0; BINS]);
        let longest = 3.0;
        for _ in 0..4_000_000 {
            let duration = libm::exp(-1.5 + 0.7 * rng.normal()).min(longest);
            if rng.unit() < duration / longest {
                let (one, other) = (duration * rng.unit(), duration * rng.unit());
                delays[bins.at(one)] += 1.0;
                if rng.unit() < duration / longest {
                    spans[bins.at((one - other).abs())] += 1;
                }
            }
        }
        let total: f64 = delays.iter().sum();
        let (mut off, mut worst) = (0.0, 0.0_f64);
        for (share, delay) in by_spans(&bins, &spans).iter().zip(&delays) {
            off += share - delay / total;
            worst = worst.max(f64::abs(off));
        }
        assert!(worst < 0.1, "off by {worst}");
    }

    /// Without delays lags do not change; a delay lengthens a lag on one side and shortens it on the other.
    #[test]
    fn delays_move_lags_both_ways() {
        let bins = Bins::new(60.0);
        let (mut delays, spans) = (vec![0; BINS], vec![0; BINS]);
        assert!(Blur::new(&bins, (&delays, &spans), 0.5).is_none());
        let short = bins.at(0.5);
        delays[short] = 9;
        let at = bins.at(10.0);
        let mut lags = vec![0.0; BINS];
        lags[at] = 1.0;
        let none = Blur::new(&bins, (&delays, &spans), 1.0).expect("delays").of(&lags);
        assert_eq!(none, lags);
        let half = Blur::new(&bins, (&delays, &spans), 0.5).expect("delays").of(&lags);
        let (sooner, later) = (bins.at(bins.middle_s(at) - 0.5), bins.at(bins.middle_s(at) + 0.5));
        assert!((half.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(half[sooner.min(at)] >= 0.25 && half[later.max(at)] >= 0.25, "{half:?}");
        // If a lag is shorter than the delay, the other connection is seen first.
        let mut lags = vec![0.0; BINS];
        lags[bins.at(0.01)] = 1.0;
        let turned = Blur::new(&bins, (&delays, &spans), 0.5).expect("delays").of(&lags);
        assert!((turned.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(turned[bins.at(bins.middle_s(short) - 0.01)] >= 0.25);
    }
}
