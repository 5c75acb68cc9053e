//! `nilometer plugin publish`: an artefact into a code server's directory.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use nilometer_files::document::together;
use nilometer_files::terminal::shown;
use nilometer_loader::artefact::{ARTEFACT_BYTES_MAX, BEGINNING, manifest_unverified};
use nilometer_loader::index::{Entry, INDEX, of_directory};
use serde::Serialize;

use super::super::Exit;
use super::read;

/// Add an artefact to a code server's directory and index.
///
/// The directory can be served by `nilometer plugin serve` or by any file server.
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The artefact.
    #[arg(value_name = "FILE.nmp")]
    artefact: PathBuf,
    /// The directory; created if missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What is there now, as JSON.
#[derive(Debug, Serialize)]
struct Published {
    format: &'static str,
    directory: PathBuf,
    file: String,
    plugins: Vec<Entry>,
}

/// Runs `nilometer plugin publish`.
pub(super) fn run(args: &PublishArgs) -> Result<Exit> {
    let bytes = read(&args.artefact, ARTEFACT_BYTES_MAX)?;
    let manifest = manifest_unverified(&bytes);
    let manifest = manifest.with_context(|| args.artefact.display().to_string())?;
    let mut index = of_directory(&args.directory)?;
    let file = manifest.file_name();
    let entry = Entry {
        name: manifest.name,
        version: manifest.version,
        file: file.clone(),
        bytes: bytes.len() as u64,
    };
    index.add(entry);
    let artefact = together::guard(&args.directory, file.as_ref(), &[], true, BEGINNING)?;
    let list = together::guard(&args.directory, INDEX.as_ref(), &[], true, b"{")?;
    together::write(&args.directory, &[(artefact, bytes), (list, index.text()?.into_bytes())])?;
    if args.json {
        let format = "nilometer-plugin-publish/1";
        let (directory, plugins) = (args.directory.clone(), index.plugins);
        println!("{}", serde_json::to_string(&Published { format, directory, file, plugins })?);
    } else {
        let count = index.plugins.len();
        println!("{file} is in {}, which has {count} artefacts", shown(&args.directory));
    }
    Ok(Exit::Done)
}
