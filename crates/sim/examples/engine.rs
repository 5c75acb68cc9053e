//! Measures the engine alone: ack-clocked flows of fixed window through the DER's bottleneck.
//!
//!     cargo run --release -p nilometer-sim --example engine -- [FLOWS] [SECONDS]
//!
//! Figure 14's network without TCP: each sender keeps a fixed number of packets under way. Prints
//! packet-hops per CPU-second, with and without fusion.

use std::fs;

use nilometer_queue::{Any, Capacity, DisciplineKind, Settings};
use nilometer_sim::{Hop, Link, Network, Packet, Plan, Queue, Route};
use nilometer_wire::{Node, Port, Rate, Span, Time};

#[derive(Debug)]
struct Window {
    route: Route,
    credit: u32,
    bytes: u16,
}

impl Node<Packet> for Window {
    fn receive(&mut self, _now: Time, _port: Port, _packet: &Packet, _: &mut ()) {
        self.credit += 1;
    }
    fn handle_timeout(&mut self, _now: Time, _: &mut ()) {}
    fn poll_transmit(&mut self, _now: Time, packet: &mut Packet, _: &mut ()) -> Option<Port> {
        self.credit = self.credit.checked_sub(1)?;
        *packet = Packet { route: self.route, bytes: self.bytes, ..Packet::default() };
        packet.segment.sequence = self.credit;
        Some(Port(0))
    }
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

fn plan(flows: u32) -> Plan<Window> {
    let millis = |n: u64| Span::from_nanos(n * 1_000_000);
    let fifo = || Queue::Fifo { limit_bytes: 1 << 30 };
    let core = Rate::from_megabits(5 * u64::from(flows));
    let settings = Settings::new(DisciplineKind::TailDrop, Capacity::Packets(1 << 20), core);
    let shared = Queue::Discipline(Any::new(&settings).expect("sane settings"));
    let mut links =
        vec![Link::new(core, millis(40), 1500, shared), Link::new(core, millis(40), 1500, fifo())];
    let (mut paths, mut members) = (Vec::new(), Vec::new());
    for flow in 0..flows {
        let base = links.len() as u32;
        for _ in 0..4 {
            links.push(Link::new(Rate::from_megabits(10), millis(5), 1500, fifo()));
        }
        let there = [base, 0, base + 1].map(Hop::Link);
        let back = [base + 2, 1, base + 3].map(Hop::Link);
        paths.push([&there[..], &[Hop::Member(2 * flow + 1, 0)]].concat());
        paths.push([&back[..], &[Hop::Member(2 * flow, 0)]].concat());
        let route = Route::out(flow);
        members.push((Window { route, credit: 41, bytes: 1500 }, vec![base]));
        members.push((Window { route: route.reverse(), credit: 0, bytes: 40 }, vec![base + 2]));
    }
    Plan { links, paths, members, watched: None }
}

/// Nanoseconds that this process has had a processor.
fn cpu_nanos() -> u64 {
    let text = fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

fn main() {
    let argument = |n: usize, default: u64| {
        std::env::args().nth(n).map_or(default, |a| a.parse().expect("a number"))
    };
    let flows = argument(1, 100) as u32;
    let seconds = argument(2, 20);
    for fuses in [true, false] {
        let mut network: Network<Window> = Network::new(plan(flows), (), fuses);
        let begun = cpu_nanos();
        network.run_until(Time::ZERO + Span::from_secs(seconds));
        let nanos = (cpu_nanos() - begun) as f64;
        assert!(network.balances());
        let hops = network.packet_hops() as f64;
        println!(
            "{flows} flows, fuses {fuses}: {:.1} M hops, {:.2} CPU-s, {:.1} M hops/CPU-s, {:.2} events/hop, digest {:016x}",
            hops / 1e6,
            nanos / 1e9,
            hops * 1e3 / nanos,
            network.journal().events as f64 / hops,
            network.journal().digest,
        );
    }
}
