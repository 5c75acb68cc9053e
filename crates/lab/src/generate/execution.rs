//! How a client performs a plan, and the outcome of each of its connections.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nilometer_linux::scheduling::Timed;

/// How a client performs a plan.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The port of every server.
    pub port: u16,
    /// Congestion control of every socket.
    pub congestion: String,
    /// When the plan's `Time::ZERO` is; may lie ahead.
    pub origin: Instant,
    /// How long after the last planned start transfers may still finish.
    pub drain: Duration,
    /// How long a connection may be idle before it counts as timed out.
    pub idle: Duration,
    /// Connections that may be open at once, over all threads; later ones start late.
    pub open_max: usize,
    /// The interface that traffic must use, if any.
    pub bind_device: Option<String>,
    /// The timed threads that the engine's threads join, to start connections on time; none where absent.
    pub timed: Option<Arc<Timed>>,
}

impl ClientConfig {
    /// CUBIC, 15 s to drain, 30 s of patience, 16,384 connections at once, any interface.
    pub fn new(port: u16, origin: Instant) -> ClientConfig {
        ClientConfig {
            port,
            congestion: "cubic".into(),
            origin,
            drain: Duration::from_secs(15),
            idle: Duration::from_secs(30),
            open_max: 16_384,
            bind_device: None,
            timed: None,
        }
    }
}

/// How a planned connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every byte arrived, then the server's end of file.
    Completed,
    /// Nothing listens at the destination.
    Refused,
    /// The other end, or a box between, broke the connection.
    Reset,
    /// It was idle for longer than the configured timeout, or the kernel's.
    TimedOut,
    /// The server's end of file came early, or it sent too much.
    SizeMismatch,
    /// It was open when the run ended.
    Unfinished,
    /// The run ended before its turn.
    NotStarted,
    /// Any other error, by its number in errno(3).
    Failed(i32),
}

/// What became of one planned connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Its place in the plan.
    pub index: u32,
    /// When the client began to connect, in nanoseconds since the origin; zero if it never did.
    pub started_ns: u64,
    /// When it ended, in nanoseconds since the origin; none if it did not.
    pub finished_ns: Option<u64>,
    /// The client's port; zero if the connection was never established.
    pub local_port: u16,
    /// Payload bytes that arrived.
    pub received_bytes: u64,
    /// How it ended.
    pub outcome: Outcome,
}

impl Execution {
    /// That of a connection, by its place in the plan, which has not been started.
    pub(crate) fn not_started(index: u32) -> Execution {
        Execution {
            index,
            started_ns: 0,
            finished_ns: None,
            local_port: 0,
            received_bytes: 0,
            outcome: Outcome::NotStarted,
        }
    }

    /// Why the connection failed, with the kernel's message if there is one; none where it did not
    /// fail, or where the run ended first.
    pub fn failure(&self) -> Option<String> {
        let errno = match self.outcome {
            Outcome::Completed | Outcome::Unfinished | Outcome::NotStarted => return None,
            Outcome::SizeMismatch => return Some("Other bytes than planned".to_owned()),
            Outcome::Refused => libc::ECONNREFUSED,
            Outcome::Reset => libc::ECONNRESET,
            Outcome::TimedOut => libc::ETIMEDOUT,
            Outcome::Failed(errno) => errno,
        };
        let message = io::Error::from_raw_os_error(errno).to_string();
        let number = message.find(" (os error").unwrap_or(message.len());
        Some(message[..number].to_owned())
    }
}
