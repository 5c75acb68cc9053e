//! The engine's cost of a flow, compared with a minimal epoll loop's.
//!
//! `benches/generator.sh` builds three network namespaces and calls `compare`, which runs
//! `minimal_epoll` and this program's own `server` and `client` in turns, at the same offered rate
//! over the same path, and prints CPU time for each flow: medians over the repeats, and their
//! ratio.
//!
//! With a rate both start each flow at its own time, so most of a flow's cost at low rates is waking
//! up, which an idle machine makes dearer than a busy one: read the ratio first, the microseconds
//! second. With the rate 0 both are kept busy, a fixed number of flows under way at all times.
//!
//! The cost of a run is the user and system time of both processes plus the softirq time that no
//! process is charged for. On a kernel that accounts for interrupt time (`--irq-time`), that is the
//! softirq column of `/proc/stat`; on others a process pays for the softirqs that interrupt it, the
//! column would count them twice, and only `ksoftirqd`'s own time is added.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{mem, thread};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser};
use nilometer_lab::generate::{Client, ClientConfig, LiveCounters, Outcome, Server, ServerConfig};
use nilometer_traffic::plan::PlannedConnection;
use nilometer_wire::Time;

const SOURCE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
const ADDRESSES: u64 = 250;
const PORT: u16 = 7_070;
/// How long a run without a rate may take.
const BUSY_LIMIT: Duration = Duration::from_secs(120);

static STOP: AtomicBool = AtomicBool::new(false);

#[derive(Parser)]
enum Verb {
    /// Serve until interrupted.
    Server,
    /// Play flows from 250 addresses to 250, and print how many were completed.
    Client(Load),
    /// Run both tools alternately and compare the cost of a flow.
    Compare(Comparison),
    /// Disable segmentation, receive and checksum offloads of an interface.
    OffloadsOff {
        /// Its name.
        interface: String,
    },
}

#[derive(Args, Clone, Copy)]
struct Load {
    /// Number of flows in one run.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    flows: u64,
    /// Flows started per second; 0 starts one whenever fewer than `--open` are active.
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// Maximum number of active flows, if the rate is 0.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    open: u64,
    /// Payload bytes of a flow.
    #[arg(long, default_value_t = 10_000)]
    bytes: u64,
}

#[derive(Args)]
struct Comparison {
    #[command(flatten)]
    load: Load,
    /// Namespace of the clients.
    #[arg(long)]
    client_namespace: String,
    /// Namespace of the servers.
    #[arg(long)]
    server_namespace: String,
    /// Number of runs of each tool.
    #[arg(long, default_value_t = 7)]
    repeats: usize,
    /// The kernel has CONFIG_IRQ_TIME_ACCOUNTING.
    #[arg(long)]
    irq_time: bool,
}

fn main() -> Result<()> {
    match Verb::parse() {
        Verb::Server => serve(),
        Verb::Client(load) => play(load),
        Verb::Compare(comparison) => compare(&comparison),
        Verb::OffloadsOff { interface } => offloads_off(&interface),
    }
}

extern "C" fn on_interrupt(_: libc::c_int) {
    STOP.store(true, Relaxed);
}

fn serve() -> Result<()> {
    let handler: extern "C" fn(libc::c_int) = on_interrupt;
    // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
    unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT);
    let server = Server::bind(ServerConfig::new(vec![any]))?;
    println!("listening");
    let report = server.run(&LiveCounters::new(), &STOP)?;
    let others = report.accepted - report.completed;
    ensure!(others == 0, "{others} of {} connections did not end well", report.accepted);
    Ok(())
}

fn play(load: Load) -> Result<()> {
    let address = |base: Ipv4Addr, index: u64| {
        IpAddr::V4(Ipv4Addr::from_bits(base.to_bits() + (index % ADDRESSES) as u32))
    };
    let plan: Vec<_> = (0..load.flows)
        .map(|index| PlannedConnection {
            start: Time::from_nanos((index * 1_000_000_000).checked_div(load.rate).unwrap_or(0)),
            session: index as u32,
            interval: 0,
            source: address(SOURCE, index),
            destination: address(DESTINATION, index),
            size_bytes: load.bytes,
            request_bytes: 0,
            segment_bytes: 0,
            source_port: 0,
            script: None,
        })
        .collect();
    let mut config = ClientConfig::new(PORT, Instant::now());
    if load.rate == 0 {
        config = ClientConfig { open_max: load.open as usize, drain: BUSY_LIMIT, ..config };
    }
    let client = Client::new(config)?;
    let executions = client.run(&plan, &LiveCounters::new(), &STOP)?;
    let completed = executions.iter().filter(|e| e.outcome == Outcome::Completed).count();
    println!("{completed}");
    if load.rate == 0 {
        return Ok(());
    }
    let mut late_ns: Vec<u64> = executions
        .iter()
        .map(|e| e.started_ns.saturating_sub(plan[e.index as usize].start.as_nanos()))
        .collect();
    late_ns.sort_unstable();
    let at = |share: f64| late_ns[((late_ns.len() - 1) as f64 * share) as usize] / 1_000;
    eprintln!("         lateness p50 {} µs, p99 {} µs, max {} µs", at(0.5), at(0.99), at(1.0));
    Ok(())
}

/// CPU time of one run, in microseconds a flow.
#[derive(Clone, Copy)]
struct Cost {
    client_us: f64,
    server_us: f64,
    softirq_us: f64,
    /// Busy time of the whole machine, others' work included.
    machine_us: f64,
}

impl Cost {
    fn total_us(&self) -> f64 {
        self.client_us + self.server_us + self.softirq_us
    }
}

fn compare(comparison: &Comparison) -> Result<()> {
    let here = std::env::current_exe().context("cannot find this program")?;
    let minimal = here.with_file_name("minimal_epoll");
    ensure!(minimal.exists(), "{} is missing; build the examples", minimal.display());
    let load = comparison.load;
    let (mut least, mut ours) = (Vec::new(), Vec::new());
    for repeat in 0..comparison.repeats {
        for turn in 0..2 {
            let is_ours = (repeat + turn) % 2 == 1;
            let (program, costs) =
                if is_ours { (&here, &mut ours) } else { (&minimal, &mut least) };
            let cost = run(comparison, program, &arguments(is_ours, load))?;
            println!(
                "{:>7}: {:6.1} CPU-µs a flow (client {:.1}, server {:.1}, softirq {:.1}; all {:.1})",
                if is_ours { "engine" } else { "minimal" },
                cost.total_us(),
                cost.client_us,
                cost.server_us,
                cost.softirq_us,
                cost.machine_us,
            );
            costs.push(cost);
        }
    }
    let total = |costs: &[Cost]| median(costs.iter().map(Cost::total_us));
    let machine = |costs: &[Cost]| median(costs.iter().map(|cost| cost.machine_us));
    let pairs = ours.iter().zip(&least).map(|(ours, least)| ours.total_us() / least.total_us());
    println!(
        "{}",
        serde_json::json!({
            "flows": load.flows, "bytes": load.bytes, "rate": load.rate, "open": load.open,
            "repeats": comparison.repeats,
            "minimal_cpu_us": total(&least), "engine_cpu_us": total(&ours),
            "ratio": total(&ours) / total(&least), "ratio_paired": median(pairs),
            "minimal_machine_us": machine(&least), "engine_machine_us": machine(&ours),
        })
    );
    Ok(())
}

/// The words that start a server and a client of one tool.
fn arguments(is_ours: bool, load: Load) -> [Vec<String>; 2] {
    let Load { flows, rate, open, bytes } = load;
    let (server, client) = match is_ours {
        true => {
            let load = format!("--flows {flows} --rate {rate} --open {open} --bytes {bytes}");
            ("server".to_owned(), format!("client {load}"))
        }
        false => (
            format!("server {PORT} {bytes}"),
            format!("client {PORT} {bytes} {flows} {rate} {open} {DESTINATION} {ADDRESSES}"),
        ),
    };
    [server, client].map(|line| line.split(' ').map(str::to_owned).collect())
}

fn run(comparison: &Comparison, program: &Path, words: &[Vec<String>; 2]) -> Result<Cost> {
    let mut server = spawn(&comparison.server_namespace, program, &words[0])?;
    let mut line = String::new();
    let listening = server.stdout.take().context("a server without output")?;
    BufReader::new(listening).read_line(&mut line).context("cannot hear the server")?;
    ensure!(line.trim() == "listening", "the server of {} did not start", program.display());
    let before = Machine::read(comparison.irq_time)?;
    let mut client = spawn(&comparison.client_namespace, program, &words[1])?;
    let mut answer = String::new();
    let output = client.stdout.as_mut().context("a client without output")?;
    output.read_to_string(&mut answer).context("cannot hear the client")?;
    let client_us = end(client)?;
    thread::sleep(Duration::from_millis(100));
    let after = Machine::read(comparison.irq_time)?;
    // SAFETY: the process is our child and has not been waited for.
    unsafe { libc::kill(server.id() as libc::pid_t, libc::SIGINT) };
    let server_us = end(server)?;
    let completed: u64 = answer.trim().parse().context("the client did not say what it did")?;
    let flows = comparison.load.flows;
    ensure!(completed == flows, "{}: {completed} of {flows} flows", program.display());
    let per_flow = |micros: f64| micros / flows as f64;
    Ok(Cost {
        client_us: per_flow(client_us),
        server_us: per_flow(server_us),
        softirq_us: per_flow(after.unbilled_us - before.unbilled_us),
        machine_us: per_flow(after.busy_us - before.busy_us),
    })
}

fn spawn(namespace: &str, program: &Path, words: &[String]) -> Result<Child> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program).args(words);
    command.stdout(Stdio::piped());
    // SAFETY: prctl is async-signal-safe and takes numbers only; children die with this program.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command.spawn().context("cannot run `ip netns exec`")
}

/// Waits for `child` and returns the CPU time that it used, in microseconds.
fn end(child: Child) -> Result<f64> {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    let mut status = 0;
    // SAFETY: both pointers are valid; the process is our child and has not been waited for.
    let ended = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage) };
    ensure!(ended > 0, "cannot wait for a tool: {}", std::io::Error::last_os_error());
    let micros = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    Ok(micros(usage.ru_utime) + micros(usage.ru_stime))
}

/// The machine's CPU time so far, in microseconds.
struct Machine {
    busy_us: f64,
    unbilled_us: f64,
}

impl Machine {
    fn read(irq_time: bool) -> Result<Machine> {
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let line = stat.lines().next().context("/proc/stat is empty")?;
        let columns: Vec<f64> =
            line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, ..] = columns[..] else {
            bail!("/proc/stat has too few columns");
        };
        // SAFETY: takes a number only.
        let tick_us = 1e6 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let unbilled_us = if irq_time { (irq + softirq) * tick_us } else { ksoftirqd_us()? };
        Ok(Machine { busy_us: (user + nice + system + irq + softirq) * tick_us, unbilled_us })
    }
}

fn ksoftirqd_us() -> Result<f64> {
    let mut total_ns = 0.0;
    for entry in fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
        let path: PathBuf = entry.path();
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.starts_with("ksoftirqd/") {
            let times = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            let first = times.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
            total_ns += first.unwrap_or(0.0);
        }
    }
    Ok(total_ns / 1e3)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    value: u32,
}

/// `struct ifreq` with its pointer member.
#[repr(C)]
struct InterfaceRequest {
    name: [libc::c_char; libc::IFNAMSIZ],
    value: *mut EthtoolValue,
    rest: [u8; 16],
}

fn offloads_off(interface: &str) -> Result<()> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    let switches = [("GRO", 0x2c), ("TSO", 0x1f), ("GSO", 0x24), ("transmit checksums", 0x17)];
    ensure!(interface.len() < libc::IFNAMSIZ, "`{interface}` is too long for an interface");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").context("cannot open a socket")?;
    for (what, command) in switches {
        let mut value = EthtoolValue { command, value: 0 };
        let mut request =
            InterfaceRequest { name: [0; libc::IFNAMSIZ], value: &mut value, rest: [0; 16] };
        for (to, from) in request.name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        // SAFETY: `request` has the layout of ifreq and its pointer is valid for the call.
        let done = unsafe { libc::ioctl(fd, SIOCETHTOOL, &mut request) };
        let error = std::io::Error::last_os_error();
        ensure!(done == 0, "cannot switch {what} of `{interface}` off: {error}");
    }
    Ok(())
}
