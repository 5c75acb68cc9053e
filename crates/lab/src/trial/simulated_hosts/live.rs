//! Simulated hosts under the real clock: a thread for each, on its interface of the testbed.
//!
//! A host's clock is the time since the traffic's beginning. When its thread is late, all due events are handled at
//! once, one after the other, and counted as late ([`nilometer_sim::host::LATE`]).
//!
//! Ports are packet sockets whose frames the meter's sockets see. The kernel of both namespaces has no addresses and
//! answers nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nilometer_linux::memory::{MemoryConfig, PacketMemory};
use nilometer_linux::packet_port::{PacketPort, PacketPortConfig};
use nilometer_linux::port::PortStatistics;
use nilometer_linux::scheduling::Role;
use nilometer_linux::testbed::{
    CLIENT_INTERFACE, Layout, SERVER_INTERFACE, Testbed, TestbedConfig,
};
use nilometer_sim::host::Host;
use nilometer_wire::Time;

use super::{Hosts, HostsSeen};
use crate::device::driver::Driver;
use crate::device::recording::{RECORDING_BYTES, Recorded, Recording, replay};
use crate::generate::{Execution, LiveCounters, ServerReport};
use crate::trial::config::LabConfig;
use crate::trial::scores::{Scores, Timing};

/// Buffers of a host, and those of them that are kept for what arrives.
const BUFFERS: u32 = 32_768;
const RESERVE: u32 = 4_096;
/// Room for frames that wait for a late host.
const RECEIVE_BUFFER_BYTES: i32 = 128 << 20;
/// How long a host polls for the next frame before it sleeps, and how long it rests between turns while it is busy: a
/// thread that never sleeps would be taken out of the real-time class.
const SPIN: Duration = Duration::from_micros(50);
const REST: Duration = Duration::from_micros(100);
/// How often the end is checked for.
const LOOK: Duration = Duration::from_millis(5);

/// Ends of a host, by how far they are, for the progress display.
#[derive(Debug, Default)]
struct Progress {
    began: AtomicU64,
    done: AtomicU64,
}

/// A host after it was driven.
struct Driven {
    host: Host,
    recording: Option<Recording>,
    ports: Vec<PortStatistics>,
    unsent: u64,
}

/// A host's thread; it waits for its [`Timing`], and goes without one.
struct HostThread {
    begin: Sender<Timing>,
    thread: JoinHandle<Result<Driven>>,
}

/// Both hosts, each on its thread.
pub struct LiveHosts {
    /// When the plan is over, and the client's port of each connection.
    planned: (Time, Vec<u16>),
    threads: [HostThread; 2],
    progress: [Arc<Progress>; 2],
    origin: Mutex<Option<Instant>>,
    stop: Stop,
    layout: Layout,
}

/// Stops both threads, at the latest when it goes.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl LiveHosts {
    /// Opens the hosts' ports, the links of the testbed still down. A host that fails later sets `failed`.
    ///
    /// # Errors
    /// When a port cannot be opened, or hosts have no such congestion control.
    pub fn open(
        testbed: &Testbed,
        (config, layout): (&LabConfig, &TestbedConfig),
        scores: Scores<'_>,
        failed: &Arc<AtomicBool>,
    ) -> Result<LiveHosts> {
        let layout = Layout::new(layout)?;
        let Hosts { both: [client, server], end, ports } = Hosts::new(config, scores, &layout)?;
        let (stop, progress) = (Arc::new(AtomicBool::new(false)), <[Arc<Progress>; 2]>::default());
        let records = config.replay_hosts;
        let start = |host: Host, role: Role| {
            let (namespace, name, at) = match role {
                Role::Client => (testbed.client(), CLIENT_INTERFACE, 0),
                _ => (testbed.server(), SERVER_INTERFACE, 1),
            };
            let recording = records.then(|| Recording::new(RECORDING_BYTES / 2));
            let node = Recorded::new(host, recording);
            let (progress, stop) = (Arc::clone(&progress[at]), Arc::clone(&stop));
            let failed = Arc::clone(failed);
            let (begin, begun) = channel();
            let (hand, handed) = channel();
            let work = move || {
                let opened = open(name);
                let _ = hand.send(opened.as_ref().map(drop).map_err(|why| anyhow!("{why:#}")));
                let driven = drive(node, opened?, (role, begun), (&progress, &stop));
                driven.inspect_err(|_| failed.store(true, Ordering::Release))
            };
            let thread = namespace.spawn(&format!("{name} host"), work)?;
            handed.recv().context("a host ended while it was put together")??;
            anyhow::Ok(HostThread { begin, thread })
        };
        let threads = [start(client, Role::Client)?, start(server, Role::Server)?];
        let origin = Mutex::default();
        let (planned, stop) = ((end, ports), Stop(stop));
        Ok(LiveHosts { planned, threads, progress, origin, stop, layout })
    }

    /// Passes the beginning of the traffic to both hosts.
    pub fn begin(&self, timing: &Timing) {
        *self.origin.lock().unwrap_or_else(PoisonError::into_inner) = Some(timing.origin);
        for host in &self.threads {
            // (A failure is reported at the end.)
            let _ = host.begin.send(timing.clone());
        }
    }

    /// Returns when the plan is over: where scripts are performed at its end, otherwise when all has been received; or
    /// when `stop` is set.
    pub fn wait(&self, scores: Scores<'_>, live: &LiveCounters, stop: &AtomicBool) {
        let origin = *self.origin.lock().unwrap_or_else(PoisonError::into_inner);
        let end =
            origin.unwrap_or_else(Instant::now) + Duration::from_nanos(self.planned.0.as_nanos());
        let client = &self.progress[0];
        while !stop.load(Ordering::Acquire) && Instant::now() < end {
            let [began, done] =
                [&client.began, &client.done].map(|count| count.load(Ordering::Relaxed));
            live.set(began, done);
            if !scores.are_vectors() && done == scores.connections.len() as u64 {
                break;
            }
            thread::sleep(LOOK);
        }
    }

    /// Stops both, and returns when they have stopped.
    pub fn stop(&self) {
        self.stop.0.store(true, Ordering::Release);
        while self.threads.iter().any(|host| !host.thread.is_finished()) {
            thread::sleep(LOOK);
        }
    }

    /// The outcome of each connection, the servers' account, and the hosts' counters.
    ///
    /// # Errors
    /// When a host failed.
    pub fn end(
        self,
        config: &LabConfig,
        scores: Scores<'_>,
    ) -> Result<(Vec<Execution>, ServerReport, HostsSeen)> {
        self.stop();
        let join = |host: HostThread| {
            let HostThread { begin, thread } = host;
            drop(begin);
            thread.join().map_err(|_| anyhow!("a simulated host's thread panicked"))?
        };
        let [client, server] = self.threads.map(join);
        let [client, server] = [client?, server?];
        let (end, ports) = self.planned;
        let hosts = Hosts { both: [client.host, server.host], end, ports };
        let (executions, served) = hosts.executions(config, scores);
        let recordings = client.recording.zip(server.recording);
        let replayed = recordings
            .map(|(client, server)| {
                let [first, second] = Hosts::new(config, scores, &self.layout)?.both;
                anyhow::Ok(replay(first, &client).and(replay(second, &server)))
            })
            .transpose()?;
        let seen = HostsSeen {
            ports: [client.ports, server.ports].concat(),
            unsent: client.unsent + server.unsent,
            replayed,
            ..hosts.seen()
        };
        Ok((executions, served, seen))
    }
}

fn open(name: &str) -> Result<(PacketMemory, PacketPort)> {
    let config = MemoryConfig { chunk_bytes: 2_048, chunks: BUFFERS, reserve: RESERVE };
    let mut memory = PacketMemory::new(config).context("memory of a simulated host")?;
    let metered = PacketPortConfig {
        shows_what_it_sends: true,
        reserve: RESERVE,
        receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
        ..PacketPortConfig::default()
    };
    let port = PacketPort::open(&mut memory, name, &metered)?;
    Ok((memory, port))
}

/// Drives a host from the traffic's beginning until it is to stop.
fn drive(
    node: Recorded<Host>,
    (memory, port): (PacketMemory, PacketPort),
    (role, begun): (Role, Receiver<Timing>),
    (progress, stop): (&Progress, &AtomicBool),
) -> Result<Driven> {
    let Ok(Timing { origin, timed }) = begun.recv() else {
        let (host, recording) = node.end();
        return Ok(Driven { host, recording, ports: Vec::new(), unsent: 0 });
    };
    timed.enter(role);
    thread::sleep(origin.saturating_duration_since(Instant::now()));
    let clock = || Time::from_nanos(origin.elapsed().as_nanos() as u64);
    let mut driver = Driver::new(node, vec![port], memory, &clock).resting(SPIN, REST);
    driver.run(stop, |node| {
        let counts = node.node.counts();
        progress.began.store(counts.began, Ordering::Relaxed);
        progress.done.store(counts.done, Ordering::Relaxed);
    })?;
    let (ports, unsent) = (driver.statistics()?, driver.waiting() as u64);
    let (host, recording) = driver.close().end();
    Ok(Driven { host, recording, ports, unsent })
}
