//! Figure 14's network with TCP, made by hand: goodput and speed of one point.
//!
//!     cargo run --release -p nilometer-sim --example dumbbell -- [KIND] [BUFFER] [SECONDS] [FLOWS] [SEED] [TCP]

use std::fs;

use nilometer_queue::{Any, Capacity, Kind, Settings};
use nilometer_sim::endpoint::{ENDLESS, Endpoint};
use nilometer_sim::{Hop, Link, Network, Plan, Queue, Route};
use nilometer_stat::Rng;
use nilometer_tcp::{Config, Recovery};
use nilometer_wire::{Rate, Span, Time};

fn plan(flows: u32, kind: Kind, buffer: u32, seed: u64, recovery: Recovery) -> Plan<Endpoint> {
    let millis = |n: u64| Span::from_nanos(n * 1_000_000);
    let fifo = || Queue::Fifo { limit_bytes: 1 << 30 };
    let core = Rate::from_megabits(5 * u64::from(flows));
    let overhead = std::env::var("OVERHEAD_US").map_or(0, |us| us.parse().expect("a number"));
    let overhead = Span::from_nanos(1000 * overhead);
    let mut settings = Settings::new(kind, Capacity::Packets(buffer), core);
    settings.queues = flows;
    settings.seed = seed;
    if std::env::var("LOOSE").is_ok() {
        settings.qsdrr.strictly_smallest = false;
    }
    if std::env::var("TAIL").is_ok() {
        settings.qsdrr.drop_from = nilometer_queue::End::Tail;
        settings.drr_drop_from = nilometer_queue::End::Tail;
    }
    let shared = Queue::Discipline(Any::new(&settings).expect("sane settings"));
    let mut links =
        vec![Link::new(core, millis(40), 1500, shared), Link::new(core, millis(40), 1500, fifo())];
    let mut rng = Rng::new(seed, 99, 0);
    let (mut paths, mut members) = (Vec::new(), Vec::new());
    for flow in 0..flows {
        let base = links.len() as u32;
        for _ in 0..4 {
            let link = Link::new(Rate::from_megabits(10), millis(5), 1500, fifo());
            links.push(link.with_overhead(overhead, seed, u64::from(base)));
        }
        let there = [base, 0, base + 1].map(Hop::Link);
        let back = [base + 2, 1, base + 3].map(Hop::Link);
        paths.push([&there[..], &[Hop::Member(2 * flow + 1, 0)]].concat());
        paths.push([&back[..], &[Hop::Member(2 * flow, 0)]].concat());
        let config = Config { recovery, ..Config::ns2_reno() };
        let start = Time(rng.below(1_000_000_000));
        let route = Route::out(flow);
        let client = Endpoint::client(config, route, start, ENDLESS, 1);
        let server = Endpoint::server(config, route.reverse(), u64::MAX, 1);
        members.push((client, vec![base]));
        members.push((server, vec![base + 2]));
    }
    Plan { links, paths, members }
}

/// Nanoseconds that this process has had a processor.
fn cpu_nanos() -> u64 {
    let text = fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |n: usize, default: u64| arguments.get(n).map_or(default, |a| a.parse().expect("a number"));
    let kind = arguments.first().map_or(Kind::TailDrop, |a| Kind::from_name(a).expect("a kind"));
    let (buffer, seconds) = (number(1, 200) as u32, number(2, 100));
    let (flows, seed) = (number(3, 100) as u32, number(4, 1));
    let recovery = match arguments.get(5).map(String::as_str) {
        Some("tahoe") => Recovery::Tahoe,
        Some("newreno") => Recovery::NewReno,
        Some("sack") => Recovery::Sack,
        _ => Recovery::Reno,
    };
    let mut network: Network<Endpoint> =
        Network::new(plan(flows, kind, buffer, seed, recovery), (), true);
    let begun = cpu_nanos();
    network.run_until(Time::ZERO + Span::from_secs(seconds));
    let nanos = (cpu_nanos() - begun) as f64;
    assert!(network.balances());
    let share = 5e6 * seconds as f64;
    let goodputs: Vec<f64> = network
        .members()
        .iter()
        .skip(1)
        .step_by(2)
        .map(|end| (end.connection().delivered() / 1460 * 1500 * 8) as f64 / share)
        .collect();
    let mean = goodputs.iter().sum::<f64>() / goodputs.len() as f64;
    let variance =
        goodputs.iter().map(|g| (g - mean) * (g - mean)).sum::<f64>() / (goodputs.len() - 1) as f64;
    let timeouts: u64 =
        network.members().iter().map(|end| end.connection().statistics().timeouts).sum();
    let hops = network.packet_hops() as f64;
    let drops = network.counters()[0].drops.total_packets();
    println!(
        "{} {buffer}: goodput {:.1} %, sd {:.3}, drops {drops}, timeouts {timeouts}; {:.1} M hops, \
         {:.2} CPU-s, {:.1} M hops/CPU-s, {:.2} events/hop, digest {:016x}",
        kind.name(),
        mean * 100.0,
        variance.sqrt(),
        hops / 1e6,
        nanos / 1e9,
        hops * 1e3 / nanos,
        network.journal().events as f64 / hops,
        network.journal().digest,
    );
}
