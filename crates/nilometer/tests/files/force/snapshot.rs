//! The contents of a folder, for comparison before and after: bytes, modes, times, targets.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One entry of any kind. For a directory only the mode: its contents have entries of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    File { content: Vec<u8>, mode: u32, modified: (i64, i64) },
    Link { target: PathBuf, modified: (i64, i64) },
    Folder { mode: u32 },
    Other { is_fifo: bool, mode: u32 },
}

/// Every entry below a folder by its path in it; no link is followed.
pub type Snapshot = BTreeMap<PathBuf, Entry>;

pub fn snapshot(folder: &Path) -> Snapshot {
    let (mut found, mut folders) = (Snapshot::new(), vec![folder.to_owned()]);
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let about = fs::symlink_metadata(&path).expect("a readable entry");
            let modified = (about.mtime(), about.mtime_nsec());
            let kind = about.file_type();
            let seen = if kind.is_symlink() {
                Entry::Link { target: fs::read_link(&path).expect("a link"), modified }
            } else if kind.is_dir() {
                folders.push(path.clone());
                Entry::Folder { mode: about.mode() }
            } else if kind.is_file() {
                let content = fs::read(&path).expect("a readable file");
                Entry::File { content, mode: about.mode(), modified }
            } else {
                Entry::Other { is_fifo: kind.is_fifo(), mode: about.mode() }
            };
            found.insert(path.strip_prefix(folder).expect("below it").to_owned(), seen);
        }
    }
    found
}

/// Entries lost or changed from `before` to `after`, except below `ours`.
pub fn losses(before: &Snapshot, after: &Snapshot, ours: &[PathBuf]) -> Vec<PathBuf> {
    let is_ours = |path: &Path| ours.iter().any(|one| path.starts_with(one));
    let lost = before.iter().filter(|(path, entry)| after.get(*path) != Some(entry));
    lost.map(|(path, _)| path.clone()).filter(|path| !is_ours(path)).collect()
}

/// Entries in `after` that were not in `before`, except below `ours`.
pub fn litter(before: &Snapshot, after: &Snapshot, ours: &[PathBuf]) -> Vec<PathBuf> {
    let is_ours = |path: &Path| ours.iter().any(|one| path.starts_with(one));
    after.keys().filter(|path| !before.contains_key(*path) && !is_ours(path)).cloned().collect()
}
