//! `nilometer route bench`: the router's parts, timed one by one.

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::cli::Exit;

pub mod classify;
pub mod fib;
pub mod forward;
pub mod pipeline;
pub mod plugin;

/// Arguments of `nilometer route bench`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// General match filters: headers and updates a second of the packet classifier.
    Classify(classify::ClassifyArgs),
    /// Longest match: lookups and updates a second of every forwarding table.
    Fib(fib::FibArgs),
    /// The router on links: packets a second and packets a CPU-second, beside the kernel.
    Forward(forward::ForwardArgs),
    /// The whole pipeline without devices: what a packet costs, stage by stage.
    Pipeline(pipeline::PipelineArgs),
    /// Plugins: what each packet through one costs, native and in WebAssembly, beside the pipeline without.
    Plugin(plugin::PluginArgs),
}

/// Runs `nilometer route bench`.
///
/// # Errors
/// One line with the reason.
pub fn run(args: BenchArgs) -> Result<Exit> {
    match args.command {
        BenchCommand::Classify(args) => classify::run(args),
        BenchCommand::Fib(args) => fib::run(args),
        BenchCommand::Forward(args) => forward::run(args),
        BenchCommand::Pipeline(args) => pipeline::run(args),
        BenchCommand::Plugin(args) => plugin::run(args),
    }
}

/// Each value once, in the order in which they came.
fn different<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}
