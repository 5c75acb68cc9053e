//! The client: a plan performed on time by one event loop or several.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use nilometer_linux::scheduling::{Role, Timed};
use nilometer_traffic::plan::PlannedConnection;

use super::client_loop::{Player, Share};
pub use super::execution::{ClientConfig, Execution, Outcome};
use super::live::LiveCounters;
use super::protocol::SIZE_MAX_BYTES;
use super::socket::{self, Options};

/// Performs plans.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    congestion: String,
}

impl Client {
    /// A client in this thread's network namespace; raises the limit of open files as it needs.
    ///
    /// # Errors
    /// One line: the congestion control or the interface does not exist, or the system allows too
    /// few open files.
    pub fn new(config: ClientConfig) -> Result<Client> {
        ensure!(config.open_max > 0, "a client with no connections open at once can do nothing");
        socket::allow_connections(config.open_max)?;
        let congestion = options(&config).verify()?;
        Ok(Client { config, congestion })
    }

    /// The congestion control that a socket of this client read back.
    pub fn congestion(&self) -> &str {
        &self.congestion
    }

    /// Performs `connections`, sorted by start, in this thread; returns one execution for each, in
    /// their order. Setting `stop` ends the run within a twentieth of a second.
    ///
    /// # Errors
    /// One line: the plan is out of order or exceeds the limits of the protocol, or the system
    /// refuses an event queue. Failures of single connections are in their executions.
    pub fn run(
        &self,
        connections: &[PlannedConnection],
        live: &LiveCounters,
        stop: &AtomicBool,
    ) -> Result<Vec<Execution>> {
        check(connections)?;
        let all = (0..connections.len() as u32).collect();
        self.player(connections, all, self.config.open_max, live)?.perform(stop)
    }

    /// Performs `connections` as [`Client::run`] does, in `threads` threads that share them by
    /// session.
    ///
    /// # Errors
    /// As [`Client::run`].
    pub fn run_threads(
        &self,
        threads: NonZeroUsize,
        connections: &[PlannedConnection],
        live: &LiveCounters,
        stop: &AtomicBool,
    ) -> Result<Vec<Execution>> {
        check(connections)?;
        let threads = threads.get().min(self.config.open_max);
        let open_max = self.config.open_max / threads;
        in_threads(connections, threads, self.config.timed.as_deref(), &|share| {
            self.player(connections, share, open_max, live)?.perform(stop)
        })
    }

    fn player<'a>(
        &'a self,
        plan: &'a [PlannedConnection],
        indices: Vec<u32>,
        open_max: usize,
        live: &'a LiveCounters,
    ) -> Result<Player<'a>> {
        let last = plan.last().map_or(0, |planned| planned.start.as_nanos());
        let deadline = self.config.origin + Duration::from_nanos(last) + self.config.drain;
        let share = Share { plan, indices, open_max, deadline };
        Player::new(&self.config, options(&self.config), share, live)
    }
}

/// Performs a plan in threads that share it by session, each of them `timed`: `play` performs a share, given by
/// places in the plan.
/// Returns one execution for each connection, in their order.
pub(super) fn in_threads(
    plan: &[PlannedConnection],
    threads: usize,
    timed: Option<&Timed>,
    play: &(dyn Fn(Vec<u32>) -> Result<Vec<Execution>> + Sync),
) -> Result<Vec<Execution>> {
    let mut shares = vec![Vec::new(); threads];
    for (index, planned) in plan.iter().enumerate() {
        shares[planned.session as usize % threads].push(index as u32);
    }
    let mut executions = Vec::with_capacity(plan.len());
    thread::scope(|scope| {
        let begin = |share| {
            scope.spawn(move || {
                if let Some(timed) = timed {
                    timed.enter(Role::Client);
                }
                play(share)
            })
        };
        let players: Vec<_> = shares.into_iter().map(begin).collect();
        for player in players {
            let share = player.join().map_err(|_| anyhow!("an event loop panicked"))?;
            executions.extend(share?);
        }
        anyhow::Ok(())
    })?;
    executions.sort_unstable_by_key(|execution| execution.index);
    assert_eq!(executions.len(), plan.len(), "one execution for each connection");
    Ok(executions)
}

fn options(config: &ClientConfig) -> Options {
    Options { congestion: config.congestion.clone(), bind_device: config.bind_device.clone() }
}

fn check(plan: &[PlannedConnection]) -> Result<()> {
    ensure!(plan.len() < u32::MAX as usize, "a plan of 2^32 connections or more");
    if let Some(index) = plan.windows(2).position(|pair| pair[0].start > pair[1].start) {
        let next = index + 1;
        return Err(anyhow!("connection {next} of the plan starts before connection {index}"));
    }
    let most = |planned: &PlannedConnection| planned.size_bytes.max(planned.request_bytes);
    if let Some(index) = plan.iter().position(|planned| most(planned) > SIZE_MAX_BYTES) {
        let size = most(&plan[index]);
        return Err(anyhow!(
            "connection {index} of the plan carries {size} bytes one way; the most is {SIZE_MAX_BYTES}"
        ));
    }
    Ok(())
}
