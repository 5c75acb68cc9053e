//! Ports whose interfaces come and go: their next hops, and their devices.
//!
//! A thread beside the forwarding one is notified of ports that come and go. It fails the next hops of
//! ports that go, and restores those of ports that come. Twice a second it checks whether the interface
//! of a missing port is back; then the device is opened between two turns, which takes some
//! milliseconds, for which the packets of the other ports wait in their rings.

use nilometer_files::say;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};
use nilometer_router::next_hop::Point;

use super::assemble::reopen;
use super::config::RouterConfig;
use super::driver::{Driver, Presence, Remote};
use super::routes::Routes;
use nilometer_linux::netlink::Netlink;

/// How often missing interfaces are checked.
const LOOK: Duration = Duration::from_millis(500);

/// What the thread has.
pub(super) struct Watcher {
    pub(super) routes: Arc<Routes>,
    pub(super) remote: Remote,
    pub(super) config: RouterConfig,
    pub(super) allow_foreign: bool,
}

impl Watcher {
    /// Watches until the driver, which sends, has ended. Interfaces are those of the calling thread's
    /// namespace.
    pub(super) fn run(&self, changes: &Receiver<(usize, Presence)>) {
        // With the last reason why they could not be opened.
        let mut gone: BTreeMap<usize, String> = BTreeMap::new();
        loop {
            match changes.recv_timeout(LOOK) {
                Ok((number, presence)) => {
                    self.follow(number, presence);
                    match presence {
                        Presence::Gone => gone.insert(number, String::new()),
                        Presence::Up | Presence::Down => gone.remove(&number),
                    };
                }
                Err(RecvTimeoutError::Timeout) => {
                    for (&number, reported) in &mut gone {
                        self.look_for(number, reported);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn follow(&self, number: usize, presence: Presence) {
        let (rib, point) = (self.routes.rib_thread(), Point::Port(number as u16));
        match presence {
            Presence::Up => rib.restore(point),
            Presence::Down | Presence::Gone => rib.fail(point),
        };
    }

    /// Opens the device of a port again if its interface is there; reports once why it cannot be
    /// opened.
    fn look_for(&self, number: usize, reported: &mut String) {
        let Some(port) = self.config.ports.get(number) else { return };
        let is_there =
            Netlink::open().is_ok_and(|mut netlink| netlink.link(&port.interface).is_ok());
        if !is_there {
            return;
        }
        let why = self.open(number).err().map_or(String::new(), |why| format!("{why:#}"));
        if !why.is_empty() && why != *reported {
            say!("port {} cannot be opened again: {why}", port.interface);
        }
        *reported = why;
    }

    fn open(&self, number: usize) -> Result<()> {
        let (config, allow_foreign) = (self.config.clone(), self.allow_foreign);
        let work = move |driver: &mut Driver| reopen(driver, &config, number, allow_foreign);
        if let Some(warning) = self.remote.call(work)?? {
            say!("warning: {warning}");
        }
        // Its TAP was made anew.
        self.routes.know(&self.config, number).context("its TAP")
    }
}
