//! CPUs while something is measured: kept out of idle states, and threads pinned to them.
//!
//! An idle CPU halts, and leaving its idle state takes time: more or less from one wakeup to the next, and
//! most where a hypervisor is involved. A generator that sleeps between its frames pays for that twenty
//! thousand times a second. And a thread that is woken on another CPU than the last time finds cold
//! caches, so that a round in which the scheduler migrates it costs tenths more. The cost of a cheap
//! device is lost in both. So
//!
//! - each CPU gets a thread that spins ([`Awake`]), in the scheduling class that yields to every other at
//!   once (`SCHED_IDLE`). What it uses counts as idle: a measurement of how busy the machine was subtracts
//!   [`Awake::time`];
//! - the measuring thread and the device's thread are pinned to a CPU each, where there are two
//!   ([`keep_apart`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{hint, io, thread};

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::clock::{thread_id, thread_time_of};

/// How often a thread spins before it looks whether it is to end.
const SPINS: u32 = 1_000;

/// The spinning threads, one for each CPU that the calling thread may use; they end when this is dropped.
#[derive(Debug)]
pub struct Awake {
    is_over: Arc<AtomicBool>,
    threads: Vec<(i32, JoinHandle<()>)>,
}

impl Awake {
    /// Keeps those CPUs out of idle states from now on.
    ///
    /// # Errors
    /// When such a thread cannot be started.
    pub fn begin() -> Result<Awake> {
        let step = "cannot keep a processor awake";
        let mut awake = Awake { is_over: Arc::default(), threads: Vec::new() };
        for processor in allowed()? {
            let is_over = Arc::clone(&awake.is_over);
            let (sender, receiver) = mpsc::sync_channel(1);
            let spins = move || {
                let begun = lowest_class().and_then(|()| stay_at(None, processor));
                let is_good = begun.is_ok();
                // (The caller waits for this message.)
                let _ = sender.send(begun.map(|()| thread_id()));
                while is_good && !is_over.load(Relaxed) {
                    (0..SPINS).for_each(|_| hint::spin_loop());
                }
            };
            let thread = thread::Builder::new().name(format!("awake/{processor}")).spawn(spins);
            let thread = thread.context(step)?;
            let id = receiver.recv().context(step)?.context(step)?;
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

/// The processors that the calling thread may use.
fn allowed() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("the kernel does not name our processors")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&at| allowed.is_set(at)).collect())
}

/// Whether the calling thread may use one processor only.
///
/// # Errors
/// When the kernel does not say.
pub fn are_one() -> Result<bool> {
    Ok(allowed()?.len() == 1)
}

/// Threads that are pinned; their affinity is as it was before when this is dropped, as what they start
/// inherits it.
#[derive(Debug)]
pub struct Apart {
    before: CpuSet,
    others: Vec<(Pid, CpuSet)>,
}

/// Pins the calling thread to one CPU, and `others`, of which one works at a time, to another, if the calling thread
/// may use two. Those that have ended are passed over.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_apart(others: impl IntoIterator<Item = i32>) -> Result<Apart> {
    let step = "cannot keep a thread on a processor";
    let allowed = allowed()?;
    let mut apart = Apart { before: sched_getaffinity(None).context(step)?, others: Vec::new() };
    // (The first processor is where most interrupts are.)
    let from_last = |place: usize| allowed[allowed.len() - 1 - place % allowed.len()];
    stay_at(None, from_last(0)).context(step)?;
    for thread_id in others {
        let thread = Pid::from_raw(thread_id).context("a thread has a number")?;
        let has_ended = |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH);
        let before = sched_getaffinity(Some(thread)).map_err(io::Error::from);
        let pinned = before.and_then(|before| {
            stay_at(Some(thread), from_last(1))?;
            Ok(before)
        });
        match pinned {
            Ok(before) => apart.others.push((thread, before)),
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error).context(step),
        }
    }
    Ok(apart)
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
        for (thread, before) in &self.others {
            let _ = sched_setaffinity(Some(*thread), before);
        }
    }
}

/// Pins a thread, or the calling one, to this CPU.
fn stay_at(thread: Option<Pid>, processor: usize) -> io::Result<()> {
    let mut one = CpuSet::new();
    one.set(processor);
    Ok(sched_setaffinity(thread, &one)?)
}

/// Puts the calling thread into the scheduling class that yields to all others.
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
    fn threads_stay_on_a_processor_each() {
        let processors = allowed().expect("processors");
        let (tell, hear) = mpsc::channel();
        let other = thread::spawn(move || {
            tell.send(thread_id()).expect("it is heard");
            thread::park();
            allowed().expect("processors")
        });
        let work = move || {
            let apart = keep_apart([hear.recv().expect("the other's")]).expect("ours");
            other.thread().unpark();
            let kept = [allowed().expect("processors"), other.join().expect("it ends")];
            drop(apart);
            (kept, allowed().expect("processors"))
        };
        let (kept, after) = thread::spawn(work).join().expect("it ends");
        let last = |place: usize| processors[processors.len() - 1 - place % processors.len()];
        assert_eq!(kept, [0, 1].map(|place| vec![last(place)]));
        assert_eq!(after, processors, "it may go again where it could");
        assert_eq!(allowed().expect("processors"), processors, "others go where they want");
        drop(keep_apart([5_000_000]).expect("a thread that has ended is passed over"));
        assert_eq!(allowed().expect("processors"), processors);
    }

    #[test]
    fn processors_are_kept_awake_by_idle_class_threads() {
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
            assert!(began.elapsed() < Duration::from_secs(60), "no thread spins");
            thread::sleep(Duration::from_millis(1));
        }
        let is_over = Arc::clone(&awake.is_over);
        drop(awake);
        assert_eq!(Arc::strong_count(&is_over), 1, "the threads have ended");
    }
}
