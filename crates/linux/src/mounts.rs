//! Private mount namespaces: processes that enter see the mounts made there, which end with the last process.
//!
//! A mount namespace lives as long as a process is in it or holds its descriptor, like the network
//! namespaces of a testbed ([`super::namespace`]). What is mounted over a folder in it is a file system in
//! memory that no path outside leads to, and that goes with it: however a program ends that used it as
//! scratch, SIGKILL included, nothing is left on the disk, and no clean-up is needed.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};

/// A mount namespace without a name.
#[derive(Debug)]
pub struct Mounts {
    descriptor: OwnedFd,
}

impl Mounts {
    /// A copy of this process's mounts, changed by `prepare`, which runs inside; what it returns comes back.
    /// This process stays where it is.
    ///
    /// # Errors
    /// In one line: the kernel makes none, or `prepare`'s own.
    pub fn new<T: Send>(prepare: impl FnOnce() -> Result<T> + Send) -> Result<(Mounts, T)> {
        let work = || {
            // SAFETY: unshare takes an integer, and changes this thread alone, which ends with this call.
            if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
                let error = io::Error::last_os_error();
                return Err(anyhow!(
                    "cannot make a mount namespace: {error}; run it with sudo, in a container with \
                     --privileged"
                ));
            }
            // What is mounted from here on is private.
            let apart = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", apart).context("cannot keep mounts to a namespace")?;
            let prepared = prepare()?;
            let file = File::open("/proc/thread-self/ns/mnt")
                .context("cannot open the new namespace at /proc/thread-self/ns/mnt")?;
            Ok((Mounts { descriptor: file.into() }, prepared))
        };
        thread::scope(|scope| {
            let inside = thread::Builder::new().name("mounts".into()).spawn_scoped(scope, work);
            let inside = inside.context("cannot start a thread for a mount namespace")?;
            inside.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })
    }
}

impl AsFd for Mounts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Covers a folder by an empty file system in memory; `options` are tmpfs(5)'s. For use in [`Mounts::new`].
///
/// # Errors
/// The kernel's, with the folder.
pub fn cover(folder: &str, options: &std::ffi::CStr) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("nilometer", folder, "tmpfs", flags, options)
        .with_context(|| format!("cannot mount memory at {folder}"))
}

/// Shows a text in place of a file, by way of `scratch`, a file that is made. For use in [`Mounts::new`].
///
/// # Errors
/// The kernel's, with the file.
pub fn replace(file: &str, scratch: &Path, text: &str) -> Result<()> {
    fs::write(scratch, text).with_context(|| format!("{}", scratch.display()))?;
    mount_bind(scratch, file).with_context(|| format!("cannot mount over {file}"))
}

/// A folder's descriptor, by which its holder reaches it from outside too. For use in
/// [`Mounts::new`].
///
/// # Errors
/// The kernel's, with the folder.
pub fn reach(folder: &str) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, Mode::empty()).with_context(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::privilege::{Privilege, privilege};
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn private_mounts_are_seen_inside_only() {
        if privilege() != Privilege::Root {
            return println!("skipped: mounts of one's own: only root has them without more ado");
        }
        let name = format!("nilometer-mounts-{}", std::process::id());
        let outside = std::env::temp_dir().join(&name);
        fs::create_dir(&outside).expect("a scratch folder");
        let covered = outside.to_str().expect("UTF-8");
        let (mounts, folder) = Mounts::new(|| {
            cover(covered, c"mode=700,size=1m")?;
            fs::create_dir(outside.join("within"))?;
            fs::write(outside.join("file"), "old")?;
            replace(&format!("{covered}/file"), &outside.join("new"), "new")?;
            assert_eq!(fs::read_to_string(outside.join("file"))?, "new");
            reach(covered)
        })
        .expect("a namespace");
        let seen = fs::read_dir(&outside).expect("it is there").count();
        let by_descriptor = format!("/proc/self/fd/{}", folder.as_raw_fd());
        let within = fs::read_dir(by_descriptor).expect("it is reached").count();
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        drop((mounts, folder));
        fs::remove_dir(&outside).expect("nothing is in it");
        assert_eq!((seen, within), (0, 3));
        assert!(!mountinfo.contains(&name), "{mountinfo}");
        assert!(Mounts::new(|| reach("/no/such/folder")).is_err());
    }
}
