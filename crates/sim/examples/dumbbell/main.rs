//! Figure 14's network with TCP: goodput and speed of one point.
//!
//!     cargo run --release -p nilometer-sim --example dumbbell -- \
//!         [KIND] [BUFFER] [SECONDS] [FLOWS] [SEED] [RECOVERY]

extern crate alloc;

mod figure_14;

use std::fs;

use figure_14::{Point, plan};
use nilometer_queue::DisciplineKind;
use nilometer_sim::Network;
use nilometer_sim::endpoint::Endpoint;
use nilometer_tcp::{Config, Recovery};
use nilometer_wire::{Span, Time};

/// Nanoseconds that this process has had a processor.
fn cpu_nanos() -> u64 {
    let text = fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |n: usize, default: u64| arguments.get(n).map_or(default, |a| a.parse().expect("a number"));
    let kind = arguments
        .first()
        .map_or(DisciplineKind::TailDrop, |a| DisciplineKind::from_name(a).expect("a kind"));
    let (buffer, seconds) = (number(1, 200) as u32, number(2, 100));
    let (flows, seed) = (number(3, 100) as u32, number(4, 1));
    let recovery = match arguments.get(5).map(String::as_str) {
        Some("tahoe") => Recovery::Tahoe,
        Some("newreno") => Recovery::NewReno,
        Some("sack") => Recovery::Sack,
        _ => Recovery::Reno,
    };
    let tcp = Config { recovery, ..Config::ns2_reno() };
    let point = Point { kind, buffer_packets: buffer, flows, seed, tcp };
    let mut network: Network<Endpoint> = Network::new(plan(&point), (), true);
    let begun = cpu_nanos();
    network.run_until(Time::ZERO + Span::from_secs(seconds));
    let nanos = (cpu_nanos() - begun) as f64;
    assert!(network.balances());
    let share = 5e6 * seconds as f64;
    let goodputs: Vec<f64> = network
        .members()
        .skip(1)
        .step_by(2)
        .map(|end| (end.connection().delivered() / 1460 * 1500 * 8) as f64 / share)
        .collect();
    let mean = goodputs.iter().sum::<f64>() / goodputs.len() as f64;
    let variance =
        goodputs.iter().map(|g| (g - mean) * (g - mean)).sum::<f64>() / (goodputs.len() - 1) as f64;
    let timeouts: u64 = network.members().map(|end| end.connection().statistics().timeouts).sum();
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
