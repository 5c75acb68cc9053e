//! Real-time throttling: lets a thread spin in a real-time class indefinitely without being stopped.
//!
//! The kernel stops real-time threads that have used 95 % of a second (`sched_rt_runtime_us`), for the rest of it: a
//! hole of 50 ms, whether or not other threads want the processor. So a thread that spins leaves the class by
//! itself for a tenth of the time, in pieces of a millisecond. Where no other thread wants its processor this has no effect; where
//! one does, it gets the time that the kernel would have given it, and the spinning thread is late by less.

use crate::clock::thread_id;
use crate::scheduling::{Class, class_of_sender};

/// From one rest to the next, ns.
const ROUND_NS: u64 = 10_000_000;
/// How long a rest lasts, ns.
const REST_NS: u64 = 1_000_000;

/// Takes turns between the real-time class and the ordinary one, on the thread that it was made on.
#[derive(Debug)]
pub struct Turns {
    thread_id: i32,
    next_ns: u64,
    is_resting: bool,
    is_wanted: bool,
}

impl Turns {
    /// For the calling thread. Where it is in no real-time class it stays where it is.
    pub fn new() -> Turns {
        Turns::of(thread_id())
    }

    /// Likewise for a thread of this process that is in a long system call: another thread takes
    /// its turns for it.
    pub fn of(thread_id: i32) -> Turns {
        // SAFETY: the call takes a number.
        let policy = unsafe { libc::sched_getscheduler(thread_id) };
        let is_wanted = policy >= 0 && policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_FIFO;
        if is_wanted {
            // In the ordinary class it gets the highest priority. (If refused, it is one among others.)
            // SAFETY: the call takes numbers.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, thread_id as libc::id_t, -20) };
        }
        Turns { thread_id, next_ns: 0, is_resting: false, is_wanted }
    }

    /// Changes the class if it has been time for a while: for a thread that always has something to do.
    pub fn turn_if_overdue(&mut self, now_ns: u64) {
        if now_ns > self.next_ns + REST_NS / 4 {
            self.turn(now_ns);
        }
    }

    /// Changes the class if it is time; to be called by a thread that spins and has nothing to do.
    pub fn turn(&mut self, now_ns: u64) {
        if !self.is_wanted || now_ns < self.next_ns {
            return;
        }
        let is_first = self.next_ns == 0;
        let class = if self.is_resting || is_first { Class::RealTime } else { Class::Ordinary };
        self.is_resting = class == Class::Ordinary;
        self.is_wanted = class_of_sender(self.thread_id, class).is_ok();
        self.next_ns = now_ns + if self.is_resting { REST_NS } else { ROUND_NS - REST_NS };
    }
}

impl Default for Turns {
    fn default() -> Turns {
        Turns::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: the call takes a number; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK }
    }

    #[test]
    fn an_ordinary_thread_stays_ordinary() {
        let mut turns = Turns::new();
        (1..100).for_each(|ms| turns.turn(ms * 1_000_000));
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn a_real_time_thread_is_ordinary_for_a_tenth_of_the_time() {
        let work = || {
            if class_of_sender(thread_id(), Class::RealTime).is_err() {
                println!("skipped: a real-time class takes root");
                return None;
            }
            let mut turns = Turns::new();
            let ordinary = (1..=10_000u64).filter(|round| {
                turns.turn(round * 100_000);
                policy() == libc::SCHED_OTHER
            });
            Some(ordinary.count())
        };
        let ordinary = std::thread::spawn(work).join().expect("no panic");
        assert!(ordinary.is_none_or(|count| (900..=1_100).contains(&count)), "{ordinary:?}");
    }
}
