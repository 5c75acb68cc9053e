//! `nilometer generate`.

use anyhow::Result;

use super::Verdict;

/// Arguments of `nilometer generate`.
#[derive(Debug, clap::Args)]
pub struct GenerateArgs {}

/// Runs `nilometer generate`.
pub fn run(_args: GenerateArgs) -> Result<Verdict> {
    anyhow::bail!("not built yet")
}
