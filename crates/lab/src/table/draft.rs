//! A file that appears whole or not at all.
//!
//! It is written without a name where the file system can do that (`O_TMPFILE`), so that nothing is
//! left even by a kill that cannot be caught, and under a hidden temporary name elsewhere, removed
//! when the draft is dropped. [`Draft::publish`] gives it its name in one step.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A file being written that has no name yet.
#[derive(Debug)]
pub struct Draft {
    file: File,
    path: PathBuf,
    force: bool,
    /// The hidden name, while the file has one.
    hidden: Option<PathBuf>,
}

impl Draft {
    /// Begins the file that will be `path`, in the same directory.
    ///
    /// # Errors
    /// When `path` exists and `force` is not given, is something else than a regular file, or lies
    /// in a directory that does not exist or cannot be written.
    pub fn new(path: &Path, force: bool) -> Result<Draft> {
        let name = path.display();
        let mut path = path.to_owned();
        if path.symlink_metadata().is_ok() {
            if !force {
                bail!("{name}: exists already; give --force to replace it");
            }
            path = path.canonicalize().with_context(|| format!("{name}: leads nowhere"))?;
            if !path.is_file() {
                bail!("{name}: is not a regular file; give another name");
            }
        }
        if path.file_name().is_none() {
            bail!("{name}: is not the name of a file");
        }
        let directory = directory_of(&path).to_owned();
        if !directory.is_dir() {
            bail!("{name}: there is no directory {}; make it first", directory.display());
        }
        let unnamed = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(&directory);
        if let Ok(file) = unnamed {
            return Ok(Draft { file, path, force, hidden: None });
        }
        let hidden = hidden_name(&path);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&hidden)
            .with_context(|| format!("{name}: cannot be written"))?;
        Ok(Draft { file, path, force, hidden: Some(hidden) })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// When a file of that name has appeared meanwhile, or the file system refuses.
    pub fn publish(mut self) -> Result<()> {
        let name = self.path.display().to_string();
        self.file.flush().with_context(|| format!("{name}: cannot be written"))?;
        if self.hidden.is_none() {
            let hidden = hidden_name(&self.path);
            link(&self.file, &hidden).with_context(|| format!("{name}: cannot be named"))?;
            self.hidden = Some(hidden);
        }
        if !self.force && self.path.symlink_metadata().is_ok() {
            bail!("{name}: has appeared meanwhile; give --force to replace it");
        }
        let hidden = self.hidden.as_ref().expect("the draft has a hidden name by now");
        fs::rename(hidden, &self.path).with_context(|| format!("{name}: cannot be named"))?;
        self.hidden = None;
        Ok(())
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // An error here has nobody left to be told to, and the cause was told already.
            let _ = fs::remove_file(hidden);
        }
    }
}

/// A file in `directory` to write to and to read from, which has no name and is gone when it is closed.
///
/// # Errors
/// When the directory cannot be written.
pub fn nameless(directory: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if let Ok(file) = options.clone().custom_flags(libc::O_TMPFILE).open(directory) {
        return Ok(file);
    }
    let path = directory.join(format!(".nilometer.{}.partial", std::process::id()));
    let file = options.create_new(true).open(&path);
    let file = file.with_context(|| format!("{}: cannot be written", path.display()))?;
    fs::remove_file(&path).with_context(|| format!("{}: cannot be removed", path.display()))?;
    Ok(file)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn hidden_name(path: &Path) -> PathBuf {
    let name = path.file_name().expect("a draft has a file name").to_string_lossy();
    directory_of(path).join(format!(".{name}.{}.partial", std::process::id()))
}

/// Gives the nameless `file` the name `to`.
fn link(file: &File, to: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(to.as_os_str().as_bytes())?;
    // SAFETY: both names are NUL-terminated and outlive the call, which keeps neither.
    let linked = unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    if linked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str) -> PathBuf {
        let room = std::env::temp_dir().join(format!("nilometer-{name}-{}", std::process::id()));
        fs::create_dir_all(&room).unwrap();
        room
    }

    fn names(room: &Path) -> Vec<String> {
        let entries = fs::read_dir(room).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn appears_whole_or_not_at_all() {
        let room = room("draft");
        let path = room.join("out");
        let mut dropped = Draft::new(&path, false).unwrap();
        dropped.write_all(b"half").unwrap();
        drop(dropped);
        assert_eq!(names(&room), Vec::<String>::new());

        let mut first = Draft::new(&path, false).unwrap();
        let late = Draft::new(&path, false).unwrap();
        first.write_all(b"whole").unwrap();
        assert!(!path.exists());
        first.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert!(late.publish().is_err(), "the name was taken meanwhile");
        assert!(Draft::new(&path, false).is_err(), "an existing file is not replaced unasked");
        assert_eq!(names(&room), ["out"]);

        let mut forced = Draft::new(&path, true).unwrap();
        forced.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        forced.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(&room), ["out"]);
        fs::remove_dir_all(&room).unwrap();
    }

    #[test]
    fn refuses_what_it_cannot_become() {
        let room = room("draft-refused");
        for path in [room.join("no/such/out"), room.clone(), PathBuf::from("/dev/null")] {
            let refused = Draft::new(&path, true).expect_err("not a place for a file").to_string();
            assert!(!refused.contains('\n'), "{refused}");
        }
        fs::remove_dir_all(&room).unwrap();
    }
}
