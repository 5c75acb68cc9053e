//! Entries of directories: the kind of an entry, and the marks by which it is recognised later.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;

/// One entry of a directory; a symbolic link is reported as such and never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A regular file, a directory, a link or another kind.
    pub kind: FileType,
    /// Something is mounted there.
    pub is_mount: bool,
    /// Permission bits.
    pub mode: u32,
    /// The identity and the state of the file.
    pub mark: Mark,
}

/// A file and its state: another file under the same name has another mark, and so has the same file
/// once it was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Which file.
    pub inode: Inode,
    /// Its length, bytes.
    pub size: u64,
    /// When it was last written to: seconds and nanoseconds.
    modified: (i64, u32),
}

/// The identity of a file, whatever its content. Inode numbers are reused, so that the time of birth
/// is part of it where the file system records that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// The file system's device: major and minor number as one.
    pub device: u64,
    /// The number of the inode.
    pub number: u64,
    /// When it was created, ns since 1970.
    pub born_ns: Option<i64>,
}

impl Entry {
    fn of(about: &Statx) -> Entry {
        let born = about.stx_btime;
        let is_dated = about.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born_ns = born.tv_sec.checked_mul(1_000_000_000);
        let born_ns = born_ns.map(|seconds| seconds.saturating_add(i64::from(born.tv_nsec)));
        let inode = Inode {
            device: u64::from(about.stx_dev_major) << 32 | u64::from(about.stx_dev_minor),
            number: about.stx_ino,
            born_ns: born_ns.filter(|_| is_dated),
        };
        let modified = (about.stx_mtime.tv_sec, about.stx_mtime.tv_nsec);
        Entry {
            kind: FileType::from_raw_mode(about.stx_mode.into()),
            is_mount: about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            mode: u32::from(about.stx_mode) & 0o7777,
            mark: Mark { inode, size: about.stx_size, modified },
        }
    }

    /// Is it a plain file of this directory, neither a link nor mounted over?
    pub fn is_plain(&self) -> bool {
        self.kind == FileType::RegularFile && !self.is_mount
    }

    /// Is it a directory?
    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// The entry `name` of `directory`; `None` where there is none.
///
/// # Errors
/// When it cannot be told.
pub fn look(directory: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<Option<Entry>> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    match statx(directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW, wanted) {
        Ok(about) => Ok(Some(Entry::of(&about))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The entry of an open file.
///
/// # Errors
/// When it cannot be told.
pub fn look_at(file: impl AsFd) -> io::Result<Entry> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(Entry::of(&statx(file, "", AtFlags::EMPTY_PATH, wanted)?))
}

/// Does `name` in `directory` lead to this open file?
///
/// # Errors
/// When it cannot be told.
pub fn leads_to(
    directory: impl AsFd,
    name: impl AsRef<OsStr>,
    file: impl AsFd,
) -> io::Result<bool> {
    let there = look(directory, name)?;
    Ok(there.map(|entry| entry.mark.inode) == Some(look_at(file)?.mark.inode))
}
