//! The document of a traffic model, read.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use nilometer_traffic::TrafficModel;

use super::{bounded, json_of};

/// Reads a model and checks everything that the planner relies on.
pub fn read_model(path: &Path) -> Result<TrafficModel> {
    let what = "this is not a traffic model as `nilometer model` writes it";
    let text = bounded::read_text(path, bounded::JSON_BYTES_MAX)?;
    let model: TrafficModel = json_of(path, &text).context(what)?;
    model.check().map_err(|error| anyhow!("{}: {error}", path.display()))?;
    Ok(model)
}
