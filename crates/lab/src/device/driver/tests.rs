//! One schedule of arrivals under both drivers: what leaves is the same, frame by frame and moment by moment.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use nilometer_conversation::{Act, Opening, Side, Step};
use nilometer_linux::memory::MemoryConfig;
use nilometer_linux::memory_port::MemoryPort;
use nilometer_router::node::RouterNode;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::machine::Machine;
use nilometer_sim::fault_box::FaultBox;
use nilometer_sim::host::{Host, LinkAddresses, PlannedEnd};
use nilometer_sim::scripted::Part;
use nilometer_sim::stream::{Arrival, Recorder, Spacing, Stream};
use nilometer_sim::virtual_clock::{Cable, VirtualClock};
use nilometer_tcp::Config;
use nilometer_tcp::bytes::Ends;
use nilometer_traffic::script::Script;
use nilometer_wire::memory::{HeapMemory, Memory as PacketMemory, Place};
use nilometer_wire::{Rate, build};

use super::*;
use crate::device::spec::FaultSpec;

/// Frames that arrive, and by which port of the node.
type Schedule = Vec<(Time, Port, Vec<u8>)>;

/// Sends a schedule, each frame by the port that it names.
struct Scheduled(std::iter::Peekable<std::vec::IntoIter<(Time, Port, Vec<u8>)>>);

impl<M: PacketMemory> Node<Place, M> for Scheduled {
    fn receive(&mut self, _: Time, _: Port, frame: &Place, memory: &mut M) {
        memory.give(*frame);
    }

    fn handle_timeout(&mut self, _: Time, _: &mut M) {}

    fn poll_transmit(&mut self, now: Time, frame: &mut Place, memory: &mut M) -> Option<Port> {
        let (_, port, bytes) = self.0.next_if(|next| next.0 <= now)?;
        *frame = memory.take(bytes.len() as u16).expect("room");
        memory.frame_mut(*frame).copy_from_slice(&bytes);
        Some(port)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.clone().peek().map(|next| next.0)
    }
}

/// What leaves a node under the virtual clock, which has a sender and a recorder at the far ends of its ports.
fn virtually<N>(mut node: N, schedule: &Schedule, end: Time, turns: Turns) -> Vec<Arrival>
where
    N: Node<Place, HeapMemory>,
{
    /// Sender and listener at the far ends of a node's ports.
    struct Far(Scheduled, Recorder);
    impl<M: PacketMemory> Node<Place, M> for Far {
        fn receive(&mut self, now: Time, port: Port, frame: &Place, memory: &mut M) {
            self.1.receive(now, port, frame, memory);
        }
        fn handle_timeout(&mut self, _: Time, _: &mut M) {}
        fn poll_transmit(&mut self, now: Time, frame: &mut Place, memory: &mut M) -> Option<Port> {
            self.0.poll_transmit(now, frame, memory)
        }
        fn poll_timeout(&self) -> Option<Time> {
            Node::<Place, M>::poll_timeout(&self.0)
        }
    }
    let sends = Scheduled(schedule.clone().into_iter().peekable());
    let mut far = Far(sends, Recorder::new(usize::MAX));
    let mut memory = HeapMemory::new(100_000);
    let cable =
        |port| Cable { ends: [(0, Port(port)), (1, Port(port))], rate: None, delay: Span::ZERO };
    let nodes: Vec<Box<dyn Node<Place, HeapMemory> + '_>> =
        vec![Box::new(&mut far), Box::new(&mut node)];
    VirtualClock::new(nodes, &[cable(0), cable(1)], turns).run_until(end, &mut memory, &mut ());
    far.1.arrivals().to_vec()
}

/// What leaves the same node between ports in memory, driven by a clock that jumps from event to event.
fn really<N: Node<Packet, Memory>>(
    node: N,
    schedule: &Schedule,
    end: Time,
    turns: Turns,
) -> Vec<Arrival> {
    let config = MemoryConfig { chunk_bytes: 2_048, chunks: 16_384, reserve: 64 };
    let memory = Memory::new(config).expect("memory");
    let pairs = ["a", "b"].map(|name| MemoryPort::pair(&memory, name, 8_192).expect("a wire"));
    let [[near0, far0], [near1, far1]] = pairs;
    let (now, mut far) = (Rc::new(Cell::new(Time::ZERO)), [far0, far1]);
    let clock = || now.get();
    let mut driver = Driver::new(node, vec![near0, near1], memory, &clock).with_turns(turns);
    let (mut arrivals, mut rest) = (Vec::new(), schedule.iter().peekable());
    loop {
        // Everything due at this moment leaves before the clock advances.
        let mut moved = true;
        let mut first = true;
        while moved || first {
            first = false;
            while let Some((_, port, bytes)) = rest.next_if(|next| next.0 <= now.get()) {
                let frame = PacketMemory::take(&mut driver.memory, bytes.len() as u16);
                let frame = frame.expect("room");
                PacketMemory::frame_mut(&mut driver.memory, frame).copy_from_slice(bytes);
                let mut frames = VecDeque::from([frame]);
                let sent = far[port.0 as usize].transmit(&mut driver.memory, &mut frames);
                assert_eq!(sent.expect("it is up"), 1);
            }
            moved = driver.turn().expect("a turn");
            for (number, port) in far.iter_mut().enumerate() {
                let mut batch = Vec::new();
                port.receive(&mut driver.memory, &mut batch, usize::MAX).expect("it is up");
                for frame in batch {
                    let (at, port) = (now.get(), Port(number as u32));
                    let bytes = PacketMemory::frame(&driver.memory, frame).to_vec();
                    arrivals.push(Arrival { at, port, frame: bytes });
                    driver.memory.give(frame);
                }
            }
        }
        let due = driver.node.poll_timeout().map(|due| match due <= now.get() {
            true => now.get() + Span::from_nanos(1_000),
            false => due,
        });
        let next = due.into_iter().chain(rest.peek().map(|next| next.0)).min();
        match next.filter(|&next| next <= end) {
            Some(next) => now.set(next),
            None => return arrivals,
        }
    }
}

/// Two equal nodes do the same under both clocks, and send at least `least` frames.
fn hold<N>(make: impl Fn() -> N, schedule: &Schedule, least: usize)
where
    N: Node<Place, HeapMemory> + Node<Packet, Memory>,
{
    hold_by(make, schedule, least, Turns::default());
}

/// As [`hold`], with this order of turns; returns the frames that left.
fn hold_by<N>(make: impl Fn() -> N, schedule: &Schedule, least: usize, turns: Turns) -> Vec<Arrival>
where
    N: Node<Place, HeapMemory> + Node<Packet, Memory>,
{
    let end = Time::from_nanos(60_000_000_000);
    let mut one = virtually(make(), schedule, end, turns);
    let mut other = really(make(), schedule, end, turns);
    // (At one moment, no port is before another.)
    one.sort_by_key(|arrival| (arrival.at, arrival.port));
    other.sort_by_key(|arrival| (arrival.at, arrival.port));
    assert!(one.len() >= least, "{} frames left", one.len());
    for (number, (one, other)) in one.iter().zip(&other).enumerate() {
        assert_eq!((one.at, one.port), (other.at, other.port), "frame {number}");
        assert!(one.frame == other.frame, "frame {number} is another one");
    }
    assert_eq!(one.len(), other.len());
    one
}

/// Sends one frame a millisecond with the number of frames received and the size of the largest batch.
struct CountSender {
    next: Time,
    came: u8,
    largest: u8,
}

impl<M: PacketMemory> Node<Place, M> for CountSender {
    fn receive(&mut self, now: Time, port: Port, frame: &Place, memory: &mut M) {
        self.receive_batch(now, port, &[*frame], memory);
    }

    fn receive_batch(&mut self, _: Time, _: Port, frames: &[Place], memory: &mut M) {
        self.came = self.came.wrapping_add(frames.len() as u8);
        self.largest = self.largest.max(frames.len() as u8);
        frames.iter().for_each(|frame| memory.give(*frame));
    }

    fn handle_timeout(&mut self, _: Time, _: &mut M) {}

    fn poll_transmit(&mut self, now: Time, frame: &mut Place, memory: &mut M) -> Option<Port> {
        if now < self.next {
            return None;
        }
        self.next += Span::from_nanos(1_000_000);
        *frame = memory.take(60).expect("room");
        let bytes = memory.frame_mut(*frame);
        bytes.fill(0);
        (bytes[0], bytes[1]) = (self.came, self.largest);
        Some(Port(0))
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }
}

#[test]
fn batch_size_and_order_are_parameters_of_both_drivers() {
    // Three frames at each millisecond, at which the node sends as well.
    let frame =
        build::ethernet(&build::udp(address("198.18.0.2:1000"), address("198.19.0.2:2000"), b"x"));
    let at = |n: u64| (Time::from_nanos(n / 3 * 1_000_000), Port(0), frame.clone());
    let schedule: Schedule = (3..60).map(at).collect();
    let reported = |batch: usize, order: Order| -> Vec<[u8; 2]> {
        let make = || CountSender { next: Time::from_nanos(1_000_000), came: 0, largest: 0 };
        let left = hold_by(make, &schedule, 20, Turns { batch, order });
        left.iter().take(5).map(|arrival| [arrival.frame[0], arrival.frame[1]]).collect()
    };
    let received_first = reported(64, Order::ReceiveFirst);
    assert_eq!(received_first, [[3, 3], [6, 3], [9, 3], [12, 3], [15, 3]]);
    let sent_first = reported(64, Order::TransmitFirst);
    assert_eq!(sent_first, [[0, 0], [3, 3], [6, 3], [9, 3], [12, 3]]);
    let one_by_one = reported(1, Order::TransmitFirst);
    assert_eq!(one_by_one, [[0, 0], [3, 1], [6, 1], [9, 1], [12, 1]]);
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// UDP datagrams of chance sizes in both directions, in bursts.
fn datagrams(macs: [[u8; 6]; 2]) -> Schedule {
    let mut rng = nilometer_stat::Rng::new(5, 1, 0);
    let (mut at, mut schedule) = (0u64, Vec::new());
    for number in 0..3_000u64 {
        at += if number % 7 == 0 { rng.below(400_000) } else { 0 };
        let way = rng.below(2) as usize;
        let ends = [address("198.18.0.2:1000"), address("198.19.0.2:2000")];
        let payload = vec![number as u8; 20 + rng.below(1_200) as usize];
        let packet = build::udp(ends[way], ends[1 - way], &payload);
        let mut frame = build::ethernet(&packet);
        frame[..6].copy_from_slice(&macs[way]);
        schedule.push((Time::from_nanos(at), Port(way as u32), frame));
    }
    schedule
}

#[test]
fn a_fault_box_does_the_same_under_both_clocks() {
    let spec =
        "rate=100Mbit,delay=2ms,jitter=300us,loss=0.02,duplicate=0.01,reorder=0.02,corrupt=0.01";
    let spec: FaultSpec = spec.parse().expect("faults");
    hold(|| FaultBox::of_ways(spec.ways, 7, 0), &datagrams([[2; 6]; 2]), 2_500);
}

const ROUTER: &str = r#"
seed = 3
[fabric]
queueing = "dq_plus"
link_rate = "100 Mb/s"
[[port]]
interface = "p0"
addresses = ["198.18.0.1/24"]
address_probes = 0
rate = "20 Mb/s"
queue = { discipline = "red", buffer_bytes = 30000 }
[[port]]
interface = "p1"
addresses = ["198.19.0.1/24"]
address_probes = 0
rate = "20 Mb/s"
queue = { discipline = "qsdrr", buffer_bytes = 30000 }
[[neighbour]]
interface = "p0"
address = "198.18.0.2"
mac = "02:00:00:00:01:00"
[[neighbour]]
interface = "p1"
address = "198.19.0.2"
mac = "02:00:00:00:01:01"
"#;

#[test]
fn a_router_does_the_same_under_both_clocks() {
    let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    let config: RouterConfig = toml::from_str(ROUTER).expect("a description");
    // (The tables go with their keeper.)
    let mut keepers = Vec::new();
    let keep = std::cell::RefCell::new(&mut keepers);
    let make = || {
        let Machine { router, routes } =
            Machine::without_devices(&config, &macs.map(|mac| (mac, 1_500))).expect("a router");
        keep.borrow_mut().push(routes);
        RouterNode::new(router)
    };
    hold(make, &datagrams(macs), 800);
}

#[test]
fn a_source_does_the_same_under_both_clocks() {
    let gap = Span::from_nanos(37_000);
    for spacing in [Spacing::Constant(gap), Spacing::Poisson(gap), Spacing::Bursts(5, gap)] {
        let make = || Stream::new(vec![3; 200], spacing, Time::from_nanos(9), 2_000, 1);
        hold(make, &Vec::new(), 2_000);
    }
}

/// A server's host answers a client's segments, which were taken from a connection between two hosts.
#[test]
fn a_tcp_host_does_the_same_under_both_clocks() {
    let step =
        |by, awaits, pause_ms: u64, act| Step { by, awaits, pause_ns: pause_ms * 1_000_000, act };
    let send = |bytes| Act::Send { bytes, segments: 1, took_ns: 0 };
    let script = Arc::new(Script {
        opening: Opening::Seen,
        steps: vec![
            step(Side::Client, 0, 1, send(400)),
            step(Side::Server, 400, 30, send(200_000)),
            step(Side::Client, 200_000, 5, Act::Fin),
            step(Side::Server, 401, 1, Act::Fin),
        ],
        tried_ns: 0,
        has_time_stamps: true,
        segment_bytes: 0,
        acks_each: [false; 2],
    });
    let host = |side: Side| {
        let both = [address("198.18.0.2:40000"), address("198.19.0.2:8808")];
        let (source, destination) = match side {
            Side::Client => (both[0], both[1]),
            Side::Server => (both[1], both[0]),
        };
        let (start, end) = (Time::from_nanos(1_000), Time::from_nanos(50_000_000_000));
        let part = Part { script: Arc::clone(&script), side, start, end };
        let planned = PlannedEnd {
            ends: Ends { source, destination },
            part,
            stack: Config::linux(),
            initial_sequence: 77,
        };
        Host::new(LinkAddresses { own: [2; 6], peer: [4; 6] }, vec![planned])
    };
    // The client's frames in a connection of its own, through a box that delays and loses.
    let schedule: Schedule = {
        let spec: FaultSpec = "delay=3ms,loss=0.03".parse().expect("faults");
        let (mut client, mut server) = (host(Side::Client), host(Side::Server));
        let (mut memory, mut frames_received) =
            (HeapMemory::new(10_000), ReceivedFrames(Vec::new()));
        let cable = |one, other| Cable {
            ends: [one, other],
            rate: Some(Rate::from_megabits(1_000)),
            delay: Span::ZERO,
        };
        let nodes: Vec<Box<dyn Node<Place, HeapMemory> + '_>> = vec![
            Box::new(&mut client),
            Box::new(FaultBox::of_ways(spec.ways, 1, 0)),
            Box::new(&mut server),
        ];
        let cables = [cable((0, Port(0)), (1, Port(0))), cable((1, Port(1)), (2, Port(0)))];
        let end = Time::from_nanos(60_000_000_000);
        VirtualClock::new(nodes, &cables, Turns::default()).run_until(
            end,
            &mut memory,
            &mut frames_received,
        );
        frames_received.0
    };
    assert!(schedule.len() > 50);
    hold(|| host(Side::Server), &schedule, 100);
}

/// What arrives at the last node.
struct ReceivedFrames(Schedule);

impl nilometer_sim::virtual_clock::Watch<Place, HeapMemory> for ReceivedFrames {
    fn sent(&mut self, _: Time, _: (usize, Port), _: &Place, _: &HeapMemory) {}

    fn arrived(
        &mut self,
        at: Time,
        (node, port): (usize, Port),
        frame: &Place,
        memory: &HeapMemory,
    ) {
        if node == 2 {
            self.0.push((at, port, memory.frame(*frame).to_vec()));
        }
    }
}
