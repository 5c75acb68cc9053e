//! What all processors of the machine did, by the kernel's own sums (`/proc/stat`).

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::system_file::system_text;

/// What the machine did during a time, in seconds of its processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineUse {
    /// How long it was.
    pub elapsed_s: f64,
    /// How long it was, times the number of processors.
    pub all_s: f64,
    /// Neither idle nor stolen.
    pub busy_s: f64,
    /// Taken away by a hypervisor.
    pub stolen_s: f64,
}

/// The machine at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    at: Instant,
    /// Of all processors, idle or waiting for a disk.
    idle: Duration,
    /// Of all processors, taken away by a hypervisor.
    stolen: Duration,
    processors: u32,
}

impl Machine {
    /// Now.
    ///
    /// # Errors
    /// When `/proc/stat` cannot be read.
    pub fn now() -> Result<Machine> {
        let text = system_text("/proc/stat").context("cannot read /proc/stat")?;
        let at = Instant::now();
        let (idle, stolen, processors) =
            parsed(&text).context("/proc/stat is not as it should be")?;
        Ok(Machine { at, idle, stolen, processors })
    }

    /// What it did since `before`.
    pub fn since(&self, before: &Machine) -> MachineUse {
        let elapsed_s = (self.at - before.at).as_secs_f64();
        let all_s = elapsed_s * f64::from(self.processors);
        let idle_s = self.idle.saturating_sub(before.idle).as_secs_f64();
        let stolen_s = self.stolen.saturating_sub(before.stolen).as_secs_f64();
        MachineUse { elapsed_s, all_s, busy_s: (all_s - idle_s - stolen_s).max(0.0), stolen_s }
    }
}

/// Idle and stolen time and the number of processors; ticks are hundredths of a second, whatever the kernel's own.
fn parsed(text: &str) -> Option<(Duration, Duration, u32)> {
    let mut words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let mut field = |skip: usize| words.nth(skip)?.parse::<u64>().ok();
    let (idle, waiting, stolen) = (field(3)?, field(0)?, field(2)?);
    let is_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let processors = text.lines().filter(is_one).count() as u32;
    let time = |ticks: u64| Duration::from_millis(ticks * 10);
    Some((time(idle + waiting), time(stolen), processors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy() {
        let text = "cpu  1 2 3 400 50 6 7 8 0 0\ncpu0 1 1 1 200 25 3 3 4 0 0\n\
                    cpu1 0 1 2 200 25 3 4 4 0 0\nintr 5\n";
        let (idle, stolen) = (Duration::from_millis(4_500), Duration::from_millis(80));
        assert_eq!(parsed(text), Some((idle, stolen, 2)));
        assert_eq!(parsed("cpu0 1\n"), None);
        assert_eq!(parsed("cpu  1 2 3\n"), None);
    }

    #[test]
    fn the_machine_is_busy_where_a_thread_spins() {
        let before = Machine::now().expect("Linux has /proc/stat");
        while before.at.elapsed() < Duration::from_millis(300) {
            std::hint::spin_loop();
        }
        let used = Machine::now().expect("Linux has /proc/stat").since(&before);
        assert!(used.busy_s + used.stolen_s > 0.1 && used.all_s >= used.elapsed_s, "{used:?}");
    }
}
