//! A run of the experiment by the real clock: the same hosts on packet sockets, and running routers, in namespaces.
//!
//! Each host has a thread, each router has its own. Source, cross traffic and routers are timed threads
//! ([`nilometer_linux::scheduling`]); receivers decode frames and wait for their turn. How late any of them was is part of the
//! outcome ([`super::punctual`]). Making namespaces, memories and tables takes more of a processor than playing, so all of it is
//! done before the beginning, and undone after the end.

mod site;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nilometer_linux::memory::{Packet, PacketMemory};
use nilometer_linux::scheduling::{Role, Timed};
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::driver::TimerLateness;
use nilometer_routerd::running::Running;
use nilometer_routerd::tally::Tally;
use nilometer_wire::{Node, Span, Time};

use self::site::{HostPort, Site};
use super::clip::Clip;
use super::description::{BEGINS, End, ends, made_up, routers};
use super::hosts::{Hosts, RouterAccount};
use super::outcome::RunOutcome;
use super::punctual::{LATE, LATEST, Punctual, RECEIVERS_TIMES, ThreadPunctuality};
use super::{Contender, RECEIVERS, VideoPlan};
use crate::device::driver::Driver;

/// How often the end is checked for.
const LOOK: Duration = Duration::from_millis(20);
/// How long after the last frame routers are first checked for being empty.
const SETTLES: Span = Span::from_nanos(300_000_000);
/// The reason of discard for frames to a router's kernel side, which these routers do not have.
const UNPUNTED: &str = "unpunted";

/// How a network is played.
#[derive(Clone, Copy)]
pub(super) struct Playing<'a> {
    /// When it begins.
    pub(super) origin: Instant,
    /// The threads that are timed.
    pub(super) timed: &'a Timed,
    /// Ends it early.
    pub(super) stop: &'a AtomicBool,
    /// Gets the share that is over.
    pub(super) progress: &'a (dyn Fn(f64) + Sync),
}

/// The network of a contender, up, in which nothing is sent yet.
pub(super) struct Network<'a> {
    plan: &'a VideoPlan,
    hosts: Hosts<'a>,
    ports: Vec<(End, HostPort)>,
    running: Vec<Running>,
    /// The allowed lateness of its routers' timers.
    late: Span,
    /// When the last frame has been sent, and when all is over at the latest.
    over: [Time; 2],
    threads: Vec<ThreadPunctuality>,
    /// Goes last.
    _site: Site,
}

/// Raises a flag when it goes, however that comes about.
struct RaisedAtEnd<'a>(&'a AtomicBool);

impl Drop for RaisedAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<'a> Network<'a> {
    /// Makes it.
    ///
    /// # Errors
    /// Where the kernel refuses, or a router cannot start.
    pub(super) fn new(
        clip: &'a Clip,
        plan: &'a VideoPlan,
        contender: Contender,
        timed: &Timed,
    ) -> Result<Network<'a>> {
        let hosts = Hosts::new(clip, plan, contender)?;
        let link = plan.link(clip);
        let site = Site::build()?;
        let late = LATE.min(made_up(link));
        let start = |(number, config): (usize, RouterConfig)| {
            let router = Running::start(Some(site.router(number)), config, false);
            let router = router.with_context(|| format!("router R{} cannot start", number + 1))?;
            router.wait_until_up()?;
            timed.add(Role::Router, router.thread_id()?);
            Ok(router)
        };
        let configs = routers(link, &hosts.groups, contender)?;
        let running = configs.into_iter().enumerate().map(start).collect::<Result<_>>()?;
        let all = [End::Source].into_iter().chain((1..RECEIVERS).map(End::Cross));
        let all = all.chain((0..RECEIVERS).map(End::Receiver));
        let ports = all.map(|host| Ok((host, site.open(host)?))).collect::<Result<_>>()?;
        let last = BEGINS + clip.frame_time() * u64::from(plan.frames);
        let over = [last, ends(clip.frame_time(), plan)];
        Ok(Network { plan, hosts, ports, running, late, over, threads: Vec::new(), _site: site })
    }

    /// Plays it until routers are empty after the last frame, or the latest end; whether it was not stopped before.
    ///
    /// # Errors
    /// When a thread fails.
    pub(super) fn play(&mut self, playing: Playing<'_>) -> Result<bool> {
        let late = self.late;
        for router in &self.running {
            router.remote.call(move |driver| driver.watch_lateness(late))?;
        }
        let stop = AtomicBool::new(false);
        let Hosts { source, viewers, crossing, .. } = &mut self.hosts;
        let mut ports = self.ports.drain(..);
        let (running, [last, latest]) = (&self.running, self.over);
        let mut port = move || ports.next().context("each host has a port");
        let ended = thread::scope(|scope| -> Result<Option<Vec<ThreadPunctuality>>> {
            let _stops = RaisedAtEnd(&stop);
            let mut threads = vec![playing.host(scope, port()?, source, &stop)?];
            for source in crossing {
                threads.push(playing.host(scope, port()?, source, &stop)?);
            }
            for viewer in viewers {
                threads.push(playing.host(scope, port()?, viewer, &stop)?);
            }
            loop {
                thread::sleep(LOOK);
                let now = playing.now();
                (playing.progress)(now.as_nanos() as f64 / last.as_nanos() as f64);
                let is_stopped = playing.stop.load(Ordering::Acquire);
                let is_drained = now >= last + SETTLES && are_empty(running)?;
                let has_failed = threads.iter().any(ScopedJoinHandle::is_finished);
                if is_stopped || is_drained || has_failed || now >= latest {
                    stop.store(true, Ordering::Release);
                    let ended = threads
                        .into_iter()
                        .map(|it| it.join().map_err(|_| anyhow!("a host's thread panicked"))?);
                    return Ok((!is_stopped).then_some(ended.collect::<Result<_>>()?));
                }
            }
        })?;
        let is_whole = ended.is_some();
        self.threads = ended.unwrap_or_default();
        Ok(is_whole)
    }

    /// Takes everything down, and returns the outcome.
    ///
    /// # Errors
    /// When a router has failed, or a limit of the experiment was reached.
    pub(super) fn end(self) -> Result<RunOutcome> {
        let Network { plan, hosts, running, late, mut threads, .. } = self;
        let mut accounts = Vec::new();
        for (number, router) in running.into_iter().enumerate() {
            let account = |driver: &mut nilometer_routerd::driver::Driver| {
                (RouterAccount::of(driver.router()), driver.lateness())
            };
            let (account, found) = router.remote.call(account)?;
            let found = found.unwrap_or(TimerLateness::new(late));
            let lost = lost_frames(&router.stop()?);
            threads.push(ThreadPunctuality::new(format!("R{}", number + 1), found, LATEST, lost));
            accounts.push(account);
        }
        hosts.outcome(plan, &accounts, threads)
    }
}

fn are_empty(running: &[Running]) -> Result<bool> {
    let waiting = running.iter().map(|router| Ok(router.tally()?.inside));
    Ok(waiting.sum::<Result<u64>>()? == 0)
}

/// Frames that a router's devices lost, or that never left it.
fn lost_frames(tally: &Tally) -> u64 {
    let lost = tally.ports.iter().flat_map(|port| &port.lost);
    lost.filter(|(reason, _)| reason.as_str() != UNPUNTED).map(|(_, frames)| frames).sum()
}

/// The name of a host's thread.
fn name(host: End) -> String {
    match host {
        End::Source => "source".to_owned(),
        End::Router(number, _) => format!("R{}", number + 1),
        End::Receiver(number) => format!("D{}", number + 1),
        End::Cross(number) => format!("X{}", number + 1),
    }
}

type HostThread<'scope> = ScopedJoinHandle<'scope, Result<ThreadPunctuality>>;

impl<'a> Playing<'a> {
    /// The time since the beginning.
    fn now(&self) -> Time {
        Time::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// Starts the thread of a host, which waits for the beginning.
    fn host<'scope, N>(
        self,
        scope: &'scope Scope<'scope, '_>,
        (host, port): (End, HostPort),
        node: &'scope mut N,
        stop: &'scope AtomicBool,
    ) -> Result<HostThread<'scope>>
    where
        N: Node<Packet, PacketMemory> + Send,
        'a: 'scope,
    {
        let name = name(host);
        let drive = move || self.drive(host, port, node, stop);
        let started = thread::Builder::new().name(name.clone()).spawn_scoped(scope, drive);
        started.with_context(|| format!("cannot start the thread {name}"))
    }

    /// Drives a host until all is over.
    fn drive<N: Node<Packet, PacketMemory>>(
        self,
        host: End,
        (memory, port): HostPort,
        node: &mut N,
        stop: &AtomicBool,
    ) -> Result<ThreadPunctuality> {
        let times = match host {
            End::Receiver(_) => RECEIVERS_TIMES,
            _ => {
                self.timed.enter(Role::Client);
                1
            }
        };
        thread::sleep(self.origin.saturating_duration_since(Instant::now()));
        let clock = || self.now();
        let node = Punctual::new(node, LATE * times);
        let mut driver = Driver::new(node, vec![port], memory, &clock).spinning(Duration::ZERO);
        driver.run(stop, |_| ())?;
        let ports = driver.statistics()?;
        let lost = ports.iter().map(|port| port.rx_lost() + port.tx_invalid).sum::<u64>();
        let lost = lost + driver.waiting() as u64;
        let found = driver.close().found;
        Ok(ThreadPunctuality::new(name(host), found, LATEST * times, lost))
    }
}
