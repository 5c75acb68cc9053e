//! The doors of the control processor: connections taken in, counted, timed, and asked who they are.
//!
//! A door is a Unix socket, open to its owner alone, or a TCP address. TCP on loopback is open to every
//! user of the machine; every other address needs a token, and where there is a token every request by
//! TCP must carry it. A web page in somebody's browser can reach a loopback address too, so requests by
//! TCP must name the host by address or `localhost`, and what changes something must be sent as JSON,
//! which no page may do to another's host unasked.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, Semaphore, watch};

use super::answer::Refused;
use super::desk::Desk;
use super::paths;
use crate::document::bounded::{TOKEN_BYTES_MAX, read_text};

/// Connections that a door has open at once; others wait outside.
pub const CONNECTIONS_MAX: usize = 64;
/// Bytes that a request may carry.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// How long a request's header, and how long its body and its answer may take.
pub const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection lasts, streams of events and packets included.
pub const CONNECTION_WITHIN: Duration = Duration::from_secs(3_600);
/// The least time between two requests, whoever asks.
const BETWEEN_REQUESTS: Duration = Duration::from_micros(500);
/// Threads that wait for answers of the forwarding thread.
const WAITING_THREADS: usize = 8;
/// By how much forwarding goes before control when both want a processor.
const NICENESS: i32 = 5;
/// Letters of a token.
const TOKEN_LETTERS: std::ops::RangeInclusive<usize> = 16..=256;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of the same user, by the socket.
    Owner,
    /// Somebody by TCP.
    Remote,
}

/// Where connections come in.
pub enum Door {
    /// A socket of the owner's.
    Unix(UnixListener),
    /// An address, and the token that every request must carry.
    Tcp(TcpListener, Option<String>),
}

impl Door {
    /// A TCP address.
    ///
    /// # Errors
    /// When others can reach it and there is no token, or it is taken.
    pub fn tcp(address: SocketAddr, token: Option<String>) -> Result<Door> {
        ensure!(
            token.is_some() || address.ip().is_loopback(),
            "control.listen: {address} is open to others: give control.token_file, or listen on \
             127.0.0.1"
        );
        let listener = TcpListener::bind(address)
            .with_context(|| format!("control.listen: cannot listen on {address}"))?;
        listener.set_nonblocking(true).context("control.listen")?;
        Ok(Door::Tcp(listener, token))
    }
}

/// The token in the first line of a file that its owner alone can read.
///
/// # Errors
/// When others can read it, or the line has not 16 to 256 letters that a header can have.
pub fn token(path: &Path) -> Result<String> {
    let shown = path.display();
    let text = read_text(path, TOKEN_BYTES_MAX).context("control.token_file")?;
    let mode = std::fs::metadata(path).context("control.token_file")?.mode();
    ensure!(mode & 0o077 == 0, "control.token_file: others can read {shown}; chmod 600 it");
    let line = text.lines().next().unwrap_or_default().trim();
    let is_sound =
        TOKEN_LETTERS.contains(&line.len()) && line.bytes().all(|b| b.is_ascii_graphic());
    ensure!(
        is_sound,
        "control.token_file: the first line of {shown} is to have {} to {} letters and digits",
        TOKEN_LETTERS.start(),
        TOKEN_LETTERS.end()
    );
    Ok(line.to_owned())
}

/// The thread that serves.
pub struct Server {
    stop: watch::Sender<bool>,
    address: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to serve.
    ///
    /// # Errors
    /// When the process has no threads or descriptors left.
    pub fn start(doors: Vec<Door>, desk: Arc<Desk>) -> Result<Server> {
        let address = doors.iter().find_map(|door| match door {
            Door::Tcp(listener, _) => listener.local_addr().ok(),
            Door::Unix(_) => None,
        });
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WAITING_THREADS)
            .build()
            .context("cannot start the control processor")?;
        let gate = Arc::new(Gate { paths: paths::paths(desk), last: Mutex::new(Instant::now()) });
        let work = move || {
            // A wish; without it both get their share.
            let _ = rustix::process::nice(NICENESS);
            runtime.block_on(attend(doors, gate, stopped));
            runtime.shutdown_timeout(Duration::from_secs(1));
        };
        let thread = thread::Builder::new().name("control".into()).spawn(work);
        let thread = thread.context("cannot start the thread of the control processor")?;
        Ok(Server { stop, address, thread: Some(thread) })
    }

    /// The TCP address that it serves at.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What every request passes.
struct Gate {
    paths: Router,
    last: Mutex<Instant>,
}

async fn attend(doors: Vec<Door>, gate: Arc<Gate>, mut stopped: watch::Receiver<bool>) {
    for door in doors {
        let gate = Arc::clone(&gate);
        match door {
            Door::Unix(listener) => {
                let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { continue };
                tokio::spawn(async move {
                    let mut crowd = Crowd::new(gate, Peer::Owner, None);
                    loop {
                        let place = crowd.place().await;
                        let came = listener.accept().await.map(|(stream, _)| stream);
                        crowd.take_in(came, place).await;
                    }
                });
            }
            Door::Tcp(listener, token) => {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { continue };
                tokio::spawn(async move {
                    let mut crowd = Crowd::new(gate, Peer::Remote, token);
                    loop {
                        let place = crowd.place().await;
                        let came = listener.accept().await.map(|(stream, _)| stream);
                        crowd.take_in(came, place).await;
                    }
                });
            }
        }
    }
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

type Held = tokio::sync::OwnedSemaphorePermit;

/// The connections of one door.
struct Crowd {
    gate: Arc<Gate>,
    peer: Peer,
    token: Option<Arc<str>>,
    places: Arc<Semaphore>,
}

impl Crowd {
    fn new(gate: Arc<Gate>, peer: Peer, token: Option<String>) -> Crowd {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Crowd { gate, peer, token: token.map(Into::into), places }
    }

    async fn place(&self) -> Option<Held> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    async fn take_in<S>(&mut self, came: std::io::Result<S>, place: Option<Held>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(stream) = came else {
            // No descriptors are left: some will be.
            return tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let (gate, peer, token) = (Arc::clone(&self.gate), self.peer, self.token.clone());
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let (gate, token) = (Arc::clone(&gate), token.clone());
            async move {
                let request = request.map(Body::new);
                Ok::<_, Infallible>(gate.pass(request, peer, token.as_deref()).await)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_WITHIN)
            .max_buf_size(16 << 10)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            let _place = place;
            let _ = tokio::time::timeout(CONNECTION_WITHIN, connection).await;
        });
    }
}

impl Gate {
    /// Asks who it is, waits for the request's turn, and has it answered in time.
    async fn pass(&self, mut request: Request<Body>, peer: Peer, token: Option<&str>) -> Response {
        self.wait().await;
        if peer == Peer::Remote
            && let Err(refused) = admit(request.headers(), token)
        {
            return refused.into_response();
        }
        if let Err(refused) = is_json(request.method(), request.headers()) {
            return refused.into_response();
        }
        request.extensions_mut().insert(peer);
        let answer = TowerToHyperService::new(self.paths.clone()).call(request);
        match tokio::time::timeout(REQUEST_WITHIN, answer).await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => Refused::unavailable("it took more than 10 s; ask again").into_response(),
        }
    }

    /// Requests come in one after the other, with a little time between them.
    async fn wait(&self) {
        let mut last = self.last.lock().await;
        let rest = BETWEEN_REQUESTS.saturating_sub(last.elapsed());
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
        *last = Instant::now();
    }
}

/// Whether a request by TCP may be answered.
fn admit(headers: &HeaderMap, token: Option<&str>) -> Result<(), Refused> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    if token.is_none() && !is_plain_host(host) {
        let why = "name the host by its address or as localhost";
        return Err(Refused::new(StatusCode::FORBIDDEN, why));
    }
    let Some(token) = token else { return Ok(()) };
    let shown = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    match shown.is_some_and(|shown| is_same(shown.as_bytes(), token.as_bytes())) {
        true => Ok(()),
        false => {
            let why = "the token is missing or wrong: send `Authorization: Bearer TOKEN`";
            Err(Refused::new(StatusCode::UNAUTHORIZED, why))
        }
    }
}

/// Compares in a time that does not tell where they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn is_plain_host(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    bare == "localhost" || bare.parse::<IpAddr>().is_ok()
}

/// What changes something is sent as JSON.
fn is_json(method: &Method, headers: &HeaderMap) -> Result<(), Refused> {
    if method != Method::POST && method != Method::PUT {
        return Ok(());
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    match kind.is_some_and(|kind| kind.starts_with("application/json")) {
        true => Ok(()),
        false => {
            let why = "send it with `Content-Type: application/json`";
            Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_the_token_is_admitted() {
        let mut headers = HeaderMap::new();
        let status = |headers: &HeaderMap, token| admit(headers, token).map_err(|no| no.status);
        headers.insert(header::HOST, "127.0.0.1:8080".parse().expect("a value"));
        assert_eq!(status(&headers, None), Ok(()));
        let secret = Some("0123456789abcdef");
        assert_eq!(status(&headers, secret), Err(StatusCode::UNAUTHORIZED));
        for (shown, admitted) in [
            ("Bearer 0123456789abcdef", true),
            ("Bearer 0123456789abcdeF", false),
            ("Bearer", false),
        ] {
            headers.insert(header::AUTHORIZATION, shown.parse().expect("a value"));
            assert_eq!(status(&headers, secret).is_ok(), admitted, "{shown}");
        }
        headers.insert(header::HOST, "router.example:8080".parse().expect("a value"));
        assert_eq!(status(&headers, None), Err(StatusCode::FORBIDDEN));
        assert!(is_plain_host("[::1]:80") && is_plain_host("localhost") && !is_plain_host(""));
    }

    #[test]
    fn an_address_that_is_open_to_others_needs_a_token() {
        let open: SocketAddr = "0.0.0.0:0".parse().expect("an address");
        let refused = Door::tcp(open, None).err().expect("refused").to_string();
        assert!(refused.contains("control.token_file"), "{refused}");
        assert!(Door::tcp("127.0.0.1:0".parse().expect("an address"), None).is_ok());
    }

    #[test]
    fn a_token_is_a_secret() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("nilometer-token-{}", std::process::id()));
        let write = |text: &str, mode| {
            std::fs::write(&path, text).expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("a mode");
            token(&path).map_err(|why| format!("{why:#}"))
        };
        assert_eq!(write("0123456789abcdef\nmore\n", 0o600).as_deref(), Ok("0123456789abcdef"));
        assert!(write("0123456789abcdef", 0o644).expect_err("open").contains("others can read"));
        assert!(write("short", 0o600).expect_err("short").contains("16 to 256"));
        std::fs::remove_file(&path).expect("removed");
    }
}
