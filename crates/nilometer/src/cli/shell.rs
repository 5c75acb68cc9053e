//! `nilometer completions` and `nilometer man`: generated from the same definitions as the parser.

use nilometer_files::say;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::{Cli, Exit};
use nilometer_files::document::together;

/// Arguments of `nilometer completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell to generate completions for.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Arguments of `nilometer man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Output directory; created if missing.
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

/// Prints the completions of the chosen shell on stdout.
pub fn completions(args: CompletionsArgs) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "nilometer", &mut script);
    print!("{}", String::from_utf8(script).context("completions are text")?);
    Ok(Exit::Done)
}

/// Writes one manual page for each command and each of its subcommands, section 1: all or none.
pub fn man(args: ManArgs) -> Result<Exit> {
    let out = args.out.display();
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages)?;
    let mut files = Vec::new();
    for (name, page) in pages {
        files.push((together::guard(&args.out, &name, &[], true, beginning(&page))?, page));
    }
    together::write(&args.out, &files)?;
    say!("manual pages are in {out}; read one with `man -l {out}/nilometer.1`");
    Ok(Exit::Done)
}

/// A page up to its version, which names the page.
fn beginning(page: &[u8]) -> &[u8] {
    let quote = page.iter().position(|byte| *byte == b'"');
    &page[..quote.unwrap_or(page.len())]
}

/// The pages of a built command and of all below it, with their names.
fn add_pages(command: &clap::Command, pages: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        add_pages(subcommand, pages)?;
    }
    let (page, mut text) = (clap_mangen::Man::new(command.clone()), Vec::new());
    page.render(&mut text).context("a manual page cannot be drawn")?;
    pages.push((page.get_filename().into(), text));
    Ok(())
}
