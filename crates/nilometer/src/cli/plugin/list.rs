//! `nilometer plugin list`: the plugins that are there.

use anyhow::Result;
use clap::Args;
use nilometer_loader::builtin;
use serde::Serialize;

use super::super::Exit;
use super::super::table::{Side, row, table};
use super::StoreArgs;

/// List built-in and installed plugins.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// A plugin, as JSON.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    version: String,
    engine: &'static str,
    /// Who signed it.
    key: Option<String>,
    sha256: Option<String>,
    /// Why it may not run.
    refused: Option<String>,
}

/// All of them, as JSON.
#[derive(Debug, Serialize)]
struct List {
    format: &'static str,
    plugins: Vec<Listed>,
}

/// Runs `nilometer plugin list`.
pub(super) fn run(args: &ListArgs) -> Result<Exit> {
    let native = builtin().into_iter().map(|class| {
        let facts = class.facts().clone();
        let (name, version, engine) = (facts.name, facts.version, facts.engine.name());
        Listed { name, version, engine, key: None, sha256: None, refused: None }
    });
    let mut plugins: Vec<Listed> = native.collect();
    for (path, artefact) in args.store.store().list()? {
        plugins.push(match artefact {
            Ok(artefact) => Listed {
                name: artefact.manifest.name,
                version: artefact.manifest.version.to_string(),
                engine: "wasm",
                key: Some(artefact.key.to_string()),
                sha256: Some(artefact.manifest.sha256),
                refused: None,
            },
            Err(error) => Listed {
                name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                version: String::new(),
                engine: "wasm",
                key: None,
                sha256: None,
                refused: Some(format!("{error:#}")),
            },
        });
    }
    if args.json {
        let list = List { format: "nilometer-plugin-list/1", plugins };
        println!("{}", serde_json::to_string(&list)?);
        return Ok(Exit::Done);
    }
    let mut rows = vec![row(["plugin", "version", "engine", "signed by"])];
    for plugin in &plugins {
        let by = plugin.refused.as_ref().or(plugin.key.as_ref());
        let by = by.map_or("-", String::as_str);
        rows.push(row([&plugin.name, &plugin.version, plugin.engine, by]));
    }
    print!("{}", table(&[Side::Left], &rows));
    Ok(Exit::Done)
}
