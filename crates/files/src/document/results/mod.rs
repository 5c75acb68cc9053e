//! Directories of results: `DIR.partial` until the run is done, `DIR` then.
//!
//! Everything is written below `DIR.partial` as soon as it is known, so that a run that is killed leaves its
//! results so far. A run that was interrupted keeps them ([`Directory::keep`]), and so does one that failed
//! after it had measured; if a run failed before, its files are deleted when the directory is dropped. An
//! existing `DIR` is refused unless it is empty or force is given; then it is replaced only when the new
//! results are complete.
//!
//! Only our own files are deleted. A directory keeps a list of its files (`marker`), and is replaced only if
//! every entry agrees with it (`judged`); files that others add meanwhile are kept. While a process writes,
//! it holds a lock on the open directory (`place`), which ends with it.

mod judged;
pub(super) mod marker;
mod place;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{CWD, Mode, OFlags, fchmod, fsync, openat};
use serde::Serialize;

use self::judged::{foreign, named};
use self::marker::{Listing, Marker};
use self::place::{Before, LOOK, Lock, Place, lock, open_directory};
use super::draft::{Draft, fill};
use super::entry::look;
use super::json_text;

/// A directory of results being filled; our files in it are deleted when it is dropped, unless it was
/// finished or kept.
#[derive(Debug)]
pub struct Directory {
    place: Place,
    files: Arc<Files>,
    /// The `DIR` that was there when this one was made, which may be replaced.
    replaces: Option<Before>,
    is_settled: bool,
}

/// An open directory, locked, and its list.
#[derive(Debug)]
struct Files {
    directory: Arc<OwnedFd>,
    marker: Arc<Marker>,
    path: PathBuf,
}

/// A file of the results, to be made.
#[derive(Clone, Debug)]
pub struct ResultFile {
    files: Arc<Files>,
    name: String,
}

impl ResultFile {
    /// Its path until the results are done.
    pub fn path(&self) -> PathBuf {
        self.files.path.join(&self.name)
    }

    /// Begins it as a file that appears when it is complete.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn draft(&self) -> Result<Draft> {
        let shown = self.path().display().to_string();
        let (directory, marker) = (self.files.directory.clone(), self.files.marker.clone());
        Draft::listed(directory, &self.name, shown, None, marker)
    }

    /// Makes it as a file that is visible while it is being written.
    ///
    /// # Errors
    /// When it cannot be written, or its name is taken.
    pub fn create(&self) -> Result<File> {
        self.draft()?.show()
    }

    /// Writes it whole.
    ///
    /// # Errors
    /// When it cannot be written, or its name is taken.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        fill(self.draft()?, bytes)?.publish()
    }

    /// Writes a document as JSON, indented.
    ///
    /// # Errors
    /// As [`ResultFile::write`].
    pub fn write_json<T: Serialize>(&self, document: &T) -> Result<()> {
        self.write(json_text(document)?.as_bytes())
    }
}

impl Directory {
    /// Whether results could go to `out`; changes nothing.
    ///
    /// # Errors
    /// The reason in words: it exists, holds foreign entries, or cannot be made there.
    pub fn check(out: &Path, force: bool) -> Result<()> {
        let place = Place::of(out)?;
        place.check_free()?;
        place.check_done(force)?;
        place.check_partial(force)
    }

    /// Makes `DIR.partial`, or takes over one left by an earlier run.
    ///
    /// # Errors
    /// As [`Directory::check`], and when another run writes there.
    pub fn create(out: &Path, force: bool) -> Result<Directory> {
        let place = Place::of(out)?;
        place.check_free()?;
        let before = place.check_done(force)?;
        let directory = place.claim(force)?;
        match Directory::begin(&place, &directory, before, force) {
            Ok((replaces, marker)) => {
                let (path, marker) = (place.partial().to_owned(), Arc::new(marker));
                let files = Arc::new(Files { directory: Arc::new(directory), marker, path });
                Ok(Directory { place, files, replaces, is_settled: false })
            }
            Err(error) => {
                // The directory that could not be begun is removed; the cause is reported.
                let _ = place.remove_partial(&directory);
                Err(error)
            }
        }
    }

    /// Begins to fill a directory that is locked; `before` is the state of `DIR` before that.
    fn begin(
        place: &Place,
        directory: &OwnedFd,
        before: Option<Before>,
        force: bool,
    ) -> Result<(Option<Before>, Marker)> {
        let is_still = place.is_still(before.as_ref())?;
        let replaces = if is_still { before } else { place.check_done(force)? };
        if let Some(there) = &replaces {
            let mode = fchmod(directory, Mode::from_raw_mode(there.entry.mode));
            mode.with_context(|| format!("cannot use {}", place.partial().display()))?;
        }
        Ok((replaces, Marker::begin(directory, place.partial())?))
    }

    /// A file of this name, to be made.
    pub fn file(&self, name: &str) -> ResultFile {
        ResultFile { files: self.files.clone(), name: name.to_owned() }
    }

    /// Where the results will be.
    pub fn done(&self) -> &Path {
        self.place.done()
    }

    /// Where the results are until then.
    pub fn partial(&self) -> &Path {
        self.place.partial()
    }

    /// Replaces `DIR`. The old directory is deleted only after the new results have its name.
    ///
    /// # Errors
    /// Errors of the file system, and when `DIR` by now holds anything that is not ours; then it is
    /// unchanged, and the results stay in `DIR.partial`.
    pub fn finish(mut self) -> Result<PathBuf> {
        self.is_settled = true;
        let (place, directory) = (&self.place, &self.files.directory);
        let swapped = self.settle().and_then(|()| place.swap(directory, self.replaces.as_ref()));
        let replaced = match swapped {
            Ok(replaced) => replaced,
            Err(error) => {
                bail!("{error:#}; the results are kept in {}", place.partial().display())
            }
        };
        if let Some(replaced) = replaced {
            place.delete_replaced(&replaced)?;
        }
        Ok(place.done().to_owned())
    }

    /// Keeps the results of an incomplete run under the name `DIR.partial`, which is returned.
    pub fn keep(mut self) -> PathBuf {
        self.is_settled = true;
        // Files that the list then lacks are recognised by inodes, as after a kill.
        let _ = self.settle();
        self.partial().to_owned()
    }

    /// As [`Directory::keep`] after an error, to which a note is added, if the file `measured` is there:
    /// measurements are worth more than what failed afterwards. If it is not there, everything is deleted.
    pub fn keep_after(self, error: anyhow::Error, measured: &str) -> anyhow::Error {
        if !self.file(measured).path().exists() {
            return error;
        }
        anyhow!("{error:#}; what was measured is kept in {}", self.keep().display())
    }

    /// Lists unfinished files with their present content, and flushes everything to the disk.
    fn settle(&self) -> Result<()> {
        let Files { directory, marker, path } = &*self.files;
        let listing = Listing::read(&**directory, path)?.unwrap_or_default();
        for name in listing.unfinished() {
            let shown = || format!("cannot read {}", path.join(name).display());
            if look(&**directory, name).with_context(shown)?.is_some_and(|entry| entry.is_plain()) {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let opened = openat(&**directory, name, flags, Mode::empty());
                let file = File::from(opened.with_context(shown)?);
                file.sync_all()
                    .with_context(|| format!("cannot write {}", path.join(name).display()))?;
                marker.finished(name, &file)?;
            }
        }
        marker.sync()?;
        fsync(&**directory).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        // The cause has been reported already; only what stays is reported here.
        let partial = self.partial().display();
        match self.place.empty(&self.files.directory) {
            Ok(left) if left.is_empty() => {
                let _ = self.place.remove_partial(&self.files.directory);
            }
            Ok(left) => say!("{partial} stays: it holds {}, which is no result", named(&left)),
            Err(error) => say!("{partial} stays: {error:#}"),
        }
    }
}

/// Rewrites a file of existing results, and adds its line to their list. False if they have no list, as
/// results of earlier versions.
///
/// # Errors
/// When another run writes there, the file is not as it was written, or cannot be written.
pub fn redraw(dir: &Path, name: &str, bytes: &[u8]) -> Result<bool> {
    let path = std::path::absolute(dir)
        .with_context(|| format!("cannot use {} as a directory", dir.display()))?;
    let directory = open_directory(CWD, dir.as_os_str(), &path, OFlags::empty())?;
    lock(&directory, &path, Lock::Whole, LOOK)?;
    let Some(listing) = Listing::read(&directory, &path)? else { return Ok(false) };
    let marker = Arc::new(Marker::resume(&directory, &path)?);
    let shown = dir.join(name).display().to_string();
    let unread = || format!("cannot write {shown}");
    let there = look(&directory, name).with_context(unread)?;
    let is_foreign = match &there {
        Some(entry) => {
            foreign(&directory, name.as_ref(), entry, &listing).with_context(unread)?.is_some()
        }
        None => false,
    };
    if is_foreign {
        bail!("{shown} is not as it was written; it is left alone, choose another file with --out");
    }
    let draft = Draft::listed(Arc::new(directory), name, shown, there, marker)?;
    fill(draft, bytes)?.publish()?;
    Ok(true)
}
