//! `nilometer route run`: a router from its file, until it is told to stop.

use nilometer_files::document::guard_output;
use nilometer_files::say;
use std::path::PathBuf;
use std::slice;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::cli::Exit;
use nilometer_lab::trial::signals::stop_flag;
use nilometer_linux::scheduling::{Class, Role, Timed};
use nilometer_routerd::assemble::Options;
use nilometer_routerd::control::{Control, with_usual_socket};
use nilometer_routerd::recording::event;
use nilometer_routerd::router_file;
use nilometer_routerd::running::Running;
use nilometer_routerd::tally::Tally;

/// Run a router on interfaces of this network namespace until SIGINT or SIGTERM.
///
/// The file names ports, routes, filters and queues; `nilometer route template` prints one with every key. The
/// interfaces must be up and have no addresses: the addresses belong to the router. Needs root. Interfaces of the
/// host's own namespace are refused by default, because a port takes all of an interface's traffic.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The router's configuration.
    #[arg(value_name = "ROUTER.toml")]
    file: PathBuf,
    /// Allow interfaces of the namespace in which this command was started.
    #[arg(long)]
    host_interfaces: bool,
    /// Scheduling class of the forwarding thread: real-time (within a limit, if the system allows it) or ordinary.
    #[arg(long, value_name = "CLASS", default_value = "real-time")]
    scheduling: Class,
    /// Record all frames with their times, routes and settings, and the router's decisions, for `route replay`. The
    /// file appears when the router ends, and grows with the traffic. Flows are not offloaded meanwhile.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Replace an existing recording.
    #[arg(long, requires = "record")]
    force: bool,
    /// Print the final counters as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer route run`.
///
/// # Errors
/// When the file is wrong, or the router cannot be put together.
pub fn run(args: RunArgs) -> Result<Exit> {
    let mut config = router_file::read(&args.file)?.config;
    let stop = stop_flag()?;
    let output = args
        .record
        .as_deref()
        .map(|path| guard_output(path, slice::from_ref(&args.file), args.force, event::MAGIC));
    let recording = output.transpose()?.map(|output| output.draft()).transpose()?;
    let options = Options { allow_foreign: args.host_interfaces, recording };
    let router = Running::start_with(None, config.clone(), options)?;
    let timed = Timed::new(args.scheduling).guarded().context("the guard of timed threads")?;
    timed.add(Role::Router, router.thread_id()?);
    if let Some(why) = timed.refused() {
        say!("the router forwards in the ordinary scheduling class: {why}");
    }
    for note in router.notes.ports.iter().chain(&router.notes.fallbacks) {
        say!("{note}");
    }
    for warning in &router.notes.warnings {
        say!("warning: {warning}");
    }
    let name = args.file.file_stem().unwrap_or_default().to_string_lossy();
    if let Some(why) = with_usual_socket(&mut config, &name) {
        say!("{why}");
    }
    let control = Control::start(&router, &config)?;
    if let Some(socket) = control.socket() {
        say!("the control socket is {}", socket.display());
    }
    if let Some(address) = control.address() {
        say!("the control address is http://{address}");
    }
    say!("the router forwards");
    while !stop.load(Ordering::Acquire) && router.is_running() {
        thread::sleep(Duration::from_millis(50));
    }
    drop(control);
    let tally = router.stop()?;
    if let Some(path) = &args.record {
        say!("the recording is {}", path.display());
    }
    match args.json {
        true => println!("{}", serde_json::to_string(&tally)?),
        false => print!("{}", shown(&tally)),
    }
    Ok(Exit::Done)
}

/// The last counters, for people.
fn shown(tally: &Tally) -> String {
    let mut text = format!(
        "{} packets in, {} out, {} originated, {} for the router, {} discarded, {} dropped by queues\n",
        tally.received,
        tally.transmitted,
        tally.made,
        tally.punted + tally.absorbed,
        tally.discarded,
        tally.dropped
    );
    for port in &tally.ports {
        text += &format!(
            "{}: {} in, {} out, {}\n",
            port.name, port.in_packets, port.out_packets, port.state
        );
    }
    text
}
