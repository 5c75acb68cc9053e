//! The client of scripted connections: each started on time, from its own port, by one loop or several.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use anyhow::Result;
use nilometer_conversation::{Opening, Side};
use nilometer_traffic::plan::PlannedConnection;
use nilometer_traffic::script::Script;
use socket2::Socket;

use super::scripted_end::ScriptedEnd;
use super::stage::Stage;
use super::stamping::Stamping;
use super::{VectorConfig, check, port_offset, script_of};
use crate::generate::client::{Execution, Outcome, in_threads};
use crate::generate::client_loop::outcome_of;
use crate::generate::live::LiveCounters;
use crate::generate::socket::{self, Dialer};

/// Starts in one turn, so that a late loop still serves its transfers.
const STARTS_MAX: usize = 64;

/// Performs the clients of plans with scripts.
#[derive(Debug)]
pub struct VectorClient {
    config: VectorConfig,
    congestion: String,
    stamping: Option<Stamping>,
    late_ns: AtomicU64,
    /// What was open at the end.
    kept: Mutex<Vec<Socket>>,
}

impl VectorClient {
    /// A client in this thread's network namespace; raises the limit of open files as both ends need it.
    ///
    /// # Errors
    /// One line: the congestion control or the interface does not exist, or the system allows too few open
    /// files.
    pub fn new(config: VectorConfig) -> Result<VectorClient> {
        config.admit()?;
        let congestion = config.options().verify()?;
        let stamping = config.owns_namespace.then(Stamping::open).transpose()?;
        let (late_ns, kept) = (AtomicU64::new(0), Mutex::default());
        Ok(VectorClient { config, congestion, stamping, late_ns, kept })
    }

    /// The congestion control that a socket of this client read back.
    pub fn congestion(&self) -> &str {
        &self.congestion
    }

    /// By how much a step of a client began later than it was due, at most; ns.
    pub fn late_ns(&self) -> u64 {
        self.late_ns.load(Relaxed)
    }

    /// Performs `plan`, sorted by start, in `threads` threads that share it by session; returns one execution
    /// for each connection, in their order. Setting `stop` ends the run within a twentieth of a second.
    /// Connections open at the end stay open until the client is dropped.
    ///
    /// # Errors
    /// One line: the plan is out of order or lacks a script, or the system refuses an event queue. Failures of
    /// single connections are in their executions.
    pub fn run_threads(
        &self,
        threads: NonZeroUsize,
        plan: &[PlannedConnection],
        scripts: &[Script],
        live: &LiveCounters,
        stop: &AtomicBool,
    ) -> Result<Vec<Execution>> {
        check(plan, scripts)?;
        let threads = threads.get().min(self.config.open_max);
        let open_max = self.config.open_max / threads;
        in_threads(plan, threads, self.config.timed.as_deref(), &|indices| {
            let stage = Stage::new(Side::Client, self.config.clock(), open_max, live)?;
            Player::new(self, (plan, scripts), indices, stage, live).perform(stop)
        })
    }
}

/// One event loop and its share of the plan.
struct Player<'a> {
    client: &'a VectorClient,
    plan: &'a [PlannedConnection],
    scripts: &'a [Script],
    executions: Vec<Execution>,
    /// The first execution that has not been started.
    next: usize,
    /// The last that had to wait for a free place.
    held: Option<usize>,
    dialer: Dialer,
    stage: Stage<'a>,
    live: &'a LiveCounters,
}

impl<'a> Player<'a> {
    fn new(
        client: &'a VectorClient,
        (plan, scripts): (&'a [PlannedConnection], &'a [Script]),
        indices: Vec<u32>,
        stage: Stage<'a>,
        live: &'a LiveCounters,
    ) -> Player<'a> {
        Player {
            client,
            plan,
            scripts,
            executions: indices.into_iter().map(Execution::not_started).collect(),
            next: 0,
            held: None,
            dialer: Dialer::new(client.config.options()),
            stage,
            live,
        }
    }

    /// Plays until everything has ended, the time is over or `stop` is set.
    fn perform(mut self, stop: &AtomicBool) -> Result<Vec<Execution>> {
        let (clock, end_ns) = (self.client.config.clock(), self.client.config.end_ns());
        loop {
            let is_over = self.next == self.executions.len() && self.stage.is_empty();
            if is_over || clock.now_ns() >= end_ns || stop.load(Relaxed) {
                break;
            }
            let next_start_ns = self.start_due(clock.now_ns());
            self.stage.turn(next_start_ns.unwrap_or(end_ns).min(end_ns))?;
            self.note_ended();
        }
        let kept = self.stage.close();
        self.note_ended();
        self.client.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(kept);
        self.client.late_ns.fetch_max(self.stage.late_ns, Relaxed);
        Ok(self.executions)
    }

    /// Starts what is due, and returns when the next start is; none when nothing is left to start or nothing
    /// can be started before a connection ends.
    fn start_due(&mut self, now_ns: u64) -> Option<u64> {
        for _ in 0..STARTS_MAX {
            let index = self.executions.get(self.next)?.index;
            let due_ns = self.plan[index as usize].start.as_nanos();
            // Before the origin no time has passed, and nothing is due.
            if due_ns > now_ns || !self.has_begun() {
                return Some(due_ns);
            }
            if self.stage.is_full() {
                if self.held.replace(self.next) != Some(self.next) {
                    self.live.hold();
                }
                return None;
            }
            self.start(self.next as u32);
            self.next += 1;
        }
        Some(now_ns)
    }

    fn has_begun(&self) -> bool {
        self.client.config.origin.elapsed() > std::time::Duration::ZERO
    }

    fn start(&mut self, position: u32) {
        let execution = &mut self.executions[position as usize];
        let planned = &self.plan[execution.index as usize];
        let source = SocketAddr::new(planned.source, planned.source_port);
        let has_time_stamps =
            self.client.stamping.is_none() || script_of(planned, self.scripts).has_time_stamps;
        let bound = self.dialer.bind(source, planned.segment_bytes, has_time_stamps);
        let started_ns = self.client.config.clock().now_ns();
        self.live.start(started_ns.saturating_sub(planned.start.as_nanos()));
        execution.started_ns = started_ns;
        let begun = bound.and_then(|socket| self.connect(socket, position, started_ns));
        if let Err(error) = begun {
            let script = script_of(planned, self.scripts);
            let outcome = match outcome_of(&error) {
                Outcome::Refused if script.opening == Opening::Refused => Outcome::Completed,
                outcome => outcome,
            };
            let execution = &mut self.executions[position as usize];
            execution.outcome = outcome;
            execution.finished_ns = Some(self.client.config.clock().now_ns());
            self.live.end(outcome == Outcome::Completed);
        }
    }

    fn connect(&mut self, socket: Socket, position: u32, started_ns: u64) -> io::Result<()> {
        let planned = &self.plan[self.executions[position as usize].index as usize];
        let script = script_of(planned, self.scripts);
        socket.set_tcp_nodelay(true)?;
        let port = self.client.config.port + port_offset(script.opening);
        let connect = || socket::connect(&socket, SocketAddr::new(planned.destination, port));
        match &self.client.stamping {
            Some(stamping) => stamping.with(script.has_time_stamps, connect)?,
            None => connect()?,
        }
        self.stage.seat(ScriptedEnd::new(socket, position, script, Side::Client, started_ns))
    }

    fn note_ended(&mut self) {
        let clock = self.client.config.clock();
        for ended in self.stage.ended.drain(..) {
            let execution = &mut self.executions[ended.owner as usize];
            execution.outcome = ended.outcome;
            execution.local_port = ended.local_port;
            execution.received_bytes = ended.received_bytes;
            let is_over = ended.outcome != Outcome::Unfinished;
            execution.finished_ns = is_over.then(|| clock.now_ns());
        }
    }
}
