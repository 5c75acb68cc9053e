//! The fault box between two interfaces, on a thread of its own: as a device under test, or as the path in front of
//! one.
//!
//! It is transparent: hosts on both sides are neighbours, and frames leave unchanged, except for one flipped bit in
//! those to be corrupted. Frames other than IP pass at once and are not counted; neighbour discovery is IP.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nilometer_linux::clock::thread_id;
use nilometer_linux::memory::{MemoryConfig, Packet, PacketMemory as Memory};
use nilometer_linux::packet_port::{PacketPort, PacketPortConfig};
use nilometer_linux::port::{AnyPort as Device, PortStatistics};
use nilometer_linux::testbed::{
    PATH_INTERFACES, PROGRAM_INTERFACES, REAR_PATH_INTERFACES, Testbed,
};
use nilometer_linux::xdp::{XdpConfig, XdpMode, XdpPort};
use nilometer_sim::fault::FaultCounts;
use nilometer_sim::fault_box::FaultBox;
use nilometer_wire::memory::Memory as PacketMemory;
use nilometer_wire::{Node, Port, Span, Time};

use super::driver::Driver;
use super::paths::{PathOf, Paths};
use super::truth::{PacketTruth, Truth};

/// The file of the box's decisions on each packet, among the results.
pub const FAULT_FILE: &str = "fault.ndjson";

/// Buffers of packets that are under way, and of both ports.
const BUFFERS: u32 = 65_536;
/// Entries of a port's rings, and buffers that are kept for it.
const RING_ENTRIES: u32 = 4_096;

/// The file of the decisions of the path's box.
pub const PATH_FILE: &str = "path.ndjson";
/// The file of the decisions of the box behind the device.
pub const REAR_PATH_FILE: &str = "rear-path.ndjson";

/// A fault box that passes frames other than IP at once, and has a path for each address pair that needs
/// one.
pub(crate) struct Bypassed {
    /// The box.
    pub inner: FaultBox<Packet>,
    path_of: PathOf,
    other: VecDeque<(Port, Packet)>,
}

impl Bypassed {
    /// A box that applies `paths` and records its events; boxes of one run have different numbers.
    pub fn new(paths: &Paths, seed: u64, number: u64) -> Bypassed {
        let mut inner = FaultBox::of_paths(paths.all(), seed, number);
        inner.keep_events();
        Bypassed { inner, path_of: PathOf::new(paths), other: VecDeque::new() }
    }
}

impl<M: PacketMemory> Node<Packet, M> for Bypassed {
    fn receive(&mut self, now: Time, port: Port, frame: &Packet, memory: &mut M) {
        let ethertype = memory.frame(*frame).get(12..14).map(|pair| [pair[0], pair[1]]);
        match ethertype {
            Some([0x08, 0x00] | [0x86, 0xdd]) => {
                let path = self.path_of.of(port, memory.frame(*frame));
                self.inner.receive_on(path, now, port, frame, memory);
            }
            _ => self.other.push_back((Port(port.0 ^ 1), *frame)),
        }
    }

    fn handle_timeout(&mut self, _: Time, _: &mut M) {}

    fn poll_transmit(&mut self, now: Time, frame: &mut Packet, memory: &mut M) -> Option<Port> {
        if let Some((port, other)) = self.other.pop_front() {
            *frame = other;
            return Some(port);
        }
        self.inner.poll_transmit(now, frame, memory)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.inner.due()
    }
}

/// What a fault box did.
#[derive(Clone, Debug)]
pub struct FaultSeen {
    /// What it was to do.
    pub paths: Paths,
    /// All packets of both directions.
    pub counts: FaultCounts,
    /// Packets that were still in it at the end.
    pub inside: u64,
    /// What became of each packet, by direction and number.
    pub packets: Vec<PacketTruth>,
    /// Packets whose fate was not kept, beyond the first 2^21.
    pub beyond: u64,
    /// Frames that left the box and no port took.
    pub unsent: u64,
    /// The ports' counters.
    pub ports: Vec<PortStatistics>,
    /// How the ports were opened.
    pub opened: Vec<String>,
}

impl FaultSeen {
    /// The account of a box, whatever its ports were.
    ///
    /// # Errors
    /// When it lost count of a packet.
    pub(crate) fn of(node: &Bypassed, paths: Paths, truth: Truth) -> Result<FaultSeen> {
        let (inner, beyond) = (&node.inner, truth.beyond);
        anyhow::ensure!(inner.balances(), "the fault box lost count: {:?}", inner.counts());
        Ok(FaultSeen {
            paths,
            counts: inner.counts(),
            inside: inner.inside() as u64,
            packets: truth.packets(),
            beyond,
            unsent: 0,
            ports: Vec::new(),
            opened: Vec::new(),
        })
    }
}

/// A fault box at work.
pub struct FaultDevice {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<FaultSeen>>>,
    thread_id: i32,
    began: Instant,
    shared: Arc<Shared>,
}

/// The state that the box's thread and its owner share.
#[derive(Debug, Default)]
struct Shared {
    /// When the traffic begins, by the box's clock.
    origin: OnceLock<Time>,
    /// Frames in the box after its last turn.
    inside: AtomicUsize,
}

/// Where a box stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// In the place of the device.
    AsDevice,
    /// Between the clients and the meter at the device's port.
    AsPath,
    /// Between the meter at the device's other port and the servers.
    AsRearPath,
}

impl FaultDevice {
    /// Starts a box in its place in a testbed. It sets `failed` should it end by itself.
    ///
    /// # Errors
    /// When its ports cannot be opened.
    pub fn start(
        testbed: &Testbed,
        stands: Stands,
        (paths, seed): (&Paths, u64),
        failed: &Arc<AtomicBool>,
    ) -> Result<FaultDevice> {
        let namespace = match stands {
            Stands::AsDevice => testbed.device(),
            Stands::AsPath => testbed.path(),
            Stands::AsRearPath => testbed.rear_path(),
        };
        let namespace = namespace.context("a fault box needs a namespace")?;
        let (stop, shared) = (Arc::new(AtomicBool::new(false)), Arc::<Shared>::default());
        let (stopped, seen, failed) = (Arc::clone(&stop), Arc::clone(&shared), Arc::clone(failed));
        let (paths, began) = (paths.clone(), Instant::now());
        let (hand, handed) = channel();
        let work = move || {
            let opened = open(stands);
            let id = opened.as_ref().map(|_| thread_id()).map_err(|why| anyhow!("{why:#}"));
            let _ = hand.send(id);
            let (memory, ports, notes) = opened?;
            let boxed = (Bypassed::new(&paths, seed, stands as u64), paths);
            let driven = drive(stands, (memory, ports, notes), boxed, (began, &seen), &stopped);
            driven.inspect_err(|_| failed.store(true, Ordering::Release))
        };
        let thread = namespace.spawn("fault box", work)?;
        let thread_id =
            handed.recv().context("the fault box ended while it was put together")??;
        Ok(FaultDevice { stop, thread: Some(thread), thread_id, began, shared })
    }

    /// The kernel's id of the forwarding thread.
    pub fn thread_id(&self) -> i32 {
        self.thread_id
    }

    /// When the traffic begins, from which the times of the ground truth are counted.
    pub fn watch_from(&self, origin: Instant) {
        let since = origin.saturating_duration_since(self.began);
        let _ = self.shared.origin.set(Time::from_nanos(since.as_nanos() as u64));
    }

    /// Returns when the box is empty, at the latest after the longest that a packet may stay, or when `stop` is set.
    pub fn settle(&self, stay: Span, stop: &AtomicBool) {
        let began = Instant::now();
        let longest = Duration::from_nanos(stay.as_nanos());
        while self.shared.inside.load(Ordering::Acquire) > 0
            && began.elapsed() < longest
            && !stop.load(Ordering::Acquire)
        {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it failed, or lost count of a packet.
    pub fn stop(mut self) -> Result<FaultSeen> {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().context("it was stopped before")?;
        thread.join().map_err(|_| anyhow!("the fault box's thread panicked"))?
    }
}

impl Drop for FaultDevice {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Opened = (Memory, Vec<Device>, Vec<String>);

/// A path's port towards the device must show its frames to the meter, which AF_XDP ports do not.
fn open(stands: Stands) -> Result<Opened> {
    let config = MemoryConfig { chunk_bytes: 2_048, chunks: BUFFERS, reserve: 1_024 };
    let mut memory = Memory::new(config).context("memory of the fault box")?;
    let mut notes = Vec::new();
    let mut ports = Vec::new();
    let (names, metered) = match stands {
        Stands::AsDevice => (PROGRAM_INTERFACES, None),
        Stands::AsPath => (PATH_INTERFACES, Some(PATH_INTERFACES[1])),
        Stands::AsRearPath => (REAR_PATH_INTERFACES, Some(REAR_PATH_INTERFACES[0])),
    };
    let packet = PacketPortConfig { reserve: RING_ENTRIES, ..PacketPortConfig::default() };
    for name in names {
        if metered == Some(name) {
            let metered = PacketPortConfig { shows_what_it_sends: true, ..packet.clone() };
            ports.push(Device::Packet(PacketPort::open(&mut memory, name, &metered)?));
            continue;
        }
        let xdp = XdpConfig {
            mode: XdpMode::Fitting,
            ring_entries: RING_ENTRIES,
            reserve: RING_ENTRIES,
            ..XdpConfig::default()
        };
        let port = match XdpPort::open(&mut memory, name, &xdp) {
            Ok(port) => Device::Xdp(port),
            Err(why) => {
                notes.push(format!("{name} is opened by AF_PACKET, which is slower: {why:#}"));
                Device::Packet(PacketPort::open(&mut memory, name, &packet)?)
            }
        };
        ports.push(port);
    }
    Ok((memory, ports, notes))
}

/// (A path does not look out for frames: two that did would keep the hosts from two processors.)
fn drive(
    stands: Stands,
    (memory, ports, opened): Opened,
    (node, paths): (Bypassed, Paths),
    (began, shared): (Instant, &Shared),
    stop: &AtomicBool,
) -> Result<FaultSeen> {
    let clock = || Time::from_nanos(began.elapsed().as_nanos() as u64);
    let mut driver = Driver::new(node, ports, memory, &clock);
    if stands != Stands::AsDevice {
        driver = driver.spinning(Duration::ZERO);
    }
    let mut truth = Truth::default();
    driver.run(stop, |node| {
        shared.inside.store(node.inner.inside(), Ordering::Release);
        node.inner.begins_at(shared.origin.get().copied());
        if let Some(&origin) = shared.origin.get() {
            truth.note(&node.inner.take_events(), origin);
        }
    })?;
    let (ports, unsent) = (driver.statistics()?, driver.waiting() as u64);
    let seen = FaultSeen::of(&driver.close(), paths, truth)?;
    Ok(FaultSeen { unsent, ports, opened, ..seen })
}
