//! A router on a thread of its own: started, called, and stopped with its last account.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::assemble::{Assembly, Notes, Options, assemble};
use super::claims::Claims;
use super::config::RouterConfig;
use super::driver::{Presence, Remote};
use super::hotplug::Watcher;
use super::routes::Routes;
use super::tally::{Tally, tally};
use nilometer_linux::clock::thread_id;
use nilometer_linux::namespace::Namespace;

/// How long links may take until they carry traffic.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Why an assembled router does not run.
const NOBODY: &str = "nobody waits for the router";

/// A router that forwards; it stops when this value goes.
pub struct Running {
    /// To look and to change.
    pub remote: Remote,
    /// Its routes, for callers that change them.
    pub routes: Arc<Routes>,
    /// Notes for the operator on how it was assembled.
    pub notes: Notes,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
    links: Option<JoinHandle<()>>,
    /// Those that are to be there from the start.
    ports: Vec<usize>,
}

/// Starts a thread in a namespace, or in that of the calling thread.
fn on_thread<T: Send + 'static>(
    namespace: Option<&Namespace>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    match namespace {
        Some(namespace) => namespace.spawn(name, work),
        None => thread::Builder::new()
            .name(name.into())
            .spawn(work)
            .with_context(|| format!("cannot start the thread {name:?}")),
    }
}

/// What the other thread hands over before it starts driving.
type Handed = Result<(Remote, Routes, Notes)>;

impl Running {
    /// Starts a router in a namespace, or in that of the calling thread; `allow_foreign` takes
    /// interfaces of the host as well.
    ///
    /// # Errors
    /// When it cannot be assembled.
    pub fn start(
        namespace: Option<&Namespace>,
        config: RouterConfig,
        allow_foreign: bool,
    ) -> Result<Running> {
        Running::start_with(namespace, config, Options { allow_foreign, recording: None })
    }

    /// As [`Running::start`], with all options.
    ///
    /// # Errors
    /// As there.
    pub fn start_with(
        namespace: Option<&Namespace>,
        config: RouterConfig,
        options: Options,
    ) -> Result<Running> {
        let allow_foreign = options.allow_foreign;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let ports = (0..config.ports.len()).filter(|&number| !config.ports[number].hotplug);
        let (ports, watched) = (ports.collect(), config.clone());
        let (hand, handed) = channel::<Handed>();
        let work = move || -> Result<()> {
            let names = config.ports.iter().map(|port| port.interface.as_str());
            let claimed = config.check().and_then(|()| Claims::of(names));
            let assembled = claimed.and_then(|claims| Ok((claims, assemble(&config, options)?)));
            let (_claims, Assembly { mut driver, remote, routes, notes }) = match assembled {
                Ok(assembled) => assembled,
                Err(why) => return hand.send(Err(why)).map_err(|_| anyhow!(NOBODY)),
            };
            hand.send(Ok((remote, routes, notes))).map_err(|_| anyhow!(NOBODY))?;
            driver.run(&stopped)
        };
        let thread = on_thread(namespace, "router", work)?;
        let (remote, routes, notes) =
            handed.recv().map_err(|_| anyhow!("the router ended while it was put together"))??;
        let routes = Arc::new(routes);
        let watcher = Watcher {
            routes: Arc::clone(&routes),
            remote: remote.clone(),
            config: watched,
            allow_foreign,
        };
        let (sender, receiver) = channel();
        let links = on_thread(namespace, "links", move || watcher.run(&receiver))?;
        remote.call(move |driver| driver.watch(sender))?;
        let (thread, links) = (Some(thread), Some(links));
        Ok(Running { remote, routes, notes, stop, thread, links, ports })
    }

    /// Returns when every port carries traffic.
    ///
    /// # Errors
    /// When one does not within ten seconds, or the router stops.
    pub fn wait_until_up(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            let ports = self.ports.clone();
            let down = self.remote.call(move |driver| {
                ports.iter().for_each(|&number| driver.look_at_link(number));
                let down = ports.into_iter().find(|&it| driver.presence(it) != Presence::Up);
                down.map(|number| driver.port_name(number).to_owned())
            })?;
            let Some(port) = down else { return Ok(()) };
            ensure!(
                began.elapsed() < READY_WITHIN,
                "port {port} of the router did not come up within {READY_WITHIN:?}"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Its counters now.
    ///
    /// # Errors
    /// When it has stopped.
    pub fn tally(&self) -> Result<Tally> {
        self.remote.call(tally)
    }

    /// The kernel's id of its thread, whose processor time may be read without a call to it
    /// ([`nilometer_linux::clock::thread_time_of`]).
    ///
    /// # Errors
    /// When it has stopped.
    pub fn thread_id(&self) -> Result<i32> {
        self.remote.call(|_| thread_id())
    }

    /// Whether it still drives.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops it and gives its devices back; its last counters.
    ///
    /// # Errors
    /// When it had failed before.
    pub fn stop(mut self) -> Result<Tally> {
        let last = self.tally();
        self.end()?;
        last
    }

    fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        self.remote.ring();
        let ended = match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(anyhow!("the router's thread panicked")),
            Some(Ok(ended)) => ended,
            None => Ok(()),
        };
        // It ends because the driver, its sender, has ended.
        match self.links.take().map(JoinHandle::join) {
            Some(Err(_)) => ended.and(Err(anyhow!("the thread that watches links panicked"))),
            _ => ended,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A caller that needs the result has called `stop`.
        let _ = self.end();
    }
}
