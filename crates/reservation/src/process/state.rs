//! Soft state of one session: path state, reservation state, and what follows from both (RFC 2205, 2 and RFC 2209).

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::Time;

use crate::admission::ReservationId;
use crate::message::{AdSpec, ExplicitRoute, FlowDescriptor, FlowSpec, Hop, Sender, Session};
use crate::message::{Style, Tspec};
use crate::process::routing::NextHop;

/// Where a path comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Previous {
    /// The input port; none for a sender on this node.
    pub(super) port: Option<u32>,
    /// The previous hop, with the handle that is returned to it.
    pub(super) hop: Hop,
}

/// Blockade state: flowspecs that cover this one were refused further up (RFC 2205, 2.5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Blockade {
    pub(super) flowspec: FlowSpec,
    pub(super) until: Time,
}

/// A path state block.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PathState {
    pub(super) sender: Sender,
    pub(super) tspec: Tspec,
    pub(super) adspec: Option<AdSpec>,
    pub(super) previous: Previous,
    /// The explicit route as it arrived.
    pub(super) route: Option<ExplicitRoute>,
    /// The nodes that are still ahead.
    pub(super) onward_route: Option<ExplicitRoute>,
    /// This node is a destination.
    pub(super) is_local: bool,
    pub(super) outputs: Vec<NextHop>,
    /// The TTL with which the Path is forwarded.
    pub(super) ttl: u8,
    /// None of a sender on this node.
    pub(super) expires_at: Option<Time>,
    pub(super) refresh_at: Time,
    pub(super) blockade: Option<Blockade>,
}

impl PathState {
    /// Whether its flow leaves by this place.
    pub(super) fn leaves_by(&self, place: Place) -> bool {
        match place {
            Place::Local => self.is_local,
            Place::Port(port) => self.outputs.iter().any(|output| output.port == port),
        }
    }
}

/// Where a reservation came from: a receiver on this node, or behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A receiver on this node.
    Local,
    /// The output port of the flow.
    Port(u32),
}

/// A reservation state block: with fixed filter for one sender, otherwise for all that the style shares.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ResvState {
    pub(super) place: Place,
    pub(super) next_hop: IpAddr,
    pub(super) style: Style,
    /// One with fixed filter, none with wildcard filter.
    pub(super) senders: Vec<Sender>,
    pub(super) flowspec: FlowSpec,
    /// None of a receiver on this node.
    pub(super) expires_at: Option<Time>,
}

impl ResvState {
    /// Whether it is for this sender.
    pub(super) fn is_for(&self, sender: &Sender) -> bool {
        self.style == Style::WildcardFilter || self.senders.contains(sender)
    }
}

/// A Resv as it was sent last to one previous hop.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SentResv {
    pub(super) previous: Previous,
    pub(super) style: Style,
    pub(super) flows: Vec<FlowDescriptor>,
    pub(super) refresh_at: Time,
}

/// A reservation that the forwarding plane should have: with fixed filter one for each sender at a port, otherwise
/// one for each port (a traffic control state block of RFC 2209).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) style: Style,
    /// The senders whose packets it is for.
    pub(super) senders: Vec<Sender>,
    pub(super) inputs: Vec<u32>,
    pub(super) output: NextHop,
    pub(super) is_explicit: bool,
    pub(super) flowspec: FlowSpec,
}

impl Wanted {
    /// Whether both are the same reservation, perhaps with another flowspec or other senders.
    pub(super) fn is_same(&self, other: &Wanted) -> bool {
        let is_one = self.style != Style::FixedFilter || self.senders == other.senders;
        self.output.port == other.output.port && self.style == other.style && is_one
    }
}

/// What the forwarding plane has of a session.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Installed {
    pub(super) id: ReservationId,
    pub(super) wanted: Wanted,
}

/// All state of one session.
#[derive(Clone, Debug)]
pub(super) struct SessionState {
    pub(super) session: Session,
    pub(super) paths: Vec<PathState>,
    pub(super) resvs: Vec<ResvState>,
    pub(super) sent: Vec<SentResv>,
    pub(super) installed: Vec<Installed>,
}

impl SessionState {
    pub(super) fn new(session: Session) -> SessionState {
        SessionState {
            session,
            paths: Vec::new(),
            resvs: Vec::new(),
            sent: Vec::new(),
            installed: Vec::new(),
        }
    }

    /// Whether nothing is left of it.
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.resvs.is_empty() && self.sent.is_empty()
    }

    /// When something of it expires or is refreshed next.
    pub(super) fn next_at(&self) -> Option<Time> {
        let paths = self.paths.iter().flat_map(|path| {
            let blockade = path.blockade.map(|blockade| blockade.until);
            [Some(path.refresh_at), path.expires_at, blockade]
        });
        let resvs = self.resvs.iter().map(|resv| resv.expires_at);
        let sent = self.sent.iter().map(|sent| Some(sent.refresh_at));
        paths.chain(resvs).chain(sent).flatten().min()
    }

    /// Drops reservations for senders that have no path there any more. The request of a receiver on this node stays
    /// until the receiver releases it, for paths that return.
    pub(super) fn purge(&mut self) {
        let paths = &self.paths;
        self.resvs.retain_mut(|resv| {
            let place = resv.place;
            if place == Place::Local {
                return true;
            }
            let has_path = |sender: &Sender| {
                paths.iter().any(|path| path.sender == *sender && path.leaves_by(place))
            };
            if resv.style == Style::WildcardFilter {
                return paths.iter().any(|path| path.leaves_by(place));
            }
            resv.senders.retain(has_path);
            !resv.senders.is_empty()
        });
    }
}
