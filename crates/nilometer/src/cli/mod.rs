//! The command line: what was typed, and how every command ends.
//!
//! Exit status 0 is done, 1 a negative verdict, 2 could not run (one line on stderr says what, where
//! and what to do), 130 interrupted, 141 nobody read on. With `--json` a command prints one JSON object on stdout and
//! nothing else there; progress and warnings go to stderr.

use nilometer_files::{say, tool};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

mod compare;
mod coverage;
mod device;
pub mod doctor;
mod export;
pub mod flows;
pub mod generate;
mod hosts;
mod key;
pub mod lab;
mod live;
pub mod model;
pub mod plugin;
pub mod profile;
mod receive;
pub mod report;
pub mod route;
pub mod shell;
mod side_by_side;
pub mod simulate;
mod stated;
mod stdout;
pub mod stream;
mod summary;
mod table;
mod typed;
pub mod video;
mod wiring;

/// How a command that ran came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; exit status 0.
    Done,
    /// Done, and the answer is no; exit status 1.
    Negative,
    /// Stopped by SIGINT, what was measured is kept; exit status 130.
    Interrupted,
}

/// An open router laboratory: model your traffic, play it live through a device, stamp every packet.
#[derive(Debug, Parser)]
#[command(name = "nilometer", version = VERSION, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The commit this binary was built from: twelve digits, `-dirty` behind them when its sources were
/// changed since, or `unknown`.
pub const COMMIT: &str = env!("NILOMETER_COMMIT");

/// The version, and in parentheses the commit it was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("NILOMETER_COMMIT"), ")");

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a laboratory trial on this machine: model, traffic, device, timestamps and report.
    Lab(lab::LabArgs),
    /// Convert captures and flow exports to flow records.
    Flows(flows::FlowsArgs),
    /// Estimate a traffic model from flow records.
    Model(model::ModelArgs),
    /// Play a model as live traffic.
    Generate(generate::GenerateArgs),
    /// Simulate a scenario in virtual time: queues, TCP and links, swept over parameters and seeds.
    Simulate(Box<simulate::SimulateArgs>),
    /// Compare a copy of traffic with its original.
    Compare(compare::CompareArgs),
    /// Send an open-loop stream through a device: each frame is sent at its time and stamped in the driver.
    Stream(stream::StreamArgs),
    /// Calibrate the instrument: what it adds to its measurements.
    Profile(profile::ProfileArgs),
    /// Render results as one HTML page.
    Report(report::ReportArgs),
    /// Run, control and benchmark our router.
    Route(route::RouteArgs),
    /// Build, sign, serve and install router plugins.
    Plugin(plugin::PluginArgs),
    /// Encode and decode video in wavelet sub-bands, and measure its quality.
    Video(video::VideoArgs),
    /// Check what this machine supports, and what would be skipped and why.
    Doctor(doctor::DoctorArgs),
    /// Print shell completions.
    Completions(shell::CompletionsArgs),
    /// Write manual pages, one per command, into a directory.
    Man(shell::ManArgs),
}

/// Reads the command line, runs it, and says how it ended.
pub fn main() -> ExitCode {
    stdout::mind();
    tool::name(VERSION, COMMIT);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let outcome = match cli.command {
        Command::Lab(args) => lab::run(args),
        Command::Flows(args) => flows::run(args),
        Command::Model(args) => model::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Simulate(args) => simulate::run(*args),
        Command::Compare(args) => compare::run(&args),
        Command::Stream(args) => stream::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Report(args) => report::run(args),
        Command::Route(args) => route::run(args),
        Command::Plugin(args) => plugin::run(&args),
        Command::Video(args) => video::run(&args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => shell::completions(args),
        Command::Man(args) => shell::man(args),
    };
    match outcome {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Negative) => ExitCode::from(1),
        Ok(Exit::Interrupted) => ExitCode::from(130),
        Err(error) => {
            say!("{}", error_text(&error));
            ExitCode::from(2)
        }
    }
}

/// An error and its causes, each once: what some libraries say has their cause in it already.
fn error_text(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Answers a command line that asks for help or cannot be understood.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let command = command_of(std::env::args().skip(1));
            say!("{}; see `{command} --help`", one_line(&error.to_string()));
            ExitCode::from(2)
        }
    }
}

/// What Rust says of words that are no numbers, and what we say.
const PLAINER: [(&str, &str); 5] = [
    ("invalid digit found in string", "a whole number, zero or more, is needed"),
    ("cannot parse integer from empty string", "a whole number, zero or more, is needed"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "a number is needed"),
    ("cannot parse float from empty string", "a number is needed"),
];

/// Clap's account of an error, several paragraphs, as one line: what is wrong and what was probably
/// meant, without the usage. Its advice to give a flag that there is not as a value, behind `--`, is
/// left out: nobody means that, and mostly it would be refused as well.
fn one_line(account: &str) -> String {
    let account = account.strip_prefix("error: ").unwrap_or(account);
    let is_kept = |line: &&str| !line.trim_start().starts_with("tip: to pass '");
    let paragraphs = account
        .split("\n\n")
        .filter(|p| !p.starts_with("Usage:") && !p.starts_with("For more information"))
        .map(|p| p.lines().filter(is_kept).flat_map(str::split_whitespace).collect::<Vec<_>>())
        .filter(|words| !words.is_empty())
        .map(|words| words.join(" "));
    let line = paragraphs.collect::<Vec<_>>().join("; ").replace("; tip: ", "; ");
    PLAINER.iter().fold(line, |line, (from, to)| line.replace(from, to))
}

/// The command that was typed, as far as its words are known: `nilometer lab run`.
fn command_of(words: impl Iterator<Item = String>) -> String {
    let mut command = &Cli::command();
    let mut name = "nilometer".to_owned();
    for word in words {
        let Some(subcommand) = command.find_subcommand(&word) else { break };
        name = format!("{name} {word}");
        command = subcommand;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_become_one_line_with_the_suggestion() {
        let typed = ["nilometer", "man", "--ouT", "pages"];
        let error = Cli::try_parse_from(typed).expect_err("there is no such flag");
        let line = one_line(&error.to_string());
        assert_eq!(line, "unexpected argument '--ouT' found; a similar argument exists: '--out'");
    }

    #[test]
    fn no_advice_is_given_that_does_not_help() {
        let message = |typed: &str| {
            let error = Cli::try_parse_from(typed.split(' ')).expect_err("it is refused");
            one_line(&error.to_string())
        };
        let unexpected = "unexpected argument '-x' found";
        assert_eq!(message("nilometer simulate qsdrr -x results"), unexpected);
        let lines = [
            ("lab run --seed x", "'--seed <N>': a whole number, zero or more, is needed"),
            ("lab run --duration soon", "'--duration <SECONDS>': a number is needed"),
            (
                "lab run --dut wir",
                "the devices are nilometer, linux, nftables, bridge, frr, ovs, testpmd, xdp:FILE.o, fault, external, wire",
            ),
        ];
        for (typed, end) in lines {
            let message = message(&format!("nilometer {typed}"));
            assert!(message.contains(end), "{message}");
        }
    }

    #[test]
    fn each_cause_is_printed_once() {
        let inner = anyhow::anyhow!("no space");
        assert_eq!(
            error_text(&inner.context("External: no space").context("a file")),
            "a file: External: no space"
        );
        assert_eq!(error_text(&anyhow::anyhow!("no space").context("a file")), "a file: no space");
    }

    #[test]
    fn missing_arguments_are_named_in_the_line() {
        let error = Cli::try_parse_from(["nilometer", "man"]).expect_err("--out is required");
        let line = one_line(&error.to_string());
        assert_eq!(line, "the following required arguments were not provided: --out <DIR>");
    }

    #[test]
    fn help_is_that_of_the_command_typed() {
        let words = |line: &str| command_of(line.split(' ').map(str::to_owned));
        assert_eq!(words("completions nosuchshell"), "nilometer completions");
        assert_eq!(words("nonsense man"), "nilometer");
    }
}
