//! HTML reports: results as one self-contained page.
//!
//! A run writes its [`story::Story`] to `report.json`; [`page::render`] turns it into HTML with
//! inline SVG and nothing fetched from anywhere; [`verdict::Headline`] sums it up in two sentences.

mod inside;
mod lenient;
pub mod likeness;
mod observed;

pub mod comparison;
pub mod enough;
pub mod figure;
pub mod format;
pub mod heading;
pub mod losses;
pub mod page;
pub mod picture;
pub mod plot;
pub mod policy;
pub mod script;
pub mod story;
pub mod style;
pub mod tables;
pub mod thin;
pub mod verdict;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use nilometer_files::document::bounded::read_text;
use nilometer_files::document::results::Directory;

pub use page::render;
pub use story::Story;

/// The story's file in a result directory.
pub const STORY_FILE: &str = "report.json";

/// The page's file in a result directory.
pub const PAGE_FILE: &str = "report.html";

/// Bytes of a story at most.
const STORY_BYTES_MAX: u64 = 256 << 20;

/// The first member of a story: the version of the format in which it is to be read.
#[derive(Deserialize)]
struct Mark {
    format: Option<String>,
}

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
    match fs::metadata(&path) {
        Ok(about) if about.is_file() => {}
        Ok(_) => bail!("{shown} is not a file: the run writes it, repeat `lab run`"),
        Err(error) => bail!("{shown}: {error}: is this a directory that `lab run` wrote?"),
    }
    let text = read_text(&path, STORY_BYTES_MAX)?;
    let mark: Mark = serde_json::from_str(&text)
        .with_context(|| format!("{shown} is not the report of a run, repeat `lab run`"))?;
    match mark.format.as_deref() {
        Some(story::FORMAT) => {}
        Some(other) => {
            bail!("{shown} has the format {other:?}, this version reads {:?}", story::FORMAT)
        }
        None => bail!("{shown} names no format, this version reads {:?}", story::FORMAT),
    }
    serde_json::from_str(&text)
        .with_context(|| format!("{shown} is not the report of a run, repeat `lab run`"))
}
