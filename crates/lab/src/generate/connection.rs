//! One connection of the server: its request read, its answer sent, and what it has carried.

use std::io;
use std::net::Shutdown;
use std::time::Instant;

use socket2::Socket;

use super::pattern::PATTERN_BYTES;
use super::protocol::{REQUEST_BYTES, Request};
use super::socket::{self, Sink};

/// Less room than this is not worth a packet: the connection is held until there is more.
const ROOM_MIN_BYTES: u64 = 2_048;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// This many bytes of the request's header have arrived.
    ReadingRequest(usize),
    /// This many bytes of the request are still due.
    Listening(u64),
    /// The file goes out.
    Sending,
    /// All is sent; its acknowledgement and the client's end of file are due.
    Closing,
}

/// How far a connection came at once.
pub(super) enum Advance {
    /// All that there was to do is done.
    Done,
    /// Bytes are left, and there is no room for more under way.
    Held,
}

/// Why a connection cannot continue.
pub(super) enum Trouble {
    /// The bytes are no request, or the request is longer or shorter than it announced.
    BadRequest,
    /// The kernel's error; `WouldBlock` where nothing is wrong.
    Io(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Io(error)
    }
}

/// A window over which a lowest rate is required.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// When it began.
    pub since: Instant,
    /// What had been carried by then.
    pub carried_bytes: u64,
}

/// A connection that has a place.
pub(super) struct Connection {
    pub socket: Socket,
    pub stage: Stage,
    /// When it got its place.
    pub since: Instant,
    /// Bytes of the answer handed to TCP.
    pub sent_bytes: u64,
    /// Those of them that were unacknowledged at the last query of the kernel, or were sent since.
    pub under_way_bytes: u64,
    /// The window that it is in, from the first look after its request had begun.
    pub window: Option<Window>,
    /// The client will send no more.
    pub peer_closed: bool,
    /// How often it was checked for room in vain since it was held; none where it is not.
    pub held: Option<u32>,
    request: [u8; REQUEST_BYTES],
    size_bytes: u64,
    received_bytes: u64,
}

impl Connection {
    /// A connection that was just accepted.
    pub fn new(socket: Socket, since: Instant) -> Connection {
        Connection {
            socket,
            stage: Stage::ReadingRequest(0),
            since,
            sent_bytes: 0,
            under_way_bytes: 0,
            window: None,
            peer_closed: false,
            held: None,
            request: [0; REQUEST_BYTES],
            size_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Bytes of its request after the beginning, and of its answer as far as known to be acknowledged.
    pub fn carried_bytes(&self) -> u64 {
        self.received_bytes + self.sent_bytes - self.under_way_bytes
    }

    /// Its average rate so far, in bytes a second.
    pub fn rate(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.since).as_secs_f64();
        self.carried_bytes() as f64 / age.max(1e-3)
    }

    /// Queries the kernel for the bytes under way; returns the previous account, which is never
    /// less: an end of file that the kernel counts as a byte is not part of the answer.
    pub fn ask(&mut self) -> u64 {
        let before = self.under_way_bytes;
        // A socket that cannot be queried has none, and an event that gives the reason.
        let queued = socket::unacknowledged(&self.socket).unwrap_or(0);
        self.under_way_bytes = queued.min(before);
        before
    }

    /// Whether the client has acknowledged all that was sent, the end of file included.
    pub fn all_arrived(&self) -> bool {
        socket::unacknowledged(&self.socket).is_ok_and(|bytes| bytes == 0)
    }

    /// Whether `room` for more bytes under way is enough to send any of the rest.
    pub fn may_go_on(&self, room: u64) -> bool {
        room >= (self.size_bytes - self.sent_bytes).min(ROOM_MIN_BYTES)
    }

    /// Reads and sends as far as it goes without waiting, `room` bytes of its answer at most.
    pub fn advance(
        &mut self,
        pattern: &[u8],
        sink: &mut Sink,
        mut room: u64,
    ) -> Result<Advance, Trouble> {
        while let Stage::ReadingRequest(count) = self.stage {
            let arrived = socket::receive(&self.socket, &mut self.request[count..])?;
            self.stage = match count + arrived {
                _ if arrived == 0 => return Err(Trouble::BadRequest),
                REQUEST_BYTES => {
                    let requested = Request::decode(&self.request);
                    let requested = requested.map_err(|_| Trouble::BadRequest)?;
                    self.size_bytes = requested.size_bytes;
                    Stage::Listening(requested.bytes - REQUEST_BYTES as u64)
                }
                count => Stage::ReadingRequest(count),
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
            self.received_bytes += arrived;
        }
        while let Stage::Sending = self.stage {
            let left = self.size_bytes - self.sent_bytes;
            if left == 0 {
                self.socket.shutdown(Shutdown::Write)?;
                self.stage = Stage::Closing;
                break;
            }
            if !self.may_go_on(room) {
                return Ok(Advance::Held);
            }
            let from = (self.sent_bytes % PATTERN_BYTES as u64) as usize;
            let wanted = left.min(PATTERN_BYTES as u64).min(room) as usize;
            let to = pattern.len().min(from + wanted);
            // What is held next must not wait in a segment that is not full for more to come.
            let (after, left) = (room - (to - from) as u64, left - (to - from) as u64);
            let more = after >= left.min(ROOM_MIN_BYTES);
            let sent = socket::send(&self.socket, &pattern[from..to], more)?;
            self.sent_bytes += sent as u64;
            self.under_way_bytes += sent as u64;
            room -= sent as u64;
        }
        Ok(Advance::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::pattern;
    use super::super::under_way::UnderWay;
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    /// The server's end of a connection whose client has requested `size_bytes` and never reads.
    fn requested(size_bytes: u64) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).expect("a queue");
        client.write_all(&Request::new(0, size_bytes).encode()).expect("sixteen bytes");
        let socket = Socket::from(listener.accept().expect("a connection").0);
        socket.set_nonblocking(true).expect("a mode");
        (Connection::new(socket, Instant::now()), client)
    }

    /// The kernel counts an end of file as a byte; where nothing is left to be shared, that byte would be
    /// one too many.
    #[test]
    fn an_end_of_file_is_not_under_way() {
        let (mut open, client) = requested(1 << 30);
        let (pattern, mut sink) = (pattern(), Sink::new(1 << 16));
        while open.sent_bytes == 0 {
            let full = open.advance(&pattern, &mut sink, u64::MAX);
            assert!(matches!(full, Err(Trouble::Io(_))), "there is more than buffers hold");
            thread::sleep(Duration::from_millis(1));
        }
        // The client's buffer accepts what it can; bytes still held after that stay.
        let mut settled = open.ask();
        while settled != open.under_way_bytes || open.under_way_bytes == open.sent_bytes {
            thread::sleep(Duration::from_millis(50));
            settled = open.ask();
        }
        let mut all = UnderWay::new(2 * settled, 1);
        assert_eq!((all.reserve(), all.room(settled)), (settled, settled / 8));
        all.change(0, 2 * settled);
        assert_eq!(all.room(2 * settled), 0, "nothing is left");
        let carried = open.carried_bytes();
        open.socket.shutdown(Shutdown::Write).expect("an end of file");
        assert_eq!(socket::unacknowledged(&open.socket).expect("a number"), settled + 1);
        let before = open.ask();
        all.change(settled + before, settled + open.under_way_bytes);
        assert_eq!(open.carried_bytes(), carried, "what was carried never becomes less");
        assert!(!open.all_arrived());
        drop(client);
    }
}
