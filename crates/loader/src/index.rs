//! What a code server has: a list of artefacts beside them, so that any server of files will do.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use semver::Version;
use serde::{Deserialize, Serialize};

/// The name of the file.
pub const INDEX: &str = "index.json";
/// The longest index, bytes.
pub const INDEX_BYTES_MAX: u64 = 4 << 20;
/// Artefacts of an index at most.
const ENTRIES_MAX: usize = 10_000;
const FORMAT: &str = "nilometer-plugin-index/1";

/// An artefact of the list. What it says is only for choosing: what holds is in the artefact, which is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The plugin's name.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// The file's name.
    pub file: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    format: String,
    /// In the order of names and versions.
    pub plugins: Vec<Entry>,
}

impl Default for Index {
    fn default() -> Index {
        Index { format: FORMAT.to_owned(), plugins: Vec::new() }
    }
}

/// Whether a text can be the name of an artefact's file, and nothing else.
pub fn is_artefact_name(file: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.+".contains(&byte);
    let stem = file.strip_suffix(".nmp").unwrap_or("");
    (1..=160).contains(&stem.len()) && stem.bytes().all(is_plain) && !stem.starts_with('.')
}

impl Index {
    /// Reads the text of one.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(text: &[u8]) -> Result<Index> {
        let read: Index = serde_json::from_slice(text).context("it is not an index of plugins")?;
        ensure!(read.format == FORMAT, "its format is not `{FORMAT}`");
        ensure!(read.plugins.len() <= ENTRIES_MAX, "it has more than {ENTRIES_MAX} plugins");
        for entry in &read.plugins {
            ensure!(is_artefact_name(&entry.file), "it names the file {:?}", entry.file);
        }
        Ok(read)
    }

    /// Its text.
    ///
    /// # Errors
    /// Never: it is JSON.
    pub fn text(&self) -> Result<String> {
        nilometer_files::document::json_text(self)
    }

    /// Adds an artefact, or replaces the entry of the same version.
    pub fn add(&mut self, entry: Entry) {
        self.plugins.retain(|there| (&there.name, &there.version) != (&entry.name, &entry.version));
        self.plugins.push(entry);
        self.plugins.sort_by(|one, other| {
            one.name.cmp(&other.name).then_with(|| one.version.cmp(&other.version))
        });
    }

    /// The entry of a version of a plugin, or of the newest that is no preliminary one.
    ///
    /// # Errors
    /// When it is not there.
    pub fn find(&self, name: &str, version: Option<&Version>) -> Result<&Entry> {
        let mut of_name = self.plugins.iter().filter(|entry| entry.name == name);
        let found = match version {
            Some(version) => of_name.find(|entry| entry.version == *version),
            None => of_name.filter(|entry| entry.version.pre.is_empty()).max_by_key(|e| &e.version),
        };
        match (found, version) {
            (Some(entry), _) => Ok(entry),
            (None, Some(version)) => bail!("the code server has no {name} {version}"),
            (None, None) => bail!("the code server has no {name}"),
        }
    }
}

/// The index of a directory; an empty one where there is none yet.
///
/// # Errors
/// When it cannot be read.
pub fn of_directory(directory: &Path) -> Result<Index> {
    let path = directory.join(INDEX);
    if !path.exists() {
        return Ok(Index::default());
    }
    let text = nilometer_files::document::bounded::read_text(&path, INDEX_BYTES_MAX)?;
    Index::read(text.as_bytes()).with_context(|| path.display().to_string())
}
