//! Reservation state: made by Resv messages that admission accepts, and ended by tears.

use alloc::vec::Vec;

use nilometer_wire::Time;

use crate::message::{ErrorCode, ErrorSpec, FlowDescriptor, Resv, ResvTear, Sender, Style};
use crate::process::node::Node;
use crate::process::outcome::{Discard, Upcall};
use crate::process::routing::NextHop;
use crate::process::settle::Unbooked;
use crate::process::state::{PathState, Place, ResvState, SessionState};
use crate::process::{Arrival, RsvpProcess};

impl RsvpProcess {
    /// A Resv arrived from a next hop.
    pub(super) fn receive_resv(
        &mut self,
        now: Time,
        arrival: &Arrival,
        resv: Resv,
    ) -> Result<(), Discard> {
        if self.node.is_own(resv.hop.address) {
            return Err(Discard::OwnHop);
        }
        if resv.hop.handle as usize >= self.node.settings.interfaces.len() {
            return Err(Discard::Handle);
        }
        let (place, next_hop) = (Place::Port(resv.hop.handle), resv.hop.address);
        let expires_at = Some(self.node.expires_at(now, resv.refresh_ms));
        let Resv { session, style, flows, confirm, .. } = resv;
        let reserve = |flow: FlowDescriptor| ResvState {
            place,
            next_hop,
            style,
            senders: flow.senders,
            flowspec: flow.flowspec,
            expires_at,
        };
        let Some(state) = self.sessions.get_mut(&session) else {
            let lost = SessionState::new(session);
            let error = ErrorSpec::new(self.node.any_address(next_hop), ErrorCode::NO_PATH);
            flows.into_iter().for_each(|flow| lost.refuse(&mut self.node, &reserve(flow), error));
            return Err(Discard::Refused);
        };
        let mut verdict = Ok(());
        for flow in flows {
            verdict = state.reserve(reserve(flow), &mut self.node).and(verdict);
        }
        let from = NextHop { port: arrival.port, address: next_hop };
        let confirm = confirm.filter(|_| verdict.is_ok()).map(|receiver| (receiver, Some(from)));
        state.send_upstream(now, &mut self.node, confirm);
        verdict
    }

    /// A next hop tears reservations down.
    pub(super) fn receive_resv_tear(&mut self, now: Time, tear: &ResvTear) -> Result<(), Discard> {
        let state = self.sessions.get_mut(&tear.session).ok_or(Discard::Unknown)?;
        let place = Place::Port(tear.hop.handle);
        let mut is_known = false;
        state.resvs.retain_mut(|resv| {
            let is_it =
                (resv.place, resv.next_hop, resv.style) == (place, tear.hop.address, tear.style);
            if !is_it {
                return true;
            }
            if resv.style == Style::WildcardFilter {
                is_known = true;
                return false;
            }
            let before = resv.senders.len();
            resv.senders.retain(|sender| !tear.senders.contains(sender));
            is_known |= resv.senders.len() < before;
            !resv.senders.is_empty()
        });
        if !is_known {
            return Err(Discard::Unknown);
        }
        state.settle_or_drop(now, &mut self.node);
        Ok(())
    }
}

impl SessionState {
    /// Stores a reservation, replacing the next hop's earlier one. If it is refused nothing changes, and the next hop
    /// gets a ResvErr.
    pub(super) fn reserve(&mut self, mut new: ResvState, node: &mut Node) -> Result<(), Discard> {
        let whole = new.clone();
        if self.resvs.iter().any(|resv| resv.style != new.style) {
            return self.refused(node, &whole, ErrorCode::CONFLICTING_STYLE, false);
        }
        let is_there = |path: &&PathState| path.leaves_by(new.place);
        let mut paths = self.paths.iter().filter(is_there).peekable();
        if paths.peek().is_none() {
            return self.refused(node, &whole, ErrorCode::NO_PATH, false);
        }
        let known: Vec<_> = paths.map(|path| path.sender).collect();
        let has_path = |sender: &Sender| known.contains(sender);
        if !whole.senders.iter().any(has_path) && new.style != Style::WildcardFilter {
            return self.refused(node, &whole, ErrorCode::NO_SENDER, false);
        }
        if new.place != Place::Local {
            new.senders.retain(has_path);
        }
        let is_fixed = new.style == Style::FixedFilter;
        let old = self.resvs.iter_mut().find(|resv| {
            let is_one = !is_fixed || resv.senders == new.senders;
            (resv.place, resv.next_hop) == (new.place, new.next_hop) && is_one
        });
        if let Some(old) = old {
            if (&old.senders, old.flowspec) == (&new.senders, new.flowspec) {
                old.expires_at = new.expires_at;
                return Ok(());
            }
            let before = core::mem::replace(old, new.clone());
            return match self.settle(node) {
                Ok(()) => Ok(()),
                Err(unbooked) => {
                    // The old one stays in place, and this message refreshes it.
                    let expires_at = new.expires_at;
                    let at = self.resvs.iter().position(|resv| *resv == new);
                    let at = at.expect("it was put there");
                    self.resvs[at] = ResvState { expires_at, ..before };
                    self.not_admitted(node, &whole, &unbooked, true)
                }
            };
        }
        if self.resvs.len() >= node.settings.states_max {
            return self.refused(node, &whole, ErrorCode::SYSTEM_LIMIT, false);
        }
        self.resvs.push(new);
        match self.settle(node) {
            Ok(()) => Ok(()),
            Err(unbooked) => {
                self.resvs.pop();
                self.not_admitted(node, &whole, &unbooked, false)
            }
        }
    }

    fn not_admitted(
        &self,
        node: &mut Node,
        resv: &ResvState,
        unbooked: &Unbooked,
        is_in_place: bool,
    ) -> Result<(), Discard> {
        node.counts.admission_refused += 1;
        node.upcall(Upcall::Refused { session: self.session, why: unbooked.why });
        self.refused(node, resv, ErrorCode::BANDWIDTH_UNAVAILABLE, is_in_place)
    }

    fn refused(
        &self,
        node: &mut Node,
        resv: &ResvState,
        error: ErrorCode,
        is_in_place: bool,
    ) -> Result<(), Discard> {
        let address = match resv.place {
            Place::Port(port) => node.hop(port, resv.next_hop).address,
            Place::Local => node.any_address(resv.next_hop),
        };
        let error = ErrorSpec { is_in_place, ..ErrorSpec::new(address, error) };
        self.refuse(node, resv, error);
        Err(Discard::Refused)
    }
}
