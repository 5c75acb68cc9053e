//! `nilometer plugin sign`: a module into an artefact.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use nilometer_files::document::bounded::{TOKEN_BYTES_MAX, read_text};
use nilometer_files::document::together;
use nilometer_loader::artefact::{BEGINNING, Manifest, now_s, sign};
use nilometer_loader::keys::SecretKey;
use nilometer_loader::{Limits, WasmClass};
use nilometer_router::plugin::Class;
use serde::Serialize;

use super::super::Exit;
use super::super::table::fact;
use super::read;

/// Sign a module, which makes an artefact `NAME-VERSION.nmp`.
///
/// The manifest contains the module's name, version, digest and limits. Its sequence number increases with every
/// signature: a router refuses an artefact with a lower number than the installed one.
#[derive(Debug, Args)]
pub struct SignArgs {
    /// The module.
    #[arg(value_name = "FILE.wasm")]
    module: PathBuf,
    /// The secret key, from `nilometer plugin key new`.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Output directory.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Sequence number [default: seconds since 1970].
    #[arg(long, value_name = "N")]
    sequence: Option<u64>,
    /// Days until the artefact expires; it cannot be installed afterwards.
    #[arg(long, value_name = "DAYS")]
    expires_days: Option<u32>,
    /// Memory limit of an instance, MiB.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u16).range(1..=256))]
    memory_mib: Option<u16>,
    /// Instruction limit of a call, to which packets add.
    #[arg(long, value_name = "N")]
    call_instructions: Option<u64>,
    /// Instructions added to the limit for each packet.
    #[arg(long, value_name = "N")]
    packet_instructions: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The artefact, as JSON.
#[derive(Debug, Serialize)]
struct Signed {
    format: &'static str,
    artefact: PathBuf,
    bytes: usize,
    key: String,
    manifest: Manifest,
}

/// Runs `nilometer plugin sign`.
pub(super) fn run(args: &SignArgs) -> Result<Exit> {
    let usual = Limits::default();
    let limits = Limits {
        memory_bytes: args.memory_mib.map_or(usual.memory_bytes, |mib| usize::from(mib) << 20),
        call_instructions: args.call_instructions.unwrap_or(usual.call_instructions),
        packet_instructions: args.packet_instructions.unwrap_or(usual.packet_instructions),
        module_bytes: Limits::MOST.module_bytes,
        ..usual
    };
    let most = limits.within(&Limits::MOST);
    ensure!(limits == most, "no plugin may have more than {:?}", Limits::MOST);
    let module = read(&args.module, limits.module_bytes)?;
    let class = WasmClass::load(&module, &limits);
    let class = class.with_context(|| args.module.display().to_string())?;
    let facts = class.facts();
    let version = facts.version.parse().with_context(|| {
        format!(
            "the version `{}` does not follow semantic versioning, such as 1.2.3",
            facts.version
        )
    })?;
    let key = SecretKey::read(&read_text(&args.key, TOKEN_BYTES_MAX)?);
    let key = key.with_context(|| args.key.display().to_string())?;
    let mut manifest = Manifest::new(&facts.name, version, &module, &limits);
    manifest.sequence = args.sequence.unwrap_or(manifest.sequence);
    manifest.expires_s = args.expires_days.map(|days| now_s() + u64::from(days) * 86_400);
    let artefact = sign(&manifest, &module, &key);
    let name = manifest.file_name();
    let output = together::guard(&args.out, name.as_ref(), &[], true, BEGINNING)?;
    together::write(&args.out, &[(output, &artefact)])?;
    let path = args.out.join(&name);
    if args.json {
        let format = "nilometer-plugin-sign/1";
        let (bytes, key) = (artefact.len(), key.id().to_string());
        let signed = Signed { format, artefact: path, bytes, key, manifest };
        println!("{}", serde_json::to_string(&signed)?);
    } else {
        let bytes = format_args!("{}, {} bytes", path.display(), artefact.len());
        print!("{}{}", fact("artefact", bytes), fact("key", key.id()));
    }
    Ok(Exit::Done)
}
