//! Connection vectors performed: both ends of each connection play their steps, in closed loop.
//!
//! A plan says when each client connects, from which address and port, and which [`Script`] it and its
//! server then follow. Both ends know the script, so nothing about it is sent: the payload is all there is.
//! The server recognises a connection by the client's address and port and its own address.
//!
//! ```text
//! client                                               server
//!   bind to source and port, connect  ── SYN ──▶
//!                                    ◀─ SYN+ACK ─
//!                                     ── ACK ──▶       accept, look up the caller
//!   step by step what its Speaker says ◀─ data ─▶      the same
//!   Fin: shut down, keep reading       ── FIN ──▶      reads it as one more byte
//!   Reset: close with SO_LINGER 0      ── RST ──▶      the end, which the script foretold or not
//! ```
//!
//! A connection to be refused is made to the port after the servers', where nothing listens; one to be
//! left unanswered is made to the port after that, where a listening socket drops each packet unseen.
//!
//! * `ScriptedEnd`: one open socket and how far its end is in its script.
//! * `Timers`: when each of them continues.
//! * `Stage`: the event loop of either end.
//! * `Stamping`: time stamps, on or off for each connection.
//! * [`VectorClient`] and [`VectorServer`]: which connections enter a stage, and their outcomes.

mod callers;
mod client;
mod scripted_end;
mod server;
mod stage;
mod stamping;
mod timers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nilometer_conversation::Opening;
use nilometer_linux::scheduling::Timed;
use nilometer_traffic::plan::PlannedConnection;
use nilometer_traffic::script::Script;

use super::socket::{self, Options};

pub use client::VectorClient;
pub use server::VectorServer;

/// How far behind the servers' port the one is at which nothing listens.
const REFUSED_PORT: u16 = 1;
/// How far behind the servers' port the one is at which no caller is answered.
const UNANSWERED_PORT: u16 = 2;
/// How far behind the servers' port the one is to which a connection with this opening is made.
pub fn port_offset(opening: Opening) -> u16 {
    match opening {
        Opening::Seen | Opening::Unseen => 0,
        Opening::Refused => REFUSED_PORT,
        Opening::Unanswered => UNANSWERED_PORT,
    }
}

/// Connections that may be open at once, if the system allows it.
const OPEN_MAX: usize = 65_536;

/// How an end performs a plan of scripts.
#[derive(Clone, Debug)]
pub struct VectorConfig {
    /// When the plan's `Time::ZERO` is; may lie ahead.
    pub origin: Instant,
    /// When it is over. Connections open then stay open, without another packet, until the client or the
    /// server is dropped.
    pub end: Instant,
    /// The port of every server; the two after it are in use, too.
    pub port: u16,
    /// Congestion control of every socket.
    pub congestion: String,
    /// The interface that traffic must use, if any.
    pub bind_device: Option<String>,
    /// Connections that may be open at once, over all threads; later ones start late.
    pub open_max: usize,
    /// The network namespace is this run's own, and may be set so that each connection has time stamps as
    /// its original did; elsewhere all have the system's setting.
    pub owns_namespace: bool,
    /// The timed threads that the client's threads join, to start connections on time; none where absent.
    pub timed: Option<Arc<Timed>>,
}

impl VectorConfig {
    /// CUBIC, any interface, and as many connections at once as both ends may have open in one process: half
    /// of the files that are allowed, 65,536 at most.
    pub fn new(port: u16, origin: Instant, length: Duration) -> VectorConfig {
        VectorConfig {
            origin,
            end: origin + length,
            port,
            congestion: "cubic".into(),
            bind_device: None,
            open_max: (socket::connections_allowed() / 2).clamp(1, OPEN_MAX),
            owns_namespace: false,
            timed: None,
        }
    }

    fn options(&self) -> Options {
        Options { congestion: self.congestion.clone(), bind_device: self.bind_device.clone() }
    }

    /// Checks the configuration's limits, and raises the limit of open files for both ends in one
    /// process.
    fn admit(&self) -> Result<()> {
        ensure!(self.open_max > 0, "with no connections open at once nothing can be done");
        let last = self.port.checked_add(UNANSWERED_PORT);
        ensure!(
            self.port > 0 && last.is_some(),
            "port {}: choose one from 1 to {}, as the two after it are used as well",
            self.port,
            u16::MAX - UNANSWERED_PORT
        );
        socket::allow_connections(2 * self.open_max)
    }

    fn clock(&self) -> Clock {
        Clock { origin: self.origin }
    }

    fn end_ns(&self) -> u64 {
        self.end.saturating_duration_since(self.origin).as_nanos() as u64
    }
}

/// The time since the plan began.
#[derive(Clone, Copy, Debug)]
struct Clock {
    origin: Instant,
}

impl Clock {
    /// Nanoseconds since the origin; none have passed before it.
    fn now_ns(self) -> u64 {
        Instant::now().saturating_duration_since(self.origin).as_nanos() as u64
    }

    /// How long it is until then; no time where it has passed.
    fn until(self, at_ns: u64) -> Duration {
        (self.origin + Duration::from_nanos(at_ns)).saturating_duration_since(Instant::now())
    }
}

/// The script of a connection that [`check`] has seen.
fn script_of<'a>(planned: &PlannedConnection, scripts: &'a [Script]) -> &'a Script {
    &scripts[planned.script.expect("checked: every connection has a script") as usize]
}

/// Refuses a plan that is out of order, or that has connections without a script.
fn check(plan: &[PlannedConnection], scripts: &[Script]) -> Result<()> {
    ensure!(plan.len() < u32::MAX as usize, "a plan of 2^32 connections or more");
    for (index, planned) in plan.iter().enumerate() {
        let script = planned.script.map(|script| script as usize);
        let has_script = script.is_some_and(|script| script < scripts.len());
        ensure!(
            has_script,
            "connection {index} of the plan has none of its {} scripts",
            scripts.len()
        );
        let is_late = index == 0 || plan[index - 1].start <= planned.start;
        ensure!(
            is_late,
            "connection {index} of the plan starts before connection {}",
            index.wrapping_sub(1)
        );
    }
    Ok(())
}
