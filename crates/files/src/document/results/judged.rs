//! Which entries of a directory are the results that its list names, and their deletion, one by one.
//!
//! An entry is ours when the list names it and it is a plain file with the size and the digest in the list
//! or, if a run was killed while it was writing the file, with the same inode and any content: the intended
//! content is unknown then. All other entries are foreign, whatever their names. Only entries found to be
//! ours are deleted, by name in the open directory, after a second check.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat};

use super::marker::{Listed, Listing, MARKER_FILE, digest};
use crate::document::entry::{Entry, Mark, look};

/// How many foreign entries a refusal names.
const NAMED: usize = 3;

/// An entry that is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    name: OsString,
    /// What it is instead, where its name does not show that.
    why: Option<&'static str>,
}

impl Foreign {
    /// Whether this is its name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == *name
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.name.display())?;
        self.why.map_or(Ok(()), |why| write!(to, " ({why})"))
    }
}

/// The first of several foreign entries, as text.
pub(super) fn named(foreign: &[Foreign]) -> String {
    let mut words: Vec<String> = foreign.iter().take(NAMED).map(Foreign::to_string).collect();
    if foreign.len() > NAMED {
        words.push(format!("{} more", foreign.len() - NAMED));
    }
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => "nothing".to_owned(),
    }
}

/// The entries of a directory, divided into ours and foreign ones.
#[derive(Debug, Default)]
pub(super) struct Judged {
    ours: Vec<(OsString, Mark)>,
    /// The foreign entries, by name.
    pub foreign: Vec<Foreign>,
}

impl Judged {
    /// Whether this entry was found to be ours, and has not changed since.
    fn knows(&self, name: &OsStr, entry: &Entry) -> bool {
        entry.is_plain() && self.ours.iter().any(|(ours, mark)| ours == name && *mark == entry.mark)
    }

    /// Whether there is nothing but a list.
    pub fn is_empty(&self) -> bool {
        self.ours.is_empty() && self.foreign.is_empty()
    }
}

/// The names in an open directory except that of the list, sorted.
///
/// # Errors
/// When it cannot be read.
pub(super) fn names(directory: impl AsFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if ![&b"."[..], b"..", MARKER_FILE.as_bytes()].contains(&name) {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Divides the entries of a directory into ours and foreign ones. Entries that `before` knows and that have
/// not changed are not read again.
///
/// # Errors
/// When it cannot be read.
pub(super) fn judge(
    directory: impl AsFd,
    path: &Path,
    listing: &Listing,
    before: &Judged,
) -> Result<Judged> {
    let shown = || format!("cannot look into {}", path.display());
    let mut judged = Judged::default();
    for name in names(&directory).with_context(shown)? {
        let Some(entry) = look(&directory, &name).with_context(shown)? else { continue };
        let foreign = match before.knows(&name, &entry) {
            true => None,
            false => foreign(&directory, &name, &entry, listing).with_context(shown)?,
        };
        match foreign {
            Some(foreign) => judged.foreign.push(foreign),
            None => judged.ours.push((name, entry.mark)),
        }
    }
    Ok(judged)
}

/// Describes the entry `name` if it is not ours.
///
/// # Errors
/// When it cannot be read.
pub(super) fn foreign(
    directory: impl AsFd,
    name: &OsStr,
    entry: &Entry,
    listing: &Listing,
) -> io::Result<Option<Foreign>> {
    let foreign = |why| Ok(Some(Foreign { name: name.to_owned(), why }));
    match entry {
        _ if entry.is_mount => return foreign(Some("something is mounted there")),
        _ if entry.is_plain() => {}
        _ if entry.is_directory() => return foreign(Some("a directory")),
        _ if entry.kind.is_symlink() => return foreign(Some("a symbolic link")),
        _ => return foreign(Some("no regular file")),
    }
    let Some(text) = name.to_str() else { return foreign(None) };
    if listing.temporaries.contains(text) {
        return Ok(None);
    }
    let Some(listed) = listing.files.get(text) else { return foreign(None) };
    if listed.contains(&Listed::Unfinished(entry.mark.inode)) {
        return Ok(None);
    }
    let size = entry.mark.size;
    let may_be = |listed: &&Listed| matches!(listed, Listed::Finished { size_bytes, .. } if *size_bytes == size);
    if listed.iter().any(|listed| may_be(&listed)) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let (size_bytes, sha256) =
            digest(&File::from(openat(directory, name, flags, Mode::empty())?))?;
        if listed.contains(&Listed::Finished { size_bytes, sha256 }) {
            return Ok(None);
        }
    }
    foreign(Some("changed since it was written"))
}

/// The entries of a directory that were not there when it was judged, or have been replaced since.
///
/// # Errors
/// When it cannot be read.
pub(super) fn appeared(directory: impl AsFd, path: &Path, judged: &Judged) -> Result<Vec<Foreign>> {
    let shown = || format!("cannot look into {}", path.display());
    let mut appeared = Vec::new();
    for name in names(&directory).with_context(shown)? {
        let Some(entry) = look(&directory, &name).with_context(shown)? else { continue };
        if !judged.knows(&name, &entry) {
            appeared.push(Foreign { name, why: None });
        }
    }
    Ok(appeared)
}

/// Deletes the entries that were judged to be ours, and then the list; returns what is left.
///
/// # Errors
/// Errors of the file system; the list is then still there, so that the rest can be recognised as ours.
pub(super) fn delete(
    directory: impl AsFd,
    path: &Path,
    listing: &Listing,
    judged: &Judged,
) -> Result<Vec<Foreign>> {
    let shown = || format!("cannot delete the results in {}", path.display());
    for (name, mark) in &judged.ours {
        let Some(entry) = look(&directory, name).with_context(shown)? else { continue };
        let is_same = entry.is_plain() && entry.mark == *mark;
        if is_same || foreign(&directory, name, &entry, listing).with_context(shown)?.is_none() {
            unlinkat(&directory, name, AtFlags::empty()).with_context(shown)?;
        }
    }
    let left = names(&directory).with_context(shown)?;
    let marker = look(&directory, MARKER_FILE).with_context(shown)?;
    let is_ours = |entry: &Entry| {
        entry.is_plain() && listing.marker.is_some_and(|ours| ours.mark.inode == entry.mark.inode)
    };
    if marker.as_ref().is_some_and(is_ours) {
        unlinkat(&directory, MARKER_FILE, AtFlags::empty()).with_context(shown)?;
    }
    Ok(left.into_iter().map(|name| Foreign { name, why: None }).collect())
}
