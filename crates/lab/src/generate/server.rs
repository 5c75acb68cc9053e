//! The server: sends each client the bytes it asks for, then closes first.
//!
//! One event loop holds every connection, and nothing in it can block: a slow reader costs its
//! place and no one's time (Harpoon's server threads each blocked in one file's `send`). A new
//! connection is served as far as it goes at once: if its request is there, it is read and answered
//! and "no more" is said in one go. Only then is it watched, for what is missing: the request, room
//! in a buffer that filled, or the client's end of file.
//!
//! That last wait could be left to the kernel (closing at once costs some 8 % less for a file of
//! 10 KB), but then nobody would know which clients had all of it: `completed` counts those.
//!
//! The server's FIN goes first. So TIME_WAIT stays here, keyed by the server's port, and the
//! client's ports are free at once: a client with few addresses would otherwise run out of its
//! 28,000 ports a minute. A new SYN on a 4-tuple in TIME_WAIT is taken by Linux, since its
//! timestamp is newer (RFC 6191), so a port that the client uses again soon is safe. The last
//! segment of a file carries the FIN itself, as web servers have it, instead of a packet without
//! payload after it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use socket2::Socket;

use super::epoll::{BROKEN, EDGE, EXCLUSIVE, Epoll, Event, PEER_CLOSED, READABLE, WRITABLE};
use super::live::Live;
use super::pattern::{PATTERN_BYTES, pattern};
use super::protocol::{REQUEST_BYTES, Request};
use super::slab::{Key, Slab};
use super::socket::{self, Options, Sink};

/// How often connections that stand still are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// The longest wait, so that `stop` is seen.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Connections accepted in one turn of the loop.
const ACCEPTS_MAX: usize = 64;
/// The most that one read of a request takes.
const SINK_BYTES: usize = 1 << 18;
/// Keys of listeners; no slab has so many places.
const LISTENER: u64 = u32::MAX as u64;

/// How a server serves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses to listen at; `0.0.0.0` and `[::]` stand for all of a family.
    pub listen: Vec<SocketAddr>,
    /// Congestion control of every socket.
    pub congestion: String,
    /// How long a connection may stand still before it is closed.
    pub idle: Duration,
    /// Connections that may be open at once in one loop; later ones wait in the kernel.
    pub open_max: usize,
    /// The interface that traffic must use, if any.
    pub bind_device: Option<String>,
}

impl ServerConfig {
    /// CUBIC, 30 s of patience, 16,384 connections at once, any interface.
    pub fn new(listen: Vec<SocketAddr>) -> ServerConfig {
        ServerConfig {
            listen,
            congestion: "cubic".into(),
            idle: Duration::from_secs(30),
            open_max: 16_384,
            bind_device: None,
        }
    }
}

/// What a server did: `accepted = completed + bad_requests + broken + timed_out + unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// Connections taken from the kernel.
    pub accepted: u64,
    /// Files sent whole whose clients closed after them.
    pub completed: u64,
    /// Connections closed because they did not begin with a request.
    pub bad_requests: u64,
    /// Connections that the client, or a box between, broke.
    pub broken: u64,
    /// Connections closed because they stood still for too long.
    pub timed_out: u64,
    /// Connections open when the run ended.
    pub unfinished: u64,
    /// Payload bytes handed to TCP.
    pub sent_bytes: u64,
    /// The congestion control that the first accepted socket read back; none without one.
    pub congestion: Option<String>,
}

/// Listens, and serves when it is run.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    listeners: Vec<Socket>,
    pattern: Box<[u8]>,
}

impl Server {
    /// Listens in this thread's network namespace; raises the limit of open files as it needs.
    ///
    /// # Errors
    /// One line: a port is in use, an address, interface or congestion control does not exist, or
    /// the system allows too few open files.
    pub fn bind(config: ServerConfig) -> Result<Server> {
        ensure!(config.open_max > 0, "a server with no connections open at once can do nothing");
        ensure!(!config.listen.is_empty(), "a server needs an address to listen at");
        socket::allow_connections(config.open_max)?;
        let options = Options {
            congestion: config.congestion.clone(),
            bind_device: config.bind_device.clone(),
        };
        let listen = |&address: &SocketAddr| socket::listen(address, &options);
        let listeners = config.listen.iter().map(listen).collect::<Result<_>>()?;
        Ok(Server { config, listeners, pattern: pattern() })
    }

    /// The addresses listened at, with the ports that the kernel chose for zeros.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addresses(&self) -> Result<Vec<SocketAddr>> {
        let read = |listener: &Socket| {
            let address = listener.local_addr().context("cannot read a listener's address")?;
            address.as_socket().context("a listener has an address that is not IP")
        };
        self.listeners.iter().map(read).collect()
    }

    /// Serves until `stop` is set, in this thread. Several threads may run the same server: the
    /// kernel hands each connection to one of them.
    ///
    /// # Errors
    /// One line: the system refuses an event queue, or accepted sockets do not have the congestion
    /// control that was asked for. What befalls single connections is counted.
    pub fn run(&self, live: &Live, stop: &AtomicBool) -> Result<ServerReport> {
        let epoll = Epoll::new().context("cannot make an event queue")?;
        let open = Slab::new(self.config.open_max);
        let mut service = Service {
            server: self,
            epoll,
            open,
            live,
            sink: Sink::new(SINK_BYTES),
            report: ServerReport::default(),
            listening: false,
            accept_again_at: Instant::now(),
        };
        service.listen(true)?;
        service.perform(stop)?;
        Ok(service.report)
    }
}

enum End {
    Completed,
    BadRequest,
    Broken,
    TimedOut,
}

#[derive(Clone, Copy)]
enum Stage {
    /// So many bytes of what a request begins with have arrived.
    Asked(usize),
    /// So many bytes of the request are still due.
    Listening(u64),
    /// The file goes out.
    Sending,
    /// All is sent; the client's end of file is due.
    Closing,
}

struct Open {
    socket: Socket,
    stage: Stage,
    request: [u8; REQUEST_BYTES],
    size_bytes: u64,
    sent_bytes: u64,
    moved_at: Instant,
}

struct Service<'a> {
    server: &'a Server,
    epoll: Epoll,
    open: Slab<Open>,
    live: &'a Live,
    sink: Sink,
    report: ServerReport,
    listening: bool,
    /// No sooner than this, after the kernel could not hand over a connection.
    accept_again_at: Instant,
}

impl Service<'_> {
    fn perform(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut sweep_at = Instant::now() + SWEEP;
        while !stop.load(Relaxed) {
            let count = self.epoll.wait(WAIT_MAX).context("cannot wait for events")?;
            for index in 0..count {
                let event = self.epoll.event(index);
                match event.key.checked_sub(LISTENER << 32) {
                    Some(listener) => self.accept(listener as usize)?,
                    None => self.serve(event),
                }
            }
            let now = Instant::now();
            if now >= sweep_at {
                self.sweep(now);
                sweep_at = now + SWEEP;
            }
            if !self.listening && !self.open.is_full() && now >= self.accept_again_at {
                self.listen(true)?;
            }
        }
        self.report.unfinished = self.open.len() as u64;
        (0..self.report.unfinished).for_each(|_| self.live.end(false));
        let report = &self.report;
        let ended = report.completed + report.bad_requests + report.broken + report.timed_out;
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

    fn accept(&mut self, listener: usize) -> Result<()> {
        for _ in 0..ACCEPTS_MAX {
            if self.open.is_full() {
                return self.listen(false);
            }
            let socket = match socket::accept(&self.server.listeners[listener]) {
                Ok(Some(socket)) => socket,
                Ok(None) => return Ok(()),
                // No descriptor or no memory: what waits is tried again a little later.
                Err(_) => {
                    self.accept_again_at = Instant::now() + WAIT_MAX;
                    return self.listen(false);
                }
            };
            if self.report.congestion.is_none() {
                let (has, asked) =
                    (socket::congestion_of(&socket)?, &self.server.config.congestion);
                ensure!(has == *asked, "accepted sockets use `{has}`, not `{asked}`");
                self.report.congestion = Some(has);
            }
            self.report.accepted += 1;
            self.live.start(0);
            let open = Open {
                socket,
                stage: Stage::Asked(0),
                request: [0; REQUEST_BYTES],
                size_bytes: 0,
                sent_bytes: 0,
                moved_at: Instant::now(),
            };
            let Ok(key) = self.open.insert(open) else { unreachable!("a free place was seen") };
            self.welcome(key);
        }
        Ok(())
    }

    /// Serves a new connection as far as it goes, and watches it for the rest.
    fn welcome(&mut self, key: Key) {
        if let Some(end) = self.advance(key) {
            return self.finish(key, end);
        }
        let Some(open) = self.open.get_mut(key) else { return };
        let interest = match open.stage {
            Stage::Asked(_) | Stage::Listening(_) => READABLE | WRITABLE | PEER_CLOSED | EDGE,
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
        let end = match open.stage {
            Stage::Closing => close_of(open, event.ready),
            _ => self.advance(key).or_else(|| {
                let open = self.open.get_mut(key)?;
                close_of(open, event.ready)
            }),
        };
        if let Some(end) = end {
            self.finish(key, end);
        }
    }

    /// Reads and sends as far as it goes without waiting.
    fn advance(&mut self, key: Key) -> Option<End> {
        let open = self.open.get_mut(key)?;
        let sent_before = open.sent_bytes;
        let outcome = open.advance(&self.server.pattern, &mut self.sink);
        let sent = open.sent_bytes - sent_before;
        if sent > 0 {
            self.report.sent_bytes += sent;
            self.live.carry(sent);
        }
        match outcome {
            Ok(()) => None,
            Err(Trouble::BadRequest) => Some(End::BadRequest),
            Err(Trouble::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(Trouble::Io(_)) => Some(End::Broken),
        }
    }

    fn sweep(&mut self, now: Instant) {
        for place in 0..self.open.places() {
            let Some(key) = self.open.key_at(place) else { continue };
            let Some(open) = self.open.get_mut(key) else { continue };
            if now.saturating_duration_since(open.moved_at) >= self.server.config.idle {
                self.finish(key, End::TimedOut);
            }
        }
    }

    fn finish(&mut self, key: Key, end: End) {
        if self.open.remove(key).is_none() {
            return;
        }
        let report = &mut self.report;
        match end {
            End::Completed => report.completed += 1,
            End::BadRequest => report.bad_requests += 1,
            End::Broken => report.broken += 1,
            End::TimedOut => report.timed_out += 1,
        }
        self.live.end(matches!(end, End::Completed));
    }
}

/// What `ready` says of a connection whose own work is done for now: over, or not yet.
fn close_of(open: &Open, ready: u32) -> Option<End> {
    let error = ready & BROKEN != 0 && open.socket.take_error().ok().flatten().is_some();
    match open.stage {
        _ if error => Some(End::Broken),
        Stage::Closing if ready & PEER_CLOSED != 0 => Some(End::Completed),
        Stage::Closing | Stage::Sending | Stage::Asked(_) | Stage::Listening(_) => None,
    }
}

enum Trouble {
    BadRequest,
    Io(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Io(error)
    }
}

impl Open {
    fn advance(&mut self, pattern: &[u8], sink: &mut Sink) -> Result<(), Trouble> {
        while let Stage::Asked(count) = self.stage {
            let arrived = socket::receive(&self.socket, &mut self.request[count..])?;
            self.stage = match count + arrived {
                _ if arrived == 0 => return Err(Trouble::BadRequest),
                REQUEST_BYTES => {
                    let asked = Request::decode(&self.request);
                    let asked = asked.map_err(|_| Trouble::BadRequest)?;
                    self.size_bytes = asked.size_bytes;
                    Stage::Listening(asked.bytes - REQUEST_BYTES as u64)
                }
                count => Stage::Asked(count),
            };
        }
        while let Stage::Listening(due) = self.stage {
            if due == 0 {
                self.stage = Stage::Sending;
                break;
            }
            let arrived = sink.discard(&self.socket)? as u64;
            if arrived == 0 || arrived > due {
                return Err(Trouble::BadRequest);
            }
            self.stage = Stage::Listening(due - arrived);
            self.moved_at = Instant::now();
        }
        while let Stage::Sending = self.stage {
            let left = self.size_bytes - self.sent_bytes;
            if left == 0 {
                self.socket.shutdown(std::net::Shutdown::Write)?;
                self.stage = Stage::Closing;
                break;
            }
            let from = (self.sent_bytes % PATTERN_BYTES as u64) as usize;
            let to = pattern.len().min(from + left.min(PATTERN_BYTES as u64) as usize);
            let sent = socket::send(&self.socket, &pattern[from..to], true)?;
            self.sent_bytes += sent as u64;
            self.moved_at = Instant::now();
        }
        Ok(())
    }
}
