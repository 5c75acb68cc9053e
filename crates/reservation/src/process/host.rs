//! Senders and receivers on this node: the interface between applications and RSVP (RFC 2205, 3.11.1).

use core::net::IpAddr;

use alloc::vec::Vec;

use nilometer_wire::Time;
use thiserror::Error;

use crate::message::{
    AdSpec, ErrorCode, ExplicitRoute, FlowDescriptor, Sender, Session, Style, Tspec,
};
use crate::process::RsvpProcess;
use crate::process::node::TTL;
use crate::process::outcome::Discard;
use crate::process::routing::{Routing, onward};
use crate::process::state::{PathState, Place, Previous, ResvState};

/// Why a sender or receiver on this node was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// There is no route to the session's destination, or the explicit route is wrong.
    #[error("no path: {0}")]
    Route(ErrorCode),
    /// A limit of this process is reached.
    #[error("a limit is reached: {0}")]
    Limit(Discard),
    /// No sender of the session has a path to this node.
    #[error("no sender of the session has a path to this node")]
    NoPath,
    /// The reservation was refused; an upcall says why.
    #[error("the reservation was refused")]
    Refused,
}

impl RsvpProcess {
    /// SENDER: a sender on this node announces its flow, by the nodes of `route` if there are any.
    ///
    /// # Errors
    /// If there is no route, or a limit is reached.
    pub fn announce(
        &mut self,
        now: Time,
        session: Session,
        (sender, tspec): (Sender, Tspec),
        route: Option<ExplicitRoute>,
        routing: &impl Routing,
    ) -> Result<(), HostError> {
        self.next_at = None;
        let is_own = |address| self.node.is_own(address);
        let way = onward(routing, session.destination, route.as_ref(), None, is_own);
        let way = way.map_err(HostError::Route)?;
        let port = way.outputs.first().map_or(0, |output| output.port);
        let hop = self.node.hop(port, session.destination);
        let state = PathState {
            sender,
            tspec,
            adspec: Some(AdSpec::NEW),
            previous: Previous { port: None, hop },
            route,
            onward_route: way.route,
            is_local: way.is_local,
            outputs: way.outputs,
            ttl: TTL,
            expires_at: None,
            refresh_at: Time::ZERO,
            blockade: None,
        };
        self.store_path(now, session, state).map_err(HostError::Limit)
    }

    /// A sender on this node ends its flow; whether there was one.
    pub fn withdraw(&mut self, now: Time, session: Session, sender: Sender) -> bool {
        self.next_at = None;
        let Some(state) = self.sessions.get_mut(&session) else { return false };
        let at = state.path_of(&sender).filter(|at| state.paths[*at].previous.port.is_none());
        if let Some(at) = at {
            state.end_path(now, at, &mut self.node);
        }
        self.forget_empty();
        at.is_some()
    }

    /// RESERVE: a receiver on this node reserves for the senders of a session, replacing its
    /// earlier reservation.
    ///
    /// # Errors
    /// If no path has arrived here, or this node itself refuses.
    pub fn reserve(
        &mut self,
        now: Time,
        session: Session,
        style: Style,
        flows: Vec<FlowDescriptor>,
        wants_confirmation: bool,
    ) -> Result<(), HostError> {
        self.next_at = None;
        let own = self.node.any_address(session.destination);
        let state = self.sessions.get_mut(&session).ok_or(HostError::NoPath)?;
        let is_kept = |resv: &ResvState| {
            let is_again = resv.style == style && flows.iter().any(|f| f.senders == resv.senders);
            resv.place != Place::Local || is_again
        };
        state.resvs.retain(is_kept);
        let mut verdict = Ok(());
        for FlowDescriptor { flowspec, senders } in flows {
            let (place, next_hop, expires_at) = (Place::Local, own, None);
            let resv = ResvState { place, next_hop, style, senders, flowspec, expires_at };
            verdict = state.reserve(resv, &mut self.node).and(verdict);
        }
        let confirm: Option<IpAddr> = wants_confirmation.then_some(own);
        state.send_upstream(now, &mut self.node, confirm.map(|receiver| (receiver, None)));
        verdict.map_err(|_| HostError::Refused)
    }

    /// A receiver on this node releases its reservations of a session; returns whether there were any.
    pub fn release(&mut self, now: Time, session: Session) -> bool {
        self.next_at = None;
        let Some(state) = self.sessions.get_mut(&session) else { return false };
        let before = state.resvs.len();
        state.resvs.retain(|resv| resv.place != Place::Local);
        let is_fewer = state.resvs.len() < before;
        state.settle_or_drop(now, &mut self.node);
        self.forget_empty();
        is_fewer
    }

    /// This node receives a group.
    pub fn join(&mut self, group: IpAddr) {
        if !self.node.groups.contains(&group) {
            self.node.groups.push(group);
        }
    }
}
