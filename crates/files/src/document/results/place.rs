//! The place of a directory of results: its two names, its lock, and the step from one name to the
//! other.
//!
//! The lock is on the open directory itself (flock(2)), so that it stays with the directory when that is
//! renamed, and ends with the process however it ends. The holder checks again that the name still leads
//! to the locked directory.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::{
    Access, AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, accessat, flock, fsync,
    mkdirat, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::judged::{Foreign, Judged, appeared, delete, judge, named, names};
use super::marker::{Listing, MARKER_FILE};
use crate::document::draft::rename_anew;
use crate::document::entry::{Entry, leads_to, look};

/// How long to wait for a lock at first: other processes hold it for a moment to look.
pub(super) const LOOK: Duration = Duration::from_millis(300);
/// How long to wait at the end, when results wait for their name: other processes may be reading the
/// whole old directory.
const LONG_LOOK: Duration = Duration::from_secs(30);
/// The pause between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// How often a directory is made again if it was renamed meanwhile.
const CLAIM_TRIES: u32 = 16;
/// Files of results, by which those of versions without a list are recognised.
const RESULTS: [&str; 4] = ["model.json", "result.json", "laws.csv", "laws.parquet"];

/// What a lock is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lock {
    /// To look, shared with other processes.
    Shared,
    /// To write, exclusively.
    Whole,
}

/// The names of a directory of results.
#[derive(Debug)]
pub(super) struct Place {
    parent: OwnedFd,
    done: PathBuf,
    partial: PathBuf,
}

/// The directory that has the name of new results, and its entries.
#[derive(Debug)]
pub(super) struct Before {
    pub entry: Entry,
    judged: Judged,
}

/// The directory that had the name of new results, open, and its entries; it is called `DIR.partial` by
/// now.
#[derive(Debug)]
pub(super) struct Replaced {
    directory: OwnedFd,
    listing: Listing,
    judged: Judged,
}

impl Place {
    /// The place that `out` names, or its target if it is a symbolic link.
    ///
    /// # Errors
    /// When it is not a name, leads nowhere, or its parent is missing or cannot be written.
    pub fn of(out: &Path) -> Result<Place> {
        let mut done = std::path::absolute(out)
            .with_context(|| format!("cannot use {} as a directory", out.display()))?;
        if done.symlink_metadata().is_ok_and(|about| about.is_symlink()) {
            done = done.canonicalize().map_err(|_| {
                anyhow!(
                    "{} is a symbolic link that leads nowhere; choose another --out",
                    out.display()
                )
            })?;
        }
        let shown = done.display();
        let Some(name) = done.file_name() else {
            bail!("{shown} is not a name for a directory of results")
        };
        let mut partial = name.to_owned();
        partial.push(".partial");
        let partial = done.with_file_name(partial);
        let parent = done.parent().unwrap_or(Path::new("/"));
        if !parent.is_dir() {
            bail!("cannot make {shown}: {} does not exist; make it first", parent.display());
        }
        let unusable = || format!("cannot make {shown}");
        let parent = open_directory(CWD, parent.as_os_str(), parent, OFlags::empty())?;
        let access = Access::WRITE_OK | Access::EXEC_OK;
        accessat(&parent, ".", access, AtFlags::EACCESS).with_context(unusable)?;
        look(&parent, name_of(&partial)).with_context(unusable)?;
        Ok(Place { parent, done, partial })
    }

    /// Where the results will be.
    pub fn done(&self) -> &Path {
        &self.done
    }

    /// Where the results are until they are done.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Checks that no process writes to `DIR.partial`.
    pub fn check_free(&self) -> Result<()> {
        match self.look(&self.partial)? {
            Some(entry) if entry.is_directory() => match self.open(&self.partial) {
                Ok(directory) => lock(&directory, &self.partial, Lock::Shared, LOOK),
                // If it cannot be opened, or is gone, later steps report that where it matters.
                Err(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Whether `DIR` is still the same directory, or still missing.
    pub fn is_still(&self, before: Option<&Before>) -> Result<bool> {
        let inode = |entry: Entry| entry.mark.inode;
        Ok(self.look(&self.done)?.map(inode) == before.map(|before| inode(before.entry)))
    }

    /// Checks that `DIR` may be made, or the existing one replaced, which is then returned.
    pub fn check_done(&self, force: bool) -> Result<Option<Before>> {
        let path = &self.done;
        let Some(entry) = self.look(path)? else { return Ok(None) };
        let shown = path.display();
        ensure!(entry.is_directory(), "{shown} is not a directory");
        if entry.is_mount {
            bail!(
                "{shown} is a place where something is mounted, which cannot be replaced; choose a directory in it"
            );
        }
        Ok(Some(Before { entry, judged: self.check_replaceable(path, force)? }))
    }

    /// Checks that `DIR.partial` may be made, or the existing one taken over.
    pub fn check_partial(&self, force: bool) -> Result<()> {
        let path = &self.partial;
        match self.look(path)? {
            Some(entry) if entry.is_directory() => self.check_replaceable(path, force).map(drop),
            Some(_) => bail!("{} is not a directory", path.display()),
            None => Ok(()),
        }
    }

    fn check_replaceable(&self, path: &Path, force: bool) -> Result<Judged> {
        let shown = path.display();
        match self.open(path) {
            Ok(directory) => {
                lock(&directory, path, Lock::Shared, LOOK)?;
                ensure!(force || is_empty(&directory, path)?, already(path));
                let (_, judged) = whole_of_ours(&directory, path, &Judged::default())?;
                let access = Access::WRITE_OK | Access::EXEC_OK;
                let writable = accessat(&directory, ".", access, AtFlags::EACCESS);
                writable.with_context(|| format!("cannot replace {shown}"))?;
                Ok(judged)
            }
            Err(_) if !force => bail!(already(path)),
            Err(error) => Err(error),
        }
    }

    /// Makes `DIR.partial`, or empties the existing one, and locks it.
    ///
    /// # Errors
    /// When another run writes there, or it holds anything that is not ours.
    pub fn claim(&self, force: bool) -> Result<OwnedFd> {
        let path = &self.partial;
        for _ in 0..CLAIM_TRIES {
            match mkdirat(&self.parent, name_of(path), Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot make {}", path.display()));
                }
            }
            if self.look(path)?.is_none() {
                continue;
            }
            let directory = self.open(path)?;
            lock(&directory, path, Lock::Whole, LOOK)?;
            let shown = || format!("cannot use {}", path.display());
            if !leads_to(&self.parent, name_of(path), &directory).with_context(shown)? {
                continue;
            }
            ensure!(force || is_empty(&directory, path)?, already(path));
            let (listing, judged) = whole_of_ours(&directory, path, &Judged::default())?;
            let left = delete(&directory, path, &listing, &judged)?;
            ensure!(left.is_empty(), "{} holds {} by now", path.display(), named(&left));
            return Ok(directory);
        }
        bail!("{} is being made and renamed by others", path.display())
    }

    /// Deletes our files in `DIR.partial`, which is open; returns what is left.
    ///
    /// # Errors
    /// What the file system refuses.
    pub fn empty(&self, directory: &OwnedFd) -> Result<Vec<Foreign>> {
        let listing = Listing::read(directory, &self.partial)?.unwrap_or_default();
        let judged = judge(directory, &self.partial, &listing, &Judged::default())?;
        delete(directory, &self.partial, &listing, &judged)
    }

    /// Removes `DIR.partial`, which is open and empty.
    ///
    /// # Errors
    /// When it holds anything.
    pub fn remove_partial(&self, directory: &OwnedFd) -> Result<()> {
        let shown = || format!("cannot remove {}", self.partial.display());
        let name = name_of(&self.partial);
        if leads_to(&self.parent, name, directory).with_context(shown)? {
            unlinkat(&self.parent, name, AtFlags::REMOVEDIR).with_context(shown)?;
        }
        Ok(())
    }

    /// Gives `DIR.partial`, which is open as `new`, the name `DIR`. The directory `replaces`, which had
    /// that name, is then called `DIR.partial` and returned.
    ///
    /// # Errors
    /// Errors of the file system, and when `DIR` is another directory than before or holds anything that
    /// is not ours; the names are then unchanged.
    pub fn swap(&self, new: &OwnedFd, replaces: Option<&Before>) -> Result<Option<Replaced>> {
        let (done, partial) = (&self.done, &self.partial);
        let shown = || format!("cannot name the results {}", done.display());
        let is_there = leads_to(&self.parent, name_of(partial), new).with_context(shown)?;
        ensure!(is_there, "{} was moved while the run went on", partial.display());
        let Some(there) = self.look(done)? else {
            let named = rename_anew(&self.parent, name_of(partial), &self.parent, name_of(done));
            return named.map(|()| None).with_context(shown);
        };
        let same = replaces.filter(|before| before.entry.mark.inode == there.mark.inode);
        let Some(before) = same else {
            bail!("{} was made while the run went on", done.display());
        };
        let directory = self.open(done)?;
        lock(&directory, done, Lock::Whole, LONG_LOOK)?;
        let (listing, judged) = whole_of_ours(&directory, done, &before.judged)?;
        self.exchange().with_context(shown)?;
        let replaced = Replaced { directory, listing, judged };
        let is_it = leads_to(&self.parent, name_of(partial), &replaced.directory);
        let late = appeared(&replaced.directory, partial, &replaced.judged);
        match (is_it, late) {
            (Ok(true), Ok(late)) if late.is_empty() => Ok(Some(replaced)),
            (is_it, late) => {
                self.exchange().with_context(shown)?;
                let (is_it, late) = (is_it.with_context(shown)?, late?);
                ensure!(is_it, "{} was exchanged while the run ended", done.display());
                bail!("{} holds {} by now", done.display(), named(&late))
            }
        }
    }

    /// Exchanges the names `DIR.partial` and `DIR`.
    fn exchange(&self) -> io::Result<()> {
        let (parent, [done, partial]) =
            (&self.parent, [&self.done, &self.partial].map(|path| name_of(path)));
        match renameat_with(parent, partial, parent, done, RenameFlags::EXCHANGE) {
            // Not every file system can do it in one step.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => self.exchange_by_turns(),
            done => Ok(done?),
        }
    }

    /// As [`Place::exchange`], in three steps, each of which leaves both directories under some name.
    fn exchange_by_turns(&self) -> io::Result<()> {
        let (parent, [done, partial]) =
            (&self.parent, [&self.done, &self.partial].map(|path| name_of(path)));
        let mut aside = done.to_owned();
        aside.push(".replaced");
        rename_anew(parent, done, parent, &aside)?;
        let second = rename_anew(parent, partial, parent, done)
            .and_then(|()| rename_anew(parent, &aside, parent, partial));
        if second.is_err() {
            // Restores the name; the cause is reported.
            let _ = rename_anew(parent, &aside, parent, done);
        }
        second
    }

    /// Deletes the directory that new results replaced.
    ///
    /// # Errors
    /// When something in it is not ours by now, which stays under the reported name.
    pub fn delete_replaced(&self, replaced: &Replaced) -> Result<()> {
        let Replaced { directory, listing, judged } = replaced;
        let place = || {
            let [done, partial] = [&self.done, &self.partial].map(|path| path.display());
            format!("the results are in {done}, and what was there before is in {partial}")
        };
        // The new names are flushed first: after a crash of the machine there are the old results or the
        // new ones.
        fsync(&self.parent).with_context(place)?;
        let left = delete(directory, &self.partial, listing, judged).with_context(place)?;
        if !left.is_empty() {
            bail!("{}: somebody put {} into it", place(), named(&left));
        }
        self.remove_partial(directory).with_context(place)
    }

    fn look(&self, path: &Path) -> Result<Option<Entry>> {
        look(&self.parent, name_of(path)).with_context(|| format!("cannot use {}", path.display()))
    }

    fn open(&self, path: &Path) -> Result<OwnedFd> {
        open_directory(&self.parent, name_of(path), path, OFlags::NOFOLLOW)
    }
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().expect("a directory of results has a name")
}

fn already(path: &Path) -> String {
    format!("{} exists already; choose another --out or add --force", path.display())
}

/// Opens a directory, to be called `path`.
///
/// # Errors
/// When it is not a directory or cannot be opened.
pub(super) fn open_directory(
    parent: impl AsFd,
    name: &OsStr,
    path: &Path,
    how: OFlags,
) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | how;
    match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => bail!("{} is not a directory", path.display()),
        opened => opened.with_context(|| format!("cannot open {}", path.display())),
    }
}

/// Locks an open directory until it is closed, at the latest when the process ends.
///
/// # Errors
/// When another process holds the lock for as long as `patience`.
pub(super) fn lock(directory: &OwnedFd, path: &Path, how: Lock, patience: Duration) -> Result<()> {
    let how = match how {
        Lock::Shared => FlockOperation::NonBlockingLockShared,
        Lock::Whole => FlockOperation::NonBlockingLockExclusive,
    };
    let since = Instant::now();
    while since.elapsed() < patience {
        match flock(directory, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => sleep(LOCK_PAUSE),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
    let listing = Listing::read(directory, path).ok().flatten();
    let who = match listing.and_then(|listing| listing.process) {
        Some(process) => format!("another run (process {process})"),
        None => "another run".to_owned(),
    };
    bail!("{who} is writing to {}; choose another --out or wait until it ends", path.display())
}

/// Whether a directory holds nothing, or only a list without files.
fn is_empty(directory: &OwnedFd, path: &Path) -> Result<bool> {
    let shown = || format!("cannot look into {}", path.display());
    if !names(directory).with_context(shown)?.is_empty() {
        return Ok(false);
    }
    let marker = look(directory, MARKER_FILE).with_context(shown)?;
    Ok(marker.is_none() || Listing::read(directory, path).is_ok())
}

/// The entries of a directory, if all of them are ours; `before` is what it held at the last check.
///
/// # Errors
/// What is not ours, or that it has no list.
fn whole_of_ours(directory: &OwnedFd, path: &Path, before: &Judged) -> Result<(Listing, Judged)> {
    let shown = path.display();
    let listing = Listing::read(directory, path)
        .with_context(|| format!("{shown} is left alone, since its contents cannot be read"))?;
    if let Some(listing) = listing {
        let judged = judge(directory, path, &listing, before)?;
        if judged.foreign.is_empty() {
            return Ok((listing, judged));
        }
        bail!(
            "{shown} holds files that no run wrote: {}; it is left alone, choose another --out",
            named(&judged.foreign)
        );
    }
    let judged = judge(directory, path, &Listing::default(), &Judged::default())?;
    let seems_old = RESULTS.iter().any(|name| judged.foreign.iter().any(|one| one.is_called(name)));
    if judged.is_empty() {
        return Ok((Listing::default(), judged));
    }
    if seems_old {
        bail!(
            "{shown} has no list of its files ({MARKER_FILE}), like results of earlier versions; it is \
             left alone, remove it yourself or choose another --out"
        );
    }
    bail!(
        "{shown} holds other things than results: {}; it is left alone, choose another --out",
        named(&judged.foreign)
    )
}
