//! Documents: TOML and JSON read with one clear error, files written whole or not at all.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Documents longer than this are refused unread.
const DOCUMENT_BYTES_MAX: u64 = 256 << 20;

/// The text of a file, within the limit.
pub fn read_text(path: &Path) -> Result<String> {
    let shown = path.display();
    let length = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    if length > DOCUMENT_BYTES_MAX {
        return Err(anyhow!("{shown} has {length} bytes, {DOCUMENT_BYTES_MAX} are the limit"));
    }
    fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))
}

/// A JSON document.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = read_text(path)?;
    serde_json::from_str(&text)
        .map_err(|error| anyhow!("{}: {}", path.display(), one_line(&error.to_string())))
}

/// A TOML document.
pub fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = read_text(path)?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        anyhow!("{}: line {line}: {}", path.display(), one_line(error.message()))
    })
}

/// An error in one line; an unknown key gets the nearest known one instead of the list of all.
fn one_line(message: &str) -> String {
    let message = message.replace('\n', " ");
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let place = message.rfind(" at line").map_or("", |at| &message[at..]);
    match quoted.split_first() {
        Some((unknown, known)) if message.starts_with("unknown field") && !known.is_empty() => {
            let known = known.iter().map(|key| (distance(unknown, key), *key)).min();
            let nearest = known.map_or("", |(_, key)| key);
            format!("unknown key `{unknown}`{place}; did you mean `{nearest}`?")
        }
        _ => message,
    }
}

/// Levenshtein's distance: edits that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Writes a file whole: to a temporary name beside it, then renamed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_beside(path);
    let written = fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        anyhow!("cannot write {}: {error}", path.display())
    })
}

/// Whether a file can come to stand at `path`: its folder is there and it is none itself. For asking
/// before long work, not instead of the error of writing.
pub fn check_place(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(anyhow!("cannot write {}: its directory does not exist", path.display()));
    }
    if path.is_dir() {
        return Err(anyhow!("cannot write {}: it is a directory", path.display()));
    }
    Ok(())
}

/// The temporary name used for `path` by this process.
pub fn temporary_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

/// Writes a document as JSON, indented, whole or not at all.
pub fn write_json<T: Serialize>(path: &Path, document: &T) -> Result<()> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    write_whole(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_gets_the_nearest_known_one() {
        let message =
            "unknown field `sed`, expected one of `input`, `seed`, `dut` at line 3 column 5";
        assert_eq!(one_line(message), "unknown key `sed` at line 3 column 5; did you mean `seed`?");
        assert_eq!(one_line("invalid\ntype"), "invalid type");
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
