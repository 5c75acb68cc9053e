//! External programs in a namespace of ours, with mounts of their own.
//!
//! A daemon is killed when its value is dropped, or when the process that started it ends for any reason:
//! the kernel could do that, but forgets it when a process gives up root, so a shell waits for the end of
//! a pipe of ours. It is started before the daemon, and the daemon itself writes its process number to it
//! before exec, so that there is no moment at which we could be killed and the daemon survive.

use std::io::PipeWriter;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::mounts::Mounts;
use super::namespace::Namespace;

/// A process of ours, killed when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    watcher: Child,
    _stdin: PipeWriter,
}

/// A watcher: a shell that reads a process number from a pipe and kills that process at the pipe's end of
/// file, so when this process ends; and the pipe's end for writing.
fn watcher() -> Result<(Child, PipeWriter)> {
    let (theirs, ours) = std::io::pipe().context("cannot make a pipe")?;
    let mut shell = Command::new("sh");
    shell.args(["-c", "read -r process && { read -r _; kill -9 \"$process\"; }"]);
    // A terminal's interrupt is for us, and must not end the process that waits for our end.
    shell.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    Ok((shell.spawn().context("cannot start a shell")?, ours))
}

/// Writes this process's number and a line's end; for use between fork and exec.
fn write_process_id(pipe: libc::c_int) -> bool {
    // SAFETY: getpid takes nothing and cannot fail.
    let mut number = unsafe { libc::getpid() };
    let mut digits = [b'\n'; 12];
    let mut from = digits.len() - 1;
    while number > 0 {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    let text = &digits[from..];
    // SAFETY: the pointer and the length are those of a live slice.
    let written = unsafe { libc::write(pipe, text.as_ptr().cast(), text.len()) };
    written == text.len() as isize
}

impl Daemon {
    /// Starts a program in a network namespace and with these mounts; `what` names it in errors.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(
        mut command: Command,
        (namespace, mounts): (&Namespace, &Mounts),
        what: &str,
    ) -> Result<Daemon> {
        let (mut watcher, stdin) = watcher()?;
        let network = namespace.as_fd().as_raw_fd();
        let (mounts, pipe) = (mounts.as_fd().as_raw_fd(), stdin.as_raw_fd());
        // SAFETY: between fork and exec only setns, prctl, getpid and write are called, which take integers
        // and a live slice; the descriptors are open in the child as they are here.
        unsafe {
            command.pre_exec(move || {
                let enters = libc::setns(network, libc::CLONE_NEWNET) == 0
                    && libc::setns(mounts, libc::CLONE_NEWNS) == 0
                    && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0;
                if enters && write_process_id(pipe) {
                    return Ok(());
                }
                Err(std::io::Error::last_os_error())
            });
        }
        let child = command.spawn().with_context(|| format!("cannot start {what}"));
        if child.is_err() {
            // It ends by itself with the pipe, unless it has already.
            let _ = watcher.kill();
            watcher.wait().context("a shell cannot be ended")?;
        }
        Ok(Daemon { child: child?, watcher, _stdin: stdin })
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as SIGKILL does, without a chance to clean up.
    pub fn kill(&mut self) {
        // The watcher first, or it would kill the next process with the daemon's number. These calls fail only for
        // processes that have ended.
        for process in [&mut self.watcher, &mut self.child] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_watched_process_ends_with_its_parent_and_not_before() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().expect("a process");
        let (mut shell, mut stdin) = watcher().expect("a shell");
        writeln!(stdin, "{}", sleeper.id()).expect("it listens");
        thread::sleep(Duration::from_millis(50));
        assert!(sleeper.try_wait().expect("ours").is_none());
        // As the kernel does with our end of the pipe when we are killed.
        drop(stdin);
        assert_eq!(sleeper.wait().expect("ours").signal(), Some(libc::SIGKILL));
        shell.wait().expect("ours");
        let child = Command::new("sleep").arg("60").spawn().expect("a process");
        let (watcher, stdin) = watcher().expect("a shell");
        let mut daemon = Daemon { child, watcher, _stdin: stdin };
        daemon.kill();
        assert!(daemon.child.try_wait().expect("ours").is_some());
    }

    #[test]
    fn the_watcher_gets_a_process_id_in_digits() {
        let (mut read, write) = std::io::pipe().expect("a pipe");
        assert!(write_process_id(write.as_raw_fd()));
        drop(write);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut read, &mut text).expect("text");
        assert_eq!(text, format!("{}\n", std::process::id()));
    }
}
