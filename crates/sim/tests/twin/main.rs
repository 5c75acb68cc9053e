//! The engine against a naive twin: an event for every phase of every packet, in one ordered map.
//!
//! The twin has no arrears, no fusion and no ring: a transmission's end and a packet's landing are
//! events of their own. Both must deliver the same packets at the same picosecond in the same order.

mod naive;

use naive::{Naive, Spec};
use nilometer_queue::{Any, Capacity, DisciplineKind, Reason, Settings};
use nilometer_sim::datagram::{Pattern, Sink, Sizing, Source, Spacing};
use nilometer_sim::{Hop, Link, Network, Packet, Plan, Queue, Route, Tap};
use nilometer_stat::Rng;
use nilometer_wire::{Node, Port, Rate, Span, Time};

/// What a tap or the twin saw: each delivery, and each drop by link.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    deliveries: Vec<(Time, usize, Packet)>,
    drops: Vec<Vec<(Reason, Packet)>>,
}

impl Tap for Seen {
    fn transmitted(&mut self, _link: usize, _arrival: Time, _packet: &Packet) {}
    fn dropped(&mut self, link: usize, _now: Time, reason: Reason, packet: &Packet) {
        if self.drops.len() <= link {
            self.drops.resize_with(link + 1, Vec::new);
        }
        self.drops[link].push((reason, *packet));
    }
    fn delivered(&mut self, member: usize, now: Time, packet: &Packet) {
        self.deliveries.push((now, member, *packet));
    }
}

/// Sends datagrams, or answers each with forty bytes.
#[derive(Debug)]
enum Talker {
    Source(Box<Source>, Sink),
    Echo(Vec<Packet>),
}

impl Node<Packet> for Talker {
    fn receive(&mut self, now: Time, port: Port, packet: &Packet, _: &mut ()) {
        match self {
            Talker::Source(_, sink) => sink.receive(now, port, packet, &mut ()),
            Talker::Echo(answers) => {
                let route = packet.route.reverse();
                answers.push(Packet { route, bytes: 40, ..*packet });
            }
        }
    }

    fn handle_timeout(&mut self, now: Time, _: &mut ()) {
        if let Talker::Source(source, _) = self {
            source.handle_timeout(now, &mut ());
        }
    }

    fn poll_transmit(&mut self, now: Time, packet: &mut Packet, _: &mut ()) -> Option<Port> {
        match self {
            Talker::Source(source, _) => source.poll_transmit(now, packet, &mut ()),
            Talker::Echo(answers) => {
                *packet = answers.pop()?;
                Some(Port(0))
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Talker::Source(source, _) => source.poll_timeout(),
            Talker::Echo(_) => None,
        }
    }
}

/// Some hosts, two routers, and what is between them; moments are coarse, so that ties abound.
struct Case {
    links: Vec<Spec>,
    paths: Vec<Vec<Hop>>,
    talkers: Vec<(Pattern, Vec<u32>)>,
    seed: u64,
}

const BOTTLENECK: usize = 0;
const WAY_BACK: usize = 1;

impl Case {
    fn new(seed: u64, kind: Option<DisciplineKind>) -> Case {
        let mut rng = Rng::new(seed, 7, 0);
        let flows = 1 + rng.below(6) as u32;
        let coarse = |rng: &mut Rng, most: u64| Span::from_nanos(100_000 * rng.below(most));
        let fifo = |rng: &mut Rng, megabits: u64| Spec {
            rate: Rate::from_megabits(megabits),
            delay: coarse(rng, 20),
            mtu: 1500,
            fifo_bytes: 3000 + rng.below(20_000),
            settings: None,
            overhead: None,
        };
        let mut links = vec![fifo(&mut rng, 8), fifo(&mut rng, 8)];
        let chosen = |rng: &mut Rng, rate: Rate| {
            let capacity = Capacity::Packets(2 + rng.below(12) as u32);
            let queues = 1 + rng.below(8) as u32;
            kind.map(|kind| Settings { queues, seed, ..Settings::new(kind, capacity, rate) })
        };
        links[BOTTLENECK].settings = chosen(&mut rng, links[BOTTLENECK].rate);
        let (mut paths, mut talkers) = (Vec::new(), Vec::new());
        for flow in 0..flows {
            let base = links.len() as u32;
            for _ in 0..4 {
                let megabits = 2 << rng.below(4);
                let mut spec = fifo(&mut rng, megabits);
                // A host behind a discipline: nothing may be delivered to it in advance.
                if rng.below(5) == 0 {
                    spec.settings = chosen(&mut rng, spec.rate);
                } else if rng.below(3) == 0 {
                    let most = Span::from_nanos(1 + rng.below(2_000_000));
                    spec.overhead = Some((most, seed, links.len() as u64));
                }
                links.push(spec);
            }
            let member = 2 * flow;
            paths.push(vec![
                Hop::Link(base),
                Hop::Link(BOTTLENECK as u32),
                Hop::Link(base + 1),
                Hop::Member(member + 1, 0),
            ]);
            paths.push(vec![
                Hop::Link(base + 2),
                Hop::Link(WAY_BACK as u32),
                Hop::Link(base + 3),
                Hop::Member(member, 0),
            ]);
            let spacing = Span::from_nanos(100_000 * (1 + rng.below(30)));
            let is_poisson = rng.below(3) == 0;
            let pattern = Pattern {
                start: Time::ZERO + coarse(&mut rng, 50),
                end: Time::from_nanos(300_000_000),
                spacing: if is_poisson {
                    Spacing::Exponential(spacing)
                } else {
                    Spacing::Constant(spacing)
                },
                sizing: if rng.below(2) == 0 {
                    Sizing::Constant(100 * (1 + rng.below(14) as u16))
                } else {
                    Sizing::Exponential(600.0)
                },
            };
            talkers.push((pattern, vec![base]));
            talkers.push((pattern, vec![base + 2]));
        }
        Case { links, paths, talkers, seed }
    }

    fn members(&self) -> Vec<(Talker, Vec<u32>)> {
        let talker = |(index, (pattern, ports)): (usize, &(Pattern, Vec<u32>))| {
            let talker = if index % 2 == 0 {
                let source = Box::new(Source::new(*pattern, Route(index as u32), self.seed));
                Talker::Source(source, Sink::default())
            } else {
                Talker::Echo(Vec::new())
            };
            (talker, ports.clone())
        };
        self.talkers.iter().enumerate().map(talker).collect()
    }

    fn plan(&self) -> Plan<Talker> {
        let link = |spec: &Spec| {
            let queue = match &spec.settings {
                Some(settings) => Queue::Discipline(Any::new(settings).expect("sane settings")),
                None => Queue::Fifo { limit_bytes: spec.fifo_bytes },
            };
            let link = Link::new(spec.rate, spec.delay, spec.mtu, queue);
            match spec.overhead {
                Some((most, seed, index)) => link.with_overhead(most, seed, index),
                None => link,
            }
        };
        let links = self.links.iter().map(link).collect();
        Plan { links, paths: self.paths.clone(), members: self.members(), watched: None }
    }

    fn hold(&self, end: Time) -> u64 {
        let mut twin = Naive::new(&self.links, &self.paths, self.members());
        twin.run_until(end);
        let mut deliveries = 0;
        for fuses in [false, true] {
            let mut network = Network::new(self.plan(), Seen::default(), fuses);
            // Stopping on the way must change nothing, with the members ahead or not.
            for part in 1..=6 {
                let moment = Time(end.0 / 6 * part);
                network.advance(moment, if part % 2 == 0 { end } else { moment });
                assert_eq!(network.now(), moment);
            }
            network.run_until(end);
            assert!(network.balances(), "seed {}", self.seed);
            let seed = self.seed;
            let mut ahead = network.tap().deliveries.clone();
            let mut deliveries_of_twin = twin.seen.deliveries.clone();
            // Packets may be delivered to members in advance, to each in its own order.
            ahead.sort_by_key(|&(now, member, _)| (now, member));
            deliveries_of_twin.sort_by_key(|&(now, member, _)| (now, member));
            let seen = network.tap();
            for (ours, theirs) in ahead.iter().zip(&deliveries_of_twin) {
                assert_eq!(ours, theirs, "seed {seed}, fuses {fuses}");
            }
            assert_eq!(seen.deliveries.len(), twin.seen.deliveries.len(), "seed {seed} {fuses}");
            for (index, ours) in network.counters().iter().enumerate() {
                let theirs = twin.transmitted(index);
                assert_eq!(
                    (ours.transmitted_packets, ours.transmitted_bytes),
                    theirs,
                    "link {index}, seed {seed}, fuses {fuses}"
                );
            }
            let none = Vec::new();
            let bottleneck = |seen: &Seen| seen.drops.first().unwrap_or(&none).clone();
            assert_eq!(bottleneck(seen), bottleneck(&twin.seen), "seed {seed}");
            deliveries = network.journal().deliveries;
        }
        deliveries
    }
}

#[test]
fn every_delivery_is_the_naive_twins_delivery() {
    let mut deliveries = 0;
    for seed in 0..40 {
        let mut kinds = vec![None];
        kinds.extend(DisciplineKind::ALL.map(Some));
        for kind in kinds {
            let case = Case::new(seed, kind);
            let end = Time::from_nanos(100_000_000 + 7_654_321 * seed);
            deliveries += case.hold(end);
        }
    }
    assert!(deliveries > 10_000, "{deliveries}");
}

/// A link's end where a route has no path: packets that arrive there are counted, and none is lost.
#[test]
fn packets_without_a_path_are_counted_where_they_land() {
    for fuses in [false, true] {
        let pattern = Pattern {
            start: Time::ZERO,
            end: Time::from_nanos(10_000_000),
            spacing: Spacing::Constant(Span::from_nanos(1_000_000)),
            sizing: Sizing::Constant(1_000),
        };
        let talker = |route: u32| {
            Talker::Source(Box::new(Source::new(pattern, Route(route), 1)), Sink::default())
        };
        let link = || {
            let queue = Queue::Fifo { limit_bytes: 100_000 };
            Link::new(Rate::from_megabits(100), Span::from_nanos(50_000), 1500, queue)
        };
        let plan = Plan {
            links: vec![link(), link()],
            paths: vec![
                vec![Hop::Link(0), Hop::Member(1, 0)],
                vec![Hop::Link(0), Hop::Link(1), Hop::Member(1, 0)],
                Vec::new(),
            ],
            members: vec![(talker(2), vec![0]), (Talker::Echo(Vec::new()), vec![1])],
            watched: None,
        };
        let mut network = Network::new(plan, Seen::default(), fuses);
        network.run_until(Time::from_nanos(5_500_000));
        let journal = network.journal();
        assert!(network.balances());
        assert_eq!((journal.sent, journal.deliveries, journal.unroutable), (5, 0, 5));
    }
}
