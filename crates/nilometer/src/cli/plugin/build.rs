//! `nilometer plugin build`: a crate, or text, into a module of WebAssembly that a router would take.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use nilometer_files::document::guard_output;
use nilometer_loader::artefact::digest;
use nilometer_loader::build::{Compiler, build};
use nilometer_loader::{Limits, WasmClass, wasm};
use nilometer_router::plugin::Class;
use serde::Serialize;

use super::super::Exit;
use super::super::table::fact;
use super::read;

/// Compile a plugin crate, or WebAssembly text, into a module.
///
/// Uses your compiler if it has the target wasm32-unknown-unknown, otherwise Debian's rustc-web. The module is then
/// loaded as a router would load it, so that errors are found now.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The crate's directory, or a .wat or .wasm file.
    #[arg(value_name = "DIR|FILE", default_value = ".")]
    input: PathBuf,
    /// Output file [default: NAME.wasm in the crate's directory, or beside the input file].
    #[arg(short, long, value_name = "FILE.wasm")]
    output: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The module, as JSON.
#[derive(Debug, Serialize)]
struct Built {
    format: &'static str,
    name: String,
    version: String,
    interface: u32,
    seen_bytes: u16,
    counters: Vec<String>,
    compiler: &'static str,
    module: PathBuf,
    bytes: usize,
    sha256: String,
}

/// Runs `nilometer plugin build`.
pub(super) fn run(args: &BuildArgs) -> Result<Exit> {
    let ending = args.input.extension().and_then(|ending| ending.to_str());
    let bytes_max = Limits::MOST.module_bytes;
    let (module, compiler, folder) = match ending.filter(|_| !args.input.is_dir()) {
        Some("wat") => {
            let text = read(&args.input, bytes_max)?;
            let module =
                wasm::from_text(&text).map_err(|why| anyhow!("{}: {why}", args.input.display()))?;
            (module, "wat", args.input.parent())
        }
        Some("wasm") => (read(&args.input, bytes_max)?, "none", args.input.parent()),
        _ => {
            let compiler = Compiler::find()?;
            let made = build(&args.input, &compiler)?;
            (read(&made, bytes_max)?, compiler.name(), Some(args.input.as_path()))
        }
    };
    let class = WasmClass::load(&module, &Limits::MOST);
    let class = class.with_context(|| args.input.display().to_string())?;
    let facts = class.facts().clone();
    let usual = || folder.unwrap_or(Path::new("")).join(format!("{}.wasm", facts.name));
    let output = args.output.clone().unwrap_or_else(usual);
    if output != args.input {
        guard_output(&output, &[], true, b"\0asm")?.write(&module)?;
    }
    let built = Built {
        format: "nilometer-plugin-build/1",
        name: facts.name,
        version: facts.version,
        interface: wasm::INTERFACE,
        seen_bytes: facts.seen_bytes,
        counters: class.counters().to_vec(),
        compiler,
        bytes: module.len(),
        sha256: digest(&module),
        module: output,
    };
    if args.json {
        println!("{}", serde_json::to_string(&built)?);
    } else {
        let name = format_args!("{} {}", built.name, built.version);
        let module = format_args!("{}, {} bytes", built.module.display(), built.bytes);
        print!("{}{}", fact("plugin", name), fact("module", module));
        print!("{}", fact("seen of a packet", format_args!("{} bytes", built.seen_bytes)));
    }
    Ok(Exit::Done)
}
