//! `nilometer report`: draws the page of a run again from what the run left.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Exit;
use nilometer_files::document::{self, results};
use nilometer_files::terminal::shown;
use nilometer_report as report;

/// Arguments of `nilometer report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Directory of results from `lab run --out`.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Output file; DIR/report.html by default.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of the path.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer report`.
pub fn run(args: ReportArgs) -> Result<Exit> {
    let story = report::load(&args.dir)?;
    let usual = args.dir.join(report::PAGE_FILE);
    let page = args.out.unwrap_or_else(|| usual.clone());
    let text = report::render(&story);
    let is_usual = page == usual || is_same_place(&page, &usual);
    if !is_usual || !results::redraw(&args.dir, report::PAGE_FILE, text.as_bytes())? {
        document::guard_output(&page, &[], true, report::page::BEGINNING.as_bytes())?
            .write(text.as_bytes())?;
    }
    let page = page
        .canonicalize()
        .with_context(|| format!("{} was written, and has been removed since", page.display()))?;
    if args.json {
        let verdict = report::verdict::Headline::of(&story).plain();
        println!("{}", serde_json::json!({ "report": page, "verdict": verdict }));
    } else {
        println!("{}", shown(&page));
    }
    Ok(Exit::Done)
}

/// Whether two names are of one file, there or not.
fn is_same_place(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    };
    place(one).is_some_and(|one| Some(one) == place(other))
}
