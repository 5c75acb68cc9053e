//! What the sources of routes tell the one who owns the routing table, and how they are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use nilometer_router::{RouteBatch, RouteUpdate, Source};

use nilometer_linux::namespace::Namespace;

/// How long a source waits before it looks again whether it is to stop.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// Where a source tells its news, as long as somebody listens and it is not to stop.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    news: SyncSender<RouteBatch>,
    stop: Arc<AtomicBool>,
}

/// Nobody listens any more, or the source is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Over;

impl Outlet {
    pub(super) fn new(news: SyncSender<RouteBatch>) -> Outlet {
        Outlet { news, stop: Arc::new(AtomicBool::new(false)) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits while the listener is behind; whoever speaks to us then waits, too.
    fn tell(&self, mut news: RouteBatch) -> Result<(), Over> {
        while !self.is_over() {
            news = match self.news.try_send(news) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(Over),
                Err(TrySendError::Full(news)) => news,
            };
            thread::sleep(Duration::from_millis(1));
        }
        Err(Over)
    }

    pub(super) fn tell_routes(
        &self,
        source: Source,
        updates: Vec<RouteUpdate>,
    ) -> Result<(), Over> {
        if updates.is_empty() {
            return Ok(());
        }
        self.tell(RouteBatch { source, updates })
    }
}

/// Does something in a namespace, or in the caller's: opens sockets, which stay there.
pub(super) fn within<T: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    match namespace {
        Some(namespace) => namespace.enter(work),
        None => work(),
    }
}

/// A source's thread; dropped, it is told to stop and waited for.
#[derive(Debug)]
pub(super) struct Running {
    outlet: Outlet,
    thread: Option<JoinHandle<Result<(), Over>>>,
}

impl Running {
    /// Starts a thread that works until its outlet is over.
    pub(super) fn start(
        name: &str,
        outlet: Outlet,
        work: impl FnOnce() -> Result<(), Over> + Send + 'static,
    ) -> Result<Running> {
        let thread = thread::Builder::new().name(name.into()).spawn(work);
        let thread = thread.with_context(|| format!("cannot start the thread {name:?}"))?;
        Ok(Running { outlet, thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.outlet.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed, and there is nobody here to pass it to.
            let _ = thread.join();
        }
    }
}
