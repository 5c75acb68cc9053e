//! A plan of whole sessions from the joint table.
//!
//! Each session of the table is a slot of the plan: its start and its pair of hosts are kept, so that arrivals, hosts,
//! pairs and their popularity are the same for any seed. The content of a slot is drawn: one of four neighbours in the
//! order of bytes, among sessions of the same service and quarter of the run; a session that would not be over by the
//! end is replaced by the slot's own. So each seed is a sample of sizes, exchanges and gaps. Neighbours in a heavy
//! tail lie far apart: if total bytes or connections are more than a hundredth off the table's, slots get their own
//! content again, the farthest off first. Sessions with more than a hundredth of all bytes or connections are not
//! drawn but kept, as the judge's second samples keep them; sessions that an edge of the part cuts are drawn among
//! each other. An exact plan draws nothing.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::Range;

use nilometer_conversation::Side;
use nilometer_stat::{Empirical, Rng};
use nilometer_wire::{Span, Time};

use crate::arrivals::Arrivals;
use crate::connections::ConnectionVolume;
use crate::model::{Interval, ModelError, TrafficModel};
use crate::plan::{
    CONNECTIONS_MAX, Plan, PlanError, PlannedConnection, PlannedInterval, Planner, Session,
    ipv6_share,
};
use crate::pool::{Family, Pool};
use crate::random_streams;
use crate::script::{RoundTrip, Script};
use crate::vectors::{Begins, ConnectionVector, SessionVector, Vectors};

/// Sessions from which a slot's session is drawn.
const NEIGHBOURS: usize = 4;
/// A session with more than this share of all bytes, or of all connections, is kept, if that is ten times a
/// session's share as well.
const KEPT_SHARE: f64 = 0.01;
const KEPT_TIMES: f64 = 10.0;
/// A drawn plan carries at most this share more or less than the table.
const VOLUME_OFF_MAX: f64 = 0.01;
/// The client's ports.
const PORTS: core::ops::Range<u16> = 10_000..60_000;

/// Which sessions a plan plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// The sessions of the table, each once.
    Exact,
    /// A sample of similar sessions, by this seed.
    Seed(u64),
}

/// The addresses of hosts in a role.
struct Hosts {
    pool: Pool,
    /// Ranks that share an address with another, because the pool is too small.
    folded: u64,
}

/// The plan of a model, for live or simulated play: from its whole sessions if it has them, otherwise from its
/// laws. `arrivals` returns [`Planner::arrivals`] of a range, and may share it among threads.
///
/// # Errors
/// Where the model is invalid, exceeds the limits, or an exact plan is requested of a model without sessions.
pub fn plan_of_model(
    model: &TrafficModel,
    draw: Draw,
    arrivals: &mut dyn FnMut(&Planner, Range<u32>) -> Vec<Arrivals>,
) -> Result<Plan, PlanError> {
    match (draw, &model.vectors) {
        (draw, Some(_)) => plan(model, draw),
        (Draw::Seed(seed), None) => {
            let planner = Planner::new(model, seed)?;
            planner.plan(&mut |slots| arrivals(&planner, slots))
        }
        (Draw::Exact, None) => Err(PlanError::NoVectors),
    }
}

/// The plan of a model's vectors, over as many intervals as the model has.
///
/// # Errors
/// Where the model is invalid, has no vectors, or has more than a plan may hold.
pub fn plan(model: &TrafficModel, draw: Draw) -> Result<Plan, PlanError> {
    model.check()?;
    let vectors = model.vectors.as_ref().ok_or(PlanError::NoConnections)?;
    let all: u64 = vectors.connections().count() as u64;
    match all {
        0 => return Err(PlanError::NoConnections),
        more if more > CONNECTIONS_MAX => return Err(PlanError::TooManyConnections(more)),
        _ => {}
    }
    let generation = &model.generation;
    let hosts = |prefixes, ranks: usize| -> Result<Hosts, PlanError> {
        let pool = Pool::new(prefixes).map_err(ModelError::from)?;
        let sizes = Family::BOTH.map(|family| pool.hosts(family)).into_iter();
        let least = sizes.filter(|hosts| *hosts > 0).min().unwrap_or(0);
        Ok(Hosts { folded: (ranks as u64).saturating_sub(least.max(1)), pool })
    };
    let ranks = vectors.hosts();
    let (clients, servers) =
        (hosts(&generation.clients, ranks[0])?, hosts(&generation.servers, ranks[1])?);
    let contents = match draw {
        Draw::Exact => (0..vectors.sessions.len()).collect(),
        Draw::Seed(seed) => deal(vectors, seed),
    };
    let end = Time::ZERO + Span::from_secs_f64(vectors.seconds);
    let mut made = Making::new([&clients, &servers], end, model)?;
    for (number, (slot, content)) in vectors.sessions.iter().zip(contents).enumerate() {
        made.session(number as u32, slot, &vectors.sessions[content]);
    }
    Ok(made.finish((ranks[0], ranks[1]), clients.folded + servers.folded))
}

/// For each slot, the session whose content it gets.
fn deal(vectors: &Vectors, seed: u64) -> Vec<usize> {
    let has = |one: &SessionVector| {
        let octets: u64 = one.connections.iter().map(|one| one.octets).sum();
        [octets, one.connections.len() as u64]
    };
    let sums = vectors.sessions.iter().map(has);
    let all = sums.fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    let least = KEPT_SHARE.max(KEPT_TIMES / vectors.sessions.len().max(1) as f64);
    let is_kept = |one: &SessionVector| {
        has(one).into_iter().zip(all).any(|(one, all)| one as f64 > least * all as f64)
    };
    let mut strata: BTreeMap<(u16, bool, bool, u32), Vec<usize>> = BTreeMap::new();
    for (at, one) in vectors.sessions.iter().enumerate().filter(|(_, one)| !is_kept(one)) {
        let is_under_way = one.connections.iter().any(|one| one.opening == Begins::UnderWay);
        let is_cut = one.connections.iter().any(|one| !one.is_ended());
        let quarter = (4.0 * one.start_s / vectors.seconds) as u32;
        strata.entry((one.service, is_under_way, is_cut, quarter)).or_default().push(at);
    }
    let mut contents: Vec<usize> = (0..vectors.sessions.len()).collect();
    let mut rng = Rng::new(seed, random_streams::SESSIONS, 0);
    for stratum in strata.values_mut() {
        stratum.sort_by_key(|&at| (has(&vectors.sessions[at]), at));
        for neighbours in stratum.chunks(NEIGHBOURS) {
            for &slot in neighbours {
                let starts_s = vectors.sessions[slot].start_s;
                let drawn = neighbours[rng.below(neighbours.len() as u64) as usize];
                if starts_s + lasts_s(&vectors.sessions[drawn]) <= vectors.seconds {
                    contents[slot] = drawn;
                }
            }
        }
    }
    let payload =
        |one: &ConnectionVector| Side::BOTH.map(|side| one.bytes(side)).iter().sum::<u64>();
    let volume = |one: &SessionVector| {
        [one.connections.iter().map(payload).sum(), one.connections.len() as u64]
            .map(|volume| volume as f64)
    };
    let volumes: Vec<[f64; 2]> = vectors.sessions.iter().map(volume).collect();
    keep_volume(&mut contents, &volumes);
    contents
}

/// Gives slots their own content again until the plan's bytes and connections are those of the table to
/// within [`VOLUME_OFF_MAX`].
fn keep_volume(contents: &mut [usize], volumes: &[[f64; 2]]) {
    let all = [0, 1].map(|of| volumes.iter().map(|volume| volume[of]).sum::<f64>().max(1.0));
    // The deviation of a slot, as shares of the totals.
    let off = |slot: usize, content: usize| {
        [0, 1].map(|of| (volumes[content][of] - volumes[slot][of]) / all[of])
    };
    let worst = |shares: [f64; 2]| shares[0].abs().max(shares[1].abs());
    let mut sum = [0.0; 2];
    for (slot, &content) in contents.iter().enumerate() {
        let here = off(slot, content);
        sum = [sum[0] + here[0], sum[1] + here[1]];
    }
    let mut order: Vec<usize> = (0..contents.len()).collect();
    order.sort_by(|&one, &other| {
        let [one_off, other_off] = [one, other].map(|slot| worst(off(slot, contents[slot])));
        other_off.total_cmp(&one_off).then(one.cmp(&other))
    });
    // First slots that bring the sums closer; if that is not enough, any others.
    for is_last in [false, true] {
        for &slot in &order {
            if worst(sum) <= VOLUME_OFF_MAX {
                return;
            }
            let here = off(slot, contents[slot]);
            let without = [sum[0] - here[0], sum[1] - here[1]];
            if is_last || worst(without) < worst(sum) {
                contents[slot] = slot;
                sum = without;
            }
        }
    }
}

/// From the start of a session to the start of its last connection, seconds.
fn lasts_s(session: &SessionVector) -> f64 {
    session.connections.last().map_or(0.0, |last| last.after_s)
}

/// A plan in the making.
struct Making<'a> {
    clients: &'a Hosts,
    servers: &'a Hosts,
    /// The family that both pools have, if it is the only one.
    only: Option<Family>,
    end: Time,
    ends: Vec<Time>,
    /// Pauses are played without the network's share.
    plays_round_trips: bool,
    connections: Vec<(PlannedConnection, Option<usize>)>,
    /// For each connection, its packets and their bytes in the original.
    carried: Vec<[u64; 2]>,
    scripts: Vec<Script>,
    sessions: Vec<Session>,
    gaps_s: Vec<f64>,
    sizes: Vec<f64>,
}

impl<'a> Making<'a> {
    fn new(
        [clients, servers]: [&'a Hosts; 2],
        end: Time,
        model: &TrafficModel,
    ) -> Result<Making<'a>, PlanError> {
        let only = match ipv6_share(&clients.pool, &servers.pool, 0.5)? {
            0.0 => Some(Family::V4),
            1.0 => Some(Family::V6),
            _ => None,
        };
        let moment = |s: f64| Time::ZERO + Span::from_secs_f64(s);
        Ok(Making {
            clients,
            servers,
            only,
            end,
            plays_round_trips: model.generation.round_trips,
            ends: model.intervals.iter().map(|one| moment(one.start_s + one.duration_s)).collect(),
            connections: Vec::new(),
            carried: Vec::new(),
            scripts: Vec::new(),
            sessions: Vec::new(),
            gaps_s: Vec::new(),
            sizes: Vec::new(),
        })
    }

    fn interval(&self, at: Time) -> u32 {
        let at = self.ends.partition_point(|end| *end <= at);
        at.min(self.ends.len().saturating_sub(1)) as u32
    }

    fn session(&mut self, number: u32, slot: &SessionVector, content: &SessionVector) {
        let family = self.only.unwrap_or(if slot.ipv6 { Family::V6 } else { Family::V4 });
        let source = self.clients.host(family, slot.source);
        let destination = self.servers.host(family, slot.destination);
        let starts = Time::ZERO + Span::from_secs_f64(slot.start_s);
        self.sessions.push(Session {
            interval: self.interval(starts),
            source_rank: slot.source,
            destination_rank: slot.destination,
        });
        let trip = match self.plays_round_trips {
            true => slot.round_trip().to_be_freed_of(content.round_trip()),
            false => RoundTrip::default(),
        };
        let way_ns = match trip.client_ns {
            0 => 0,
            _ => slot.round_trip().one_way_ns(Side::Client),
        };
        let mut before: Option<(usize, f64)> = None;
        for one in &content.connections {
            let start = starts + Span::from_secs_f64(one.after_s);
            if start >= self.end {
                break;
            }
            // (The SYN must pass the meter at that time, so it is sent earlier.)
            let start = Time::from_nanos(start.as_nanos().saturating_sub(way_ns));
            if let Some((_, after_s)) = before {
                self.gaps_s.push(one.after_s - after_s);
            }
            let script = match self.plays_round_trips {
                true => one.script().freed(trip),
                false => one.script(),
            };
            let planned = self.connection(number, start, (source, destination), (one, script));
            let at = self.connections.len();
            self.connections.push((planned, before.map(|(at, _)| at)));
            self.carried.push([one.packets, one.octets]);
            before = Some((at, one.after_s));
        }
    }

    fn connection(
        &mut self,
        session: u32,
        start: Time,
        (source, destination): (IpAddr, IpAddr),
        (one, script): (&ConnectionVector, Script),
    ) -> PlannedConnection {
        let [request_bytes, size_bytes] = Side::BOTH.map(|side| one.bytes(side));
        let files = [request_bytes, size_bytes].into_iter().filter(|bytes| *bytes > 0);
        self.sizes.extend(files.map(|bytes| bytes as f64));
        let number = self.scripts.len() as u32;
        self.scripts.push(script);
        PlannedConnection {
            start,
            session,
            interval: self.interval(start),
            source,
            destination,
            size_bytes,
            request_bytes,
            segment_bytes: one.segment_bytes,
            source_port: 0,
            script: Some(number),
        }
    }

    fn finish(self, ranks: (usize, usize), folded: u64) -> Plan {
        let intervals = self.intervals();
        let mut order: Vec<usize> = (0..self.connections.len()).collect();
        order.sort_by_key(|&at| (self.connections[at].0.start, at));
        let mut place = vec![0u32; order.len()];
        (0..).zip(&order).for_each(|(now, &was)| place[was] = now);
        let mut next_port: BTreeMap<IpAddr, u16> = BTreeMap::new();
        let mut connections = Vec::with_capacity(order.len());
        for &at in &order {
            let mut planned = self.connections[at].0;
            let port = next_port.entry(planned.source).or_insert(PORTS.start);
            planned.source_port = *port;
            *port = if *port + 1 == PORTS.end { PORTS.start } else { *port + 1 };
            connections.push(planned);
        }
        let previous =
            order.iter().map(|&at| self.connections[at].1.map(|before| place[before])).collect();
        let law = |values: Vec<f64>, otherwise: f64| {
            let values = if values.is_empty() { vec![otherwise] } else { values };
            Empirical::step_from(values, 2_048).expect("values are finite and not negative")
        };
        Plan {
            connections,
            previous,
            sessions: self.sessions,
            intervals,
            censored: Vec::new(),
            collisions: 0,
            ranks,
            gaps: law(self.gaps_s, self.end.as_secs_f64()),
            file_size: law(self.sizes, 1.0),
            is_joint: true,
            scripts: self.scripts,
            hosts_folded: folded,
            end: self.end,
        }
    }

    /// The intended volume of each interval is the planned one: another seed is another draw, not a deviation
    /// of the run.
    fn intervals(&self) -> Vec<PlannedInterval> {
        let mut begins = Time::ZERO;
        let mut planned: Vec<PlannedInterval> = Vec::new();
        for end in &self.ends {
            planned.push(PlannedInterval {
                start: begins,
                end: *end,
                connections: 0,
                bytes: 0,
                asked: ConnectionVolume::default(),
                sessions: 0.0,
            });
            begins = *end;
        }
        for ((one, _), [packets, octets]) in self.connections.iter().zip(&self.carried) {
            let interval = &mut planned[one.interval as usize];
            interval.connections += 1;
            interval.bytes += one.size_bytes + one.request_bytes;
            let (packets, octets) = (*packets, *octets);
            let bytes = one.size_bytes + one.request_bytes;
            interval.asked.add(&ConnectionVolume { connections: 1, bytes, packets, octets });
        }
        for (interval, sessions) in planned.iter_mut().zip(self.active()) {
            interval.sessions = sessions;
        }
        planned
    }

    /// Mean number of sessions that are between their first and their last connection's start, by interval.
    fn active(&self) -> Vec<f64> {
        let mut spans: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for (one, _) in &self.connections {
            let start_s = one.start.as_secs_f64();
            let span = spans.entry(one.session).or_insert((start_s, start_s));
            *span = (span.0.min(start_s), span.1.max(start_s));
        }
        let mut begins_s = 0.0;
        let mut active = Vec::new();
        for end in &self.ends {
            let end_s = end.as_secs_f64();
            let shared = |span: &(f64, f64)| (span.1.min(end_s) - span.0.max(begins_s)).max(0.0);
            let sum: f64 = spans.values().map(shared).sum();
            active.push(sum / (end_s - begins_s).max(1e-9));
            begins_s = end_s;
        }
        active
    }
}

impl Hosts {
    /// The address of a rank; ranks beyond the pool begin again at its first.
    fn host(&self, family: Family, rank: u32) -> IpAddr {
        self.pool.host(family, u64::from(rank) % self.pool.hosts(family))
    }
}

/// The number and the volume of a table's connections that start in each of `count` equal intervals of its
/// part.
pub fn intervals(vectors: &Vectors, count: usize) -> Vec<Interval> {
    let length_s = vectors.seconds / count as f64;
    let empty = |at: usize| Interval {
        start_s: at as f64 * length_s,
        duration_s: length_s,
        bytes: 0,
        flows: 0,
        packets: 0,
        sessions: 0.0,
        sessions_direct: 0.0,
        whole: Some(ConnectionVolume::default()),
    };
    let mut made: Vec<Interval> = (0..count).map(empty).collect();
    for (session, one) in vectors.connections() {
        let at = ((session.start_s + one.after_s) / length_s) as usize;
        let interval = &mut made[at.min(count - 1)];
        let bytes = Side::BOTH.map(|side| one.bytes(side));
        interval.flows += bytes.iter().filter(|bytes| **bytes > 0).count() as u64;
        interval.bytes += bytes.iter().sum::<u64>();
        interval.packets += one.packets;
        if let Some(whole) = &mut interval.whole {
            whole.add(&ConnectionVolume {
                connections: 1,
                bytes: bytes.iter().sum(),
                packets: one.packets,
                octets: one.octets,
            });
        }
    }
    made
}
