//! The process that holds interfaces for a lab: its handling of signals, and its input and output.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use nilometer_linux::borrowed;

/// Signals that cannot be caught, or that report a fault of this program itself.
const NOT_HEARD: [i32; 7] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGCHLD,
];
/// The last of those that have a name.
const LAST_SIGNAL: i32 = libc::SIGSYS;

/// Holds interfaces until the lab, which is at the other end of the standard input, has ended. Signals that end the lab
/// must not end this process, and are only noted.
///
/// # Errors
/// As [`borrowed::stand_guard`].
pub fn hold(words: &[String]) -> Result<()> {
    let stop_requested = Arc::new(AtomicBool::new(false));
    for signal in (1..=LAST_SIGNAL).filter(|signal| !NOT_HEARD.contains(signal)) {
        signal_hook::flag::register(signal, Arc::clone(&stop_requested))
            .context("cannot mind signals")?;
    }
    let mut output = io::stdout();
    borrowed::stand_guard(words, &mut io::stdin().lock(), &mut output)?;
    let _ = output.flush();
    Ok(())
}
