//! `nilometer report`: draws the page of a run again from what the run left.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::Verdict;
use crate::document;
use crate::report;

/// Arguments of `nilometer report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Directory of results, as `lab run --out` wrote it.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where the page goes; DIR/report.html by default.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of the path alone.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer report`.
pub fn run(args: ReportArgs) -> Result<Verdict> {
    let story = report::load(&args.dir)?;
    let page = args.out.unwrap_or_else(|| args.dir.join(report::PAGE_FILE));
    document::guard_output(&page, &[], true, b"<!doctype html>")?;
    document::write_whole(&page, report::render(&story).as_bytes())?;
    let page = page
        .canonicalize()
        .with_context(|| format!("{} was written and is gone again", page.display()))?;
    if args.json {
        let verdict = report::verdict::Verdict::of(&story).plain();
        println!("{}", serde_json::json!({ "report": page, "verdict": verdict }));
    } else {
        println!("{}", page.display());
    }
    Ok(Verdict::Done)
}
