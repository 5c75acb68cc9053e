//! Whether the machine let a test's threads have their processor: by the kernel's counters, not the
//! test's own.
//!
//! A test of timing is meaningless on a busy machine, and must not be skipped on account of what it tests.
//! So the kernel is queried: how long threads of a name waited for a processor while they could have run
//! (`schedstat`), and how much of all processors was idle (`/proc/stat`). `NILOMETER_QUIET=1` asserts that
//! the machine is quiet, and allows no skips.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

use std::fs;
use std::time::Duration;

/// The counters at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    waited: Duration,
    idle: u64,
    stolen: u64,
    all: u64,
}

impl Moment {
    /// Now, for threads of this process that are called `name`.
    pub fn now(name: &str) -> Moment {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let first = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = first.split_whitespace().skip(1).flat_map(str::parse).collect();
        let tick = |at: usize| ticks.get(at).copied().unwrap_or(0);
        Moment {
            waited: waited(name),
            idle: tick(3) + tick(4),
            stolen: tick(7),
            all: ticks.iter().take(8).sum(),
        }
    }

    /// How long the threads that are called `name` have waited for a processor since, time that a
    /// hypervisor took from a processor included.
    pub fn waited_since(&self, name: &str) -> Duration {
        let now = Moment::now(name);
        // A tick is 10 ms in `/proc/stat` on every Linux.
        let stolen = Duration::from_millis(10 * (now.stolen - self.stolen));
        now.waited.saturating_sub(self.waited) + stolen
    }

    /// Which share of all processors has been idle since.
    pub fn idle_since(&self) -> f64 {
        let now = Moment::now("");
        (now.idle - self.idle) as f64 / (now.all - self.all).max(1) as f64
    }
}

/// Whether the operator has declared the machine quiet, so that no check is relaxed.
pub fn is_declared_quiet() -> bool {
    std::env::var_os("NILOMETER_QUIET").is_some_and(|value| value == "1")
}

fn waited(name: &str) -> Duration {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |folder: std::path::PathBuf| {
        let comm = fs::read_to_string(folder.join("comm")).ok()?;
        let stat = fs::read_to_string(folder.join("schedstat")).ok()?;
        // On a processor, waiting for one (ns), and how often.
        let waited = stat.split_whitespace().nth(1)?.parse().ok()?;
        (comm.trim_end() == name).then_some(Duration::from_nanos(waited))
    };
    tasks.filter_map(|task| of(task.path())).sum()
}
