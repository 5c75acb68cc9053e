//! Several files of one directory, written all or none.
//!
//! Where a command leaves many files that belong together in a directory which may hold others', it
//! cannot name the directory last, as results do. So every file is first written whole as a draft;
//! only when all of them are on the disk do they get their names. Whatever fails before takes the
//! drafts with it, and the directories that were made for them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::draft::whole;

/// The directories that are taken back unless all went well, from the outermost in.
#[derive(Default)]
struct Undo(Vec<PathBuf>);

impl Drop for Undo {
    fn drop(&mut self) {
        // The cause was told already; what is left has nobody left to be told to.
        for directory in self.0.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Writes `files`, each a name and what it holds, into `directory`, which is made where it is missing.
/// Files of the same names are replaced.
///
/// # Errors
/// One line that names the file and the cause; none of the files is there then, or as it was before.
pub fn write(directory: &Path, files: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    let mut undo = Undo::default();
    make(directory, &mut undo)?;
    let mut drafts = Vec::new();
    for (name, bytes) in files {
        let path = directory.join(name);
        if path.is_dir() {
            bail!("cannot write {}: it is a directory", path.display());
        }
        drafts.push(whole(&path, bytes)?);
    }
    for draft in drafts {
        draft.publish()?;
    }
    undo.0.clear();
    Ok(())
}

/// Makes `directory` and what is missing of the directories above it.
fn make(directory: &Path, undo: &mut Undo) -> Result<()> {
    let all = directory.ancestors().take_while(|one| !one.as_os_str().is_empty());
    let missing: Vec<&Path> = all.take_while(|one| !one.exists()).collect();
    for one in missing.into_iter().rev() {
        fs::create_dir(one)
            .with_context(|| format!("cannot make the directory {}", one.display()))?;
        undo.0.push(one.to_owned());
    }
    // (An empty path is where we are.)
    if !directory.as_os_str().is_empty() && !directory.is_dir() {
        bail!("cannot write into {}: it is no directory", directory.display());
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
        let files = |text: &str| {
            ["a", "b"].map(|name| (PathBuf::from(name), format!("{text} {name}").into_bytes()))
        };
        let inner = room.join("made").join("for it");
        write(&inner, &files("first")).expect("written");
        let names = |at: &Path| {
            let mut names: Vec<_> = fs::read_dir(at)
                .expect("it is there")
                .map(|one| one.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(&inner), ["a", "b"]);
        write(&inner, &files("second")).expect("replaced");
        assert_eq!(fs::read_to_string(inner.join("b")).expect("text"), "second b");

        fs::remove_file(inner.join("b")).expect("it was there");
        fs::create_dir(inner.join("b")).expect("in the way");
        let refused = write(&inner, &files("third")).expect_err("a directory is in the way");
        assert!(refused.to_string().contains("b: it is a directory"), "{refused}");
        assert_eq!(fs::read_to_string(inner.join("a")).expect("text"), "second a");
        assert_eq!(names(&inner), ["a", "b"]);

        let unnamed = ["a", &"x".repeat(300)].map(|name| (PathBuf::from(name), Vec::new()));
        write(&room.join("new").join("er"), &unnamed).expect_err("no name is as long");
        write(&inner.join("a").join("below"), &files("no")).expect_err("a file is no directory");
        assert_eq!(names(&room), ["made"]);
        fs::remove_dir_all(&room).expect("clean");
    }
}
