//! Processor time of what took part, of the machine, and of others.
//!
//! # Whose time is counted
//!
//! A packet that crosses a veth is delivered in a soft interrupt, which runs in the sending thread and is
//! charged to that thread; longer work continues in the kernel's `ksoftirqd` or, if an interface polls in
//! a thread of its own, in `napi/...`. So the time of the measuring thread, of the device's thread, and
//! of those kernel threads is all that the traffic cost. These are the kernel's own sums in nanoseconds
//! of what each thread ran (`CLOCK_THREAD_CPUTIME_ID`, `schedstat`), without what a hypervisor took away
//! (stolen time is not charged to the thread if the hypervisor reports it), and not its samples at clock
//! ticks, which `/proc/stat`, `getrusage` and control groups use: a load of 0.15 s has 15 of those. Where
//! soft interrupts are accounted separately (`CONFIG_IRQ_TIME_ACCOUNTING`), these sums do not include
//! them, and all prices are too low; a warning says so.
//!
//! The sums do not include what an idle processor does in an interrupt, which is charged to no thread: part of what
//! another processor passes to it (the variant `ordered`), for one. And where an interface's polling is put off
//! (`napi_defer_hard_irqs` and `gro_flush_timeout`), a timer's interrupt does the work, and is charged to the
//! thread that it interrupts, if any. A device on such interfaces looks cheaper than it is.
//!
//! Counters of the processor (instructions, cycles) would be disturbed less by others than time is; virtual
//! machines mostly have none, so they are not used.
//!
//! # Disturbances
//!
//! Others do not add to that time, but they change it: they evict what the caches hold, and a thread that
//! waited for its processor finds more frames at once, which is cheaper for each. Against the second the
//! measuring thread and the device's have the highest priority that is not real time ([`raise`]). Where
//! processors are first shared among sessions or control groups, that priority counts only within ours;
//! on a machine that others keep busy, `chrt -r 1` before the command gives it priority over them all.
//! It is not the default, since it leaves others next to nothing meanwhile. A run is *disturbed*, and
//! does not count, in which
//!
//! - these threads, ready to run, waited for a processor for more than [`HELD_UP_MAX`] of it (the kernel's sum
//!   in nanoseconds, `schedstat`),
//! - others had more than [`OTHERS_MAX`] of all processors, unless another share is requested: what the whole
//!   machine used by `/proc/stat`, whose ticks are good enough for that, less our own,
//! - or a hypervisor took away more than [`STOLEN_MAX`] of them.

use std::fs;
use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use nilometer_linux::machine::MachineUse;
use nilometer_linux::system_file::system_text;
use rustix::process::{Pid, setpriority_process};

/// The niceness of the tester and of the device under test.
const HIGHEST: i32 = -20;
/// The largest kernel configuration that is read; real ones are smaller.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// The kernel's threads that carry on with packets.
#[derive(Debug)]
pub struct KernelThreads {
    processes: Vec<String>,
}

impl KernelThreads {
    /// The threads that exist now.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn find() -> Result<KernelThreads> {
        let mut processes = Vec::new();
        for entry in fs::read_dir("/proc").context("cannot read /proc")? {
            let name = entry.context("cannot read /proc")?.file_name();
            let Some(number) = name.to_str().filter(|n| n.parse::<u32>().is_ok()) else { continue };
            // A process that has ended meanwhile is not a kernel thread.
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

/// The share of all processors that others may use in a run that counts.
pub const OTHERS_MAX: f64 = 0.25;
/// The share of a run for which our threads may wait for a processor.
pub const HELD_UP_MAX: f64 = 0.05;
/// The share of all processors that a hypervisor may take away.
pub const STOLEN_MAX: f64 = 0.05;

/// What the machine did during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// The use of all processors, without that of the threads that keep them awake.
    pub machine: MachineUse,
    /// How long our threads waited for a processor, in seconds.
    pub held_up: f64,
}

impl Usage {
    /// Whether others, beside the threads that used `own` processor seconds, disturbed the run; they may have the
    /// share `others_max` of all processors.
    pub fn is_disturbed(&self, own: f64, others_max: f64) -> bool {
        let MachineUse { elapsed_s, all_s, busy_s, stolen_s } = self.machine;
        busy_s - own > others_max * all_s
            || self.held_up > HELD_UP_MAX * elapsed_s
            || stolen_s > STOLEN_MAX * all_s
    }
}

/// Gives a thread of this process the highest priority that is not real time, if this process may do that.
/// Where it may not, threads are held up on a busy machine, and the rounds do not count.
pub fn raise(thread_id: i32) {
    let _ = setpriority_process(Pid::from_raw(thread_id), HIGHEST);
}

/// Whether this kernel accounts soft interrupts separately from the threads that they run in; `None`
/// if its configuration is not available.
pub fn are_interrupts_apart() -> Option<bool> {
    let built = match fs::File::open("/proc/config.gz") {
        Ok(file) => {
            let mut text = String::new();
            GzDecoder::new(file).take(CONFIG_BYTES_MAX).read_to_string(&mut text).ok()?;
            text
        }
        Err(_) => {
            let release = system_text("/proc/sys/kernel/osrelease").ok()?;
            system_text(format!("/boot/config-{}", release.trim())).ok()?
        }
    };
    Some(built.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_disturb_that_use_a_quarter_of_the_machine_or_delay_our_threads() {
        let usage = |busy, held_up, stolen| {
            let machine = MachineUse { all_s: 0.4, elapsed_s: 0.2, busy_s: busy, stolen_s: stolen };
            Usage { machine, held_up }.is_disturbed(0.2, OTHERS_MAX)
        };
        assert!(!usage(0.29, 0.0, 0.0) && usage(0.31, 0.0, 0.0));
        assert!(!usage(0.2, 0.009, 0.0) && usage(0.2, 0.011, 0.0));
        assert!(!usage(0.2, 0.0, 0.019) && usage(0.2, 0.0, 0.021));
        // As busy by ourselves; and a machine on which others are put up with.
        let machine =
            MachineUse { all_s: 0.4, elapsed_s: 0.2, busy_s: 0.4, ..MachineUse::default() };
        let busy = Usage { machine, held_up: 0.0 };
        assert!(!busy.is_disturbed(0.31, OTHERS_MAX) && !busy.is_disturbed(0.1, 1.0));
    }

    #[test]
    fn the_kernel_has_threads_for_packets() {
        let threads = KernelThreads::find().expect("Linux has /proc");
        let before = threads.time();
        assert!(threads.time() >= before);
    }
}
