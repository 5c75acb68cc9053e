//! Captures observed, to be held against others.

use std::path::PathBuf;

use anyhow::{Result, bail};
use nilometer_conversation::Limits;
use nilometer_likeness::{Observed, Observer};

use super::records::{FlowOptions, Progress, read_watched};
use super::summary::FlowSummary;

/// What captures hold, and what reading them came to.
///
/// # Errors
/// When an input cannot be read, or holds no TCP packet.
pub fn observe(
    inputs: &[PathBuf],
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(Observed, FlowSummary)> {
    let mut observer = Observer::new(Limits::default());
    let options = FlowOptions { counts_connections: false, ..FlowOptions::default() };
    let summary = read_watched(
        inputs,
        &options,
        progress,
        &mut |_| Ok(()),
        Some(&mut |stamp_ns, packet| observer.observe(stamp_ns, packet)),
    )?;
    let observed = observer.finish();
    if observed.connections.is_empty() {
        let names: Vec<&str> = summary.inputs.iter().map(|input| input.name.as_str()).collect();
        bail!(
            "{}: holds no TCP packet ({} packets were read); a comparison is made of captures with some",
            names.join(", "),
            summary.packets
        );
    }
    Ok((observed, summary))
}
