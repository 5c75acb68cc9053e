//! A client of a router's control processor, by its socket or by HTTP: one request, one answer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(15);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Where a router is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// By its socket.
    Socket(PathBuf),
    /// By HTTP: host and port, and the token where one is needed.
    Http(String, Option<String>),
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// A text as a segment of a path, or a value of a query (RFC 3986, 2.1).
pub fn encoded(text: &str) -> String {
    let letter = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(letter).collect()
}

impl Address {
    /// The address that `http://HOST:PORT` is.
    ///
    /// # Errors
    /// When it is none.
    pub fn http(url: &str, token: Option<String>) -> Result<Address> {
        let rest = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        let host = rest.filter(|rest| !rest.is_empty() && !rest.contains('/'));
        let host = host
            .with_context(|| format!("`{url}` is not an address of the form http://HOST:PORT"))?;
        let has_port = host.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
        ensure!(has_port, "`{url}` names no port, as http://HOST:PORT does");
        Ok(Address::Http(host.to_owned(), token))
    }

    /// Sends a request, and returns the answer, whatever its status.
    ///
    /// # Errors
    /// When nothing listens there, or the answer does not come.
    pub fn ask(&self, method: &Method, path: &str, body: Option<String>) -> Result<Reply> {
        let asking = async {
            let mut response = self.send(method, path, body).await?;
            let (status, mut body) = (response.status().as_u16(), Vec::new());
            while let Some(frame) = response.frame().await {
                let frame = frame.context("the answer breaks off")?;
                body.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                ensure!(body.len() <= ANSWER_BYTES_MAX, "the answer is too long");
            }
            Ok(Reply { status, body })
        };
        runtime()?.block_on(async {
            tokio::time::timeout(WITHIN, asking).await.map_err(|_| anyhow!("{self} is silent"))?
        })
    }

    /// Requests a stream, and hands each piece of it to `take` until that returns false.
    ///
    /// # Errors
    /// When nothing listens there, the answer is no, or `take` fails.
    pub fn follow(&self, path: &str, mut take: impl FnMut(&[u8]) -> Result<bool>) -> Result<()> {
        runtime()?.block_on(async {
            let asking = self.send(&Method::GET, path, None);
            let outcome = tokio::time::timeout(WITHIN, asking).await;
            let mut response = outcome.map_err(|_| anyhow!("{self} is silent"))??;
            if !response.status().is_success() {
                let body = response.collect().await.context("the answer breaks off")?.to_bytes();
                bail!("{}", error_line(&body));
            }
            loop {
                // Wakes now and then, so that the receiver can end it.
                let more = match tokio::time::timeout(WITHIN / 50, response.frame()).await {
                    Err(_) => take(&[])?,
                    Ok(None) => return Ok(()),
                    Ok(Some(frame)) => {
                        let frame = frame.context("the stream breaks off")?;
                        take(frame.data_ref().map_or(&[][..], |data| data))?
                    }
                };
                if !more {
                    return Ok(());
                }
            }
        })
    }

    async fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Response<Incoming>> {
        let (host, token) = match self {
            Address::Socket(_) => ("localhost", None),
            Address::Http(host, token) => (host.as_str(), token.as_ref()),
        };
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, host);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let request = request.body(body).with_context(|| format!("`{path}` is not a path"))?;
        match self {
            Address::Socket(socket) => {
                let stream = UnixStream::connect(socket).await;
                let stream = stream.with_context(|| format!("no router answers at {self}"))?;
                exchange(stream, request).await
            }
            Address::Http(host, _) => {
                let stream = TcpStream::connect(host).await;
                let stream = stream.with_context(|| format!("no router answers at {self}"))?;
                exchange(stream, request).await
            }
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Socket(path) => write!(f, "{}", path.display()),
            Address::Http(host, _) => write!(f, "http://{host}"),
        }
    }
}

impl Reply {
    /// The body, if the answer is yes.
    ///
    /// # Errors
    /// With the line that came instead.
    pub fn success(self) -> Result<Vec<u8>> {
        match self.status {
            200..=299 => Ok(self.body),
            _ => Err(anyhow!("{}", error_line(&self.body))),
        }
    }
}

/// The line of an answer that is an error.
fn error_line(body: &[u8]) -> String {
    let line = serde_json::from_slice::<super::answer::ErrorLine>(body).map(|reply| reply.error);
    line.unwrap_or_else(|_| "the router refused, and did not say why".to_owned())
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.context("the server does not speak HTTP")?;
    tokio::spawn(connection);
    sender.send_request(request).await.context("the router did not answer")
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.context("cannot start a client")
}
