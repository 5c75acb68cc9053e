//! What the process has used: CPU seconds and peak memory, as the kernel counts them.

use anyhow::{Result, bail};

/// Use of the machine so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time of all threads.
    pub cpu_seconds: f64,
    /// Most memory that was resident at once.
    pub peak_rss_bytes: u64,
}

/// Reads the kernel's account (`getrusage`).
///
/// # Errors
/// Never on Linux.
pub fn usage() -> Result<Usage> {
    // SAFETY: zero is a value of every field of rusage, integers all.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to one rusage of ours, which the kernel fills.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut used) } != 0 {
        bail!("cannot read the use of CPU: {}", std::io::Error::last_os_error());
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Usage {
        cpu_seconds: seconds(used.ru_utime) + seconds(used.ru_stime),
        peak_rss_bytes: used.ru_maxrss as u64 * 1_024,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted() {
        let before = usage().expect("Linux");
        let mut mix = 1u64;
        while usage().expect("Linux").cpu_seconds < before.cpu_seconds + 0.01 {
            mix = std::hint::black_box(mix.wrapping_mul(31));
        }
        let after = usage().expect("Linux");
        assert!(after.peak_rss_bytes > 100_000 && after.cpu_seconds < before.cpu_seconds + 10.0);
    }
}
