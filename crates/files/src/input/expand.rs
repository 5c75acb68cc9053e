//! Expands the given names to files: directories with everything below them, and globs that no shell has
//! expanded.
//!
//! Files of a directory come in the order of their paths, which is the order of time where names begin with
//! the time, as collectors' do; so do those of a glob. Digits are compared as numbers, since `tcpdump -C`
//! appends numbers without padding. Hidden files are ignored, and directories behind symbolic links are not
//! entered. An existing name is taken literally, whatever letters it contains. Files found in a directory or
//! by a glob are distinguished from named ones: other kinds of file may lie there, too.

use std::cmp::Ordering;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Files of one call at most.
const FILES_MAX: usize = 1_000_000;
/// Directories within directories at most.
const DEPTH_MAX: usize = 32;

/// One of the input files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it is, or `-`.
    pub path: PathBuf,
    /// It was not named itself: it lies in a named directory, or matches a glob.
    pub is_found: bool,
}

impl File {
    fn named(path: PathBuf) -> File {
        File { path, is_found: false }
    }
}

/// The paths of the files that `inputs` name, in their order; `-` stays.
///
/// # Errors
/// As those of [`files`].
pub fn expand(inputs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    Ok(files(inputs)?.into_iter().map(|file| file.path).collect())
}

/// The files that `inputs` name, in their order; `-` stays.
///
/// # Errors
/// When a directory holds no file or cannot be read, a glob matches nothing, or there are too many.
pub fn files(inputs: &[PathBuf]) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for input in inputs {
        if input == Path::new("-") || input.is_file() {
            files.push(File::named(input.clone()));
        } else if input.is_dir() {
            add_directory(input, &mut files)?;
        } else if let Some(pattern) = pattern(input) {
            add_matches(pattern, &mut files)?;
        } else {
            // Its kind, or that it is missing, is reported when it is opened.
            files.push(File::named(input.clone()));
        }
        hold(files.len())?;
    }
    Ok(files)
}

/// The text of a name that is a glob and does not exist as a file.
fn pattern(input: &Path) -> Option<&str> {
    let text = input.to_str()?;
    (text.contains(['*', '?', '[']) && !input.exists()).then_some(text)
}

fn hold(count: usize) -> Result<()> {
    if count > FILES_MAX {
        bail!("more than {FILES_MAX} files are named; give a part of them");
    }
    Ok(())
}

fn add_matches(pattern: &str, files: &mut Vec<File>) -> Result<()> {
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
    let matches = glob::glob_with(pattern, options)
        .with_context(|| format!("{pattern}: is neither a file nor a sound glob"))?;
    let unreadable = || format!("{pattern}: cannot be looked through");
    let mut found = Vec::new();
    for path in matches {
        found.push(path.with_context(unreadable)?);
        hold(found.len())?;
    }
    found.sort_by(|one, other| in_order(one, other));
    let before = files.len();
    for path in found {
        if path.is_dir() {
            add_directory(&path, files)?;
        } else {
            files.push(File { path, is_found: true });
        }
        hold(files.len())?;
    }
    if files.len() == before {
        bail!("{pattern}: no file matches");
    }
    Ok(())
}

fn add_directory(directory: &Path, files: &mut Vec<File>) -> Result<()> {
    let mut found = Vec::new();
    let mut open = vec![(directory.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        let unreadable = || format!("{}: this directory cannot be read", folder.display());
        for entry in fs::read_dir(&folder).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let kind = entry.file_type().with_context(unreadable)?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            if kind.is_dir() && depth < DEPTH_MAX {
                open.push((path, depth + 1));
            } else if kind.is_dir() {
                bail!("{}: lies more than {DEPTH_MAX} directories deep", path.display());
            } else if path.is_file() {
                found.push(path);
                hold(files.len() + found.len())?;
            }
        }
    }
    if found.is_empty() {
        bail!("{}: is a directory without files", directory.display());
    }
    found.sort_by(|one, other| in_order(one, other));
    files.extend(found.into_iter().map(|path| File { path, is_found: true }));
    Ok(())
}

/// The order of paths, folder by folder, in which digits are compared as numbers.
fn in_order(one: &Path, other: &Path) -> Ordering {
    parts(one).cmp(parts(other)).then_with(|| one.cmp(other))
}

/// The bytes of a path, with a number in place of digits; the end of a name sorts before any continuation.
fn parts(path: &Path) -> impl Iterator<Item = (u8, u128)> {
    path.components().flat_map(|name| {
        let mut rest = name.as_os_str().as_encoded_bytes();
        let parts = iter::from_fn(move || {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let run = rest.split_off(..digits.clamp(1, rest.len().max(1)))?;
            let number = run.iter().fold(0u128, |number, byte| {
                number.saturating_mul(10).saturating_add(u128::from(byte.wrapping_sub(b'0')))
            });
            Some(if digits > 0 { (b'0', number) } else { (run[0], 0) })
        });
        parts.chain([(0, 0)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_and_globs_become_files_in_order() {
        let room = std::env::temp_dir().join(format!("nilometer-expand-{}", std::process::id()));
        for name in ["b/2", "b/1", "a/9", ".hidden/1", "b/.part", "[x].pcap", "y.pcap"] {
            let path = room.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, b"x").expect("a file");
        }
        fs::create_dir_all(room.join("empty")).expect("a folder");
        std::os::unix::fs::symlink(&room, room.join("a/loop")).expect("a link");
        let names = |inputs: &[&str]| {
            let inputs: Vec<PathBuf> = inputs.iter().map(|name| room.join(name)).collect();
            let files = expand(&inputs).map_err(|error| error.to_string())?;
            let below =
                files.iter().map(|file| file.strip_prefix(&room).expect("below").to_owned());
            Ok::<_, String>(below.map(|file| file.to_string_lossy().into_owned()).collect())
        };
        let found = files(&[room.join("b"), room.join("y.pcap"), room.join("a/?")]).expect("there");
        let is_found: Vec<bool> = found.iter().map(|file| file.is_found).collect();
        assert_eq!(is_found, [true, true, false, true]);
        let all = ["[x].pcap", "a/9", "b/1", "b/2", "y.pcap"].map(str::to_owned).to_vec();
        assert_eq!(names(&[""]), Ok(all));
        let some = |files: &[&str]| Ok(files.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(names(&["b", "y.pcap", "a/9"]), some(&["b/1", "b/2", "y.pcap", "a/9"]));
        assert_eq!(names(&["*.pcap"]), some(&["[x].pcap", "y.pcap"]));
        assert_eq!(names(&["?/[12]", "[x].pcap"]), some(&["b/1", "b/2", "[x].pcap"]));
        assert_eq!(names(&["missing"]), some(&["missing"]), "said when it is opened");
        for (name, word) in
            [("empty", "without files"), ("*.gone", "no file matches"), ("[", "sound glob")]
        {
            let error: String = names(&[name]).map(|_: Vec<String>| ()).expect_err(name);
            assert!(error.contains(word) && error.contains(name), "{error}");
        }
        fs::remove_dir_all(room).expect("clean");
    }

    #[test]
    fn digits_are_numbers() {
        let sorted =
            ["a", "a.pcap", "a.pcap1", "a.pcap2", "a.pcap10", "a1/9", "a1/10", "a02/1", "b"];
        let mut paths: Vec<&Path> = sorted.iter().map(Path::new).collect();
        paths.reverse();
        paths.sort_by(|one, other| in_order(one, other));
        assert_eq!(paths, sorted.map(Path::new));
        let long = "9".repeat(100);
        assert_eq!(in_order(Path::new(&long), Path::new(&(long.clone() + "9"))), Ordering::Less);
    }
}
