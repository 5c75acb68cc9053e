//! The directory of results: `DIR.partial` until the run is done, `DIR` then.
//!
//! Everything is written below `DIR.partial` as soon as it is known, so that a run that is killed
//! leaves what it had. A run that was interrupted keeps it ([`Directory::keep`]), and so does one that
//! failed after it had measured; of one that failed before, `DIR.partial` goes when the directory is
//! dropped. An existing `DIR` is refused unless force was asked for; then it is replaced only when the
//! new results are complete.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::document::temporary_beside;

/// Names that only results have; a directory is replaced only if it holds one of them or nothing.
const MARKS: [&str; 2] = ["model.json", "result.json"];

/// A directory of results being filled; removed when it is dropped, unless it was finished or kept.
pub struct Directory {
    partial: PathBuf,
    done: PathBuf,
    /// There was a `DIR` when this one was made, which may be replaced.
    replaces: bool,
    is_settled: bool,
}

impl Directory {
    /// Whether results could go to `out`; changes nothing.
    ///
    /// # Errors
    /// The reason in words: it exists, holds other things, or its parent does not exist.
    pub fn check(out: &Path, force: bool) -> Result<()> {
        names(out, force).map(|_| ())
    }

    /// Makes `DIR.partial`, with an absolute path.
    pub fn create(out: &Path, force: bool) -> Result<Directory> {
        let (partial, done) = names(out, force)?;
        if partial.exists() {
            fs::remove_dir_all(&partial)
                .with_context(|| format!("cannot remove {}", partial.display()))?;
        }
        fs::create_dir(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
        let replaces = done.exists();
        Ok(Directory { partial, done, replaces, is_settled: false })
    }

    /// Where a file of this name is written.
    pub fn file(&self, name: &str) -> PathBuf {
        self.partial.join(name)
    }

    /// Where the results will be.
    pub fn done(&self) -> &Path {
        &self.done
    }

    /// Where the results are until then.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Takes the place of `DIR`. What was there goes when the new results have its name, and not before.
    ///
    /// # Errors
    /// What the file system refuses; then `DIR` is as it was, and the results stay in `DIR.partial`.
    pub fn finish(mut self) -> Result<PathBuf> {
        self.is_settled = true;
        let kept = format!("the results are kept in {}", self.partial.display());
        let (done, aside) = (&self.done, temporary_beside(&self.done));
        let replaces = done.exists();
        if replaces && !self.replaces {
            bail!("{} was made while the run went on; {kept}", done.display());
        }
        if replaces {
            fs::rename(done, &aside)
                .with_context(|| format!("cannot replace {}; {kept}", done.display()))?;
        }
        let named = fs::rename(&self.partial, done);
        if named.is_err() && replaces {
            // Back where it was; the reason why nothing took its place is told below.
            let _ = fs::rename(&aside, done);
        }
        named.with_context(|| format!("cannot name the results {}; {kept}", done.display()))?;
        if replaces {
            fs::remove_dir_all(&aside).with_context(|| {
                format!("the results are in {}; cannot remove {}", done.display(), aside.display())
            })?;
        }
        Ok(self.done.clone())
    }

    /// Stays under the name `DIR.partial`, which is returned: what a run had that was not completed.
    pub fn keep(mut self) -> PathBuf {
        self.is_settled = true;
        self.partial.clone()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.is_settled {
            // The cause was told already; what is left has nobody left to be told to.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// Where results for `out` are until they are done, and then.
fn names(out: &Path, force: bool) -> Result<(PathBuf, PathBuf)> {
    let done = std::path::absolute(out)
        .with_context(|| format!("cannot use {} as a directory", out.display()))?;
    let Some(name) = done.file_name() else {
        bail!("{} is no name for a directory of results", out.display())
    };
    let mut partial = name.to_owned();
    partial.push(".partial");
    let partial = done.with_file_name(partial);
    for existing in [&done, &partial] {
        if existing.exists() && !force {
            bail!("{} exists already; choose another --out or add --force", existing.display());
        }
        check_replaceable(existing)?;
    }
    let parent = done.parent().unwrap_or(Path::new("/"));
    if !parent.is_dir() {
        bail!("{} does not exist; make it first", parent.display());
    }
    Ok((partial, done))
}

/// A directory that holds other things than results is never removed.
fn check_replaceable(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    if !path.is_dir() {
        bail!("{} is not a directory", path.display());
    }
    let mut entries =
        fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?.peekable();
    let empty = entries.peek().is_none();
    if !empty && !MARKS.iter().any(|mark| path.join(mark).exists()) {
        bail!("{} holds other things than results; it is left alone", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("nilometer-directory-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("scratch");
        path
    }

    #[test]
    fn results_appear_whole_and_are_not_overwritten() {
        let scratch = scratch("whole");
        let out = scratch.join("results");
        let directory = Directory::create(&out, false).expect("new");
        fs::write(directory.file("result.json"), "{}").expect("write");
        assert!(!out.exists());
        directory.finish().expect("done");
        assert!(out.join("result.json").exists());
        let error = Directory::create(&out, false).err().expect("exists").to_string();
        assert!(error.contains("--force"), "{error}");
        let again = Directory::create(&out, true).expect("forced");
        assert!(out.join("result.json").exists(), "the old results stay until the new are done");
        again.finish().expect("done");
        assert!(!out.join("result.json").exists());
        fs::remove_dir_all(scratch).expect("clean");
    }

    #[test]
    fn what_failed_leaves_nothing_and_what_was_interrupted_stays() {
        let scratch = scratch("failed");
        let out = scratch.join("results");
        let entries = || fs::read_dir(&scratch).expect("scratch").count();
        let directory = Directory::create(&out, false).expect("new");
        fs::write(directory.file("result.json"), "{").expect("write");
        Directory::check(&out, true).expect("it may be replaced");
        assert_eq!(entries(), 1, "a check changes nothing");
        drop(directory);
        assert_eq!(entries(), 0);
        let directory = Directory::create(&out, false).expect("new");
        fs::write(directory.file("result.json"), "{}").expect("write");
        let kept = directory.keep();
        assert_eq!(kept, scratch.join("results.partial"));
        assert!(kept.join("result.json").exists());
        let again = Directory::create(&out, true).expect("forced");
        fs::write(again.file("model.json"), "{}").expect("write");
        let done = again.finish().expect("done");
        assert_eq!((done, entries()), (out, 1));
        fs::remove_dir_all(scratch).expect("clean");
    }

    /// An hour of measuring is not lost over a name.
    #[test]
    fn what_cannot_take_its_place_is_kept() {
        let scratch = scratch("placeless");
        let out = scratch.join("results");
        let directory = Directory::create(&out, true).expect("new");
        fs::write(directory.file("result.json"), "{}").expect("write");
        fs::create_dir(&out).expect("by somebody else");
        let error = directory.finish().expect_err("refused").to_string();
        assert!(error.contains("results.partial") && error.contains("made while"), "{error}");
        assert!(scratch.join("results.partial/result.json").exists() && out.exists());
        fs::remove_dir(&out).expect("clean");
        let directory = Directory::create(&out, true).expect("new");
        fs::write(&out, "a file").expect("write");
        assert!(directory.finish().is_err() && scratch.join("results.partial").exists());
        fs::remove_dir_all(scratch).expect("clean");
    }

    #[test]
    fn other_peoples_directories_are_left_alone() {
        let scratch = scratch("others");
        let out = scratch.join("photos");
        fs::create_dir(&out).expect("make");
        fs::write(out.join("cat.jpg"), "").expect("write");
        let error = Directory::create(&out, true).err().expect("refused").to_string();
        assert!(error.contains("left alone"), "{error}");
        assert!(out.join("cat.jpg").exists());
        fs::remove_dir_all(scratch).expect("clean");
    }
}
