//! The event loop of either end of scripted connections: what is due by the clock, then what sockets report.

use std::io;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use nilometer_conversation::Side;
use socket2::Socket;

use super::Clock;
use super::scripted_end::{ScriptedEnd, Then};
use super::timers::Timers;
use crate::generate::client::Outcome;
use crate::generate::live::LiveCounters;
use crate::generate::pattern::pattern;
use crate::generate::slab::{Key, Slab};
use crate::generate::socket::Sink;
use nilometer_linux::epoll::{
    EDGE, EXCLUSIVE, Epoll, PEER_CLOSED, PromptTimers, READABLE, WRITABLE,
};

/// The longest wait, so that a signal to stop is seen, ns.
const WAIT_MAX_NS: u64 = 50_000_000;
/// Timers in one turn, so that a late loop still serves its transfers.
const TIMERS_MAX: usize = 256;
/// Keys of listeners; no slab has that many places.
const LISTENER: u64 = u32::MAX as u64;
/// The most that one read takes.
const SINK_BYTES: usize = 1 << 20;

/// A connection that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// Its number among those of the loop's owner.
    pub owner: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// The client's port, where it was connected.
    pub local_port: u16,
    /// Payload bytes that this end received.
    pub received_bytes: u64,
    /// Payload bytes that this end handed to TCP.
    pub sent_bytes: u64,
}

/// Open connections of one side and the loop that serves them.
pub(super) struct Stage<'a> {
    /// Those that ended and that the owner has not taken yet.
    pub ended: Vec<Ended>,
    /// Listeners at which a connection waits, by the last turn.
    pub callers_at: Vec<usize>,
    /// By how much a step began later than it was due, at most; ns.
    pub late_ns: u64,
    side: Side,
    clock: Clock,
    live: &'a LiveCounters,
    open: Slab<ScriptedEnd<'a>>,
    timers: Timers,
    epoll: Epoll,
    sink: Sink,
    pattern: Box<[u8]>,
    _prompt: PromptTimers,
}

impl<'a> Stage<'a> {
    /// An empty stage for the thread that makes it.
    ///
    /// # Errors
    /// The system refuses an event queue.
    pub fn new(
        side: Side,
        clock: Clock,
        open_max: usize,
        live: &'a LiveCounters,
    ) -> Result<Stage<'a>> {
        Ok(Stage {
            ended: Vec::new(),
            callers_at: Vec::new(),
            late_ns: 0,
            side,
            clock,
            live,
            open: Slab::new(open_max),
            timers: Timers::default(),
            epoll: Epoll::new().context("cannot make an event queue")?,
            sink: Sink::new(SINK_BYTES),
            pattern: pattern(),
            _prompt: PromptTimers::new(),
        })
    }

    /// True when no connection is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// True when no further connection can be opened.
    pub fn is_full(&self) -> bool {
        self.open.is_full()
    }

    /// Starts or stops watching a listener under a number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&self, listener: &Socket, number: usize, listening: bool) -> Result<()> {
        let changed = match listening {
            true => {
                let key = (LISTENER << 32) + number as u64;
                self.epoll.add(listener.as_fd(), READABLE | EXCLUSIVE, key)
            }
            false => self.epoll.remove(listener.as_fd()),
        };
        changed.context("cannot watch a listening socket")
    }

    /// Gives a connection a place, which must be free, and does its first steps at once.
    ///
    /// # Errors
    /// The kernel's; the connection is gone then.
    pub fn seat(&mut self, end: ScriptedEnd<'a>) -> io::Result<()> {
        let Ok(key) = self.open.insert(end) else { unreachable!("a free place was seen") };
        let end = self.open.get_mut(key).expect("it was just inserted");
        let interest = READABLE | WRITABLE | PEER_CLOSED | EDGE;
        if let Err(error) = self.epoll.add(end.socket.as_fd(), interest, key.to_bits()) {
            self.open.remove(key);
            return Err(error);
        }
        self.serve(key, 0);
        Ok(())
    }

    /// Serves what is due, then waits until then at the latest, and serves what has happened.
    ///
    /// # Errors
    /// The system cannot wait.
    pub fn turn(&mut self, until_ns: u64) -> Result<()> {
        self.callers_at.clear();
        for _ in 0..TIMERS_MAX {
            let Some(key) = self.timers.take_due(self.clock.now_ns()) else { break };
            if let Some(end) = self.open.get_mut(key) {
                end.wake_ns = None;
            }
            self.serve(key, 0);
        }
        // Before the origin the clock stands still, so the wait is computed from the origin itself.
        let wake_ns = self.timers.first().unwrap_or(u64::MAX).min(until_ns);
        let wait = self.clock.until(wake_ns.min(self.clock.now_ns() + WAIT_MAX_NS));
        let wait = wait.min(std::time::Duration::from_nanos(WAIT_MAX_NS));
        let count = self.epoll.wait_precisely(wait).context("cannot wait for events")?;
        for index in 0..count {
            let event = self.epoll.event(index);
            match event.key.checked_sub(LISTENER << 32) {
                Some(listener) => self.callers_at.push(listener as usize),
                None => self.serve(Key::from_bits(event.key), event.ready),
            }
        }
        Ok(())
    }

    /// Ends all open connections; returns the sockets, which send nothing more as long as they are
    /// kept.
    pub fn close(&mut self) -> Vec<Socket> {
        let now_ns = self.clock.now_ns();
        let mut kept = Vec::with_capacity(self.open.len());
        for place in 0..self.open.places() {
            let Some(key) = self.open.key_at(place) else { continue };
            let Some(end) = self.open.get_mut(key) else { continue };
            let outcome = end.outcome_at_end(now_ns);
            kept.extend(self.finish(key, outcome).map(|end| end.socket));
        }
        kept
    }

    fn serve(&mut self, key: Key, ready: u32) {
        let Some(end) = self.open.get_mut(key) else { return };
        let was_connected = end.is_connected();
        let before = (end.received_bytes, end.sent_bytes);
        let then = end.go_on(ready, &mut self.sink, &self.pattern, self.clock);
        if end.is_connected() && !was_connected {
            self.live.establish();
        }
        match self.side {
            Side::Client => self.live.carry(end.received_bytes - before.0),
            Side::Server => self.live.carry(end.sent_bytes - before.1),
        }
        let wake_ns = match then {
            Then::Listen => None,
            Then::Wait(until_ns) => Some(until_ns),
            Then::Ended(outcome) => {
                self.finish(key, outcome);
                return;
            }
        };
        self.timers.change(key, end.wake_ns, wake_ns);
        end.wake_ns = wake_ns;
    }

    fn finish(&mut self, key: Key, outcome: Outcome) -> Option<ScriptedEnd<'a>> {
        let end = self.open.remove(key)?;
        self.timers.change(key, end.wake_ns, None);
        self.late_ns = self.late_ns.max(end.late_ns());
        self.live.end(outcome == Outcome::Completed);
        self.ended.push(Ended {
            owner: end.owner,
            outcome,
            local_port: end.local_port,
            received_bytes: end.received_bytes,
            sent_bytes: end.sent_bytes,
        });
        Some(end)
    }
}
