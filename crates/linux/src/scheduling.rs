//! Runs the threads whose delay is measured in a real-time class, within a limit.
//!
//! A router or a traffic generator that waits in the run queue behind a meter or a display measures the
//! scheduler and not itself: on two processors the 99th percentile of the delay through a router was
//! eleven milliseconds in the ordinary class and one in a real-time class. So timed threads request
//! `SCHED_FIFO` (`sched(7)`), in which a thread that wakes preempts every ordinary one at once. What may
//! wait (meters, displays, files) stays in the ordinary class.
//!
//! # The limit
//!
//! A real-time thread that never sleeps takes a processor from all other threads. A guard looks at all timed threads
//! every [`PERIOD`]. One that used more than [`ONE_ALLOWED`] of a processor is busy with volume rather than
//! waiting for a moment, and goes back to the ordinary class; so do the busiest of all where they used more than
//! [`ALLOWED`] of the processors together. In the ordinary class a thread is judged by its demand, the time that
//! it used plus the time that it waited for a processor, until that is less. So a bulk transfer leaves the meter
//! its share, and an endless loop is out of the class after a look or two. The guard has the highest priority
//! and sleeps between looks.
//!
//! An external program that forwards, such as a switch in user space, may poll without an end, and in the class
//! would not leave the threads that empty rings their share. It goes ahead of all ordinary threads
//! ([`Timed::favour`]).
//!
//! A [`Role::Sender`] of test frames spins on purpose, for the seconds of a trial. Where there is a second processor
//! it stays in its class, and does not count in the sum.
//!
//! Where the system refuses the guard the class (it requires `CAP_SYS_NICE` in the initial user namespace,
//! or `RLIMIT_RTPRIO` of 3), no thread gets it, and [`Timed::granted`] shows that.

use std::collections::BTreeMap;
use std::io;
use std::str::FromStr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, setpriority_process};
use serde::{Deserialize, Serialize};

use crate::clock::{thread_id, thread_time_of};

/// How often the guard looks.
pub const PERIOD: Duration = Duration::from_millis(100);
/// The share of all processors that timed threads may use together in a real-time class.
pub const ALLOWED: f64 = 0.7;
/// The share of one processor that one of them may use there.
pub const ONE_ALLOWED: f64 = 0.9;
/// The nice value of threads that go ahead of all ordinary ones.
const NICE_LEAST: i32 = -20;
/// A demoted thread returns once both shares are below this much of what is allowed.
const RETURN: f64 = 0.7;

/// A scheduling class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// `SCHED_FIFO`: a thread that wakes preempts every ordinary one.
    #[default]
    RealTime,
    /// `SCHED_OTHER`: a thread waits until the scheduler finds it is its turn.
    Ordinary,
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Class, String> {
        match text {
            "real-time" => Ok(Class::RealTime),
            "ordinary" => Ok(Class::Ordinary),
            _ => Err("give real-time or ordinary".to_owned()),
        }
    }
}

/// What a timed thread does. A device goes before the hosts that use it, as a box of its own would.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Forwards packets.
    Router,
    /// Does to packets what bad networks do.
    FaultBox,
    /// The same, in front of the device.
    Path,
    /// Opens connections.
    Client,
    /// Answers them.
    Server,
    /// Sends test frames at their times, for which it spins.
    Sender,
    /// Reads the stamps of test frames before rings are full.
    Receiver,
}

impl Role {
    fn priority(self) -> i32 {
        match self {
            Role::Router | Role::FaultBox | Role::Path => 2,
            Role::Client | Role::Server | Role::Sender | Role::Receiver => 1,
        }
    }
}

/// The priority of the guard, over all that it guards.
const GUARD: i32 = 3;

/// How the threads of a role run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// The role of the threads.
    pub role: Role,
    /// The class that was requested.
    pub class: Class,
    /// Whether the system gave it to all of them.
    pub granted: bool,
    /// The share of their time that they were beyond the limit and in the ordinary class, 0 to 1.
    pub beyond_limit: f64,
    /// How long they waited, ready to run, for a processor, in seconds: the sum of all of them up to the guard's last
    /// look at each. 0 if the kernel does not report it (`CONFIG_SCHED_INFO`).
    pub run_queue_s: f64,
}

/// Timed threads of this process, and their guard.
#[derive(Debug)]
pub struct Timed {
    class: Class,
    /// The system gave the guard the class; before there is a guard, no thread gets it.
    is_allowed: bool,
    threads: Arc<Mutex<Threads>>,
    /// Ends the guard when it goes.
    guard: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Debug, Default)]
struct Threads {
    members: Vec<Member>,
    /// By role: whether all were granted, how often the guard looked at them, and how often they were beyond
    /// the limit.
    roles: BTreeMap<Role, (bool, u64, u64)>,
    waited: BTreeMap<Role, Duration>,
}

#[derive(Debug)]
struct Member {
    thread_id: i32,
    role: Role,
    used: Duration,
    waited: Duration,
    /// None where the system refused the class.
    class: Option<Class>,
}

impl Timed {
    /// An empty set of threads for this class, which they get once there is a guard.
    pub fn new(class: Class) -> Timed {
        Timed { class, is_allowed: false, threads: Arc::default(), guard: None }
    }

    /// Begins to guard the threads that are [`enter`](Timed::enter)ed from now on.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn guarded(mut self) -> io::Result<Timed> {
        let (end, ended) = channel();
        let (sender, receiver) = channel();
        let threads = Arc::clone(&self.threads);
        let class = self.class;
        let watch = move || {
            let is_allowed =
                class == Class::RealTime && set_class(thread_id(), Class::RealTime, GUARD).is_ok();
            // (The caller waits for this message.)
            let _ = sender.send(is_allowed);
            let processors = thread::available_parallelism().map_or(1, usize::from) as f64;
            let mut looked = Instant::now();
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let elapsed = looked.elapsed();
                looked += elapsed;
                lock(&threads).look(elapsed, processors);
            }
        };
        let guard = thread::Builder::new().name("guard".into()).spawn(watch)?;
        self.is_allowed = receiver.recv().unwrap_or(false);
        self.guard = Some((end, guard));
        Ok(self)
    }

    /// Puts the calling thread into the class, as one of this role.
    pub fn enter(&self, role: Role) {
        self.add(role, thread_id());
    }

    /// The same until the value is dropped.
    pub fn enter_for_now(&self, role: Role) -> Entered<'_> {
        self.enter(role);
        Entered { timed: self, thread_id: thread_id() }
    }

    /// Puts a thread of this process into the class, as one of this role.
    pub fn add(&self, role: Role, thread_id: i32) {
        // (All is read before the lock is taken: the guard may wait for it.)
        let used = thread_time_of(thread_id).unwrap_or_default();
        let waited = run_queue_wait(thread_id).unwrap_or_default();
        let is_granted =
            self.is_allowed && set_class(thread_id, Class::RealTime, role.priority()).is_ok();
        let class = is_granted.then_some(Class::RealTime);
        let mut threads = lock(&self.threads);
        threads.roles.entry(role).or_insert((true, 0, 0)).0 &=
            is_granted || self.class == Class::Ordinary;
        threads.members.push(Member { thread_id, role, used, waited, class });
    }

    /// Has a thread, which may be of another process, go ahead of other ordinary ones, where a real-time class was
    /// requested and is allowed: it gets the least nice value (`setpriority(2)`). One that has ended gets none.
    pub fn favour(&self, thread_id: i32) {
        if self.is_allowed
            && let Some(thread) = Pid::from_raw(thread_id)
        {
            let _ = setpriority_process(Some(thread), NICE_LEAST);
        }
    }

    /// Why the system refused the class, if it was requested and refused.
    pub fn refused(&self) -> Option<String> {
        (self.class == Class::RealTime && !self.is_allowed).then(refusal).flatten()
    }

    /// How the threads of each role run, or ran.
    pub fn granted(&self) -> Vec<Granted> {
        let threads = lock(&self.threads);
        let of_role = |(&role, &(granted, looks, beyond)): (&Role, &(bool, u64, u64))| Granted {
            role,
            class: self.class,
            granted,
            beyond_limit: beyond as f64 / looks.max(1) as f64,
            run_queue_s: threads.waited.get(&role).map_or(0.0, Duration::as_secs_f64),
        };
        threads.roles.iter().map(of_role).collect()
    }
}

/// A thread in the class for a while.
#[derive(Debug)]
pub struct Entered<'a> {
    timed: &'a Timed,
    thread_id: i32,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        lock(&self.timed.threads).members.retain(|member| member.thread_id != self.thread_id);
        // (A thread that may not leave the class was never in it.)
        let _ = set_class(self.thread_id, Class::Ordinary, 0);
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        if let Some((end, guard)) = self.guard.take() {
            drop(end);
            let _ = guard.join();
        }
    }
}

fn lock(threads: &Mutex<Threads>) -> std::sync::MutexGuard<'_, Threads> {
    threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Threads {
    /// One look of the guard, `elapsed` after the one before.
    fn look(&mut self, elapsed: Duration, processors: f64) {
        let mut demands = Vec::new();
        self.members.retain_mut(|member| {
            let Some(used) = thread_time_of(member.thread_id) else { return false };
            let waited = run_queue_wait(member.thread_id).unwrap_or_default();
            let [ran, stood] = [used - member.used, waited.saturating_sub(member.waited)];
            (member.used, member.waited) = (used, waited);
            *self.waited.entry(member.role).or_default() += stood;
            let wanted = if member.class == Some(Class::Ordinary) { ran + stood } else { ran };
            let wanted = match member.role {
                Role::Sender if processors > 1.0 => Duration::ZERO,
                _ => wanted,
            };
            demands.push((wanted.as_secs_f64() / elapsed.as_secs_f64(), member.class));
            true
        });
        for (at, class) in classes(&demands, processors).into_iter().enumerate() {
            let member = &mut self.members[at];
            if class != member.class
                && let Some(class) = class
                && set_class(member.thread_id, class, member.role.priority()).is_ok()
            {
                member.class = Some(class);
            }
            let counts = self.roles.entry(member.role).or_insert((true, 0, 0));
            counts.1 += 1;
            counts.2 += u64::from(member.class == Some(Class::Ordinary));
        }
    }
}

/// The classes of threads by the share of a processor that each demanded, and by the class that it had: the
/// least busy are allowed first. `None` stays `None`.
fn classes(threads: &[(f64, Option<Class>)], processors: f64) -> Vec<Option<Class>> {
    let mut order: Vec<usize> = (0..threads.len()).collect();
    order.sort_by(|&a, &b| threads[a].0.total_cmp(&threads[b].0));
    let mut classes = vec![None; threads.len()];
    let mut sum = 0.0;
    for at in order {
        let (share, class) = threads[at];
        sum += share;
        classes[at] = class.map(|class| {
            let part = if class == Class::RealTime { 1.0 } else { RETURN };
            let is_allowed = share <= part * ONE_ALLOWED && sum <= part * ALLOWED * processors;
            if is_allowed { Class::RealTime } else { Class::Ordinary }
        });
    }
    classes
}

/// Puts a thread of this process into a class.
///
/// # Errors
/// The kernel's: this process may not, or there is no such thread.
fn set_class(thread_id: i32, class: Class, priority: i32) -> io::Result<()> {
    // SAFETY: all zero is a value of this struct of numbers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    let policy = match class {
        Class::RealTime => {
            parameters.sched_priority = priority;
            // What a timed thread starts is not timed unless it requests that.
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK
        }
        // (Without the right to set priorities the flag cannot be cleared either.)
        Class::Ordinary => libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK,
    };
    // SAFETY: the pointer is to a struct of ours, which the kernel reads.
    let status = unsafe { libc::sched_setscheduler(thread_id, policy, &parameters) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts a thread of this process into a class, as [`Timed::add`] does a sender.
///
/// # Errors
/// As [`set_class`].
pub(super) fn class_of_sender(thread_id: i32, class: Class) -> io::Result<()> {
    set_class(thread_id, class, Role::Sender.priority())
}

/// How long a thread of this process has waited for a processor, ready to run; `None` if the kernel does
/// not report it (`CONFIG_SCHED_INFO`).
pub fn run_queue_wait(thread_id: i32) -> Option<Duration> {
    let path = format!("/proc/self/task/{thread_id}/schedstat");
    let text = crate::system_file::system_text(path).ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Why this process may not run threads in a real-time class, if it may not.
pub fn refusal() -> Option<String> {
    let tries = || set_class(thread_id(), Class::RealTime, GUARD);
    let tried = thread::Builder::new().name("refusal".into()).spawn(tries);
    let error = match tried.map(JoinHandle::join) {
        Ok(Ok(tried)) => tried.err()?,
        Ok(Err(_)) => return None,
        Err(error) => error,
    };
    Some(format!(
        "the system refuses a real-time class ({error}); run as root outside of a user namespace, or raise the \
         limit of real-time priorities (ulimit -r 3)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const RT: Option<Class> = Some(Class::RealTime);
    const ORDINARY: Option<Class> = Some(Class::Ordinary);

    #[test]
    fn the_busiest_beyond_the_limit_are_ordinary_until_they_are_less_busy() {
        // Two processors: 1.4 together, and 0.9 of one.
        assert_eq!(classes(&[(0.9, RT), (0.1, RT), (0.3, RT)], 2.0), [RT, RT, RT]);
        assert_eq!(classes(&[(0.8, RT), (0.4, RT), (0.3, RT)], 2.0), [ORDINARY, RT, RT]);
        assert_eq!(classes(&[(0.95, RT)], 2.0), [ORDINARY], "one alone");
        // Threads that are out return below seven tenths of both.
        assert_eq!(classes(&[(0.65, ORDINARY), (0.1, RT), (0.3, RT)], 2.0), [ORDINARY, RT, RT]);
        assert_eq!(classes(&[(0.5, ORDINARY), (0.1, RT), (0.3, RT)], 2.0), [RT, RT, RT]);
        // One processor: an endless loop is out, and a thread that was refused stays where it is.
        assert_eq!(classes(&[(1.0, RT), (0.0, None)], 1.0), [ORDINARY, None]);
        assert!(classes(&[], 1.0).is_empty());
    }

    fn policy(thread_id: i32) -> i32 {
        // SAFETY: asks for a number by a number.
        unsafe { libc::sched_getscheduler(thread_id) & !libc::SCHED_RESET_ON_FORK }
    }

    #[test]
    fn a_thread_that_never_sleeps_is_taken_out_of_the_class() {
        let timed = Timed::new(Class::RealTime).guarded().expect("a guard");
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // As many as there are processors, and one that sleeps.
            let spinning: Vec<_> = (0..thread::available_parallelism().map_or(1, usize::from))
                .map(|_| {
                    let (sender, receiver) = channel();
                    let (timed, over) = (&timed, &over);
                    scope.spawn(move || {
                        timed.enter(Role::Client);
                        sender.send(thread_id()).expect("it is heard");
                        while !over.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    });
                    receiver.recv().expect("its number")
                })
                .collect();
            timed.enter(Role::Router);
            let granted = timed.granted();
            let is_granted = granted.iter().all(|of| of.granted);
            thread::sleep(10 * PERIOD);
            // (Checked repeatedly: a thread that is out stays out while it spins.)
            let is_out = |id: &i32| policy(*id) == libc::SCHED_OTHER;
            let out: Vec<usize> = (0..10)
                .map(|_| {
                    thread::sleep(PERIOD / 3);
                    spinning.iter().filter(|id| is_out(id)).count()
                })
                .collect();
            let own = policy(thread_id());
            over.store(true, Ordering::Relaxed);
            assert_eq!(refusal().is_none(), is_granted);
            if is_granted {
                assert_eq!(out, [spinning.len(); 10], "all are out");
                assert_eq!(own, libc::SCHED_FIFO, "a thread that sleeps stays");
                let client = timed.granted().into_iter().find(|of| of.role == Role::Client);
                assert!(client.is_some_and(|of| of.beyond_limit > 0.1), "{:?}", timed.granted());
            } else {
                assert_eq!(own, libc::SCHED_OTHER);
            }
        });
        set_class(thread_id(), Class::Ordinary, 0).expect("back in the ordinary class");
    }

    /// As an ordinary user whose limit of real-time priorities allows it (`ulimit -r 3`).
    #[test]
    fn a_thread_allowed_by_rlimit_is_demoted_as_well() {
        let most = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
        let work = move || {
            // SAFETY: the pointer is to a struct of ours, which the kernel reads.
            if unsafe { libc::setrlimit(libc::RLIMIT_RTPRIO, &most) } != 0 {
                return None;
            }
            // (Of this thread alone, and with it go its capabilities.)
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).ok()?;
            let classes = [Class::RealTime, Class::Ordinary];
            Some(classes.map(|class| set_class(thread_id(), class, GUARD).err()))
        };
        match thread::spawn(work).join().expect("no panic") {
            None => println!("skipped: only root can become an ordinary user"),
            Some(refused) => assert!(refused.iter().all(Option::is_none), "{refused:?}"),
        }
    }

    #[test]
    fn ordinary_threads_are_left_alone_and_their_waiting_is_counted() {
        let timed = Timed::new(Class::Ordinary).guarded().expect("a guard");
        let before = policy(thread_id());
        timed.enter(Role::Server);
        thread::sleep(3 * PERIOD);
        assert_eq!(policy(thread_id()), before);
        let [server] = timed.granted()[..] else { panic!("{:?}", timed.granted()) };
        assert!(server.granted && server.beyond_limit == 0.0 && server.run_queue_s >= 0.0);
    }

    #[test]
    fn run_queue_wait_is_read_for_existing_threads() {
        let waits = run_queue_wait(thread_id()).expect("Linux says so");
        assert!(run_queue_wait(thread_id()).expect("again") >= waits);
        assert_eq!(run_queue_wait(5_000_000), None);
    }
}
