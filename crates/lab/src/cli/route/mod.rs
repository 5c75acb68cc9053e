//! `nilometer route`: the router we built.

use anyhow::Result;
use clap::{Args, Subcommand};

use super::Verdict;

pub mod bench;

/// Arguments of `nilometer route`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct RouteArgs {
    #[command(subcommand)]
    command: RouteCommand,
}

#[derive(Debug, Subcommand)]
enum RouteCommand {
    /// How fast the router's parts are on this machine.
    Bench(bench::BenchArgs),
}

/// Runs `nilometer route`.
///
/// # Errors
/// One line with the reason.
pub fn run(args: RouteArgs) -> Result<Verdict> {
    match args.command {
        RouteCommand::Bench(args) => bench::run(args),
    }
}
