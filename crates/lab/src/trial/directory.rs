//! The directory of results: `DIR.partial` until the run is done, `DIR` then.
//!
//! Everything is written below `DIR.partial` as soon as it is known, so that a run that is killed
//! leaves what it had. An existing `DIR` is refused unless force was asked for; then it is replaced
//! only when the new results are complete.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Names that only results have; a directory is replaced only if it holds one of them or nothing.
const MARKS: [&str; 2] = ["model.json", "result.json"];

/// A directory of results being filled.
pub struct Directory {
    partial: PathBuf,
    done: PathBuf,
}

impl Directory {
    /// Whether results could go to `out`; changes nothing.
    ///
    /// # Errors
    /// The reason in words: it exists, holds other things, or its parent does not exist.
    pub fn check(out: &Path, force: bool) -> Result<()> {
        Directory::named(out, force).map(|_| ())
    }

    /// Makes `DIR.partial`, with an absolute path.
    pub fn create(out: &Path, force: bool) -> Result<Directory> {
        let directory = Directory::named(out, force)?;
        let partial = &directory.partial;
        if partial.exists() {
            fs::remove_dir_all(partial)
                .with_context(|| format!("cannot remove {}", partial.display()))?;
        }
        fs::create_dir(partial).with_context(|| format!("cannot make {}", partial.display()))?;
        Ok(directory)
    }

    fn named(out: &Path, force: bool) -> Result<Directory> {
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
        Ok(Directory { partial, done })
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

    /// Takes the place of `DIR`.
    pub fn finish(self) -> Result<PathBuf> {
        if self.done.exists() {
            fs::remove_dir_all(&self.done)
                .with_context(|| format!("cannot replace {}", self.done.display()))?;
        }
        fs::rename(&self.partial, &self.done)
            .with_context(|| format!("cannot name the results {}", self.done.display()))?;
        Ok(self.done)
    }
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
