//! `nilometer route ctl`: looks at a running router and changes it.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use super::plugins::PluginCommand;
use super::question::{Question, given, object, plain_or_text};
use super::tables::{FilterCommand, RouteCommand};
use super::{reservations, shown, watch};
use crate::cli::Exit;
use nilometer_files::document::bounded::{TOKEN_BYTES_MAX, read_text};
use nilometer_files::document::guard_output;
use nilometer_files::table::capture;
use nilometer_files::terminal;
use nilometer_routerd::control::client::{Address, encoded};
use nilometer_routerd::control::socket::usual_folder;

/// Inspect and change a running router, without packet loss.
///
/// Connects to the router's control socket, or by HTTP. Without --socket or --url, the only router with a socket at
/// the default path is used.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct CtlArgs {
    /// The router's control socket.
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "url")]
    socket: Option<PathBuf>,
    /// The router's control address, `http://HOST:PORT`.
    #[arg(long, value_name = "URL", global = true)]
    url: Option<String>,
    /// A file whose first line is the access token.
    #[arg(long, value_name = "FILE", global = true, requires = "url")]
    token_file: Option<PathBuf>,
    /// Print the API's JSON object.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(Debug, Subcommand)]
enum CtlCommand {
    /// Show a summary of all counters.
    Status,
    /// Show ports with their counters and settings.
    ///
    /// RATE is the configured rate limit of a link; a dash means that only the device limits it. SHORTCUT packets are
    /// those of OUT that the kernel forwarded. DROPPED packets were received on this port or were to leave through
    /// it, and were dropped for any reason.
    Ports {
        /// Show drops by reason instead of settings.
        #[arg(long)]
        reasons: bool,
    },
    /// Show the queues of a port's discipline; a single line if it has only one.
    Queues {
        /// Interface name or port number; digits are always a number.
        port: String,
    },
    /// Show backlogs and rates at the last broadcast.
    Fabric,
    /// Filters: list, add, del.
    Filters {
        #[command(subcommand)]
        command: FilterCommand,
    },
    /// Plugin instances: list, add, replace, bind, message, del.
    Plugin {
        #[command(subcommand)]
        command: PluginCommand,
    },
    /// Show reservations and booked bandwidth by port.
    Reservations,
    /// Reserve bandwidth for a flow; the reservation expires after its lifetime unless refreshed.
    Reserve {
        /// Keys: holder=me destination=198.18.1.9 protocol=udp destination_port=5004 rate=5mbit
        /// source=ADDRESS source_port=N input=PORT via=NEIGHBOUR bucket_bytes=N lifetime=60s.
        #[arg(required = true, value_name = "KEY=VALUE")]
        keys: Vec<String>,
        /// A plugin that processes the flow's packets, such as `policer` or `mark@0.1.0 dscp=10`: its class, a space,
        /// and its configuration. Repeat for several, in processing order.
        #[arg(long = "plugin", value_name = "CLASS CONFIGURATION")]
        plugins: Vec<String>,
    },
    /// Refresh a reservation.
    Refresh {
        /// Its number.
        id: u32,
    },
    /// Release a reservation.
    Release {
        /// Its number.
        id: u32,
    },
    /// Routes: list, add, del, lookup.
    Routes {
        #[command(subcommand)]
        command: RouteCommand,
    },
    /// Show IPv4 and IPv6 neighbours.
    Neighbours,
    /// Set the rate limit of a port's link.
    SetRate {
        /// Interface name or port number; digits are always a number.
        port: String,
        /// Such as `500 Mb/s` or `500mbit`; `none` removes the limit.
        rate: String,
        /// Burst that the link may send above the rate to make up for late service, in bytes or such as `64kB`.
        #[arg(long, value_name = "N")]
        burst_bytes: Option<String>,
    },
    /// Set the added delay of a port's link.
    SetDelay {
        /// Interface name or port number; digits are always a number.
        port: String,
        /// Such as `20 ms` or `20ms`.
        delay: String,
    },
    /// Change the queueing discipline of a port.
    ///
    /// Without buffer_packets or buffer_bytes (500, or `64kB`), the queue holds 50 ms of traffic at the port's rate,
    /// from 32 to 2,048 packets.
    SetQueue {
        /// Interface name or port number; digits are always a number.
        port: String,
        /// Keys of a `queue` table: discipline=red ecn=true buffer_packets=500.
        #[arg(required = true, value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Change the parameters of the fabric.
    SetFabric {
        /// Keys of `[fabric]`: queueing=original period="500 us" speedup=4.
        #[arg(required = true, value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Show or change the lookup engines.
    Engine {
        /// IPv4: lines, wide_lines, tree_bitmap, or one for comparison: direct, poptrie, dxr.
        #[arg(long)]
        v4: Option<String>,
        /// IPv6: lines, wide_lines or tree_bitmap.
        #[arg(long)]
        v6: Option<String>,
    },
    /// Show or change the classifier: tuples, vectors or linear.
    Classifier {
        /// Its name.
        name: Option<String>,
    },
    /// Run the stress test of distributed queueing (Table 4) and compare it with the simulator.
    Stress {
        #[command(subcommand)]
        command: StressCommand,
    },
    /// Save the running configuration as a ROUTER.toml.
    Save {
        /// Output file.
        file: PathBuf,
        /// Replace an existing ROUTER.toml.
        #[arg(long)]
        force: bool,
    },
    /// Show the latest log messages, or change the log level and destination.
    Messages {
        /// Minimum severity that is logged: error, warning, info, debug.
        #[arg(long)]
        level: Option<String>,
        /// Destination: stderr, the ring buffer only, or a file.
        #[arg(long, value_name = "stderr|ring|PATH")]
        to: Option<String>,
    },
    /// Capture packets that match filters with copy=true, until interrupted.
    Trace {
        /// Output file, pcapng.
        #[arg(short, long, value_name = "FILE")]
        write: PathBuf,
        /// Replace an existing capture.
        #[arg(long)]
        force: bool,
        /// Stop after this many seconds.
        #[arg(long, value_name = "S")]
        seconds: Option<f64>,
    },
    /// Print backlogs and rates at every broadcast, until interrupted.
    ///
    /// A line is printed when it changes. FROM and TO are the ports of a virtual output queue; FROM is a dash for the
    /// queue at an output. Values not printed so far are empty.
    Watch {
        /// Stop after this many broadcasts.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
}

impl CtlArgs {
    /// Says what has been written, to people.
    fn say(&self, done: &str, file: &Path) {
        if !self.json {
            println!("{done} {}", terminal::shown(file));
        }
    }
}

#[derive(Debug, Subcommand)]
enum StressCommand {
    /// Start a test on the current fabric.
    Start {
        /// sources=4 stages=5 packet_bytes=520 t1_periods=400.
        #[arg(value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Show progress and results.
    Show,
    /// Stop the test.
    Stop,
}

/// Runs `nilometer route ctl`.
///
/// # Errors
/// When nobody answers, or the router refuses.
pub fn run(args: CtlArgs) -> Result<Exit> {
    let address = address(&args)?;
    match &args.command {
        CtlCommand::Save { file, force } => {
            return save(&address, file, *force).inspect(|_| args.say("saved in", file));
        }
        CtlCommand::Watch { count } => return watch::watch(&address, *count, args.json),
        CtlCommand::Trace { write, force, seconds } => {
            let traced = trace(&address, write, *force, *seconds);
            return traced.inspect(|_| args.say("traced in", write));
        }
        CtlCommand::Filters { command } if command.list(&address, args.json)? => {
            return Ok(Exit::Done);
        }
        CtlCommand::Routes { command } if command.list(&address, args.json)? => {
            return Ok(Exit::Done);
        }
        _ => {}
    }
    let Question { method, path, body, show } = question(&args.command)?;
    let answer = address.ask(&method, &path, body.map(|body| body.to_string()))?.success()?;
    let value: Value = serde_json::from_slice(&answer).context("the answer is not valid JSON")?;
    match args.json {
        true => println!("{value}"),
        false => print!("{}", show(&value)),
    }
    Ok(Exit::Done)
}

fn question(command: &CtlCommand) -> Result<Question> {
    let put = |path: String, body| Ok(Question::change(Method::PUT, path, Some(body)));
    match command {
        CtlCommand::Status => Ok(Question::get("/v1/tally", shown::status)),
        CtlCommand::Ports { reasons } => {
            let show = if *reasons { shown::ports_and_reasons } else { shown::ports_and_settings };
            Ok(Question::get("/v1/ports", show))
        }
        CtlCommand::Queues { port } => {
            Ok(Question::get(format!("/v1/queues/{}", encoded(port)), shown::queues))
        }
        CtlCommand::Fabric => Ok(Question::get("/v1/fabric", shown::fabric)),
        CtlCommand::Neighbours => Ok(Question::get("/v1/neighbours", shown::neighbours)),
        CtlCommand::Filters { command } => command.question(),
        CtlCommand::Routes { command } => command.question(),
        CtlCommand::Plugin { command } => command.question(),
        CtlCommand::Reservations => Ok(reservations::list()),
        CtlCommand::Reserve { keys, plugins } => reservations::reserve(keys, plugins),
        CtlCommand::Refresh { id } => Ok(reservations::of(Method::PUT, *id)),
        CtlCommand::Release { id } => Ok(reservations::of(Method::DELETE, *id)),
        CtlCommand::Stress { command } => stress(command),
        CtlCommand::SetRate { port, rate, burst_bytes } => {
            let rate = Some(rate).filter(|rate| *rate != "none");
            let burst = burst_bytes.as_deref().map(plain_or_text);
            let body = json!({ "rate": rate, "burst_bytes": burst });
            put(format!("/v1/ports/{}/rate", encoded(port)), body)
        }
        CtlCommand::SetDelay { port, delay } => {
            put(format!("/v1/ports/{}/delay", encoded(port)), json!({ "delay": delay }))
        }
        CtlCommand::SetQueue { port, keys } => {
            put(format!("/v1/ports/{}/queue", encoded(port)), object(keys, &[])?)
        }
        CtlCommand::SetFabric { keys } => put("/v1/fabric".into(), object(keys, &[])?),
        CtlCommand::Engine { v4: None, v6: None } => Ok(Question::get("/v1/engine", shown::plain)),
        CtlCommand::Engine { v4, v6 } => put("/v1/engine".into(), given([("v4", v4), ("v6", v6)])),
        CtlCommand::Classifier { name: None } => Ok(Question::get("/v1/classifier", shown::plain)),
        CtlCommand::Classifier { name: Some(name) } => {
            put("/v1/classifier".into(), json!({ "classifier": name }))
        }
        CtlCommand::Messages { level: None, to: None } => {
            Ok(Question::get("/v1/messages", shown::messages))
        }
        CtlCommand::Messages { level, to } => {
            let (to, file) = match to.as_deref() {
                Some("stderr" | "ring") | None => (to.clone(), None),
                Some(path) => {
                    let path = std::path::absolute(path)?.display().to_string();
                    (Some("file".to_owned()), Some(path))
                }
            };
            let keys = [("level", level), ("destination", &to), ("file", &file)];
            put("/v1/messages".into(), given(keys))
        }
        CtlCommand::Save { .. } | CtlCommand::Watch { .. } | CtlCommand::Trace { .. } => {
            bail!("answered before")
        }
    }
}

fn stress(command: &StressCommand) -> Result<Question> {
    const PATH: &str = "/v1/stress";
    Ok(match command {
        StressCommand::Start { keys } => {
            Question::change(Method::POST, PATH, Some(object(keys, &[])?))
        }
        StressCommand::Show => Question::get(PATH, shown::stress),
        StressCommand::Stop => Question::change(Method::DELETE, PATH, None),
    })
}

/// The router that is meant.
fn address(args: &CtlArgs) -> Result<Address> {
    router_at(args.socket.as_deref(), args.url.as_deref(), args.token_file.as_deref())
}

/// The router at a socket or a URL; the one whose socket is in the usual place where neither is given.
///
/// # Errors
/// When there is none or several, or the token cannot be read.
pub fn router_at(
    socket: Option<&Path>,
    url: Option<&str>,
    token_file: Option<&Path>,
) -> Result<Address> {
    if let Some(url) = url {
        let first = |path: &Path| {
            let text = read_text(path, TOKEN_BYTES_MAX)?;
            Ok::<_, anyhow::Error>(text.lines().next().unwrap_or_default().trim().to_owned())
        };
        return Address::http(url, token_file.map(first).transpose()?);
    }
    if let Some(socket) = socket {
        return Ok(Address::Socket(socket.to_owned()));
    }
    let folder = usual_folder().context("name the router by --socket or --url")?;
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let sockets = entries.map(|entry| entry.path());
    let mut sockets: Vec<PathBuf> =
        sockets.filter(|path| path.extension().is_some_and(|it| it == "sock")).collect();
    sockets.sort();
    match &sockets[..] {
        [] => bail!("no router has a socket in {}; give --socket or --url", folder.display()),
        [one] => Ok(Address::Socket(one.clone())),
        all => {
            let names: Vec<_> = all.iter().map(|path| path.display().to_string()).collect();
            bail!("give --socket, one of {}", names.join(", "))
        }
    }
}

fn save(address: &Address, file: &Path, force: bool) -> Result<Exit> {
    const BEGINNING: &[u8] = b"# Saved from a running Nilometer router.\n";
    let to = guard_output(file, &[], force, BEGINNING)?;
    let text = address.ask(&Method::GET, "/v1/config", None)?.success()?;
    to.write(&[BEGINNING, &text].concat())?;
    Ok(Exit::Done)
}

fn trace(address: &Address, file: &Path, force: bool, seconds: Option<f64>) -> Result<Exit> {
    let to = guard_output(file, &[], force, &capture::beginning())?;
    let stop = nilometer_lab::trial::signals::stop_flag()?;
    let mut to = to.draft()?;
    let shown = file.display();
    let (mut is_whole, mut taken_bytes) = (true, 0);
    let began = std::time::Instant::now();
    let followed = address.follow("/v1/trace", |piece| {
        let written = to.write_all(piece).with_context(|| format!("cannot write {shown}"));
        written.inspect_err(|_| is_whole = false)?;
        taken_bytes += piece.len();
        let is_over = seconds.is_some_and(|seconds| began.elapsed().as_secs_f64() >= seconds);
        Ok(!is_over && !stop.load(std::sync::atomic::Ordering::Acquire))
    });
    match followed {
        Err(error) if is_whole && taken_bytes > 0 => {
            to.publish()?;
            bail!("{error:#}; packets captured until then are kept in {shown}")
        }
        followed => followed?,
    }
    to.publish()?;
    Ok(Exit::Done)
}
