//! Network namespaces: worlds of interfaces, routes and sockets held by a file descriptor alone.
//!
//! A namespace lives as long as something refers to it: a thread inside, a socket, a file
//! descriptor. Ours have no name in the file system, so they end with the process, however it
//! ends, and the kernel takes down every link and route within. Which namespace a thread is in
//! matters only while it creates a socket or opens a file of `/proc/sys/net`: a socket stays
//! where it was made. So work inside is done on short-lived threads that join the namespace, and
//! the sockets, rings and descriptors they return are used anywhere.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};

use super::netlink::Netlink;
use super::privilege;
use crate::system_file::system_text;

/// An anonymous network namespace with its loopback up; it ends with its last holder.
#[derive(Debug)]
pub struct Namespace {
    descriptor: OwnedFd,
}

impl Namespace {
    /// A new namespace; the error says what to do if the process lacks the privilege.
    pub fn new() -> Result<Namespace> {
        let descriptor = thread::scope(|scope| {
            let made = thread::Builder::new().name("namespace".into()).spawn_scoped(scope, || {
                privilege::unshare_network()?;
                let file = File::open("/proc/thread-self/ns/net")
                    .context("cannot open the new namespace at /proc/thread-self/ns/net")?;
                Netlink::open()?.set_up("lo")?;
                Ok(OwnedFd::from(file))
            });
            made.context("cannot start a thread for a namespace")?.join().unwrap_or_else(|cause| {
                resume_unwind(cause);
            })
        });
        descriptor.map(|descriptor| Namespace { descriptor })
    }

    /// One that another process made, held by this descriptor as well.
    pub fn from_descriptor(descriptor: OwnedFd) -> Namespace {
        Namespace { descriptor }
    }

    /// Runs `work` inside on a thread of its own and returns what it returned; an error of
    /// joining the namespace comes back like one of the work's own.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let inside =
                thread::Builder::new().name("namespace".into()).spawn_scoped(scope, || {
                    join(self.descriptor.as_fd())?;
                    work()
                });
            inside.context("cannot start a thread for a namespace")?.join().unwrap_or_else(
                |cause| {
                    resume_unwind(cause);
                },
            )
        })
    }

    /// Runs `work` inside, where joining cannot fail but by a bug.
    ///
    /// # Panics
    ///
    /// When the namespace cannot be joined (the process gave up its privilege since it made the
    /// namespace), or when `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.enter(|| Ok(work())).expect("the creator of a namespace may join it")
    }

    /// Starts a lasting thread inside; it runs on when this value is dropped and keeps the
    /// namespace until it ends.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>> {
        let descriptor =
            self.descriptor.try_clone().context("cannot copy a namespace's descriptor")?;
        let (report, joined) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let outcome = join(descriptor.as_fd());
                let inside = outcome.is_ok();
                // The receiver waits for this very message, so it cannot be gone.
                let _ = report.send(outcome);
                inside.then(work).expect("the error was already returned to the caller")
            })
            .with_context(|| format!("cannot start the thread {name}"))?;
        match joined.recv() {
            Ok(Ok(())) => Ok(thread),
            Ok(Err(error)) => {
                // The thread's panic only repeats the error.
                let _ = thread.join();
                Err(error)
            }
            Err(_) => bail!("the thread {name} ended before it joined its namespace"),
        }
    }

    /// Sets a kernel parameter of this namespace, such as `net/ipv4/ip_forward` to `1`.
    pub fn write_sysctl(&self, path: &str, value: &str) -> Result<()> {
        self.write_sysctls(&[(path, value)])
    }

    /// Sets several kernel parameters of this namespace in the order given.
    pub fn write_sysctls(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.enter(|| {
            for (path, value) in settings {
                let file = format!("/proc/sys/{path}");
                fs::write(&file, value).map_err(|error| sysctl_error(&file, value, error))?;
            }
            Ok(())
        })
    }

    /// Reads a kernel parameter of this namespace, without the line's end.
    pub fn read_sysctl(&self, path: &str) -> Result<String> {
        let file = format!("/proc/sys/{path}");
        self.enter(|| {
            let text = system_text(&file).with_context(|| format!("cannot read {file}"))?;
            Ok(text.trim_end().to_owned())
        })
    }
}

/// A kernel parameter of this thread's namespace, such as `net/ipv4/tcp_timestamps`, that is written often.
///
/// # Errors
/// Where it cannot be written.
pub fn open_sysctl(path: &str) -> Result<File> {
    let file = format!("/proc/sys/{path}");
    let opened = File::options().write(true).open(&file);
    opened.map_err(|error| anyhow::anyhow!("cannot open {file} to set it: {error}"))
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Moves the calling thread into the namespace.
fn join(namespace: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: setns reads two integers; the descriptor is borrowed, hence open.
    if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error()).context("cannot join a network namespace of this process")
}

fn sysctl_error(file: &str, value: &str, error: io::Error) -> anyhow::Error {
    let hint = match error.raw_os_error() {
        Some(libc::EROFS) => "; a container mounts it read-only: start it with --privileged",
        Some(libc::ENOENT) => "; this kernel lacks the parameter",
        _ => "",
    };
    anyhow::anyhow!("cannot set {file} to {value}: {error}{hint}")
}
