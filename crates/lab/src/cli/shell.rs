//! `nilometer completions` and `nilometer man`: generated from the same definitions as the parser.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::{Cli, Verdict};

/// Arguments of `nilometer completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell to complete for.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Arguments of `nilometer man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The directory the pages go to; made where it is missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Prints the completions of the chosen shell on stdout.
pub fn completions(args: CompletionsArgs) -> Result<Verdict> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "nilometer", &mut script);
    print!("{}", String::from_utf8(script).context("completions are text")?);
    Ok(Verdict::Done)
}

/// Writes one manual page for each command and each of its subcommands, section 1.
pub fn man(args: ManArgs) -> Result<Verdict> {
    let out = args.out.display();
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the directory {out} for the manual pages"))?;
    clap_mangen::generate_to(Cli::command(), &args.out)
        .with_context(|| format!("cannot write the manual pages to {out}"))?;
    eprintln!("manual pages are in {out}; read one with `man -l {out}/nilometer.1`");
    Ok(Verdict::Done)
}
