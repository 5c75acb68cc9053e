//! Values as tools write them: moments, protocols, ports, TCP flags.

use std::ops::Range;

use nilometer_flow::record::{TCP, UDP, tcp_flags};

use super::fields::Unit;

const NANOS: f64 = 1e9;
/// Numbers in a column of milliseconds that are taken as seconds: as seconds they are from 1995 to 5138, as
/// milliseconds from 1970 to 1973. Smaller numbers are times since some other beginning.
const SECONDS: Range<u64> = 800_000_000..100_000_000_000;

/// A moment, ns since 1970: a number in its unit (seconds in a column of milliseconds are recognised by
/// their size), or a date and a time as in ISO 8601, also with slashes or with a space in between; UTC if
/// no zone is given.
pub fn moment(text: &str, unit: Unit) -> Option<u64> {
    if let Ok(whole) = text.parse::<u64>() {
        let scale = match unit.of(whole) {
            Unit::Seconds => 1_000_000_000,
            Unit::Millis => 1_000_000,
            Unit::Nanos => 1,
        };
        return whole.checked_mul(scale);
    }
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        let (whole, fraction) = text.split_once('.')?;
        let (whole, fraction) = (whole.parse::<u64>().ok()?, fraction_ns(fraction)?);
        return match unit.of(whole) {
            Unit::Seconds => whole.checked_mul(1_000_000_000)?.checked_add(fraction),
            Unit::Millis => whole.checked_mul(1_000_000)?.checked_add(fraction / 1_000),
            Unit::Nanos => Some(whole),
        };
    }
    date_and_time(text)
}

impl Unit {
    /// The unit of a number, judged by its size.
    fn of(self, whole: u64) -> Unit {
        if self == Unit::Millis && SECONDS.contains(&whole) { Unit::Seconds } else { self }
    }
}

/// `894` as 894,000,000 ns; digits beyond a nanosecond are cut off.
fn fraction_ns(digits: &str) -> Option<u64> {
    let digits: String = digits.chars().chain("000000000".chars()).take(9).collect();
    digits.parse().ok()
}

fn date_and_time(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' '])?;
    let mut date = date.splitn(3, ['-', '/']).map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    if !(1970..=2262).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (time, zone_s) = match time.rfind(['+', '-']) {
        Some(at) => (&time[..at], zone(&time[at..])?),
        None => (time, 0),
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.splitn(3, ':').map(str::parse::<u64>);
    let (hour, minute) = (time.next()?.ok()?, time.next()?.ok()?);
    let second = time.next().transpose().ok()?.unwrap_or(0);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let day_s = u64::try_from(days_since_1970(year, month, day)).ok()? * 86_400;
    let seconds = (day_s + hour * 3_600 + minute * 60 + second).checked_add_signed(-zone_s)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns(fraction)?)
}

/// `+02:00` or `+0200`, in seconds.
fn zone(text: &str) -> Option<i64> {
    let digits: String = text[1..].chars().filter(|letter| *letter != ':').collect();
    let (hours, minutes) = (digits.get(..2)?.parse::<i64>().ok()?, digits.get(2..)?);
    let minutes = if minutes.is_empty() { 0 } else { minutes.parse::<i64>().ok()? };
    let seconds = hours * 3_600 + minutes * 60;
    Some(if text.starts_with('-') { -seconds } else { seconds })
}

/// Days of the Gregorian calendar, counted in eras of 400 years that begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A span of seconds, in ns; `None` if it is negative or longer than a century.
pub fn span(text: &str) -> Option<u64> {
    let seconds: f64 = text.parse().ok()?;
    (0.0..=3.2e9).contains(&seconds).then_some((seconds * NANOS).round() as u64)
}

/// A protocol, by number or name; `None` for a protocol that is not IP's.
pub fn protocol(text: &str) -> Option<u8> {
    const NAMES: [(&str, u8); 20] = [
        ("tcp", TCP),
        ("udp", UDP),
        // Argus writes the protocol above UDP.
        ("rtp", UDP),
        ("rtcp", UDP),
        ("udt", UDP),
        ("icmp", 1),
        ("igmp", 2),
        ("ipnip", 4),
        ("ipv6", 41),
        ("rsvp", 46),
        ("gre", 47),
        ("esp", 50),
        ("ah", 51),
        ("icmp6", 58),
        ("ipv6-icmp", 58),
        ("ospf", 89),
        ("pim", 103),
        ("vrrp", 112),
        ("sctp", 132),
        ("unknown_transport", 255),
    ];
    let text = text.to_ascii_lowercase();
    let named = NAMES.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| text.parse().ok())
}

/// A port, decimal or with `0x`; `None` where there is none.
pub fn port(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// TCP flags as a number, or as letters among dots (`.AP.SF`).
pub fn flags(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("0x");
    let number = digits.map_or(text.parse::<u32>().ok(), |hex| u32::from_str_radix(hex, 16).ok());
    number.map(|number| number as u8).or_else(|| letters(text))
}

/// `.AP.SF`, in any order.
pub fn letters(text: &str) -> Option<u8> {
    let bit = |letter| match letter {
        'F' => Some(tcp_flags::FIN),
        'S' => Some(tcp_flags::SYN),
        'R' => Some(tcp_flags::RST),
        'P' => Some(tcp_flags::PSH),
        'A' => Some(tcp_flags::ACK),
        'U' => Some(0x20),
        'E' => Some(0x40),
        'C' | 'W' => Some(0x80),
        '.' => Some(0),
        _ => None,
    };
    text.chars().try_fold(0, |flags, letter| Some(flags | bit(letter)?))
}

/// The flags in Zeek's history, of the originator (capitals) and of the responder.
pub fn history(text: &str) -> [u8; 2] {
    let bits = |letter: char| match letter.to_ascii_lowercase() {
        's' => tcp_flags::SYN,
        'h' => tcp_flags::SYN | tcp_flags::ACK,
        'a' => tcp_flags::ACK,
        'd' => tcp_flags::PSH | tcp_flags::ACK,
        'f' => tcp_flags::FIN,
        'r' => tcp_flags::RST,
        _ => 0,
    };
    text.chars().fold([0, 0], |mut both, letter| {
        both[usize::from(letter.is_ascii_lowercase())] |= bits(letter);
        both
    })
}
