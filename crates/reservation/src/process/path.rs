//! Path state: made by Path messages, routed and pinned, passed on to the next hops, and ended by tears.

use nilometer_wire::Time;

use crate::message::{Message, Path, PathTear, Sender, Session};
use crate::process::node::Node;
use crate::process::outcome::{Discard, Upcall};
use crate::process::routing::{Onward, Routing, onward};
use crate::process::settings::RoutePinning;
use crate::process::state::{PathState, Previous, SessionState};
use crate::process::{Arrival, RsvpProcess};

impl RsvpProcess {
    /// A Path arrived from a previous hop.
    pub(super) fn receive_path(
        &mut self,
        now: Time,
        arrival: &Arrival,
        path: Path,
        routing: &impl Routing,
    ) -> Result<(), Discard> {
        if self.node.is_own(path.hop.address) {
            return Err(Discard::OwnHop);
        }
        let ttl = arrival.ttl.checked_sub(1).ok_or(Discard::Ttl)?;
        let input = Some(arrival.port);
        let is_own = |address| self.node.is_own(address);
        let destination = path.session.destination;
        let way = onward(routing, destination, path.route.as_ref(), input, is_own);
        let way = match way {
            Ok(way) => way,
            Err(error) => {
                self.refuse_path(arrival, &path, error);
                return Err(Discard::Refused);
            }
        };
        let Path { session, hop, refresh_ms, route, sender, tspec, adspec } = path;
        let state = PathState {
            sender,
            tspec,
            adspec,
            previous: Previous { port: input, hop },
            route,
            onward_route: way.route,
            is_local: way.is_local,
            outputs: way.outputs,
            ttl,
            expires_at: Some(self.node.expires_at(now, refresh_ms)),
            refresh_at: Time::ZERO,
            blockade: None,
        };
        self.store_path(now, session, state)
    }

    /// Stores path state, replacing that of the same sender; new or changed state is forwarded at once.
    pub(super) fn store_path(
        &mut self,
        now: Time,
        session: Session,
        new: PathState,
    ) -> Result<(), Discard> {
        let is_room = self.sessions.len() < self.node.settings.sessions_max;
        if !is_room && !self.sessions.contains_key(&session) {
            return Err(Discard::Limit);
        }
        let state = self.sessions.entry(session).or_insert_with(|| SessionState::new(session));
        state.store_path(now, new, &mut self.node)
    }

    /// A previous hop tears its path down.
    pub(super) fn receive_path_tear(
        &mut self,
        now: Time,
        arrival: &Arrival,
        tear: &PathTear,
    ) -> Result<(), Discard> {
        let state = self.sessions.get_mut(&tear.session).ok_or(Discard::Unknown)?;
        // Of another previous hop it is stale: the path has moved since.
        let is_it = |path: &PathState| {
            let Previous { port, hop } = path.previous;
            path.sender == tear.sender && (port, hop) == (Some(arrival.port), tear.hop)
        };
        let at = state.paths.iter().position(is_it).ok_or(Discard::Unknown)?;
        state.end_path(now, at, &mut self.node);
        Ok(())
    }

    /// The routing table has changed: paths that are not pinned follow it (local repair, RFC 2205, 3.6).
    pub fn routes_changed(&mut self, now: Time, routing: &impl Routing) {
        self.next_at = None;
        for state in self.sessions.values_mut() {
            let destination = state.session.destination;
            for at in 0..state.paths.len() {
                let path = &state.paths[at];
                let is_own = |address| self.node.is_own(address);
                let (route, input) = (path.route.as_ref(), path.previous.port);
                // Without a route the path stays, until its next refresh is refused.
                let Ok(way) = onward(routing, destination, route, input, is_own) else { continue };
                let mut new = path.clone();
                let Onward { is_local, outputs, route } = way;
                (new.is_local, new.outputs, new.onward_route) = (is_local, outputs, route);
                // There is room: it was there before.
                let _ = state.store_path(now, new, &mut self.node);
            }
        }
    }
}

impl SessionState {
    fn store_path(
        &mut self,
        now: Time,
        mut new: PathState,
        node: &mut Node,
    ) -> Result<(), Discard> {
        let at = self.paths.iter().position(|path| path.sender == new.sender);
        let is_changed = match at {
            None if self.paths.len() >= node.settings.states_max => return Err(Discard::Limit),
            None => {
                self.paths.push(new);
                true
            }
            Some(at) => {
                let old = &self.paths[at];
                if self.is_pinned(old, &new, node) {
                    new.outputs.clone_from(&old.outputs);
                    new.onward_route.clone_from(&old.onward_route);
                    new.is_local = old.is_local;
                }
                (new.refresh_at, new.blockade) = (old.refresh_at, old.blockade);
                let expires_at = old.expires_at;
                let is_changed = PathState { expires_at, ..new.clone() } != *old;
                self.paths[at] = new;
                is_changed
            }
        };
        if is_changed {
            let at = at.unwrap_or(self.paths.len() - 1);
            self.paths[at].refresh_at = node.refresh_at(now);
            let path = &self.paths[at];
            send_path(&self.session, path, node);
            if path.is_local {
                let (session, sender, tspec) = (self.session, path.sender, path.tspec);
                node.upcall(Upcall::Path { session, sender, tspec });
            }
            self.settle_or_drop(now, node);
        }
        Ok(())
    }

    /// Whether a path stays as it is although the routing table may have changed.
    fn is_pinned(&self, old: &PathState, new: &PathState, node: &Node) -> bool {
        let is_reserved = node.settings.pinning == RoutePinning::Reserved
            && self.installed.iter().any(|i| i.wanted.senders.contains(&old.sender));
        old.route == new.route
            && old.previous.port == new.previous.port
            && (old.route.is_some() || is_reserved)
    }

    /// Ends one path, with what was reserved for it, and notifies its next hops.
    pub(super) fn end_path(&mut self, now: Time, at: usize, node: &mut Node) {
        let path = self.paths.remove(at);
        let PathState { sender, tspec, is_local, .. } = path;
        let session = self.session;
        for output in &path.outputs {
            let hop = node.hop(output.port, session.destination);
            let tear = PathTear { session, hop, sender, tspec: Some(tspec) };
            let to = (*output, path.ttl);
            node.send_from(sender.source, session.destination, to, &Message::PathTear(tear));
        }
        if is_local {
            node.upcall(Upcall::PathGone { session, sender });
        }
        self.settle_or_drop(now, node);
    }

    /// The path of a sender.
    pub(super) fn path_of(&self, sender: &Sender) -> Option<usize> {
        self.paths.iter().position(|path| path.sender == *sender)
    }
}

/// Sends a Path to the next hops.
pub(super) fn send_path(session: &Session, path: &PathState, node: &mut Node) {
    if path.ttl == 0 {
        return;
    }
    for output in &path.outputs {
        let hop = node.hop(output.port, session.destination);
        let Some(interface) = node.settings.interfaces.get(output.port as usize) else { continue };
        let bandwidth = (interface.capacity.bits_per_second() / 8) as f32;
        // A sender's own node is no hop of the network.
        let adspec = match path.previous.port {
            Some(_) => path.adspec.map(|adspec| adspec.through(bandwidth, interface.mtu_bytes)),
            None => path.adspec,
        };
        let message = Message::Path(Path {
            session: *session,
            hop,
            refresh_ms: node.refresh_ms(),
            route: path.onward_route.clone(),
            sender: path.sender,
            tspec: path.tspec,
            adspec,
        });
        let to = (*output, path.ttl);
        node.send_from(path.sender.source, session.destination, to, &message);
    }
}
