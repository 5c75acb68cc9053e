//! Interfaces of this host on loan to a lab: a device that the lab did not make stands between two of them.
//!
//! A lab's hosts live in namespaces of their own, so the interfaces towards the device are moved there for the run.
//! A namespace without a name ends with the last process that holds it. The kernel then sends cards back to the first
//! namespace, without their addresses, and destroys virtual interfaces together with their other ends, which may be
//! the user's own. So interfaces are never held by the lab alone: a *guardian*, a process that does nothing else,
//! moves them out and, however the lab ends, back:
//!
//! ```text
//!   lab ── starts ──► guardian          opens the lab's namespaces, reads what the interfaces are like,
//!    │◄──── "held" ──── │               moves them
//!    │   (the run)      │               sleeps, reading what the lab never writes
//!    └─ ends, is killed ► end of file   moves them back and makes them what they were
//! ```
//!
//! What an interface loses by such a move is restored: its name, MTU, addresses, routes, permanent neighbours,
//! settings in `/proc/sys/net/*/{conf,neigh}`, offloads, and whether it was up (`state`). An interface that could
//! not be restored, or whose absence would harm the host, is refused beforehand: that of the default route, ports of
//! bridges and bonds, interfaces on which others are stacked, and those with an XDP program, filters or queues of
//! their own. Not restored are proxy neighbours, link-layer groups that were joined by hand, and the lifetimes of
//! routes.

mod guardian;
mod settings;
mod state;

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::namespace::Namespace;

use guardian::Out;
use state::InterfaceState;

pub use guardian::stand_guard;

/// The longest line that a guardian writes, bytes.
const LINE_BYTES_MAX: u64 = 4_096;
/// What the guardian writes when it has moved everything.
const HELD: &str = "held";
/// What it writes before the reason if it moves nothing.
const REFUSED: &str = "refused: ";

/// An interface that is to be lent.
#[derive(Clone, Copy, Debug)]
pub struct Loan<'a> {
    /// Its name, in the calling thread's namespace.
    pub interface: &'a str,
    /// Where it goes.
    pub namespace: &'a Namespace,
    /// What it is called there.
    pub called: &'a str,
}

/// Interfaces on loan; they are given back when this value goes, or the process, however it ends.
#[derive(Debug)]
pub struct Borrowed {
    guardian: Child,
    replies: BufReader<ChildStdout>,
    /// The state of the interfaces, in case the guardian dies before the lab.
    out: Vec<Out>,
    given_back: bool,
}

impl Borrowed {
    /// Borrows interfaces of the calling thread's namespace: all of them, or none. `guardian` is the command that
    /// calls [`stand_guard`] with the arguments that are appended to it.
    ///
    /// # Errors
    /// If an interface cannot be lent, or the kernel refuses.
    pub fn borrow(loans: &[Loan<'_>], mut guardian: Command) -> Result<Borrowed> {
        guardian.arg(std::process::id().to_string());
        let mut out = Vec::new();
        for loan in loans {
            let namespace = loan.namespace.as_fd().try_clone_to_owned();
            let namespace = namespace.context("cannot copy a namespace's descriptor")?;
            out.push(Out {
                state: InterfaceState::read(loan.interface)?,
                namespace: Namespace::from_descriptor(namespace),
                called: loan.called.to_owned(),
            });
            let descriptor = loan.namespace.as_fd().as_raw_fd();
            guardian.args([loan.interface, &descriptor.to_string(), loan.called]);
        }
        // A group of its own: what ends the lab and all that it started must not end this.
        guardian.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = guardian
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the process that holds the interfaces for the run")?;
        let replies = child.stdout.take().context("the guardian's words")?;
        let mut borrowed =
            Borrowed { guardian: child, replies: BufReader::new(replies), out, given_back: false };
        let answer = borrowed.line()?;
        match answer.strip_prefix(REFUSED) {
            Some(why) => bail!("{why}"),
            None => ensure!(
                answer == HELD,
                "the process that was to hold the interfaces ended without an answer"
            ),
        }
        Ok(borrowed)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        (&mut self.replies).take(LINE_BYTES_MAX).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Gives the interfaces back; returns what could not be restored, in a line each.
    ///
    /// # Errors
    /// When the guardian cannot be waited for.
    pub fn give_back(mut self) -> Result<Vec<String>> {
        self.end()
    }

    fn end(&mut self) -> Result<Vec<String>> {
        if std::mem::replace(&mut self.given_back, true) {
            return Ok(Vec::new());
        }
        // (Closing what it reads is the sign.)
        drop(self.guardian.stdin.take());
        let mut replies = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            replies.push(line);
        }
        let ended = self.guardian.wait().context("cannot wait for the guardian")?;
        if !ended.success() {
            replies.push(format!(
                "the process that held the interfaces failed ({ended}), and the lab gave them back in its place"
            ));
            replies.extend(guardian::move_back(&self.out));
        }
        Ok(replies)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // A caller that needs to know what was not restored has called `give_back`.
        let _ = self.end();
    }
}

/// Whether this interface of the calling thread's namespace can be lent.
///
/// # Errors
/// Why not, and what to do.
pub fn ensure_lendable(interface: &str) -> Result<()> {
    InterfaceState::read(interface).map(drop)
}
