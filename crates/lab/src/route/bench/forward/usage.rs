//! Processor time of what took part, and of the machine.
//!
//! A packet that crosses a veth is delivered in a soft interrupt, which runs in whoever sent it and
//! is billed to that thread; what is too long for that goes on in the kernel's `ksoftirqd`, and where
//! an interface polls by a thread of its own, in `napi/...`. So the time of the measuring thread, of
//! the device's thread, and of those kernel threads is all that the traffic cost. On a machine that
//! does nothing else this is the whole machine's time; on one that does, the others' share is left
//! out, and [`Machine`] says how large it was.
//!
//! What it does not see is what an idle processor does in an interrupt, which is billed to nobody: part of
//! what another processor hands over to it (the variant `ordered`), for one. And where an interface's polling is put off (`napi_defer_hard_irqs` and
//! `gro_flush_timeout`), a timer's interrupt does the work, and is billed to whoever it interrupts, if anybody. A device on such interfaces looks cheaper than it is.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::document::bounded::system_text;

/// The kernel's threads that carry on with packets.
#[derive(Debug)]
pub struct KernelThreads {
    processes: Vec<String>,
}

impl KernelThreads {
    /// Those that there are now.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn find() -> Result<KernelThreads> {
        let mut processes = Vec::new();
        for entry in fs::read_dir("/proc").context("cannot read /proc")? {
            let name = entry.context("cannot read /proc")?.file_name();
            let Some(number) = name.to_str().filter(|n| n.parse::<u32>().is_ok()) else { continue };
            // A process that has ended meanwhile is none of the kernel's.
            let comm = system_text(format!("/proc/{number}/comm")).unwrap_or_default();
            if comm.starts_with("ksoftirqd/") || comm.starts_with("napi/") {
                processes.push(number.to_owned());
            }
        }
        Ok(KernelThreads { processes })
    }

    /// The time that they have used.
    pub fn time(&self) -> Duration {
        let nanos = |process: &String| -> u64 {
            let text = system_text(format!("/proc/{process}/schedstat")).unwrap_or_default();
            text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        Duration::from_nanos(self.processes.iter().map(nanos).sum())
    }
}

/// The machine at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    at: Instant,
    /// Of all processors, idle or waiting for a disk, or taken away by a host.
    idle: Duration,
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
        let (idle, processors) = parsed(&text).context("/proc/stat is not as it should be")?;
        Ok(Machine { at, idle, processors })
    }

    /// The processor seconds that all of the machine used since `before`.
    pub fn busy_since(&self, before: &Machine) -> f64 {
        let all = (self.at - before.at).as_secs_f64() * f64::from(self.processors);
        (all - self.idle.saturating_sub(before.idle).as_secs_f64()).max(0.0)
    }
}

/// Idle time and the number of processors; ticks are hundredths of a second, whatever the kernel's own.
fn parsed(text: &str) -> Option<(Duration, u32)> {
    let mut words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let mut field = |skip: usize| words.nth(skip)?.parse::<u64>().ok();
    let (idle, waiting, stolen) = (field(3)?, field(0)?, field(2)?);
    let is_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let processors = text.lines().filter(is_one).count() as u32;
    Some((Duration::from_millis((idle + waiting + stolen) * 10), processors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy() {
        let text = "cpu  1 2 3 400 50 6 7 8 0 0\ncpu0 1 1 1 200 25 3 3 4 0 0\n\
                    cpu1 0 1 2 200 25 3 4 4 0 0\nintr 5\n";
        assert_eq!(parsed(text), Some((Duration::from_millis(4_580), 2)));
        assert_eq!(parsed("cpu0 1\n"), None);
        assert_eq!(parsed("cpu  1 2 3\n"), None);
    }

    #[test]
    fn the_kernel_has_threads_for_packets_and_the_machine_a_clock() {
        let threads = KernelThreads::find().expect("Linux has /proc");
        let before = (threads.time(), Machine::now().expect("and /proc/stat"));
        let after = Machine::now().expect("and /proc/stat");
        assert!(after.busy_since(&before.1) >= 0.0);
        assert!(threads.time() >= before.0);
    }
}
