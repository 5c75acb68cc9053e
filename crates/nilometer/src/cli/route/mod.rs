//! `nilometer route`: the router we built.

use anyhow::Result;
use clap::{Args, Subcommand};

use super::Exit;

pub mod bench;
pub mod ctl;
mod list;
mod listed;
mod plugins;
mod question;
pub mod replay;
mod reservations;
pub mod run;
mod shown;
mod tables;
mod watch;

pub use tables::filter;

/// Arguments of `nilometer route`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct RouteArgs {
    #[command(subcommand)]
    command: RouteCommand,
}

#[derive(Debug, Subcommand)]
enum RouteCommand {
    /// A router on real interfaces, from its file.
    Run(run::RunArgs),
    /// A recorded router again, in virtual time, compared decision by decision.
    Replay(replay::ReplayArgs),
    /// Looks at a running router and changes it.
    Ctl(ctl::CtlArgs),
    /// A router's description with every key and its default.
    Template,
    /// How fast the router's parts are on this machine.
    Bench(bench::BenchArgs),
}

/// Runs `nilometer route`.
///
/// # Errors
/// One line with the reason.
pub fn run(args: RouteArgs) -> Result<Exit> {
    match args.command {
        RouteCommand::Run(args) => run::run(args),
        RouteCommand::Replay(args) => replay::run(&args),
        RouteCommand::Ctl(args) => ctl::run(args),
        RouteCommand::Template => {
            print!("{}", nilometer_routerd::config::TEMPLATE);
            Ok(Exit::Done)
        }
        RouteCommand::Bench(args) => bench::run(args),
    }
}
