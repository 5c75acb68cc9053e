//! The server of scripted connections: it knows the plan, and each caller's script.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nilometer_conversation::Side;
use nilometer_traffic::plan::PlannedConnection;
use nilometer_traffic::script::Script;
use socket2::Socket;

use super::callers::Callers;
use super::scripted_end::ScriptedEnd;
use super::stage::Stage;
use super::{UNANSWERED_PORT, VectorConfig, check, script_of};
use crate::generate::client::Outcome;
use crate::generate::live::LiveCounters;
use crate::generate::server::ServerReport;
use crate::generate::socket;

/// Connections accepted in one turn of the loop.
const ACCEPTS_MAX: usize = 64;
/// When accepting is tried again after the kernel could not hand over a connection, ns.
const ACCEPT_AGAIN_NS: u64 = 50_000_000;

/// Listens, and performs the servers of a plan when it is run.
#[derive(Debug)]
pub struct VectorServer {
    config: VectorConfig,
    listeners: Vec<Socket>,
    /// These listen and never answer.
    _silent: Vec<Socket>,
    late_ns: AtomicU64,
    /// What was open at the end.
    kept: Mutex<Vec<Socket>>,
}

impl VectorServer {
    /// Listens at the configured port of these addresses in this thread's network namespace; unspecified ones
    /// stand for all of a family. Raises the limit of open files as both ends need it.
    ///
    /// # Errors
    /// One line: a port is in use, an address, interface or congestion control does not exist, or the system
    /// allows too few open files.
    pub fn bind(config: VectorConfig, listen: &[IpAddr]) -> Result<VectorServer> {
        config.admit()?;
        ensure!(!listen.is_empty(), "a server needs an address to listen at");
        let options = config.options();
        let (mut listeners, mut silent) = (Vec::new(), Vec::new());
        for &address in listen {
            let at = |port| socket::listen(SocketAddr::new(address, port), &options, false);
            let listener = at(config.port)?;
            // Accepted sockets inherit the option.
            listener.set_tcp_nodelay(true).context("cannot set TCP_NODELAY")?;
            listeners.push(listener);
            let deaf = at(config.port + UNANSWERED_PORT)?;
            socket::drop_all_packets(&deaf).context("cannot filter what comes to a socket")?;
            silent.push(deaf);
        }
        let (late_ns, kept) = (AtomicU64::new(0), Mutex::default());
        Ok(VectorServer { config, listeners, _silent: silent, late_ns, kept })
    }

    /// By how much a step of a server began later than it was due, at most; ns.
    pub fn late_ns(&self) -> u64 {
        self.late_ns.load(Relaxed)
    }

    /// Performs the servers of `plan`, in this thread, until its time is over or `stop` is set. Connections
    /// open then stay open until the server is dropped.
    ///
    /// # Errors
    /// One line: the plan is out of order or lacks a script, the system refuses an event queue, or accepted
    /// sockets do not use the configured congestion control.
    pub fn run(
        &self,
        plan: &[PlannedConnection],
        scripts: &[Script],
        live: &LiveCounters,
        stop: &AtomicBool,
    ) -> Result<ServerReport> {
        check(plan, scripts)?;
        let stage = Stage::new(Side::Server, self.config.clock(), self.config.open_max, live)?;
        let mut host = Host {
            server: self,
            plan,
            scripts,
            callers: Callers::of(plan),
            stage,
            live,
            report: ServerReport::default(),
            is_listening: false,
            accept_again_ns: 0,
        };
        host.perform(stop)?;
        Ok(host.report)
    }
}

/// A server at work.
struct Host<'a> {
    server: &'a VectorServer,
    plan: &'a [PlannedConnection],
    scripts: &'a [Script],
    callers: Callers,
    stage: Stage<'a>,
    live: &'a LiveCounters,
    report: ServerReport,
    is_listening: bool,
    /// No sooner than this, after the kernel could not hand over a connection.
    accept_again_ns: u64,
}

impl Host<'_> {
    fn perform(&mut self, stop: &AtomicBool) -> Result<()> {
        let (clock, end_ns) = (self.server.config.clock(), self.server.config.end_ns());
        self.listen(true)?;
        while clock.now_ns() < end_ns && !stop.load(Relaxed) {
            self.stage.turn(end_ns)?;
            for at in std::mem::take(&mut self.stage.callers_at) {
                self.accept(at)?;
            }
            self.note_ended();
            if !self.is_listening && !self.stage.is_full() && clock.now_ns() >= self.accept_again_ns
            {
                self.listen(true)?;
            }
        }
        let kept = self.stage.close();
        self.note_ended();
        self.server.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(kept);
        self.server.late_ns.fetch_max(self.stage.late_ns, Relaxed);
        let report = &self.report;
        let ended = report.completed + report.bad_requests + report.broken + report.unfinished;
        assert_eq!(report.accepted, ended, "every connection ends once");
        Ok(())
    }

    /// Watches the listeners, or leaves new connections to the kernel's queue for a while.
    fn listen(&mut self, listening: bool) -> Result<()> {
        if self.is_listening != listening {
            for (number, listener) in self.server.listeners.iter().enumerate() {
                self.stage.watch(listener, number, listening)?;
            }
            self.is_listening = listening;
        }
        Ok(())
    }

    fn accept(&mut self, at: usize) -> Result<()> {
        for _ in 0..ACCEPTS_MAX {
            if self.stage.is_full() {
                return self.listen(false);
            }
            let (socket, caller) = match socket::accept(&self.server.listeners[at]) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return Ok(()),
                // No descriptor or no memory: waiting connections are retried a little later.
                Err(_) => {
                    self.accept_again_ns = self.server.config.clock().now_ns() + ACCEPT_AGAIN_NS;
                    return self.listen(false);
                }
            };
            self.report.accept(&socket, &self.server.config.congestion)?;
            self.live.start(0);
            self.seat(socket, caller);
        }
        Ok(())
    }

    /// Begins the caller's planned connection, or resets a caller that is not in the plan.
    fn seat(&mut self, socket: Socket, caller: SocketAddr) {
        let now_ns = self.server.config.clock().now_ns();
        let called = socket.local_addr().ok().and_then(|address| address.as_socket());
        let index = called.and_then(|called| self.callers.take(caller, called.ip(), now_ns));
        let Some(index) = index else {
            // Where that cannot be set the connection is closed with a FIN instead.
            let _ = socket.set_linger(Some(Duration::ZERO));
            self.report.bad_requests += 1;
            return self.live.end(false);
        };
        let script = script_of(&self.plan[index as usize], self.scripts);
        let end = ScriptedEnd::new(socket, index, script, Side::Server, now_ns);
        if self.stage.seat(end).is_err() {
            self.report.broken += 1;
            self.live.end(false);
        }
    }

    fn note_ended(&mut self) {
        for ended in self.stage.ended.drain(..) {
            self.report.sent_bytes += ended.sent_bytes;
            match ended.outcome {
                Outcome::Completed => self.report.completed += 1,
                Outcome::Unfinished => self.report.unfinished += 1,
                _ => self.report.broken += 1,
            }
        }
    }
}
