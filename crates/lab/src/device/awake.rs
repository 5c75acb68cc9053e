//! Processors that do not go idle while something is measured.
//!
//! A processor that has nothing to do halts, and it takes time to wake it: more or less from one wake to
//! the next, and most where a hypervisor has to be asked. A generator that sleeps between its frames pays
//! for that twenty thousand times a second, and what a cheap device costs is lost in it: on an idle virtual
//! machine of two processors twenty rounds of `route bench forward` told the price of the kernel's
//! forwarding to a half, and with its processors awake to a tenth.
//!
//! So each processor gets a thread that spins. It is of the class that gives way to every other at once
//! (`SCHED_IDLE`), and what it uses is as good as idle: who asks how busy the machine was takes
//! [`Awake::time`] away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{hint, io, thread};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::route::bench::clock::{thread_id, thread_time_of};

/// How often a thread spins before it looks whether it is to end.
const SPINS: u32 = 1_000;

/// The threads, one for each processor that the calling thread may use; they end when this is dropped.
#[derive(Debug)]
pub struct Awake {
    is_over: Arc<AtomicBool>,
    threads: Vec<(i32, JoinHandle<()>)>,
}

impl Awake {
    /// Keeps them awake from now on.
    ///
    /// # Errors
    /// When there can be no such thread.
    pub fn begin() -> Result<Awake> {
        let step = "cannot keep a processor awake";
        let allowed = sched_getaffinity(None).context(step)?;
        let mut awake = Awake { is_over: Arc::default(), threads: Vec::new() };
        for processor in (0..CpuSet::MAX_CPU).filter(|&at| allowed.is_set(at)) {
            let is_over = Arc::clone(&awake.is_over);
            let (told, hears) = mpsc::sync_channel(1);
            let spins = move || {
                let begun = lowest_class().and_then(|()| stay_at(processor));
                let is_good = begun.is_ok();
                // (Whoever began it waits to hear.)
                let _ = told.send(begun.map(|()| thread_id()));
                while is_good && !is_over.load(Relaxed) {
                    (0..SPINS).for_each(|_| hint::spin_loop());
                }
            };
            let thread = thread::Builder::new().name(format!("awake/{processor}")).spawn(spins);
            let thread = thread.context(step)?;
            let id = hears.recv().context(step)?.context(step)?;
            awake.threads.push((id, thread));
        }
        Ok(awake)
    }

    /// The processor time that they have used.
    pub fn time(&self) -> Duration {
        self.threads.iter().filter_map(|(id, _)| thread_time_of(*id)).sum()
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Lets the calling thread run on this processor alone.
fn stay_at(processor: usize) -> io::Result<()> {
    let mut one = CpuSet::new();
    one.set(processor);
    Ok(sched_setaffinity(None, &one)?)
}

/// Puts the calling thread into the class that gives way to all others.
fn lowest_class() -> io::Result<()> {
    // SAFETY: all zero is a value of this struct of numbers; the class wants the priority 0.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a struct of ours, which the kernel reads; 0 is the calling thread.
    let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn processors_are_awake_and_whoever_has_work_goes_first() {
        let awake = Awake::begin().expect("threads");
        let processors = sched_getaffinity(None).expect("processors").count() as usize;
        assert_eq!(awake.threads.len(), processors);
        for (id, _) in &awake.threads {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).expect("one");
            // Its 41st field is the class; the second, in brackets, may hold spaces.
            let class = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(39));
            assert_eq!(class, Some("5"), "{stat}");
        }
        let began = Instant::now();
        while awake.time() < Duration::from_millis(20) {
            assert!(began.elapsed() < Duration::from_secs(60), "nobody spins");
            thread::sleep(Duration::from_millis(1));
        }
        let is_over = Arc::clone(&awake.is_over);
        drop(awake);
        assert_eq!(Arc::strong_count(&is_over), 1, "the threads have ended");
    }
}
