//! Attacks on the control address, during which the owner must be answered within a second.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nilometer_routerd::config::RouterConfig;
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::site::{ROUTER, Site, Stand, privileged};
use crate::common::Room;

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// The time within which the owner must be answered.
const WITHIN: Duration = Duration::from_secs(1);
/// How long the owner waits at most for an answer.
const GIVEN_UP: Duration = Duration::from_secs(3);
/// The time within which a genuine client sends its header.
const PROMPT: Duration = Duration::from_millis(10);
/// Rounds; the best one counts, since other programs load the machine, too.
const ROUNDS: usize = 3;
const REQUESTS: usize = 8;
/// The interval at which strangers check their connections.
const PASS: Duration = Duration::from_millis(20);
/// What a stranger sends in a pass.
const AT_ONCE: usize = 16;
/// How long an attack lasts before the owner connects: in the old design all places were taken by
/// then.
const TAKES_HOLD: Duration = Duration::from_millis(700);

const HOME: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A router with control by TCP and a token.
pub fn guarded(name: &str) -> (Stand, SocketAddr) {
    use std::os::unix::fs::PermissionsExt;
    let (site, room) = (Site::new().expect("a site"), Room::new(name));
    room.write("token", TOKEN);
    let secret = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(room.path("token"), secret).expect("a mode");
    let mut config: RouterConfig = toml::from_str(ROUTER).expect("a description");
    config.control.listen = Some("127.0.0.1:0".parse().expect("an address"));
    config.control.token_file = Some(room.path("token"));
    let stand = Stand::build(site, room, config).expect("a router");
    let at = stand.control.address().expect("an address");
    (stand, at)
}

/// What a stranger sends: once, or again and again.
#[derive(Clone)]
struct Payload {
    text: String,
    is_repeated: bool,
    /// How long after being cut off a stranger reconnects.
    pause: Duration,
}

/// Connections of strangers, each begun anew when it was closed; nothing is ever read.
struct Strangers {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Strangers {
    fn begin(at: SocketAddr, count: usize, from: &[Ipv4Addr], payload: Payload) -> Strangers {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, from) = (Arc::clone(&stop), from.to_vec());
        let thread = thread::spawn(move || {
            let place = |number: usize| {
                let mut stranger = Stranger::come(at, from[number % from.len()]);
                // On loopback the connection is there already; otherwise the next pass finds it.
                stranger.goes_on(&payload);
                stranger
            };
            let mut all: Vec<Stranger> = (0..count).map(place).collect();
            while !stopped.load(Ordering::Relaxed) {
                for (number, stranger) in all.iter_mut().enumerate() {
                    if !stranger.goes_on(&payload) {
                        let closed = *stranger.closed.get_or_insert_with(Instant::now);
                        if closed.elapsed() >= payload.pause {
                            *stranger = place(number);
                        }
                    }
                }
                thread::sleep(PASS);
            }
        });
        thread::sleep(TAKES_HOLD);
        Strangers { stop, thread }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic");
    }
}

struct Stranger {
    socket: Socket,
    sent: usize,
    closed: Option<Instant>,
}

impl Stranger {
    fn come(at: SocketAddr, from: Ipv4Addr) -> Stranger {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((from, 0)).into()).expect("an address of loopback");
        socket.set_nonblocking(true).expect("a mode");
        // It is under way when it returns.
        let _ = socket.connect(&at.into());
        Stranger { socket, sent: 0, closed: None }
    }

    /// Sends as much as is taken; whether the connection is still there.
    fn goes_on(&mut self, payload: &Payload) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let is_closed = match self.socket.peek(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(why) => !matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected),
        };
        if is_closed {
            return false;
        }
        // Others are to have their turn however fast this one is read.
        for _ in 0..AT_ONCE {
            let rest = &payload.text.as_bytes()[self.sent..];
            match (&self.socket).write(rest) {
                Ok(sent) => self.sent += sent,
                Err(why) => {
                    let waits = [ErrorKind::WouldBlock, ErrorKind::NotConnected];
                    return waits.contains(&why.kind());
                }
            }
            if self.sent == payload.text.len() {
                match payload.is_repeated {
                    true => self.sent = 0,
                    false => return true,
                }
            }
        }
        true
    }
}

/// How long the owner waits for a counter of the router; at most [`GIVEN_UP`]. Being cut off is a
/// failure, unless this machine kept the owner from sending the header right after connecting; then it
/// counts as [`GIVEN_UP`].
fn response_time(at: SocketAddr, from: Ipv4Addr) -> Duration {
    let began = Instant::now();
    let mut sent_after = None;
    let mut answered = || -> std::io::Result<Vec<u8>> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect_timeout(&at.into(), GIVEN_UP)?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(GIVEN_UP))?;
        let request = format!(
            "GET /v1/tally HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {TOKEN}\r\n\
             Connection: close\r\n\r\n"
        );
        let sent = stream.write_all(request.as_bytes());
        sent_after = Some(began.elapsed());
        sent?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    match answered() {
        Ok(answer) => {
            let text = String::from_utf8(answer).expect("text");
            let (head, body) = text.split_once("\r\n\r\n").expect("a header");
            assert!(head.starts_with("HTTP/1.1 200"), "{text}");
            let tally: Value = serde_json::from_str(body).expect("an object");
            assert_eq!(tally["balances"], true, "{tally}");
            began.elapsed()
        }
        Err(why) => {
            let is_slow = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&why.kind());
            let is_late = sent_after.unwrap_or_else(|| began.elapsed()) > PROMPT;
            assert!(is_slow || is_late, "the owner at {from} was cut off: {why}");
            GIVEN_UP
        }
    }
}

/// The owner's longest wait in the best of some rounds.
fn longest(at: SocketAddr, from: Ipv4Addr) -> Duration {
    let round = |_| {
        let waits = (0..REQUESTS).map(|_| response_time(at, from));
        let mut longest = Duration::ZERO;
        for wait in waits {
            longest = longest.max(wait);
            if wait >= GIVEN_UP {
                break;
            }
        }
        longest
    };
    (0..ROUNDS).map(round).min().unwrap_or_default()
}

/// Connections by TCP, and how they ended, from `/metrics`.
fn counted(stand: &Stand) -> (u64, Vec<(String, u64)>, u64) {
    use hyper::Method;
    let reply = stand.address.ask(&Method::GET, "/metrics", None).expect("an answer");
    let text = String::from_utf8(reply.body).expect("text");
    let value = |line: &str| line.rsplit(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0);
    let of = |name: &str| {
        let begins = format!("nilometer_control_{name}{{door=\"tcp\"");
        text.lines().filter(|line| line.starts_with(&begins)).collect::<Vec<_>>()
    };
    let sum = |name: &str| of(name).into_iter().map(value).sum();
    let reason = |line: &str| Some(line.split('"').nth(3)?.to_owned());
    let ended = of("connections_ended_total");
    let ended = ended.iter().filter_map(|line| Some((reason(line)?, value(line))));
    (sum("connections_total"), ended.collect(), sum("connections_open"))
}

/// Has strangers attack a router while its owner sends requests from both addresses and by the socket.
/// Returns how the connections ended.
fn beside(name: &str, count: usize, from: &[Ipv4Addr], payload: Payload) -> Vec<(String, u64)> {
    let (stand, at) = guarded(name);
    let strangers = Strangers::begin(at, count, from, payload);
    for own in [HOME, ELSEWHERE] {
        let wait = longest(at, own);
        println!("{name}: the owner at {own} waited {wait:?} at most");
        assert!(wait < WITHIN, "the owner at {own} waited {wait:?}");
    }
    let began = Instant::now();
    assert_eq!(stand.get("/v1/tally")["balances"], true);
    assert!(began.elapsed() < WITHIN, "by the socket it took {:?}", began.elapsed());
    let (came, ended, open) = counted(&stand);
    let gone: u64 = ended.iter().map(|(_, count)| count).sum();
    assert_eq!(came, gone + open, "{ended:?}");
    strangers.end();
    stand.end();
    ended
}

fn of(ended: &[(String, u64)], reason: &str) -> u64 {
    let found = ended.iter().find(|(name, _)| name == reason);
    found.unwrap_or_else(|| panic!("no {reason}: {ended:?}")).1
}

#[test]
fn the_owner_is_served_beside_strangers_that_never_read() {
    if !privileged("strangers who never read") {
        return;
    }
    let text = "GET /v1/tally HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned();
    let payload = Payload { text, is_repeated: true, pause: Duration::ZERO };
    let ended = beside("never-read", 64, &[HOME], payload);
    assert!(of(&ended, "refused") >= 64, "{ended:?}");
}

#[test]
fn the_owner_is_served_beside_a_thousand_half_sent_headers() {
    if !privileged("half-sent headers") {
        return;
    }
    let text = "GET /v1/tally HTTP/1.1\r\nHost: 127.0.0.1\r\nX".to_owned();
    let from = [HOME, ELSEWHERE, Ipv4Addr::new(127, 0, 0, 3)];
    let payload = Payload { text, is_repeated: false, pause: Duration::ZERO };
    let ended = beside("half-sent", 1_000, &from, payload);
    assert!(of(&ended, "displaced") >= 900, "{ended:?}");
}

/// All places available to one address, held silently.
#[test]
fn the_owner_is_served_beside_strangers_at_the_same_address() {
    if !privileged("strangers at the owner's address") {
        return;
    }
    let payload = Payload { text: String::new(), is_repeated: false, pause: Duration::ZERO };
    let ended = beside("silent", 300, &[HOME], payload);
    assert!(of(&ended, "displaced") >= 200, "{ended:?}");
}

/// A client with the token that does not read loses its place to one that does. (A client with the token
/// that reconnects at once is an owner who requests more than can be answered; against that nothing is
/// promised.)
#[test]
fn the_owner_is_served_beside_token_holders_that_never_read() {
    if !privileged("owners who never read") {
        return;
    }
    let text = format!(
        "GET /v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    let payload = Payload { text, is_repeated: true, pause: WITHIN };
    let ended = beside("slow-owners", 100, &[HOME], payload);
    assert!(of(&ended, "displaced") >= REQUESTS as u64, "{ended:?}");
}

/// What is sent behind a refused request is not answered.
#[test]
fn a_refusal_ends_the_connection() {
    if !privileged("refused connections") {
        return;
    }
    let (stand, at) = guarded("refusal-ends");
    let one = format!("GET /v1/engine HTTP/1.1\r\nHost: {at}\r\n");
    let mut stream = TcpStream::connect(at).expect("a connection");
    stream.set_read_timeout(Some(super::site::PATIENCE)).expect("a limit");
    let good = format!("{one}Authorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(format!("{one}\r\n{good}").as_bytes()).expect("written");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("an answer and an end");
    assert!(answers.starts_with("HTTP/1.1 401"), "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    stand.end();
}

/// A connection that proves nothing ends of itself, and so does one whose peer takes no bytes.
#[test]
fn stalled_connections_are_closed() {
    if !privileged("stalled connections") {
        return;
    }
    let (stand, at) = guarded("stalls");
    let open = |text: &str| {
        let mut stream = TcpStream::connect(at).expect("a connection");
        stream.write_all(text.as_bytes()).expect("written");
        stream
    };
    let wait = |reason: &str| {
        let began = Instant::now();
        while of(&counted(&stand).1, reason) == 0 {
            assert!(began.elapsed() < super::site::PATIENCE, "none ended as {reason}");
            thread::sleep(Duration::from_millis(50));
        }
    };
    let _silent = open("GET /v1/tally HTTP/1.1\r\n");
    wait("unproven");
    let one = format!(
        "GET /v1/openapi.json HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    let _deaf = open(&one.repeat(400));
    wait("stalled");
    let (came, ended, open) = counted(&stand);
    let gone: u64 = ended.iter().map(|(_, count)| count).sum();
    assert_eq!((came, open), (gone + open, 0), "{ended:?}");
    stand.end();
}
