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
    /// A new plugin: a crate that builds without a network.
    New(new::NewArgs),
    /// A plugin's crate, or WebAssembly as text, into a module.
    Build(build::BuildArgs),
    /// A module into a signed artefact.
    Sign(sign::SignArgs),
    /// An artefact into a code server's directory.
    Publish(publish::PublishArgs),
    /// A directory of artefacts by HTTP.
    Serve(serve::ServeArgs),
    /// An artefact, from a file or a code server, to where the router takes plugins from.
    Install(install::InstallArgs),
    /// A plugin to a flow of a running router.
    Bind(bind::BindArgs),
    /// The plugins that are there.
    List(list::ListArgs),
    /// Keys that sign, keys that are trusted, and what is revoked.
    Key(key::KeyArgs),
}

/// Where the router takes plugins from.
#[derive(Debug, Args)]
struct StoreArgs {
    /// Directory of installed plugins and trusted keys [default: /var/lib/nilometer/plugins for root,
    /// ~/.local/share/nilometer/plugins for others, or what NILOMETER_PLUGINS says].
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
