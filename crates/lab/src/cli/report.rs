//! `nilometer report`.

use anyhow::Result;

use super::Verdict;

/// Arguments of `nilometer report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {}

/// Runs `nilometer report`.
pub fn run(_args: ReportArgs) -> Result<Verdict> {
    anyhow::bail!("not built yet")
}
