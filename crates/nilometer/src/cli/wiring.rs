//! `nilometer lab wiring`: what an external device must be set up with, and whether it is; and the process that holds
//! its interfaces.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use nilometer_files::say;
use nilometer_files::terminal::plain;
use nilometer_lab::trial::config::{DutKind, LabConfig};
use nilometer_lab::trial::leg;
use nilometer_lab::wiring::{self, ExternalSection, Finding, Wiring, check, instructions};
use nilometer_linux::{borrowed, privilege};
use serde::Serialize;

use super::Exit;

/// The two interfaces of `lab run --dut external` and of `lab wiring`.
#[derive(Clone, Debug, Default, Args)]
pub struct Interfaces {
    /// The interface of this host towards the clients' side of the device `external`. Implies `--dut external`.
    #[arg(long, value_name = "IF")]
    client_interface: Option<String>,
    /// The interface of this host towards the servers' side of the device `external`.
    #[arg(long, value_name = "IF")]
    server_interface: Option<String>,
}

impl Interfaces {
    /// Puts what was given into a configuration's section; whether something was.
    pub fn apply(&self, section: &mut Option<ExternalSection>) -> bool {
        let given = [&self.client_interface, &self.server_interface];
        if given == [&None, &None] {
            return false;
        }
        let external = section.get_or_insert_with(ExternalSection::default);
        let kept = [&mut external.client_interface, &mut external.server_interface];
        for (given, kept) in given.into_iter().zip(kept) {
            if let Some(given) = given {
                kept.clone_from(given);
            }
        }
        true
    }
}

/// Arguments of `nilometer lab wiring`.
#[derive(Debug, Args)]
pub struct WiringArgs {
    #[command(flatten)]
    interfaces: Interfaces,
    /// A LAB.toml with interfaces ([external]) and addresses ([traffic]).
    #[arg(long, value_name = "LAB.toml")]
    config: Option<PathBuf>,
    /// Test it: send a few packets through the device and report every fault in one line. Exit status 1 if there is
    /// one.
    #[arg(long)]
    check: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct WiringReport {
    #[serde(flatten)]
    wiring: Wiring,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Checked>,
}

/// What `--check` found.
#[derive(Serialize)]
struct Checked {
    ok: bool,
    problems: Vec<String>,
    /// What of the interfaces could not be made as it was before.
    not_restored: Vec<String>,
}

/// Runs `nilometer lab wiring`.
pub fn run(args: &WiringArgs) -> Result<Exit> {
    let mut config = match &args.config {
        Some(path) => LabConfig::read(path)?,
        None => LabConfig::default(),
    };
    args.interfaces.apply(&mut config.external);
    config.dut = DutKind::External;
    config.check()?;
    let testbed = leg::testbed_config(DutKind::External, &config, [false; 2])?;
    let wiring = Wiring::of(&testbed)?;
    for side in wiring.sides() {
        borrowed::ensure_lendable(&side.interface)?;
    }
    let checked = match args.check {
        true => {
            privilege::acquire_root("lab wiring --check")?;
            let (findings, not_restored) = check::try_wiring(&testbed)?;
            let problems: Vec<String> = findings.iter().map(Finding::to_string).collect();
            Some(Checked { ok: problems.is_empty(), problems, not_restored })
        }
        false => None,
    };
    let is_wrong = checked.as_ref().is_some_and(|checked| !checked.ok);
    for problem in checked.iter().flat_map(|checked| &checked.not_restored) {
        say!("warning: not restored: {problem}");
    }
    if args.json {
        let report = WiringReport { wiring, check: checked };
        println!("{}", serde_json::to_string(&report).context("the wiring is JSON")?);
    } else {
        match checked {
            // (Interfaces of these names are there, so that none has a control character.)
            None => print!("{}", instructions::all(&wiring)),
            Some(checked) => print_checked(&checked),
        }
    }
    Ok(if is_wrong { Exit::Negative } else { Exit::Done })
}

fn print_checked(checked: &Checked) {
    for problem in &checked.problems {
        println!("{}", plain(problem));
    }
    if checked.ok {
        println!("the device passes packets of every length in both directions");
    }
}

/// Arguments of the guardian process, for internal use.
#[derive(Debug, Args)]
pub struct HoldArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Holds interfaces until the lab has ended.
pub fn hold(args: &HoldArgs) -> Result<Exit> {
    wiring::hold(&args.words).map(|()| Exit::Done)
}
