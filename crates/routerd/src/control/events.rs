//! Continuous streams: backlogs and rates as they are broadcast, and the body that carries them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::{Answer, Refused};
use super::command_channel::CommandChannel;
use super::fabric_view::snapshot;

/// Streams that may be open at once.
pub const STREAMS_MAX: usize = 8;
/// The least time between two events: 20 a second.
pub const BETWEEN_EVENTS: Duration = Duration::from_millis(50);
/// Events that may wait for a listener.
const EVENTS_WAITING: usize = 4;

/// A body that is written while it is read.
pub struct Stream {
    pieces: Receiver<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    /// A body of `pieces`, which keeps its place among the streams until it ends.
    pub fn new(pieces: Receiver<Bytes>, place: OwnedSemaphorePermit) -> Stream {
        Stream { pieces, _place: place }
    }

    /// The answer that has it.
    pub fn answer(self, kind: &'static str) -> Response {
        let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")];
        (StatusCode::OK, headers, Body::new(self)).into_response()
    }
}

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// A place among the streams.
///
/// # Errors
/// 503 when all are taken.
pub fn place(streams: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refused> {
    let full = |_| Refused::unavailable(format!("{STREAMS_MAX} streams are open; close one"));
    Arc::clone(streams).try_acquire_owned().map_err(full)
}

/// Backlogs and rates, an event for each broadcast that was not sent yet, at most 20 a second.
///
/// # Errors
/// 503 when there are too many streams.
pub fn events(commands: Arc<CommandChannel>, streams: &Arc<Semaphore>) -> Answer {
    let place = place(streams)?;
    let (say, pieces) = channel(EVENTS_WAITING);
    tokio::spawn(async move {
        let mut sent = None;
        // Between two events the only check is whether the client still listens.
        while tokio::time::timeout(BETWEEN_EVENTS, say.closed()).await.is_err() {
            let handle = Arc::clone(&commands);
            let latest = tokio::task::spawn_blocking(move || handle.ask(snapshot)).await;
            let Ok(Ok(latest)) = latest else { return };
            if sent == Some(latest.broadcasts()) && latest.broadcasts() > 0 {
                continue;
            }
            sent = Some(latest.broadcasts());
            let Some(event) = latest.view().ok().and_then(|view| serde_json::to_string(&view).ok())
            else {
                return;
            };
            // A slow listener misses some events, and gets the latest.
            match say.try_send(Bytes::from(format!("event: fabric\ndata: {event}\n\n"))) {
                Err(tokio::sync::mpsc::error::TrySendError::Closed(_)) => return,
                Ok(()) | Err(tokio::sync::mpsc::error::TrySendError::Full(_)) => {}
            }
        }
    });
    Ok(Stream::new(pieces, place).answer("text/event-stream"))
}
