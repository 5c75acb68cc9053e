//! `nilometer plugin new`: a crate to begin with.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use nilometer_files::document::together;
use nilometer_loader::sdk::files;
use serde::Serialize;

use super::super::Exit;

/// Create a new plugin crate, which builds offline.
///
/// The template counts packets and drops those with a given DSCP, and has a test; `nilometer plugin build` compiles
/// it.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// Plugin name: lower-case letters, digits and hyphens.
    #[arg(value_name = "NAME")]
    name: String,
    /// Output directory [default: NAME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What was made, as JSON.
#[derive(Debug, Serialize)]
struct Made {
    format: &'static str,
    name: String,
    directory: PathBuf,
    files: Vec<String>,
}

/// Runs `nilometer plugin new`.
pub(super) fn run(args: &NewArgs) -> Result<Exit> {
    let files = files(&args.name).map_err(|why| anyhow!("{why}"))?;
    let directory = args.out.clone().unwrap_or_else(|| args.name.clone().into());
    ensure!(!directory.exists(), "{} is there already", directory.display());
    let mut names = Vec::new();
    for (path, text) in files {
        let whole = directory.join(&path);
        let (folder, name) = (whole.parent().unwrap_or(Path::new("")), whole.file_name());
        let name = Path::new(name.expect("a file has a name"));
        let output = together::guard(folder, name, &[], false, b"")?;
        together::write(folder, &[(output, text)])?;
        names.push(path);
    }
    let shown = directory.display().to_string();
    if args.json {
        let (format, name) = ("nilometer-plugin-new/1", args.name.clone());
        let made = Made { format, name, directory, files: names };
        println!("{}", serde_json::to_string(&made)?);
    } else {
        println!("{shown}: edit src/lib.rs, then `nilometer plugin build {shown}`");
    }
    Ok(Exit::Done)
}
