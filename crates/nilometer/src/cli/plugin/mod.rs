//! `nilometer plugin`: plugins of the router made, signed, served and installed.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use nilometer_linux::system_file::within;
use nilometer_loader::Store;

use super::Exit;

mod bind;
mod build;
mod install;
mod key;
mod list;
mod new;
mod publish;
mod serve;
mod sign;

/// Arguments of `nilometer plugin`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct PluginArgs {
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// Create a new plugin crate, which builds offline.
    New(new::NewArgs),
    /// Compile a plugin crate, or WebAssembly text, into a module.
    Build(build::BuildArgs),
    /// Sign a module, which makes an artefact.
    Sign(sign::SignArgs),
    /// Add an artefact to a code server's directory.
    Publish(publish::PublishArgs),
    /// Serve a directory of artefacts over HTTP.
    Serve(serve::ServeArgs),
    /// Install an artefact, from a file or a code server, for the router.
    Install(install::InstallArgs),
    /// Process a flow of a running router by a plugin.
    Bind(bind::BindArgs),
    /// List built-in and installed plugins.
    List(list::ListArgs),
    /// Manage signing keys, trusted keys and revocations.
    Key(key::KeyArgs),
}

/// Plugin store.
#[derive(Debug, Args)]
struct StoreArgs {
    /// Directory of installed plugins and trusted keys [default: NILOMETER_PLUGINS, else /var/lib/nilometer/plugins
    /// for root, ~/.local/share/nilometer/plugins for others].
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
}

impl StoreArgs {
    fn store(&self) -> Store {
        Store::new(&self.store.clone().unwrap_or_else(Store::usual_directory))
    }
}

/// A file, within a limit.
fn read(path: &Path, bytes_max: usize) -> Result<Vec<u8>> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let bytes = within(file, bytes_max as u64).with_context(|| format!("cannot read {shown}"))?;
    bytes.with_context(|| format!("{shown} has more than {bytes_max} bytes"))
}

/// Runs `nilometer plugin`.
///
/// # Errors
/// One line with the reason.
pub fn run(args: &PluginArgs) -> Result<Exit> {
    match &args.command {
        PluginCommand::New(args) => new::run(args),
        PluginCommand::Build(args) => build::run(args),
        PluginCommand::Sign(args) => sign::run(args),
        PluginCommand::Publish(args) => publish::run(args),
        PluginCommand::Serve(args) => serve::run(args),
        PluginCommand::Install(args) => install::run(args),
        PluginCommand::Bind(args) => bind::run(args),
        PluginCommand::List(args) => list::run(args),
        PluginCommand::Key(args) => key::run(args),
    }
}
