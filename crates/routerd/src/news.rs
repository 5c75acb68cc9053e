//! What the sources of routes tell the one who owns the routing table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use nilometer_router::{RouteBatch, RouteUpdate, Source};

use nilometer_linux::namespace::Namespace;

/// How long a source waits before it looks again whether it is to stop.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// Where a source tells its news, as long as somebody listens and it is not to stop.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    news: SyncSender<RouteBatch>,
    pub(super) stop: Arc<AtomicBool>,
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
