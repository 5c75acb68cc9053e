//! Privilege: whether this process may build a lab, and how it acquires the privilege otherwise.
//!
//! A lab needs three things of the kernel: a network namespace (CAP_SYS_ADMIN), links in it
//! (CAP_NET_ADMIN) and packet sockets (CAP_NET_RAW). Root has them. Any other user has them inside
//! a user namespace, where the kernel lets ordinary users make one. The rules about that differ
//! between distributions and change (AppArmor lets the call succeed and takes the capabilities away
//! afterwards), so nothing is deduced here: a forked child tries the very calls, and reports how
//! far it came.

use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io;

use anyhow::{Context, Result, bail};

use crate::system_file::system_text;

/// By what right this process can build a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Privilege {
    /// It has the capabilities already.
    Root,
    /// It gets them by [`become_root_in_user_namespace`].
    UserNamespace,
    /// It cannot.
    None {
        /// What stands in the way and what to do about it, in one line.
        why: String,
    },
}

impl fmt::Display for Privilege {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Privilege::Root => out.write_str("root's capabilities"),
            Privilege::UserNamespace => out.write_str("an unprivileged user namespace"),
            Privilege::None { why } => out.write_str(why),
        }
    }
}

/// Finds out by trying in a forked child; the process itself stays as it is.
pub fn privilege() -> Privilege {
    match attempt() {
        Ok(Outcome::ROOT) => Privilege::Root,
        Ok(Outcome::USER_NAMESPACE) => Privilege::UserNamespace,
        Ok(outcome) => Privilege::None { why: reason(outcome) },
        Err(error) => Privilege::None { why: format!("cannot find out its privileges: {error}") },
    }
}

/// Makes sure that this process may build a lab, by a user namespace where it must; to be called
/// before the first thread is started.
pub fn acquire() -> Result<Privilege> {
    let found = privilege();
    match &found {
        Privilege::Root => {}
        Privilege::UserNamespace => become_root_in_user_namespace()?,
        Privilege::None { why } => bail!("{why}"),
    }
    Ok(found)
}

/// Makes sure that this process may move interfaces of the host, which no user namespace allows; `what` names the job.
pub fn acquire_root(what: &str) -> Result<()> {
    match privilege() {
        Privilege::Root => Ok(()),
        _ => bail!("{what} moves interfaces of this host, which takes root: run it with sudo"),
    }
}

/// Moves the whole process into a new user namespace in which it is root.
///
/// It keeps its rights to files as they were. The kernel demands that the process has a single
/// thread.
pub fn become_root_in_user_namespace() -> Result<()> {
    let maps = Maps::of_this_process();
    // SAFETY: unshare takes an integer and changes only the calling process.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EINVAL) => anyhow::anyhow!(
                "cannot enter a user namespace: the process already runs several threads"
            ),
            _ => anyhow::anyhow!("cannot enter a user namespace: {error}; run it with sudo"),
        });
    }
    for (path, text) in maps.files() {
        let path = path.to_string_lossy();
        match fs::write(path.as_ref(), text) {
            // Kernels before 3.19 have no such file and do not require it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            written => written.with_context(|| format!("cannot write {path}"))?,
        }
    }
    Ok(())
}

/// Moves the calling thread into a new network namespace, or says what to do.
pub(super) fn unshare_network() -> Result<()> {
    // SAFETY: unshare takes an integer and changes only the calling thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EPERM) => match privilege() {
            Privilege::None { why } => bail!("{why}"),
            _ => bail!("cannot make a network namespace without privilege; run it with sudo"),
        },
        Some(libc::ENOSPC) => {
            bail!("cannot make a network namespace: raise user.max_net_namespaces with sysctl")
        }
        _ => bail!("cannot make a network namespace: {error}"),
    }
}

/// The files that make a process's own user and group into root of its user namespace.
struct Maps {
    user: String,
    group: String,
}

impl Maps {
    fn of_this_process() -> Maps {
        // SAFETY: both calls take nothing and cannot fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        Maps { user: format!("0 {user} 1\n"), group: format!("0 {group} 1\n") }
    }

    /// In the order that the kernel requires: groups are given up before they are mapped.
    fn files(&self) -> [(&'static CStr, &str); 3] {
        [
            (c"/proc/self/setgroups", "deny\n"),
            (c"/proc/self/gid_map", &self.group),
            (c"/proc/self/uid_map", &self.user),
        ]
    }
}

/// How far the child came, and the error number that stopped it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outcome {
    step: u8,
    errno: i32,
}

impl Outcome {
    const ROOT: Outcome = Outcome { step: 0, errno: 0 };
    const USER_NAMESPACE: Outcome = Outcome { step: 1, errno: 0 };
    const NO_USER_NAMESPACE: u8 = 2;
    const NO_MAPPING: u8 = 3;
    const NO_NETWORK: u8 = 4;
}

/// Forks a child that tries; its answer comes through a pipe.
fn attempt() -> io::Result<Outcome> {
    let maps = Maps::of_this_process();
    let mut ends = [0; 2];
    // SAFETY: pipe2 fills the array of two descriptors it is given.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let [read_end, write_end] = ends;
    // SAFETY: other threads may exist, so the child must do nothing but system calls until it
    // ends: `try_all` neither allocates nor locks, and `_exit` runs no handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let outcome = try_all(&maps);
        let answer = [outcome.step, outcome.errno.clamp(0, 255) as u8];
        // SAFETY: the pointer and the length are those of a live array.
        unsafe {
            libc::write(write_end, answer.as_ptr().cast(), answer.len());
            libc::_exit(0);
        }
    }
    let fork_error = io::Error::last_os_error();
    let mut answer = [0u8; 2];
    // SAFETY: both descriptors came from pipe2 above and are closed once; the buffer is live, and
    // a read ends at the latest when the child's end of the pipe is gone.
    let received = unsafe {
        libc::close(write_end);
        let received = libc::read(read_end, answer.as_mut_ptr().cast(), answer.len());
        libc::close(read_end);
        if child > 0 {
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        received
    };
    if child < 0 {
        return Err(fork_error);
    }
    if received != answer.len() as isize {
        return Err(io::Error::other("the probing child ended without an answer"));
    }
    Ok(Outcome { step: answer[0], errno: i32::from(answer[1]) })
}

/// The child's part: system calls only.
fn try_all(maps: &Maps) -> Outcome {
    if try_network() == 0 {
        return Outcome::ROOT;
    }
    // SAFETY: unshare takes an integer and changes only the calling process.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        return Outcome { step: Outcome::NO_USER_NAMESPACE, errno: errno() };
    }
    for (path, text) in maps.files() {
        let errno = try_write(path, text);
        if errno != 0 {
            return Outcome { step: Outcome::NO_MAPPING, errno };
        }
    }
    match try_network() {
        0 => Outcome::USER_NAMESPACE,
        errno => Outcome { step: Outcome::NO_NETWORK, errno },
    }
}

/// Writes one of the maps; 0 or an errno.
fn try_write(path: &CStr, text: &str) -> i32 {
    // SAFETY: the path ends in a zero byte.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return if errno() == libc::ENOENT { 0 } else { errno() };
    }
    // SAFETY: the descriptor is open, and the text's pointer and length belong together.
    let written = unsafe { libc::write(file, text.as_ptr().cast(), text.len()) };
    let error = if written < 0 { errno() } else { 0 };
    // SAFETY: the descriptor is ours and closed once.
    unsafe { libc::close(file) };
    error
}

/// Makes a network namespace, raises its loopback and opens a packet socket; 0 or an errno.
fn try_network() -> i32 {
    // SAFETY: an ifreq of zero bytes is a valid value, the calls get a pointer to this live one,
    // and the descriptors are checked by the calls that use them.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNET) != 0 {
            return errno();
        }
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if libc::ioctl(socket, libc::SIOCSIFFLAGS, &request) != 0 {
            return errno();
        }
        if libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) < 0 {
            return errno();
        }
    }
    0
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The sentence for a person: what stands in the way, and what to do.
fn reason(outcome: Outcome) -> String {
    let setting = |name: &str| system_text(format!("/proc/sys/{}", name.replace('.', "/")));
    let is = |name: &str, value: &str| setting(name).is_ok_and(|text| text.trim() == value);
    let asks = "a lab needs root or an unprivileged user namespace";
    for (name, blocking, allowing) in [
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("user.max_user_namespaces", "0", "10000"),
    ] {
        if is(name, blocking) {
            return format!(
                "{asks}: run it with sudo, or allow the latter by `sudo sysctl -w {name}={allowing}`"
            );
        }
    }
    let step = match outcome.step {
        Outcome::NO_USER_NAMESPACE => "making a user namespace",
        Outcome::NO_MAPPING => "mapping its user",
        _ => "making a network in a user namespace",
    };
    let error = io::Error::from_raw_os_error(outcome.errno);
    format!(
        "{asks}, and {step} failed ({error}): run it with sudo, in a container with --privileged"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_one_line_that_names_sudo() {
        for step in [Outcome::NO_USER_NAMESPACE, Outcome::NO_MAPPING, Outcome::NO_NETWORK] {
            let text = reason(Outcome { step, errno: libc::EPERM });
            assert!(text.contains("sudo") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn asking_changes_nothing() {
        let namespaces = || {
            let read = |kind| fs::read_link(format!("/proc/self/ns/{kind}")).ok();
            (read("net"), read("user"))
        };
        let before = namespaces();
        assert_eq!(privilege(), privilege());
        assert_eq!(namespaces(), before);
    }
}
