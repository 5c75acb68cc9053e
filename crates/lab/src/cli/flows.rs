//! `nilometer flows`.

use anyhow::Result;

use super::Verdict;

/// Arguments of `nilometer flows`.
#[derive(Debug, clap::Args)]
pub struct FlowsArgs {}

/// Runs `nilometer flows`.
pub fn run(_args: FlowsArgs) -> Result<Verdict> {
    anyhow::bail!("not built yet")
}
