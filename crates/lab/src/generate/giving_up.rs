//! Giving up: a plan without answers is not played to its end.
//!
//! One connection that fails is a finding, and is counted. When none of the first can be established,
//! there is no server, or no route to it, and playing on would only repeat that. The limits are
//! generous: a server that was started at the same moment has time to begin, and a single address of
//! a pool that is not served does not decide alone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::client::Execution;
use super::live::{LiveCounters, Progress};

/// How long the first connections may all fail, from the first one's start on.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How many must have been tried by then.
pub const TRIED_MIN: u64 = 10;

/// How often the counters are checked.
const GLANCE: Duration = Duration::from_millis(50);

/// Whether nothing has been established although enough was tried for long enough.
pub fn is_hopeless(progress: &Progress, tried_for: Duration) -> bool {
    progress.established == 0 && progress.started >= TRIED_MIN && tried_for >= PATIENCE
}

/// Watches `live` until something is established or `over` is set. Sets `stop` and reports it if the
/// plan is hopeless; `first` is when the first connection is due.
pub fn watch(live: &LiveCounters, first: Instant, over: &AtomicBool, stop: &AtomicBool) -> bool {
    while !over.load(Relaxed) {
        thread::sleep(GLANCE);
        let progress = live.progress();
        if progress.established > 0 {
            return false;
        }
        if is_hopeless(&progress, Instant::now().saturating_duration_since(first)) {
            stop.store(true, Relaxed);
            return true;
        }
    }
    false
}

/// How many connections failed, by why; of connections that nothing was wrong with, none.
pub fn by_reason(done: &[Execution]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for reason in done.iter().filter_map(Execution::failure) {
        *counts.entry(reason).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::client::Outcome;
    use super::*;

    #[test]
    fn patience_ends_when_enough_was_tried_for_long_enough() {
        let tried = |started, established| Progress { started, established, ..Progress::default() };
        let short = PATIENCE - Duration::from_millis(1);
        assert!(is_hopeless(&tried(TRIED_MIN, 0), PATIENCE));
        assert!(!is_hopeless(&tried(TRIED_MIN, 0), short));
        assert!(!is_hopeless(&tried(TRIED_MIN - 1, 0), PATIENCE));
        assert!(!is_hopeless(&tried(1_000, 1), PATIENCE));
    }

    #[test]
    fn failures_are_counted_by_error_number() {
        let done = |outcome, local_port| Execution {
            index: 0,
            started_ns: 0,
            finished_ns: None,
            local_port,
            received_bytes: 0,
            outcome,
        };
        let all = [
            done(Outcome::Completed, 1),
            done(Outcome::Refused, 0),
            done(Outcome::Refused, 0),
            done(Outcome::Failed(libc::ENETUNREACH), 0),
            done(Outcome::Unfinished, 0),
            done(Outcome::Unfinished, 1),
            done(Outcome::NotStarted, 0),
        ];
        let counts: Vec<(String, u64)> = by_reason(&all).into_iter().collect();
        let expected = [("Connection refused", 2), ("Network is unreachable", 1)];
        assert_eq!(counts, expected.map(|(reason, count)| (reason.to_owned(), count)));
        assert_eq!(done(Outcome::Unfinished, 0).failure(), None);
    }
}
