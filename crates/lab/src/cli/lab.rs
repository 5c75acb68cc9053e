//! `nilometer lab`.

use anyhow::Result;

use super::Verdict;

/// Arguments of `nilometer lab`.
#[derive(Debug, clap::Args)]
pub struct LabArgs {}

/// Runs `nilometer lab`.
pub fn run(_args: LabArgs) -> Result<Verdict> {
    anyhow::bail!("not built yet")
}
