//! Numbers as a reader wants them: few digits, SI prefixes, and "not measured" where there is none.

/// What stands where a number is missing.
pub const NOT_MEASURED: &str = "not measured";

/// Between a number and its unit: a space that does not break.
const GAP: char = '\u{a0}';

/// A whole number with commas: `1,204,112`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `digits` significant digits without an exponent, trailing zeros cut.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return NOT_MEASURED.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-9..1e15).contains(&value.abs()) {
        return format!("{value:.1e}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (digits as i32 - 1 - magnitude).max(0) as usize;
    let text = format!("{value:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    text.replacen('-', "\u{2212}", 1)
}

/// A value with its unit behind an SI prefix, three significant digits.
pub fn si(value: f64, unit: &str) -> String {
    const PREFIXES: [(f64, &str); 9] = [
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-3, "m"),
        (1e-6, "µ"),
        (1e-9, "n"),
    ];
    if !value.is_finite() {
        return NOT_MEASURED.to_owned();
    }
    let size = value.abs() * (1.0 + 1e-9);
    let whole = PREFIXES.iter().find(|(factor, _)| size >= *factor);
    let (factor, prefix) = match value == 0.0 {
        true => (1.0, ""),
        false => *whole.unwrap_or(&PREFIXES[8]),
    };
    let number = significant(value / factor, 3);
    match prefix.is_empty() && unit.is_empty() {
        true => number,
        false => format!("{number}{GAP}{prefix}{unit}"),
    }
}

/// A time given in nanoseconds: `9.8 µs`.
pub fn time_ns(ns: f64) -> String {
    match ns.abs() >= 60e9 && ns.is_finite() {
        true => format!("{}{GAP}s", significant(ns / 1e9, 3)),
        false => si(ns / 1e9, "s"),
    }
}

/// A time given in nanoseconds, where there is one.
pub fn time_ns_or(ns: Option<f64>) -> String {
    ns.map_or_else(|| NOT_MEASURED.to_owned(), time_ns)
}

/// Bytes: `1.44 GB`.
pub fn bytes(value: f64) -> String {
    si(value, "B")
}

/// A share as a percentage with two significant digits: `1.4 %`; all of it is `100 %`.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return NOT_MEASURED.to_owned();
    }
    let digits = if share.abs() >= 0.995 { 3 } else { 2 };
    format!("{}{GAP}%", significant(share * 100.0, digits))
}

/// A text for a terminal: its spaces may break.
pub fn plain(text: &str) -> String {
    text.replace(GAP, " ")
}

/// How many times something: `1.3`, `12`.
pub fn times(value: f64) -> String {
    match value.is_finite() {
        true if value.abs() < 9.95 => format!("{value:.1}"),
        true => significant(value, 2),
        false => NOT_MEASURED.to_owned(),
    }
}

/// A count with its noun: `1 packet`, `2 packets`.
pub fn plural(value: u64, noun: &str) -> String {
    let ending = if value == 1 { "" } else { "s" };
    format!("{}{GAP}{noun}{ending}", count(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_204_112), "1,204,112");
        assert_eq!(time_ns(9_840.0), "9.84\u{a0}µs");
        assert_eq!(time_ns(0.0), "0\u{a0}s");
        assert_eq!(time_ns(120e9), "120\u{a0}s");
        assert_eq!(bytes(1_440_000_000.0), "1.44\u{a0}GB");
        assert_eq!(bytes(1000.0), "1\u{a0}kB");
        assert_eq!(si(0.5, ""), "500\u{a0}m");
        assert_eq!(percent(0.01402), "1.4\u{a0}%");
        assert_eq!(percent(1.0), "100\u{a0}%");
        assert_eq!(times(1.26), "1.3");
        assert_eq!(significant(-0.005, 2), "\u{2212}0.005");
        assert_eq!(plural(1, "packet"), "1\u{a0}packet");
    }

    #[test]
    fn missing_values_are_shown_as_not_measured() {
        assert_eq!(time_ns(f64::NAN), NOT_MEASURED);
        assert_eq!(bytes(f64::INFINITY), NOT_MEASURED);
        assert_eq!(percent(f64::NAN), NOT_MEASURED);
        assert_eq!(times(f64::NEG_INFINITY), NOT_MEASURED);
        assert_eq!(time_ns_or(None), NOT_MEASURED);
        assert_eq!(significant(1e300, 3), "1.0e300");
    }
}
