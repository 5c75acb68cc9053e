//! TCP connections joined from flow records of both directions, as far as records show them.
//!
//! A record says which host sent how much to which, from when to when, and with which flags. It does not say
//! which end spoke when, so the result is a connection without exchanges: its ends, its times, what either end
//! carried, and whether each side closed or reset it, but not which did so first.
//!
//! Records come repaired (`flow::repair`). Then
//!
//! 1. **Both directions.** Flows of one pair of ports are read in the order of their starts, and each is paired with
//!    the first of the other direction that begins no later than a second after its end (stamps of exporters are
//!    coarse). A flow without a counterpart is a connection of one flow.
//! 2. **Continuations.** Each exporter ends flows by timers of its own, but no timer ends a connection. A flow that
//!    begins without a SYN, between the ports of a connection that was neither reset nor closed by both sides,
//!    continues it. So does a SYN that repeats an unanswered one within a minute and, where records carry no flags,
//!    any flow that follows within a minute: a host does not use its ports again before (TIME-WAIT, RFC 9293, section
//!    3.6.1).
//! 3. **Stragglers.** Exporters end a flow at its FIN, and the acknowledgement of the FIN is another flow. A flow
//!    that begins within that minute of a connection's end, without a SYN and without payload, is not a new
//!    connection. Its bytes are added to the connection, its times are not.
//! 4. **Client.** The sender of the SYN, where one of the flows shows it; otherwise the end with the higher
//!    port.
//!
//! Two sets of records are compared as the coarser exporter would have recorded both ([`RecordDetail::and`]): payload is
//! counted by the same rule, flags are used or not, and times are cut to the same unit.

use core::net::SocketAddr;

use alloc::vec::Vec;

use nilometer_flow::FlowRecord;
use nilometer_flow::record::TCP;
use nilometer_flow::record::tcp_flags::{ACK, FIN, RST, SYN};

use crate::connection::{Act, Carried, Connection, Opening, Step};
use crate::side::Side;

/// How long after a flow's end its other direction may begin, ns.
const APART_MAX_NS: u64 = 1_000_000_000;
/// How long ports are not used again, ns.
const TIME_WAIT_NS: u64 = 60_000_000_000;
/// Flows that are searched for the other direction of one.
const LOOKED_AT_MAX: usize = 256;
/// The share of records with a piece of information from which on the exporter is taken to export it.
const TELLING_SHARE: f64 = 0.99;
/// Units of time that exporters count in, ns.
const RESOLUTIONS_NS: [u64; 3] = [1_000_000_000, 1_000_000, 1_000];

/// What an exporter's records show of TCP connections, besides addresses, times and amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordDetail {
    /// TCP's flags.
    pub flags: bool,
    /// Which end opened a connection.
    pub opened: bool,
    /// Bytes of payload, and not only of packets.
    pub payload: bool,
    /// The unit of all times, ns.
    pub resolution_ns: u64,
}

impl RecordDetail {
    /// What these records show.
    pub fn of(records: &[FlowRecord]) -> RecordDetail {
        let most = |of: fn(&FlowRecord) -> Option<bool>| {
            let values = records.iter().filter_map(of);
            let (known, all) =
                values.fold((0u64, 0u64), |(known, all), one| (known + u64::from(one), all + 1));
            known as f64 >= TELLING_SHARE * all as f64
        };
        let is_multiple = |unit: &&u64| {
            let times = records.iter().flat_map(|record| [record.start_ns, record.end_ns]);
            times.into_iter().all(|ns| ns.is_multiple_of(**unit))
        };
        RecordDetail {
            flags: most(|record| Some(record.tcp_flags != 0)),
            opened: most(|record| record.has_start().then_some(record.opened.is_some())),
            payload: most(|record| Some(record.payload_octets.is_some())),
            resolution_ns: RESOLUTIONS_NS.iter().find(is_multiple).copied().unwrap_or(1),
        }
    }

    /// What both show.
    #[must_use]
    pub fn and(self, other: RecordDetail) -> RecordDetail {
        RecordDetail {
            flags: self.flags && other.flags,
            opened: self.opened && other.opened,
            payload: self.payload && other.payload,
            resolution_ns: self.resolution_ns.max(other.resolution_ns),
        }
    }

    /// A record reduced to what an exporter of this kind shows.
    fn cut(self, record: &FlowRecord) -> FlowRecord {
        let mut cut = record.clone();
        cut.start_ns -= cut.start_ns % self.resolution_ns;
        cut.end_ns -= cut.end_ns % self.resolution_ns;
        cut.tcp_flags = if self.flags { cut.tcp_flags } else { 0 };
        cut.opened = cut.opened.filter(|_| self.opened && self.flags);
        cut.payload_octets = cut.payload_octets.filter(|_| self.payload);
        cut
    }
}

/// The connections of repaired records, in the order of their starts, using no more than `detail` names, and only
/// the packets of side `only` if that is given. Records of other protocols are ignored.
pub fn joined(records: &[FlowRecord], detail: RecordDetail, only: Option<Side>) -> Vec<Connection> {
    let tcp = records.iter().filter(|record| record.key.protocol == TCP);
    let mut flows: Vec<FlowRecord> = tcp.map(|record| detail.cut(record)).collect();
    let both_ways = |flow: &FlowRecord| flow.key.min(flow.key.reversed());
    flows.sort_by(|one, other| {
        (both_ways(one), one.start_ns, one).cmp(&(both_ways(other), other.start_ns, other))
    });
    let mut all = Vec::new();
    for flows in flows.chunk_by(|one, other| both_ways(one) == both_ways(other)) {
        let pairs = whole(pairs(flows), detail);
        all.extend(pairs.into_iter().filter_map(|pair| pair.seen_by(only)?.connection(detail)));
    }
    all.sort_by_key(|one| (one.start_ns, one.client, one.server));
    all
}

/// The flows of one connection, one of them at least.
struct Pair {
    /// The client's, and the server's.
    flows: [Option<FlowRecord>; 2],
    ends: [SocketAddr; 2],
}

/// Where a later flow belongs, relative to the connection before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Within,
    Behind,
}

/// Adds more of a flow.
fn add(flow: &mut FlowRecord, more: &FlowRecord) {
    flow.end_ns = flow.end_ns.max(more.end_ns);
    flow.tcp_flags |= more.tcp_flags;
    flow.packets = flow.packets.saturating_add(more.packets);
    flow.octets = flow.octets.saturating_add(more.octets);
    let both = flow.payload_octets.zip(more.payload_octets);
    flow.payload_octets = both.map(|(one, other)| one.saturating_add(other));
}

/// Flows between two ports, in the order of their starts, with the other direction of each.
fn pairs(flows: &[FlowRecord]) -> Vec<Pair> {
    let mut waiting: Vec<Option<&FlowRecord>> = flows.iter().map(Some).collect();
    let mut pairs = Vec::new();
    for at in 0..waiting.len() {
        let Some(flow) = waiting[at].take() else { continue };
        let until_ns = flow.end_ns.saturating_add(APART_MAX_NS);
        let later = waiting[at + 1..].iter_mut().take(LOOKED_AT_MAX);
        let other = later
            .take_while(|other| other.is_none_or(|other| other.start_ns <= until_ns))
            .find(|other| other.is_some_and(|other| other.key == flow.key.reversed()));
        pairs.push(Pair::of(flow, other.and_then(Option::take)));
    }
    pairs
}

/// Pairs between two ports, in the order of their starts, each with its continuations and stragglers.
fn whole(pairs: Vec<Pair>, detail: RecordDetail) -> Vec<Pair> {
    let mut kept: Vec<Pair> = Vec::new();
    for pair in pairs {
        match kept.last_mut().and_then(|before| Some((pair.belongs(before, detail)?, before))) {
            Some((place, before)) => before.take(pair, place),
            None => kept.push(pair),
        }
    }
    kept
}

impl Pair {
    fn of(flow: &FlowRecord, other: Option<&FlowRecord>) -> Pair {
        let both = || core::iter::once(flow).chain(other);
        // If either flow shows which end opened, that holds for both.
        let detail = both().find(|flow| flow.opened.is_some()).unwrap_or(flow);
        let key = if detail.is_from_client() { detail.key } else { detail.key.reversed() };
        let flows = [key, key.reversed()].map(|key| both().find(|flow| flow.key == key).cloned());
        Pair { flows, ends: [key.source_end(), key.destination_end()] }
    }

    fn both(&self) -> impl Iterator<Item = &FlowRecord> {
        self.flows.iter().flatten()
    }

    fn start_ns(&self) -> Option<u64> {
        self.both().map(|flow| flow.start_ns).min()
    }

    fn end_ns(&self) -> Option<u64> {
        self.both().map(|flow| flow.end_ns).max()
    }

    /// Does this pair continue the connection before it, straggle behind it, or neither?
    fn belongs(&self, before: &Pair, detail: RecordDetail) -> Option<Place> {
        let until_ns = before.end_ns()?.saturating_add(TIME_WAIT_NS);
        let is_soon = self.start_ns()? <= until_ns;
        if !detail.flags {
            return is_soon.then_some(Place::Within);
        }
        let begins = self.both().any(FlowRecord::has_start);
        let is_empty = self.both().all(FlowRecord::only_acknowledges);
        match () {
            () if begins && !(is_soon && before.is_unanswered()) => None,
            () if !before.is_over() => Some(Place::Within),
            () => (is_soon && is_empty).then_some(Place::Behind),
        }
    }

    /// Does it consist only of SYNs of the client?
    fn is_unanswered(&self) -> bool {
        self.flags(Side::Client) == Some(SYN) && self.flags(Side::Server).is_none()
    }

    /// Was it reset, or closed by every side that has a record?
    fn is_over(&self) -> bool {
        let has = |flag: u8| move |flow: &FlowRecord| flow.tcp_flags & flag != 0;
        self.both().any(has(RST)) || self.both().all(has(FIN))
    }

    /// Adds a continuation or a straggler.
    fn take(&mut self, pair: Pair, place: Place) {
        let over_ns = self.end_ns().unwrap_or(0);
        for mut more in pair.flows.into_iter().flatten() {
            if place == Place::Behind {
                (more.start_ns, more.end_ns, more.tcp_flags) = (over_ns, over_ns, 0);
            }
            let is_from_client = more.key.source_end() == self.ends[0];
            match &mut self.flows[usize::from(!is_from_client)] {
                Some(flow) => add(flow, &more),
                none => *none = Some(more),
            }
        }
    }

    /// The part of it that a capture of one side shows.
    fn seen_by(mut self, only: Option<Side>) -> Option<Pair> {
        if let Some(side) = only {
            self.flows[side.other().index()] = None;
        }
        self.both().next()?;
        Some(self)
    }

    fn connection(self, detail: RecordDetail) -> Option<Connection> {
        let (start_ns, end_ns) = (self.start_ns()?, self.end_ns()?);
        let steps = if detail.flags { self.ending() } else { Vec::new() };
        let opening = if detail.flags { self.opening() } else { Opening::Seen };
        Some(Connection {
            client: self.ends[0],
            server: self.ends[1],
            start_ns,
            end_ns,
            opening,
            syns: u32::from(opening != Opening::Unseen),
            handshake_ns: [None; 2],
            is_concurrent: false,
            has_time_stamps: false,
            steps,
            carried: self.flows.map(|flow| flow.as_ref().map(carried).unwrap_or_default()),
        })
    }

    /// The flags that a side was seen to send.
    fn flags(&self, side: Side) -> Option<u8> {
        self.flows[side.index()].as_ref().map(|flow| flow.tcp_flags)
    }

    fn opening(&self) -> Opening {
        let [client, server] = Side::BOTH.map(|side| self.flags(side));
        let has = |flags: Option<u8>, flag: u8| flags.is_some_and(|flags| flags & flag != 0);
        // Some exporters keep the flags of a flow's first packet only.
        let is_empty = self.both().all(FlowRecord::only_acknowledges);
        match () {
            () if !has(client, SYN) && !has(server, SYN) => Opening::Unseen,
            () if has(server, RST) && !has(server, SYN) && has(client, SYN) => Opening::Refused,
            () if server.is_none() && !has(client, ACK) && is_empty => Opening::Unanswered,
            () => Opening::Seen,
        }
    }

    /// Which sides reset the connection, then which closed it; the client comes first where both did.
    fn ending(&self) -> Vec<Step> {
        let by = |flag: u8, act: Act| {
            let has = move |side: &Side| self.flags(*side).is_some_and(|flags| flags & flag != 0);
            let step = move |by| Step { by, awaits: 0, pause_ns: 0, act };
            Side::BOTH.into_iter().filter(has).map(step)
        };
        by(RST, Act::Reset).chain(by(FIN, Act::Fin)).collect()
    }
}

fn carried(flow: &FlowRecord) -> Carried {
    let payload_bytes = if flow.only_acknowledges() { 0 } else { flow.payload_bytes() };
    Carried {
        packets: flow.packets,
        octets: flow.octets,
        data_bytes: payload_bytes,
        payload_bytes,
        ..Carried::default()
    }
}
