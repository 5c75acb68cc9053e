//! The server: sends each client the bytes it requests, then closes first.
//!
//! One event loop holds every connection, and nothing in it can block: a slow reader takes up its
//! place but delays no other connection (Harpoon's server threads each blocked in one file's `send`).
//! A new connection is served at once as far as possible: if its request is there, it is read and
//! answered and the sending side is shut down in one go. Only then is it watched, for what is
//! missing: the request, room in a buffer that filled, or the client's end of file.
//!
//! That last wait could be left to the kernel (closing at once costs some 8 % less for a file of
//! 10 KB), but then the server would not know which clients received everything: `completed` counts
//! those.
//!
//! The server's FIN goes first. So TIME_WAIT stays here, keyed by the server's port, and the
//! client's ports are free at once: a client with few addresses would otherwise run out of its
//! 28,000 ports a minute. A new SYN on a 4-tuple in TIME_WAIT is taken by Linux, since its
//! timestamp is newer (RFC 6191), so a port that the client uses again soon is safe. The last
//! segment of a file carries the FIN itself, as web servers have it, instead of a packet without
//! payload after it.
//!
//! A server that strangers can reach has [`Limits`]; one whose only clients are of its own run has
//! none, and waits for each of them as long as it takes.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use socket2::Socket;

use super::limits::Limits;
use super::pattern::pattern;
use super::socket::{self, Options};

/// Default limit of concurrent connections of a server.
pub const OPEN_MAX: usize = 16_384;
/// Connections that may wait for a place where there are limits. Without, all wait in the kernel.
pub(super) const WAITING_MAX: usize = 1_024;
/// File descriptors that a server with this limit needs: the most of all commands with default options.
pub const OPEN_FILES: u64 = socket::open_files(OPEN_MAX + WAITING_MAX);

/// How a server serves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses to listen at; `0.0.0.0` and `[::]` stand for all of a family.
    pub listen: Vec<SocketAddr>,
    /// Congestion control of every socket.
    pub congestion: String,
    /// Connections that may be served at once in one loop; later ones wait.
    pub open_max: usize,
    /// Demands on clients and bounds for them; none for a server that only its own clients can reach.
    pub limits: Option<Limits>,
    /// The interface that traffic must use, if any.
    pub bind_device: Option<String>,
}

impl ServerConfig {
    /// CUBIC, 16,384 connections at once, the usual limits, any interface.
    pub fn new(listen: Vec<SocketAddr>) -> ServerConfig {
        ServerConfig {
            listen,
            congestion: "cubic".into(),
            open_max: OPEN_MAX,
            limits: Some(Limits::default()),
            bind_device: None,
        }
    }
}

/// What a server did: `accepted` is the sum of `completed`, `bad_requests`, `broken`, `timed_out`,
/// `too_slow`, `displaced`, `refused` and `unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// Connections taken from the kernel.
    pub accepted: u64,
    /// Files sent whole whose clients have closed and, where there are limits, acknowledged all of it.
    pub completed: u64,
    /// Connections closed because they did not begin with a request.
    pub bad_requests: u64,
    /// Connections that the client, or a box between, broke.
    pub broken: u64,
    /// Connections given up because the header of their request took too long.
    pub timed_out: u64,
    /// Connections given up because they carried less than the lowest rate.
    pub too_slow: u64,
    /// Connections given up in favour of an address that held fewer places.
    pub displaced: u64,
    /// Connections given up because no place was free and too many waited for one.
    pub refused: u64,
    /// Connections open when the run ended.
    pub unfinished: u64,
    /// Payload bytes handed to TCP.
    pub sent_bytes: u64,
    /// The congestion control that the first accepted socket read back; none without one.
    pub congestion: Option<String>,
}

impl ServerReport {
    /// Counts a connection that was accepted; the congestion control is checked on the first one.
    ///
    /// # Errors
    /// The accepted socket uses another congestion control than the configured one, or cannot be
    /// queried for it.
    pub(super) fn accept(&mut self, socket: &Socket, requested: &str) -> Result<()> {
        if self.congestion.is_none() {
            let has = socket::congestion_of(socket)?;
            ensure!(has == requested, "accepted sockets use `{has}`, not `{requested}`");
            self.congestion = Some(has);
        }
        self.accepted += 1;
        Ok(())
    }
}

/// Listens, and serves when it is run.
#[derive(Debug)]
pub struct Server {
    pub(super) config: ServerConfig,
    pub(super) listeners: Vec<Socket>,
    pub(super) pattern: Box<[u8]>,
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
        let waiting = if config.limits.is_some() { WAITING_MAX } else { 0 };
        if let Some(limits) = &config.limits {
            limits.check(config.open_max)?;
        }
        socket::allow_connections(config.open_max + waiting)?;
        let options = Options {
            congestion: config.congestion.clone(),
            bind_device: config.bind_device.clone(),
        };
        let aborts = config.limits.is_some();
        let listen = |&address: &SocketAddr| socket::listen(address, &options, aborts);
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
}
