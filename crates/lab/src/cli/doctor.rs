//! `nilometer doctor`.

use anyhow::Result;

use super::Verdict;

/// Arguments of `nilometer doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {}

/// Runs `nilometer doctor`.
pub fn run(_args: DoctorArgs) -> Result<Verdict> {
    anyhow::bail!("not built yet")
}
