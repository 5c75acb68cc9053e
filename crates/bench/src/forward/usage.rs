//! Processor time of what took part, of the machine, and of others.
//!
//! # Whose time is counted
//!
//! A packet that crosses a veth is delivered in a soft interrupt, which runs in whoever sent it and
//! is billed to that thread; what is too long for that goes on in the kernel's `ksoftirqd`, and where
//! an interface polls by a thread of its own, in `napi/...`. So the time of the measuring thread, of
//! the device's thread, and of those kernel threads is all that the traffic cost. These are the kernel's own
//! sums in nanoseconds of what each thread ran (`CLOCK_THREAD_CPUTIME_ID`, `schedstat`), without what a
//! hypervisor took away (its stolen time is not the thread's where the kernel is told of it), and not its
//! samples at clock ticks, of which `/proc/stat`, `getrusage` and control groups are made: of those a load of
//! 0.15 s has 15. Where soft interrupts are accounted apart (`CONFIG_IRQ_TIME_ACCOUNTING`), these sums do
//! not have them, and all prices are too low; then that is warned of.
//!
//! What it does not see is what an idle processor does in an interrupt, which is billed to nobody: part of
//! what another processor hands over to it (the variant `ordered`), for one. And where an interface's polling is put off (`napi_defer_hard_irqs` and
//! `gro_flush_timeout`), a timer's interrupt does the work, and is billed to whoever it interrupts, if anybody. A device on such interfaces looks cheaper than it is.
//!
//! Counters of the processor (instructions, cycles) would be disturbed less by others than time is; virtual
//! machines mostly have none, so they are not asked for.
//!
//! # Who disturbs
//!
//! Others do not add to that time, but they change it: they evict what the caches hold, and a thread that
//! waited for its processor finds more frames at once, which is cheaper for each. Against the second the
//! measuring thread and the device's have the highest priority that is not real time ([`raise`]). Where
//! sessions or control groups share processors among themselves first, that counts within ours alone; on a
//! machine that others keep busy, `chrt -r 1` before the command goes before everybody. It is not done
//! unasked: others have next to nothing meanwhile. A run is
//! *disturbed*, and does not count, in which
//!
//! - these threads, ready to run, waited for a processor for more than [`HELD_UP_MAX`] of it (the kernel's sum
//!   in nanoseconds, `schedstat`),
//! - others had more than [`OTHERS_MAX`] of all processors, unless another share is asked for: what the whole
//!   machine used by `/proc/stat`, whose ticks are good enough for that, less our own,
//! - or a hypervisor took away more than [`STOLEN_MAX`] of them.

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use rustix::process::{Pid, setpriority_process};

/// The niceness of who measures and of what is measured.
const HIGHEST: i32 = -20;
/// How a kernel was built takes less.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

use nilometer_linux::system_file::system_text;

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

/// The share of all processors that others may use in a run that counts.
pub const OTHERS_MAX: f64 = 0.25;
/// The share of a run for which our threads may wait for a processor.
pub const HELD_UP_MAX: f64 = 0.05;
/// The share of all processors that a hypervisor may take away.
pub const STOLEN_MAX: f64 = 0.05;

/// What the machine did during a run, in seconds of its processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// How long it was, times the number of processors.
    pub all: f64,
    /// How long it was.
    pub run: f64,
    /// How long our threads waited for a processor.
    pub held_up: f64,
    /// Neither idle nor stolen.
    pub busy: f64,
    /// Taken away by a hypervisor.
    pub stolen: f64,
}

impl Usage {
    /// Whether others, beside those who used `own` processor seconds, disturbed the run; they may have the
    /// share `others_max` of all processors.
    pub fn is_disturbed(&self, own: f64, others_max: f64) -> bool {
        self.busy - own > others_max * self.all
            || self.held_up > HELD_UP_MAX * self.run
            || self.stolen > STOLEN_MAX * self.all
    }
}

/// Gives a thread of this process the highest priority that is not real time, if this process may do that.
/// Where it may not, threads are held up on a busy machine, and the rounds do not count.
pub fn raise(thread_id: i32) {
    let _ = setpriority_process(Pid::from_raw(thread_id), HIGHEST);
}

/// How long a thread of this process has waited for a processor, ready to run; none where the kernel does
/// not say (`CONFIG_SCHED_INFO`).
pub fn waited(thread_id: i32) -> Option<Duration> {
    let text = system_text(format!("/proc/self/task/{thread_id}/schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Whether this kernel accounts soft interrupts apart from the threads that they run in; none where it
/// does not say how it was built.
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
    pub fn since(&self, before: &Machine) -> Usage {
        let all = (self.at - before.at).as_secs_f64() * f64::from(self.processors);
        let idle = self.idle.saturating_sub(before.idle).as_secs_f64();
        let stolen = self.stolen.saturating_sub(before.stolen).as_secs_f64();
        let run = (self.at - before.at).as_secs_f64();
        Usage { all, run, held_up: 0.0, busy: (all - idle - stolen).max(0.0), stolen }
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
    use nilometer_linux::clock::thread_id;

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
    fn others_disturb_who_have_a_quarter_of_the_machine_or_hold_our_threads_up() {
        let usage = |busy, held_up, stolen| {
            Usage { all: 0.4, run: 0.2, busy, held_up, stolen }.is_disturbed(0.2, OTHERS_MAX)
        };
        assert!(!usage(0.29, 0.0, 0.0) && usage(0.31, 0.0, 0.0));
        assert!(!usage(0.2, 0.009, 0.0) && usage(0.2, 0.011, 0.0));
        assert!(!usage(0.2, 0.0, 0.019) && usage(0.2, 0.0, 0.021));
        // As busy by ourselves; and a machine on which others are put up with.
        let busy = Usage { all: 0.4, run: 0.2, busy: 0.4, ..Usage::default() };
        assert!(!busy.is_disturbed(0.31, OTHERS_MAX) && !busy.is_disturbed(0.1, 1.0));
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_says_so() {
        let waits = waited(thread_id()).expect("Linux says so");
        assert!(waited(thread_id()).expect("again") >= waits);
        assert_eq!(waited(5_000_000), None);
    }

    #[test]
    fn the_kernel_has_threads_for_packets_and_the_machine_a_clock() {
        let threads = KernelThreads::find().expect("Linux has /proc");
        let before = (threads.time(), Machine::now().expect("and /proc/stat"));
        let after = Machine::now().expect("and /proc/stat");
        let usage = after.since(&before.1);
        assert!(usage.busy >= 0.0 && usage.all > 0.0, "{usage:?}");
        assert!(threads.time() >= before.0);
    }
}
