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
    /// Benchmark the packet classifier: lookups and updates per second.
    Classify(classify::ClassifyArgs),
    /// Benchmark the forwarding tables: longest prefix matches and updates per second.
    Fib(fib::FibArgs),
    /// Benchmark the router on links: packets per second and per CPU-second, compared with the kernel.
    Forward(forward::ForwardArgs),
    /// Benchmark the whole pipeline without devices: the cost of a packet, stage by stage.
    Pipeline(pipeline::PipelineArgs),
    /// Benchmark plugins: the cost per packet, native and in WebAssembly, compared with the pipeline alone.
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
