//! Waiting: epoll with nanosecond limits, for one thread.
//!
//! `epoll_wait` counts milliseconds, which would put steps into inter-connection times (Harpoon
//! filled them by spinning; its Figure 7 shows what the scheduler made of that). `epoll_pwait2`
//! (Linux 5.11) takes nanoseconds, and a thread whose timer slack is small wakes within some
//! microseconds, so the loop needs no timer descriptor. If an idle processor has to wake first it
//! takes some tens of microseconds, so a loop that replays the pauses of an original wakes early
//! and spins for the rest.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Data to read, or end of file.
pub const READABLE: u32 = libc::EPOLLIN as u32;
/// Room to write; also: the connection is established.
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// The peer will send no more.
pub const PEER_CLOSED: u32 = libc::EPOLLRDHUP as u32;
/// Both directions are closed, or an error is pending; always reported.
pub const BROKEN: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
/// Report changes, not states.
pub const EDGE: u32 = libc::EPOLLET as u32;
/// Wake one of the threads that wait for this descriptor, not all.
pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

const EVENTS_MAX: usize = 256;
/// By how much [`Epoll::wait_precisely`] wakes early: about as late as a timer is.
pub const EARLY: Duration = Duration::from_micros(60);
/// How much longer than it spun a thread does not spin.
const SLEEP_PER_SPIN: u32 = 4;

/// What the kernel reported for one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// As given to [`Epoll::add`].
    pub key: u64,
    /// `READABLE`, `WRITABLE`, `PEER_CLOSED`, `BROKEN`, or several.
    pub ready: u32,
}

/// One epoll instance and the room for its answers.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    count: usize,
    /// The moment from which it may spin again.
    may_spin_from: Option<Instant>,
}

impl Epoll {
    /// A new instance.
    ///
    /// # Errors
    /// The kernel's: no descriptor left, as a rule.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: takes no pointer; the result is checked before it is owned.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made, is valid, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Epoll {
            fd,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX],
            count: 0,
            may_spin_from: None,
        })
    }

    /// Watches `socket` for `interest` under `key`, until it is closed.
    ///
    /// # Errors
    /// The kernel's: no memory, or more watches than `fs.epoll.max_user_watches`.
    pub fn add(&self, socket: BorrowedFd<'_>, interest: u32, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, interest, key)
    }

    /// Stops watching `socket`.
    ///
    /// # Errors
    /// The kernel's: it was not watched.
    pub fn remove(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, socket, 0, 0)
    }

    fn control(&self, verb: i32, socket: BorrowedFd<'_>, events: u32, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: both descriptors are open for the call; the kernel copies `event` and keeps no
        // pointer to it.
        let failed =
            unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), verb, socket.as_raw_fd(), &mut event) }
                < 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits until something happens or `limit` has passed, and returns the number of events;
    /// [`Epoll::event`] reads them. A signal ends the wait with none.
    ///
    /// # Errors
    /// The kernel's: `ENOSYS` before Linux 5.11.
    pub fn wait(&mut self, limit: Duration) -> io::Result<usize> {
        let limit = libc::timespec {
            tv_sec: limit.as_secs().min(i64::MAX as u64) as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: `events` has room for EVENTS_MAX and `limit` outlives the call; a null signal
        // mask is allowed and leaves the mask as it is.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                &limit as *const libc::timespec,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        self.count = count.max(0) as usize;
        match count {
            0.. => Ok(self.count),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                error => Err(error),
            },
        }
    }

    /// As [`Epoll::wait`], but without the delay of waking: the thread wakes [`EARLY`] before the limit and spins for
    /// the rest. It spins for at most a fifth of its time; beyond that it waits as [`Epoll::wait`] does.
    ///
    /// # Errors
    /// As [`Epoll::wait`].
    pub fn wait_precisely(&mut self, limit: Duration) -> io::Result<usize> {
        let until = Instant::now() + limit;
        if limit < EARLY || self.may_spin_from > Some(until) {
            return self.wait(limit);
        }
        if self.wait(limit - EARLY)? > 0 {
            return Ok(self.count);
        }
        let begun = Instant::now();
        while self.wait(Duration::ZERO)? == 0 && Instant::now() < until {
            std::hint::spin_loop();
        }
        self.may_spin_from = Some(Instant::now() + SLEEP_PER_SPIN * begun.elapsed());
        Ok(self.count)
    }

    /// Event `index` of the last [`Epoll::wait`].
    pub fn event(&self, index: usize) -> Event {
        assert!(index < self.count, "event {index} of {}", self.count);
        let event = self.events[index];
        Event { key: event.u64, ready: event.events }
    }
}

/// While it lives, this thread's timers fire within a microsecond of their time instead of fifty.
pub struct PromptTimers {
    slack_before_ns: libc::c_ulong,
}

impl PromptTimers {
    const SLACK_NS: libc::c_ulong = 1_000;

    /// Makes this thread's timers prompt.
    pub fn new() -> PromptTimers {
        // SAFETY: PR_GET_TIMERSLACK and PR_SET_TIMERSLACK take numbers only.
        let before = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, Self::SLACK_NS, 0, 0, 0) };
        PromptTimers { slack_before_ns: before.max(1) as libc::c_ulong }
    }
}

impl Default for PromptTimers {
    fn default() -> PromptTimers {
        PromptTimers::new()
    }
}

impl Drop for PromptTimers {
    fn drop(&mut self) {
        // SAFETY: PR_SET_TIMERSLACK takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.slack_before_ns, 0, 0, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::thread_time;
    use std::os::fd::AsFd;

    #[test]
    fn waits_no_less_than_requested() {
        let _prompt = PromptTimers::new();
        let mut epoll = Epoll::new().unwrap();
        let before = Instant::now();
        assert_eq!(epoll.wait(Duration::from_micros(700)).unwrap(), 0);
        assert!(before.elapsed() >= Duration::from_micros(700));
    }

    #[test]
    fn precise_waits_spin_for_at_most_a_fifth_of_the_time_and_report_events() {
        let _prompt = PromptTimers::new();
        let mut epoll = Epoll::new().unwrap();
        let nap = Duration::from_micros(100);
        let (begun, used) = (Instant::now(), thread_time());
        for _ in 0..1_000 {
            let before = Instant::now();
            assert_eq!(epoll.wait_precisely(nap).unwrap(), 0);
            assert!(before.elapsed() >= nap);
        }
        let share = (thread_time() - used).as_secs_f64() / begun.elapsed().as_secs_f64();
        assert!(share < 0.5, "{share} of the time, with what sleeping costs");
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        epoll.add(near.as_fd(), PEER_CLOSED, 7).unwrap();
        drop(far);
        assert_eq!(epoll.wait_precisely(Duration::from_secs(5)).unwrap(), 1);
        assert_eq!(epoll.event(0).key, 7);
    }

    #[test]
    fn reports_the_registered_key_until_removed() {
        let mut epoll = Epoll::new().unwrap();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        epoll.add(near.as_fd(), READABLE | PEER_CLOSED, 0xFACE_0000_0001).unwrap();
        assert_eq!(epoll.wait(Duration::ZERO).unwrap(), 0);
        drop(far);
        assert_eq!(epoll.wait(Duration::from_secs(5)).unwrap(), 1);
        let event = epoll.event(0);
        assert_eq!((event.key, event.ready & PEER_CLOSED), (0xFACE_0000_0001, PEER_CLOSED));
        epoll.remove(near.as_fd()).unwrap();
        assert_eq!(epoll.wait(Duration::ZERO).unwrap(), 0);
    }
}
