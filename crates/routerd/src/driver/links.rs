//! Links that go and come, and devices that fail.

use super::super::control::messages::Level;
use super::{Driver, Presence};
use crate::recording::Command;
use nilometer_linux::port::{PortError, PortIo};

impl Driver {
    /// A device has failed.
    pub(super) fn device_failed(&mut self, number: usize, failure: &PortError) {
        match failure {
            PortError::Gone { .. } => self.detach(number),
            PortError::Down { .. } => self.set_presence(number, Presence::Down),
            PortError::System { .. } => {
                let name = self.port_name(number);
                self.say(Level::Error, format!("port {name}: {failure}; its device is closed"));
                self.detach(number);
            }
        }
    }

    /// Informs the router of a change.
    pub(super) fn set_presence(&mut self, number: usize, presence: Presence) {
        let before = std::mem::replace(&mut self.slots[number].presence, presence);
        if before != presence {
            self.slots[number].is_blocked = false;
            self.distrust();
            let name = self.port_name(number).to_owned();
            self.say(Level::Info, format!("port {name} is {}", presence.name()));
            // A port that is not plugged in has no link to report.
            let is_up = presence == Presence::Up;
            let _ = self.change(
                || Command::Link { port: number, is_up },
                |now, router, mut memory| _ = router.set_link(now, number, is_up, &mut memory),
            );
            if let Some(watcher) = &self.watcher {
                let _ = watcher.send((number, presence));
            }
            let failed = self.slots[number].beside.as_ref().map(|beside| beside.set_carrier(is_up));
            if let Some(Err(failure)) = failed {
                self.say(Level::Warning, format!("port {name}: {failure}"));
            }
        }
    }

    /// The display name of port `number`. Panics where there is no such port.
    pub fn port_name(&self, number: usize) -> &str {
        &self.router.ports()[number].plan().name
    }

    /// Checks whether the link of port `number` is up. Panics where there is no such port.
    pub fn look_at_link(&mut self, number: usize) {
        let Some(device) = &self.slots[number].device else { return };
        match device.link_is_up() {
            Ok(true) => self.set_presence(number, Presence::Up),
            Ok(false) => self.set_presence(number, Presence::Down),
            Err(failure) => self.device_failed(number, &failure),
        }
    }
}
