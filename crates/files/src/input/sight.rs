//! An input given in the place of another document, recognised by its first bytes.

use std::path::Path;

use anyhow::{Result, bail};

use super::open::{self, Input};

/// The kind of input that a regular file is; `None` if it is not an input, or is text, as documents
/// are.
pub fn kind(path: &Path) -> Option<&'static str> {
    // (The content of a pipe can be read only once.)
    if !path.is_file() {
        return None;
    }
    match open::open(path, false).ok()?.1 {
        Input::Capture(capture) => Some(match capture.container() {
            "pcapng" => "a capture (pcapng)",
            _ => "a capture (pcap)",
        }),
        Input::Exports(_) => Some("a file of flow exports"),
        Input::Archive(..) => Some("a file of flow records"),
        Input::FlowTable(..) => Some("a table of flow records"),
        Input::Text(..) => None,
    }
}

/// Refuses an input in the place of `wanted`.
///
/// # Errors
/// If it is one; the error names its kind and how to give it.
pub fn refuse_input(path: &Path, wanted: &str) -> Result<()> {
    let shown = path.display();
    match kind(path) {
        // An input whose name ends in .toml needs a flag, to distinguish it from a LAB.toml.
        Some(kind) => bail!(
            "{shown}: this is {kind}, not {wanted}; give it as an input: `nilometer lab run --input \
             {shown}`"
        ),
        None => Ok(()),
    }
}
