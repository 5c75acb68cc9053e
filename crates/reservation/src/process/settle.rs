//! Settling: what follows from changed state is compared with what is installed and sent, and the difference made.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::Time;

use crate::admission::{AdmissionError, Booking};
use crate::message::{ErrorCode, ErrorSpec, Hop, Message, Resv, ResvConf, ResvTear, Sender, Style};
use crate::process::merge::{self, Upstream};
use crate::process::node::{Node, TTL};
use crate::process::outcome::{Command, FlowFilter, Owner, Reservation, Upcall};
use crate::process::routing::NextHop;
use crate::process::settings::RoutePinning;
use crate::process::state::{
    Installed, Place, Previous, ResvState, SentResv, SessionState, Wanted,
};

/// What could not be booked, and why.
pub(super) struct Unbooked {
    pub(super) wanted: Wanted,
    pub(super) why: AdmissionError,
}

impl Wanted {
    fn booking(&self, node: &Node) -> Booking {
        let (rate_bytes, _) = node.on_link(self.output.port, &self.flowspec);
        Booking { inputs: self.inputs.clone(), output: self.output.port, rate_bytes }
    }
}

impl SessionState {
    /// Books and installs what the state of the session requires.
    ///
    /// All of it or nothing: if something does not fit, bookings and installations stay as before.
    pub(super) fn settle(&mut self, node: &mut Node) -> Result<(), Box<Unbooked>> {
        let wanted = merge::wanted(self);
        if wanted.iter().eq(self.installed.iter().map(|installed| &installed.wanted)) {
            return Ok(());
        }
        let before = core::mem::take(&mut self.installed);
        before.iter().for_each(|installed| _ = node.admission.release(installed.id));
        let mut after: Vec<Installed> = Vec::new();
        for wanted in wanted {
            let same = before.iter().find(|installed| installed.wanted.is_same(&wanted));
            let id = same.map_or_else(|| node.next_id(), |installed| installed.id);
            let booking = wanted.booking(node);
            if let Err(why) = node.admission.book(id, booking) {
                after.iter().for_each(|installed| _ = node.admission.release(installed.id));
                for installed in &before {
                    let booking = installed.wanted.booking(node);
                    let again = node.admission.book(installed.id, booking);
                    again.expect("what was booked before fits again");
                }
                self.installed = before;
                return Err(Box::new(Unbooked { wanted, why }));
            }
            after.push(Installed { id, wanted });
        }
        self.installed = after;
        self.command(&before, node);
        Ok(())
    }

    /// Orders what changed of the installations.
    fn command(&self, before: &[Installed], node: &mut Node) {
        for old in before {
            if !self.installed.iter().any(|new| new.id == old.id) {
                node.commands.push_back(Command::Remove(old.id));
            }
        }
        for new in &self.installed {
            if !before.contains(new) {
                let reservation = self.reservation(new, node);
                node.commands.push_back(Command::Install(reservation));
            }
        }
    }

    fn reservation(&self, installed: &Installed, node: &Node) -> Reservation {
        let wanted = &installed.wanted;
        let flow = |sender| FlowFilter::new(&self.session, sender);
        let flows = match wanted.style {
            Style::WildcardFilter => Vec::from([flow(None)]),
            _ => wanted.senders.iter().map(|sender| flow(Some(sender))).collect(),
        };
        let is_of = |resv: &&ResvState| wanted.senders.iter().any(|sender| resv.is_for(sender));
        let (rate_bytes, bucket_bytes) = node.on_link(wanted.output.port, &wanted.flowspec);
        let expiries = self.resvs.iter().filter(is_of).map(|resv| resv.expires_at);
        Reservation {
            id: installed.id,
            owner: Owner::Rsvp,
            flows,
            inputs: wanted.inputs.clone(),
            output: wanted.output.port,
            next_hop: wanted.output.address,
            is_pinned: wanted.is_explicit || node.settings.pinning == RoutePinning::Reserved,
            rate_bytes,
            bucket_bytes,
            plugins: None,
            expires_at: expiries.max().flatten(),
        }
    }

    /// What is installed of it.
    pub(super) fn reservations(&self, node: &Node) -> Vec<Reservation> {
        self.installed.iter().map(|installed| self.reservation(installed, node)).collect()
    }

    /// Settles after a change that no receiver caused (a path that came or went). Reservations that do not fit now
    /// are dropped, and their receivers get a ResvErr.
    pub(super) fn settle_or_drop(&mut self, now: Time, node: &mut Node) {
        self.purge();
        while let Err(unbooked) = self.settle(node) {
            let Unbooked { wanted, why } = *unbooked;
            node.counts.admission_refused += 1;
            node.upcall(Upcall::Refused { session: self.session, why });
            let port = Place::Port(wanted.output.port);
            let is_hit = |resv: &ResvState| {
                resv.place == port && wanted.senders.iter().any(|sender| resv.is_for(sender))
            };
            let hit: Vec<ResvState> = self.resvs.iter().filter(|r| is_hit(r)).cloned().collect();
            assert!(!hit.is_empty(), "what is wanted comes from a reservation");
            self.resvs.retain(|resv| !is_hit(resv));
            let node_address = node.any_address(self.session.destination);
            let error = ErrorSpec::new(node_address, ErrorCode::BANDWIDTH_UNAVAILABLE);
            hit.iter().for_each(|resv| self.refuse(node, resv, error));
        }
        self.send_upstream(now, node, None);
    }

    /// Sends previous hops what has changed for them. `confirm` is a receiver that requests a confirmation, with
    /// the next hop from which its Resv came; if nothing changes upstream, its reservation is in place (RFC 2205,
    /// 2.6).
    pub(super) fn send_upstream(
        &mut self,
        now: Time,
        node: &mut Node,
        confirm: Option<(IpAddr, Option<NextHop>)>,
    ) {
        let upstream = merge::upstream(self, now);
        let before = core::mem::take(&mut self.sent);
        let mut has_gone_on = false;
        for Upstream { previous, style, flows } in upstream {
            let old = before.iter().find(|sent| sent.previous == previous);
            let mut sent = SentResv { previous, style, flows, refresh_at: Time::ZERO };
            match old {
                Some(old) if old.flows == sent.flows && old.style == style => {
                    sent.refresh_at = old.refresh_at;
                }
                _ => {
                    let receiver = confirm.map(|(receiver, _)| receiver);
                    sent.refresh_at = node.refresh_at(now);
                    self.send_resv(node, &sent, receiver);
                    has_gone_on |= previous.port.is_some();
                }
            }
            self.sent.push(sent);
        }
        for old in before {
            self.send_resv_tear(node, &old);
        }
        if let Some((receiver, from)) = confirm.filter(|_| !has_gone_on) {
            self.confirm(node, receiver, from);
        }
    }

    /// Sends a Resv to its previous hop, or has a local sender see it.
    pub(super) fn send_resv(&self, node: &mut Node, sent: &SentResv, confirm: Option<IpAddr>) {
        let (session, style, flows) = (self.session, sent.style, sent.flows.clone());
        let Some(port) = sent.previous.port else {
            return node.upcall(Upcall::Resv { session, style, flows });
        };
        let to = sent.previous.hop;
        let address = node.hop(port, to.address).address;
        // The previous hop's handle goes back to it.
        let hop = Hop { address, handle: to.handle };
        let refresh_ms = node.refresh_ms();
        let resv = Resv { session, hop, refresh_ms, confirm, style, flows };
        node.send(NextHop { port, address: to.address }, &Message::Resv(resv));
    }

    /// Tears down what a previous hop has and should no longer have.
    fn send_resv_tear(&self, node: &mut Node, old: &SentResv) {
        let now_sent = self.sent.iter().find(|sent| sent.previous == old.previous);
        let is_kept = |sender: &Sender| {
            now_sent.is_some_and(|sent| sent.flows.iter().any(|f| f.senders.contains(sender)))
        };
        let (session, style) = (self.session, old.style);
        let senders = old.flows.iter().flat_map(|flow| &flow.senders);
        let senders: Vec<Sender> = senders.copied().filter(|sender| !is_kept(sender)).collect();
        let is_wildcard = style == Style::WildcardFilter && now_sent.is_none();
        if senders.is_empty() && !is_wildcard {
            return;
        }
        // A path that is gone has taken the reservation along, all the way from the sender.
        let is_there = self.paths.iter().any(|path| path.previous == old.previous);
        let Previous { port, hop: to } = old.previous;
        match port {
            None if now_sent.is_none() => {
                node.upcall(Upcall::Resv { session, style, flows: Vec::new() });
            }
            Some(port) if is_there => {
                let address = node.hop(port, to.address).address;
                let hop = Hop { address, handle: to.handle };
                let tear = ResvTear { session, hop, style, senders };
                node.send(NextHop { port, address: to.address }, &Message::ResvTear(tear));
            }
            _ => {}
        }
    }

    /// Confirms a reservation to its receiver.
    fn confirm(&self, node: &mut Node, receiver: IpAddr, from: Option<NextHop>) {
        let error = ErrorSpec::new(node.any_address(receiver), ErrorCode::CONFIRMATION);
        let session = self.session;
        let Some(to) = from else {
            return node.upcall(Upcall::Confirmed { session, node: error.node });
        };
        let Some(sent) = self.sent.first() else { return };
        let (style, flows) = (sent.style, sent.flows.clone());
        let confirmed = ResvConf { session, error, receiver, style, flows };
        node.send_from(error.node, receiver, (to, TTL), &Message::ResvConf(confirmed));
    }
}
