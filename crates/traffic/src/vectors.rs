//! The joint table of a capture's model: whole sessions, with the vectors of their connections.
//!
//! Correlations are kept: how often a pair connects, with which gaps, the requests and answers of each connection, and
//! the popularity ranks of the pair's hosts. No law is fitted, and nothing is pooled over pairs; the table *is* the
//! law. It holds no addresses, only ranks. A connection vector is that of Tmix: which end sends how much, in which
//! order and after which pause (Weigle et al., *ACM CCR* 36(3), 2006).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_conversation::{Act, Carried, Connection, Opening, Session, Side, Step, sessions};
use serde::{Deserialize, Serialize};

use crate::model_error::ModelError;
use crate::script::{RoundTrip, Script, fastest_answers};

mod observed;

/// The most sessions of a table.
pub const SESSIONS_MAX: usize = 1 << 20;
/// The most steps of a table, over all connections.
pub const STEPS_MAX: usize = 1 << 23;
/// The fewest segments that show how an end acknowledges, and the share of acknowledgements below which it delays
/// them.
const SEGMENTS_MIN: u64 = 4;
const ACKS_SHARE: f64 = 0.75;
/// The smallest and largest segment of an original that its played connection adopts.
const SEGMENT_BYTES: core::ops::RangeInclusive<u32> = 500..=1_460;

/// Whole sessions of a part of the original.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Vectors {
    /// Start of the part, seconds after the start of the original.
    pub start_s: f64,
    /// Length of the part, seconds.
    pub seconds: f64,
    /// Its sessions, by start time.
    pub sessions: Vec<SessionVector>,
}

/// One session: connections of one pair of hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionVector {
    /// Start of its first connection, seconds after the start of the part.
    pub start_s: f64,
    /// Popularity rank of its client, from 0 (the most connections).
    pub source: u32,
    /// Popularity rank of its server.
    pub destination: u32,
    /// Whether its hosts use IPv6.
    pub ipv6: bool,
    /// The server's port.
    pub service: u16,
    /// Round-trip times of its pair of hosts in microseconds: from the meter to the client and back, and to the
    /// server and back. The minimum over handshakes of the pair and later answers; 0 if none was seen.
    #[serde(default)]
    pub round_trip_us: [f64; 2],
    /// Its connections, by start time.
    pub connections: Vec<ConnectionVector>,
}

/// One connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConnectionVector {
    /// Start time, seconds after the start of the session.
    pub after_s: f64,
    /// How it starts.
    pub opening: Begins,
    /// Duration from its first packet to the last that counts, seconds.
    pub lasts_s: f64,
    /// IP packets in both directions in the original.
    pub packets: u64,
    /// IP bytes in both directions in the original.
    pub octets: u64,
    /// Payload of a full segment; 0 if there was none.
    pub segment_bytes: u16,
    /// Whether its segments carry TCP timestamps.
    #[serde(default = "usual")]
    pub time_stamps: bool,
    /// Whether the client, and the server, acknowledge every segment.
    #[serde(default)]
    pub acks_each: [bool; 2],
    /// Actions of both ends.
    pub steps: Vec<StepVector>,
}

/// How a connection starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Begins {
    /// With a SYN that is answered.
    Seen,
    /// Already open at the start of the part.
    UnderWay,
    /// With a SYN that is not answered.
    Unanswered,
    /// With a SYN that is answered by a reset.
    Refused,
}

/// One step of one end: `[by, awaits_bytes, pause_us, does, segments, took_us]`, where `by` is 0 for the client
/// and 1 for the server, and `does` is the bytes sent, -1 for a FIN, or -2 for a reset.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepVector(u8, u64, f64, i64, u32, f64);

/// The rank of each host.
struct Ranking(BTreeMap<IpAddr, u32>);

impl Vectors {
    /// The sessions of connections that were observed in a part that begins at `begins_ns`, where the original
    /// begins at `original_ns` (ns since 1970) and a pair's session ends after `bound_ns` without a connection.
    /// The connections are in the order of their starts.
    pub fn of(
        connections: &[Connection],
        [original_ns, begins_ns]: [u64; 2],
        seconds: f64,
        bound_ns: u64,
    ) -> Vectors {
        let all = sessions(connections, bound_ns);
        let ranks = Side::BOTH.map(|side| Ranking::of(connections, side));
        let trips = round_trips(connections);
        let since_s = |ns: u64, from: u64| ns.saturating_sub(from) as f64 / 1e9;
        let session = |session: &Session| {
            let first = &connections[session.connections[0] as usize];
            let of = |&at: &u32| vector(&connections[at as usize], session.start_ns);
            SessionVector {
                start_s: since_s(session.start_ns, begins_ns),
                source: ranks[0].0[&first.client.ip()],
                destination: ranks[1].0[&first.server.ip()],
                ipv6: first.client.is_ipv6(),
                service: session.service,
                round_trip_us: trips
                    .get(&(first.client.ip(), first.server.ip()))
                    .map_or([0.0; 2], |of| [of.client_ns, of.server_ns].map(|ns| ns as f64 / 1e3)),
                connections: session.connections.iter().map(of).collect(),
            }
        };
        Vectors {
            start_s: since_s(begins_ns, original_ns),
            seconds,
            sessions: all.iter().map(session).collect(),
        }
    }

    /// Its connections, each with its session.
    pub fn connections(&self) -> impl Iterator<Item = (&SessionVector, &ConnectionVector)> {
        self.sessions.iter().flat_map(|session| {
            session.connections.iter().map(move |connection| (session, connection))
        })
    }

    /// Keeps its first `seconds` seconds.
    pub fn cut(&mut self, seconds: f64) {
        self.seconds = self.seconds.min(seconds);
        self.sessions.retain(|session| session.start_s < self.seconds);
    }

    /// Plays `speed` times as fast: starts and gaps are divided, but not what connections do and how long they
    /// think. The part lasts until the end of the last connection that ended within it.
    pub fn speed_up(&mut self, speed: f64) {
        let mut over_s: f64 = 0.0;
        for session in &mut self.sessions {
            session.start_s /= speed;
            for one in &mut session.connections {
                one.after_s /= speed;
                over_s = over_s.max(session.start_s + one.after_s + one.lasts_s);
            }
        }
        self.seconds = (self.seconds / speed).max(over_s.min(self.seconds));
    }

    /// Removes the rates at which transfers were seen: each is as fast as its path.
    pub fn unpace(&mut self) {
        let connections = self.sessions.iter_mut().flat_map(|session| &mut session.connections);
        connections.flat_map(|one| &mut one.steps).for_each(|step| step.5 = 0.0);
    }

    /// How many hosts there are in each role.
    pub fn hosts(&self) -> [usize; 2] {
        let most = |of: fn(&SessionVector) -> u32| {
            self.sessions.iter().map(|session| of(session) as usize + 1).max().unwrap_or(0)
        };
        [most(|session| session.source), most(|session| session.destination)]
    }

    /// Checks a table that was read for everything that the planner relies on.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn check(&self) -> Result<(), ModelError> {
        let steps = self.connections().map(|(_, one)| one.steps.len()).sum::<usize>();
        if self.sessions.len() > SESSIONS_MAX {
            return Err(ModelError::TooMany("vectors.sessions", SESSIONS_MAX));
        }
        if steps > STEPS_MAX {
            return Err(ModelError::TooMany("steps of vectors", STEPS_MAX));
        }
        let mut trips = self.sessions.iter().flat_map(|one| one.round_trip_us);
        if !trips.all(|us| (0.0..1e9).contains(&us)) {
            return Err(ModelError::NotPositive("a round trip in vectors", -1.0));
        }
        let times = self.sessions.iter().map(|one| one.start_s);
        let times = times.chain(self.connections().flat_map(|(_, one)| [one.after_s, one.lasts_s]));
        let mut times = times.chain([self.start_s]);
        let is_sound = self.seconds.is_finite() && self.seconds > 0.0;
        if !is_sound || times.any(|time| !(0.0..1e9).contains(&time)) {
            return Err(ModelError::NotPositive("a time in vectors", -1.0));
        }
        let mut steps = self.connections().flat_map(|(_, one)| &one.steps);
        if !steps.all(StepVector::is_sound) {
            return Err(ModelError::NotPositive("a step in vectors", -1.0));
        }
        if self.sessions.iter().any(|one| one.connections.is_empty()) {
            return Err(ModelError::Empty("a session of vectors"));
        }
        Ok(())
    }
}

impl SessionVector {
    /// The network's round trips on both sides of the meter.
    pub fn round_trip(&self) -> RoundTrip {
        let [client_ns, server_ns] = self.round_trip_us.map(|us| (us * 1e3) as u64);
        RoundTrip { client_ns, server_ns }
    }
}

impl ConnectionVector {
    /// Payload bytes of an end.
    pub fn bytes(&self, side: Side) -> u64 {
        let of = |step: &StepVector| match (step.by() == side, step.act()) {
            (true, Act::Send { bytes, .. }) => bytes,
            _ => 0,
        };
        self.steps.iter().map(of).sum()
    }

    /// Does either end close it?
    pub fn is_ended(&self) -> bool {
        self.steps.iter().any(|step| !matches!(step.act(), Act::Send { .. }))
    }

    /// What both ends do.
    pub fn script(&self) -> Script {
        let opening = match self.opening {
            Begins::Seen => Opening::Seen,
            Begins::UnderWay => Opening::Unseen,
            Begins::Unanswered => Opening::Unanswered,
            Begins::Refused => Opening::Refused,
        };
        let steps = self.steps.iter().map(StepVector::step).collect();
        let tried_ns = (self.lasts_s * 1e9) as u64;
        let (has_time_stamps, segment_bytes) = (self.time_stamps, self.segment_bytes);
        let acks_each = self.acks_each;
        Script { opening, steps, tried_ns, has_time_stamps, segment_bytes, acks_each }
    }
}

impl StepVector {
    fn of(step: &Step) -> StepVector {
        let us = |ns: u64| ns as f64 / 1e3;
        let (does, segments, took_us) = match step.act {
            Act::Send { bytes, segments, took_ns } => (bytes as i64, segments, us(took_ns)),
            Act::Fin => (-1, 0, 0.0),
            Act::Reset => (-2, 0, 0.0),
        };
        let by = step.by.index() as u8;
        StepVector(by, step.awaits, us(step.pause_ns), does, segments, took_us)
    }

    fn is_sound(&self) -> bool {
        let StepVector(by, _, pause_us, does, segments, took_us) = *self;
        let is_time = |us: f64| (0.0..1e15).contains(&us);
        let is_act = does > 0 && segments > 0 || does == -1 || does == -2;
        by <= 1 && is_act && is_time(pause_us) && is_time(took_us)
    }

    fn by(&self) -> Side {
        if self.0 == 0 { Side::Client } else { Side::Server }
    }

    fn act(&self) -> Act {
        match self.3 {
            -1 => Act::Fin,
            -2 => Act::Reset,
            bytes => {
                let took_ns = (self.5 * 1e3) as u64;
                Act::Send { bytes: bytes as u64, segments: self.4, took_ns }
            }
        }
    }

    fn step(&self) -> Step {
        let pause_ns = (self.2 * 1e3) as u64;
        Step { by: self.by(), awaits: self.1, pause_ns, act: self.act() }
    }
}

/// Does an end acknowledge nearly every segment that it receives? Others wait for a second one (RFC 1122,
/// section 4.2.3.2).
fn acks_each(own: &Carried, other: &Carried) -> bool {
    let without_data = own.packets.saturating_sub(own.data_packets + own.resets);
    // Up to two of these packets are the SYN and the FIN.
    let acks = without_data.saturating_sub(2);
    other.data_packets >= SEGMENTS_MIN && acks as f64 >= ACKS_SHARE * other.data_packets as f64
}

/// The value for tables without the field.
fn usual() -> bool {
    true
}

fn vector(one: &Connection, session_ns: u64) -> ConnectionVector {
    let largest = one.carried.iter().map(|side| side.segment_max_bytes).max().unwrap_or(0);
    let sum = |of: fn(&Carried) -> u64| one.carried.iter().map(of).sum();
    ConnectionVector {
        after_s: (one.start_ns - session_ns) as f64 / 1e9,
        opening: match one.opening {
            Opening::Seen => Begins::Seen,
            Opening::Unseen => Begins::UnderWay,
            Opening::Unanswered => Begins::Unanswered,
            Opening::Refused => Begins::Refused,
        },
        lasts_s: (one.end_ns - one.start_ns) as f64 / 1e9,
        packets: sum(|side| side.packets),
        octets: sum(|side| side.octets),
        segment_bytes: if SEGMENT_BYTES.contains(&largest) { largest as u16 } else { 0 },
        time_stamps: one.has_time_stamps,
        acks_each: Side::BOTH.map(|side| acks_each(one.of(side), one.of(side.other()))),
        steps: one.steps.iter().map(StepVector::of).collect(),
    }
}

/// For each pair and each side of the meter, the least time of any handshake, or of any answer after it, ns; 0 for a
/// side without a handshake.
fn round_trips(connections: &[Connection]) -> BTreeMap<(IpAddr, IpAddr), RoundTrip> {
    let pair = |one: &Connection| (one.client.ip(), one.server.ip());
    let mut least: BTreeMap<_, [Option<u64>; 2]> = BTreeMap::new();
    for one in connections {
        let [server_ns, client_ns] = one.handshake_ns;
        for (least, seen) in
            least.entry(pair(one)).or_default().iter_mut().zip([client_ns, server_ns])
        {
            *least = (*least).into_iter().chain(seen).min();
        }
    }
    // A handshake may have waited for an application; an answer can only be slower than the path.
    for one in connections
        .iter()
        .filter(|one| one.carried.iter().all(|side| side.unseen_bytes + side.resent_packets == 0))
    {
        let answers = fastest_answers(&one.steps);
        for (least, seen) in least.entry(pair(one)).or_default().iter_mut().zip(answers) {
            *least = least.map(|ns| ns.min(seen.unwrap_or(ns)));
        }
    }
    let trip = |[client_ns, server_ns]: [Option<u64>; 2]| RoundTrip {
        client_ns: client_ns.unwrap_or(0),
        server_ns: server_ns.unwrap_or(0),
    };
    least.into_iter().map(|(pair, ns)| (pair, trip(ns))).collect()
}

impl Ranking {
    /// Hosts in a role, by their number of connections; equal ones in the order of their first connection.
    fn of(connections: &[Connection], side: Side) -> Ranking {
        let mut counts: BTreeMap<IpAddr, (u64, usize)> = BTreeMap::new();
        for (at, one) in connections.iter().enumerate() {
            let end = if side == Side::Client { one.client } else { one.server };
            counts.entry(end.ip()).or_insert((0, at)).0 += 1;
        }
        let mut order: Vec<_> = counts.into_iter().collect();
        order.sort_by_key(|&(_, (count, first))| (u64::MAX - count, first));
        Ranking((0..).zip(order).map(|(rank, (host, _))| (host, rank)).collect())
    }
}
