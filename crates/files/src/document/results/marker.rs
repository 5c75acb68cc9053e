//! The list that a directory of results keeps of its own files, written before any of them.
//!
//! Lines are only ever appended to it, so that the list is valid however the process ends: a hidden name is
//! listed before its file is made, a growing file with its inode before it has its name, a finished file with
//! size and digest. All digests of a name are valid: a file that is written anew is ours before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::document::entry::{Entry, Inode, look, look_at};
use crate::tool;

/// The list's name in its directory.
pub const MARKER_FILE: &str = ".nilometer-results";

const FORMAT: &str = "nilometer-results/1";
/// The part of the first line that is the same in all lists.
const BEGINNING: &str = r#"{"begun":{"format":"nilometer-results/1","#;
/// Longer lists are not ours.
const MARKER_BYTES_MAX: u64 = 1 << 20;
/// Bytes that are digested at a time.
const READ_BYTES: usize = 1 << 18;

/// One line of the list.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first line.
    Begun { format: String, tool: String },
    /// The process that writes from here on.
    Process(u32),
    /// A hidden random name that will be made.
    Temporary(String),
    /// A file that has its name and is still written to.
    Unfinished { name: String, device: u64, inode: u64, born_ns: Option<i64> },
    /// A completely written file.
    Finished { name: String, size_bytes: u64, sha256: String },
}

/// The list, being written.
#[derive(Debug)]
pub struct Marker {
    file: File,
    path: PathBuf,
}

impl Marker {
    /// Begins the list of a directory that has none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn begin(directory: impl AsFd, path: &Path) -> Result<Marker> {
        let marker = Marker::open(&directory, path, OFlags::CREATE | OFlags::EXCL)?;
        let tool = tool::tool();
        let begun = Line::Begun { format: FORMAT.to_owned(), tool };
        match marker.note(&[begun, Line::Process(std::process::id())]) {
            Ok(()) => Ok(marker),
            Err(error) => {
                // The directory holds only this file, which we made; the cause is reported.
                let _ = unlinkat(&directory, MARKER_FILE, AtFlags::empty());
                Err(error)
            }
        }
    }

    /// Continues the list of a directory that is locked for us alone until it is closed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn resume(directory: impl AsFd, path: &Path) -> Result<Marker> {
        let marker = Marker::open(directory, path, OFlags::empty())?;
        // A full disk may have cut the last line.
        let text = read_limited(&marker.file).with_context(|| marker.unwritten())?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            marker.file.set_len(whole as u64).with_context(|| marker.unwritten())?;
        }
        marker.note(&[Line::Process(std::process::id())])?;
        Ok(marker)
    }

    fn open(directory: impl AsFd, path: &Path, how: OFlags) -> Result<Marker> {
        let path = path.join(MARKER_FILE);
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC
            | how;
        let opened = openat(directory, MARKER_FILE, flags, Mode::from_raw_mode(0o666));
        let file = opened.with_context(|| format!("cannot write {}", path.display()))?.into();
        Ok(Marker { file, path })
    }

    /// Flushes the list to the disk.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_all().with_context(|| self.unwritten())
    }

    fn unwritten(&self) -> String {
        format!("cannot write {}", self.path.display())
    }

    /// Appends lines in one write.
    fn note(&self, lines: &[Line]) -> Result<()> {
        let mut text = String::new();
        for line in lines {
            text += &serde_json::to_string(line)?;
            text.push('\n');
        }
        (&self.file).write_all(text.as_bytes()).with_context(|| self.unwritten())
    }

    /// Notes that a file will be made under this hidden random name.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub(in crate::document) fn temporary(&self, name: &str) -> io::Result<()> {
        let noted = self.note(&[Line::Temporary(name.to_owned())]);
        noted.map_err(|error| io::Error::other(format!("{error:#}")))
    }

    /// Notes that `file` will be called `name` and be written to.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub(in crate::document) fn unfinished(&self, name: &str, file: &File) -> Result<()> {
        let inode = look_at(file).with_context(|| self.unwritten())?.mark.inode;
        let Inode { device, number, born_ns } = inode;
        self.note(&[Line::Unfinished { name: name.to_owned(), device, inode: number, born_ns }])
    }

    /// Notes that `file` is or will be called `name`, and is complete.
    ///
    /// # Errors
    /// When the file cannot be read or the list cannot be written.
    pub(in crate::document) fn finished(&self, name: &str, file: &File) -> Result<()> {
        let digested = digest(file).with_context(|| format!("cannot read {name} again"))?;
        let (size_bytes, sha256) = digested;
        self.note(&[Line::Finished { name: name.to_owned(), size_bytes, sha256 }])
    }
}

/// What the list states about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// Any content of this file.
    Unfinished(Inode),
    /// This content of any file.
    Finished { size_bytes: u64, sha256: String },
}

/// A list, as read.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Hidden names.
    pub temporaries: BTreeSet<String>,
    /// The statements about each name, in the order of the list.
    pub files: BTreeMap<String, Vec<Listed>>,
    /// The process that wrote last.
    pub process: Option<u32>,
    /// The entry of the list itself.
    pub marker: Option<Entry>,
}

impl Listing {
    /// The list of an open directory, called `path`; `None` where it has none.
    ///
    /// # Errors
    /// When the file of that name is not one of our lists.
    pub fn read(directory: impl AsFd, path: &Path) -> Result<Option<Listing>> {
        let shown = || format!("cannot read {}", path.join(MARKER_FILE).display());
        let Some(entry) = look(&directory, MARKER_FILE).with_context(shown)? else {
            return Ok(None);
        };
        let no_list = || format!("{} is not a list of results", path.join(MARKER_FILE).display());
        ensure!(entry.is_plain(), no_list());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&directory, MARKER_FILE, flags, Mode::empty());
        let text = read_limited(&File::from(opened.with_context(shown)?)).with_context(shown)?;
        let mut listing = Listing::parse(&text).with_context(no_list)?;
        listing.marker = Some(entry);
        Ok(Some(listing))
    }

    /// Text behind the last line feed was cut off by a full disk or the end of the process, possibly within
    /// the first line.
    fn parse(text: &str) -> Result<Listing> {
        let is_ours = text.starts_with(BEGINNING) || BEGINNING.starts_with(text);
        ensure!(is_ours, "it does not begin as one of {FORMAT}");
        let mut listing = Listing::default();
        let whole = text.rfind('\n').map_or("", |at| &text[..at]);
        for (number, line) in whole.lines().enumerate() {
            let read = serde_json::from_str(line);
            match read.map_err(|error| anyhow!("line {}: {error}", number + 1))? {
                Line::Begun { .. } if number == 0 => {}
                Line::Begun { .. } => bail!("line {}: it begins twice", number + 1),
                Line::Process(process) => listing.process = Some(process),
                Line::Temporary(name) => {
                    listing.temporaries.insert(name);
                }
                Line::Unfinished { name, device, inode, born_ns } => {
                    let inode = Inode { device, number: inode, born_ns };
                    listing.files.entry(name).or_default().push(Listed::Unfinished(inode));
                }
                Line::Finished { name, size_bytes, sha256 } => {
                    let listed = listing.files.entry(name).or_default();
                    // From here on another process writes.
                    listed.retain(|listed| matches!(listed, Listed::Finished { .. }));
                    listed.push(Listed::Finished { size_bytes, sha256 });
                }
            }
        }
        Ok(listing)
    }

    /// The files that were being written when the list ended.
    pub fn unfinished(&self) -> impl Iterator<Item = &str> {
        let is_open = |listed: &Vec<Listed>| matches!(listed.last(), Some(Listed::Unfinished(_)));
        self.files.iter().filter(move |(_, listed)| is_open(listed)).map(|(name, _)| name.as_str())
    }
}

fn read_limited(file: &File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MARKER_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MARKER_BYTES_MAX {
        return Err(io::Error::other(format!("it is longer than {MARKER_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// The length of a file in bytes and its SHA-256, from its beginning, wherever it is being read.
///
/// # Errors
/// When it cannot be read.
pub(super) fn digest(file: &File) -> io::Result<(u64, String)> {
    let (mut digest, mut bytes, mut at) = (Sha256::new(), vec![0; READ_BYTES], 0);
    loop {
        let read = match file.read_at(&mut bytes, at) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        digest.update(&bytes[..read]);
        at += read as u64;
    }
    let hex = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((at, hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_far_as_it_is_whole() {
        let begun = r#"{"begun":{"format":"nilometer-results/1","tool":"nilometer"}}"#;
        let text = format!(
            "{begun}\n{}\n{}\n{}\n{}\n{{\"finished\":{{\"na",
            r#"{"process":7}"#,
            r#"{"temporary":".nilometer-1.tmp"}"#,
            r#"{"unfinished":{"name":"a","device":1,"inode":2,"born_ns":3}}"#,
            r#"{"finished":{"name":"b","size_bytes":2,"sha256":"ab"}}"#
        );
        let listing = Listing::parse(&text).expect("a list");
        assert_eq!(listing.process, Some(7));
        assert!(listing.temporaries.contains(".nilometer-1.tmp"));
        assert_eq!(listing.unfinished().collect::<Vec<_>>(), ["a"]);
        let listed = Listed::Finished { size_bytes: 2, sha256: "ab".to_owned() };
        assert_eq!(listing.files["b"], [listed]);
        let cut = [0, 1, 20, begun.len() - 20, begun.len()].map(|at| &begun[..at]);
        for begun in cut {
            assert!(Listing::parse(begun).expect("nothing yet").files.is_empty(), "{begun}");
        }
        let line = Line::Begun { format: FORMAT.to_owned(), tool: String::new() };
        assert!(serde_json::to_string(&line).expect("a line").starts_with(BEGINNING));
        for other in [
            "{}\n",
            "notes\n",
            "notes",
            "{}",
            &format!("{begun}\nnotes\n"),
            &format!("{begun}\n{begun}\n"),
        ] {
            assert!(Listing::parse(other).is_err(), "{other}");
        }
        for other in [begun.replace("/1", "/2"), format!("{}\n", begun.replace("/1", "/2"))] {
            assert!(Listing::parse(&other).is_err(), "{other}");
        }
    }
}
