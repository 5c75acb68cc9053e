//! The machine: kernel, cores, load, memory and clocks.

use std::time::{Duration, Instant};

use super::{Finding, Purpose};
use crate::generate::server::OPEN_FILES;
use nilometer_linux::scheduling::refusal;
use nilometer_linux::system_file::system_text;

/// The oldest kernel that has everything `lab run` needs: `epoll_pwait2`, with which connections
/// start on time to the microsecond, came last (5.11).
pub const KERNEL_MINIMUM: (u32, u32) = (5, 11);

/// Cores below which client, server, device and meter have to take turns.
const CORES_COMFORTABLE: usize = 2;
/// Runnable tasks for each core above which a pause is the scheduler's and not the device's.
const LOAD_BUSY: f64 = 0.5;
/// What a run may need at once: packet rings, records and the samples of its figures.
const MEMORY_COMFORTABLE_MIB: u64 = 1024;
/// A clock that costs more than this is read by a system call, and shows in every stamp.
const CLOCK_READ_SLOW_NS: f64 = 250.0;
/// A clock that steps by more than this cannot time a packet.
const CLOCK_STEP_COARSE_NS: u64 = 1_000;
const CLOCK_READS: u32 = 100_000;
const SLEEP: Duration = Duration::from_micros(200);
const SLEEPS: usize = 25;
/// A timer later than this, as a rule, moves connections by more than an inter-connection time.
const SLEEP_LATE_NS: u64 = 1_000_000;

/// Looks at all of them.
pub fn examine() -> Vec<Finding> {
    let limits = read("/proc/self/limits").unwrap_or_default();
    vec![kernel(), cores(), load(), memory(), clock(), timers(), scheduling(), open_files(&limits)]
}

/// The content of a small file of `/proc` or `/sys`, trimmed; nothing when it cannot be read.
pub(super) fn read(path: &str) -> Option<String> {
    Some(system_text(path).ok()?.trim().to_owned())
}

fn kernel() -> Finding {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    let (major, minor) = KERNEL_MINIMUM;
    let finding = Finding::ok("kernel", Purpose::Run, format!("Linux {release}"));
    match release_number(&release) {
        Some(number) if number >= KERNEL_MINIMUM => finding,
        _ => finding.missing(
            format!("`lab run` needs Linux {major}.{minor}, for waits finer than a millisecond"),
            format!("boot a kernel of version {major}.{minor} or later"),
        ),
    }
}

/// Major and minor number of a kernel release such as `6.1.0-18-amd64`.
fn release_number(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn cores() -> Finding {
    let count = core_count();
    let finding = Finding::ok("cores", Purpose::Figures, format!("{count} cores for this process"));
    if count >= CORES_COMFORTABLE {
        return finding;
    }
    finding.doubtful(
        "client, device, server and meter share a processor, and delays include scheduling pauses",
        "give it two cores or more",
    )
}

fn load() -> Finding {
    let Some(load) = read("/proc/loadavg").as_deref().and_then(last_minute) else {
        let finding = Finding::ok("load", Purpose::Figures, "cannot read /proc/loadavg");
        return finding.doubtful("a busy machine would not be noticed", "look with `uptime`");
    };
    let cores = core_count();
    let finding = Finding::ok(
        "load",
        Purpose::Figures,
        format!("{load:.2} in the last minute, {cores} cores"),
    );
    if load <= LOAD_BUSY * cores as f64 {
        return finding;
    }
    finding.doubtful(
        "other work competes with the lab, and delays include its pauses",
        "wait until the machine is idle",
    )
}

/// The first figure of `/proc/loadavg`.
fn last_minute(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

fn memory() -> Finding {
    let text = read("/proc/meminfo").unwrap_or_default();
    let Some(available_mib) = available_kib(&text).map(|kib| kib / 1024) else {
        let finding = Finding::ok("memory", Purpose::Figures, "cannot read /proc/meminfo");
        return finding.doubtful("too little memory would not be noticed", "look with `free`");
    };
    let finding = Finding::ok("memory", Purpose::Figures, format!("{available_mib} MiB available"));
    if available_mib >= MEMORY_COMFORTABLE_MIB {
        return finding;
    }
    finding.doubtful(
        "packet rings may find no room, and lose stamps (which is counted)",
        format!("have {MEMORY_COMFORTABLE_MIB} MiB available"),
    )
}

/// `MemAvailable` of `/proc/meminfo`, in KiB.
pub(crate) fn available_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn clock() -> Finding {
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown source".to_owned());
    let begun = Instant::now();
    let mut before = begun;
    let mut step_ns = u64::MAX;
    for _ in 0..CLOCK_READS {
        let now = Instant::now();
        let step = now.duration_since(before).as_nanos() as u64;
        if step > 0 {
            step_ns = step_ns.min(step);
        }
        before = now;
    }
    let read_ns = begun.elapsed().as_nanos() as f64 / f64::from(CLOCK_READS);
    let found =
        format!("monotonic from {source}: {read_ns:.0} ns a reading, steps of {step_ns} ns");
    let finding = Finding::ok("clock", Purpose::Figures, found);
    if read_ns <= CLOCK_READ_SLOW_NS && step_ns <= CLOCK_STEP_COARSE_NS {
        return finding;
    }
    finding.doubtful(
        "reading the time is slow or coarse, which shows in every stamp",
        "let the kernel use the processor's own counter (clocksource=tsc) if it is stable",
    )
}

fn timers() -> Finding {
    let mut lateness_ns: Vec<u64> = (0..SLEEPS)
        .map(|_| {
            let begun = Instant::now();
            std::thread::sleep(SLEEP);
            begun.elapsed().saturating_sub(SLEEP).as_nanos() as u64
        })
        .collect();
    lateness_ns.sort_unstable();
    let (median, worst) = (lateness_ns[SLEEPS / 2], lateness_ns[SLEEPS - 1]);
    let found = format!(
        "a sleep of {} µs ends {} µs late (median of {SLEEPS}; worst {} µs)",
        SLEEP.as_micros(),
        median / 1_000,
        worst / 1_000
    );
    let finding = Finding::ok("timers", Purpose::Figures, found);
    if median <= SLEEP_LATE_NS {
        return finding;
    }
    finding.doubtful(
        "connections start late by as much (the result says how late they were)",
        "use a kernel with high-resolution timers, on an idle machine",
    )
}

fn scheduling() -> Finding {
    let Some(why) = refusal() else {
        let found = "router and engines may run in a real-time class";
        return Finding::ok("scheduling", Purpose::Figures, found);
    };
    let finding = Finding::ok("scheduling", Purpose::Figures, "the ordinary class alone");
    finding.doubtful(
        "router and engines wait for a processor like any other thread, and delays include that",
        why,
    )
}

fn open_files(limits: &str) -> Finding {
    let Some(limit) = open_files_hard(limits) else {
        let finding = Finding::ok("open files", Purpose::Figures, "cannot read /proc/self/limits");
        return finding.doubtful("a low limit would not be noticed", "look with `ulimit -Hn`");
    };
    let finding = Finding::ok("open files", Purpose::Figures, format!("{limit} at most"));
    if limit >= OPEN_FILES {
        return finding;
    }
    finding.doubtful(
        "each open connection takes one; `generate server` with its usual places is refused without root",
        format!("raise the hard limit: `ulimit -Hn {OPEN_FILES}` as root"),
    )
}

/// The hard limit on open files in `/proc/self/limits`; `unlimited` is the largest number.
fn open_files_hard(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn releases_are_read_by_their_first_two_numbers() {
        assert_eq!(release_number("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(release_number("5.15.153.1-microsoft-standard-WSL2"), Some((5, 15)));
        assert_eq!(release_number("unknown"), None);
        assert!(release_number("5.4.0").is_some_and(|number| number < KERNEL_MINIMUM));
        assert!(release_number("5.11-rc1").is_some_and(|number| number >= KERNEL_MINIMUM));
    }

    #[test]
    fn files_of_proc_are_read_by_their_names() {
        assert_eq!(last_minute("1.82 0.90 0.42 3/180 2077"), Some(1.82));
        assert_eq!(available_kib("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2048));
        let limits = "Limit    Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n";
        assert_eq!(open_files_hard(limits), Some(4096));
        assert!(open_files(limits).remedy.is_some_and(|remedy| remedy.contains("-Hn 17664")));
        let enough = format!("Max open files 1024 {OPEN_FILES} files");
        assert_eq!(open_files(&enough).state, State::Ok);
        assert_eq!(open_files_hard("Max open files 1024 unlimited files"), Some(u64::MAX));
        assert_eq!(available_kib(""), None);
    }
}
