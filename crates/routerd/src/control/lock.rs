//! The lock beside a socket, without which no process may replace it.
//!
//! Any user can lock whatever file they can open, so a directory that others can read is no place for
//! one: locking it would keep a router from starting. The lock is a file that its owner alone can open,
//! is requested without waiting, and is removed by its holder. Two routers that start at the same moment
//! wait for each other for a fraction of a second.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use nilometer_linux::system_file::system_text;

/// How often a lock is tried, and the pause between two tries.
const ATTEMPTS: u32 = 10;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// The lock of a socket's place, until this value goes.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// The lock of the place of a socket called `name` in `folder`.
    ///
    /// # Errors
    /// When another process has it, which is named where it is known, or the file is not ours alone.
    pub fn take(folder: &Path, name: &str) -> Result<Lock> {
        let path = folder.join(format!(".{name}.lock"));
        let shown = path.display().to_string();
        let step = || format!("cannot open {shown}");
        for _ in 0..ATTEMPTS {
            match fs::symlink_metadata(&path) {
                Ok(about) => check(&about, &shown)?,
                Err(why) if why.kind() == ErrorKind::NotFound => {}
                Err(why) => return Err(why).with_context(step),
            }
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&path)
                .with_context(step)?;
            let about = file.metadata().with_context(step)?;
            check(&about, &shown)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // The former holder may have removed it meanwhile; then another can have the new one.
                Ok(()) if fs::symlink_metadata(&path).is_ok_and(|now| is_same(&now, &about)) => {
                    return Ok(Lock { path, _file: file });
                }
                Ok(()) => continue,
                Err(rustix::io::Errno::WOULDBLOCK) => sleep(BETWEEN_ATTEMPTS),
                Err(why) => return Err(why).with_context(|| format!("cannot lock {shown}")),
            }
        }
        let who = fs::symlink_metadata(&path).ok().and_then(|about| holder(&about));
        let who = who.unwrap_or_else(|| "another process".to_owned());
        bail!("{who} holds the lock {shown}; stop it, or give another socket")
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a lock is a file that no other user can open.
fn check(about: &Metadata, shown: &str) -> Result<()> {
    ensure!(
        !about.is_symlink(),
        "{shown} is a symbolic link, not a lock file of nilometer; remove it"
    );
    ensure!(
        about.is_file(),
        "{shown} is not a regular file, and so no lock file of nilometer; remove it"
    );
    let (own, mode) = (geteuid().as_raw(), about.mode() & 0o7777);
    ensure!(
        about.uid() == own,
        "{shown} belongs to the user with the number {}, which could keep it locked; remove it or \
         give another socket",
        about.uid()
    );
    ensure!(
        mode & 0o077 == 0,
        "{shown} has mode {mode:04o}, so that others could keep it locked; chmod 600 it"
    );
    Ok(())
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The holder of a lock of this file, according to `/proc`: `process 1234 (sleep)`.
fn holder(about: &Metadata) -> Option<String> {
    let locks = system_text("/proc/locks").ok()?;
    let inode = about.ino().to_string();
    let mut numbers = locks.lines().filter_map(|line| lock_of(line, &inode));
    // Devices have other numbers there than here on some file systems: the process is to have it open.
    let number = numbers.find(|number| {
        let open = fs::read_dir(format!("/proc/{number}/fd")).into_iter().flatten().flatten();
        let mut files = open.filter_map(|file| fs::metadata(file.path()).ok());
        files.any(|file| is_same(&file, about))
    })?;
    let name = system_text(format!("/proc/{number}/comm")).unwrap_or_default();
    let plain: String = name.trim().chars().filter(|letter| !letter.is_control()).collect();
    Some(match plain.is_empty() {
        true => format!("process {number}"),
        false => format!("process {number} ({plain})"),
    })
}

/// The process of a line of `/proc/locks` (`1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF`), if it
/// holds the lock of this inode; a waiter's line (`->`) does not count.
fn lock_of(line: &str, inode: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let (kind, _, _) = (words.next()?, words.next()?, words.next()?);
    let (number, file) = (words.next()?, words.next()?);
    let is_it = kind == "FLOCK" && file.rsplit(':').next() == Some(inode);
    number.parse().ok().filter(|_| is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_distinguished_by_inode() {
        let line = "3: FLOCK  ADVISORY  WRITE 4321 08:01:262147 0 EOF";
        assert_eq!(lock_of(line, "262147"), Some(4_321));
        assert_eq!(lock_of(line, "62147"), None);
        let waits = "3: -> FLOCK  ADVISORY  WRITE 4322 08:01:262147 0 EOF";
        assert_eq!(lock_of(waits, "262147"), None);
        let record = "4: POSIX  ADVISORY  WRITE 4323 08:01:262147 0 EOF";
        assert_eq!(lock_of(record, "262147"), None);
    }

    #[test]
    fn a_lock_is_held_once_and_its_holder_is_named() {
        let folder = std::env::temp_dir().join(format!("nilometer-lock-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let lock = Lock::take(&folder, "r.sock").expect("the lock is free");
        let refused = Lock::take(&folder, "r.sock").expect_err("it is taken").to_string();
        assert!(refused.contains(&format!("process {} (", std::process::id())), "{refused}");
        Lock::take(&folder, "other.sock").expect("another place");
        drop(lock);
        Lock::take(&folder, "r.sock").expect("it is free again");
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
