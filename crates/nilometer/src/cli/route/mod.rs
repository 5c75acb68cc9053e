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
mod rsvp;
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
    /// Run a router on real interfaces from a ROUTER.toml.
    Run(run::RunArgs),
    /// Replay a recorded run in virtual time and compare every decision.
    Replay(replay::ReplayArgs),
    /// Inspect and change a running router.
    Ctl(ctl::CtlArgs),
    /// Reserve bandwidth from a host: RSVP, or one packet.
    Rsvp(rsvp::RsvpArgs),
    /// Print a ROUTER.toml with every key and its default.
    Template,
    /// Benchmark parts of the router on this machine.
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
        RouteCommand::Rsvp(args) => rsvp::run(&args),
        RouteCommand::Template => {
            print!("{}", nilometer_routerd::config::TEMPLATE);
            Ok(Exit::Done)
        }
        RouteCommand::Bench(args) => bench::run(args),
    }
}
