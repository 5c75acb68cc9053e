//! Counters that a running client or server shares with the thread that shows its progress.
//!
//! Event loops add with relaxed atomics and no thread waits for another. A snapshot is not atomic:
//! its fields may differ by what happened between two reads. The exact account is what `run`
//! returns.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Shared by every event loop of one client or one server.
#[derive(Debug, Default)]
pub struct LiveCounters {
    started: AtomicU64,
    established: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    held: AtomicU64,
    lateness_max_ns: AtomicU64,
}

/// A glance at [`LiveCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Connections begun (client) or accepted (server).
    pub started: u64,
    /// Of those begun, the ones that the other end has answered; zero for a server.
    pub established: u64,
    /// Connections that carried every byte and closed cleanly.
    pub completed: u64,
    /// Connections that ended in any other way.
    pub failed: u64,
    /// Connections open now.
    pub open: u64,
    /// Payload bytes received (client) or handed to TCP (server).
    pub bytes: u64,
    /// Times that a start had to wait because as many connections as allowed were open.
    pub held: u64,
    /// The latest start so far, against the plan, in nanoseconds; zero for a server.
    pub lateness_max_ns: u64,
}

impl LiveCounters {
    /// All zero.
    pub fn new() -> LiveCounters {
        LiveCounters::default()
    }

    /// The current values of the counters.
    pub fn progress(&self) -> Progress {
        // Ends are read before starts, so `open` can only err upwards.
        let completed = self.completed.load(Relaxed);
        let failed = self.failed.load(Relaxed);
        let started = self.started.load(Relaxed);
        Progress {
            started,
            established: self.established.load(Relaxed),
            completed,
            failed,
            open: started.saturating_sub(completed + failed),
            bytes: self.bytes.load(Relaxed),
            held: self.held.load(Relaxed),
            lateness_max_ns: self.lateness_max_ns.load(Relaxed),
        }
    }

    /// Sets how many connections have begun and how many of them carried every byte, for an engine
    /// that keeps count itself.
    pub fn set(&self, started: u64, completed: u64) {
        self.completed.store(completed, Relaxed);
        self.established.store(started, Relaxed);
        self.started.store(started, Relaxed);
    }

    pub(super) fn start(&self, lateness_ns: u64) {
        self.started.fetch_add(1, Relaxed);
        if lateness_ns > self.lateness_max_ns.load(Relaxed) {
            self.lateness_max_ns.fetch_max(lateness_ns, Relaxed);
        }
    }

    pub(super) fn establish(&self) {
        self.established.fetch_add(1, Relaxed);
    }

    pub(super) fn end(&self, completed: bool) {
        if completed { &self.completed } else { &self.failed }.fetch_add(1, Relaxed);
    }

    pub(super) fn carry(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn hold(&self) {
        self.held.fetch_add(1, Relaxed);
    }
}
