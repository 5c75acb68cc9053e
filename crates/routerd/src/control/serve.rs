//! The doors of the control processor: connections accepted, timed, and authenticated.
//!
//! A door is a Unix socket, open to its owner alone, or a TCP address. TCP on loopback is open to
//! every user of the machine; every other address needs a token, and where there is a token every
//! request by TCP must carry it. The host that a request by TCP may name is checked in `host`; a
//! request that changes something must be sent as JSON, which no web page may send to another host
//! without its consent.
//!
//! Each door has a thread, a crowd of connections ([`super::connection_table`]) and a turn of its own, so that
//! load by TCP does not affect the socket. A request waits for its turn after it was admitted: refused
//! requests are answered at once and their connections closed.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, watch};

use super::answer::Refused;
use super::command_channel::CommandChannel;
use super::connection_table::{
    ConnectionTable, Ended, PROVEN_MAX, PROVEN_WITHIN, Place, TAKEN_IN_AT_ONCE,
};
use super::peer::Peer;
use super::timed::{SOCKET_BYTES, Timed};
use super::{endpoints, host};
use nilometer_files::document::bounded::{TOKEN_BYTES_MAX, read_text};

/// Bytes of a request's header.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// How long a request's header, and how long its body and its answer may take.
pub const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection lasts, streams of events and packets included.
pub const CONNECTION_WITHIN: Duration = Duration::from_secs(3_600);
/// Connections by TCP that the kernel keeps until they are taken in.
const BACKLOG: i32 = 1_024;
/// The least time between two requests at a door, from any client.
const BETWEEN_REQUESTS: Duration = Duration::from_micros(500);
/// Threads of a door that wait for answers of the forwarding thread.
const WAITING_THREADS: usize = 8;
/// The niceness of control threads, so that forwarding takes precedence.
const NICENESS: i32 = 5;
/// Letters of a token.
const TOKEN_LETTERS: std::ops::RangeInclusive<usize> = 16..=256;

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
        let listen = || -> std::io::Result<TcpListener> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            // Connections inherit them from the listener.
            socket.set_send_buffer_size(SOCKET_BYTES)?;
            socket.set_recv_buffer_size(SOCKET_BYTES)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        };
        let listener =
            listen().with_context(|| format!("control.listen: cannot listen on {address}"))?;
        Ok(Door::Tcp(listener, token))
    }

    /// The name of the thread that serves it.
    fn thread(&self) -> &'static str {
        match self {
            Door::Unix(_) => "control",
            Door::Tcp(..) => "control-tcp",
        }
    }

    /// Has connections at it noticed by `runtime`.
    ///
    /// # Errors
    /// When the kernel does not watch it.
    fn watch(self, runtime: &Runtime) -> Result<Watched> {
        let _entered = runtime.enter();
        let watched = match self {
            Door::Unix(listener) => tokio::net::UnixListener::from_std(listener).map(Watched::Unix),
            Door::Tcp(listener, token) => tokio::net::TcpListener::from_std(listener)
                .map(|listener| Watched::Tcp(listener, token)),
        };
        watched.context("the control processor cannot wait for connections")
    }
}

/// A door whose connections are noticed.
#[derive(Debug)]
enum Watched {
    Unix(tokio::net::UnixListener),
    Tcp(tokio::net::TcpListener, Option<String>),
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

/// The threads that serve, one a door.
pub struct Server {
    stop: watch::Sender<bool>,
    address: Option<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Begins to serve.
    ///
    /// # Errors
    /// When the process has no threads or descriptors left, or a door cannot be watched.
    pub fn start(doors: Vec<Door>, commands: &Arc<CommandChannel>) -> Result<Server> {
        let address = doors.iter().find_map(|door| match door {
            Door::Tcp(listener, _) => listener.local_addr().ok(),
            Door::Unix(_) => None,
        });
        let (stop, stopped) = watch::channel(false);
        let mut server = Server { stop, address, threads: Vec::new() };
        for door in doors {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(WAITING_THREADS)
                .build()
                .context("cannot start the control processor")?;
            let (name, commands, mut stopped) =
                (door.thread(), Arc::clone(commands), stopped.clone());
            let door = door.watch(&runtime)?;
            let work = move || {
                // A wish; without it both get their share.
                let _ = rustix::process::nice(NICENESS);
                runtime.block_on(async {
                    let mut attended = pin!(attend(door, commands));
                    let mut stop_signal = pin!(stopped.wait_for(|stopped| *stopped));
                    let mut is_closed = false;
                    poll_fn(|context| {
                        is_closed = is_closed || attended.as_mut().poll(context).is_ready();
                        stop_signal.as_mut().poll(context).map(|_| ())
                    })
                    .await;
                });
                runtime.shutdown_timeout(Duration::from_secs(1));
            };
            let thread = thread::Builder::new().name(name.into()).spawn(work);
            let thread = thread.context("cannot start the thread of the control processor")?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// The TCP address that it serves at.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// What every request at a door passes.
struct Gate {
    paths: Router,
    peer: Peer,
    token: Option<String>,
    last: Mutex<Instant>,
}

/// Accepts the connections at a door.
async fn attend(door: Watched, commands: Arc<CommandChannel>) {
    let gate = |peer, token| {
        let (paths, last) = (endpoints::paths(Arc::clone(&commands)), Mutex::new(Instant::now()));
        Arc::new(Gate { paths, peer, token, last })
    };
    match door {
        Watched::Unix(listener) => {
            let (gate, connection_table) =
                (gate(Peer::Owner, None), &commands.connection_tables.unix);
            take_in(connection_table, &gate, async || Ok((listener.accept().await?.0, None))).await;
        }
        Watched::Tcp(listener, token) => {
            let (gate, connection_table) =
                (gate(Peer::Remote, token), &commands.connection_tables.tcp);
            let accept = async || {
                let (stream, from) = listener.accept().await?;
                Ok((stream, Some(from.ip())))
            };
            take_in(connection_table, &gate, accept).await;
        }
    }
}

/// Accepts new connections and serves the present ones, in turn.
async fn take_in<S>(
    connection_table: &Arc<ConnectionTable>,
    gate: &Arc<Gate>,
    accept: impl AsyncFn() -> std::io::Result<(S, Option<IpAddr>)>,
) where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static,
{
    loop {
        for _ in 0..TAKEN_IN_AT_ONCE {
            match accept().await {
                Ok((stream, from)) => {
                    let place = Arc::new(connection_table.enter(from));
                    tokio::spawn(serve(stream, place, Arc::clone(gate)));
                }
                // No descriptors are left: some will be.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Answers a connection's requests until it ends, is displaced, or has had its time.
async fn serve<S>(stream: S, place: Arc<Place>, gate: Arc<Gate>)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static,
{
    let began = tokio::time::Instant::now();
    let (life, answering) = (Arc::clone(&place.life), Arc::clone(&place));
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (gate, place) = (Arc::clone(&gate), Arc::clone(&answering));
        async move { Ok::<_, Infallible>(gate.pass(request.map(Body::new), &place).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_WITHIN)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(Timed::new(stream, place)), service);
    let mut connection = pin!(connection);
    let mut displaced = pin!(life.displaced.notified());
    let first = if life.is_proven() { CONNECTION_WITHIN } else { PROVEN_WITHIN };
    let mut limit = pin!(tokio::time::sleep_until(began + first));
    poll_fn(|context| {
        if displaced.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        if let Poll::Ready(done) = connection.as_mut().poll(context) {
            life.end(if done.is_ok() { Ended::Done } else { Ended::Broken });
            return Poll::Ready(());
        }
        while limit.as_mut().poll(context).is_ready() {
            let end = began + CONNECTION_WITHIN;
            if !life.is_proven() || limit.deadline() >= end {
                let is_first = limit.deadline() < end;
                life.end(if is_first { Ended::Unproven } else { Ended::Expired });
                return Poll::Ready(());
            }
            limit.as_mut().reset(end);
        }
        Poll::Pending
    })
    .await;
}

impl Gate {
    /// Authenticates it, waits for the request's turn, and has it answered in time.
    async fn pass(&self, mut request: Request<Body>, place: &Place) -> Response {
        if self.peer == Peer::Remote
            && let Err(refused) = self.admit(&request)
        {
            return turned_away(refused, place);
        }
        let _busy = place.busy();
        if !place.prove() {
            let why = format!("{PROVEN_MAX} requests are being answered; ask again");
            return turned_away(Refused::unavailable(why), place);
        }
        self.wait().await;
        if let Err(refused) = is_json(request.method(), request.headers()) {
            return refused.into_response();
        }
        request.extensions_mut().insert(self.peer);
        let answer = TowerToHyperService::new(self.paths.clone()).call(request);
        match tokio::time::timeout(REQUEST_WITHIN, answer).await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => Refused::unavailable("it took more than 10 s; ask again").into_response(),
        }
    }

    /// Whether a request by TCP may be answered.
    fn admit(&self, request: &Request<Body>) -> Result<(), Refused> {
        has_token(request.headers(), self.token.as_deref())?;
        host::check(request.uri(), request.headers(), self.token.is_none())
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

/// An answer that ends its connection.
fn turned_away(refused: Refused, place: &Place) -> Response {
    place.life.end(Ended::Refused);
    let mut response = refused.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Whether a request carries the required token, if one is required.
fn has_token(headers: &HeaderMap, token: Option<&str>) -> Result<(), Refused> {
    let Some(token) = token else { return Ok(()) };
    let text = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = text.and_then(|value| value.strip_prefix("Bearer "));
    match shown.is_some_and(|shown| is_same(shown.as_bytes(), token.as_bytes())) {
        true => Ok(()),
        false => {
            let why = "the token is missing or wrong: send `Authorization: Bearer TOKEN`";
            Err(Refused::new(StatusCode::UNAUTHORIZED, why))
        }
    }
}

/// Compares in a time that does not reveal where they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
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
    fn only_requests_with_the_token_are_admitted() {
        let mut headers = HeaderMap::new();
        let status = |headers: &HeaderMap, token| has_token(headers, token).map_err(|no| no.status);
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
    }

    #[test]
    fn an_address_that_is_open_to_others_needs_a_token() {
        let open: SocketAddr = "0.0.0.0:0".parse().expect("an address");
        let refused = Door::tcp(open, None).err().expect("refused").to_string();
        assert!(refused.contains("control.token_file"), "{refused}");
        assert!(Door::tcp("127.0.0.1:0".parse().expect("an address"), None).is_ok());
    }

    #[test]
    fn a_listener_that_cannot_be_watched_is_an_error() {
        use std::os::fd::OwnedFd;
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        for door in [Door::Unix(file().into()), Door::Tcp(file().into(), None)] {
            let why = door.watch(&runtime).expect_err("no socket").to_string();
            assert_eq!(why, "the control processor cannot wait for connections");
        }
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
