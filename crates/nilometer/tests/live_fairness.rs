//! The DER's question put to kernels: which packet should a full router drop (section 7)?
//!
//! TCP Reno of the kernel, without SACK, through a running router: each flow paced to 10 Mb/s, 5 Mb/s of
//! the bottleneck for each, 100 ms of round-trip time in the ports' delay lines. The simulator plays the
//! same scenario; the disciplines must rank in its order where it separates them clearly.
//!
//! By default a short version: 20 flows for some seconds. `NILOMETER_FLOWS=100 NILOMETER_SECONDS=100` is
//! the paper's size, with all six disciplines. The kernel's TCP takes more of a processor than a router
//! does: where there are few, `NILOMETER_SLOWER=5` plays the same packets and windows five times slower,
//! all rates divided and all delays multiplied by it, in the simulator too.
//!
//! Flows with less than half of their throughput in virtual time prove nothing about disciplines. They are
//! *skipped* only if the kernel reports that no processor was left; `NILOMETER_QUIET=1` allows no skips.

mod common;
#[path = "common/links.rs"]
mod links;
#[path = "common/quiet.rs"]
mod quiet;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use common::Room;
use links::{link, settle};
use nilometer_linux::namespace::Namespace;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::running::Running;
use quiet::Moment;
use serde_json::Value;

const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 2), Ipv4Addr::new(198, 19, 0, 2)];
/// The fair share of a flow.
const SHARE_MBPS: f64 = 5.0;
/// The rate that a flow is paced to.
const ACCESS_MBPS: f64 = 10.0;
const RTT_MS: usize = 100;
/// Disciplines whose deviations differ by less than this factor in virtual time have no order.
const CLEARLY: f64 = 2.0;
/// Flows with less than this share of their throughput in virtual time are not limited by the router's
/// link.
const FILLED: f64 = 0.5;
/// A machine with less than this share idle had no processor left.
const IDLE_LEAST: f64 = 0.15;
/// How often a run is repeated that the machine spoiled.
const ROUNDS: usize = 3;
/// Pairs of the six disciplines that are clearly apart in virtual time.
const PAIRS_LEAST: usize = 6;

/// Reno as the paper's sources are: no selective acknowledgements, nothing that finds losses by time.
const SETTINGS: [(&str, &str); 7] = [
    ("net/ipv4/tcp_congestion_control", "reno"),
    ("net/ipv4/tcp_sack", "0"),
    ("net/ipv4/tcp_recovery", "0"),
    ("net/ipv4/tcp_early_retrans", "0"),
    ("net/ipv4/tcp_ecn", "0"),
    ("net/ipv4/tcp_min_tso_segs", "1"),
    ("net/ipv4/tcp_no_metrics_save", "1"),
];

fn number(name: &str, usual: usize) -> usize {
    let requested = std::env::var(name).ok();
    requested.map_or(usual, |text| text.parse().expect("a number"))
}

/// Sources, destinations, and the router between them.
fn site() -> Result<[Namespace; 3]> {
    let (left, right, router) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
    for (number, host) in (0u8..).zip([&left, &right]) {
        host.write_sysctls(&SETTINGS)?;
        link(&router, &format!("p{number}"), host, "eth", number)?;
        let gateway = Ipv4Addr::new(198, 18 + number, 0, 1).into();
        settle(host, "eth", HOSTS[usize::from(number)], Some(("198.18.0.0/15", gateway)))?;
    }
    Ok([left, right, router])
}

/// The load: how many flows for how long, and how many times slower than in the paper.
#[derive(Clone, Copy)]
struct Play {
    flows: usize,
    seconds: usize,
    buffer_packets: usize,
    slower: f64,
}

impl Play {
    fn share_mbps(&self) -> f64 {
        SHARE_MBPS / self.slower
    }

    fn access_mbps(&self) -> f64 {
        ACCESS_MBPS / self.slower
    }

    fn rtt_ms(&self) -> f64 {
        RTT_MS as f64 * self.slower
    }
}

fn description(discipline: &str, play: Play) -> RouterConfig {
    let many = match discipline {
        "drr" | "tdrr" | "qsdrr" => ", queues = 16384",
        "red" => ", max_p = 0.01, w_q = 0.001, min_th_percent = 20, max_th_percent = 100",
        _ => "",
    };
    let text = format!(
        "seed = 1\n[tables]\nroutes_v4 = 1000\nroutes_v6 = 1000\nfilters = 100\n\
         [fabric]\nqueueing = \"off\"\n\
         [[port]]\ninterface = \"p0\"\naddresses = [\"198.18.0.1/24\"]\ndelay = \"{delay} ms\"\n\
         queue = {{ discipline = \"tail_drop\", buffer_packets = 20000 }}\n\
         [[port]]\ninterface = \"p1\"\naddresses = [\"198.19.0.1/24\"]\ndelay = \"{delay} ms\"\n\
         rate = \"{rate} Mb/s\"\n\
         queue = {{ discipline = \"{discipline}\", buffer_packets = {buffer}{many} }}\n",
        delay = play.rtt_ms() / 2.0,
        rate = play.share_mbps() * play.flows as f64,
        buffer = play.buffer_packets,
    );
    toml::from_str(&text).expect("a description")
}

/// A connection's near end, paced.
fn connect(at: SocketAddr, play: Play) -> Result<TcpStream> {
    let near = TcpStream::connect_timeout(&at, Duration::from_secs(20))?;
    let rate = (play.access_mbps() * 125_000.0) as u32;
    // SAFETY: the option is read from an integer that lives until the call returns.
    let set = unsafe {
        libc::setsockopt(
            near.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    ensure!(set == 0, "no pacing: {}", std::io::Error::last_os_error());
    Ok(near)
}

/// Connections, each with its two ends, in no order.
fn connections(
    [left, right]: [&Namespace; 2],
    play: Play,
) -> Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    let listener = right.enter(|| Ok(TcpListener::bind((HOSTS[1], 0))?))?;
    let at: SocketAddr = listener.local_addr()?;
    thread::scope(|scope| {
        let begin = |_| scope.spawn(move || left.enter(|| connect(at, play)));
        let threads: Vec<_> = (0..play.flows).map(begin).collect();
        let near: Result<Vec<_>> =
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        let near = near?;
        let far: std::io::Result<Vec<_>> =
            near.iter().map(|_| listener.accept().map(|(far, _)| far)).collect();
        Ok((near, far?))
    })
}

/// What each flow brought, as a part of its fair share.
fn shares(near: Vec<TcpStream>, far: Vec<TcpStream>, play: Play) -> Result<Vec<f64>> {
    let came: Vec<_> = far.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
    let mut threads = Vec::new();
    let mut ends = Vec::new();
    for (mut far, count) in far.into_iter().zip(&came) {
        ends.push(far.try_clone()?);
        let count = Arc::clone(count);
        threads.push(thread::spawn(move || {
            let mut bytes = [0; 65_536];
            while let Ok(got @ 1..) = far.read(&mut bytes) {
                count.fetch_add(got as u64, Ordering::Relaxed);
            }
        }));
    }
    for mut near in near {
        ends.push(near.try_clone()?);
        threads.push(thread::spawn(move || while near.write(&[0; 65_536]).is_ok() {}));
    }
    thread::sleep(Duration::from_secs(play.seconds as u64));
    let fair = play.share_mbps() * 125_000.0 * play.seconds as f64;
    let shares = came.iter().map(|count| count.load(Ordering::Relaxed) as f64 / fair).collect();
    for end in ends {
        // One that is closed already has nothing to shut down.
        let _ = end.shutdown(Shutdown::Both);
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    Ok(shares)
}

fn played(discipline: &str, play: Play) -> Result<Vec<f64>> {
    let [left, right, namespace] = site()?;
    let router = Running::start(Some(&namespace), description(discipline, play), false)?;
    router.wait_until_up()?;
    let (near, far) = connections([&left, &right], play).context("connections")?;
    let shares = shares(near, far, play)?;
    let tally = router.stop()?;
    ensure!(tally.balances, "{tally:?}");
    ensure!(
        tally.dropped > 0,
        "{discipline} dropped nothing: its link was no bottleneck: {tally:?}"
    );
    let lost: u64 = tally.ports.iter().flat_map(|port| port.lost.values()).sum();
    println!("{discipline}: {} dropped by queues, {lost} lost by devices", tally.dropped);
    Ok(shares)
}

/// Mean, and standard deviation among the flows, in parts of the fair share.
fn spread(shares: &[f64]) -> [f64; 2] {
    let count = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / count;
    let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    [mean, (squares / count).sqrt()]
}

/// The scenario that is built in, at the rates that are played.
fn scenario(room: &Room, play: Play) -> String {
    let mut text = include_str!("../../../examples/qsdrr.toml").to_owned();
    for (built_in, played) in [
        ("\"5 $flows Mb/s\"", format!("\"{} $flows Mb/s\"", play.share_mbps())),
        ("\"10 Mb/s\"", format!("\"{} Mb/s\"", play.access_mbps())),
    ] {
        assert!(text.contains(built_in), "{built_in} is in the scenario");
        text = text.replace(built_in, &played);
    }
    room.write("slower.toml", &text);
    room.path("slower.toml").to_str().expect("a path").to_owned()
}

fn simulated(room: &Room, discipline: &str, play: Play) -> [f64; 2] {
    let file = scenario(room, play);
    let set = [
        format!("discipline={discipline}"),
        format!("buffer_packets={}", play.buffer_packets),
        format!("flows={}", play.flows),
        format!("rtt_ms={}", play.rtt_ms()),
        format!("duration_s={}", play.seconds),
    ];
    let mut words = vec!["simulate", &file, "--seeds", "3", "--json"];
    words.extend(set.iter().flat_map(|text| ["--set", text]));
    let output = room.command(&words).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let point = &result["points"][0];
    let share = point["fair_share_percent"].as_f64().expect("a share") / 100.0;
    [share, point["stddev_over_fair_share"].as_f64().expect("a deviation")]
}

/// The live result of a discipline, if the machine lets the flows fill its link.
fn filled(discipline: &str, play: Play, simulated: [f64; 2]) -> Option<[f64; 2]> {
    for _ in 0..ROUNDS {
        let before = Moment::now("");
        let live = spread(&played(discipline, play).expect("it is played"));
        let idle = before.idle_since();
        if live[0] >= FILLED * simulated[0] {
            return Some(live);
        }
        println!("{discipline}: {:.1} % of the share, {:.1} % idle", 100.0 * live[0], 100.0 * idle);
        let is_let_off = idle < IDLE_LEAST && !quiet::is_declared_quiet();
        assert!(is_let_off, "{discipline} leaves its link empty though processors were idle");
    }
    None
}

#[test]
fn disciplines_come_in_the_simulators_order() {
    if !common::privileged("fairness among kernels' flows") {
        return;
    }
    let (flows, seconds) = (number("NILOMETER_FLOWS", 20), number("NILOMETER_SECONDS", 12));
    let slower = number("NILOMETER_SLOWER", 1) as f64;
    let play = Play { flows, seconds, buffer_packets: 10 * flows, slower };
    let disciplines: &[&str] = match seconds {
        ..60 => &["tail_drop", "qsdrr"],
        _ => &["tail_drop", "red", "blue", "drr", "tdrr", "qsdrr"],
    };
    let room = Room::new("live-fairness");
    let buffer = play.buffer_packets;
    let mut found: Vec<(&str, [f64; 2], [f64; 2])> = Vec::new();
    for &discipline in disciplines {
        let simulated = simulated(&room, discipline, play);
        let Some(live) = filled(discipline, play, simulated) else {
            return println!("skipped: fairness among kernels' flows: no processor was left");
        };
        println!(
            "{discipline}, {buffer} packets: router {:.1} % / {:.3}, simulator {:.1} % / {:.3}",
            100.0 * live[0],
            live[1],
            100.0 * simulated[0],
            simulated[1]
        );
        found.push((discipline, live, simulated));
    }
    let mut distinct = 0;
    for (one, live, simulated) in &found {
        for (other, others_live, others_simulated) in &found {
            if simulated[1] * CLEARLY < others_simulated[1] {
                assert!(live[1] < others_live[1], "{one} is fairer than {other} in virtual time");
                distinct += 1;
            }
        }
    }
    // Virtual time depends on no machine: this many pairs of these disciplines are clearly apart.
    let least = if disciplines.len() == 2 { 1 } else { PAIRS_LEAST };
    assert!(
        distinct >= least,
        "{distinct} pairs are clearly apart in virtual time, {least} at least"
    );
}
