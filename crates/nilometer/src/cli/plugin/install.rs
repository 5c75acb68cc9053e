//! `nilometer plugin install`: an artefact to where the router takes plugins from.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use nilometer_loader::artefact::{ARTEFACT_BYTES_MAX, Manifest};
use nilometer_loader::fetch::CodeServer;
use semver::Version;
use serde::Serialize;

use super::super::Exit;
use super::super::table::fact;
use super::{StoreArgs, read};

/// Install an artefact, from a file or a code server, for the router.
///
/// It is refused unless it is signed by a trusted key, its digest matches and its module loads, or if a newer one was
/// installed before.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// A .nmp file; with --from the plugin's name, NAME or NAME@VERSION.
    #[arg(value_name = "FILE.nmp|NAME[@VERSION]")]
    source: String,
    /// The code server, http://HOST:PORT.
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// Timeout for each file from the server, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    within: u64,
    /// Also accept an older version than installed before.
    #[arg(long)]
    allow_downgrade: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What was installed, as JSON.
#[derive(Debug, Serialize)]
struct Installed {
    format: &'static str,
    key: String,
    manifest: Manifest,
}

/// Runs `nilometer plugin install`.
pub(super) fn run(args: &InstallArgs) -> Result<Exit> {
    let store = args.store.store();
    let artefact = match &args.from {
        None => {
            let bytes = read(Path::new(&args.source), ARTEFACT_BYTES_MAX)?;
            store.install(&bytes, None, args.allow_downgrade)
        }
        Some(url) => {
            let server = CodeServer::at(url, Duration::from_secs(args.within))?;
            let (name, version) = match args.source.split_once('@') {
                Some((name, version)) => {
                    let read: Result<Version, _> = version.parse();
                    (name, Some(read.with_context(|| format!("`{version}` is not a version"))?))
                }
                None => (args.source.as_str(), None),
            };
            let bytes = server.artefact(name, version.as_ref())?;
            store.install(&bytes, Some((name, version.as_ref())), args.allow_downgrade)
        }
    };
    let artefact = artefact.with_context(|| args.source.clone())?;
    let (key, manifest) = (artefact.key.to_string(), artefact.manifest);
    if args.json {
        let format = "nilometer-plugin-install/1";
        println!("{}", serde_json::to_string(&Installed { format, key, manifest })?);
    } else {
        let name = format_args!("{} {}", manifest.name, manifest.version);
        print!("{}{}", fact("installed", name), fact("signed by", key));
    }
    Ok(Exit::Done)
}
