//! Several files of one directory that belong together.
//!
//! A command that writes several files that belong together into a directory which may hold other files
//! cannot name the directory last, as results do. So every file is first written completely as a draft;
//! only when all of them are on the disk do they get their names. If anything fails before that, the
//! drafts are removed, and so are the directories that were made for them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::draft::fill;
use super::output::{Output, guard_output};

/// The directories that are removed unless everything succeeds, from the outermost in.
#[derive(Default)]
struct Undo(Vec<PathBuf>);

impl Drop for Undo {
    fn drop(&mut self) {
        // The cause has been reported already; an error here cannot be reported any more.
        for directory in self.0.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Checks what the file `name` of `directory` may replace, as [`guard_output`] does; the directory may be
/// missing.
///
/// # Errors
/// One line with the reason, also why the directory cannot be made.
pub fn guard(
    directory: &Path,
    name: &Path,
    inputs: &[PathBuf],
    force: bool,
    beginning: &[u8],
) -> Result<Output> {
    let path = directory.join(name);
    let (missing, above) = missing(directory);
    if missing.is_empty() && above.is_none_or(Path::is_dir) {
        return guard_output(&path, inputs, force, beginning);
    }
    if let Some(link) = missing.iter().find(|one| one.is_symlink()) {
        bail!("cannot make {}: it is a symbolic link that leads nowhere", link.display());
    }
    match above.filter(|above| !above.is_dir()) {
        Some(above) => {
            bail!("cannot write {}: {} is not a directory", path.display(), above.display())
        }
        None => Ok(Output::anew(path)),
    }
}

/// Writes `files`, each a checked place and its content, into `directory`, which is made if it is
/// missing.
///
/// # Errors
/// One line that names the file and the cause. No file is changed then, unless giving names fails, as
/// when another process takes one of them in that moment: files that already have their names keep them.
pub fn write(directory: &Path, files: &[(Output, impl AsRef<[u8]>)]) -> Result<()> {
    let mut undo = Undo::default();
    make(directory, &mut undo)?;
    let mut drafts = Vec::new();
    for (output, bytes) in files {
        drafts.push(fill(output.draft()?, bytes.as_ref())?);
    }
    for draft in &drafts {
        draft.sync()?;
        draft.has_place()?;
    }
    for draft in drafts {
        draft.publish()?;
    }
    undo.0.clear();
    Ok(())
}

/// The missing directories of a path, innermost first; and the first existing one. (An empty path is the
/// current directory.)
fn missing(directory: &Path) -> (Vec<&Path>, Option<&Path>) {
    let mut all = directory.ancestors().filter(|one| !one.as_os_str().is_empty());
    let missing: Vec<&Path> = all.clone().take_while(|one| !one.exists()).collect();
    let above = all.nth(missing.len());
    (missing, above)
}

/// Makes `directory` and the missing directories above it.
fn make(directory: &Path, undo: &mut Undo) -> Result<()> {
    for one in missing(directory).0.into_iter().rev() {
        fs::create_dir(one)
            .with_context(|| format!("cannot make the directory {}", one.display()))?;
        undo.0.push(one.to_owned());
    }
    if !directory.as_os_str().is_empty() && !directory.is_dir() {
        bail!("cannot write into {}: it is not a directory", directory.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_appear_together_or_not_at_all() {
        let name = format!("nilometer-together-{}", std::process::id());
        let room = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&room);
        fs::create_dir_all(&room).expect("a room");
        let write = |at: &Path, names: [&str; 2], text: &str| {
            let mut files = Vec::new();
            for name in names {
                let output = guard(at, Path::new(name), &[], true, b"")?;
                files.push((output, format!("{text} {name}")));
            }
            write(at, &files)
        };
        let inner = room.join("made").join("for it");
        write(&inner, ["a", "b"], "first").expect("written");
        let names = |at: &Path| {
            let mut names: Vec<_> = fs::read_dir(at)
                .expect("it is there")
                .map(|one| one.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(&inner), ["a", "b"]);
        write(&inner, ["a", "b"], "second").expect("replaced");
        assert_eq!(fs::read_to_string(inner.join("b")).expect("text"), "second b");

        fs::remove_file(inner.join("b")).expect("it was there");
        fs::create_dir(inner.join("b")).expect("in the way");
        let refused = write(&inner, ["a", "b"], "third").expect_err("a directory is in the way");
        assert!(refused.to_string().contains("b: it is a directory"), "{refused}");
        assert_eq!(fs::read_to_string(inner.join("a")).expect("text"), "second a");
        assert_eq!(names(&inner), ["a", "b"]);

        let new = room.join("new").join("er");
        write(&new, ["a", &"x".repeat(300)], "no").expect_err("no name is as long");
        let below = inner.join("a").join("below");
        let refused = guard(&below, Path::new("a"), &[], true, b"").expect_err("below a file");
        assert!(refused.to_string().contains("is not a directory"), "{refused}");
        std::os::unix::fs::symlink("nowhere", room.join("link")).expect("a link");
        let refused =
            guard(&room.join("link"), Path::new("a"), &[], true, b"").expect_err("a link");
        assert!(refused.to_string().contains("leads nowhere"), "{refused}");
        fs::remove_file(room.join("link")).expect("it was there");
        assert_eq!(names(&room), ["made"]);
        fs::remove_dir_all(&room).expect("clean");
    }
}
