//! The driver's messages about ports and plugins, and their receivers.

use nilometer_files::say;

use super::super::control::messages::{Level, Messages};
use super::Driver;

impl Driver {
    /// Reports what happens to ports to `messages` from now on.
    pub fn set_messages(&mut self, messages: Messages) {
        self.messages = Some(messages);
    }

    pub(super) fn say(&self, level: Level, text: String) {
        match &self.messages {
            Some(messages) => messages.say(level, text),
            None if level <= Level::Warning => say!("{text}"),
            None => {}
        }
    }

    /// What plugins log, and which were cut off.
    pub(super) fn report_plugins(&mut self) {
        if self.router.plugins().has_lines() {
            for line in self.router.plugins_mut().take_lines() {
                self.say(Level::Warning, line);
            }
        }
    }
}
