//! Rate of a link in bits per second, and the time that bytes take at it.

use core::fmt;

use crate::time::Span;

/// Picoseconds that eight bits take at one bit per second.
const PICOS_PER_BYTE_AT_ONE: u64 = 8_000_000_000_000;

/// Bits per second; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// `bits_per_second`, or nothing when it is zero: no frame ever leaves a link without a rate.
    pub const fn new(bits_per_second: u64) -> Option<Rate> {
        if bits_per_second == 0 { None } else { Some(Rate(bits_per_second)) }
    }

    /// `megabits` times 10⁶ bits per second; zero is taken as one bit per second.
    pub const fn from_megabits(megabits: u64) -> Rate {
        Rate(if megabits == 0 { 1 } else { megabits.saturating_mul(1_000_000) })
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// How long `bytes` take, rounded down to the picosecond; saturates.
    pub const fn span_of(self, bytes: u64) -> Span {
        match bytes.checked_mul(PICOS_PER_BYTE_AT_ONE) {
            Some(picos) => Span(picos / self.0),
            None => {
                let picos = bytes as u128 * PICOS_PER_BYTE_AT_ONE as u128 / self.0 as u128;
                Span(if picos > u64::MAX as u128 { u64::MAX } else { picos as u64 })
            }
        }
    }

    /// How many bytes pass in `span`, as a real number.
    pub fn bytes_in(self, span: Span) -> f64 {
        self.0 as f64 / 8.0 * span.as_secs_f64()
    }
}

impl fmt::Display for Rate {
    /// In the unit a person would choose: `500 Mb/s`, `97.5 Mb/s`, `10 kb/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            n if n >= 1_000_000_000 => (n as f64 / 1e9, "Gb/s"),
            n if n >= 1_000_000 => (n as f64 / 1e6, "Mb/s"),
            n if n >= 1_000 => (n as f64 / 1e3, "kb/s"),
            n => (n as f64, "b/s"),
        };
        write!(f, "{value} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn bytes_take_their_time() {
        assert_eq!(Rate::from_megabits(500).span_of(1500), Span(24_000_000));
        assert_eq!(Rate::from_megabits(10).span_of(1500), Span(1_200_000_000));
        assert_eq!(Rate::from_megabits(70).span_of(520), Span(59_428_571));
        assert_eq!(Rate::new(1).unwrap().span_of(u64::MAX), Span(u64::MAX));
        assert_eq!(Rate::new(0), None);
        assert_eq!(Rate::new(7).map(Rate::bits_per_second), Some(7));
        assert_eq!([0, 3].map(|megabits| Rate::from_megabits(megabits).0), [1, 3_000_000]);
    }

    #[test]
    fn more_picoseconds_than_a_word_holds_are_divided_all_the_same() {
        // 8 · 10¹² picoseconds times 2²² bytes are more than 2⁶⁴; at 8 Mb/s a byte takes 1 µs.
        let bytes = 1 << 22;
        assert_eq!(Rate::from_megabits(8).span_of(bytes), Span(bytes * 1_000_000));
        assert_eq!(Rate::from_megabits(8).span_of(bytes - 1), Span((bytes - 1) * 1_000_000));
        // The last that fits, and the first that does not.
        let most = u64::MAX / 8;
        let rate = Rate(1_000_000_000_000);
        assert_eq!(rate.span_of(most), Span(most * 8));
        assert_eq!(rate.span_of(most + 1), Span(u64::MAX));
    }

    #[test]
    fn rates_are_shown_in_natural_units() {
        assert_eq!(Rate::from_megabits(500).to_string(), "500 Mb/s");
        assert_eq!(Rate::new(97_500_000).unwrap().to_string(), "97.5 Mb/s");
        assert_eq!(Rate::new(10_000).unwrap().to_string(), "10 kb/s");
        assert_eq!(Rate::new(2_500_000_000).unwrap().to_string(), "2.5 Gb/s");
        assert_eq!(Rate::new(999).unwrap().to_string(), "999 b/s");
        let edges = [1_000, 999_999, 1_000_000, 999_999_000, 1_000_000_000];
        let texts = ["1 kb/s", "999.999 kb/s", "1 Mb/s", "999.999 Mb/s", "1 Gb/s"];
        assert_eq!(edges.map(|rate| Rate(rate).to_string()), texts);
    }

    #[test]
    fn bytes_in_a_span_are_the_rates_eighth() {
        let half = Span::from_secs_f64(0.5);
        assert_eq!(half.as_secs_f64(), 0.5);
        assert_eq!(Rate::from_megabits(8).bytes_in(half), 500_000.0);
    }
}
