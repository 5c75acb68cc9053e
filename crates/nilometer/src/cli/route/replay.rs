//! `nilometer route replay`: a recorded router again, in virtual time.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use nilometer_routerd::recording::replay::{Replayed, replay};

use crate::cli::Exit;

/// Replay in virtual time a recording of `route run --record`, and compare every decision: output ports and order of
/// frames, congestion marks, drops and their reasons.
///
/// Needs no privileges and no interfaces. Exit status 1 if a decision differs or the recording is truncated.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The recording.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Use another seed than the recorded one.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Print the comparison as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer route replay`.
///
/// # Errors
/// When the file is no recording, or damaged.
pub fn run(args: &ReplayArgs) -> Result<Exit> {
    let shown = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot read {shown}"))?;
    let done = replay(BufReader::with_capacity(1 << 20, file), args.seed);
    let done = done.with_context(|| format!("{shown}"))?;
    match args.json {
        true => println!("{}", serde_json::to_string(&done)?),
        false => print!("{}", text(&done)),
    }
    let is_same = done.differences == 0 && done.complete;
    Ok(if is_same { Exit::Done } else { Exit::Negative })
}

/// What came of it, for people.
fn text(done: &Replayed) -> String {
    let mut text = format!(
        "{} decisions, {} drops among them, {} frames marked: {} differences\n",
        done.decisions, done.drops, done.marks, done.differences
    );
    if let Some(first) = &done.first_difference {
        let port = first.port.as_ref().map_or(String::new(), |port| format!(" (port {port})"));
        text += &format!(
            "the first at event {}, {:.9} s, {}{port}: {}\n",
            first.event, first.at_s, first.input, first.what
        );
    }
    if !done.complete {
        text += "the recording is truncated: the router did not stop cleanly\n";
    }
    text
}
