//! The server of `generate` under hostile clients, while the owner's client is served.
//!
//! Each test has a network namespace of its own, so that all kernel memory for the server's port belongs
//! to the server. All strangers connect from one address, the owner from another.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::privileged;
use nilometer_lab::generate::protocol::Request;
use nilometer_lab::generate::{
    Client, ClientConfig, Limits, LiveCounters, Outcome, Server, ServerConfig, ServerReport,
};
use nilometer_linux::namespace::Namespace;
use nilometer_traffic::plan::PlannedConnection;
use nilometer_wire::Time;
use socket2::{Domain, Socket, Type};

const PORT: u16 = 8_808;
const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
const OWNER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const PLACES: usize = 256;
const STRANGERS: usize = 300;
/// Files that the owner fetches, one every twentieth of a second.
const FILES: u64 = 40;
/// More than any of this takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// Ends what a test started when it ends, however it ends.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs a server with so few places in a namespace of its own, beside `with`, which sees its counters.
fn in_the_open(limits: Limits, with: impl FnOnce(&LiveCounters) + Send) -> ServerReport {
    with_places(PLACES, limits, with).0
}

/// As above, with `open_max` places; also returns how often its thread slept.
fn with_places(
    open_max: usize,
    limits: Limits,
    with: impl FnOnce(&LiveCounters) + Send,
) -> (ServerReport, u64) {
    let namespace = Namespace::new().expect("a namespace");
    namespace.run(|| {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let config =
            ServerConfig { open_max, limits: Some(limits), ..ServerConfig::new(vec![any]) };
        let server = Server::bind(config).expect("a server");
        let (live, stop) = (LiveCounters::new(), AtomicBool::new(false));
        thread::scope(|scope| {
            let running =
                scope.spawn(|| (server.run(&live, &stop).expect("it serves"), times_slept()));
            let _stopping = Stopping(&stop);
            with(&live);
            stop.store(true, Relaxed);
            running.join().expect("it ends")
        })
    })
}

/// How often the calling thread has waited for something.
fn times_slept() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).expect("a number")
}

/// A hostile client that requests `size_bytes` in a request of `request_bytes`, and has sent its header.
fn stranger(request_bytes: u64, size_bytes: u64) -> TcpStream {
    let mut stream = TcpStream::connect(HERE).expect("the kernel has a queue");
    stream.write_all(&Request::new(request_bytes, size_bytes).encode()).expect("sixteen bytes");
    stream
}

/// The owner's files, each fetched whole by a connection of its own, and counted by the server, which
/// does so once all of a file is acknowledged.
fn owner_fetches(live: &LiveCounters, size_bytes: u64) {
    let planned = |index| PlannedConnection {
        start: Time::from_nanos(index * 50_000_000),
        session: 0,
        interval: 0,
        source: OWNER.into(),
        destination: HERE.ip(),
        size_bytes,
        request_bytes: 0,
        segment_bytes: 0,
        source_port: 0,
        script: None,
    };
    let plan: Vec<_> = (0..FILES).map(planned).collect();
    let config = ClientConfig { drain: PATIENCE, ..ClientConfig::new(PORT, Instant::now()) };
    let client = Client::new(config).expect("a client");
    let done = client.run(&plan, &LiveCounters::new(), &AtomicBool::new(false)).expect("it runs");
    let whole = done.iter().filter(|done| done.outcome == Outcome::Completed).count();
    assert_eq!(whole as u64, FILES, "files that the owner got: {done:?}");
    wait_until("the server counts the owner's files", || live.progress().completed >= FILES);
}

/// Bytes that the kernel holds for sending from the server's port in this namespace, and sockets there
/// that no process owns any more.
fn kept_by_the_kernel() -> (u64, usize) {
    let text = fs::read_to_string("/proc/thread-self/net/tcp").expect("a table of sockets");
    let (mut bytes, mut orphans) = (0, 0);
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, state, queues, inode) = (words[1], words[3], words[4], words[9]);
        let is_over = ["06", "07", "0A"].contains(&state); // TIME_WAIT, closed, listening
        if !local.ends_with(&format!(":{PORT:04X}")) || is_over {
            continue;
        }
        let queued = queues.split(':').next().expect("two queues");
        bytes += u64::from_str_radix(queued, 16).expect("a number");
        // A connection that is not accepted yet has no process either, and holds nothing.
        orphans += usize::from(inode == "0" && queued != "00000000");
    }
    (bytes, orphans)
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Limits of some seconds, and few bytes under way.
fn short() -> Limits {
    Limits {
        request_time: Duration::from_secs(2),
        rate_window: Duration::from_secs(2),
        under_way_bytes: 4 << 20,
        ..Limits::default()
    }
}

#[test]
fn an_owner_is_served_beside_requests_byte_by_byte() {
    if !privileged("requests byte by byte") {
        return;
    }
    let report = in_the_open(short(), |live| {
        let over = AtomicBool::new(false);
        // Half of them trickle the header of a request, half its rest; a client that is given up reconnects.
        let call = |number: usize| match number % 2 {
            0 => TcpStream::connect(HERE).expect("the kernel has a queue"),
            _ => stranger(1 << 20, 1),
        };
        let mut strangers: Vec<_> = (0..STRANGERS).map(call).collect();
        thread::scope(|scope| {
            let _stopping = Stopping(&over);
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    for (number, stream) in strangers.iter_mut().enumerate() {
                        if stream.write_all(b"N").is_err() {
                            *stream = call(number);
                        }
                    }
                    thread::sleep(Duration::from_millis(200));
                }
            });
            // Long enough for every client to be given up once.
            thread::sleep(Duration::from_secs(5));
            owner_fetches(live, 100_000);
            over.store(true, Relaxed);
        });
    });
    assert_eq!(report.completed, FILES, "{report:?}");
    assert!(report.timed_out > 0 && report.too_slow > 0, "{report:?}");
}

#[test]
fn bytes_under_way_are_bounded_and_none_stay() {
    if !privileged("bytes under way") {
        return;
    }
    let limits = short();
    let bound = limits.under_way_bytes;
    let report = in_the_open(limits, |live| {
        let strangers: Vec<_> = (0..STRANGERS).map(|_| stranger(0, 1 << 40)).collect();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stopping = Stopping(&over);
            let most = scope.spawn(|| {
                // The table is read line by line while bytes go from one connection to another; only what
                // two consecutive readings show counts.
                let (mut most, mut before) = ((0, 0), 0);
                while !over.load(Relaxed) {
                    let (bytes, orphans) = kept_by_the_kernel();
                    most = (bytes.min(before).max(most.0), orphans.max(most.1));
                    before = bytes;
                    thread::sleep(Duration::from_millis(20));
                }
                most
            });
            owner_fetches(live, 300_000);
            over.store(true, Relaxed);
            let (bytes, orphans) = most.join().expect("numbers");
            // An end of file counts one byte in the kernel.
            let kept = (bound / 8..=bound + PLACES as u64).contains(&bytes);
            assert!(kept, "the kernel held {bytes} bytes under way, of {bound}");
            assert_eq!(orphans, 0, "sockets that were given up are gone");
        });
        // The strangers are still there, and nothing is kept for them.
        wait_until("the kernel keeps bytes for nobody", || kept_by_the_kernel() == (0, 0));
        drop(strangers);
    });
    assert_eq!(report.completed, FILES, "{report:?}");
    assert!(report.too_slow > 0, "{report:?}");
}

#[test]
fn a_client_that_closes_without_reading_is_incomplete_and_leaves_nothing() {
    if !privileged("the early end of file") {
        return;
    }
    const COUNT: usize = 50;
    let limits = Limits { under_way_bytes: 256 << 20, ..short() };
    let report = in_the_open(limits, |live| {
        let call = |_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            socket.set_recv_buffer_size(4_096).expect("a small buffer");
            socket.connect(&HERE.into()).expect("the kernel has a queue");
            let mut stream = TcpStream::from(socket);
            stream.write_all(&Request::new(0, 200_000).encode()).expect("sixteen bytes");
            stream.shutdown(Shutdown::Write).expect("an end of file");
            stream
        };
        let quitters: Vec<_> = (0..COUNT).map(call).collect();
        wait_until("bytes are under way", || kept_by_the_kernel().0 > 1_000_000);
        assert_eq!(kept_by_the_kernel().1, 0, "nothing is left to the kernel alone");
        wait_until("the kernel keeps bytes for nobody", || kept_by_the_kernel() == (0, 0));
        drop(quitters);
        // One that reads after its end of file has everything.
        let mut patient = stranger(0, 200_000);
        patient.shutdown(Shutdown::Write).expect("an end of file");
        thread::sleep(Duration::from_millis(200));
        let mut answer = Vec::new();
        patient.read_to_end(&mut answer).expect("an answer");
        assert_eq!(answer.len(), 200_000);
        wait_until("the server counts the file", || live.progress().completed == 1);
    });
    assert_eq!((report.completed, report.too_slow), (1, COUNT as u64), "{report:?}");
}

#[test]
fn the_address_with_most_places_makes_room() {
    if !privileged("places by address") {
        return;
    }
    // No client is given up for being slow while this lasts.
    let limits = Limits { request_time: 2 * PATIENCE, rate_window: 2 * PATIENCE, ..short() };
    let report = in_the_open(limits, |live| {
        let strangers: Vec<_> = (0..STRANGERS).map(|_| stranger(1 << 20, 1)).collect();
        owner_fetches(live, 100_000);
        let gone = |mut stream: &TcpStream| {
            stream.set_nonblocking(true).expect("a mode");
            stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
        };
        let reset = strangers.iter().filter(|stream| gone(stream)).count();
        assert!((1..=FILES as usize).contains(&reset), "{reset} strangers were reset");
    });
    assert_eq!(report.completed, FILES, "{report:?}");
    assert!((1..=FILES).contains(&report.displaced), "{report:?}");
    assert_eq!((report.timed_out, report.too_slow, report.refused), (0, 0, 0), "{report:?}");
}

/// Bytes that entered the send buffer long ago count when they are acknowledged: a reader of 10 kB/s, ten
/// times as fast as required, requests as much as its server's buffers hold at once.
#[test]
fn an_honest_reader_may_be_slow() {
    if !privileged("a slow reader") {
        return;
    }
    const SIZE: usize = 200_000;
    // Several times as long as a reader with so small a buffer may leave between two acknowledgements.
    let window = Duration::from_secs(5);
    let limits =
        Limits { lowest_rate: 1_000, rate_window: window, under_way_bytes: 256 << 20, ..short() };
    let report = in_the_open(limits, |live| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(16_384).expect("a small buffer");
        // As on a wire: loopback's segments of 64 kB would be acknowledged all at once.
        socket.set_tcp_mss(1_000).expect("a segment size");
        socket.connect(&HERE.into()).expect("the kernel has a queue");
        let mut stream = TcpStream::from(socket);
        stream.write_all(&Request::new(0, SIZE as u64).encode()).expect("sixteen bytes");
        let mut read = 0;
        let began = Instant::now();
        while began.elapsed() < 3 * window {
            read += stream.read(&mut [0; 1_000]).expect("it is served");
            thread::sleep(Duration::from_millis(100));
        }
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("it is served to the end");
        assert_eq!(read + rest.len(), SIZE);
        drop(stream);
        wait_until("the server counts the file", || live.progress().open == 0);
    });
    assert_eq!((report.completed, report.too_slow), (1, 0), "{report:?}");
}

/// A held connection is checked less and less often, and not in between.
#[test]
fn a_connection_that_is_held_does_not_keep_the_server_awake() {
    if !privileged("the server's turns") {
        return;
    }
    // Room for 6 kB of a connection, which is less than any send buffer takes in.
    let limits = Limits { rate_window: PATIENCE, under_way_bytes: 32_768, ..short() };
    let (report, slept) = with_places(4, limits, |live| {
        let stranger = stranger(0, 1 << 30);
        wait_until("bytes are under way", || kept_by_the_kernel().0 > 4_000);
        thread::sleep(Duration::from_secs(3));
        assert_eq!(live.progress().open, 1);
        drop(stranger);
    });
    assert_eq!(report.accepted, 1, "{report:?}");
    // 60 waits of 50 ms, and some for what the client's buffer took in; every 2 ms it would be 1,500.
    assert!(slept < 500, "the server slept {slept} times in 3 s");
}
