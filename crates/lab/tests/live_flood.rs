//! A port that floods: garbage, runts, giants, fragments, storms of ICMP and ARP, mutations of all that a
//! router reads. The traffic of the other ports loses nothing.
//!
//! ```text
//!   l0 ── p0 ┐
//!            ├ router ── p1 ── r0      the traffic: at half of what passes without loss
//!   f0 ── p2 ┘                         the flood
//! ```
//!
//! What passes without loss is found while the same flood goes into a bare sink, so that its cost to the
//! machine is the same. Ten seconds here; `NILOMETER_FLOOD_SECONDS=600` is the promise. A machine that
//! lets a thread wait loses packets of its own: a thread that only sleeps counts these stalls, and losses
//! are held against it only when there were none.

mod common;
#[path = "../../router/tests/pipeline/frames.rs"]
mod frames;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use nilometer_lab::device::memory::{Memory, MemoryConfig};
use nilometer_lab::device::namespace::Namespace;
use nilometer_lab::device::netlink::{Netlink, VethEnd};
use nilometer_lab::device::offload;
use nilometer_lab::device::packet_port::{PacketPort, PacketPortConfig};
use nilometer_lab::device::port::PortIo;
use nilometer_lab::route::bench::forward::site::{PORTS, SINK, Site, first_hop};
use nilometer_lab::route::bench::forward::tester::{Load, Run, Tester};
use nilometer_lab::route::bench::forward::traffic::Frames;
use nilometer_lab::route::config::RouterConfig;
use nilometer_lab::route::driver::Driver;
use nilometer_lab::route::running::Running;
use nilometer_stat::Rng;

/// Frames of the flood in a second.
const FLOOD_PPS: u64 = 20_000;
/// Rates at which it is tried whether everything passes.
const RATES: [f64; 8] = [10e3, 20e3, 40e3, 80e3, 120e3, 160e3, 240e3, 320e3];
/// A thread that was woken so late was stalled.
const STALL: Duration = Duration::from_millis(4);
/// Link-layer address of the flooded port.
const FLOODED: [u8; 6] = [2, 0, 0, 0, 1, 3];

const ROUTER: &str = r#"
[tables]
routes_v4 = 1000
routes_v6 = 1000
filters = 100
[[port]]
interface = "p0"
addresses = ["198.18.0.1/16"]
[[port]]
interface = "p1"
addresses = ["198.19.255.1/30"]
[[route]]
prefix = "198.19.0.0/17"
via = ["198.19.255.2"]
[[neighbour]]
interface = "p1"
address = "198.19.255.2"
mac = "02:00:00:00:00:02"
"#;
const THIRD: &str = r#"
[[port]]
interface = "p2"
addresses = ["198.19.128.1/24", "fd00:2::1/64"]
"#;

/// Frames to the flooded port, without end.
struct Hostile {
    frames: frames::Frames,
    rng: Rng,
}

impl Hostile {
    fn next(&mut self) -> Vec<u8> {
        let mut frame = match self.rng.below(8) {
            // Garbage of any length that the link takes; and runts.
            0 => (0..14 + self.rng.below(1_500)).map(|_| self.rng.next_u64() as u8).collect(),
            1 => vec![0; 14 + self.rng.below(20) as usize],
            _ => self.frames.next().1,
        };
        frame.resize(frame.len().clamp(14, 1_514), 0);
        if frame[0] & 1 == 0 {
            frame[..6].copy_from_slice(&FLOODED);
        }
        frame
    }
}

/// Sends hostile frames until it is told to stop; how many.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Flood {
    fn start(namespace: &Namespace) -> Result<Flood> {
        let config = MemoryConfig { chunks: 2_048, ..MemoryConfig::default() };
        let mut memory = Memory::new(config)?;
        let open = PacketPortConfig { reserve: 256, ..PacketPortConfig::default() };
        let mut port = namespace.enter(|| PacketPort::open(&mut memory, "f0", &open))?;
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut hostile = Hostile { frames: frames::Frames::new(9), rng: Rng::new(10, 1, 0) };
            let (began, mut sent, mut came) = (Instant::now(), 0, Vec::new());
            while !until.load(Ordering::Relaxed) {
                let due = began.elapsed().as_millis() as u64 * FLOOD_PPS / 1_000;
                let mut some = VecDeque::new();
                for _ in 0..due.saturating_sub(sent).min(256) {
                    let frame = hostile.next();
                    let Some(buffer) = memory.take() else { break };
                    let packet = buffer.packet(frame.len() as u16);
                    memory.frame_mut(&packet).copy_from_slice(&frame);
                    some.push_back(packet);
                }
                // Frames that the kernel refuses are not sent.
                sent += port.transmit(&mut memory, &mut some).unwrap_or(0) as u64;
                let _ = port.flush(&mut memory);
                some.into_iter().for_each(|packet| memory.give(packet));
                let _ = port.receive(&mut memory, &mut came, 256);
                came.drain(..).for_each(|packet| memory.give(packet));
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        Ok(Flood { stop, thread })
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

/// Counts how often the machine lets a thread wait.
fn watch(stop: &Arc<AtomicBool>) -> Arc<AtomicU64> {
    let (stalls, until) = (Arc::new(AtomicU64::new(0)), Arc::clone(stop));
    let count = Arc::clone(&stalls);
    thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            let before = Instant::now();
            thread::sleep(Duration::from_millis(1));
            count.fetch_add(u64::from(before.elapsed() > STALL), Ordering::Relaxed);
        }
    });
    stalls
}

fn flooder(site: &Site) -> Result<Namespace> {
    let flooder = Namespace::new()?;
    let one = VethEnd { namespace: &flooder, name: "f0", mac: [2, 0, 0, 0, 0, 3] };
    let other = VethEnd { namespace: site.middle(), name: "p2", mac: FLOODED };
    site.middle().enter(|| {
        let mut netlink = Netlink::open()?;
        netlink.create_veth(one, other, 1_500)?;
        offload::switch_off("p2")?;
        netlink.set_up("p2")
    })?;
    flooder.enter(|| {
        offload::switch_off("f0")?;
        Netlink::open()?.set_up("f0")
    })?;
    Ok(flooder)
}

/// The traffic through a router, with a flood beside it.
fn offered(text: &str, loads: &[Load], is_done: fn(&Run) -> bool) -> Result<(Run, u64)> {
    let site = Site::build(true, 1_500)?;
    let flooder = flooder(&site)?;
    let config: RouterConfig = toml::from_str(text)?;
    let router = Running::start(Some(site.middle()), config, false)?;
    router.wait_until_up()?;
    let mut tester = Tester::open(&site)?;
    let frames = Frames::new(1, 64, first_hop(true));
    // Whoever is asked for the first time is asked for now.
    tester.offer(&frames, Load { pps: 1_000.0, duration: Duration::from_millis(200) })?;
    let flood = Flood::start(&flooder)?;
    let mut last = (Run::default(), 0);
    for load in loads {
        let stop = Arc::new(AtomicBool::new(false));
        let stalls = watch(&stop);
        let run = tester.offer(&frames, *load)?;
        stop.store(true, Ordering::Relaxed);
        let is_over = is_done(&run);
        if !is_over || loads.len() == 1 {
            last = (run, stalls.load(Ordering::Relaxed));
        }
        if is_over {
            break;
        }
    }
    let flooded = flood.end();
    drop(tester);
    thread::sleep(Duration::from_millis(200));
    let held = |driver: &mut Driver| (u64::from(driver.census().held), driver.router().inside());
    let (held, inside) = router.remote.call(held)?;
    assert_eq!(held, inside, "a buffer for each packet that is inside, and no other");
    let tally = router.stop()?;
    println!(
        "{flooded} hostile frames; the router: {} in, {} out, {} made, {} discarded",
        tally.received, tally.transmitted, tally.made, tally.discarded
    );
    assert!(tally.balances, "{tally:?}");
    Ok(last)
}

#[test]
fn a_port_that_floods_harms_no_other() {
    if !common::privileged("a flood") {
        return;
    }
    let asked = std::env::var("NILOMETER_FLOOD_SECONDS").ok();
    let seconds = asked.map_or(10, |text| text.parse().expect("a number of seconds"));
    assert_eq!((PORTS[1].0, SINK.1), ("p1", [2, 0, 0, 0, 0, 2]));
    let tries = RATES.map(|pps| Load { pps, duration: Duration::from_secs(1) });
    // A generator that was held up has offered less, and what it offered counts.
    let has_lost = |run: &Run| run.delivered < run.sent;
    let (lossless, _) = offered(ROUTER, &tries, has_lost).expect("it is offered");
    let pps = lossless.sent as f64 / lossless.seconds.max(0.1) / 2.0;
    println!("without loss pass {:.0} packets/s while the flood goes into a sink", 2.0 * pps);
    if lossless.sent == 0 {
        println!("skipped: this machine loses packets at {} a second", RATES[0]);
        return;
    }
    let load = Load { pps, duration: Duration::from_secs(seconds) };
    let both = format!("{ROUTER}{THIRD}");
    let (run, stalls) = offered(&both, &[load], |_| true).expect("it is offered");
    let lost = run.sent - run.delivered;
    println!(
        "{} of {} packets were lost beside the flood, {} were not sent in time, {stalls} stalls",
        lost, run.sent, run.missed
    );
    assert!(lost == 0 || stalls > 0, "{run:?}");
    // Stalls explain some losses, never many.
    assert!(lost * 100 <= run.sent, "{run:?}");
}
