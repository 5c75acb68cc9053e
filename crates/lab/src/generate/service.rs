//! The server's event loop: which connections have a place, what each does, and which are given up.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use socket2::Socket;

use super::connection::{Advance, Connection, Stage, Trouble, Window};
use super::live::LiveCounters;
use super::place_table::PlaceTable;
use super::server::{Server, ServerReport, WAITING_MAX};
use super::slab::{Key, Slab};
use super::socket::{self, Sink};
use super::under_way::UnderWay;
use nilometer_linux::epoll::{
    BROKEN, EDGE, EXCLUSIVE, Epoll, Event, PEER_CLOSED, READABLE, WRITABLE,
};
use nilometer_linux::prefix::Prefix;

/// How often all connections are checked; more often where limits are shorter than four of these.
const SWEEP: Duration = Duration::from_secs(1);
/// How soon a held connection is checked again, the first time.
const HOLD: Duration = Duration::from_millis(2);
/// That time doubles so often, while nothing is acknowledged.
const HOLD_DOUBLINGS_MAX: u32 = 7;
/// The longest wait, so that `stop` is seen.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Connections accepted in one turn of the loop.
const ACCEPTS_MAX: usize = 64;
/// The most that one read of a request takes.
const SINK_BYTES: usize = 1 << 18;
/// Keys of listeners; no slab has that many places.
const LISTENER: u64 = u32::MAX as u64;

impl Server {
    /// Serves until `stop` is set, in this thread. Several threads may run the same server: the
    /// kernel hands each connection to one of them.
    ///
    /// # Errors
    /// One line: the system refuses an event queue, or accepted sockets do not have the configured
    /// congestion control. Failures of single connections are counted, and are no error.
    pub fn run(&self, live: &LiveCounters, stop: &AtomicBool) -> Result<ServerReport> {
        let mut service = Service::new(self, live)?;
        service.perform(stop)?;
        Ok(service.report)
    }
}

enum End {
    Completed,
    BadRequest,
    Broken,
    TimedOut,
    TooSlow,
    Displaced,
}

/// A server at work in one thread.
pub(super) struct Service<'a> {
    server: &'a Server,
    epoll: Epoll,
    open: Slab<Connection>,
    /// The holders of the places.
    place_table: PlaceTable,
    /// Accepted, without a place.
    waiting: VecDeque<(Socket, Prefix)>,
    /// All accounts; none where nothing bounds them.
    under_way: Option<UnderWay>,
    /// Connections with no room for more bytes under way, and when each is checked again.
    held: BinaryHeap<Reverse<(Instant, u64)>>,
    live: &'a LiveCounters,
    sink: Sink,
    /// What came of it so far.
    pub report: ServerReport,
    listening: bool,
    /// No sooner than this, after the kernel could not hand over a connection.
    accept_again_at: Instant,
}

impl<'a> Service<'a> {
    /// A loop that serves no connection yet.
    ///
    /// # Errors
    /// The system refuses an event queue.
    pub fn new(server: &'a Server, live: &'a LiveCounters) -> Result<Service<'a>> {
        let places = server.config.open_max;
        let bound = server.config.limits.as_ref().map(|limits| limits.under_way_bytes);
        Ok(Service {
            server,
            epoll: Epoll::new().context("cannot make an event queue")?,
            open: Slab::new(places),
            place_table: PlaceTable::new(),
            waiting: VecDeque::new(),
            under_way: bound.map(|bound| UnderWay::new(bound, places)),
            held: BinaryHeap::new(),
            live,
            sink: Sink::new(SINK_BYTES),
            report: ServerReport::default(),
            listening: false,
            accept_again_at: Instant::now(),
        })
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// The system cannot wait, or accepted sockets are not configured as requested.
    pub fn perform(&mut self, stop: &AtomicBool) -> Result<()> {
        self.listen(true)?;
        let limits = self.server.config.limits.as_ref();
        let shortest = limits.map_or(SWEEP * 4, |of| of.request_time.min(of.rate_window));
        let sweep = SWEEP.min(shortest / 4);
        let mut sweep_at = Instant::now() + sweep;
        while !stop.load(Relaxed) {
            let until = |&Reverse((at, _)): &Reverse<(Instant, u64)>| {
                at.saturating_duration_since(Instant::now()).min(WAIT_MAX)
            };
            let wait = self.held.peek().map_or(WAIT_MAX, until);
            let count = self.epoll.wait(wait).context("cannot wait for events")?;
            for index in 0..count {
                let event = self.epoll.event(index);
                match event.key.checked_sub(LISTENER << 32) {
                    Some(listener) => self.accept(listener as usize)?,
                    None => self.serve(event),
                }
            }
            let now = Instant::now();
            self.resume(now);
            if now >= sweep_at {
                self.sweep(now);
                sweep_at = now + sweep;
            }
            self.seat_waiting();
            if !self.listening && self.takes_in() && now >= self.accept_again_at {
                self.listen(true)?;
            }
        }
        self.report.unfinished = (self.open.len() + self.waiting.len()) as u64;
        (0..self.report.unfinished).for_each(|_| self.live.end(false));
        let report = &self.report;
        let given_up = report.timed_out + report.too_slow + report.displaced + report.refused;
        let ended = report.completed + report.bad_requests + report.broken + given_up;
        assert_eq!(report.accepted, ended + report.unfinished, "every connection ends once");
        Ok(())
    }

    /// Watches the listeners, or leaves new connections to the kernel's queue for a while.
    fn listen(&mut self, listening: bool) -> Result<()> {
        if self.listening == listening {
            return Ok(());
        }
        for (index, listener) in self.server.listeners.iter().enumerate() {
            let key = (LISTENER << 32) + index as u64;
            let fd = listener.as_fd();
            let changed = match listening {
                true => self.epoll.add(fd, READABLE | EXCLUSIVE, key),
                false => self.epoll.remove(fd),
            };
            changed.context("cannot watch a listening socket")?;
        }
        self.listening = listening;
        Ok(())
    }

    /// Whether new connections are accepted now. With limits they are even when all places are taken:
    /// otherwise one client that fills the kernel's accept queue would lock out all others.
    fn takes_in(&self) -> bool {
        self.under_way.is_some() || !self.open.is_full()
    }

    fn accept(&mut self, listener: usize) -> Result<()> {
        for _ in 0..ACCEPTS_MAX {
            if !self.takes_in() {
                return self.listen(false);
            }
            let (socket, caller) = match socket::accept(&self.server.listeners[listener]) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return Ok(()),
                // No descriptor or no memory: waiting connections are retried a little later.
                Err(_) => {
                    self.accept_again_at = Instant::now() + WAIT_MAX;
                    return self.listen(false);
                }
            };
            self.report.accept(&socket, &self.server.config.congestion)?;
            self.live.start(0);
            let holder = Prefix::of_host(caller.ip());
            self.seat_waiting();
            if !self.open.is_full() || self.make_room(holder) {
                self.seat(socket, holder);
            } else if self.waiting.len() < WAITING_MAX {
                self.waiting.push_back((socket, holder));
            } else {
                self.report.refused += 1;
                self.live.end(false);
            }
        }
        Ok(())
    }

    /// Gives free places to the waiting connections, in the order in which they came.
    fn seat_waiting(&mut self) {
        while !self.open.is_full()
            && let Some((socket, holder)) = self.waiting.pop_front()
        {
            self.seat(socket, holder);
        }
    }

    /// Frees a place of the address that holds most, if fairness to `newcomer` allows it: that of the
    /// connection with the lowest rate, and among those the oldest.
    fn make_room(&mut self, newcomer: Prefix) -> bool {
        let now = Instant::now();
        let mut least: Option<(f64, Instant, Key)> = None;
        for &place in self.place_table.in_favour_of(newcomer) {
            let Some(key) = self.open.key_at(place as usize) else { continue };
            let Some(open) = self.open.get_mut(key) else { continue };
            let (rate, since) = (open.rate(now), open.since);
            if least.is_none_or(|(lowest, oldest, _)| (rate, since) < (lowest, oldest)) {
                least = Some((rate, since, key));
            }
        }
        let Some((_, _, key)) = least else { return false };
        self.finish(key, End::Displaced);
        true
    }

    /// Gives a new connection a free place, serves it as far as it goes, and watches it for the rest.
    fn seat(&mut self, socket: Socket, holder: Prefix) {
        let connection = Connection::new(socket, Instant::now());
        let Ok(key) = self.open.insert(connection) else { unreachable!("a free place was seen") };
        if self.under_way.is_some() {
            self.place_table.enter(key.place() as u32, holder);
        }
        if let Some(end) = self.advance(key) {
            return self.finish(key, end);
        }
        let Some(open) = self.open.get_mut(key) else { return };
        let interest = match open.stage {
            Stage::ReadingRequest(_) | Stage::Listening(_) => {
                READABLE | WRITABLE | PEER_CLOSED | EDGE
            }
            Stage::Sending => WRITABLE | PEER_CLOSED | EDGE,
            Stage::Closing => PEER_CLOSED | EDGE,
        };
        if self.epoll.add(open.socket.as_fd(), interest, key.to_bits()).is_err() {
            self.finish(key, End::Broken);
        }
    }

    fn serve(&mut self, event: Event) {
        let key = Key::from_bits(event.key);
        let Some(open) = self.open.get_mut(key) else { return };
        let aborts = self.under_way.is_some();
        let end = match open.stage {
            Stage::Closing => close_of(open, event.ready, aborts),
            _ => self.advance(key).or_else(|| {
                let open = self.open.get_mut(key)?;
                close_of(open, event.ready, aborts)
            }),
        };
        if let Some(end) = end {
            self.finish(key, end);
        }
    }

    /// Reads and sends as far as it goes without waiting, and as far as bytes under way are bounded.
    fn advance(&mut self, key: Key) -> Option<End> {
        let mut requested = false;
        loop {
            let open = self.open.get_mut(key)?;
            let under_way = self.under_way.as_ref();
            let room = under_way.map_or(u64::MAX, |all| all.room(open.under_way_bytes));
            let (sent_before, account_before) = (open.sent_bytes, open.under_way_bytes);
            let outcome = open.advance(&self.server.pattern, &mut self.sink, room);
            let sent = open.sent_bytes - sent_before;
            if sent > 0 {
                self.report.sent_bytes += sent;
                self.live.carry(sent);
                if let Some(all) = &mut self.under_way {
                    all.change(account_before, open.under_way_bytes);
                }
            }
            return match outcome {
                Ok(Advance::Done) => None,
                Ok(Advance::Held) if !requested => {
                    requested = true;
                    self.ask(key);
                    continue;
                }
                Ok(Advance::Held) => {
                    self.hold(key, Instant::now());
                    None
                }
                Err(Trouble::BadRequest) => Some(End::BadRequest),
                Err(Trouble::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(Trouble::Io(_)) => Some(End::Broken),
            };
        }
    }

    /// Queries the kernel for a connection's bytes under way; returns whether they have become fewer.
    fn ask(&mut self, key: Key) -> bool {
        let Some(open) = self.open.get_mut(key) else { return false };
        let before = open.ask();
        if let Some(all) = &mut self.under_way {
            all.change(before, open.under_way_bytes);
        }
        open.under_way_bytes < before
    }

    /// Schedules the next check of a connection without room, soon at first.
    fn hold(&mut self, key: Key, now: Instant) {
        let Some(open) = self.open.get_mut(key) else { return };
        if open.held.is_none() {
            open.held = Some(0);
            self.held.push(Reverse((now + HOLD, key.to_bits())));
        }
    }

    /// Checks held connections that are due: any that has room by now continues. The others still wait
    /// for more room, or for an acknowledgement; while neither comes, they are checked less often.
    fn resume(&mut self, now: Instant) {
        while let Some(&Reverse((at, bits))) = self.held.peek()
            && at <= now
        {
            self.held.pop();
            let key = Key::from_bits(bits);
            let moved = self.ask(key);
            let Some(open) = self.open.get_mut(key) else { continue };
            let Some(looks) = open.held.take() else { continue };
            let room =
                self.under_way.as_ref().map_or(u64::MAX, |all| all.room(open.under_way_bytes));
            if open.may_go_on(room) {
                if let Some(end) = self.advance(key) {
                    self.finish(key, end);
                }
                continue;
            }
            let looks = if moved { 0 } else { (looks + 1).min(HOLD_DOUBLINGS_MAX) };
            open.held = Some(looks);
            self.held.push(Reverse((now + HOLD * (1 << looks), bits)));
        }
    }

    /// Where there are limits, checks every connection: whether it is in time, and fast enough.
    fn sweep(&mut self, now: Instant) {
        let Some(reserve) = self.under_way.as_ref().map(UnderWay::reserve) else { return };
        for place in 0..self.open.places() {
            let Some(key) = self.open.key_at(place) else { continue };
            let Some(open) = self.open.get_mut(key) else { continue };
            if open.under_way_bytes > reserve {
                self.ask(key);
            }
            if let Some(end) = self.verdict(key, now) {
                self.finish(key, end);
            }
        }
    }

    fn verdict(&mut self, key: Key, now: Instant) -> Option<End> {
        let limits = self.server.config.limits.as_ref()?;
        let open = self.open.get_mut(key)?;
        if open.stage == Stage::Closing && open.peer_closed && open.all_arrived() {
            return Some(End::Completed);
        }
        if let Stage::ReadingRequest(_) = open.stage {
            let late = now.saturating_duration_since(open.since) >= limits.request_time;
            return late.then_some(End::TimedOut);
        }
        match open.window {
            Some(window) if now.saturating_duration_since(window.since) < limits.rate_window => {
                return None;
            }
            Some(window) => {
                self.ask(key);
                let open = self.open.get_mut(key)?;
                if open.carried_bytes() - window.carried_bytes < limits.window_bytes() {
                    return Some(End::TooSlow);
                }
            }
            None => {}
        }
        let open = self.open.get_mut(key)?;
        open.window = Some(Window { since: now, carried_bytes: open.carried_bytes() });
        None
    }

    fn finish(&mut self, key: Key, end: End) {
        let Some(gone) = self.open.remove(key) else { return };
        if let Some(all) = &mut self.under_way {
            all.change(gone.under_way_bytes, 0);
            self.place_table.leave(key.place() as u32);
        }
        let report = &mut self.report;
        match end {
            End::Completed => report.completed += 1,
            End::BadRequest => report.bad_requests += 1,
            End::Broken => report.broken += 1,
            End::TimedOut => report.timed_out += 1,
            End::TooSlow => report.too_slow += 1,
            End::Displaced => report.displaced += 1,
        }
        self.live.end(matches!(end, End::Completed));
    }
}

/// How a connection with nothing left to read or write has ended, by epoll's `ready`; `None` while it is
/// open. A client may close before it has acknowledged everything. Where closing `aborts`, the connection
/// stays until it has; otherwise the kernel sees to the rest.
fn close_of(open: &mut Connection, ready: u32, aborts: bool) -> Option<End> {
    let error = ready & BROKEN != 0 && open.socket.take_error().ok().flatten().is_some();
    if error {
        return Some(End::Broken);
    }
    open.peer_closed |= ready & PEER_CLOSED != 0;
    if open.stage != Stage::Closing || !open.peer_closed {
        return None;
    }
    (!aborts || open.all_arrived()).then_some(End::Completed)
}
