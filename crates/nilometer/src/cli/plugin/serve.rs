//! `nilometer plugin serve`: a code server.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use clap::Args;
use nilometer_files::say;
use nilometer_lab::trial::signals::stop_flag;
use nilometer_loader::code_server::serve;
use nilometer_loader::index::of_directory;
use serde::Serialize;

use super::super::Exit;

/// Serve a directory of artefacts over HTTP, until interrupted.
///
/// Access is read-only, without TLS; artefacts are authenticated by their signatures. Requests are logged to stderr.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The directory, filled by `nilometer plugin publish`.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Address and port to listen on.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8470")]
    listen: SocketAddr,
    /// Print one JSON object at the start and one at the end.
    #[arg(long)]
    json: bool,
}

/// Where it listens, as JSON.
#[derive(Debug, Serialize)]
struct Serving {
    format: &'static str,
    url: String,
    plugins: usize,
}

/// What it answered, as JSON.
#[derive(Debug, Serialize)]
struct Served {
    format: &'static str,
    requests: u64,
}

/// Runs `nilometer plugin serve`.
pub(super) fn run(args: &ServeArgs) -> Result<Exit> {
    let stop = stop_flag()?;
    let plugins = of_directory(&args.directory)?.plugins.len();
    let listener = TcpListener::bind(args.listen);
    let listener = listener.with_context(|| format!("cannot listen at {}", args.listen))?;
    let url = format!("http://{}", listener.local_addr().context("cannot listen")?);
    if args.json {
        let format = "nilometer-plugin-serve/1";
        println!("{}", serde_json::to_string(&Serving { format, url, plugins })?);
    } else {
        println!("{url} has {plugins} artefacts; interrupt to end");
    }
    let requests = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&requests);
    serve(&args.directory, listener, &stop, move |path, status| {
        counted.fetch_add(1, Ordering::Relaxed);
        say!("{status} {path}");
    })?;
    if args.json {
        let requests = requests.load(Ordering::Relaxed);
        let format = "nilometer-plugin-served/1";
        println!("{}", serde_json::to_string(&Served { format, requests })?);
    }
    Ok(Exit::Done)
}
