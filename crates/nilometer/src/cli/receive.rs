//! `nilometer stream receive`: the far end of another host's streams.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::Args;
use nilometer_files::say;
use nilometer_files::terminal::plain;
use nilometer_lab::stream::remote::{ReceiverEvent, ReceiverOptions, SessionSeen, serve};
use nilometer_lab::trial::signals;
use nilometer_linux::{borrowed, privilege};
use nilometer_report::format::count;
use serde::Serialize;

use super::Exit;

/// Arguments of `nilometer stream receive`.
#[derive(Debug, Args)]
pub struct ReceiveArgs {
    /// Interface of this host that leads to the servers' side of the device.
    #[arg(long, value_name = "IF")]
    interface: String,
    /// Address and port for senders to connect to, on a network that is not under test. Anyone who can connect may use the
    /// interface: do not listen on a public network.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Exit after one trial.
    #[arg(long)]
    once: bool,
    /// Print one JSON object for each trial.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints of a trial.
#[derive(Serialize)]
struct Line {
    peer: String,
    run: u32,
    received: u64,
    lost: u64,
}

/// Runs `nilometer stream receive`.
///
/// # Errors
/// When the interface cannot be lent, or the address cannot be listened on.
pub fn run(args: &ReceiveArgs) -> Result<Exit> {
    privilege::acquire_root("stream receive")?;
    borrowed::ensure_lendable(&args.interface)?;
    let stop = signals::stop_flag()?;
    let ReceiveArgs { interface, listen, once, .. } = args;
    let options = ReceiverOptions { interface: interface.clone(), listen: *listen, once: *once };
    let events = |event: ReceiverEvent| match event {
        ReceiverEvent::Listening(address) => {
            say!("receiving from {} for senders that connect to {address}", plain(interface));
        }
        ReceiverEvent::Received(seen) => print_trial(&seen, args.json),
        ReceiverEvent::Failed(why) => say!("warning: {why:#}"),
        ReceiverEvent::NotRestored(problem) => say!("warning: not put back: {problem}"),
    };
    serve(&options, &events, &stop)?;
    Ok(Exit::Done)
}

fn print_trial(seen: &SessionSeen, is_json: bool) {
    let SessionSeen { peer, run, received, lost } = seen;
    if is_json {
        let line = Line { peer: peer.to_string(), run: *run, received: *received, lost: *lost };
        println!("{}", serde_json::to_string(&line).context("a line is JSON").unwrap_or_default());
    } else {
        let (received, lost) = (count(*received), count(*lost));
        println!("{peer}: {received} frames received, {lost} not (the ring was full)");
    }
}
