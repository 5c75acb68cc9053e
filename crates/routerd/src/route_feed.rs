//! The feed by which sources of routes hand their updates to the RIB thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use nilometer_router::{RouteBatch, RouteUpdate, Source};

use nilometer_linux::namespace::Namespace;

/// How often a source checks whether it is to stop.
pub(super) const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Where a source sends its updates, as long as the RIB thread receives them and the source is not to stop.
#[derive(Debug, Clone)]
pub(super) struct RouteFeed {
    batches: SyncSender<RouteBatch>,
    pub(super) stop: Arc<AtomicBool>,
}

/// The RIB thread receives no more, or the source is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed;

impl RouteFeed {
    pub(super) fn new(batches: SyncSender<RouteBatch>) -> RouteFeed {
        RouteFeed { batches, stop: Arc::new(AtomicBool::new(false)) }
    }

    pub(super) fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Blocks while the channel is full, which puts back-pressure on the peer.
    fn send(&self, mut batch: RouteBatch) -> Result<(), Closed> {
        while !self.should_stop() {
            batch = match self.batches.try_send(batch) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(Closed),
                Err(TrySendError::Full(batch)) => batch,
            };
            thread::sleep(Duration::from_millis(1));
        }
        Err(Closed)
    }

    pub(super) fn send_routes(
        &self,
        source: Source,
        updates: Vec<RouteUpdate>,
    ) -> Result<(), Closed> {
        if updates.is_empty() {
            return Ok(());
        }
        self.send(RouteBatch { source, updates })
    }
}

/// Runs `work` in `namespace`, or in the caller's; sockets that it opens stay in that namespace.
pub(super) fn in_namespace<T: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    match namespace {
        Some(namespace) => namespace.enter(work),
        None => work(),
    }
}
