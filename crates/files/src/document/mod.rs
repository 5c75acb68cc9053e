//! Documents: TOML and JSON read with one clear error, files written whole or not at all.

pub mod bounded;
pub mod draft;
mod entry;
pub mod model;
mod output;
pub mod results;
pub mod together;

use std::path::Path;

use anyhow::{Result, anyhow};
use bounded::{JSON_BYTES_MAX, TOML_BYTES_MAX};
use nilometer_sim::refusal::hint;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use output::{Output, TABLE, guard_output};

/// A JSON document.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    json_of(path, &bounded::read_text(path, JSON_BYTES_MAX)?)
}

/// The JSON document in `text`, which was read from `path`.
pub fn json_of<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| anyhow!("{}: {}", path.display(), one_line(&error.to_string())))
}

/// A TOML document.
pub fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = bounded::read_text(path, TOML_BYTES_MAX)?;
    toml::from_str(&text).map_err(|error| toml_error(&path.display().to_string(), &text, &error))
}

/// The error in the TOML `text` of the file `name`, with its line.
pub fn toml_error(name: &str, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
    anyhow!("{name}: line {line}: {}", one_line(error.message()))
}

/// An error in one line; an unknown key is followed by the known one that was probably meant.
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

/// A document as indented JSON.
pub fn json_text<T: Serialize>(document: &T) -> Result<String> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

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
