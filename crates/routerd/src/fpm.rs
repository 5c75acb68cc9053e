//! The listener that zebra's forwarding plane manager connects to.
//!
//! Zebra connects to us (`fpm address 127.0.0.1 port 2620`), tries again every few seconds, and begins
//! each connection with everything it knows; but it never says that this was everything. So a connection
//! begins a replay, and the replay is over when the connection has lasted `hold` and nothing has come
//! for `quiet`, or when it has lasted `longest`, because a full table of the Internet is never quiet.
//! Until then, and while there is no connection at all, earlier routes are used: a daemon may restart
//! while the router keeps forwarding, as with graceful restart (RFC 4724), and `hold` is like its
//! timer until stale routes are swept. It must exceed what the routing protocols need to find their
//! neighbours and routes again.
//!
//! The owner of the routing table takes the updates from a channel of bounded length. When it is
//! behind, the listener stops reading and TCP's flow control stops zebra.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nilometer_router::fpm::{FpmCounters, FpmFault, Stream};
use nilometer_router::{RouteBatch, RouteUpdate, Source};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::route_feed::{Closed, RouteFeed, STOP_POLL_INTERVAL, in_namespace};
use super::worker::Worker;
use nilometer_linux::namespace::Namespace;

/// Where zebra finds us, and when a replay is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FpmConfig {
    /// Where to listen, in the router's namespace. Port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// A connection lasts so long before routes that it did not repeat are swept.
    pub hold: Duration,
    /// And nothing came for so long.
    pub quiet: Duration,
    /// They are swept after this time even without a quiet period.
    pub longest: Duration,
}

impl Default for FpmConfig {
    /// FRR's own port on loopback; a minute, in which BGP sessions come up again, and five seconds;
    /// five minutes.
    fn default() -> FpmConfig {
        FpmConfig {
            address: (Ipv4Addr::LOCALHOST, 2620).into(),
            hold: Duration::from_secs(60),
            quiet: Duration::from_secs(5),
            longest: Duration::from_secs(300),
        }
    }
}

/// How the listener is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FpmStatus {
    /// Whether zebra is connected.
    pub is_connected: bool,
    /// Connections so far.
    pub connections: u64,
    /// Completed replays.
    pub replays: u64,
    /// Why the last connection that we closed was closed.
    pub fault: Option<FpmFault>,
    /// Counters of what was read, over all connections.
    pub counters: FpmCounters,
}

/// The listener and its thread; dropped, it stops.
#[derive(Debug)]
pub struct FpmListener {
    address: SocketAddr,
    status: Arc<Mutex<FpmStatus>>,
    _worker: Worker,
}

impl FpmListener {
    /// Listens in a namespace, or in the caller's; routes go to `news` as of [`Source::Fpm`].
    ///
    /// # Errors
    /// When the address cannot be listened at.
    pub fn start(
        namespace: Option<&Namespace>,
        config: FpmConfig,
        news: SyncSender<RouteBatch>,
    ) -> Result<FpmListener> {
        let socket = in_namespace(namespace, || listen(config.address))?;
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        let address = address.context("the FPM listener has no address")?;
        let status = Arc::new(Mutex::new(FpmStatus::default()));
        let feed = RouteFeed::new(news);
        let work = Work { config, feed: feed.clone(), status: Arc::clone(&status) };
        let worker = Worker::start("fpm", feed.stop, move || work.run(&socket))?;
        Ok(FpmListener { address, status, _worker: worker })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How it is.
    pub fn status(&self) -> FpmStatus {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listening socket whose `accept` returns now and then with nothing.
fn listen(address: SocketAddr) -> Result<Socket> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(1)?;
        socket.set_read_timeout(Some(STOP_POLL_INTERVAL))?;
        Ok::<_, std::io::Error>(socket)
    };
    open().with_context(|| format!("cannot listen for FPM at {address}; is another router there?"))
}

/// What the thread has.
struct Work {
    config: FpmConfig,
    feed: RouteFeed,
    status: Arc<Mutex<FpmStatus>>,
}

impl Work {
    fn run(&self, listener: &Socket) -> Result<(), Closed> {
        let mut stream = Stream::new();
        while !self.feed.should_stop() {
            // Errors of accept are the connection's (it was given up again) or of a moment.
            let Ok((connection, _)) = listener.accept() else { continue };
            let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(10));
            let keepalive = keepalive.with_interval(Duration::from_secs(5)).with_retries(3);
            // Without keepalives only a silently vanished peer would be noticed later.
            let _ = connection.set_tcp_keepalive(&keepalive);
            self.note(|status| {
                (status.is_connected, status.connections) = (true, status.connections + 1);
            });
            let done = self.serve(&mut connection.into(), &mut stream);
            self.note(|status| status.is_connected = false);
            stream.reset();
            done?;
        }
        Err(Closed)
    }

    /// One connection, from its replay to its end.
    fn serve(&self, connection: &mut TcpStream, stream: &mut Stream) -> Result<(), Closed> {
        let begun = Instant::now();
        let mut last = begun;
        let mut is_replaying = true;
        self.feed.send_routes(Source::Fpm, vec![RouteUpdate::ReplayBegins])?;
        if connection.set_read_timeout(Some(STOP_POLL_INTERVAL)).is_err() {
            return Ok(());
        }
        while !self.feed.should_stop() {
            match connection.read(stream.space()) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    stream.filled(count);
                    last = Instant::now();
                    let mut updates = Vec::new();
                    let read = stream.updates(&mut updates);
                    let counters = stream.counters();
                    self.note(|status| {
                        status.counters = counters;
                        status.fault = read.err().or(status.fault);
                    });
                    self.feed.send_routes(Source::Fpm, updates)?;
                    if read.is_err() {
                        return Ok(());
                    }
                }
                Err(error) if is_momentary(error.kind()) => {}
                Err(_) => return Ok(()),
            }
            if is_replaying && self.is_complete(begun, last) {
                is_replaying = false;
                self.feed.send_routes(Source::Fpm, vec![RouteUpdate::ReplayEnds])?;
                self.note(|status| status.replays += 1);
            }
        }
        Err(Closed)
    }

    /// Whether zebra has sent everything, as far as one can know.
    fn is_complete(&self, begun: Instant, last: Instant) -> bool {
        let FpmConfig { hold, quiet, longest, .. } = self.config;
        let is_quiet = begun.elapsed() >= hold && last.elapsed() >= quiet;
        is_quiet || begun.elapsed() >= longest
    }

    fn note(&self, change: impl FnOnce(&mut FpmStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn is_momentary(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
