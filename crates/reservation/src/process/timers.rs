//! Timers: state that was not refreshed in time ends, and what this node keeps up is refreshed with jitter.

use nilometer_wire::Time;

use crate::process::RsvpProcess;
use crate::process::node::Node;
use crate::process::path::send_path;
use crate::process::state::SessionState;

fn is_due(at: Option<Time>, now: Time) -> bool {
    at.is_some_and(|at| at <= now)
}

impl RsvpProcess {
    /// Time has passed: ends what has expired and sends what is to be refreshed.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        self.next_at = None;
        for state in self.sessions.values_mut() {
            state.expire(now, &mut self.node);
            state.refresh(now, &mut self.node);
        }
        self.expire_setups(now);
        self.forget_empty();
    }

    /// When something is due next.
    pub(super) fn earliest(&self) -> Option<Time> {
        let sessions = self.sessions.values().filter_map(SessionState::next_at);
        sessions.chain(self.next_setup_at()).min()
    }
}

impl SessionState {
    fn expire(&mut self, now: Time, node: &mut Node) {
        while let Some(at) = self.paths.iter().position(|path| is_due(path.expires_at, now)) {
            node.counts.expired += 1;
            self.end_path(now, at, node);
        }
        let before = self.resvs.len();
        self.resvs.retain(|resv| !is_due(resv.expires_at, now));
        let ended = before - self.resvs.len();
        let mut is_changed = ended > 0;
        node.counts.expired += ended as u64;
        for path in &mut self.paths {
            if is_due(path.blockade.map(|blockade| blockade.until), now) {
                path.blockade = None;
                is_changed = true;
            }
        }
        if is_changed {
            self.settle_or_drop(now, node);
        }
    }

    fn refresh(&mut self, now: Time, node: &mut Node) {
        for path in &mut self.paths {
            if path.refresh_at <= now {
                path.refresh_at = node.refresh_at(now);
                send_path(&self.session, path, node);
            }
        }
        for at in 0..self.sent.len() {
            if self.sent[at].refresh_at <= now {
                self.sent[at].refresh_at = node.refresh_at(now);
                // Local senders know already.
                if self.sent[at].previous.port.is_some() {
                    let sent = self.sent[at].clone();
                    self.send_resv(node, &sent, None);
                }
            }
        }
    }
}
