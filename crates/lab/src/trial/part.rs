//! Which part of an original is played: the whole of an original no longer than the run, else the window of
//! that length whose volume is the median of all windows (each window begins with a second in which TCP
//! passed), or sessions drawn from all of it.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::input_warning::InputWarning;

/// Seconds that an original is fitted into where no duration is given.
pub const FIT_S: f64 = 60.0;
const SECOND_NS: u64 = 1_000_000_000;
/// The shortest part, seconds: a capture of one packet lasts no time.
const PART_MIN_S: f64 = 0.5;

/// A part of the original.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// When it begins, seconds after the original does.
    pub start_s: f64,
    /// How long it is, seconds.
    pub seconds: f64,
}

impl std::str::FromStr for Part {
    type Err = anyhow::Error;

    /// `START+LENGTH`, in seconds.
    fn from_str(text: &str) -> Result<Part> {
        let number = |text: &str| text.trim().parse().ok().filter(|s: &f64| s.is_finite());
        let both = text.split_once('+').map(|(start, seconds)| (number(start), number(seconds)));
        match both {
            Some((Some(start_s), Some(seconds))) if start_s >= 0.0 && seconds >= PART_MIN_S => {
                Ok(Part { start_s, seconds })
            }
            _ => bail!(
                "'{text}' is not a valid part: write START+LENGTH in seconds, such as 120+60, of at least \
                 {PART_MIN_S} s"
            ),
        }
    }
}

/// What of an original is to be played.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wanted {
    /// This part.
    pub part: Option<Part>,
    /// The length in seconds, [`FIT_S`] by default.
    pub duration_s: Option<f64>,
    /// Sessions drawn from all of it, in place of one part.
    pub spread: bool,
}

/// TCP by second, and when it was.
#[derive(Default)]
pub struct Volume {
    /// Seconds since 1970, and the bytes that passed.
    seconds: BTreeMap<u64, u64>,
    span_ns: Option<(u64, u64)>,
}

impl Volume {
    /// Adds bytes that passed at a moment, ns since 1970.
    pub fn add(&mut self, stamp_ns: u64, bytes: u64) {
        let second = self.seconds.entry(stamp_ns / SECOND_NS).or_default();
        *second = second.saturating_add(bytes);
        let (first, last) = self.span_ns.unwrap_or((stamp_ns, stamp_ns));
        self.span_ns = Some((first.min(stamp_ns), last.max(stamp_ns)));
    }

    /// As this clock shows it.
    #[must_use]
    pub fn by(self, clock: &Clock) -> Volume {
        let mut seconds = BTreeMap::new();
        for (second, bytes) in self.seconds {
            *seconds.entry(clock.at(second * SECOND_NS) / SECOND_NS).or_default() += bytes;
        }
        let span_ns = self.span_ns.map(|(first, last)| (clock.at(first), clock.at(last)));
        Volume { seconds, span_ns }
    }

    /// From the first to the last moment at which any passed, ns since 1970.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        self.span_ns
    }

    /// The original's clock, where a silence of `bound_s` parts sessions.
    pub fn clock(&self, bound_s: f64) -> Clock {
        Clock::of(self.seconds.keys().copied(), bound_s)
    }

    /// The requested part; else an original no longer than the duration as a whole, or the window of that
    /// length with the median volume.
    pub fn choose(&self, wanted: &Wanted) -> Chosen {
        let (first_ns, last_ns) = self.span_ns.unwrap_or_default();
        let whole_s = (last_ns - first_ns) as f64 / 1e9;
        let part = wanted.part.unwrap_or_else(|| {
            let seconds = wanted.duration_s.unwrap_or(FIT_S).min(whole_s.max(PART_MIN_S) + 0.001);
            let start_ns = match whole_s > seconds && !wanted.spread {
                true => self.median_window_ns(seconds).max(first_ns),
                false => first_ns,
            };
            Part { start_s: (start_ns - first_ns) as f64 / 1e9, seconds }
        });
        Chosen { part, first_ns, whole_s, wanted: *wanted }
    }

    /// When the window of `seconds` with the median volume begins, ns since 1970.
    fn median_window_ns(&self, seconds: f64) -> u64 {
        let length = seconds.ceil() as u64;
        let last = self.seconds.keys().next_back().copied().unwrap_or(0);
        let mut windows: Vec<(u64, u64)> = Vec::new();
        // The volume of the window that begins here is that of the previous one, less its first second.
        let (mut reached, mut carried) = (self.seconds.iter().peekable(), 0_u64);
        for (&begins, bytes) in &self.seconds {
            let ends = begins.saturating_add(length);
            // A window that reaches beyond the end is incomplete, and only used if there is no other.
            if ends > last.saturating_add(1) && !windows.is_empty() {
                break;
            }
            while let Some((_, more)) = reached.next_if(|(second, _)| **second < ends) {
                carried = carried.saturating_add(*more);
            }
            windows.push((carried, begins));
            carried = carried.saturating_sub(*bytes);
        }
        windows.sort_unstable();
        windows.get(windows.len() / 2).map_or(0, |(_, begins)| begins * SECOND_NS)
    }
}

/// A draw from all of an original. It has twice the run's length; the first half, the lead, is not played:
/// connections under way when it ends are under way when the run begins.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The share of all sessions, 0 to 1.
    pub share: f64,
    /// The lead, ns.
    pub lead_ns: u64,
}

/// The part that is played, of an original that begins then.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// The part.
    pub part: Part,
    /// When the original begins, ns since 1970.
    first_ns: u64,
    /// How long the original lasts, seconds.
    pub whole_s: f64,
    wanted: Wanted,
}

impl Chosen {
    /// When the part begins and ends, ns since 1970.
    pub fn between_ns(&self) -> [u64; 2] {
        let begins_ns = self.first_ns.saturating_add((self.part.start_s * 1e9) as u64);
        [begins_ns, begins_ns.saturating_add((self.part.seconds * 1e9) as u64)]
    }

    /// The draw from all of the original; none where a part is played.
    pub fn spread(&self) -> Option<Spread> {
        let (run_s, whole_s) = (self.part.seconds, self.whole_s);
        (self.wanted.spread && whole_s > run_s).then(|| {
            let lead_s = run_s.min(whole_s - run_s);
            Spread { share: (run_s + lead_s) / whole_s, lead_ns: (lead_s * 1e9) as u64 }
        })
    }

    /// Refuses a part in which nothing passed.
    ///
    /// # Errors
    /// When it holds none of `what`.
    pub fn holds(&self, count: usize, what: &str) -> Result<()> {
        let &Chosen { part, whole_s, wanted, .. } = self;
        if count == 0 && wanted.spread {
            bail!(
                "no {what} of the sessions that --spread drew falls into the {:.3} s of the run; the original lasts \
                 {whole_s:.3} s: give a longer --duration, or one of its parts (--part START+LENGTH)",
                part.seconds
            );
        }
        if count == 0 {
            bail!(
                "no {what} passed in the part from {:.3} s on, of {:.3} s; the original lasts {whole_s:.3} s",
                part.start_s,
                part.seconds
            );
        }
        Ok(())
    }

    /// A warning about the choice.
    pub fn warning(&self) -> Option<InputWarning> {
        let &Chosen { part, whole_s, wanted, .. } = self;
        let until = wanted.part.map(|part| ("--part", part.start_s + part.seconds));
        let until = until.or(wanted.duration_s.map(|seconds| ("--duration", seconds)));
        let too_short = until.and_then(|(flag, until_s)| short(whole_s, flag, until_s));
        let is_median = whole_s > part.seconds + 1.0 && wanted.part.is_none() && !wanted.spread;
        let Part { start_s, seconds } = part;
        let median = InputWarning::MedianPart { whole_s, seconds, start_s };
        too_short.or(is_median.then_some(median))
    }
}

/// A warning that a flag requests more than there is.
pub(super) fn short(whole_s: f64, flag: &'static str, until_s: f64) -> Option<InputWarning> {
    (until_s > whole_s + 1.0).then_some(InputWarning::NothingRepeated { whole_s, flag, until_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_start_and_a_length() {
        let part: Part = "120+60".parse().expect("a part");
        assert_eq!(part, Part { start_s: 120.0, seconds: 60.0 });
        for wrong in ["120", "60s", "a+b", "-1+60", "0+0.1", "nan+60", ""] {
            let message = wrong.parse::<Part>().expect_err(wrong).to_string();
            assert!(message.contains("START+LENGTH"), "{message}");
        }
    }

    /// The definition taken literally: each window is summed on its own.
    fn naive(volume: &Volume, length: u64) -> u64 {
        let last = *volume.seconds.keys().next_back().expect("seconds");
        let begins = volume.seconds.keys().copied();
        let whole =
            begins.enumerate().filter(|(at, second)| *at == 0 || second + length <= last + 1);
        let sum = |begins: u64| -> u64 {
            volume.seconds.range(begins..begins + length).map(|(_, bytes)| bytes).sum()
        };
        let mut windows: Vec<_> = whole.map(|(_, begins)| (sum(begins), begins)).collect();
        windows.sort_unstable();
        windows[windows.len() / 2].1 * SECOND_NS
    }

    #[test]
    fn windows_are_summed_as_by_hand() {
        let mut rng = nilometer_stat::Rng::new(3, 0, 0);
        for _ in 0..200 {
            let mut volume = Volume::default();
            for _ in 0..=rng.below(60) {
                volume.add(rng.below(90) * SECOND_NS, rng.below(1_000));
            }
            let length = 1 + rng.below(40);
            assert_eq!(volume.median_window_ns(length as f64), naive(&volume, length));
        }
    }

    #[test]
    fn the_window_has_the_median_volume() {
        let mut volume = Volume::default();
        // A busy beginning, a long quiet middle, and a middling end.
        for second in 0..100u64 {
            let bytes = match second {
                0..10 => 1_000,
                10..90 => 10,
                _ => 100,
            };
            volume.seconds.insert(1_000 + second, bytes);
        }
        let begins = volume.median_window_ns(10.0) / 1_000_000_000 - 1_000;
        assert!((10..=80).contains(&begins), "{begins}");
        assert_eq!(Volume::default().median_window_ns(10.0), 0);
    }
}
