//! A thread that works until it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

/// The thread; dropping it stops it and waits for its end.
#[derive(Debug)]
pub(super) struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread that works until `stop` is set.
    pub(super) fn start<T>(
        name: &str,
        stop: Arc<AtomicBool>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Worker> {
        let thread = thread::Builder::new().name(name.into()).spawn(move || drop(work()));
        let thread = thread.with_context(|| format!("cannot start the thread {name:?}"))?;
        Ok(Worker { stop, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed, and there is no caller here to pass it to.
            let _ = thread.join();
        }
    }
}
