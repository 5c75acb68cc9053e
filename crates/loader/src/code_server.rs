//! The code server: a directory of artefacts by HTTP, its index and nothing else.
//!
//! It is read-only, trusts no client, and need not be trusted: what it sends is signed. Connections are bounded in
//! number and in time.

use std::convert::Infallible;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use nilometer_linux::system_file::within;
use tokio::sync::Semaphore;

use crate::artefact::ARTEFACT_BYTES_MAX;
use crate::index::{INDEX, INDEX_BYTES_MAX, is_artefact_name};

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// How long a request's header may take, and a connection.
const HEADER_WITHIN: Duration = Duration::from_secs(5);
const CONNECTION_WITHIN: Duration = Duration::from_secs(60);
/// How often it is looked whether it should end.
const LOOKS: Duration = Duration::from_millis(100);

/// Serves a directory until `stop`; each request is handed to `seen` with its status.
///
/// # Errors
/// When it cannot begin.
pub fn serve(
    directory: &Path,
    listener: TcpListener,
    stop: &AtomicBool,
    seen: impl Fn(&str, u16) + Send + Sync + 'static,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start a server")?;
    listener.set_nonblocking(true).context("cannot listen")?;
    let (directory, seen) = (Arc::new(directory.to_owned()), Arc::new(seen));
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).context("cannot listen")?;
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        while !stop.load(Ordering::Relaxed) {
            let accepted = tokio::time::timeout(LOOKS, listener.accept()).await;
            let Ok(Ok((stream, _))) = accepted else { continue };
            // One too many is closed at once.
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
            let (directory, seen) = (Arc::clone(&directory), Arc::clone(&seen));
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let answer = answer(&directory, &request);
                    seen(request.uri().path(), answer.status().as_u16());
                    async { Ok::<_, Infallible>(answer) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_WITHIN)
                    .serve_connection(TokioIo::new(stream), service);
                let _ = tokio::time::timeout(CONNECTION_WITHIN, connection).await;
                drop(place);
            });
        }
        Ok(())
    })
}

fn answer(directory: &Path, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return refusal(StatusCode::METHOD_NOT_ALLOWED);
    }
    let file = request.uri().path().trim_start_matches('/');
    let (file, bytes_max) = match file {
        "" | INDEX => (INDEX, INDEX_BYTES_MAX),
        _ if is_artefact_name(file) => (file, ARTEFACT_BYTES_MAX as u64),
        _ => return refusal(StatusCode::NOT_FOUND),
    };
    let path: PathBuf = directory.join(file);
    // A link would lead out of the directory.
    let is_file = path.symlink_metadata().is_ok_and(|there| there.is_file());
    let opened = File::open(&path).ok().filter(|_| is_file);
    let Some(Ok(Some(bytes))) = opened.map(|file| within(file, bytes_max)) else {
        return refusal(StatusCode::NOT_FOUND);
    };
    let kind = if file == INDEX { "application/json" } else { "application/octet-stream" };
    let mut response = Response::new(Full::new(Bytes::from(bytes)));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{status}\n"))));
    *response.status_mut() = status;
    response
}
