//! The report: results drawn as one self-contained HTML page.
//!
//! A run writes its [`story::Story`] to `report.json`; [`page::render`] turns it into HTML with
//! inline SVG and nothing fetched from anywhere; [`verdict::Verdict`] says it in two sentences.

mod inside;
mod lenient;
mod observed;

pub mod enough;
pub mod figure;
pub mod format;
pub mod losses;
pub mod page;
pub mod plot;
pub mod policy;
pub mod script;
pub mod simulation;
pub mod story;
pub mod style;
pub mod tables;
pub mod thin;
pub mod verdict;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::document::results::Directory;

pub use page::render;
pub use story::Story;

/// The story's file in a result directory.
pub const STORY_FILE: &str = "report.json";

/// The page's file in a result directory.
pub const PAGE_FILE: &str = "report.html";

/// The most bytes of a story that are read, so that a wrong file cannot fill the memory.
const STORY_BYTES_MAX: u64 = 256 << 20;

/// Writes `report.json` and `report.html` into a directory of results.
///
/// # Errors
/// When either cannot be written; no half-written file is left behind.
pub fn save(directory: &Directory, story: &Story) -> Result<()> {
    let text = serde_json::to_string(story).context("the report cannot be written as JSON")?;
    directory.file(STORY_FILE).write(text.as_bytes())?;
    directory.file(PAGE_FILE).write(render(story).as_bytes())
}

/// Reads the story that a run left in its directory.
///
/// # Errors
/// When there is none, or it is not one that this version reads; one line says which and where.
pub fn load(dir: &Path) -> Result<Story> {
    let path = dir.join(STORY_FILE);
    let shown = path.display();
    if !dir.is_dir() {
        bail!("{} is not a directory: name the one that `lab run --out` wrote", dir.display());
    }
    let size = match fs::metadata(&path) {
        Ok(about) if about.is_file() => about.len(),
        Ok(_) => bail!("{shown} is not a file: the run writes it, repeat `lab run`"),
        Err(error) => bail!("{shown}: {error}: is this a directory that `lab run` wrote?"),
    };
    if size > STORY_BYTES_MAX {
        bail!("{shown} has {size} bytes, more than the {STORY_BYTES_MAX} a report can have");
    }
    let text = fs::read_to_string(&path).with_context(|| format!("{shown} cannot be read"))?;
    let value: serde_json::Value = serde_json::from_str(&text)
        .with_context(|| format!("{shown} is not the report of a run, repeat `lab run`"))?;
    match value.get("format").and_then(serde_json::Value::as_str) {
        Some(story::FORMAT) => {}
        Some(other) => {
            bail!("{shown} has the format {other:?}, this version reads {:?}", story::FORMAT)
        }
        None => bail!("{shown} names no format, this version reads {:?}", story::FORMAT),
    }
    serde_json::from_value(value)
        .with_context(|| format!("{shown} is not the report of a run, repeat `lab run`"))
}
