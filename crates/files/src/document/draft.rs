//! A file that appears whole or not at all: the only way in which our files are created.
//!
//! It is written without a name where the file system can do that (`O_TMPFILE`), so that nothing is
//! left even by a kill that cannot be caught, and under a hidden name elsewhere, which goes when the draft is
//! dropped. Hidden names are random and made with `O_EXCL` and `O_NOFOLLOW`: no file or link can be placed in
//! their way. [`Draft::publish`] gives the file its name in one step. It replaces the file that was there
//! when the draft was begun and no other: a file that another process puts there meanwhile is kept.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, fchmod, linkat, openat, renameat, renameat_with,
    unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::entry::{Entry, leads_to, look};
use super::results::marker::Marker;

/// Permissions of a new file, less the umask.
const MODE: u32 = 0o666;
/// Where the process's open files are as links.
const OPEN_FILES: &str = "/proc/self/fd";
/// How many random names are tried.
const NAMES_TRIED: usize = 8;

/// A file being written that has no name yet.
#[derive(Debug)]
pub struct Draft {
    file: File,
    directory: Arc<OwnedFd>,
    name: OsString,
    /// Its name in errors.
    shown: String,
    /// The entry that it replaces.
    replaces: Option<Entry>,
    /// The hidden name, while the file has one.
    hidden: Option<OsString>,
    /// The list of files in its directory of results.
    marker: Option<Arc<Marker>>,
}

impl Draft {
    /// Begins the file that will be `path`, replacing the entry that was found there before. A symbolic link
    /// stays, and its target is replaced; the new file takes over the permissions of the old one.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub(super) fn in_place_of(path: &Path, replaces: Option<Entry>) -> Result<Draft> {
        let (directory, name) = directory_and_name(&followed(path)?)?;
        Draft::begin(Arc::new(directory), &name, path.display().to_string(), replaces, None)
    }

    /// Begins a file of a directory that keeps a list of its files; it replaces `replaces`.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub(super) fn listed(
        directory: Arc<OwnedFd>,
        name: &str,
        shown: String,
        replaces: Option<Entry>,
        marker: Arc<Marker>,
    ) -> Result<Draft> {
        Draft::begin(directory, name.as_ref(), shown, replaces, Some(marker))
    }

    fn begin(
        directory: Arc<OwnedFd>,
        name: &OsStr,
        shown: String,
        replaces: Option<Entry>,
        marker: Option<Arc<Marker>>,
    ) -> Result<Draft> {
        // A file without a name gets one through the process's list of open files.
        let nameless = Path::new(OPEN_FILES).is_dir().then(|| open_nameless(&*directory)).flatten();
        let made = match nameless {
            Some(file) => Ok((file, None)),
            None => open_hidden(&*directory, marker.as_deref())
                .map(|(file, hidden)| (file, Some(hidden))),
        };
        let (file, hidden) = made.with_context(|| format!("{shown}: cannot be written"))?;
        let draft =
            Draft { file, directory, name: name.to_owned(), shown, replaces, hidden, marker };
        if let Some(there) = &draft.replaces {
            let kept = fchmod(&draft.file, Mode::from_raw_mode(there.mode & 0o777));
            kept.with_context(|| format!("{}: cannot be given its mode", draft.shown))?;
        }
        Ok(draft)
    }

    /// The same draft, readable only by its owner: for a secret.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn for_owner(self) -> Result<Draft> {
        let closed = fchmod(&self.file, Mode::from_raw_mode(0o600));
        closed.with_context(|| format!("{}: cannot be closed to others", self.shown))?;
        Ok(self)
    }

    /// What errors call the file.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Flushes the file to the disk.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|error| anyhow!("cannot write {}: {error}", self.shown))
    }

    /// Flushes the file to the disk, and then gives it its name: the file that it replaces is kept until
    /// then.
    ///
    /// # Errors
    /// When a file of that name has appeared or changed meanwhile, or the disk or the file system refuses.
    pub fn publish(mut self) -> Result<()> {
        self.sync()?;
        if let Some(marker) = &self.marker {
            marker.finished(&self.name.to_string_lossy(), &self.file)?;
        }
        self.take_name()
    }

    /// Gives the file its name before it is written, and returns it.
    ///
    /// # Errors
    /// As [`Draft::publish`].
    pub(super) fn show(mut self) -> Result<File> {
        if let Some(marker) = &self.marker {
            marker.unfinished(&self.name.to_string_lossy(), &self.file)?;
        }
        self.take_name()?;
        self.file.try_clone().with_context(|| format!("{}: cannot be written", self.shown))
    }

    /// Whether there is a file that it may replace.
    ///
    /// # Errors
    /// When a file of its name has appeared or changed meanwhile, or cannot be examined.
    pub(super) fn has_place(&self) -> Result<bool> {
        let shown = &self.shown;
        let there = look(&*self.directory, &self.name);
        let there = there.with_context(|| format!("{shown}: cannot be named"))?;
        let replaced = self.replaces.map(|entry| entry.mark);
        match (replaced, there.map(|entry| entry.mark)) {
            (None, Some(_)) => {
                bail!("{shown}: has appeared meanwhile; give --force to replace it")
            }
            (Some(before), Some(now)) if before != now => {
                bail!("{shown}: was changed meanwhile; it is left alone")
            }
            (_, there) => Ok(there.is_some()),
        }
    }

    fn take_name(&mut self) -> Result<()> {
        let named = if self.has_place()? { self.name_over() } else { self.name_anew() };
        if named.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            bail!("{}: has appeared meanwhile; give --force to replace it", self.shown);
        }
        named.with_context(|| format!("{}: cannot be named", self.shown))
    }

    /// Takes a free name; fails if the name is taken by now.
    fn name_anew(&mut self) -> io::Result<()> {
        let directory = &*self.directory;
        match &self.hidden {
            Some(hidden) => rename_anew(directory, hidden, directory, &self.name)?,
            None => link(&self.file, directory, &self.name)?,
        }
        self.hidden = None;
        Ok(())
    }

    /// Replaces the file that is there.
    fn name_over(&mut self) -> io::Result<()> {
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => link_hidden(&self.file, &*self.directory, self.marker.as_deref())?,
        };
        let hidden = self.hidden.insert(hidden);
        renameat(&*self.directory, &*hidden, &*self.directory, &self.name)?;
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
        let Some(hidden) = &self.hidden else { return };
        // An error here cannot be reported any more, and its cause has been reported already.
        if leads_to(&*self.directory, hidden, &self.file).is_ok_and(|ours| ours) {
            let _ = unlinkat(&*self.directory, hidden, AtFlags::empty());
        }
    }
}

/// Writes `bytes` into a draft, all that it will hold.
pub(super) fn fill(mut draft: Draft, bytes: &[u8]) -> Result<Draft> {
    match draft.write_all(bytes) {
        Ok(()) => Ok(draft),
        Err(error) => Err(anyhow!("cannot write {}: {error}", draft.shown)),
    }
}

/// A file in `directory` to write to and to read from, which has no name and is gone when it is closed.
///
/// # Errors
/// When the directory cannot be written.
pub fn nameless(directory: &Path) -> Result<File> {
    let shown = || format!("{}: cannot be written", directory.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, directory, flags, Mode::empty()).with_context(shown)?;
    if let Some(file) = open_nameless(&directory) {
        return Ok(file);
    }
    let (file, hidden) = open_hidden(&directory, None).with_context(shown)?;
    unlinkat(&directory, hidden, AtFlags::empty()).with_context(shown)?;
    Ok(file)
}

/// Renames a file or directory to a free name; fails if the name is taken by now.
///
/// # Errors
/// Errors of the file system, above all that the name is taken.
pub(super) fn rename_anew(
    from: impl AsFd,
    name: &OsStr,
    to: impl AsFd,
    new: &OsStr,
) -> io::Result<()> {
    match renameat_with(&from, name, &to, new, RenameFlags::NOREPLACE) {
        // Not every file system can do it in one step.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match look(&to, new)? {
            Some(_) => Err(Errno::EXIST.into()),
            None => Ok(renameat(from, name, to, new)?),
        },
        done => Ok(done?),
    }
}

/// A file without a name, where the file system can do that.
fn open_nameless(directory: impl AsFd) -> Option<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    openat(directory, ".", flags, Mode::from_raw_mode(MODE)).ok().map(File::from)
}

/// A new file under an unpredictable name, never an existing one.
fn open_hidden(directory: impl AsFd, marker: Option<&Marker>) -> io::Result<(File, OsString)> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    with_hidden_name(marker, |name| {
        openat(&directory, name, flags, Mode::from_raw_mode(MODE)).map(File::from)
    })
}

/// Gives the nameless `file` an unpredictable name.
fn link_hidden(file: &File, directory: impl AsFd, marker: Option<&Marker>) -> io::Result<OsString> {
    let linked = with_hidden_name(marker, |name| link(file, &directory, name));
    Ok(linked?.1)
}

fn with_hidden_name<T>(
    marker: Option<&Marker>,
    mut make: impl FnMut(&OsStr) -> Result<T, Errno>,
) -> io::Result<(T, OsString)> {
    for _ in 0..NAMES_TRIED {
        let name = hidden_name()?;
        if let Some(marker) = marker {
            marker.temporary(&name)?;
        }
        match make(name.as_ref()) {
            Err(Errno::EXIST) => {}
            made => return Ok((made?, name.into())),
        }
    }
    Err(Errno::EXIST.into())
}

/// A name of 64 random bits.
fn hidden_name() -> io::Result<String> {
    let mut bits = [0; 8];
    let got = getrandom(&mut bits, GetRandomFlags::empty())?;
    assert_eq!(got, bits.len(), "so few are always given at once (random(7))");
    Ok(format!(".nilometer-{:016x}.tmp", u64::from_ne_bytes(bits)))
}

/// Gives the nameless `file` the name `to`.
fn link(file: &File, directory: impl AsFd, to: &OsStr) -> Result<(), Errno> {
    let from = format!("{OPEN_FILES}/{}", file.as_raw_fd());
    linkat(CWD, from, directory, to, AtFlags::SYMLINK_FOLLOW)
}

/// The file that `path` leads to, if it is a symbolic link.
pub(super) fn followed(path: &Path) -> Result<PathBuf> {
    match path.symlink_metadata() {
        Ok(about) if about.is_symlink() => path
            .canonicalize()
            .with_context(|| format!("{}: is a symbolic link that leads nowhere", path.display())),
        _ => Ok(path.to_owned()),
    }
}

/// The directory of a file, opened, and the file's name in it.
pub(super) fn directory_and_name(path: &Path) -> Result<(OwnedFd, OsString)> {
    let shown = path.display();
    let Some(name) = path.file_name() else { bail!("{shown}: is not the name of a file") };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        bail!("{shown}: there is no directory {}; make it first", folder.display());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, folder, flags, Mode::empty());
    let directory = directory.with_context(|| format!("{shown}: cannot be written"))?;
    Ok((directory, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::document::guard_output;

    /// Begins `path` as commands do; any existing file counts as one of ours.
    fn begin(path: &Path, force: bool) -> Result<Draft> {
        guard_output(path, &[], force, b"")?.draft()
    }

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
        let mut dropped = begin(&path, false).unwrap();
        dropped.write_all(b"half").unwrap();
        drop(dropped);
        assert_eq!(names(&room), Vec::<String>::new());

        let mut first = begin(&path, false).unwrap();
        let late = begin(&path, false).unwrap();
        first.write_all(b"whole").unwrap();
        assert!(!path.exists());
        first.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert!(late.publish().is_err(), "the name was taken meanwhile");
        assert!(begin(&path, false).is_err(), "an existing file is not replaced unasked");
        assert_eq!(names(&room), ["out"]);

        let mut forced = begin(&path, true).unwrap();
        forced.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        forced.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(&room), ["out"]);
        fs::remove_dir_all(&room).unwrap();
    }

    #[test]
    fn impossible_output_places_are_refused() {
        let room = room("draft-refused");
        symlink("nowhere", room.join("dangling")).unwrap();
        let places =
            [room.join("no/such/out"), room.clone(), "/dev/null".into(), room.join("dangling")];
        for path in places {
            let refused = begin(&path, true).expect_err("not a place for a file").to_string();
            assert!(!refused.contains('\n'), "{refused}");
        }
        fs::remove_dir_all(&room).unwrap();
    }

    #[test]
    fn a_file_created_meanwhile_under_the_name_is_kept() {
        let room = room("draft-meanwhile");
        let path = room.join("out");
        let draft = begin(&path, true).unwrap();
        fs::write(&path, "his").unwrap();
        assert!(draft.publish().unwrap_err().to_string().contains("appeared meanwhile"));
        let draft = begin(&path, true).unwrap();
        fs::write(&path, "his again").unwrap();
        assert!(draft.publish().unwrap_err().to_string().contains("changed meanwhile"));
        assert_eq!(fs::read(&path).unwrap(), b"his again");
        assert_eq!(names(&room), ["out"]);
        fs::remove_dir_all(&room).unwrap();
    }

    #[test]
    fn links_stay_and_so_do_permissions() {
        let room = room("draft-links");
        fs::write(room.join("real"), "old").unwrap();
        fs::set_permissions(room.join("real"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("real", room.join("link")).unwrap();
        fill(begin(&room.join("link"), true).unwrap(), b"new").unwrap().publish().unwrap();
        assert_eq!(fs::read_link(room.join("link")).unwrap(), Path::new("real"));
        assert_eq!(fs::read(room.join("real")).unwrap(), b"new");
        let mode = |name: &str| fs::metadata(room.join(name)).unwrap().permissions().mode();
        assert_eq!(mode("real") & 0o777, 0o640);
        // A new file has the permissions that any other program would give it.
        fs::write(room.join("usual"), "").unwrap();
        begin(&room.join("ours"), true).unwrap().publish().unwrap();
        assert_eq!(mode("ours"), mode("usual"));
        fs::remove_dir_all(&room).unwrap();
    }

    /// As on a file system without `O_TMPFILE`: names are hidden, random and never followed.
    #[test]
    fn hidden_names_are_unpredictable() {
        let room = room("draft-hidden");
        let directory = File::open(&room).unwrap();
        let made: Vec<_> = (0..50).map(|_| open_hidden(&directory, None).unwrap().1).collect();
        let mut distinct = made.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 50);
        fs::write(room.join("victim"), "precious").unwrap();
        let (mut tried, mut requested) = (0, Vec::new());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let made = with_hidden_name(None, |name| {
            // An attacker who guesses the first name puts a link there.
            if tried == 0 {
                symlink("victim", room.join(name)).unwrap();
            }
            tried += 1;
            requested.push(name.to_owned());
            openat(&directory, name, flags, Mode::from_raw_mode(MODE)).map(File::from)
        });
        made.unwrap().0.write_all(b"ours").unwrap();
        assert_eq!((tried, fs::read(room.join("victim")).unwrap()), (2, b"precious".to_vec()));
        assert_ne!(requested[0], requested[1]);
        fs::remove_dir_all(&room).unwrap();
    }
}
