//! Quantities as people write them: `10 Mb/s` or `10mbit`, `5 ms`, `64 KiB`, read once into exact types.

use alloc::format;
use alloc::string::String;
use core::fmt;

use nilometer_wire::{Rate, Span};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The fastest link, bits per second.
const RATE_MAX: f64 = 1e14;
/// The longest time, seconds.
const SPAN_MAX_S: f64 = 1e7;
/// The largest size, bytes; every whole number of them below is exact.
const SIZE_MAX_BYTES: f64 = 1e15;

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

/// What a letter before `b/s` or `bit` multiplies by. No rate is in thousandths, so that its case
/// does not matter.
fn multiple(letters: &str) -> Option<f64> {
    Some(match letters {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" | "m" => 1e6,
        "G" | "g" => 1e9,
        "T" | "t" => 1e12,
        _ => return None,
    })
}

/// Bits per second of `10 Mb/s`; the units are b/s, kb/s, Mb/s, Gb/s and Tb/s, also written as bps or, as
/// `tc` does, as bit (`10mbit`). A capital B would be bytes, and is refused; so is a number alone.
///
/// # Errors
/// One line with the format of a rate.
pub fn rate(text: &str) -> Result<Rate, String> {
    const BITS: [&str; 6] = ["b/s", "bps", "bit/s", "bits/s", "bit", "bits"];
    let (number, unit) = split(text).unwrap_or((f64::NAN, ""));
    let lower = unit.to_ascii_lowercase();
    let is_word =
        |word: &str| unit.ends_with(word) || word.contains("bit") && lower.ends_with(word);
    let word = BITS.into_iter().find(|word| is_word(word));
    let scale = word.and_then(|word| multiple(&unit[..unit.len() - word.len()]));
    let bits = number * scale.unwrap_or(f64::NAN);
    if !(1.0..=RATE_MAX).contains(&bits) {
        let how = "write it as `10 Mb/s` or `10mbit`, at most 100 Tb/s";
        return Err(format!("`{text}` is not a rate; {how}"));
    }
    Rate::new(libm::round(bits) as u64).ok_or_else(|| format!("`{text}` is not a rate"))
}

/// The bytes of `64 kB` (64,000) or `64 KiB` (65,536); the units are B, kB, MB and GB, and KiB, MiB and
/// GiB. A number alone is bytes.
///
/// # Errors
/// One line with the format of a size.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text).unwrap_or((f64::NAN, ""));
    let scale = match unit {
        "" | "B" | "bytes" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" | "kiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => f64::NAN,
    };
    let bytes = number * scale;
    if !(0.0..=SIZE_MAX_BYTES).contains(&bytes) {
        return Err(format!("`{text}` is not a size; write it as `64 kB` or `64 KiB`"));
    }
    Ok(libm::round(bytes) as u64)
}

/// The time of `5 ms`; the units are s, ms, us (also µs) and ns.
///
/// # Errors
/// One line with the format of a time.
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
        return Err(format!("`{text}` is not a time; write it as `5 ms`, at most {SPAN_MAX_S} s"));
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
/// If the text is not a rate.
pub fn de_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
    rate(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// For `#[serde(deserialize_with)]`: a rate that may be absent.
///
/// # Errors
/// If the text is not a rate.
pub fn de_rate_if<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
    de_rate(from).map(Some)
}

/// For `#[serde(deserialize_with)]`: a time.
///
/// # Errors
/// If the text is not a time.
pub fn de_span<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
    span(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// For `#[serde(deserialize_with)]`: a time that may be absent.
///
/// # Errors
/// If the text is not a time.
pub fn de_span_if<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Span>, D::Error> {
    de_span(from).map(Some)
}

/// For `#[serde(deserialize_with)]`: a number of bytes or a size as [`size`] reads it, that may be absent.
///
/// # Errors
/// If it is neither, or too large for the field.
pub fn de_size_if<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let bytes = from.deserialize_any(Size)?;
    let fit = |bytes| {
        T::try_from(bytes).map_err(|_| D::Error::custom(format!("{bytes} bytes is too much")))
    };
    bytes.map(fit).transpose()
}

/// Reads what [`de_size_if`] takes.
struct Size;

impl<'de> Visitor<'de> for Size {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or a size as \"64 kB\"")
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<Option<u64>, E> {
        Ok(Some(bytes))
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<Option<u64>, E> {
        let whole = u64::try_from(bytes);
        whole.map(Some).map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<u64>, E> {
        size(text).map(Some).map_err(E::custom)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_none<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }
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
/// Those of the serializer.
pub fn ser_rate<S: Serializer>(rate: &Rate, to: S) -> Result<S::Ok, S::Error> {
    rate_text(*rate).serialize(to)
}

/// For `#[serde(serialize_with)]`: a rate that may be absent.
///
/// # Errors
/// Those of the serializer.
pub fn ser_rate_if<S: Serializer>(rate: &Option<Rate>, to: S) -> Result<S::Ok, S::Error> {
    rate.map(rate_text).serialize(to)
}

/// For `#[serde(serialize_with)]`: a time.
///
/// # Errors
/// Those of the serializer.
pub fn ser_span<S: Serializer>(span: &Span, to: S) -> Result<S::Ok, S::Error> {
    span_text(*span).serialize(to)
}

/// For `#[serde(serialize_with)]`: a time that may be absent.
///
/// # Errors
/// Those of the serializer.
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
            ("20mbit", 20_000_000),
            ("20Mb/s", 20_000_000),
            ("1.5gbit", 1_500_000_000),
            ("800kbit", 800_000),
            ("800 Kbit/s", 800_000),
            ("10MBIT", 10_000_000),
            ("9600 bit", 9_600),
            ("9600 bits/s", 9_600),
            ("1tbit", 1_000_000_000_000),
        ] {
            assert_eq!(rate(text).map(|r| r.bits_per_second()), Ok(bits), "{text}");
        }
        for text in [
            "", "10", "10 MB/s", "-1 Mb/s", "0 Mb/s", "nan Mb/s", "Mb/s", "1e9 Tb/s", "10m",
            "10 M", "10 MB", "10 xbit", "10 mmbit", "10 Mibit", "20mbitt", "mbit",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes() {
        for (text, bytes) in [
            ("64kB", 64_000),
            ("64 KiB", 65_536),
            ("1MiB", 1_048_576),
            ("1.5 MB", 1_500_000),
            ("2 GiB", 2_147_483_648),
            ("312500", 312_500),
            ("0 B", 0),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "64k", "64 kb", "-1 B", "1e9 GB", "kB", "64 Mbit"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(size("64k").expect_err("no size").contains("`64 kB`"));
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
    fn quantities_round_trip_through_text() {
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

    /// Every unit, and every limit from both sides.
    #[test]
    fn units_and_limits_are_as_documented() {
        let units = [
            ("B", 1),
            ("bytes", 1),
            ("kB", 1_000),
            ("KB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("kiB", 1 << 10),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
        ];
        for (unit, bytes) in units {
            assert_eq!(size(&alloc::format!("3 {unit}")), Ok(3 * bytes), "{unit}");
        }
        assert_eq!(size("1e15 B"), Ok(1_000_000_000_000_000));
        assert_eq!(size("1E6 GB"), Ok(1_000_000_000_000_000));
        assert!(size("1.000001e15").is_err() && size("-0.6 B").is_err());
        for (unit, picos) in
            [("s", 1_000_000_000_000), ("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1_000)]
        {
            assert_eq!(span(&alloc::format!("7 {unit}")), Ok(Span(7 * picos)), "{unit}");
        }
        assert_eq!(span("1e-3 s"), span("1 ms"));
        assert_eq!(span("2e+1 ms"), Err(span("2e+1 ms").expect_err("no exponent")));
        assert_eq!(span("1e7 s"), Ok(Span(10_000_000_000_000_000_000)));
        assert!(span("10000001 s").is_err());
        assert_eq!(seconds("start_s", 1e7), Ok(Span(10_000_000_000_000_000_000)));
        assert_eq!(seconds("start_s", 0.0), Ok(Span::ZERO));
        assert!(seconds("start_s", 1.000_001e7).is_err());
        let bits = |text: &str| rate(text).map(Rate::bits_per_second).ok();
        assert_eq!((bits("100 Tb/s"), bits("100.1 Tb/s")), (Some(100_000_000_000_000), None));
        assert_eq!((bits("1 b/s"), bits("0.9 b/s")), (Some(1), None));
        assert_eq!(split("5e"), Some((5.0, "e")));
        assert_eq!(split("5e3x"), Some((5_000.0, "x")));
        assert_eq!(split("5E-1 e"), Some((0.5, "e")));
        assert_eq!((split("e5"), split("1-2 s"), split("1e400 s")), (None, None, None));
    }
}
