//! Documents: TOML and JSON read with one clear error, files written whole or not at all.

pub mod bounded;
pub mod together;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use bounded::{JSON_BYTES_MAX, TOML_BYTES_MAX};
use nilometer_sim::refusal::hint;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A JSON document.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    json_of(path, &bounded::read_text(path, JSON_BYTES_MAX)?)
}

/// The JSON document that is the text of `path`.
pub fn json_of<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| anyhow!("{}: {}", path.display(), one_line(&error.to_string())))
}

/// A TOML document.
pub fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = bounded::read_text(path, TOML_BYTES_MAX)?;
    toml::from_str(&text).map_err(|error| toml_error(&path.display().to_string(), &text, &error))
}

/// What is wrong with the TOML `text` of the file `name`, and in which line.
pub fn toml_error(name: &str, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
    anyhow!("{name}: line {line}: {}", one_line(error.message()))
}

/// An error in one line; an unknown key gets the known one that was probably meant.
pub fn one_line(message: &str) -> String {
    let message = message.replace('\n', " ");
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let place = message.rfind(" at line").map_or("", |at| &message[at..]);
    match quoted.split_first() {
        Some((unknown, known)) if message.starts_with("unknown field") && !known.is_empty() => {
            format!("unknown key `{unknown}`{place}{}", hint(unknown, known.iter().copied()))
        }
        _ => message,
    }
}

/// Holds an output to a place that is there, and to what may be replaced: without force only an empty
/// file; with it a file that is writable, is no input of the same command, and begins as this tool's
/// own files of its kind do.
///
/// # Errors
/// One line with the reason.
pub fn guard_output(path: &Path, inputs: &[PathBuf], force: bool, beginning: &[u8]) -> Result<()> {
    let shown = path.display();
    let Ok(there) = fs::metadata(path) else {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        return match folder.filter(|folder| !folder.is_dir()) {
            Some(folder) => bail!("cannot write {shown}: {} is no directory", folder.display()),
            None => Ok(()),
        };
    };
    if there.is_dir() {
        bail!("cannot write {shown}: it is a directory");
    }
    if !there.is_file() {
        bail!("cannot write {shown}: it is not a regular file");
    }
    // An empty file, as mktemp makes one, holds nothing that could be lost.
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
    if there.len() > 0 && (read.is_err() || first != beginning) {
        bail!("{shown} is another kind of file than would replace it; it is left alone");
    }
    Ok(())
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

/// The temporary name used for `path` by this process.
pub fn temporary_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

/// Writes a document as JSON, indented, whole or not at all.
pub fn write_json<T: Serialize>(path: &Path, document: &T) -> Result<()> {
    write_whole(path, json_text(document)?.as_bytes())
}

/// A document as [`write_json`] writes it.
pub fn json_text<T: Serialize>(document: &T) -> Result<String> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    Ok(text)
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
            guard_output(&path, inputs, force, b"PAR1").map_err(|error| error.to_string())
        };
        assert_eq!(refusal(&[], false), Ok(()));
        fs::write(&path, b"").expect("write");
        assert_eq!(refusal(&[], false), Ok(()));
        let device = guard_output(Path::new("/dev/null"), &[], true, b"PAR1");
        assert!(device.expect_err("a device").to_string().contains("regular file"));
        fs::write(&path, b"PAR1 and more").expect("write");
        assert!(refusal(&[], false).expect_err("exists").contains("--force"));
        assert_eq!(refusal(&[], true), Ok(()));
        let same = folder.join(".").join("file");
        assert!(refusal(&[same], true).expect_err("an input").contains("is an input"));
        fs::write(&path, b"a capture").expect("write");
        assert!(refusal(&[], true).expect_err("foreign").contains("another kind"));
        fs::write(&path, b"PAR1").expect("write");
        let mut mode = fs::metadata(&path).expect("it is there").permissions();
        mode.set_readonly(true);
        fs::set_permissions(&path, mode).expect("a mode");
        assert!(refusal(&[], true).expect_err("read-only").contains("read-only"));
        fs::remove_dir_all(folder).expect("clean");
    }

    #[test]
    fn an_unknown_key_gets_the_nearest_known_one() {
        let message =
            "unknown field `sed`, expected one of `input`, `seed`, `dut` at line 3 column 5";
        assert_eq!(one_line(message), "unknown key `sed` at line 3 column 5; did you mean `seed`?");
        let message = "unknown field `walrus`, expected `input` or `seed`";
        assert_eq!(one_line(message), "unknown key `walrus`; there are `input`, `seed`");
        assert_eq!(one_line("invalid\ntype"), "invalid type");
    }
}
