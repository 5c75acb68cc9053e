//! A single file as an output: where it may go, and what it may replace there.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::draft::{Draft, directory_and_name, fill, followed};
use super::entry::{Entry, look};
use super::json_text;
use crate::table::columns::is_table_of_ours;

/// The first bytes of a Parquet table by any program.
pub const TABLE: &[u8] = b"PAR1";

/// A checked place for an output. The file that is there when the output is written is replaced only if
/// it is still the one that was checked.
#[derive(Clone, Debug)]
pub struct Output {
    path: PathBuf,
    replaces: Option<Entry>,
}

impl Output {
    /// A file of a directory that does not exist yet.
    pub(super) fn anew(path: PathBuf) -> Output {
        Output { path, replaces: None }
    }

    /// The given name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be written there.
    pub fn draft(&self) -> Result<Draft> {
        Draft::in_place_of(&self.path, self.replaces)
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// When it cannot be written; the file that was there is then unchanged.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        fill(self.draft()?, bytes)?.publish()
    }

    /// Writes a document as JSON, indented.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub fn write_json<T: Serialize>(&self, document: &T) -> Result<()> {
        self.write(json_text(document)?.as_bytes())
    }
}

/// Checks that an output has an existing directory, and that it may replace the file there: without
/// force only an empty file; with force a file that is writable, is not an input of the same command,
/// and begins like this tool's own files of its kind.
///
/// # Errors
/// One line with the reason.
pub fn guard_output(
    path: &Path,
    inputs: &[PathBuf],
    force: bool,
    beginning: &[u8],
) -> Result<Output> {
    // The entry is read before and after the check, so that the checked file is the one that will be
    // replaced. (If it cannot be read, the check reports why.)
    let before = standing(path).ok();
    check(path, inputs, force, beginning)?;
    let replaces = standing(path)?;
    let shown = path.display();
    ensure!(before == Some(replaces), "{shown}: was changed meanwhile; it is left alone");
    let is_mount = replaces.is_some_and(|entry| entry.is_mount);
    ensure!(!is_mount, "cannot write {shown}: something is mounted there");
    Ok(Output { path: path.to_owned(), replaces })
}

/// The entry at `path`, or its target if it is a symbolic link.
fn standing(path: &Path) -> Result<Option<Entry>> {
    let (folder, name) = directory_and_name(&followed(path)?)?;
    look(&folder, &name).with_context(|| format!("cannot write {}", path.display()))
}

fn check(path: &Path, inputs: &[PathBuf], force: bool, beginning: &[u8]) -> Result<()> {
    let shown = path.display();
    let Ok(there) = fs::metadata(path) else {
        if path.is_symlink() {
            bail!("cannot write {shown}: it is a symbolic link that leads nowhere");
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        return match folder.filter(|folder| !folder.is_dir()) {
            Some(folder) => bail!("cannot write {shown}: {} is not a directory", folder.display()),
            None => Ok(()),
        };
    };
    if there.is_dir() {
        bail!("cannot write {shown}: it is a directory");
    }
    if !there.is_file() {
        bail!("cannot write {shown}: it is not a regular file");
    }
    // An empty file, as from mktemp, holds nothing that could be lost.
    if !force && there.len() > 0 {
        bail!("{shown} exists already; choose another name or add --force");
    }
    let same = |input: &PathBuf| {
        fs::metadata(input).is_ok_and(|one| one.dev() == there.dev() && one.ino() == there.ino())
    };
    if inputs.iter().any(same) {
        bail!("{shown} is an input of this command; choose another name for the output");
    }
    if there.permissions().readonly() {
        bail!("{shown} is read-only; it is left alone");
    }
    let mut first = vec![0; beginning.len()];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    let is_ours =
        || read.is_ok() && first == beginning && (beginning != TABLE || is_table_of_ours(path));
    if there.len() > 0 && !is_ours() {
        bail!("{shown} is a file of another kind; it is left alone");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn force_replaces_nothing_but_its_own_kind() {
        let folder = std::env::temp_dir().join(format!("nilometer-guard-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("file");
        let refusal = |inputs: &[PathBuf], force| {
            guard_output(&path, inputs, force, b"OURS").map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(refusal(&[], false), Ok(()));
        fs::write(&path, b"").expect("write");
        assert_eq!(refusal(&[], false), Ok(()));
        let device = guard_output(Path::new("/dev/null"), &[], true, b"OURS");
        assert!(device.expect_err("a device").to_string().contains("regular file"));
        fs::write(&path, b"OURS and more").expect("write");
        assert!(refusal(&[], false).expect_err("exists").contains("--force"));
        assert_eq!(refusal(&[], true), Ok(()));
        let same = folder.join(".").join("file");
        assert!(refusal(&[same], true).expect_err("an input").contains("is an input"));
        fs::write(&path, b"a capture").expect("write");
        assert!(refusal(&[], true).expect_err("foreign").contains("another kind"));
        fs::write(&path, b"PAR1, a table of somebody's").expect("write");
        let table = guard_output(&path, &[], true, TABLE).expect_err("foreign").to_string();
        assert!(table.contains("another kind"), "{table}");
        fs::write(&path, b"OURS").expect("write");
        let mut mode = fs::metadata(&path).expect("it is there").permissions();
        mode.set_readonly(true);
        fs::set_permissions(&path, mode).expect("a mode");
        assert!(refusal(&[], true).expect_err("read-only").contains("read-only"));
        let dangling = folder.join("dangling");
        std::os::unix::fs::symlink("nowhere", &dangling).expect("a link");
        let line = guard_output(&dangling, &[], true, b"OURS").expect_err("dangling").to_string();
        assert!(line.contains("leads nowhere"), "{line}");
        fs::remove_dir_all(folder).expect("clean");
    }

    /// A command that reads for an hour replaces the file that was there when it began, and no other.
    #[test]
    fn files_that_appear_after_the_guard_are_left_alone() {
        let name = format!("nilometer-guard-late-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("file");
        let guard = || guard_output(&path, &[], true, b"OURS").expect("a place");
        let output = guard();
        fs::write(&path, b"OURS of another run").expect("write");
        assert!(output.write(b"OURS").is_err());
        let output = guard();
        output.write(b"OURS, new").expect("replaced");
        assert!(output.write(b"OURS").is_err(), "it is not what the guard saw");
        let output = guard();
        fs::write(&path, b"edited meanwhile").expect("write");
        assert!(output.write(b"OURS").is_err());
        assert_eq!(fs::read(&path).expect("it is there"), b"edited meanwhile");
        fs::remove_dir_all(folder).expect("clean");
    }
}
