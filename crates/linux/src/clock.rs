//! Clocks: the CPU time of one thread, which does not include other threads on the core, and a counter.

use std::time::Duration;

/// CPU time of this thread so far (`CLOCK_THREAD_CPUTIME_ID`).
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to one timespec of ours, which the kernel fills.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// From one tick of the scheduler to the next, nanoseconds: the resolution of the kernel's coarse clocks.
pub fn scheduler_tick_ns() -> u64 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    (tick.tv_nsec as u64).max(1)
}

/// What the kernel calls this thread.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// CPU time so far of a thread of this process, which is not disturbed; `None` if it has ended.
pub fn thread_time_of(thread_id: i32) -> Option<Duration> {
    // How Linux names the CPU clock of one thread (CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED).
    let clock = (!thread_id << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to one timespec of ours; a clock that is none gives an error.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    (status == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// A counter that runs evenly while the machine does, in a unit of its own: some nanoseconds to read.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has RDTSC, and Linux lets programs use it.
        #[allow(unused_unsafe, reason = "safe in newer compilers")]
        unsafe {
            std::arch::x86_64::_rdtsc()
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static BEGUN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        BEGUN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
    }
}

/// The median of values, the upper one of two.
///
/// # Panics
/// When there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_one_of_those_that_kernels_have() {
        let per_second = 1e9 / scheduler_tick_ns() as f64;
        assert!(
            [100.0, 250.0, 300.0, 1_000.0].iter().any(|hz: &f64| (hz - per_second).abs() < 1.0)
        );
    }

    #[test]
    fn time_passes_with_work_and_not_with_sleep() {
        let before = thread_time();
        std::thread::sleep(Duration::from_millis(200));
        let slept = thread_time();
        let mut mix = 1u64;
        while thread_time() < slept + Duration::from_millis(5) {
            mix = std::hint::black_box(mix.wrapping_mul(31));
        }
        assert!(slept - before < Duration::from_millis(100));
    }

    #[test]
    fn the_time_of_another_thread_is_its_own() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            let before = thread_time();
            let mut mix = 1u64;
            while thread_time() < before + Duration::from_millis(20) {
                mix = std::hint::black_box(mix.wrapping_mul(31));
            }
            sender.send((thread_id(), thread_time())).expect("heard");
            let _ = ended.recv();
        });
        let (id, own) = receiver.recv().expect("said");
        let found = thread_time_of(id).expect("it lives");
        assert!(found >= own && found < own + Duration::from_millis(10), "{found:?} {own:?}");
        assert!(thread_time_of(thread_id()).expect("this one") >= Duration::ZERO);
        drop(end);
        worker.join().expect("no panic");
        // (No system has that many.)
        assert_eq!(thread_time_of(5_000_000), None);
    }

    #[test]
    fn ticks_go_on() {
        let before = ticks();
        std::thread::sleep(Duration::from_millis(20));
        assert!(ticks() > before);
    }

    #[test]
    fn the_middle_is_taken() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 4.0);
    }
}
