//! What a stream has done so far, for a progress display; and the lines that are printed once a second.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nilometer_profile::Direction;
use nilometer_report::format::{significant, time_ns};

/// Counters of one direction.
#[derive(Debug, Default)]
pub struct LiveStream {
    /// Frames that were sent.
    pub sent: AtomicU64,
    /// Their bytes, check sequences included.
    pub sent_bytes: AtomicU64,
    /// Frames that came, copies included.
    pub received: AtomicU64,
    /// Frames that were lost, as far as their fate is decided.
    pub lost: AtomicU64,
    /// The sum of the delays of those that came, ns.
    pub delay_ns: AtomicU64,
    /// How many delays were summed.
    pub delays: AtomicU64,
}

/// Counters of both directions.
#[derive(Debug, Default)]
pub struct Live {
    /// By direction.
    pub streams: [LiveStream; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    sent: u64,
    bytes: u64,
    received: u64,
    lost: u64,
    delay_ns: u64,
    delays: u64,
}

/// Makes a line of each interval.
#[derive(Debug, Default)]
pub struct Lines {
    before: [Seen; 2],
}

/// The line above all.
pub const HEADING: &str =
    "[dir]  interval (s)     sent fps      Mbit/s  received fps       lost  mean delay";

impl Lines {
    /// The line of a direction for the interval between two times, in seconds.
    pub fn line(&mut self, live: &Live, way: Direction, from: f64, to: f64) -> String {
        let stream = &live.streams[way.index()];
        let now = Seen {
            sent: stream.sent.load(Relaxed),
            bytes: stream.sent_bytes.load(Relaxed),
            received: stream.received.load(Relaxed),
            lost: stream.lost.load(Relaxed),
            delay_ns: stream.delay_ns.load(Relaxed),
            delays: stream.delays.load(Relaxed),
        };
        let before = std::mem::replace(&mut self.before[way.index()], now);
        let length = (to - from).max(1e-9);
        let rate = |now: u64, before: u64| (now - before) as f64 / length;
        let delays = now.delays - before.delays;
        let delay = match delays {
            0 => "-".to_owned(),
            _ => time_ns((now.delay_ns - before.delay_ns) as f64 / delays as f64),
        };
        format!(
            "[ {} ]  {from:6.2}-{to:<6.2} {:>12} {:>11} {:>13} {:>10} {delay:>11}",
            if way == Direction::ClientToServer { ">" } else { "<" },
            significant(rate(now.sent, before.sent), 6),
            significant(rate(now.bytes, before.bytes) * 8.0 / 1e6, 4),
            significant(rate(now.received, before.received), 6),
            now.lost - before.lost,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_of_its_interval_alone() {
        let (live, mut lines) = (Live::default(), Lines::default());
        let way = Direction::ClientToServer;
        let stream = &live.streams[0];
        stream.sent.store(1_000, Relaxed);
        stream.sent_bytes.store(64_000, Relaxed);
        stream.received.store(990, Relaxed);
        stream.delay_ns.store(990 * 850, Relaxed);
        stream.delays.store(990, Relaxed);
        let first = lines.line(&live, way, 0.0, 1.0);
        assert!(
            first.contains("1000") && first.contains("990") && first.contains("850"),
            "{first}"
        );
        stream.sent.store(1_500, Relaxed);
        let second = lines.line(&live, way, 1.0, 2.0);
        assert!(second.contains(" 500 ") && second.trim_end().ends_with('-'), "{second}");
    }
}
