//! Calls from other threads to the driver.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, Result, anyhow};

use super::Driver;

/// A call to the driver; the result is returned to the caller.
pub(super) type Call = Box<dyn FnOnce(&mut Driver) -> Answer + Send>;
/// Answers once the call has taken effect.
pub(super) type Answer = Box<dyn FnOnce()>;

/// A handle by which other threads call a driver.
#[derive(Clone)]
pub struct Remote {
    calls: Sender<Call>,
    bell: Arc<UnixStream>,
}

/// The driver's end: the calls, and a bell that wakes it from its sleep.
pub(super) struct CallReceiver {
    calls: Receiver<Call>,
    bell: UnixStream,
}

/// Both ends.
///
/// # Errors
/// When the process has no descriptors left.
pub(super) fn line() -> Result<(CallReceiver, Remote)> {
    let (bell, far) = UnixStream::pair().context("cannot make a bell for the driver")?;
    for end in [&bell, &far] {
        end.set_nonblocking(true).context("cannot make a bell for the driver")?;
    }
    let (sender, calls) = channel();
    Ok((CallReceiver { calls, bell }, Remote { calls: sender, bell: Arc::new(far) }))
}

impl Remote {
    /// Runs `work` between two turns, and returns what it returned.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Driver) -> T + Send + 'static,
    ) -> Result<T> {
        let stopped = || anyhow!("the router has stopped");
        let (answer, answered) = channel();
        let call_made = move |driver: &mut Driver| -> Answer {
            let result = work(driver);
            Box::new(move || drop(answer.send(result)))
        };
        self.calls.send(Box::new(call_made)).map_err(|_| stopped())?;
        self.ring();
        answered.recv().map_err(|_| stopped())
    }

    /// Wakes the driver.
    pub fn ring(&self) {
        // A bell that is full has been rung.
        let _ = (&*self.bell).write(&[1]);
    }
}

impl CallReceiver {
    /// The next call.
    pub(super) fn next_call(&self) -> Option<Call> {
        self.calls.try_recv().ok()
    }

    /// What becomes readable when the bell rings.
    pub(super) fn descriptor(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Lets the bell be rung again.
    pub(super) fn silence(&mut self) {
        let mut rung = [0; 64];
        loop {
            match self.bell.read(&mut rung) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }
}
