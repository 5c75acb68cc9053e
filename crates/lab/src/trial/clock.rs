//! The original's own clock, with its long silences cut out.
//!
//! Captures that were put together of several, or left running over a weekend, have hours in which nothing passes.
//! Nobody waits for them: a silence of more than an hour takes no time. What is within an hour is left as it was, as
//! that is what keep-alive connections are made of.

/// A silence of more than this is cut out, seconds.
const SILENCE_S: u64 = 3_600;
const SECOND_NS: u64 = 1_000_000_000;

/// The clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clock {
    /// When a silence ends, and how much of all silences until then is left out; ns.
    cuts: Vec<(u64, u64)>,
}

impl Clock {
    /// The clock of packets that passed in these seconds since 1970, in their order.
    pub fn of(seconds: impl Iterator<Item = u64>) -> Clock {
        let (mut cuts, mut before, mut left_out_ns) = (Vec::new(), None, 0);
        for second in seconds {
            let quiet_s = before.map_or(0, |before: u64| second - before - 1);
            if quiet_s > SILENCE_S {
                left_out_ns += quiet_s * SECOND_NS;
                cuts.push((second * SECOND_NS, left_out_ns));
            }
            before = Some(second);
        }
        Clock { cuts }
    }

    /// What it shows at a moment; both ns since 1970, and the same until the first silence.
    pub fn at(&self, ns: u64) -> u64 {
        let cut = self.cuts.partition_point(|(ends_ns, _)| *ends_ns <= ns).checked_sub(1);
        cut.map_or(ns, |cut| ns - self.cuts[cut].1)
    }

    /// What a person should know of it.
    pub fn told(&self) -> Option<String> {
        let (_, left_out_ns) = self.cuts.last()?;
        let hours = *left_out_ns as f64 / 1e9 / 3_600.0;
        let silences = match self.cuts.len() {
            1 => "a silence".to_owned(),
            more => format!("{more} silences"),
        };
        Some(format!(
            "{silences} of more than an hour, {hours:.0} h in all, cut out: times of the original are told \
             without"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silences_of_more_than_an_hour_take_no_time() {
        let day = 86_400;
        let clock = Clock::of([10, 11, 11 + 3_600, 11 + day, 12 + day, 20 + 3 * day].into_iter());
        let at = |second: u64| clock.at(second * SECOND_NS) / SECOND_NS;
        assert_eq!([at(10), at(11), at(3_611)], [10, 11, 3_611], "an hour is waited for");
        assert_eq!([at(11 + day), at(12 + day)], [3_612, 3_613]);
        assert_eq!(at(20 + 3 * day), 3_614);
        assert_eq!(clock.at(20 * SECOND_NS + 5) % SECOND_NS, 5);
        let told = clock.told().expect("two silences");
        assert!(told.starts_with("2 silences") && told.contains("71 h"), "{told}");
        assert_eq!(Clock::of([1, 2, 3_000].into_iter()).told(), None);
        assert_eq!(Clock::default().at(7), 7);
    }
}
