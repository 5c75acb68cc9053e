//! `nilometer generate`: a model's plan printed, served and played by hand.

use nilometer_files::say;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use nilometer_traffic::plan::{PlannedConnection, PlannedInterval};
use nilometer_traffic::vector_plan::Draw;
use nilometer_traffic::{Plan, TrafficModel};
use serde_json::json;

use super::Exit;
use super::table::{self, Side};
use nilometer_files::document::model::read_model;
use nilometer_lab::generate::server::OPEN_MAX;
use nilometer_lab::generate::{
    Client, ClientConfig, Execution, Limits, LiveCounters, Outcome, Server, ServerConfig,
    ServerReport, giving_up,
};
use nilometer_lab::trial::altered::cut;
use nilometer_lab::trial::config::{DURATION_MAX_S, DURATION_MIN_S};
use nilometer_lab::trial::{planning, signals};
use nilometer_linux::scheduling::{Class, Timed};

/// Connections printed without `--all`.
const PRINTED: usize = 20;
/// An interval whose bytes are farther off is worth a word, per cent.
const MISSED_PERCENT: f64 = 5.0;

/// Arguments of `nilometer generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    #[command(subcommand)]
    command: GenerateCommand,
}

#[derive(Debug, Subcommand)]
enum GenerateCommand {
    /// Print the schedule for a model and a seed, with its digest.
    Plan(PlanArgs),
    /// Serve files to clients until interrupted.
    ///
    /// Anyone who can reach it is served, and no client can block the others: a request that does not start in time,
    /// and a connection that is too slow, are reset. When all places are taken, the address with the most places (for
    /// IPv6 the /64) loses one to an address with fewer; up to 1024 further connections wait for a place. A server in
    /// a lab run has none of these limits.
    Server(ServerArgs),
    /// Play a model's plan against servers.
    ///
    /// Exits with status 2 if no connection could be established: after 10 or more attempts and 5 s from the first;
    /// otherwise at the end of the plan. A connection that stalls for 30 s is counted as timed out. The run ends
    /// --drain seconds after the last connection was due.
    Client(ClientArgs),
}

#[derive(Debug, Args)]
struct PlanArgs {
    /// The model.
    model: PathBuf,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of threads; the plan does not depend on it.
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::MIN)]
    threads: NonZeroUsize,
    /// Seconds to plan, from the start of the model; the whole model by default.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// For a model of whole sessions: each connection exactly once, independent of the seed, as in `lab run --exact`.
    #[arg(long)]
    exact: bool,
    /// Print every connection, not only the first ones.
    #[arg(long)]
    all: bool,
    /// Print digest, connections and bytes as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// Address to listen on; repeat for several. For all of 127.0.0.0/8, use 0.0.0.0 with --device lo.
    #[arg(long, value_name = "ADDRESS", default_values_t = [IpAddr::V4(Ipv4Addr::UNSPECIFIED)])]
    listen: Vec<IpAddr>,
    /// Port.
    #[arg(long, default_value_t = 8_808)]
    port: u16,
    /// Bind sockets to this interface; `any` for no binding.
    #[arg(long, value_name = "NAME", default_value = "lo")]
    device: String,
    /// Congestion control of every socket.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// Maximum number of connections served at once.
    #[arg(long, value_name = "COUNT", default_value_t = OPEN_MAX as u32,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    places: u32,
    /// Timeout in seconds, from when a connection gets its place to the first 16 bytes of its request.
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    request_time: u32,
    /// Minimum rate of a connection in bytes per second, counting its request and the acknowledged part of the
    /// answer; 0 for none.
    #[arg(long, value_name = "BYTES", default_value_t = 250)]
    lowest_rate: u32,
    /// Averaging time of the lowest rate in seconds; also the time that a client has to close after its answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    rate_window: u32,
    /// Maximum amount of unacknowledged data over all connections, MiB. Half is divided equally among the places,
    /// half is shared, so more places need more: at least 1 for 128.
    #[arg(long, value_name = "MIB", default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    under_way: u32,
    /// Print what was served as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ClientArgs {
    /// The model.
    model: PathBuf,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Client pool instead of the model's (CIDR, repeat for several).
    #[arg(long, value_name = "CIDR", default_values_t = ["127.1.0.0/16".to_owned()])]
    sources: Vec<String>,
    /// Server pool instead of the model's (CIDR, repeat for several).
    #[arg(long, value_name = "CIDR", default_values_t = ["127.2.0.0/16".to_owned()])]
    destinations: Vec<String>,
    /// Port of the servers.
    #[arg(long, default_value_t = 8_808)]
    port: u16,
    /// Bind sockets to this interface; `any` for no binding.
    #[arg(long, value_name = "NAME", default_value = "lo")]
    device: String,
    /// Scheduling class of the threads that start connections: real-time (within a limit, if the system allows it) or
    /// ordinary.
    #[arg(long, value_name = "CLASS", default_value = "real-time")]
    scheduling: Class,
    /// Congestion control of every socket.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// Number of threads.
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::MIN)]
    threads: NonZeroUsize,
    /// Seconds to play, from the start of the model; the whole model by default.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// Seconds that transfers may take after the last connection was due.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, allow_negative_numbers = true)]
    drain: u32,
    /// Print a summary as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs `nilometer generate`.
pub fn run(args: GenerateArgs) -> Result<Exit> {
    match args.command {
        GenerateCommand::Plan(args) => plan(&args),
        GenerateCommand::Server(args) => serve(&args),
        GenerateCommand::Client(args) => play(&args),
    }
}

fn plan(args: &PlanArgs) -> Result<Exit> {
    let mut model = read_model(&args.model)?;
    shorten(&mut model, args.duration)?;
    let draw = if args.exact { Draw::Exact } else { Draw::Seed(args.seed) };
    let plan = planning::plan(&model, draw, args.threads.get())?;
    let digest = planning::hex(&plan.digest());
    if args.json {
        let printed = json!({
            "digest": digest,
            "seed": args.seed,
            "connections": plan.len(),
            "bytes": plan.bytes(),
            "request_bytes": plan.request_bytes(),
            "sessions": plan.sessions.len(),
            "collisions": plan.collisions,
            "duration_s": plan.end.as_secs_f64(),
        });
        println!("{printed}");
        return Ok(Exit::Done);
    }
    let shown = if args.all { plan.len() } else { PRINTED.min(plan.len()) };
    print_connections(&plan.connections[..shown]);
    if shown < plan.len() {
        println!("... {} more; --all prints them", plan.len() - shown);
    }
    intervals(&plan);
    println!("{} connections, {} bytes, digest {digest}", plan.len(), plan.bytes());
    if let Some(warning) = missed(&plan) {
        say!("warning: {warning}");
    }
    Ok(Exit::Done)
}

/// Connections in pieces of a screen: there may be millions.
fn print_connections(connections: &[PlannedConnection]) {
    let titles = ["start s", "session", "source", "destination", "request", "bytes", "segment"];
    let (mut rows, mut widths) = (vec![table::row(titles)], Vec::new());
    for piece in connections.chunks(PRINTED) {
        rows.extend(piece.iter().map(|it| {
            let start = format!("{:.6}", it.start.as_secs_f64());
            let ends = [it.source.to_string(), it.destination.to_string()];
            let sizes = [it.request_bytes, it.size_bytes, it.segment_bytes.into()];
            let after = ends.into_iter().chain(sizes.map(|bytes| bytes.to_string()));
            [start, it.session.to_string()].into_iter().chain(after).collect()
        }));
        print!("{}", table::continued(&[Side::Right], &rows, &mut widths));
        rows.clear();
    }
}

fn intervals(plan: &Plan) {
    for planned in &plan.intervals {
        println!(
            "from {:.1} s: {} of {} connections, {} of {} bytes, {:.1} sessions on",
            planned.start.as_secs_f64(),
            planned.connections,
            planned.asked.connections,
            planned.bytes,
            planned.asked.bytes,
            planned.sessions
        );
    }
}

/// A word on intervals that will not carry what the model asks for.
fn missed(plan: &Plan) -> Option<String> {
    let off = |planned: &PlannedInterval| {
        100.0 * (planned.bytes as f64 / planned.asked.bytes.max(1) as f64 - 1.0)
    };
    let intended = plan.intervals.iter().filter(|planned| planned.asked.connections > 0);
    let missed = intended.map(off).filter(|off| off.abs() > MISSED_PERCENT);
    let (count, worst) = missed.fold((0, 0.0f64), |(count, worst), off| {
        (count + 1, if off.abs() > worst.abs() { off } else { worst })
    });
    (count > 0).then(|| {
        format!(
            "{count} of {} intervals miss their bytes by more than {MISSED_PERCENT} %, the worst by \
             {worst:+.1} %: a few of the model's files hold most of its bytes; plan more of its time",
            plan.intervals.len()
        )
    })
}

/// Keeps the seconds of the model that are asked for, by the clock of the traffic.
fn shorten(model: &mut TrafficModel, seconds: Option<f64>) -> Result<()> {
    let Some(seconds) = seconds else { return Ok(()) };
    ensure!(
        (DURATION_MIN_S..=DURATION_MAX_S).contains(&seconds),
        "--duration is {seconds}, but must be from {DURATION_MIN_S} to {DURATION_MAX_S}"
    );
    cut(model, seconds * model.generation.time_divisor)
}

fn device(name: &str) -> Option<String> {
    (name != "any").then(|| name.to_owned())
}

fn serve(args: &ServerArgs) -> Result<Exit> {
    if args.port == 0 {
        bail!("--port is 0; clients need a fixed port from 1 to 65535");
    }
    let listen = args.listen.iter().map(|&address| SocketAddr::new(address, args.port)).collect();
    let server = Server::bind(ServerConfig {
        congestion: args.congestion.clone(),
        bind_device: device(&args.device),
        open_max: args.places as usize,
        limits: Some(Limits {
            request_time: Duration::from_secs(args.request_time.into()),
            lowest_rate: args.lowest_rate.into(),
            rate_window: Duration::from_secs(args.rate_window.into()),
            under_way_bytes: u64::from(args.under_way) << 20,
        }),
        ..ServerConfig::new(listen)
    })?;
    let stop = signals::stop_flag()?;
    say!("serving on port {} of {}; Ctrl-C ends it", args.port, args.device);
    let report = server.run(&LiveCounters::new(), &stop)?;
    served(&report, args.json);
    Ok(Exit::Done)
}

fn served(report: &ServerReport, as_json: bool) {
    let ends = [
        ("completed", report.completed),
        ("bad_requests", report.bad_requests),
        ("broken", report.broken),
        ("timed_out", report.timed_out),
        ("too_slow", report.too_slow),
        ("displaced", report.displaced),
        ("refused", report.refused),
        ("unfinished", report.unfinished),
    ];
    if as_json {
        let mut printed = json!({
            "accepted": report.accepted, "sent_bytes": report.sent_bytes,
            "congestion": report.congestion,
        });
        for (name, count) in ends {
            printed[name] = count.into();
        }
        println!("{printed}");
        return;
    }
    let words: Vec<String> = ends[1..]
        .iter()
        .map(|(name, count)| format!("{count} {}", name.replace('_', " ")))
        .collect();
    println!(
        "{} connections accepted, {} completed, {} bytes sent",
        report.accepted, report.completed, report.sent_bytes
    );
    println!("{}", words.join(", "));
}

fn play(args: &ClientArgs) -> Result<Exit> {
    if args.port == 0 {
        bail!("--port is 0; give the port that the servers listen at, from 1 to 65535");
    }
    let mut model = read_model(&args.model)?;
    let pool = |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<_, _>>();
    model.generation.clients = pool(&args.sources)?;
    model.generation.servers = pool(&args.destinations)?;
    shorten(&mut model, args.duration)?;
    if model.vectors.take().is_some() {
        say!(
            "this model's whole sessions are played by `lab run --model`; here it is played by its laws"
        );
    }
    let plan = planning::plan(&model, Draw::Seed(args.seed), args.threads.get())?;
    let timed = Timed::new(args.scheduling).guarded().context("the guard of timed threads")?;
    if let Some(why) = timed.refused() {
        say!("connections are started in the ordinary scheduling class: {why}");
    }
    let timed = Arc::new(timed);
    let origin = Instant::now() + Duration::from_millis(200);
    let client = Client::new(ClientConfig {
        congestion: args.congestion.clone(),
        drain: Duration::from_secs(u64::from(args.drain)),
        bind_device: device(&args.device),
        timed: Some(Arc::clone(&timed)),
        ..ClientConfig::new(args.port, origin)
    })?;
    let stop = signals::stop_flag()?;
    let (connections, seconds) = (plan.len(), plan.end.as_secs_f64());
    say!("playing {connections} connections in {seconds:.1} s");
    let live = LiveCounters::new();
    let first = plan.connections.first().map_or(0, |planned| planned.start.as_nanos());
    let first = origin + Duration::from_nanos(first);
    let over = AtomicBool::new(false);
    let (done, gave_up) = thread::scope(|scope| {
        let watching = scope.spawn(|| giving_up::watch(&live, first, &over, &stop));
        let done = client.run_threads(args.threads, &plan.connections, &live, &stop);
        over.store(true, Ordering::Relaxed);
        (done, watching.join().expect("a glance at counters does not panic"))
    });
    let done = done?;
    let interrupted = stop.load(Ordering::Acquire) && !gave_up;
    if !interrupted && live.progress().established == 0 {
        return Err(unanswered(&plan, &done, args));
    }
    print_result(&plan, &done, client.congestion(), args.json);
    if interrupted {
        return Ok(Exit::Interrupted);
    }
    let completed = done.iter().all(|done| done.outcome == Outcome::Completed);
    Ok(if completed { Exit::Done } else { Exit::Negative })
}

/// What is wrong where nothing could be connected: how it failed, where, and what to do.
fn unanswered(plan: &Plan, done: &[Execution], args: &ClientArgs) -> anyhow::Error {
    let tried = || done.iter().filter(|done| done.outcome != Outcome::NotStarted);
    let mut ends: Vec<String> = giving_up::by_reason(done)
        .into_iter()
        .map(|(reason, count)| format!("{count} ended with \"{reason}\""))
        .collect();
    let silent = tried().filter(|done| done.outcome == Outcome::Unfinished).count();
    if silent > 0 {
        ends.push(format!("{silent} got no answer"));
    }
    let first = tried().next().map_or(0, |done| done.index);
    let address = SocketAddr::new(plan.connections[first as usize].destination, args.port);
    anyhow!(
        "nothing could be connected: of {} connections tried, the first to {address}, {}; start `nilometer \
         generate server --port {} --device {}` where the destinations are, or give --sources, --destinations, \
         --port and --device that lead to servers",
        tried().count(),
        ends.join(" and "),
        args.port,
        args.device
    )
}

fn print_result(plan: &Plan, done: &[Execution], congestion: &str, as_json: bool) {
    let count = |outcome: Outcome| done.iter().filter(|done| done.outcome == outcome).count();
    let completed = count(Outcome::Completed);
    let unfinished = count(Outcome::Unfinished) + count(Outcome::NotStarted);
    let bytes: u64 = done.iter().map(|done| done.received_bytes).sum();
    let exact = done
        .iter()
        .filter(|done| done.outcome == Outcome::Completed)
        .all(|done| done.received_bytes == plan.connections[done.index as usize].size_bytes);
    let mut late: Vec<u64> = done
        .iter()
        .filter(|done| done.outcome != Outcome::NotStarted)
        .map(|done| {
            let planned = plan.connections[done.index as usize].start.as_nanos();
            done.started_ns.saturating_sub(planned)
        })
        .collect();
    late.sort_unstable();
    let p99 = late.get(late.len().saturating_sub(1) * 99 / 100).copied().unwrap_or(0);
    let failed = done.len() - completed - unfinished;
    let digest = planning::hex(&plan.digest());
    let failures = giving_up::by_reason(done);
    // Of no transfer that was completed nothing is known.
    let exact = (completed > 0).then_some(exact);
    if as_json {
        let printed = json!({
            "digest": digest, "connections": done.len(), "completed": completed, "failed": failed,
            "failures": failures, "unfinished": unfinished, "bytes": bytes, "sizes_exact": exact,
            "lateness_p99_ns": p99, "congestion": congestion,
        });
        println!("{printed}");
    } else {
        println!(
            "{completed} of {} connections completed, {failed} failed, {unfinished} unfinished",
            done.len()
        );
        for (reason, count) in failures {
            println!("{count} failed with \"{reason}\"");
        }
        let sizes = match exact {
            Some(true) => "sizes exact",
            Some(false) => "sizes NOT exact",
            None => "no transfer completed",
        };
        println!("{bytes} bytes received, {sizes}");
        println!(
            "started late by {:.1} µs at p99; congestion control {congestion}",
            p99 as f64 / 1e3
        );
    }
}
