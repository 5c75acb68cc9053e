//! The client's event loop: one thread's share of the plan, started on time, whatever transfers do.
//!
//! The loop has two duties. *Starts* are due by the clock alone (paper, section 4.2:
//! inter-connection times are followed independently of the transport), so they come first in each
//! turn, and the wait between turns ends at the next one. *Transfers* are served as the kernel
//! reports them.
//!
//! A file that fits the first receive window needs no attention while it arrives: such a connection
//! is watched only for being established and for the server's end of file, and is read once, at its
//! end. That saves a wake-up for every few segments. Were the window narrower than believed, the
//! visit once a [`SWEEP`] would still read what has arrived and open it again.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nilometer_traffic::plan::PlannedConnection;
use socket2::Socket;

use super::execution::{ClientConfig, Execution, Outcome};
use super::live::LiveCounters;
use super::pattern::{PATTERN_BYTES, pattern};
use super::protocol::Request;
use super::slab::{Key, Slab};
use super::socket::{self, Dialer, Options, Sink};
use nilometer_linux::epoll::{
    BROKEN, EDGE, Epoll, Event, PEER_CLOSED, PromptTimers, READABLE, WRITABLE,
};

/// How often idle connections are checked.
const SWEEP: Duration = Duration::from_secs(1);
/// The longest wait, so that `stop` is seen.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Starts in one turn, so that a late loop still serves its transfers.
const STARTS_MAX: usize = 64;
/// Files up to this size arrive without being read in between: half of the first window of a
/// socket with the kernel's default buffer.
const FIRST_WINDOW_BYTES: u64 = 32_768;
/// The most that one read takes.
const SINK_BYTES: usize = 1 << 20;

/// The work of one event loop, and its limits.
pub(super) struct Share<'a> {
    /// The whole plan.
    pub plan: &'a [PlannedConnection],
    /// Which connections of it, in order of their starts.
    pub indices: Vec<u32>,
    /// Connections that may be open at once.
    pub open_max: usize,
    /// When the run is over, whatever is open.
    pub deadline: Instant,
}

struct Open {
    socket: Socket,
    /// Where its execution is.
    position: u32,
    established: bool,
    /// Bytes of the request that have been sent.
    request_sent: u64,
    /// When anything last happened.
    moved_at: Instant,
}

/// One event loop and its share of the plan.
pub(super) struct Player<'a> {
    config: &'a ClientConfig,
    plan: &'a [PlannedConnection],
    deadline: Instant,
    live: &'a LiveCounters,
    executions: Vec<Execution>,
    /// The first execution that has not been started.
    next: usize,
    /// The last that had to wait for a free place.
    held: Option<usize>,
    open: Slab<Open>,
    dialer: Dialer,
    epoll: Epoll,
    sink: Sink,
    pattern: Box<[u8]>,
}

impl<'a> Player<'a> {
    /// A loop that has not begun.
    pub(super) fn new(
        config: &'a ClientConfig,
        options: Options,
        share: Share<'a>,
        live: &'a LiveCounters,
    ) -> Result<Player<'a>> {
        Ok(Player {
            config,
            plan: share.plan,
            deadline: share.deadline,
            live,
            executions: share.indices.into_iter().map(Execution::not_started).collect(),
            next: 0,
            held: None,
            open: Slab::new(share.open_max),
            dialer: Dialer::new(options),
            epoll: Epoll::new().context("cannot make an event queue")?,
            sink: Sink::new(SINK_BYTES),
            pattern: pattern(),
        })
    }

    /// Plays until everything has ended, the time is over or `stop` is set.
    pub(super) fn perform(mut self, stop: &AtomicBool) -> Result<Vec<Execution>> {
        let _prompt = PromptTimers::new();
        let mut sweep_at = Instant::now() + SWEEP;
        loop {
            let now = Instant::now();
            let over = self.next == self.executions.len() && self.open.is_empty();
            if over || now >= self.deadline || stop.load(Relaxed) {
                break;
            }
            let next_start = self.start_due(now);
            if now >= sweep_at {
                self.sweep(now);
                sweep_at = now + SWEEP;
            }
            let wake_at = next_start.unwrap_or(self.deadline).min(self.deadline);
            let wait = wake_at.saturating_duration_since(Instant::now()).min(WAIT_MAX);
            let count = self.epoll.wait(wait).context("cannot wait for events")?;
            for index in 0..count {
                let event = self.epoll.event(index);
                self.serve(event);
            }
        }
        Ok(self.close())
    }

    /// Starts what is due, and returns when the next start is; none when nothing is left to start
    /// or nothing can be started before a connection ends.
    fn start_due(&mut self, now: Instant) -> Option<Instant> {
        for _ in 0..STARTS_MAX {
            let index = self.executions.get(self.next)?.index;
            let start = self.plan[index as usize].start.as_nanos();
            let due = self.config.origin + Duration::from_nanos(start);
            if due > now {
                return Some(due);
            }
            if self.open.is_full() {
                if self.held.replace(self.next) != Some(self.next) {
                    self.live.hold();
                }
                return None;
            }
            self.start(self.next as u32);
            self.next += 1;
        }
        Some(now)
    }

    fn start(&mut self, position: u32) {
        let planned = &self.plan[self.executions[position as usize].index as usize];
        let source = SocketAddr::new(planned.source, planned.source_port);
        let bound = self.dialer.bind(source, planned.segment_bytes, true);
        let moved_at = Instant::now();
        let started_ns = self.since_origin(moved_at);
        self.live.start(started_ns.saturating_sub(planned.start.as_nanos()));
        self.executions[position as usize].started_ns = started_ns;
        let destination = SocketAddr::new(planned.destination, self.config.port);
        let begun = bound
            .and_then(|socket| socket::connect(&socket, destination).map(|()| socket))
            .and_then(|socket| {
                let interest = match planned.size_bytes {
                    0..=FIRST_WINDOW_BYTES => WRITABLE | PEER_CLOSED | EDGE,
                    _ => WRITABLE | READABLE | PEER_CLOSED | EDGE,
                };
                let open = Open { socket, position, established: false, request_sent: 0, moved_at };
                let Ok(key) = self.open.insert(open) else { unreachable!("a free place was seen") };
                let open = self.open.get_mut(key).expect("it was just inserted");
                self.epoll.add(open.socket.as_fd(), interest, key.to_bits()).inspect_err(|_| {
                    self.open.remove(key);
                })
            });
        if let Err(error) = begun {
            self.end(position, outcome_of(&error));
        }
    }

    fn serve(&mut self, event: Event) {
        let key = Key::from_bits(event.key);
        let Some(open) = self.open.get_mut(key) else { return };
        let execution = &mut self.executions[open.position as usize];
        let planned = &self.plan[execution.index as usize];
        let request = Request::new(planned.request_bytes, planned.size_bytes);
        if open.request_sent < request.bytes && event.ready & (WRITABLE | BROKEN) != 0 {
            let was_established = open.established;
            let request_sent = ask(open, execution, request, &self.pattern);
            if open.established && !was_established {
                self.live.establish();
            }
            if let Err(error) = request_sent
                && error.kind() != io::ErrorKind::WouldBlock
            {
                return self.finish(key, outcome_of(&error));
            }
        }
        if event.ready & (READABLE | PEER_CLOSED | BROKEN) != 0 {
            self.receive(key, event.ready & PEER_CLOSED != 0);
        }
    }

    /// Takes what has arrived; `peer_closed`: the end of file is behind it.
    fn receive(&mut self, key: Key, peer_closed: bool) {
        let Some(open) = self.open.get_mut(key) else { return };
        let execution = &mut self.executions[open.position as usize];
        let size_bytes = self.plan[execution.index as usize].size_bytes;
        let outcome = loop {
            match self.sink.discard(&open.socket) {
                Ok(0) if execution.received_bytes == size_bytes => break Outcome::Completed,
                Ok(0) => break Outcome::SizeMismatch,
                Ok(bytes) => {
                    self.live.carry(bytes as u64);
                    execution.received_bytes += bytes as u64;
                    if execution.received_bytes > size_bytes {
                        break Outcome::SizeMismatch;
                    }
                    // A short read took all there was; the next arrival is another event.
                    let drained = bytes < self.sink.capacity();
                    if drained && !peer_closed {
                        open.moved_at = Instant::now();
                        return;
                    }
                    if drained && execution.received_bytes == size_bytes {
                        break Outcome::Completed;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break outcome_of(&error),
            }
        };
        self.finish(key, outcome);
    }

    /// Checks idle connections: reads what the quiet ones hold, ends the dead ones.
    fn sweep(&mut self, now: Instant) {
        for place in 0..self.open.places() {
            let Some(key) = self.open.key_at(place) else { continue };
            let Some(open) = self.open.get_mut(key) else { continue };
            let still = now.saturating_duration_since(open.moved_at);
            if still >= self.config.idle {
                self.finish(key, Outcome::TimedOut);
            } else if still >= SWEEP && open.established {
                self.receive(key, false);
            }
        }
    }

    fn finish(&mut self, key: Key, outcome: Outcome) {
        if let Some(open) = self.open.remove(key) {
            drop(open.socket);
            self.end(open.position, outcome);
        }
    }

    fn end(&mut self, position: u32, outcome: Outcome) {
        let now_ns = self.since_origin(Instant::now());
        let execution = &mut self.executions[position as usize];
        execution.outcome = outcome;
        execution.finished_ns = Some(now_ns);
        self.live.end(outcome == Outcome::Completed);
    }

    /// Closes open connections and returns the account.
    fn close(mut self) -> Vec<Execution> {
        for place in 0..self.open.places() {
            let Some(key) = self.open.key_at(place) else { continue };
            if let Some(open) = self.open.remove(key) {
                self.executions[open.position as usize].outcome = Outcome::Unfinished;
                self.live.end(false);
            }
        }
        self.executions
    }

    fn since_origin(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.config.origin).as_nanos() as u64
    }
}

/// Sends as much of the request as fits on an established connection, or returns why it is not
/// established.
fn ask(
    open: &mut Open,
    execution: &mut Execution,
    request: Request,
    pattern: &[u8],
) -> io::Result<()> {
    let beginning = request.encode();
    while open.request_sent < request.bytes {
        let left = request.bytes - open.request_sent;
        let bytes = match beginning.get(open.request_sent as usize..) {
            Some(rest) if !rest.is_empty() => rest,
            _ => {
                let from = (open.request_sent % PATTERN_BYTES as u64) as usize;
                &pattern[from..pattern.len().min(from + left.min(PATTERN_BYTES as u64) as usize)]
            }
        };
        let is_last = bytes.len() as u64 == left;
        open.request_sent += socket::send(&open.socket, bytes, !is_last)? as u64;
        if !open.established {
            open.established = true;
            execution.local_port = socket::local_port(&open.socket);
        }
        open.moved_at = Instant::now();
    }
    Ok(())
}

pub(super) fn outcome_of(error: &io::Error) -> Outcome {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => Outcome::Refused,
        Some(libc::ECONNRESET | libc::EPIPE) => Outcome::Reset,
        Some(libc::ETIMEDOUT) => Outcome::TimedOut,
        other => Outcome::Failed(other.unwrap_or(libc::EIO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names_where_a_reader_can_act_on_them() {
        let named = |errno| outcome_of(&io::Error::from_raw_os_error(errno));
        assert_eq!(named(libc::ECONNREFUSED), Outcome::Refused);
        assert_eq!(named(libc::EPIPE), Outcome::Reset);
        assert_eq!(named(libc::EADDRNOTAVAIL), Outcome::Failed(libc::EADDRNOTAVAIL));
    }
}
