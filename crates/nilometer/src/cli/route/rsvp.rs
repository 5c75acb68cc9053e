//! `nilometer route rsvp`: a host that announces a flow, or that reserves for what others announce.

use std::net::{IpAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use nilometer_files::say;
use nilometer_lab::trial::signals;
use nilometer_reservation::Upcall;
use nilometer_reservation::message::{
    ExplicitRoute, FlowDescriptor, FlowPlugins, FlowSpec, NamedPlugin, RouteNode, Sender, Session,
    Style, Tspec,
};
use nilometer_reservation::process::SetupRequest;
use nilometer_routerd::rsvp_host::{RsvpHost, source_towards};
use nilometer_sim::quantity;
use nilometer_wire::{Rate, Span};
use serde_json::{Value, json};

use super::super::Exit;
use super::reservations::split_plugin;

/// For so long messages that end a flow may take to leave.
const FAREWELL: Duration = Duration::from_millis(100);

/// Arguments of `nilometer route rsvp`.
#[derive(Debug, Args)]
pub struct RsvpArgs {
    #[command(subcommand)]
    command: RsvpCommand,
}

#[derive(Debug, Subcommand)]
enum RsvpCommand {
    /// Announce a flow of this host, and print what receivers reserve for it; or reserve by one packet.
    Send(SendArgs),
    /// Reserve for every flow that is announced to this host.
    Receive(ReceiveArgs),
}

/// What both have.
#[derive(Debug, Args)]
struct Common {
    /// Protocol of the flow: udp, tcp, or a number.
    #[arg(long, value_name = "PROTOCOL", default_value = "udp", value_parser = parse_protocol)]
    protocol: u8,
    /// Refresh period: state ends 3.5 periods after the last message (RFC 2205, 3.7).
    #[arg(long, value_name = "TIME", default_value = "30 s", value_parser = quantity::span)]
    refresh: Span,
    /// End after this time, and release what is reserved; without it, when interrupted.
    #[arg(long, value_name = "TIME", value_parser = quantity::span)]
    duration: Option<Span>,
    /// Print one JSON object for each event.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct SendArgs {
    /// Destination of the flow.
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: SocketAddrV4,
    /// Source of the flow; port 0 stands for any. (The address of this host towards the destination, any port.)
    #[arg(long, value_name = "ADDRESS:PORT")]
    from: Option<SocketAddrV4>,
    /// Rate of the flow, as `2 Mb/s`.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    rate: Rate,
    /// Depth of its token bucket.
    #[arg(long, value_name = "SIZE", default_value = "3 kB", value_parser = quantity::size)]
    bucket: u64,
    /// Routers to go through, in this order (RFC 3209).
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',')]
    via: Vec<IpAddr>,
    /// Reserve by one packet that no receiver has to answer, repeated every refresh period (DER, 3.5).
    #[arg(long)]
    one_packet: bool,
    /// A plugin that the routers bind to the flow, as `CLASS CONFIGURATION`; once for each of the chain. With --one-packet.
    #[arg(long, value_name = "PLUGIN", requires = "one_packet")]
    plugin: Vec<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct ReceiveArgs {
    /// Address of this host and port of the flow.
    #[arg(long, value_name = "ADDRESS:PORT")]
    at: SocketAddrV4,
    #[command(flatten)]
    common: Common,
}

fn parse_protocol(text: &str) -> Result<u8, String> {
    match text {
        "udp" => Ok(17),
        "tcp" => Ok(6),
        number => number.parse().map_err(|_| format!("`{number}` is not udp, tcp, or a number")),
    }
}

/// Runs `nilometer route rsvp`.
///
/// # Errors
/// One line with the reason.
pub fn run(args: &RsvpArgs) -> Result<Exit> {
    match &args.command {
        RsvpCommand::Send(args) => send(args),
        RsvpCommand::Receive(args) => receive(args),
    }
}

fn send(args: &SendArgs) -> Result<Exit> {
    let common = &args.common;
    let sender = match args.from {
        Some(from) => from,
        None => SocketAddrV4::new(source_towards(*args.to.ip())?, 0),
    };
    let plugins = plugins(&args.plugin)?;
    let session = session(args.to, common);
    let source = Sender { source: (*sender.ip()).into(), port: sender.port() };
    let bytes_per_s = args.rate.bits_per_second() as f32 / 8.0;
    let tspec = Tspec::new(bytes_per_s, args.bucket as f32);
    let via: Vec<RouteNode> = args.via.iter().map(|node| RouteNode::loose(*node)).collect();
    let route = (!via.is_empty()).then_some(ExplicitRoute(via));
    let mut host = open(*sender.ip(), common)?;
    if args.one_packet {
        let flowspec = FlowSpec::controlled_load(tspec);
        host.set_up(SetupRequest { session, sender: source, flowspec, route, plugins })?;
    } else {
        host.announce(session, (source, tspec), route)?;
    }
    attend(&mut host, common, |_, upcall| print_event(upcall, common.json).map(|_| ()))?;
    if args.one_packet {
        host.take_back(session, source)?;
    } else {
        host.withdraw(session, source)?;
    }
    farewell(&mut host)
}

fn receive(args: &ReceiveArgs) -> Result<Exit> {
    let common = &args.common;
    let own = session(args.at, common);
    let mut host = open(*args.at.ip(), common)?;
    let mut flows: Vec<FlowDescriptor> = Vec::new();
    attend(&mut host, common, |host, upcall| {
        print_event(upcall, common.json)?;
        match upcall {
            Upcall::Path { session, sender, tspec } if *session == own => {
                flows.retain(|flow| flow.senders != [*sender]);
                let flowspec = FlowSpec::controlled_load(*tspec);
                flows.push(FlowDescriptor { flowspec, senders: vec![*sender] });
            }
            Upcall::PathGone { session, sender } if *session == own => {
                flows.retain(|flow| flow.senders != [*sender]);
            }
            _ => return Ok(()),
        }
        match flows.is_empty() {
            true => host.release(own),
            false => host.reserve(own, Style::FixedFilter, flows.clone()),
        }
    })?;
    host.release(own)?;
    farewell(&mut host)
}

fn open(own: std::net::Ipv4Addr, common: &Common) -> Result<RsvpHost> {
    ensure!(common.refresh > Span::ZERO, "--refresh: state that is repeated without a pause");
    RsvpHost::open(own, common.refresh)
}

fn session(at: SocketAddrV4, common: &Common) -> Session {
    Session { destination: (*at.ip()).into(), protocol: common.protocol, port: at.port() }
}

fn plugins(texts: &[String]) -> Result<Option<FlowPlugins>> {
    if texts.is_empty() {
        return Ok(None);
    }
    let named = texts.iter().map(|text| {
        let (class, configuration) = split_plugin(text)?;
        Ok(NamedPlugin { class: class.to_owned(), configuration: configuration.to_owned() })
    });
    let named = named.collect::<Result<Vec<_>>>()?;
    FlowPlugins::new(named).map(Some).context("--plugin")
}

/// Passes what happens to `each`, until the time is over or a signal ends it.
fn attend(
    host: &mut RsvpHost,
    common: &Common,
    mut each: impl FnMut(&mut RsvpHost, &Upcall) -> Result<()>,
) -> Result<()> {
    let stop = signals::stop_flag()?;
    let stop: &AtomicBool = &stop;
    let (began, duration) = (Instant::now(), common.duration.map(Span::as_secs_f64));
    let is_over = || duration.is_some_and(|seconds| began.elapsed().as_secs_f64() >= seconds);
    while !stop.load(Ordering::Relaxed) && !is_over() {
        for upcall in host.turn()? {
            each(host, &upcall)?;
        }
    }
    Ok(())
}

/// Sends what ends the flow.
fn farewell(host: &mut RsvpHost) -> Result<Exit> {
    let began = Instant::now();
    while began.elapsed() < FAREWELL {
        host.turn()?;
    }
    Ok(Exit::Done)
}

/// Prints what happened; a refusal to stderr.
fn print_event(upcall: &Upcall, is_json: bool) -> Result<()> {
    let (event, text) = event(upcall);
    match (is_json, event["event"] == "refused") {
        (true, _) => println!("{}", serde_json::to_string(&event).context("an event is JSON")?),
        (false, true) => say!("{text}"),
        (false, false) => println!("{text}"),
    }
    Ok(())
}

fn event(upcall: &Upcall) -> (Value, String) {
    let flow = |session: &Session, sender: &Sender| {
        format!("{}:{} > {}:{}", sender.source, sender.port, session.destination, session.port)
    };
    let rate = |tspec: &Tspec| {
        let bits = f64::from(tspec.rate) * 8.0;
        Rate::new(bits as u64).map_or("0 b/s".to_owned(), |rate| rate.to_string())
    };
    match upcall {
        Upcall::Path { session, sender, tspec } => {
            let (flow, rate) = (flow(session, sender), rate(tspec));
            let text = format!("announced: {flow}, {rate}");
            (json!({"event": "path", "flow": flow, "rate": rate}), text)
        }
        Upcall::PathGone { session, sender } => {
            let flow = flow(session, sender);
            let text = format!("withdrawn: {flow}");
            (json!({"event": "path_gone", "flow": flow}), text)
        }
        Upcall::Resv { flows, .. } => {
            let rates: Vec<String> = flows.iter().map(|flow| rate(&flow.flowspec.tspec)).collect();
            let text = match rates.is_empty() {
                true => "no reservation any more".to_owned(),
                false => format!("reserved: {}", rates.join(", ")),
            };
            (json!({"event": "reserved", "rates": rates}), text)
        }
        Upcall::Confirmed { node, .. } => {
            (json!({"event": "confirmed", "node": node}), format!("confirmed by {node}"))
        }
        Upcall::FlowSetup { session, sender, flowspec, hops, is_broken } => {
            let (flow, rate) = (flow(session, sender), rate(&flowspec.tspec));
            let part = if *is_broken { ", not by all" } else { "" };
            let text = format!("set up: {flow}, {rate}, reserved by {hops} routers{part}");
            let event = json!({"event": "flow_setup", "flow": flow, "rate": rate, "hops": hops,
                "complete": !is_broken});
            (event, text)
        }
        Upcall::PathError { error, .. } | Upcall::ResvError { error, .. } => {
            let (node, why) = (error.node, error.error.to_string());
            let text = format!("refused by {node}: {why}");
            (json!({"event": "refused", "node": node, "why": why}), text)
        }
        Upcall::Refused { why, .. } => refused_here(&why.to_string()),
        Upcall::PluginsRefused { why, .. } => refused_here(&why.to_string()),
    }
}

fn refused_here(why: &str) -> (Value, String) {
    (json!({"event": "refused", "why": why}), format!("refused by this host: {why}"))
}
