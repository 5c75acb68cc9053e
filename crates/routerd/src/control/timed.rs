//! A connection whose peer must read what is written to it.
//!
//! Bytes that a peer does not read wait in the kernel, as many as the socket's buffer holds
//! ([`SOCKET_BYTES`] by TCP), and then here. A peer that reads none of them for [`TAKEN_WITHIN`] is given
//! up. The kernel reports room only when a third of its buffer is free, so that a peer that reads one
//! byte now and then gains nothing. An abandoned connection is reset, so that the kernel keeps nothing
//! for it.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::connection_table::{Ended, Place};

/// How long a peer may read none of the bytes that wait for it.
pub const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// Bytes that the kernel holds of a connection by TCP in each direction; it doubles them for its own.
pub const SOCKET_BYTES: usize = 64 << 10;

/// A stream with a limit on writing, which notes when bytes move.
pub struct Timed<S: AsFd> {
    stream: S,
    place: Arc<Place>,
    /// When the peer is given up, while it reads nothing.
    limit: Option<Pin<Box<Sleep>>>,
}

impl<S: AsFd> Timed<S> {
    /// The stream of the connection that has this place.
    pub fn new(stream: S, place: Arc<Place>) -> Timed<S> {
        Timed { stream, place, limit: None }
    }

    /// The result of a write that returned `written`.
    fn limited(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<Result<usize>>,
    ) -> Poll<Result<usize>> {
        if written.is_ready() {
            self.limit = None;
            self.place.moved();
            return written;
        }
        let limit = self.limit.get_or_insert_with(|| Box::pin(sleep(TAKEN_WITHIN)));
        ready!(limit.as_mut().poll(context));
        self.place.life.end(Ended::Stalled);
        Poll::Ready(Err(Error::from(ErrorKind::TimedOut)))
    }
}

impl<S: AsFd> Drop for Timed<S> {
    fn drop(&mut self) {
        if self.place.life.is_given_up() {
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl<S: AsyncRead + Unpin + AsFd> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = to.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, to);
        if to.filled().len() > before {
            self.place.moved();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin + AsFd> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limited(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.limited(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
