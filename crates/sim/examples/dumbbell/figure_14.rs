//! Figure 14's network made by hand: flows that share a bottleneck.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_queue::{Any, Capacity, DisciplineKind, Settings};
use nilometer_sim::endpoint::{ENDLESS, Endpoint};
use nilometer_sim::{Hop, Link, Plan, Queue, Route};
use nilometer_stat::Rng;
use nilometer_tcp::Config;
use nilometer_wire::{Rate, Span, Time};

/// What may be different.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The bottleneck's discipline, with a queue for each flow.
    pub kind: DisciplineKind,
    /// What it holds.
    pub buffer_packets: u32,
    /// How many flows; each has a share of 5 Mb/s.
    pub flows: u32,
    /// The seed of start times, processing times and drops.
    pub seed: u64,
    /// Both ends of every flow.
    pub tcp: Config,
}

/// Sources and destinations at 10 Mb/s, 5 ms from their routers, which are 40 ms apart. Flows start
/// within the first millisecond; hosts take up to 24 µs before each packet.
pub fn plan(point: &Point) -> Plan<Endpoint> {
    let millis = |n: u64| Span::from_nanos(n * 1_000_000);
    let fifo = || Queue::Fifo { limit_bytes: 1 << 30 };
    let core = Rate::from_megabits(5 * u64::from(point.flows));
    let mut settings = Settings::new(point.kind, Capacity::Packets(point.buffer_packets), core);
    settings.queues = point.flows;
    settings.seed = point.seed;
    let shared = Queue::Discipline(Any::new(&settings).expect("sane settings"));
    let mut links =
        vec![Link::new(core, millis(40), 1500, shared), Link::new(core, millis(40), 1500, fifo())];
    let mut starts = Rng::new(point.seed, 99, 0);
    let (mut paths, mut members) = (Vec::new(), Vec::new());
    for flow in 0..point.flows {
        let base = links.len() as u32;
        for index in base..base + 4 {
            let link = Link::new(Rate::from_megabits(10), millis(5), 1500, fifo());
            let most = Span::from_nanos(24_000);
            links.push(link.with_overhead(most, point.seed, u64::from(index)));
        }
        let there = [base, 0, base + 1].map(Hop::Link);
        let back = [base + 2, 1, base + 3].map(Hop::Link);
        paths.push([&there[..], &[Hop::Member(2 * flow + 1, 0)]].concat());
        paths.push([&back[..], &[Hop::Member(2 * flow, 0)]].concat());
        let start = Time(starts.below(millis(1).0));
        let route = Route::out(flow);
        let client = Endpoint::client(point.tcp, route, start, ENDLESS, 1);
        let server = Endpoint::server(point.tcp, route.reverse(), u64::MAX, 1);
        members.push((client, vec![base]));
        members.push((server, vec![base + 2]));
    }
    Plan { links, paths, members, watched: None }
}
