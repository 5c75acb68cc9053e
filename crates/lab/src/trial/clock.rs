//! The original's own clock, with its long silences cut short.
//!
//! Captures that were joined from several, or left running over a weekend, have hours in which no TCP passes. No
//! run waits for them: a silence of more than an hour is cut to the length that separates one session from the
//! next. Shorter silences are left as they were, because keep-alive connections consist of them.

use super::input_warning::InputWarning;

/// A silence of more than this is cut, seconds.
const SILENCE_S: u64 = 3_600;
const SECOND_NS: u64 = 1_000_000_000;

/// A silence, ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cut {
    /// From when on it is left out.
    begins_ns: u64,
    ends_ns: u64,
    /// How much of all silences is left out, this one included.
    left_out_ns: u64,
}

/// The clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clock {
    cuts: Vec<Cut>,
}

impl Clock {
    /// The clock of packets that passed in these seconds since 1970, in their order, where a silence of `bound_s`
    /// or more separates sessions.
    pub fn of(seconds: impl Iterator<Item = u64>, bound_s: f64) -> Clock {
        let kept_s = (bound_s.ceil() as u64).saturating_add(1).min(SILENCE_S);
        let (mut cuts, mut before, mut left_out_ns) = (Vec::new(), None, 0);
        for second in seconds {
            let quiet_s = before.map_or(0, |before: u64| second - before - 1);
            if quiet_s > SILENCE_S {
                let (out_ns, ends_ns) = ((quiet_s - kept_s) * SECOND_NS, second * SECOND_NS);
                left_out_ns += out_ns;
                cuts.push(Cut { begins_ns: ends_ns - out_ns, ends_ns, left_out_ns });
            }
            before = Some(second);
        }
        Clock { cuts }
    }

    /// What the clock shows at a moment; both ns since 1970, and equal until the first cut. It stands still during
    /// cuts.
    pub fn at(&self, ns: u64) -> u64 {
        let Some(cut) = self.cuts.partition_point(|cut| cut.begins_ns <= ns).checked_sub(1) else {
            return ns;
        };
        let cut = self.cuts[cut];
        ns.max(cut.ends_ns) - cut.left_out_ns
    }

    /// A warning about the cuts, if there are any.
    pub fn warning(&self) -> Option<InputWarning> {
        let &Cut { left_out_ns, .. } = self.cuts.last()?;
        Some(InputWarning::SilencesCut { count: self.cuts.len(), left_out_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silences_of_more_than_an_hour_are_cut_to_the_session_gap() {
        let day = 86_400;
        let seconds = [10, 11, 11 + 3_600, 11 + day, 12 + day, 20 + 3 * day];
        let clock = Clock::of(seconds.into_iter(), 60.0);
        let at = |second: u64| clock.at(second * SECOND_NS) / SECOND_NS;
        assert_eq!([at(10), at(11), at(3_611)], [10, 11, 3_611], "an hour is waited for");
        assert_eq!([at(11 + day), at(12 + day)], [3_673, 3_674], "61 s are left");
        assert_eq!(at(20 + 3 * day), 3_736);
        // What passes in a silence beside TCP passes at its end, and no later.
        assert_eq!([at(3_650), at(30_000), at(10 + day)], [3_650, 3_673, 3_673]);
        assert!((0..4 * day).step_by(997).map(at).is_sorted());
        assert_eq!(clock.at(20 * SECOND_NS + 5) % SECOND_NS, 5);
        let message = clock.warning().expect("two silences").to_string();
        assert!(message.starts_with("2 silences") && message.contains("71 h"), "{message}");
        assert_eq!(Clock::of([1, 2, 3_000].into_iter(), 60.0).warning(), None);
        assert_eq!(Clock::default().at(7), 7);
    }
}
