//! Time as the run sees it: picoseconds since the run began.
//!
//! One `u64` of picoseconds lasts 213 days, which no run does, and is exact for every rate a link
//! can have (a bit at 100 Gb/s is 10 ps). Wall-clock stamps of captures and exports are something
//! else, nanoseconds since 1970, and live in `nilometer-flow`.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

const PICOS_PER_NANO: u64 = 1_000;
const PICOS_PER_SECOND: f64 = 1e12;

/// A moment: picoseconds since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Time {
    /// The moment the run began.
    pub const ZERO: Time = Time(0);

    /// The moment `nanos` nanoseconds after the run began; saturates after 213 days.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos.saturating_mul(PICOS_PER_NANO))
    }

    /// Whole nanoseconds since the run began, rounded down.
    pub const fn as_nanos(self) -> u64 {
        self.0 / PICOS_PER_NANO
    }

    /// Seconds since the run began.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / PICOS_PER_SECOND
    }

    /// How long after `earlier` this is; zero when it is not after.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// `nanos` nanoseconds; saturates.
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos.saturating_mul(PICOS_PER_NANO))
    }

    /// `seconds` seconds; saturates.
    pub const fn from_secs(seconds: u64) -> Span {
        Span(seconds.saturating_mul(1_000_000_000_000))
    }

    /// `seconds` as a span, rounded to the picosecond; negative and NaN give zero, too long saturates.
    pub fn from_secs_f64(seconds: f64) -> Span {
        Span((seconds * PICOS_PER_SECOND + 0.5) as u64)
    }

    /// Whole nanoseconds, rounded down.
    pub const fn as_nanos(self) -> u64 {
        self.0 / PICOS_PER_NANO
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / PICOS_PER_SECOND
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, times: u64) -> Span {
        Span(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    fn div(self, parts: u64) -> Span {
        Span(self.0 / parts)
    }
}

impl fmt::Display for Span {
    /// In the unit a person would choose: `9.8 µs`, `41 µs`, `3.2 ms`, `20 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64 / 1e3;
        let (value, unit) = match nanos {
            n if n < 1e3 => (n, "ns"),
            n if n < 1e6 => (n / 1e3, "µs"),
            n if n < 1e9 => (n / 1e6, "ms"),
            n => (n / 1e9, "s"),
        };
        let decimals = if value < 10.0 { 1 } else { 0 };
        write!(f, "{value:.decimals$} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn spans_are_shown_in_natural_units() {
        assert_eq!(Span::from_nanos(9_800).to_string(), "9.8 µs");
        assert_eq!(Span::from_nanos(41_000).to_string(), "41 µs");
        assert_eq!(Span::from_secs(20).to_string(), "20 s");
        // Both sides of each unit, and of ten of it.
        let table = [
            (0, "0.0 ns"),
            (9_900, "9.9 ns"),
            (10_000, "10 ns"),
            (999_000, "999 ns"),
            (1_000_000, "1.0 µs"),
            (10_000_000, "10 µs"),
            (999_000_000, "999 µs"),
            (1_000_000_000, "1.0 ms"),
            (3_200_000_000, "3.2 ms"),
            (999_000_000_000, "999 ms"),
            (1_000_000_000_000, "1.0 s"),
            (2_500_000_000_000, "2.5 s"),
        ];
        for (picos, text) in table {
            assert_eq!(Span(picos).to_string(), text);
        }
    }

    #[test]
    fn a_nanosecond_is_a_thousand_picoseconds() {
        assert_eq!((Time::from_nanos(7), Span::from_nanos(7)), (Time(7_000), Span(7_000)));
        assert_eq!((Time(7_999).as_nanos(), Span(7_999).as_nanos()), (7, 7));
        assert_eq!((Time(500_000_000_000).as_secs_f64(), Span(2).as_secs_f64()), (0.5, 2e-12));
        assert_eq!(Time::from_nanos(u64::MAX), Time(u64::MAX));
        assert_eq!(
            (Span::from_nanos(u64::MAX), Span::from_secs(u64::MAX)),
            (Span(u64::MAX), Span(u64::MAX))
        );
    }

    #[test]
    fn times_are_added_and_spans_multiplied_within_their_range() {
        let mut now = Time(5) + Span(7);
        now += Span(30);
        assert_eq!(
            (now, now.since(Time(40)), Time(3) + Span(u64::MAX)),
            (Time(42), Span(2), Time(u64::MAX))
        );
        assert_eq!((Span(5) + Span(7), Span(u64::MAX) + Span(1)), (Span(12), Span(u64::MAX)));
        assert_eq!((Span(7) - Span(5), Span(5) - Span(7)), (Span(2), Span::ZERO));
        assert_eq!(
            (Span(7) * 3, Span(u64::MAX) * 3, Span(23) / 3),
            (Span(21), Span(u64::MAX), Span(7))
        );
    }

    #[test]
    fn seconds_survive_the_round_trip() {
        assert_eq!(Span::from_secs_f64(1.5), Span(1_500_000_000_000));
        assert_eq!(Span::from_secs_f64(-1.0), Span::ZERO);
        assert_eq!([1.4e-12, 1.5e-12].map(Span::from_secs_f64), [Span(1), Span(2)]);
        assert_eq!(Time::from_nanos(7).since(Time::from_nanos(9)), Span::ZERO);
    }
}
