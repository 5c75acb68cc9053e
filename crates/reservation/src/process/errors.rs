//! Errors: PathErr on its way to the sender, ResvErr on its way to receivers, and blockades (RFC 2205, 2.5 and 3.11).

use nilometer_wire::Time;

use crate::message::{ErrorCode, ErrorSpec, FlowDescriptor, Message, Path, PathErr, ResvErr};
use crate::process::node::Node;
use crate::process::outcome::{Discard, Upcall};
use crate::process::routing::NextHop;
use crate::process::state::{Blockade, Place, ResvState, SessionState};
use crate::process::{Arrival, RsvpProcess};

/// Kb: a blockade lasts as many refresh periods.
const BLOCKADE_PERIODS: u64 = 3;

impl RsvpProcess {
    /// A path is refused: its previous hop has a PathErr.
    pub(super) fn refuse_path(&mut self, arrival: &Arrival, path: &Path, error: ErrorCode) {
        let hop = path.hop.address;
        let error = ErrorSpec::new(self.node.hop(arrival.port, hop).address, error);
        let (session, sender, tspec) = (path.session, path.sender, path.tspec);
        let refused = PathErr { session, error, sender, tspec };
        let to = NextHop { port: arrival.port, address: hop };
        self.node.send(to, &Message::PathErr(refused));
    }

    /// Passes a PathErr on to the sender. State is unchanged.
    pub(super) fn receive_path_err(&mut self, refused: &PathErr) -> Result<(), Discard> {
        let PathErr { session, error, sender, .. } = *refused;
        let state = self.sessions.get(&session).ok_or(Discard::Unknown)?;
        let path = state.paths.iter().find(|path| path.sender == sender);
        let previous = path.ok_or(Discard::Unknown)?.previous;
        match previous.port {
            None => self.node.upcall(Upcall::PathError { session, sender, error }),
            Some(port) => {
                let to = NextHop { port, address: previous.hop.address };
                self.node.send(to, &Message::PathErr(refused.clone()));
            }
        }
        Ok(())
    }

    /// Passes a ResvErr on to the receivers whose reservations are not smaller than what failed. After an admission
    /// failure, it leaves blockade state, so that smaller reservations are not lost with it.
    pub(super) fn receive_resv_err(
        &mut self,
        now: Time,
        arrival: &Arrival,
        refused: &ResvErr,
    ) -> Result<(), Discard> {
        let state = self.sessions.get_mut(&refused.session).ok_or(Discard::Unknown)?;
        let period = self.node.settings.refresh;
        let senders = &refused.flow.senders;
        let failed = refused.flow.flowspec;
        let mut is_known = false;
        for path in &mut state.paths {
            let is_named = senders.is_empty() || senders.contains(&path.sender);
            if path.previous.port != Some(arrival.port) || !is_named {
                continue;
            }
            is_known = true;
            if refused.error.error.is_admission_failure() {
                let until = now + period * BLOCKADE_PERIODS;
                path.blockade = Some(Blockade { flowspec: failed, until });
            }
        }
        if !is_known {
            return Err(Discard::Unknown);
        }
        let is_concerned = |resv: &&ResvState| {
            resv.style == refused.style
                && (senders.is_empty() || senders.iter().any(|sender| resv.is_for(sender)))
        };
        let concerned: alloc::vec::Vec<&ResvState> =
            state.resvs.iter().filter(is_concerned).collect();
        let any_covers = concerned.iter().any(|resv| resv.flowspec.covers(&failed));
        for resv in concerned {
            if any_covers && !resv.flowspec.covers(&failed) {
                continue;
            }
            let mut error = refused.error;
            error.is_not_guilty |= resv.flowspec != failed;
            state.refuse(&mut self.node, resv, error);
        }
        state.send_upstream(now, &mut self.node, None);
        Ok(())
    }
}

impl SessionState {
    /// A reservation is refused: its next hop has a ResvErr, or the local receiver an upcall.
    pub(super) fn refuse(&self, node: &mut Node, resv: &ResvState, error: ErrorSpec) {
        let (session, style) = (self.session, resv.style);
        let flow = FlowDescriptor { flowspec: resv.flowspec, senders: resv.senders.clone() };
        match resv.place {
            Place::Local => node.upcall(Upcall::ResvError { session, error, flow }),
            Place::Port(port) => {
                let hop = node.hop(port, resv.next_hop);
                let refused = ResvErr { session, hop, error, style, flow };
                let to = NextHop { port, address: resv.next_hop };
                node.send(to, &Message::ResvErr(refused));
            }
        }
    }
}
