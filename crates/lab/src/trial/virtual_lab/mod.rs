//! A leg in virtual time: the same plan and device, with simulated hosts in place of the kernel's.
//!
//! ```text
//!   client ══ cable ══ device ══ cable ══ server        a node each, under one virtual clock
//!          ▲                            ▲
//!          └────────── the meter ───────┘               every frame, stamped by that clock
//! ```
//!
//! With a path, a fault box stands between the client's cable and the meter; with round trips, another one between the
//! meter and the server's. Frames have real headers, so the meter, the judge and the page are those of a live leg.
//! Nothing here calls on the kernel: the result is a function of plan, device and seed, for any user on any machine.

mod devices;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nilometer_linux::netlink::LinkStatistics;
use nilometer_linux::ring::{RingStatistics, StampedFrame};
use nilometer_linux::testbed::{InterfaceCounters, Layout};
use nilometer_sim::virtual_clock::{Cable, Plug, VirtualClock, Watch as WatchFrames};
use nilometer_wire::memory::{HeapMemory, Memory, Place};
use nilometer_wire::{Node, Port, Rate, Span, Time, Turns};

use super::by_path::OffloadObservation;
use super::config::{Clock, DutKind, LabConfig};
use super::leg::{self, Leg, LegLive, LegOutcome, SETTLE, Scheduling};
use super::meter::{Ledger, Watch};
use super::simulated_hosts::{self, Hosts};
use crate::device::fault::Stands;
use crate::device::paths::Paths;
use devices::{Device, PathBox};

/// The wall clock at the traffic's beginning, ns since 1970: the first second of 2020.
const ORIGIN_NS: u64 = 1_577_836_800_000_000_000;
/// The rate of cables, and the time that a bit takes on one.
const CABLE_RATE_MBIT: u64 = 100_000;
const CABLE_DELAY: Span = Span::from_nanos(500);
/// Most buffers of frames that are under way, in the device's queues among them.
const BUFFERS: u32 = 1 << 20;
/// How often signals are checked and the display is updated.
const SLICE: Span = Span::from_nanos(100_000_000);

/// Plays a leg by the clock of its configuration. `stop` ends it early and keeps what was done.
///
/// # Errors
/// As [`leg::play`] and [`play`].
pub fn play_by_clock(leg: &Leg<'_>, live: &LegLive, stop: &Arc<AtomicBool>) -> Result<LegOutcome> {
    match leg.config.clock {
        Clock::Real => leg::play(leg, live, stop),
        Clock::Virtual => play(leg, live, stop),
    }
}

/// Refuses options that need the kernel, where the clock is virtual.
///
/// # Errors
/// One line that says what to do.
pub fn check(config: &LabConfig) -> Result<()> {
    simulated_hosts::check(config)?;
    let dut = config.dut;
    if config.clock == Clock::Real {
        return Ok(());
    }
    if !matches!(dut, DutKind::Nilometer | DutKind::Fault | DutKind::Wire) {
        bail!(
            "--clock virtual (clock): the device {} is the kernel, which has no virtual clock; choose \
             --dut nilometer, fault or wire",
            dut.name()
        );
    }
    Ok(())
}

/// Plays a leg. `stop` ends it early and keeps what was done.
///
/// # Errors
/// Where hosts or device cannot be assembled, or a result cannot be written.
pub fn play(leg: &Leg<'_>, live: &LegLive, stop: &AtomicBool) -> Result<LegOutcome> {
    let layout = Layout::new(&leg::testbed_config(leg.dut, leg.config, leg.has_paths())?)?;
    let scores = leg.scores();
    let mut hosts = Hosts::new(leg.config, scores, &layout)?;
    let mut device = Device::new(leg, &layout)?;
    let [front, rear] = leg.paths;
    let boxed = |paths, stands| PathBox::new(paths, leg.config.seed, stands);
    let mut path = front.map(|paths| (paths, boxed(paths, Stands::AsPath)));
    let mut rear = rear.map(|paths| (paths, boxed(paths, Stands::AsRearPath)));
    let stay = leg::longest_stay(leg);
    let watch = Watch {
        origin_ns: ORIGIN_NS,
        interval_ends_ns: leg.interval_ends_ns.clone(),
        device_addresses: layout.device_addresses(),
        captures: leg.captures.clone(),
        stamps: leg.stamps.clone(),
        stay,
        likewise: leg.likewise,
        // (In virtual time there is no kernel that could offload.)
        offload: (leg.dut == DutKind::Nilometer)
            .then(|| OffloadObservation { log: None, origin: Instant::now() }),
    };
    let mut meter = Metering {
        ledger: Ledger::new(&watch)?,
        sides: [Side::default(); 2],
        ends: ends(leg.dut, path.is_some()),
    };
    let mut memory = HeapMemory::new(BUFFERS);
    let stays = leg.paths.into_iter().flatten().map(Paths::longest_stay);
    let stay = stays.fold(stay, |sum, stay| sum + stay);
    let [front, behind] = [&mut path, &mut rear].map(|path| path.as_mut().map(|(_, path)| path));
    let between = (front, &mut device, behind);
    let (played_until, settled) =
        run(&mut hosts, between, (&mut meter, &mut memory), (leg, stay), live, stop);
    let Metering { ledger, sides, .. } = meter;
    let rings = sides.map(|side| RingStatistics { packets: side.frames(), ..Default::default() });
    let sighted = ledger.finish(rings)?;
    let (executions, served) = hosts.executions(leg.config, scores);
    let (router, fault) = device.seen(leg, settled)?;
    let [path, rear_path] =
        [path, rear].map(|path| path.map(|(paths, path)| path.seen(paths, settled)).transpose());
    let [client, server] = sides.map(|side| LinkStatistics {
        rx_packets: side.received,
        rx_bytes: side.received_bytes,
        tx_packets: side.sent,
        tx_bytes: side.sent_bytes,
        ..LinkStatistics::default()
    });
    let congestion = leg.config.traffic.congestion.clone();
    Ok(LegOutcome {
        executions,
        served,
        sighted,
        interfaces: InterfaceCounters { client, server },
        not_restored: Vec::new(),
        router,
        fault,
        path: path?,
        rear_path: rear_path?,
        simulated: Some(hosts.seen()),
        scheduling: Scheduling::default(),
        origin_ns: ORIGIN_NS,
        interrupted_ns: stop.load(Ordering::Acquire).then_some(played_until.as_nanos()),
        clock_step_ns: 0,
        congestion: (congestion.clone(), congestion),
    })
}

/// Runs all nodes until the plan is over, and then until packets under way have arrived; returns both moments.
fn run(
    hosts: &mut Hosts,
    (path, device, rear): (Option<&mut PathBox>, &mut Device, Option<&mut PathBox>),
    (meter, memory): (&mut Metering<'_>, &mut HeapMemory),
    (leg, stay): (&Leg<'_>, Span),
    live: &LegLive,
    stop: &AtomicBool,
) -> (Time, Time) {
    let end = hosts.end;
    let [client, server] = &mut hosts.both;
    let mut nodes: Vec<Box<dyn Node<Place, HeapMemory> + '_>> = vec![Box::new(client)];
    nodes.extend(path.map(PathBox::node));
    nodes.extend(device.node());
    nodes.extend(rear.map(PathBox::node));
    nodes.push(Box::new(server));
    let cables = cables(nodes.len());
    let mut clock = VirtualClock::new(nodes, &cables, Turns::default());
    let mut now = Time::ZERO;
    let mut go_to = |until: Time, meter: &mut Metering<'_>| {
        let goes_on = clock.run_until(until, memory, meter);
        meter.ledger.settle_by(ORIGIN_NS + until.as_nanos(), &live.meter);
        goes_on
    };
    while now < end && !stop.load(Ordering::Acquire) {
        now = (now + SLICE).min(end);
        // Once no event is left the run ends, except that a plan of scripts has a length of its own.
        if !go_to(now, meter) && leg.scripts.is_empty() {
            break;
        }
    }
    let settle = stay + Span::from_nanos(Duration::as_nanos(&SETTLE) as u64);
    let settled = now + settle;
    go_to(settled, meter);
    (now, settled)
}

/// The cables between `nodes` nodes in a row: a host has port 0, the nodes between them have 0 and 1.
fn cables(nodes: usize) -> Vec<Cable> {
    let cable = |one: usize| Cable {
        ends: [(one, Port(u32::from(one > 0))), (one + 1, Port(0))],
        rate: Some(Rate::from_megabits(CABLE_RATE_MBIT)),
        delay: CABLE_DELAY,
    };
    (1..nodes).map(|next| cable(next - 1)).collect()
}

/// Where the device is metered: at the client's port, or the path's behind it, and at the server's.
fn ends(dut: DutKind, has_path: bool) -> [Plug; 2] {
    let path = usize::from(has_path);
    let devices = usize::from(dut != DutKind::Wire);
    [(path, Port(path as u32)), (path + devices + 1, Port(0))]
}

/// Frames at one host's interface.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    sent: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
}

impl Side {
    fn frames(&self) -> u64 {
        self.sent + self.received
    }
}

/// The meter at both hosts' interfaces.
struct Metering<'a> {
    ledger: Ledger<'a>,
    sides: [Side; 2],
    ends: [Plug; 2],
}

impl Metering<'_> {
    fn see(&mut self, at: Time, plug: Plug, outgoing: bool, frame: &[u8]) {
        let Some(side) = self.ends.iter().position(|&end| end == plug) else { return };
        let (counts, bytes) = (&mut self.sides[side], frame.len() as u64);
        if outgoing {
            (counts.sent, counts.sent_bytes) = (counts.sent + 1, counts.sent_bytes + bytes);
        } else {
            counts.received += 1;
            counts.received_bytes += bytes;
        }
        let seen = StampedFrame {
            stamp_ns: ORIGIN_NS + at.as_nanos(),
            outgoing,
            original_bytes: frame.len() as u32,
            frame,
            partial_checksum: false,
            stamped_on_arrival: true,
        };
        self.ledger.see(side, &seen);
    }
}

impl WatchFrames<Place, HeapMemory> for Metering<'_> {
    fn sent(&mut self, at: Time, plug: Plug, frame: &Place, memory: &HeapMemory) {
        self.see(at, plug, true, memory.frame(*frame));
    }

    fn arrived(&mut self, at: Time, plug: Plug, frame: &Place, memory: &HeapMemory) {
        self.see(at, plug, false, memory.frame(*frame));
    }
}
