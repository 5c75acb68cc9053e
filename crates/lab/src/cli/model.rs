//! `nilometer model`.

use anyhow::Result;

use super::Verdict;

/// Arguments of `nilometer model`.
#[derive(Debug, clap::Args)]
pub struct ModelArgs {}

/// Runs `nilometer model`.
pub fn run(_args: ModelArgs) -> Result<Verdict> {
    anyhow::bail!("not built yet")
}
