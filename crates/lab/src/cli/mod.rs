//! The command line: what was typed, and how every command ends.
//!
//! Exit status 0 is done, 1 a negative verdict, 2 could not run (one line on stderr says what, where
//! and what to do), 130 interrupted. With `--json` a command prints one JSON object on stdout and
//! nothing else there; progress and warnings go to stderr.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod doctor;
pub mod flows;
pub mod generate;
pub mod lab;
pub mod model;
pub mod report;
pub mod shell;

/// How a command that ran came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done; exit status 0.
    Done,
    /// Done, and the answer is no; exit status 1.
    Negative,
    /// Stopped by SIGINT, what was measured is kept; exit status 130.
    Interrupted,
}

/// An open router laboratory: learn your traffic, play it live through a device, stamp every packet.
#[derive(Debug, Parser)]
#[command(name = "nilometer", version = VERSION, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The version and the commit it was built from.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Subcommand)]
enum Command {
    /// The main job: model, traffic, device, stamps and report, on one machine.
    Lab(lab::LabArgs),
    /// Captures and flow exports into flow records.
    Flows(flows::FlowsArgs),
    /// Flow records into a traffic model.
    Model(model::ModelArgs),
    /// A model into live traffic.
    Generate(generate::GenerateArgs),
    /// Results into one HTML page.
    Report(report::ReportArgs),
    /// What this machine can do, and what would be skipped and why.
    Doctor(doctor::DoctorArgs),
    /// Shell completions on stdout.
    Completions(shell::CompletionsArgs),
    /// Manual pages, one for each command, into a directory.
    Man(shell::ManArgs),
}

/// Reads the command line, runs it, and says how it ended.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Lab(args) => lab::run(args),
        Command::Flows(args) => flows::run(args),
        Command::Model(args) => model::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Report(args) => report::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => shell::completions(args),
        Command::Man(args) => shell::man(args),
    };
    match outcome {
        Ok(Verdict::Done) => ExitCode::SUCCESS,
        Ok(Verdict::Negative) => ExitCode::from(1),
        Ok(Verdict::Interrupted) => ExitCode::from(130),
        Err(error) => {
            eprintln!("nilometer: {error:#}");
            ExitCode::from(2)
        }
    }
}
