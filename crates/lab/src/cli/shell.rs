//! `nilometer completions` and `nilometer man`: generated from the same definitions as the parser.

use anyhow::Result;

use super::Verdict;

/// Arguments of `nilometer completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {}

/// Arguments of `nilometer man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {}

/// Prints completions.
pub fn completions(_args: CompletionsArgs) -> Result<Verdict> {
    anyhow::bail!("not built yet")
}

/// Writes manual pages.
pub fn man(_args: ManArgs) -> Result<Verdict> {
    anyhow::bail!("not built yet")
}
