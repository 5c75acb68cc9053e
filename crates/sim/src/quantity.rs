//! Quantities as people write them in scenarios: `10 Mb/s`, `5 ms`, read once into exact types.

use alloc::format;
use alloc::string::String;

use nilometer_wire::{Rate, Span};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The fastest link, bits per second.
const RATE_MAX: f64 = 1e14;
/// The longest time, seconds.
const SPAN_MAX_S: f64 = 1e7;

/// Splits `5.5 ms` into its number and its unit; the space may be left out.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|&(at, c)| {
            let exponent = matches!(c, 'e' | 'E')
                && text[at + 1..].starts_with(|d: char| d.is_ascii_digit() || d == '-');
            !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+' || exponent)
        })
        .map_or(text.len(), |(at, _)| at);
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim()))
}

/// Bits per second of `10 Mb/s`; the units are b/s, kb/s, Mb/s, Gb/s and Tb/s, also written as bps.
///
/// # Errors
/// One line that says what a rate looks like.
pub fn rate(text: &str) -> Result<Rate, String> {
    let (number, unit) = split(text).unwrap_or((f64::NAN, ""));
    let scale = match unit {
        "b/s" | "bps" => 1.0,
        "kb/s" | "kbps" => 1e3,
        "Mb/s" | "Mbps" | "mbps" => 1e6,
        "Gb/s" | "Gbps" | "gbps" => 1e9,
        "Tb/s" | "Tbps" | "tbps" => 1e12,
        _ => f64::NAN,
    };
    let bits = number * scale;
    if !(1.0..=RATE_MAX).contains(&bits) {
        return Err(format!("`{text}` is no rate; write it as `10 Mb/s`, at most 100 Tb/s"));
    }
    Rate::new(libm::round(bits) as u64).ok_or_else(|| format!("`{text}` is no rate"))
}

/// The time of `5 ms`; the units are s, ms, us (also µs) and ns.
///
/// # Errors
/// One line that says what a time looks like.
pub fn span(text: &str) -> Result<Span, String> {
    let (number, unit) = split(text).unwrap_or((f64::NAN, ""));
    let picos = match unit {
        "s" => 1e12,
        "ms" => 1e9,
        "us" | "µs" => 1e6,
        "ns" => 1e3,
        _ => f64::NAN,
    };
    let value = number * picos;
    if !(0.0..=SPAN_MAX_S * 1e12).contains(&value) {
        return Err(format!("`{text}` is no time; write it as `5 ms`, at most {SPAN_MAX_S} s"));
    }
    Ok(Span(libm::round(value) as u64))
}

/// A time in seconds that is finite, not negative and not too long.
///
/// # Errors
/// One line with `key` in it.
pub fn seconds(key: &str, value: f64) -> Result<Span, String> {
    if !(0.0..=SPAN_MAX_S).contains(&value) {
        return Err(format!("{key} is {value}; it is between 0 and {SPAN_MAX_S} seconds"));
    }
    Ok(Span(libm::round(value * 1e12) as u64))
}

/// For `#[serde(deserialize_with)]`: a rate.
///
/// # Errors
/// As the text is none.
pub fn de_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
    rate(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// For `#[serde(deserialize_with)]`: a rate that may be absent.
///
/// # Errors
/// As the text is none.
pub fn de_rate_if<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
    de_rate(from).map(Some)
}

/// For `#[serde(deserialize_with)]`: a time.
///
/// # Errors
/// As the text is none.
pub fn de_span<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
    span(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// For `#[serde(deserialize_with)]`: a time that may be absent.
///
/// # Errors
/// As the text is none.
pub fn de_span_if<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Span>, D::Error> {
    de_span(from).map(Some)
}

/// A rate as [`rate`] reads it back, to the bit per second.
pub fn rate_text(rate: Rate) -> String {
    const UNITS: [(u64, &str); 5] = [
        (1_000_000_000_000, "Tb/s"),
        (1_000_000_000, "Gb/s"),
        (1_000_000, "Mb/s"),
        (1_000, "kb/s"),
        (1, "b/s"),
    ];
    let bits = rate.bits_per_second();
    let whole = UNITS.into_iter().find(|(scale, _)| bits.is_multiple_of(*scale));
    let (scale, unit) = whole.unwrap_or((1, "b/s"));
    format!("{} {unit}", bits / scale)
}

/// A time as [`span`] reads it back, to the picosecond up to an hour.
pub fn span_text(span: Span) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "s"), (1_000_000_000, "ms"), (1_000_000, "us"), (1_000, "ns")];
    match UNITS.into_iter().find(|(scale, _)| span.0.is_multiple_of(*scale)) {
        Some((scale, unit)) => format!("{} {unit}", span.0 / scale),
        None => format!("{}.{:03} ns", span.0 / 1_000, span.0 % 1_000),
    }
}

/// For `#[serde(serialize_with)]`: a rate.
///
/// # Errors
/// As whoever is written to has.
pub fn ser_rate<S: Serializer>(rate: &Rate, to: S) -> Result<S::Ok, S::Error> {
    rate_text(*rate).serialize(to)
}

/// For `#[serde(serialize_with)]`: a rate that may be absent.
///
/// # Errors
/// As whoever is written to has.
pub fn ser_rate_if<S: Serializer>(rate: &Option<Rate>, to: S) -> Result<S::Ok, S::Error> {
    rate.map(rate_text).serialize(to)
}

/// For `#[serde(serialize_with)]`: a time.
///
/// # Errors
/// As whoever is written to has.
pub fn ser_span<S: Serializer>(span: &Span, to: S) -> Result<S::Ok, S::Error> {
    span_text(*span).serialize(to)
}

/// For `#[serde(serialize_with)]`: a time that may be absent.
///
/// # Errors
/// As whoever is written to has.
pub fn ser_span_if<S: Serializer>(span: &Option<Span>, to: S) -> Result<S::Ok, S::Error> {
    span.map(span_text).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, bits) in [
            ("10 Mb/s", 10_000_000),
            ("2.5Gb/s", 2_500_000_000),
            ("64 kb/s", 64_000),
            ("1e3 b/s", 1_000),
            (" 500 mbps ", 500_000_000),
        ] {
            assert_eq!(rate(text).map(|r| r.bits_per_second()), Ok(bits), "{text}");
        }
        for text in ["", "10", "10 MB/s", "-1 Mb/s", "0 Mb/s", "nan Mb/s", "Mb/s", "1e9 Tb/s"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_exact() {
        for (text, picos) in [
            ("5 ms", 5_000_000_000),
            ("0.1 s", 100_000_000_000),
            ("24us", 24_000_000),
            ("1.5 µs", 1_500_000),
            ("0 ns", 0),
        ] {
            assert_eq!(span(text), Ok(Span(picos)), "{text}");
        }
        for text in ["", "5", "5 m", "-5 ms", "inf s", "1e9 s"] {
            assert!(span(text).is_err(), "{text}");
        }
        assert_eq!(seconds("start_s", 1.5), Ok(Span(1_500_000_000_000)));
        assert!(seconds("start_s", -1.0).is_err() && seconds("start_s", f64::NAN).is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let texts =
            [(1, "1 b/s"), (64_000, "64 kb/s"), (1_500, "1500 b/s"), (10_000_000, "10 Mb/s")];
        for (bits, text) in texts {
            let written = Rate::new(bits).expect("a rate");
            assert_eq!(rate_text(written), text);
            assert_eq!(rate(text), Ok(written));
        }
        for picos in [0, 1, 1_001, 5_000, 500_000_000, 20_000_000_000, 3_600_000_000_000_001] {
            assert_eq!(
                span(&span_text(Span(picos))),
                Ok(Span(picos)),
                "{}",
                span_text(Span(picos))
            );
        }
        assert_eq!(span_text(Span(500_000_000)), "500 us");
    }
}
